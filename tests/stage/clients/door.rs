//! Tests of connections without a valid credential at every listener: idle sockets, half heads,
//! wrong credentials, foreign cookies, odd hosts. They keep no client with a valid credential out.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use crate::stage::credentials::{SECOND, ask, ask_anew, console, form, headers, operators_token, setup, sign_in};
use crate::stage::ground::{Stream, connect};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{PATIENCE, TestConnection, TestResponse, get, request};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::eventually;
use crate::stage::upstream::Fake;

/// Opens connections and sends only these bytes on each.
fn strangers(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<Stream> {
    let stranger = |_| {
        let mut stream = connect(address, PATIENCE).unwrap();
        // The gateway may have closed the connection already.
        drop(stream.write_all(bytes));
        stream
    };
    (0..count).map(stranger).collect()
}

/// Reads a stranger's connection to its end and returns the answer.
fn told(stream: &Stream) -> String {
    let mut text = Vec::new();
    stream.clone().read_to_end(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn assert_gave_way(label: &str, stream: &Stream) {
    let text = told(stream);
    let head = text.to_ascii_lowercase();
    assert!(text.starts_with("HTTP/1.1 503 "), "{label}: {text:?}");
    assert!(head.contains("\r\nretry-after: 1\r\n") && head.contains("\r\nconnection: close\r\n"), "{label}: {text:?}");
}

#[test]
fn a_valid_token_gets_in_beside_a_thousand_idle_sockets_and_a_hail_of_wrong_tokens() {
    let gateway = setup("").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let (address, local) = (gateway.address, gateway.token().unwrap());
    let mut early = TestConnection::open(address).unwrap();
    assert_eq!(ask(&mut early, address, SECOND).head.status, 405);
    let sockets = strangers(address, 700, b"");
    let heads = strangers(address, 300, b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ");
    let lines = |text: &str| gateway.stderr.all().iter().filter(|line| line.contains(text)).count();
    let hail = || {
        for n in 0..2 {
            let Ok(mut conn) = TestConnection::open(address) else { continue };
            let wrong = request("GET", "/mcp", &headers(address, &format!("a-wrong-token-of-thread-{n}")), b"");
            if conn.send(&wrong).is_ok()
                && let Ok(answer) = conn.response()
            {
                assert!([401, 429, 503].contains(&answer.head.status), "{}", answer.head.status);
            }
        }
    };
    eventually("the hail is told to wait", || {
        hail();
        lines("wrong access tokens") != 0
    });
    for n in 0..20 {
        hail();
        for (caller, token) in [("second", SECOND), ("local", local.as_str())] {
            let answer = ask_anew(address, token);
            assert_eq!(answer.head.status, 405, "{caller}, time {n}: {}", answer.text());
        }
    }
    let mut stream = TestConnection::open(address).unwrap();
    stream.send(&request("GET", "/sse", &headers(address, SECOND), b"")).unwrap();
    let head = stream.head().unwrap();
    assert!(head.status == 200 && head.is_stream(), "HTTP+SSE: {head:?}");
    for era in ClientEra::BOTH {
        let mut client = Mcp::http(address, Some(SECOND.to_owned()), era);
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x", "{era:?}");
    }
    assert_eq!(ask(&mut early, address, SECOND).head.status, 405, "a connection that was let in stays");
    assert_gave_way("the first idle socket", &sockets[0]);
    drop(heads);
    // One line a minute, for any number of connections and guesses.
    assert!((1..=4).contains(&lines("the oldest gave way")), "{}", gateway.story());
    assert!((1..=4).contains(&lines("wrong access tokens")), "{}", gateway.story());
    let scraped = gateway.scrape();
    assert!(scraped.contains("headend_limit_hits_total{limit=\"connections-per-ip\"}"), "{scraped}");
}

#[test]
fn wrong_tokens_are_told_to_wait_and_right_ones_never() {
    let gateway = setup("auth-failures = \"2/h\"").start();
    let with = |token: Option<&str>| Mcp::http(gateway.address, token.map(str::to_owned), ClientEra::Modern);
    let list = |token| with(token).request("tools/list", json!({}));
    for n in 0..4 {
        assert_eq!(list(None).status, 401, "asking without a token is no guess ({n})");
    }
    for guess in ["wrong-1", "wrong-2"] {
        assert_eq!(list(Some(guess)).status, 401, "{guess}");
    }
    for path in ["/mcp", "/sse"] {
        let mut conn = TestConnection::open(gateway.address).unwrap();
        conn.send(&request("GET", path, &headers(gateway.address, "wrong-3"), b"")).unwrap();
        let refused = conn.response().unwrap();
        assert_eq!(refused.head.status, 429, "{path}: {}", refused.text());
        let wait: u64 = refused.head.header("retry-after").and_then(|wait| wait.parse().ok()).unwrap_or_default();
        assert!((1..=1801).contains(&wait), "{path}: {wait} s");
        assert!(refused.head.header("www-authenticate").is_none(), "{path}");
    }
    assert_eq!(list(Some(SECOND)).status, 200, "a right token on a new connection");
    assert_eq!(gateway.modern().request("tools/list", json!({})).status, 200, "that of the local user");
    let mut conn = TestConnection::open(gateway.address).unwrap();
    for (token, status) in [("wrong-4", 429), (SECOND, 405), ("wrong-5", 429), (SECOND, 405)] {
        assert_eq!(ask(&mut conn, gateway.address, token).head.status, status, "{token} on one connection");
    }
    assert_eq!(list(None).status, 401, "asking without a token is no guess after those either");
    let scraped = gateway.scrape();
    assert!(scraped.contains("headend_limit_hits_total{limit=\"auth-failures\"} 4"), "{scraped}");
}

#[test]
fn the_local_user_alone_is_not_paced_and_gets_in_beside_idle_sockets() {
    let gateway = GatewaySetup::new().server("[server.limits]\nauth-failures = \"1/h\"\nmax-connections = 20").start();
    let token = gateway.token().unwrap();
    for _ in 0..5 {
        assert_eq!(ask_anew(gateway.address, "wrong").head.status, 401);
    }
    let _sockets = strangers(gateway.address, 1000, b"");
    for n in 0..10 {
        assert_eq!(ask_anew(gateway.address, &token).head.status, 405, "time {n}");
    }
}

#[test]
fn an_address_displaces_its_own_idle_connections_and_no_others() {
    let gateway = setup("connections-per-ip = 2").start();
    let known: Vec<TestConnection> = (0..4)
        .map(|_| {
            let mut conn = TestConnection::open(gateway.address).unwrap();
            assert_eq!(ask(&mut conn, gateway.address, SECOND).head.status, 405);
            conn
        })
        .collect();
    let sockets = strangers(gateway.address, 3, b"");
    assert_gave_way("the oldest", &sockets[0]);
    for mut conn in known {
        assert_eq!(
            ask(&mut conn, gateway.address, SECOND).head.status,
            405,
            "connections with a valid token do not count"
        );
    }
    let mut last = sockets[2].clone();
    last.write_all(&request("GET", "/mcp", &headers(gateway.address, SECOND), b"")).unwrap();
    let mut start = [0; 12];
    last.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 405", "those that are left may still show a token");
    assert!(gateway.scrape().contains("headend_limit_hits_total{limit=\"connections-per-ip\"} 1"));
}

#[test]
fn places_after_a_valid_token_are_counted_for_themselves() {
    let gateway = setup("max-connections = 2").start();
    let mut held: Vec<TestConnection> = Vec::new();
    for _ in 0..2 {
        let mut conn = TestConnection::open(gateway.address).unwrap();
        assert_eq!(ask(&mut conn, gateway.address, SECOND).head.status, 405);
        held.push(conn);
    }
    let mut third = TestConnection::open(gateway.address).unwrap();
    let refused = ask(&mut third, gateway.address, SECOND);
    assert_eq!((refused.head.status, refused.head.header("connection")), (503, Some("close")), "{}", refused.text());
    assert!(refused.head.header("retry-after").is_some());
    assert!(third.closes_within(PATIENCE));
    assert_eq!(ask_anew(gateway.address, "wrong").head.status, 401, "connections without one have places of their own");
    held.pop();
    eventually("there is room again", || ask_anew(gateway.address, SECOND).head.status == 405);
}

fn page(conn: &mut TestConnection, address: SocketAddr, cookies: &[u8]) -> TestResponse {
    let mut bytes = format!("GET / HTTP/1.1\r\nHost: {address}\r\nCookie: ").into_bytes();
    bytes.extend_from_slice(cookies);
    bytes.extend_from_slice(b"\r\n\r\n");
    conn.send(&bytes).unwrap();
    conn.response().unwrap()
}

#[test]
fn the_operator_signs_in_beside_idle_sockets_half_heads_and_half_forms() {
    let gateway = setup("").start();
    let address = console(&gateway);
    let cookie = sign_in(&gateway);
    let mut early = TestConnection::open(address).unwrap();
    assert_eq!(page(&mut early, address, cookie.as_bytes()).head.status, 200);
    let half_form = format!(
        "POST /sign-in HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: 1000\r\n\r\ntoken="
    );
    for (label, bytes, is_told) in [
        ("idle", "", true),
        ("half a head", "GET / HTTP/1.1\r\nHost: ", true),
        ("half a form", half_form.as_str(), false),
    ] {
        let sockets = strangers(address, 300, bytes.as_bytes());
        let fresh = sign_in(&gateway);
        let mut conn = TestConnection::open(address).unwrap();
        assert_eq!(page(&mut conn, address, fresh.as_bytes()).head.status, 200, "{label}");
        assert_eq!(page(&mut early, address, cookie.as_bytes()).head.status, 200, "{label}: signed in before");
        if is_told {
            assert_gave_way(label, &sockets[0]);
        }
    }
}

#[test]
fn wrong_sign_ins_do_not_keep_the_operators_token_out() {
    let gateway = setup("").start();
    let address = console(&gateway);
    let mut statuses = Vec::new();
    for n in 0..8 {
        let mut conn = TestConnection::open(address).unwrap();
        conn.send(&form(address, &format!("guess-{n}"))).unwrap();
        statuses.push(conn.response().unwrap().head.status);
    }
    assert_eq!(statuses, [403, 403, 403, 403, 403, 429, 429, 429]);
    sign_in(&gateway);
    eventually("the sign-in is logged", || gateway.story().contains("the operator signed in to the console"));
    let lines = gateway.stderr.all().iter().filter(|line| line.contains("wrong sign-in to the console")).count();
    assert_eq!(lines, 5, "refused guesses are not logged one by one");
}

#[test]
fn cookies_of_other_ports_sign_nobody_out() {
    let gateway = setup("").start();
    let address = console(&gateway);
    let own = sign_in(&gateway);
    let (name, _) = own.split_once('=').unwrap();
    let foreign = |count: usize, value: &str| format!("{name}={value}; ").repeat(count).into_bytes();
    for (label, before) in [
        ("four of our name", foreign(4, "x")),
        ("hundreds of our name", foreign(300, &"A".repeat(43))),
        ("as many and as large as browsers keep", foreign(180, &"a".repeat(4_000))),
        ("one that is no text", [name.as_bytes(), b"=\xff\xfe; other=\xe4; "].concat()),
        ("one without a value", format!("{name}; {name}=; ").into_bytes()),
    ] {
        let cookies = [before.as_slice(), own.as_bytes(), b"; ", before.as_slice(), b"z=1"].concat();
        // Only once with the largest cookies: a browser stores no more.
        let cookies = if cookies.len() > 760 * 1024 { [before.as_slice(), own.as_bytes()].concat() } else { cookies };
        let answer = page(&mut TestConnection::open(address).unwrap(), address, &cookies);
        assert_eq!(answer.head.status, 200, "{label}");
        assert!(answer.text().contains("name=\"csrf\""), "{label}");
    }
    let answer = page(&mut TestConnection::open(address).unwrap(), address, &foreign(300, "x"));
    assert_eq!(answer.head.status, 303, "none of ours is nobody's session");
}

#[test]
fn metrics_are_read_beside_idle_sockets_and_half_heads() {
    let gateway = setup("").start();
    let address = gateway.metrics.unwrap();
    for (label, bytes) in [("idle", ""), ("half a head", "GET /metrics HTTP/1.1\r\nHost: ")] {
        let sockets = strangers(address, 300, bytes.as_bytes());
        for path in ["/metrics", "/healthz", "/readyz"] {
            assert_eq!(get(address, path).unwrap().head.status, 200, "{label}: {path}");
        }
        assert_gave_way(label, &sockets[0]);
        assert_eq!(ask_anew(gateway.address, SECOND).head.status, 405, "{label}: other listeners are not concerned");
    }
}

#[test]
fn a_host_has_a_plain_port_or_none_on_every_listener() {
    let gateway = setup("").start();
    for (listener, address, path) in [
        ("mcp", gateway.address, "/mcp"),
        ("sse", gateway.address, "/sse"),
        ("metrics", gateway.metrics.unwrap(), "/healthz"),
        ("console", console(&gateway), "/sign-in"),
    ] {
        let port = address.port();
        let ask = |host: &str| {
            let mut conn = TestConnection::open(address).unwrap();
            let mut fields = headers(address, SECOND);
            host.clone_into(&mut fields[0].1);
            conn.send(&request("GET", path, &fields, b"")).unwrap();
            conn.head().unwrap().status
        };
        for host in [
            format!("localhost:{port}.evil"),
            format!("127.0.0.1:{port}.evil.example"),
            format!("[::1]:{port}.evil"),
            format!("localhost:+{port}"),
            format!("localhost:{port}:{port}"),
            format!("[::1]{port}"),
            "localhost:+1".to_owned(),
            "localhost:".to_owned(),
            "127.0.0.1:".to_owned(),
            "[::1]:".to_owned(),
            "localhost:0".to_owned(),
            "localhost:65536".to_owned(),
        ] {
            assert_eq!(ask(&host), 400, "{listener}: {host}");
        }
        assert_eq!(ask("localhost:1"), 403, "{listener}: another port");
        for host in
            ["localhost".to_owned(), format!("[::1]:{port}"), format!("LOCALHOST:{port}"), format!("localhost:0{port}")]
        {
            assert!([200, 405].contains(&ask(&host)), "{listener}: {host}");
        }
    }
}

#[test]
fn a_slow_head_is_told_so() {
    let gateway = setup("head-timeout = \"1s\"\nfirst-byte-timeout = \"1s\"").start();
    for (label, bytes) in [("nothing", &b""[..]), ("half a head", b"GET /mcp HTT")] {
        let sockets = strangers(gateway.address, 1, bytes);
        assert!(told(&sockets[0]).starts_with("HTTP/1.1 408 "), "{label}");
    }
    let mut refused = TestConnection::open(gateway.address).unwrap();
    assert_eq!(ask(&mut refused, gateway.address, "wrong").head.status, 401);
    assert!(refused.closes_within(Duration::from_secs(10)), "a connection that showed no valid token may not idle");
}
