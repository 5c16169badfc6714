//! Plays the cases of the HTTP+SSE transport of 2024-11-05, for its clients and for upstreams that
//! speak it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::json;

use super::case::Case;
use super::judge::{self, CaseOutcome};
use super::{CorpusReport, compared};
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::http;
use crate::tools::http::TestConnection;
use crate::tools::old_client::OldClient;
use crate::tools::process::eventually;
use crate::tools::upstream::{Fake, InputLog};

const TOKEN_B: &str = "token-of-the-second-caller-0123456789";

fn cases(transport: &str) -> Vec<Case> {
    Case::load().into_iter().filter(|case| case.transport == transport).collect()
}

#[test]
fn bad_requests_over_the_old_transport_get_the_expected_answers() {
    let mut report = CorpusReport::default();
    let mut outcomes = BTreeMap::new();
    let cases = cases("sse");
    for case in &cases {
        if report.skips(case) {
            continue;
        }
        let outcome = ask(case);
        let wrong = outcome.wrong.iter().cloned().chain(compared(case, &outcome, &outcomes)).collect();
        report.take(case, "sse", wrong);
        outcomes.insert(case.id.clone(), outcome);
    }
    report.finish("");
}

/// Sends the case's request to a daemon of its own.
fn ask(case: &Case) -> CaseOutcome {
    let served = !case.text("setup").contains("legacy_sse=false");
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .server(&format!("legacy-sse = {served}"))
        .second_caller(TOKEN_B)
        .fake("fx", &Fake::stdio("both").logging(&log))
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let token = gateway.token().unwrap();
    let mut fill = vec![("${HOST}", gateway.address.to_string()), ("${TOKEN}", token.clone())];
    let mut clients = Vec::new();
    for (name, token) in [("${SSE_SESSION}", token.as_str()), ("${SSE_SESSION_B}", TOKEN_B)] {
        if case.mentions(name) {
            let client = OldClient::connect(&gateway, Some(token.to_owned()), "/sse");
            fill.push((name, client.session().to_owned()));
            clients.push(client);
        }
    }
    if case.text("setup") == "SSE stream closed" {
        clients.clear();
        eventually("the session ends", || gateway.scrape().contains("headend_client_sessions 0"));
    }
    let filled = |text: &str| fill.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
    let mut headers: Vec<(String, String)> = Vec::new();
    for pair in case.member("headers").as_array().into_iter().flatten() {
        headers.push((pair[0].as_str().unwrap().to_owned(), filled(pair[1].as_str().unwrap())));
    }
    let before = log.lines_with(&[]).len();
    let mut conn = TestConnection::open(gateway.address).unwrap();
    conn.send(&http::request(case.text("method"), &filled(case.text("path")), &headers, &case.body())).unwrap();
    let mut outcome = CaseOutcome { response: Some(conn.response().unwrap()), ..CaseOutcome::default() };
    outcome.wrong = judge::http(case, &outcome);
    if case.expects("no_upstream_call") && log.lines_with(&[]).len() > before {
        outcome.wrong.push("something reached the upstream".to_owned());
    }
    for mut client in clients {
        let greeted = client.initialize("2024-11-05");
        if greeted.get("result").is_none() {
            outcome.wrong.push(format!("a session of the case was disturbed: {greeted}"));
        }
    }
    outcome
}

#[test]
fn hostile_servers_of_the_old_transport_get_nothing_and_disturb_nobody() {
    let mut report = CorpusReport::default();
    for case in &cases("upstream-sse") {
        if !report.skips(case) {
            report.take(case, "upstream-sse", suffer(case));
        }
    }
    report.finish("");
}

/// Puts the case's server next to a good one and returns the differences.
fn suffer(case: &Case) -> Vec<String> {
    let good = Fake::stdio("modern");
    let start = |url: &str| {
        let hostile = format!("[upstreams.old]\nurl = \"{url}\"\ntransport = \"sse\"");
        let gateway = GatewaySetup::new().fake("good", &good).toml(&hostile).start();
        gateway.wait_for_tools(&["good__echo"]);
        gateway
    };
    let mut wrong = Vec::new();
    match (case.text("upstream_behaviour"), case.expect("client_sees").and_then(|sees| sees.as_str())) {
        ("second endpoint event mid-session", Some("normal")) => {
            let fake = Fake::sse().behaving("second-endpoint").spawn();
            let gateway = start(&fake.url);
            gateway.wait_for_tools(&["old__echo"]);
            wrong.extend(unserved(&gateway, "old__echo"));
            wrong.extend(unserved(&gateway, "good__echo"));
        }
        ("", Some("no tools of that upstream")) => {
            let bytes = BASE64.decode(case.text("upstream_sends_b64").as_bytes()).unwrap();
            let (address, requests) = sends(bytes);
            let gateway = start(&format!("http://{address}/sse"));
            let refused =
                |lines: &[String]| lines.iter().any(|line| line.contains("nothing is sent there")).then_some(());
            if gateway.stderr.wait_for(Duration::from_secs(60), refused).is_none() {
                wrong.push("the endpoint was not refused".to_owned());
            }
            let requests = requests.lock().unwrap().clone();
            if requests.is_empty() || requests.iter().any(|request| !request.starts_with("GET /sse ")) {
                wrong.push(format!("it was sent {requests:?}"));
            }
            let listed = gateway.modern().tool_names();
            if listed.iter().any(|name| !name.starts_with("good__")) {
                wrong.push(format!("listed are {listed:?}"));
            }
            wrong.extend(unserved(&gateway, "good__echo"));
        }
        other => wrong.push(format!("the runner does not know how to play {other:?}")),
    }
    wrong
}

fn unserved(gateway: &Gateway, tool: &str) -> Option<String> {
    let answer = gateway.modern().call(tool, json!({"text": "a"}));
    (answer.message.get("result").is_none() || answer.is_error()).then(|| format!("{tool}: {}", answer.raw))
}

/// Starts a server that answers each connection with these events and keeps the first lines of its
/// requests. It ends with the test.
fn sends(bytes: Vec<u8>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            seen.lock().unwrap().push(head.lines().next().unwrap_or_default().to_owned());
            // A client that disconnects early does not get it.
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"));
            drop(stream.write_all(&bytes));
            open.push(stream);
        }
    });
    (address, requests)
}
