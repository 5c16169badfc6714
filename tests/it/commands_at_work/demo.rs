//! Tests of the first minute with headend: no file, no upstream, one command.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::tools::harness::{Gateway, TestHome, headend, left_out};
use crate::tools::mcp::ClientEra;
use crate::tools::process::{installed, output_within, said};
use crate::tools::terminal::Terminal;

/// The default ports, which are documented. No other test uses fixed ones without [`ports`].
const PORTS: [u16; 2] = [8627, 9627];

/// Reserves the default ports for one test at a time; `None` if another program uses one.
pub(crate) fn ports() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(port) = PORTS.iter().find(|port| TcpListener::bind(("127.0.0.1", **port)).is_err()) {
        left_out("the default ports", &format!("port {port} is taken"));
        return None;
    }
    Some(turn)
}

#[test]
fn without_any_configuration_the_demo_upstreams_are_served_and_the_printed_lines_work() {
    let Some(_ports) = ports() else { return };
    let gateway = Gateway::start(TestHome::new(), None, &[], &[]);
    let printed = gateway.stdout.wait_for(Duration::from_secs(60), |lines| {
        let lines = curl_lines(lines);
        (lines.len() >= 2).then_some(lines)
    });
    let Some(curls) = printed else {
        panic!("no two curl lines in {:#?}", gateway.stdout.all());
    };
    let shown = gateway.stdout.all().join("\n");
    assert!(shown.contains("http://127.0.0.1:8627/mcp"), "{shown}");
    gateway.wait_for_tools(&[]);

    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let names = client.tool_names();
        for prefix in ["time__", "notes__", "lab__"] {
            assert!(names.iter().any(|name| name.starts_with(prefix)), "{era:?}: {prefix} in {names:?}");
        }
        let time = names.iter().find(|name| name.starts_with("time__")).unwrap();
        let answer = client.call(time, json!({}));
        assert!(answer.message.get("result").is_some(), "{era:?}: {time}: {}", answer.raw);
    }

    // One harmless tool needs an approval, and only a person at a terminal is asked, or told the
    // command that gives it.
    let note = ["call", "notes__add", r#"{"title": "Milk", "text": "Two litres"}"#];
    let piped = gateway.run(&note);
    assert!(piped.status.code() == Some(1) && !said(&piped).contains("headend approve"), "{}", said(&piped));
    let mut terminal = Terminal::start(&gateway.world, &note, "y\n");
    terminal.wait_for("[y/N]");
    terminal.type_in("\n");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(1), "{screen}");
    let command = screen.split('`').find(|text| text.starts_with("headend approve ")).map(str::to_owned);
    let command = command.unwrap_or_else(|| panic!("no command that approves: {screen}"));
    let approved = gateway.run(&["approve", command.rsplit(' ').next().unwrap()]);
    assert!(approved.status.success(), "{}", said(&approved));
    let made = gateway.run(&note);
    assert!(made.status.success() && said(&made).contains("Added note://2"), "{}", said(&made));

    if !installed("curl") || !installed("sh") {
        return left_out("the printed curl lines", "curl or sh is not installed");
    }
    let answers: Vec<Value> = curls.iter().map(|line| pasted(&gateway, line)).collect();
    assert!(answers.iter().any(lists_the_demo), "one line lists the tools: {answers:#?}");
    assert!(answers.iter().any(|answer| answer.pointer("/result/content").is_some()), "one line calls: {answers:#?}");
}

#[test]
fn each_demo_server_is_an_mcp_server_of_its_own() {
    let world = TestHome::new();
    for name in ["time", "notes", "lab"] {
        let mut command = world.command(headend());
        command.args(["demo", name]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}});
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        stdin.write_all(format!("{hello}\n{done}\n{list}\n").as_bytes()).unwrap();
        drop(stdin);
        let output = output_within(child, Duration::from_secs(60), &format!("headend demo {name}"));
        let text = String::from_utf8(output.stdout).unwrap();
        let tools = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).find(|line| line["id"] == 2);
        let tools = tools.unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(tools["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{name}: {tools}");
    }
}

/// Returns the commands that a person would paste: from `curl` to the end of the continued line.
fn curl_lines(lines: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = lines.iter();
    while let Some(line) = rest.next() {
        let mut command = line.trim().trim_start_matches("$ ").to_owned();
        if !command.starts_with("curl ") {
            continue;
        }
        while command.ends_with('\\') {
            command.push('\n');
            command.push_str(rest.next().map_or("", |line| line.as_str()));
        }
        found.push(command);
    }
    found
}

fn pasted(gateway: &Gateway, line: &str) -> Value {
    let mut command = gateway.world.command("sh");
    command.arg("-c").arg(line).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = output_within(command.spawn().unwrap(), Duration::from_secs(60), line);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or(&text);
    let answer: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{line}: {error}: {text}"));
    assert!(answer.get("error").is_none(), "{line}\n{answer}");
    answer
}

fn lists_the_demo(answer: &Value) -> bool {
    let tools = answer.pointer("/result/tools").map(Value::to_string).unwrap_or_default();
    ["time__", "notes__", "lab__"].iter().all(|prefix| tools.contains(prefix))
}
