//! Plays a case on the pipes of a `headend stdio` of its own.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::case::Case;
use super::judge;
use crate::tools::harness::GatewaySetup;
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{eventually, resident};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::{Fake, InputLog};

/// Plays the case and returns the differences.
pub(super) fn play(case: &Case) -> Vec<String> {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let (world, config) = setup.fake("fx", &Fake::stdio("both").logging(&log)).write();
    let pipe = Pipe::start(&world, &config, &["--no-daemon"]);
    let session = case.era.as_str() < "2026" && case.era != "any";
    let era = if session { ClientEra::Legacy(case.revision()) } else { ClientEra::Modern };
    let mut client = Mcp::stdio(pipe, era);
    if !session {
        // Only a modern client lists without the handshake, which the case may want to make itself.
        eventually("fx is listed", || client.tool_names().contains(&"fx__echo".to_owned()));
    }
    let line = if case.transport == "stdio" { case.raw() } else { case.body() };
    let before = resident(client.pipe().pid());
    let (calls, lines) = (log.work(), client.pipe().stderr.all().len());
    client.pipe().send(&line);
    let replies = replies(case, &mut client, session);
    let mut wrong = match replies {
        Ok(replies) => judged(case, &replies, line.is_empty()),
        Err(why) => vec![why],
    };
    if case.expects("no_upstream_call") && log.work() > calls {
        wrong.push("a call reached the upstream".to_owned());
    }
    if let Some(most) = case.expect("rss_growth_mib").and_then(Value::as_u64) {
        let grown = peak(client.pipe().pid()).saturating_sub(before) / (1024 * 1024);
        if grown > most {
            wrong.push(format!("grew by {grown} MiB"));
        }
    }
    if let Some(most) = case.expect("log_lines_delta").and_then(Value::as_u64) {
        let new = client.pipe().stderr.all().split_off(lines);
        if new.len() as u64 > most || new.iter().any(|line| line.starts_with("INJECTED")) {
            wrong.push(format!("the log got {new:?}"));
        }
    }
    wrong
}

/// Returns the messages before the answer to a request that is certainly good.
fn replies(case: &Case, client: &mut Mcp, session: bool) -> Result<Vec<Value>, String> {
    let (method, params) = if session { ("ping", json!({})) } else { ("tools/list", json!({})) };
    let params = client.dress(params);
    let probe = json!({"jsonrpc": "2.0", "id": "probe", "method": method, "params": params}).to_string();
    if let Err(error) = client.pipe().try_send(probe.as_bytes()) {
        return Err(format!("the input was closed: {error}"));
    }
    let wanted = case.expect("replies").and_then(Value::as_u64).unwrap_or(0);
    let mut replies: Vec<Value> = Vec::new();
    let mut probed = false;
    while !probed || (replies.len() as u64) < wanted {
        let Some(line) = client.pipe().line(Duration::from_secs(60)) else {
            return Err(format!("not served on: {replies:?}\n{}", client.pipe().story()));
        };
        let message: Value = serde_json::from_str(&line).map_err(|error| format!("{error} in {line}"))?;
        if message["id"] == "probe" {
            probed = true;
        } else if message.get("method").is_none() {
            replies.push(message);
        }
    }
    Ok(replies)
}

fn judged(case: &Case, replies: &[Value], blank: bool) -> Vec<String> {
    if blank {
        // A blank line separates messages and is no message.
        return replies.iter().map(|reply| format!("a blank line is answered {reply}")).collect();
    }
    let mut wrong: Vec<String> = Vec::new();
    if let Some(count) = case.expect("replies").and_then(Value::as_u64)
        && replies.len() as u64 != count
    {
        wrong.push(format!("{} replies, not {count}: {replies:?}", replies.len()));
    }
    if case.expects("type_exact_ids") {
        let mut ids: Vec<String> = replies.iter().map(|reply| reply["id"].to_string()).collect();
        ids.sort();
        if ids != ["\"1\"", "1"] {
            wrong.push(format!("ids {ids:?}"));
        }
    }
    let expected = case.expect("jsonrpc_code").is_some();
    if replies.is_empty() && expected && !case.expects("optional_reply") {
        wrong.push("no reply".to_owned());
    }
    if expected {
        wrong.extend(replies.iter().flat_map(|reply| judge::rpc(case, reply, false)));
    }
    wrong
}

/// Returns the largest resident memory that a process ever had, in bytes.
pub(super) fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
