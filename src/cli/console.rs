//! The command `headend console`: prints a link that signs in to the console.

use crate::cli::reach::daemon;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, print, print_json};
use crate::operator::request::{NoParams, Request};
use crate::operator::views::ConsoleLink;
use crate::wire::foreign;

pub(super) fn run(common: &CommonOptions, json: bool) -> Result<u8, CommandFailure> {
    let answer: ConsoleLink = daemon::connect(common, "admin", None)?.ask(&Request::LinkConsole(NoParams {}))?;
    if json {
        return print_json(&answer);
    }
    let printed = print(&format!("{}\n", foreign::line(&answer.link)))?;
    if let Some(host) = answer.proxied {
        complain(&format!("behind your proxy, open it at https://{host}"));
    }
    Ok(printed)
}
