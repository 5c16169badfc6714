//! The command `headend call`: calls one tool through the daemon.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use super::exit::{NO, OK, USAGE};
use super::tools::suggest_tool;
use crate::cli::consent::approvals;
use crate::cli::consent::approvals::{AskOutcome, OfferedAnswers};
use crate::cli::reach::daemon;
use crate::cli::reach::daemon::{DaemonConnection, unreadable_answer};
use crate::cli::reach::operator::OperatorClient;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, print};
use crate::cli::words::terminal;
use crate::operator::request::{NoParams, Request};
use crate::operator::status::StatusView;
use crate::operator::upstreams::UpstreamView;
use crate::operator::views::ApprovalsView;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign;
use crate::wire::json::raw::{RawJson, RawObject};

/// Longest wait for a server that starts, in seconds.
const LONGEST_WAIT: u32 = 120;
/// Longest wait for the lists of a server that is ready, in seconds.
const LISTING: u64 = 10;

#[derive(Clone, Debug, Args)]
pub(super) struct CallArgs {
    /// The exposed name, as `headend tools` lists it.
    name: String,
    /// The arguments, a JSON object.
    #[arg(value_name = "JSON")]
    arguments: Option<String>,
    /// Print the result as the server sent it, and ask nothing.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(common: &CommonOptions, args: &CallArgs) -> Result<u8, CommandFailure> {
    let name = &args.name;
    let arguments = args.arguments.as_deref().unwrap_or("{}");
    let is_object = serde_json::from_str::<&serde_json::value::RawValue>(arguments)
        .is_ok_and(|value| value.get().trim_start().starts_with('{'));
    if !is_object {
        return Err(CommandFailure::new(USAGE, "the arguments must be a JSON object, as in '{\"text\":\"hello\"}'"));
    }
    // The socket takes one line per request. Line breaks between tokens are plain space in JSON.
    let arguments = arguments.replace(['\n', '\r'], " ");
    let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, RawJson::string(name).text());
    let mut daemon = daemon::connect(common, "admin", None)?;
    let request = Request::Call(RawJson::trusted(params));
    let call = |daemon: &mut DaemonConnection| {
        let result: RawJson = daemon.ask(&request).map_err(|failure| suggest_tool(daemon, name, failure))?;
        RawObject::parse(&result).map_err(unreadable_answer)
    };
    let mut result = call(&mut daemon)?;
    if !args.json && wait_for_start(&mut daemon, name, &result)? {
        result = call(&mut daemon)?;
    }
    if !args.json && approve(common, &result)? {
        result = call(&mut daemon)?;
    }
    let is_error = result.is_true("isError");
    let command = approve_command(&result).filter(|_| !args.json && std::io::stderr().is_terminal());
    let code = match &command {
        _ if args.json => print(&format!("{}\n", foreign::json(&result.encode().text())))?,
        // The text of the refusal is addressed to a model.
        Some(_) if std::io::stdout().is_terminal() => OK,
        _ => print(&format_result(&result))?,
    };
    if let Some(command) = command {
        complain(&format!(
            "the call was not made: it needs your approval. `{command}` allows it once; then call again"
        ));
    }
    Ok(if is_error { NO } else { code })
}

/// Waits for the server of a tool if it is starting and a person is at the terminal. Returns true
/// if the call, which was not made, can be made again.
fn wait_for_start(daemon: &mut DaemonConnection, name: &str, result: &RawObject) -> Result<bool, CommandFailure> {
    let refusal = result.object("_meta").and_then(|meta| meta.object("headend/refusal"));
    let is_down = refusal.is_some_and(|refusal| refusal.string("reason").as_deref() == Some("upstream_down"));
    let server = name.split_once("__").map_or(name, |(server, _)| server);
    let mut waited = 0;
    while is_down && waited < LONGEST_WAIT && terminal::is_here() {
        let status: StatusView = daemon.ask(&Request::Status(NoParams {}))?;
        let is_listing = |one: &UpstreamView| {
            let facts = one.facts.as_ref().filter(|_| waited > 0 && one.state == UpstreamState::Ready);
            facts.is_some_and(|facts| facts.tools == 0 && facts.health.since_seconds < LISTING)
        };
        let is_late = |one: &UpstreamView| one.state == UpstreamState::Starting || is_listing(one);
        if !status.upstreams.iter().any(|one| one.name == server && is_late(one)) {
            break;
        }
        if waited == 0 {
            complain(&format!("{} is starting; the call waits for it, Ctrl-C ends that", foreign::line(server)));
        }
        waited += 1;
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(waited > 0)
}

/// Formats a result for people: its texts as they are, and one line for each block that is no text.
fn format_result(result: &RawObject) -> String {
    let mut out = String::new();
    let content = result.list("content").unwrap_or_default();
    for block in &content {
        out.push_str(
            &RawObject::parse(block).ok().and_then(|block| format_block(&block)).unwrap_or_else(|| raw(block)),
        );
        out.push('\n');
    }
    if let Some(structured) = result.get("structuredContent").filter(|_| content.is_empty()) {
        out.push_str(&format!("{}\n", raw(structured)));
    }
    out
}

fn raw(json: &RawJson) -> String {
    foreign::json(&json.text())
}

/// Formats one block of a result; `None` for a block of an unknown type.
fn format_block(block: &RawObject) -> Option<String> {
    let line = |name: &str| block.string(name).map(|text| foreign::line(&text).into_owned());
    match block.string("type")?.as_str() {
        "text" => block.string("text").map(|text| foreign::block(&text).into_owned()),
        kind @ ("image" | "audio") => Some(binary(kind, line("mimeType"), block.get("data")?)),
        "resource_link" => Some(format!("{}: {}", line("name")?, line("uri")?)),
        "resource" => {
            let resource = block.object("resource")?;
            let text = resource.string("text").map(|text| foreign::block(&text).into_owned());
            let mime = resource.string("mimeType").map(|mime| foreign::line(&mime).into_owned());
            let uri = foreign::line(&resource.string("uri")?).into_owned();
            text.or_else(|| Some(binary(&uri, mime, resource.get("blob")?)))
        }
        _ => None,
    }
}

/// Describes binary content, given as base64 text in `data`, in one line.
fn binary(what: &str, mime: Option<String>, data: &RawJson) -> String {
    let mime = mime.map(|mime| format!(", {mime}")).unwrap_or_default();
    format!("[{what}{mime}, about {} bytes; `--json` prints them]", data.bytes().len() / 4 * 3)
}

/// Asks about the approval that the call waits for, if a person with the operator's rights is at
/// the terminal. Returns true if the call can be made now.
fn approve(common: &CommonOptions, result: &RawObject) -> Result<bool, CommandFailure> {
    let Some(id) = approval(result).and_then(|approval| approval.string("id")).filter(|_| terminal::is_here()) else {
        return Ok(false);
    };
    let mut client = OperatorClient::find(common)?;
    // Users of the socket who are not the operator cannot read approvals.
    if client.ask::<ApprovalsView>(&Request::Approvals(NoParams {})).is_err() {
        return Ok(false);
    }
    match approvals::ask(&mut client, &id, OfferedAnswers::Once)? {
        // If the approval is gone, another channel may have allowed the call, so it is tried.
        AskOutcome::Allowed { .. } | AskOutcome::Gone => Ok(true),
        AskOutcome::Denied => Err(CommandFailure::new(
            NO,
            "denied: the call was not made, and the same call stays refused for 10 minutes",
        )),
        AskOutcome::Left | AskOutcome::Over => Ok(false),
    }
}

/// Returns the command that approves the call, as the refusal in the result's `_meta` states it;
/// `None` if the result is no refusal for lack of an approval. To be shown only on a terminal, so
/// that a model that reads the output is not led to run it.
fn approve_command(result: &RawObject) -> Option<String> {
    approval(result)?.string("command")
}

fn approval(result: &RawObject) -> Option<RawObject> {
    result.object("_meta")?.object("headend/refusal")?.object("approval")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_told_as_text_and_bytes_are_one_line() {
        let result = RawJson::trusted(
            r#"{"content":[{"type":"text","text":"one\nt\u001bwo"},{"type":"image","mimeType":"image/png","data":"AAAAAAAA"},
            {"type":"resource_link","name":"note","uri":"note://1"},{"type":"resource","resource":{"uri":"note://1","text":"Milk"}},
            {"type":"resource","resource":{"uri":"note://2","blob":"AAAA"}},{"type":"odd","a":1}]}"#,
        );
        let wanted = "one\nt\\u{1b}wo\n[image, image/png, about 6 bytes; `--json` prints them]\nnote: note://1\nMilk\n\
                      [note://2, about 3 bytes; `--json` prints them]\n{\"type\":\"odd\",\"a\":1}\n";
        assert_eq!(format_result(&RawObject::parse(&result).unwrap()), wanted);
        let structured = RawJson::trusted(r#"{"content":[],"structuredContent":{"a":1}}"#);
        assert_eq!(format_result(&RawObject::parse(&structured).unwrap()), "{\"a\":1}\n");
    }
}
