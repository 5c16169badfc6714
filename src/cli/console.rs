//! `headend console`.

use super::output::{Failure, plain, print};
use super::{Common, daemon};

pub(super) fn run(common: &Common, json: bool) -> Result<u8, Failure> {
    let answer = daemon::connect(common, "admin", None)?.ask("console.link", None)?;
    if json {
        return print(&format!("{}\n", answer.encode().text()));
    }
    print(&format!("{}\n", plain(&answer.string("link").unwrap_or_default())))
}
