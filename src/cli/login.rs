//! The commands `headend login NAME` and `headend logout NAME`.

use std::io::{BufRead as _, Write as _};

use super::exit::{NO, OK, USAGE};
use super::status::suggest_upstream;
use crate::cli::reach::daemon;
use crate::cli::reach::daemon::DaemonConnection;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, print};
use crate::operator::logins::{BegunLoginView, FinishedLoginView, LogoutView};
use crate::operator::request::{IdParams, LoginParams, NameParams, PasteParams, Request};
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign;

/// Wrong addresses after which the command gives up.
const TRIES: usize = 5;

pub(super) fn run(common: &CommonOptions, name: &str, paste: bool) -> Result<u8, CommandFailure> {
    let mut daemon = daemon::connect(common, "admin", None)?;
    let request = Request::BeginLogin(LoginParams { name: name.to_owned(), paste });
    let begun: BegunLoginView = daemon.ask(&request).map_err(|failure| suggest_upstream(&mut daemon, name, failure))?;
    let [upstream, issuer, link] = [&begun.upstream, &begun.issuer, &begun.link].map(|text| foreign::line(text));
    let mut text = format!("{upstream} wants a login at {issuer}\n");
    for (value, meaning) in [
        (&begun.page_host, "Its login page is on another host"),
        (&begun.scopes, "It asks for these rights"),
        (&begun.more_scopes, "More than before"),
        (&begun.warning, "Warning"),
    ] {
        if let Some(value) = value {
            text.push_str(&format!("{meaning}: {}\n", foreign::line(value)));
        }
    }
    let id = &begun.id;
    let done = if paste {
        text.push_str(&format!(
            "\nOpen this address in any browser, and log in there:\n\n{link}\n\n\
             Then the browser goes to an address on the machine of headend, which may fail to load.\n\
             Copy that address, the whole of it, and paste it here.\n\n"
        ));
        print(&text)?;
        ask_for_address(&mut daemon, id)?
    } else {
        text.push_str(&format!(
            "\nOpen this address in a browser on this machine:\n\n{link}\n\n\
             It works once, for ten minutes. If the browser is on another machine: headend login {name} --paste\n\
             Waiting for the login ...\n"
        ));
        print(&text)?;
        daemon.ask(&Request::AwaitLogin(IdParams { id: id.clone() }))?
    };
    let account = done.account.map(|account| format!(" as {}", foreign::line(&account))).unwrap_or_default();
    print(&format!("Logged in to {upstream} at {issuer}{account}.\n"))?;
    match done.state {
        Some(UpstreamState::Ready | UpstreamState::Idle) | None => Ok(OK),
        Some(UpstreamState::Starting) => {
            print(&format!("{upstream} is connecting; `headend status {name}` shows what comes of it.\n"))?;
            Ok(OK)
        }
        Some(state) => {
            let why = done.last_error.unwrap_or_default();
            Err(CommandFailure::new(NO, format!("{upstream} is {state}: {}", foreign::line(&why))))
        }
    }
}

/// Asks for the address at which the browser ended, at most [`TRIES`] times, and sends it to the
/// daemon. Asks again only if the address does not belong to the login.
fn ask_for_address(daemon: &mut DaemonConnection, id: &str) -> Result<FinishedLoginView, CommandFailure> {
    let mut last = CommandFailure::new(USAGE, "no address was given");
    for _ in 0..TRIES {
        print("address: ")?;
        // The question ends without a newline.
        drop(std::io::stdout().flush());
        let mut address = String::new();
        let read = std::io::stdin().lock().read_line(&mut address);
        if !read.is_ok_and(|bytes| bytes > 0) {
            return Err(last);
        }
        if address.trim().is_empty() {
            continue;
        }
        let params = PasteParams { id: id.to_owned(), address: address.trim().to_owned() };
        match daemon.ask(&Request::PasteLogin(params)) {
            Err(failure) if failure.text.contains("does not belong to the login") => {
                complain(&failure.text);
                last = failure;
            }
            outcome => return outcome,
        }
    }
    Err(last)
}

pub(super) fn out(common: &CommonOptions, name: &str) -> Result<u8, CommandFailure> {
    let mut daemon = daemon::connect(common, "admin", None)?;
    let request = Request::LogOut(NameParams { name: name.to_owned() });
    let answer: LogoutView = daemon.ask(&request).map_err(|failure| suggest_upstream(&mut daemon, name, failure))?;
    let shown = foreign::line(name);
    if answer.was_there {
        print(&format!("Logged out of {shown}. Its tools stay listed, and wait for `headend login {shown}`.\n"))
    } else {
        print(&format!("{shown} had no login.\n"))
    }
}
