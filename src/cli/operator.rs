//! Commands that act without a daemon: whether they may answer approvals and decide pins, by
//! `[policy.consent] operator`, and the records of their actions.

use super::exit::{NO, TEMPFAIL};
use super::options::Common;
use super::output::Failure;
use super::{source, terminal};
use crate::config::Operator;
use crate::daemon::admin::fresh_code;
use crate::policy::{Entry, OperatorAction};
use crate::store::audit::action;
use crate::store::db::Db;

/// The person who runs this command, as grants and answers name it.
pub(super) fn user() -> String {
    format!("uid:{}", rustix::process::getuid().as_raw())
}

/// The record of an action of this command on a store without a daemon.
pub(super) fn record(action: OperatorAction, name: Option<&str>, outcome: Result<&str, &str>) -> Entry {
    action::entry(action, &format!("command:{}", user()), name, outcome)
}

/// The strictest of this command's own configuration and the settings of the daemon and of the gateway of `headend stdio` that ran last,
/// which no `--config` changes.
///
/// # Errors
/// 1 when no command may, or the code was not typed; 75 when the store cannot be read.
pub(super) fn permit(common: &Common, db: &Db) -> Result<(), Failure> {
    let own = source::quiet(common).map_or(Operator::Any, |config| config.consent.operator);
    let kept = db.operator().run_now().map_err(|error| Failure::new(TEMPFAIL, error))?;
    match own.max(Operator::of_number(kept)) {
        Operator::Any => Ok(()),
        Operator::Terminal => {
            let code = fresh_code();
            let typed = terminal::code(&format!("type {code} to answer: "))?;
            if typed.eq_ignore_ascii_case(&code) {
                return Ok(());
            }
            Err(Failure::new(NO, "that is not the code that the terminal shows"))
        }
        Operator::None => {
            let text = "[policy.consent] operator = \"none\": no command answers approvals or decides pins; answer on the console's page";
            Err(Failure::new(NO, text))
        }
    }
}
