//! `headend call`.

use std::io::IsTerminal as _;

use clap::Args;

use super::approvals::{self, Asked, Offer, Place};
use super::daemon::{self, Daemon};
use super::exit::{NO, USAGE};
use super::options::Common;
use super::output::{Failure, complain, print};
use super::terminal;
use super::tools::unknown;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

pub(super) fn run(common: &Common, name: &str, arguments: Option<&str>) -> Result<u8, Failure> {
    let arguments = arguments.unwrap_or("{}");
    let is_object = serde_json::from_str::<&serde_json::value::RawValue>(arguments)
        .is_ok_and(|value| value.get().trim_start().starts_with('{'));
    if !is_object {
        return Err(Failure::new(USAGE, "the arguments must be a JSON object, as in '{\"text\":\"hello\"}'"));
    }
    // The socket takes one line per request; in JSON, line breaks stand between tokens only.
    let arguments = arguments.replace(['\n', '\r'], " ");
    let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, RawJson::string(name).text());
    let mut daemon = daemon::connect(common, "admin", None)?;
    let call =
        |daemon: &mut Daemon| daemon.ask("call", Some(&params)).map_err(|failure| unknown(daemon, name, failure));
    let mut result = call(&mut daemon)?;
    if approve(common, &result)? {
        result = call(&mut daemon)?;
    }
    let is_error = result.is_true("isError");
    let mut out = String::new();
    for block in result.list("content").unwrap_or_default() {
        let text = RawObject::parse(&block).ok().filter(|b| b.string("type").as_deref() == Some("text"));
        match text.and_then(|block| block.string("text")) {
            Some(text) => out.push_str(&foreign::block(&text)),
            None => out.push_str(&foreign::block(&block.text())),
        }
        out.push('\n');
    }
    let code = print(&out)?;
    if let Some(command) = approving(&result).filter(|_| std::io::stderr().is_terminal()) {
        complain(&format!("to allow this call once, run `{command}`; then call again"));
    }
    Ok(if is_error { NO } else { code })
}

/// Asks about the approval that the call waits for, where a person is here to answer as the operator. Whether the call may be made
/// now.
fn approve(common: &Common, result: &RawObject) -> Result<bool, Failure> {
    let Some(id) = approval(result).and_then(|approval| approval.string("id")).filter(|_| terminal::is_here()) else {
        return Ok(false);
    };
    let mut place = Place::find(common)?;
    // Other users of the socket may look at no approval.
    if place.list("approvals.list", "approvals").is_err() {
        return Ok(false);
    }
    match approvals::ask(common, &mut place, &id, Offer::Once)? {
        // Another channel may have allowed it, and then it passes.
        Asked::Allowed(_) | Asked::Gone => Ok(true),
        Asked::Denied => Err(Failure::new(NO, "denied: the call was not made")),
        Asked::Left | Asked::Over => Ok(false),
    }
}

/// The command that approves the call. It is for the person at a terminal: a model that reads the output must not be
/// led to run it.
fn approving(result: &RawObject) -> Option<String> {
    approval(result)?.string("command")
}

fn approval(result: &RawObject) -> Option<RawObject> {
    result.object("_meta")?.object("headend/refusal")?.object("approval")
}
