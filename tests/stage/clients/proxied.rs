//! Tests of listeners behind a proxy of the operator: the hosts that the console answers for, and
//! the addresses that count.

use crate::stage::credentials::{SECOND, console, headers, operators_token};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{TestConnection, TestResponse, request};

const HOST: &str = "console.example.com";

/// Sends a request to the console as the proxy does, from a page of this origin.
fn ask_console(gateway: &Gateway, method: &str, host: &str, origin: Option<&str>) -> TestResponse {
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut headers = vec![field("Host", host), field("Content-Type", "application/x-www-form-urlencoded")];
    headers.extend(origin.map(|origin| field("Origin", origin)));
    let body = if method == "POST" { format!("token={}", operators_token(gateway)) } else { String::new() };
    let mut conn = TestConnection::open(console(gateway)).unwrap();
    conn.send(&request(method, "/sign-in", &headers, body.as_bytes())).unwrap();
    conn.response().unwrap()
}

#[test]
fn the_console_answers_for_the_hosts_of_its_proxy_and_to_their_pages_alone() {
    let hosts = format!("[console]\nlisten = \"127.0.0.1:0\"\nallowed-hosts = [\"{HOST}\"]");
    // Hosts of other listeners are none of the console.
    let gateway = GatewaySetup::new().server("allowed-hosts = [\"mcp.example.com\"]").toml(&hosts).start();
    let own = console(&gateway).to_string();
    let (page, plain, direct) = (format!("https://{HOST}"), format!("http://{HOST}"), format!("http://{own}"));
    for (method, host, origin, status) in [
        ("GET", HOST, None, 200),
        ("GET", &own, None, 200),
        ("GET", "mcp.example.com", None, 403),
        ("GET", "console.example.com.evil.example", None, 403),
        ("POST", HOST, Some(&*page), 303),
        ("POST", &own, Some(&*direct), 303),
        // Anyone on the way can serve a page of the host without TLS.
        ("POST", HOST, Some(&*plain), 403),
        ("POST", HOST, Some(&*direct), 403),
        ("POST", HOST, Some("https://mcp.example.com"), 403),
        ("POST", HOST, Some("https://evil.example"), 403),
    ] {
        let answer = ask_console(&gateway, method, host, origin);
        assert_eq!(answer.head.status, status, "{method} {host} {origin:?}: {}", answer.text());
    }
    assert!(!gateway.scrape().contains("evil"), "no host is a label");
}

/// Presents a wrong token with a header of a proxy, and returns the status.
fn guess(gateway: &Gateway, name: &str, value: &str) -> u16 {
    let mut headers = headers(gateway.address, "a-wrong-token-0123456789");
    headers.push((name.to_owned(), value.to_owned()));
    let mut conn = TestConnection::open(gateway.address).unwrap();
    conn.send(&request("GET", "/mcp", &headers, b"")).unwrap();
    conn.response().unwrap().head.status
}

#[test]
fn wrong_tokens_count_for_the_address_that_a_trusted_proxy_names() {
    let start = |trusted: &str| {
        let lines = format!("trusted-proxies = [{trusted}]\nlimits.auth-failures = \"2/h\"");
        GatewaySetup::new().server(&lines).second_caller(SECOND).start()
    };
    let gateway = start("\"127.0.0.1\", \"10.0.0.0/8\"");
    for (name, value, status) in [
        ("X-Forwarded-For", "192.0.2.1", 401),
        // A client can write entries before those of the proxies.
        ("X-Forwarded-For", "198.51.100.7, 192.0.2.1, 10.1.2.3", 401),
        ("Forwarded", "for=198.51.100.7, for=\"192.0.2.1:4711\";proto=https", 429),
        ("X-Forwarded-For", "192.0.2.2", 401),
        ("X-Forwarded-For", "192.0.2.1", 429),
    ] {
        assert_eq!(guess(&gateway, name, value), status, "{name}: {value}");
    }
    let mut headers = headers(gateway.address, SECOND);
    headers.push(("X-Forwarded-For".to_owned(), "192.0.2.1".to_owned()));
    let mut conn = TestConnection::open(gateway.address).unwrap();
    conn.send(&request("GET", "/mcp", &headers, b"")).unwrap();
    assert_eq!(conn.response().unwrap().head.status, 405, "a right token passes");
    drop(gateway);
    let gateway = start("\"192.0.2.9\"");
    let status = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|address| guess(&gateway, "X-Forwarded-For", address));
    assert_eq!(status, [401, 401, 429], "nobody else is believed");
}
