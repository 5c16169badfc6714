//! `headend login NAME` and `headend logout NAME`.

use std::io::{BufRead as _, Write as _};

use super::daemon::{self, Daemon};
use super::exit::{NO, OK, USAGE};
use super::options::Common;
use super::output::{Failure, complain, print};
use super::status::unknown;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// Wrong addresses before the command gives up.
const TRIES: usize = 5;

/// One member of the daemon's answer about a login, safe to print.
fn said(answer: &RawObject, name: &str) -> Option<String> {
    answer.string(name).map(|text| foreign::line(&text).into_owned())
}

pub(super) fn run(common: &Common, name: &str, paste: bool) -> Result<u8, Failure> {
    let mut daemon = daemon::connect(common, "admin", None)?;
    let mut params = RawObject::of_strings(&[("name", name)]);
    params.set("paste", RawJson::boolean(paste));
    let begun = daemon
        .ask("login.begin", Some(&params.encode().text()))
        .map_err(|failure| unknown(&mut daemon, name, failure))?;
    let of = |name: &str| said(&begun, name).unwrap_or_default();
    let (upstream, issuer, link) = (of("upstream"), of("issuer"), of("link"));
    let mut text = format!("{upstream} wants a login at {issuer}\n");
    for (member, meaning) in [
        ("page-host", "Its login page is on another host"),
        ("scopes", "It asks for these rights"),
        ("more-scopes", "More than before"),
    ] {
        if let Some(value) = said(&begun, member) {
            text.push_str(&format!("{meaning}: {value}\n"));
        }
    }
    if let Some(warning) = said(&begun, "warning") {
        text.push_str(&format!("Warning: {warning}\n"));
    }
    let id = begun.string("id").unwrap_or_default();
    let done = if paste {
        text.push_str(&format!(
            "\nOpen this address in any browser, and log in there:\n\n{link}\n\n\
             Then the browser goes to an address on the machine of headend, which may fail to load.\n\
             Copy that address, the whole of it, and paste it here.\n\n"
        ));
        print(&text)?;
        pasted(&mut daemon, &id)?
    } else {
        text.push_str(&format!(
            "\nOpen this address in a browser on this machine:\n\n{link}\n\n\
             It works once, for ten minutes. If the browser is on another machine: headend login {name} --paste\n\
             Waiting for the login ...\n"
        ));
        print(&text)?;
        daemon.ask("login.wait", Some(&RawObject::of_strings(&[("id", &id)]).encode().text()))?
    };
    let account = said(&done, "account").map(|account| format!(" as {account}")).unwrap_or_default();
    print(&format!("Logged in to {upstream} at {issuer}{account}.\n"))?;
    let Some(state) = said(&done, "state") else { return Ok(OK) };
    match state.parse() {
        Ok(UpstreamState::Ready | UpstreamState::Idle) => Ok(OK),
        Ok(UpstreamState::Starting) => {
            print(&format!("{upstream} is connecting; `headend status {name}` shows what comes of it.\n"))?;
            Ok(OK)
        }
        _ => {
            let why = said(&done, "last-error").unwrap_or_default();
            Err(Failure::new(NO, format!("{upstream} is {state}: {why}")))
        }
    }
}

/// Asks for the address at which the browser ended, until it is the right one.
fn pasted(daemon: &mut Daemon, id: &str) -> Result<RawObject, Failure> {
    let mut last = Failure::new(USAGE, "no address was given");
    for _ in 0..TRIES {
        print("address: ")?;
        // The prompt has no end of line.
        drop(std::io::stdout().flush());
        let mut address = String::new();
        let read = std::io::stdin().lock().read_line(&mut address);
        if !read.is_ok_and(|bytes| bytes > 0) {
            return Err(last);
        }
        if address.trim().is_empty() {
            continue;
        }
        let params = RawObject::of_strings(&[("id", id), ("address", address.trim())]).encode();
        match daemon.ask("login.paste", Some(&params.text())) {
            Err(failure) if failure.text.contains("does not belong to the login") => {
                complain(&failure.text);
                last = failure;
            }
            outcome => return outcome,
        }
    }
    Err(last)
}

pub(super) fn out(common: &Common, name: &str) -> Result<u8, Failure> {
    let mut daemon = daemon::connect(common, "admin", None)?;
    let params = RawObject::of_strings(&[("name", name)]).encode();
    let answer = daemon.ask("logout", Some(&params.text())).map_err(|failure| unknown(&mut daemon, name, failure))?;
    let shown = foreign::line(name);
    if answer.is_true("was-there") {
        print(&format!("Logged out of {shown}. Its tools stay listed, and wait for `headend login {shown}`.\n"))
    } else {
        print(&format!("{shown} had no login.\n"))
    }
}
