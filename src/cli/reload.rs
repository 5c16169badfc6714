//! `headend reload`.

use super::daemon;
use super::options::Common;
use super::output::{Failure, print};
use crate::wire::foreign;

pub(super) fn run(common: &Common) -> Result<u8, Failure> {
    let answer = daemon::connect(common, "admin", None)?.ask("reload", None)?;
    print(&format!("{}\n", foreign::block(&answer.string("plan").unwrap_or_default())))
}
