//! The health of a gateway, as its pages, its command and its metrics say it.

use std::time::Duration;

use serde_json::json;

use super::super::harness::Gateway;
use super::super::http::{self, TestConnection, request};
use super::super::mcp::Mcp;
use super::super::process::said;

/// Longest time between two attempts to reach a server, with some reserve for a slow machine.
pub(crate) const BACK: Duration = Duration::from_secs(20);

pub(crate) fn works(client: &mut Mcp) -> bool {
    client.call("fx__echo", json!({"text": "x"})).text() == "x"
}

/// Counts the lines of the log, at level `INFO` or above, that contain this text.
pub(crate) fn told(gateway: &Gateway, text: &str) -> usize {
    let is_told = |line: &&String| {
        line.contains(text) && (line.contains("WARN") || line.contains("ERROR") || line.contains("INFO"))
    };
    gateway.stderr.all().iter().filter(is_told).count()
}

/// Returns status and text of `/readyz`.
pub(crate) fn readiness(gateway: &Gateway) -> (u16, String) {
    let answer = http::get(gateway.metrics.unwrap(), "/readyz").unwrap();
    (answer.head.status, answer.text())
}

/// Returns whether `/readyz`, `status` and the metrics agree on this reason.
pub(crate) fn is_degraded(gateway: &Gateway, status: u16, reason: &str) -> bool {
    let (code, text) = readiness(gateway);
    let word = if status == 200 { "degraded\n" } else { "not ready\n" };
    let told = said(&gateway.run(&["status"]));
    code == status
        && text.starts_with(word)
        && text.contains(&format!("\n{reason}: "))
        && match (reason, status) {
            ("upstreams", 200) => told.contains(" down: ") && !told.contains("no call works"),
            ("upstreams", _) => told.contains("no call works: ") && told.contains(" down: "),
            (_, 200) => told.contains(&format!("degraded: {reason}: ")),
            _ => told.contains(&format!("no call works: {reason}: ")),
        }
        && gateway.scrape().contains(&format!("headend_degraded{{reason=\"{reason}\"}} 1"))
}

pub(crate) fn is_well(gateway: &Gateway) -> bool {
    readiness(gateway) == (200, "ready\n".to_owned())
        && !said(&gateway.run(&["status"])).contains("degraded: ")
        && !said(&gateway.run(&["status"])).contains(" down: ")
        && !gateway.scrape().lines().any(|line| line.starts_with("headend_degraded{") && line.ends_with(" 1"))
}

/// Sends one request on a connection of its own.
pub(crate) fn ask(gateway: &Gateway) -> (TestConnection, http::TestResponse) {
    let headers = [
        ("Host".to_owned(), gateway.address.to_string()),
        ("Authorization".to_owned(), format!("Bearer {}", gateway.token().unwrap())),
    ];
    let mut conn = TestConnection::open(gateway.address).unwrap();
    conn.send(&request("GET", "/mcp", &headers, b"")).unwrap();
    let answer = conn.response().unwrap();
    (conn, answer)
}
