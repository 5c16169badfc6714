//! `headend reload`.

use super::daemon;
use super::options::Common;
use super::output::{Failure, print};
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

pub(super) fn run(common: &Common, dry_run: bool) -> Result<u8, Failure> {
    let mut params = RawObject::default();
    if dry_run {
        params.set("dry-run", RawJson::boolean(true));
        if let Some(path) = &common.config {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            params.set("config", RawJson::string(&path.display().to_string()));
        }
    }
    let params = params.encode();
    let answer = daemon::connect(common, "admin", None)?.ask("reload", Some(&params.text()))?;
    print(&format!("{}\n", foreign::block(&answer.string("plan").unwrap_or_default())))
}
