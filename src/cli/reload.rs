//! `headend reload`.

use super::output::{Failure, print};
use super::{Common, daemon};
use crate::wire::foreign;

pub(super) fn run(common: &Common) -> Result<u8, Failure> {
    let answer = daemon::connect(common, "admin", None)?.ask("reload", None)?;
    print(&format!("{}\n", foreign::block(&answer.string("plan").unwrap_or_default())))
}
