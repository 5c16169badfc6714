//! The command `headend reload`: asks the daemon to read its configuration again.

use crate::cli::reach::daemon;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::operator::request::{ReloadParams, Request};
use crate::operator::views::ReloadView;
use crate::wire::foreign;

pub(in crate::cli) fn run(common: &CommonOptions, dry_run: bool) -> Result<u8, CommandFailure> {
    let config = common.config.as_ref().filter(|_| dry_run);
    let config = config.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    let request = Request::Reload(ReloadParams { dry_run, config, ..ReloadParams::default() });
    let ReloadView { plan } = daemon::connect(common, "admin", None)?.ask(&request)?;
    print(&format!("{}\n", foreign::block(&plan)))
}
