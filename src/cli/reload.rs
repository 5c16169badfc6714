//! `headend reload`.

use super::output::{Failure, plain, print};
use super::{Common, daemon};

pub(super) fn run(common: &Common) -> Result<u8, Failure> {
    let answer = daemon::connect(common, "admin", None)?.ask("reload", None)?;
    print(&format!("{}\n", plain(&answer.string("plan").unwrap_or_default())))
}
