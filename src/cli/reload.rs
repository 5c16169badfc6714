//! The command `headend reload`: asks the daemon to read its configuration again.

use super::daemon;
use super::options::Common;
use super::output::{Failure, print};
use crate::operator::request::{ReloadParams, Request};
use crate::operator::views::Reloaded;
use crate::wire::foreign;

pub(super) fn run(common: &Common, dry_run: bool) -> Result<u8, Failure> {
    let config = common.config.as_ref().filter(|_| dry_run);
    let config = config.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    let request = Request::Reload(ReloadParams { dry_run, config, ..ReloadParams::default() });
    let Reloaded { plan } = daemon::connect(common, "admin", None)?.ask(&request)?;
    print(&format!("{}\n", foreign::block(&plan)))
}
