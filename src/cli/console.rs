//! `headend console`.

use super::daemon;
use super::options::Common;
use super::output::{Failure, print};
use crate::wire::foreign;

pub(super) fn run(common: &Common, json: bool) -> Result<u8, Failure> {
    let answer = daemon::connect(common, "admin", None)?.ask_as_operator("console.link", None)?;
    if json {
        return print(&format!("{}\n", answer.encode().text()));
    }
    print(&format!("{}\n", foreign::line(&answer.string("link").unwrap_or_default())))
}
