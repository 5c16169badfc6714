//! Tests of questions on a terminal: `approvals --watch`, `headend call` and `pins approve` of one
//! item.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::operator::{headend, pending};
use super::*;
use crate::tools::mcp::OpenCall;
use crate::tools::process::{Lines, said, wait};
use crate::tools::steps::abuse::echoed;
use crate::tools::terminal::Terminal;

const QUESTION: &str = "Allow this call once? [y/N]";
const WATCHED: &str = "Allow this call? [y: once, 8:";

fn open(client: &mut Mcp, text: &str) -> OpenCall {
    client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": text}}))
}

/// Waits until this many questions were shown.
fn wait_for(terminal: &Terminal, questions: usize) {
    eventually(&format!("{questions} questions: {}", terminal.screen()), || {
        [QUESTION, WATCHED].iter().map(|question| terminal.screen().matches(question).count()).sum::<usize>()
            == questions
    });
}

#[test]
fn a_watch_shows_each_approval_and_takes_an_answer_to_what_it_showed() {
    let stage = ApprovalGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    // Typed before any question was shown.
    let mut terminal = Terminal::start(&stage.gateway.world, &["approvals", "--watch"], "y\n");
    terminal.wait_for("Ctrl-C ends");
    terminal.type_in("y\ny\n");
    let mut first = open(&mut client, "one \u{1b}[2J\u{202e}");
    wait_for(&terminal, 1);
    assert_eq!(stage.called().len(), 0, "what was typed before answers nothing");
    let screen = terminal.screen();
    assert!(!screen.contains("\u{1b}[2J") && !screen.contains('\u{202e}'), "{screen:?}");
    for part in [r"\u{1b}", r"\u{202e}", "\"local\", says it is", "2 hidden characters"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let mut second = open(&mut client, "two");
    terminal.type_in("y\n");
    terminal.wait_for("allowed once");
    assert!(echoed_on(&first.response(), "one \u{1b}[2J\u{202e}"));
    wait_for(&terminal, 2);
    terminal.type_in("n\n");
    terminal.wait_for("denied");
    assert_eq!(second.response()["result"]["_meta"]["headend/refusal"]["reason"], "denied");

    // Answered elsewhere while it is shown.
    let mut third = open(&mut client, "three");
    wait_for(&terminal, 3);
    headend(&stage, &["approve", &pending(&stage)[0]]);
    assert!(echoed_on(&third.response(), "three"));
    terminal.wait_for("answered elsewhere");

    // Neither answer: the approval stays open, and is not asked about again.
    let mut fourth = open(&mut client, "four");
    wait_for(&terminal, 4);
    terminal.type_in("what?\n");
    terminal.wait_for("left open");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(terminal.screen().matches(WATCHED).count(), 4);
    assert!(fourth.next_within(Duration::from_millis(200)).is_err(), "it still waits");
    let (code, screen) = terminal.interrupted();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(pending(&stage).len(), 1, "the end of the watch answers nothing");
    assert_eq!(stage.called().len(), 2);
}

fn echoed_on(response: &Value, text: &str) -> bool {
    response["result"]["content"][0]["text"] == text
}

#[test]
fn without_a_terminal_a_watch_is_a_line_for_each_approval_and_asks_nothing() {
    let stage = ApprovalGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    for (more, json) in [(&[][..], false), (&["--json"][..], true)] {
        let mut command = stage.gateway.world.command(crate::tools::harness::headend());
        command.args(["approvals", "--watch"]).args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"y\ny\ny\n").unwrap();
        let text = format!("canary {json}");
        let call = open(&mut client, &text);
        let is_it = |line: &String| line.contains("fx__echo");
        let line =
            lines.wait_for(Duration::from_secs(20), |lines| lines.iter().find(|line| is_it(line)).cloned()).unwrap();
        let id = pending(&stage).remove(0);
        assert!(line.contains(&id) && line.contains("local"), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).is_ok(), json, "{line}");
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(lines.all().iter().filter(|line| is_it(line)).count(), 1, "once: {:?}", lines.all());
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
        assert_eq!(wait(&mut child, Duration::from_secs(10)).and_then(|status| status.code()), Some(0));
        assert_eq!(pending(&stage), [id.as_str()], "nothing was answered");
        headend(&stage, &["deny", &id]);
        drop(call);
    }
    assert_eq!(stage.called().len(), 0);
}

#[test]
fn a_watch_does_not_keep_the_daemon_from_ending_and_goes_on_with_the_next_one() {
    let mut stage = ApprovalGateway::with(LONG, "");
    let mut terminal = Terminal::start(&stage.gateway.world, &["approvals", "--watch"], "");
    terminal.wait_for("Ctrl-C ends");
    std::thread::sleep(Duration::from_millis(500));
    stage.gateway.signal(Signal::TERM);
    // Idle connections were waited for until the end of `drain-timeout`, which is 25 s.
    let ended = stage.gateway.wait(Duration::from_secs(12));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {}", stage.gateway.story());
    let (world, config) = (stage.gateway.world.clone(), stage.gateway.config.clone());
    let environment = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
    stage.gateway = Gateway::start(world, Some(config), &["serve"], &environment);
    stage.gateway.wait_for_tools(&["fx__echo"]);
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let mut call = open(&mut client, "after the restart");
    wait_for(&terminal, 1);
    terminal.type_in("y\n");
    assert!(echoed_on(&call.response(), "after the restart"));
}

#[test]
fn a_watch_needs_the_code_where_answers_do() {
    let stage = ApprovalGateway::with(&format!("{LONG}\noperator = \"terminal\""), "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let mut terminal = Terminal::controlling(&stage.gateway.world, &["approvals", "--watch"]);
    terminal.wait_for("Ctrl-C ends");
    let mut first = open(&mut client, "one");
    wait_for(&terminal, 1);
    terminal.type_in("y\n");
    terminal.wait_for("code: ");
    terminal.type_in("aaaa-aaaa\n");
    terminal.wait_for("that is not the code");
    assert_eq!(pending(&stage).len(), 1, "nothing was answered");
    assert!(first.next_within(Duration::from_millis(200)).is_err(), "it still waits");
    assert_eq!(stage.called().len(), 0);
    drop(terminal);
    let stage = ApprovalGateway::with(&format!("{LONG}\noperator = \"none\""), "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let _call = open(&mut client, "one");
    let mut terminal = Terminal::start(&stage.gateway.world, &["approvals", "--watch"], "");
    wait_for(&terminal, 1);
    terminal.type_in("y\n");
    terminal.wait_for("answer on the console's page");
    assert_eq!((pending(&stage).len(), stage.called().len()), (1, 0));
}

#[test]
fn a_call_from_a_terminal_is_asked_about_there_and_then() {
    let stage = ApprovalGateway::new();
    let call = ["call", "fx__echo", r#"{"text": "from here"}"#];
    for (keys, code, want, called) in [
        ("\n", 1, "headend approve", 0),
        ("y\n", 0, "from here", 1),
        ("n\n", 1, "denied: the call was not made", 1),
        ("", 1, "denied", 1),
    ] {
        let mut terminal = Terminal::start(&stage.gateway.world, &call, "y\n");
        if !keys.is_empty() {
            wait_for(&terminal, 1);
            assert!(terminal.screen().contains("text: \"from here\""), "{}", terminal.screen());
            terminal.type_in(keys);
        }
        let (ended, screen) = terminal.end();
        assert_eq!(ended, Some(code), "{keys:?}: {screen}");
        assert!(screen.contains(want), "{keys:?}: {screen}");
        assert_eq!(stage.called().len(), called, "{keys:?}: {screen}");
    }
    let piped = stage.gateway.world.run(&["call", "fx__env"]);
    assert!(piped.status.code() == Some(1) && !said(&piped).contains("[y/N]"), "{}", said(&piped));
    let mut client = stage.client(ClientEra::Modern, json!({}));
    assert!(!echoed(&client.call("fx__echo", json!({"text": "from here"})), "from here"), "once is once");
}
