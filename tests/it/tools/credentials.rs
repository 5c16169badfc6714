//! Clients with and without credentials for every listener, shared by tests of the binary and of
//! the stage.

use std::fs;
use std::net::SocketAddr;

use super::harness::{Gateway, GatewaySetup};
use super::http::{TestConnection, TestResponse, request};
use super::upstream::Fake;

pub(crate) const SECOND: &str = "token-of-the-second-caller-0123456789";

/// Creates a setup with two callers besides the local user, the old transport and the console.
pub(crate) fn setup(limits: &str) -> GatewaySetup {
    GatewaySetup::new()
        .env("SECOND_TOKEN", SECOND)
        .server(&format!(
            "legacy-sse = true\n[server.auth]\ntokens = {{ second = {{ env = \"SECOND_TOKEN\" }} }}\n[server.limits]\n{limits}"
        ))
        .toml("[console]\nlisten = \"127.0.0.1:0\"")
        .fake("fx", &Fake::stdio("both"))
}

/// Returns the address of the console.
pub(crate) fn console(gateway: &Gateway) -> SocketAddr {
    gateway.console_address().expect("the console is on")
}

pub(crate) fn headers(address: SocketAddr, token: &str) -> Vec<(String, String)> {
    let field = |name: &str, value: String| (name.to_owned(), value);
    vec![field("Host", address.to_string()), field("Authorization", format!("Bearer {token}"))]
}

/// Sends a GET of the endpoint on an open connection: a valid token gets 405, because it has no
/// session.
pub(crate) fn ask(conn: &mut TestConnection, address: SocketAddr, token: &str) -> TestResponse {
    conn.send(&request("GET", "/mcp", &headers(address, token), b"")).unwrap();
    conn.response().unwrap()
}

pub(crate) fn ask_anew(address: SocketAddr, token: &str) -> TestResponse {
    ask(&mut TestConnection::open(address).unwrap(), address, token)
}

/// Signs in with the operator's token and returns the cookie.
pub(crate) fn sign_in(gateway: &Gateway) -> String {
    let (address, token) = (console(gateway), operators_token(gateway));
    let mut conn = TestConnection::open(address).unwrap();
    conn.send(&form(address, &token)).unwrap();
    let answer = conn.response().unwrap();
    assert_eq!(answer.head.status, 303, "{}", answer.text());
    answer.head.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

pub(crate) fn operators_token(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.world.path("state/headend/console-token")).unwrap().trim().to_owned()
}

/// Returns the request that sends the sign-in form.
pub(crate) fn form(address: SocketAddr, token: &str) -> Vec<u8> {
    let headers = [
        ("Host".to_owned(), address.to_string()),
        ("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
    ];
    request("POST", "/sign-in", &headers, format!("token={token}").as_bytes())
}
