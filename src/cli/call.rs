//! `headend call`.

use std::io::IsTerminal as _;

use super::daemon;
use super::exit::{NO, USAGE};
use super::options::Common;
use super::output::{Failure, complain, print};
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
    let result = daemon.ask("call", Some(&params)).map_err(|failure| unknown(&mut daemon, name, failure))?;
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

/// The command that approves the call. It is for the person at a terminal: a model that reads the output must not be
/// led to run it.
fn approving(result: &RawObject) -> Option<String> {
    result.object("_meta")?.object("headend/refusal")?.object("approval")?.string("command")
}
