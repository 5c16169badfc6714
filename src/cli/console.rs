//! The command `headend console`: prints a link that signs in to the console.

use crate::cli::reach::daemon;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print, print_json};
use crate::operator::request::{NoParams, Request};
use crate::operator::views::ConsoleLink;
use crate::wire::foreign;

pub(super) fn run(common: &CommonOptions, json: bool) -> Result<u8, CommandFailure> {
    let answer: ConsoleLink = daemon::connect(common, "admin", None)?.ask(&Request::LinkConsole(NoParams {}))?;
    if json {
        return print_json(&answer);
    }
    print(&format!("{}\n", foreign::line(&answer.link)))
}
