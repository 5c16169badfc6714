//! Wrong answers must fail the checks, and the rig must pass through its own floor.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::answer;
use crate::http::{BenchConnection, WholeResponse};
use crate::load::{LoadPlan, measure};
use crate::scenario::{BenchEndpoint, LoadEra, Scenario};
use crate::upstream::{self, BenchResponseKind, BenchUpstreamEras};

#[test]
fn only_the_right_answer_passes() {
    let result = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"seven"}]}}"#;
    let late_id = r#"{"result":{"content":[{"text":"seven", "type":"text"}],"_meta":{"id":3}},"id": 7}"#;
    let rows = [
        ("terse", 200, result, true),
        ("spaced, id at the end", 200, late_id, true),
        ("another status", 500, result, false),
        ("another id", 200, &result.replace('7', "8"), false),
        ("an id that begins alike", 200, &result.replace('7', "71"), false),
        ("another text", 200, &result.replace("seven", "eight"), false),
        ("a text that begins alike", 200, &result.replace("seven", "seventy"), false),
        ("an error", 200, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no"}}"#, false),
        ("nothing", 200, "", false),
    ];
    for (label, status, body, passes) in rows {
        let answer = WholeResponse { status, events: false, session: None, body: body.as_bytes() };
        assert_eq!(answer::check(&answer, 7, b"seven", 0).is_ok(), passes, "{label}");
    }
}

#[test]
fn every_notice_must_arrive_in_order() {
    let notice = |number: u32, token: u32| {
        format!(
            "data: {{\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":{number},\"total\":2}}}}\n\n"
        )
    };
    let result = "event: message\ndata: {\"id\":7,\"result\":{\"content\":[{\"text\":\"done\"}]}}\n\n";
    let (first, second) = (notice(1, 7), notice(2, 7));
    let rows = [
        ("all", format!(":\n\n{first}{second}{result}"), true),
        ("one dropped", format!("{first}{result}"), false),
        ("out of order", format!("{second}{first}{result}"), false),
        ("for another token", format!("{first}{}{result}", notice(2, 8)), false),
        ("no result", format!("{first}{second}"), false),
        ("after the result", format!("{first}{result}{second}"), false),
    ];
    for (label, body, passes) in rows {
        let answer = WholeResponse { status: 200, events: true, session: None, body: body.as_bytes() };
        assert_eq!(answer::check(&answer, 7, b"done", 2).is_ok(), passes, "{label}");
    }
}

#[test]
fn pages_are_counted_and_followed() {
    let rows = [
        ("whole", r#"{"id":1,"result":{"tools":[{"inputSchema":{}},{"inputSchema":{}}]}}"#, 2, None),
        ("first of several", r#"{"id":1,"result":{"tools":[{"inputSchema":{}}],"nextCursor":"c"}}"#, 1, Some("c")),
        ("empty", r#"{"id":1,"result":{"tools":[]}}"#, 0, None),
    ];
    for (label, body, tools, next) in rows {
        let page = answer::page(&WholeResponse { status: 200, events: false, session: None, body: body.as_bytes() }, 1);
        let page = page.unwrap();
        assert_eq!((page.tools, page.next.as_deref()), (tools, next), "{label}");
    }
}

#[tokio::test]
async fn answers_are_read_however_they_are_cut() {
    let rows = [
        ("sized", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", Some("abcde")),
        (
            "chunked",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
            Some("abcde"),
        ),
        ("no body", "HTTP/1.1 204 No Content\r\n\r\n", Some("")),
        ("cut off", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcde", None),
        ("no length", "HTTP/1.1 200 OK\r\n\r\nabcde", None),
        ("not HTTP", "SSH-2.0\r\n\r\n", None),
    ];
    for (label, sent, body) in rows {
        for cut in [1, 7, sent.len()] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let answering = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                for piece in sent.as_bytes().chunks(cut) {
                    // The reader may have given up, as some rows expect.
                    drop(stream.write_all(piece).await);
                    tokio::task::yield_now().await;
                }
            };
            let asking = async {
                let mut connection = BenchConnection::open(&address).await.unwrap();
                let answer = connection.exchange(b"GET / HTTP/1.1\r\n\r\n").await;
                answer.ok().map(|answer| String::from_utf8(answer.body.to_vec()).unwrap())
            };
            let ((), read) = tokio::join!(answering, asking);
            assert_eq!(read.as_deref(), body, "{label}, {cut} bytes at a time");
        }
    }
}

#[tokio::test]
async fn every_scenario_passes_through_the_floor() {
    let scenarios = [
        Scenario::Call,
        Scenario::List,
        Scenario::Big64k,
        Scenario::Big1m,
        Scenario::Arg64k,
        Scenario::Arg1m,
        Scenario::Progress,
    ];
    for answers in [BenchResponseKind::Json, BenchResponseKind::Sse] {
        let floor = rig(answers).await;
        for era in [LoadEra::Legacy, LoadEra::Modern] {
            for scenario in scenarios {
                let short = plan(floor, era, scenario);
                // On a busy machine no call may end in so short a time.
                let long = LoadPlan { measured: Duration::from_secs(5), ..plan(floor, era, scenario) };
                let sample = match measure(&short).await {
                    Err(_) => measure(&long).await,
                    sample => sample,
                };
                sample.unwrap_or_else(|error| panic!("{answers:?}, {era:?}, {scenario:?}: {error:#}"));
            }
        }
    }
}

#[tokio::test]
async fn a_list_of_another_length_ends_the_load() {
    let floor = rig(BenchResponseKind::Json).await;
    let plan = LoadPlan { tools: 7, ..plan(floor, LoadEra::Legacy, Scenario::List) };
    let error = measure(&plan).await.unwrap_err();
    assert_eq!(error.to_string(), "6 tools listed, not 7");
}

/// Starts an upstream of six tools and a floor before it, until the test ends. Returns the floor's
/// address.
async fn rig(answers: BenchResponseKind) -> SocketAddr {
    let (upstream, floor) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (to, address) = (upstream.local_addr().unwrap(), floor.local_addr().unwrap());
    tokio::spawn(upstream::listen(
        upstream,
        None,
        Arc::new(upstream::BenchUpstream::of(6, BenchUpstreamEras::Both, answers)),
    ));
    tokio::spawn(crate::floor::forward(floor, ("http", to), HttpConnector::new()));
    address
}

fn plan(address: SocketAddr, era: LoadEra, scenario: Scenario) -> LoadPlan {
    LoadPlan {
        target: BenchEndpoint::new(&format!("http://{address}/mcp"), None).unwrap(),
        era,
        scenario,
        in_flight: 3,
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(50),
        prefixes: Vec::new(),
        tools: 6,
        process: None,
    }
}
