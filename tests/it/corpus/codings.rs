//! Tests of upstreams' answers in codings that headend did not ask for.

use serde_json::json;

use super::raw_server::{RawServer, dressed};
use crate::tools::harness::GatewaySetup;
use crate::tools::mcp::ClientEra;

#[test]
fn an_upstreams_coded_answer_is_an_error_of_that_call() {
    for (label, fields, good) in [
        ("plain", "", true),
        ("no coding by name", "Content-Encoding: identity\r\n", true),
        ("a content coding behind another line", "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n", false),
        ("a content coding before another", "Content-Encoding: gzip, identity\r\n", false),
        ("a transfer coding that is none", "Transfer-Encoding: identity\r\n", false),
        ("an unknown transfer coding", "Transfer-Encoding: gzip\r\n", false),
    ] {
        for (modern, kind) in [(true, "application/json"), (false, "application/json"), (false, "text/event-stream")] {
            let fields = format!("Content-Type: {kind}\r\n{fields}");
            let (before, after) = if kind == "application/json" { ("", "") } else { ("data: ", "\n\n") };
            let server = RawServer::start(modern, move |asked, _| dressed(asked, &fields, before, after));
            let gateway = GatewaySetup::new().url("bad", &server.url).start();
            gateway.wait_for_tools(&["bad__echo"]);
            for era in ClientEra::BOTH {
                let mut client = gateway.client(era);
                let answer = client.call("bad__echo", json!({}));
                let at = format!("{label}, {kind}, modern {modern}, {era:?}: {}", answer.raw);
                if good {
                    assert_eq!(answer.text(), "normal", "{at}");
                } else {
                    assert_eq!(answer.code(), Some(-32603), "{at}");
                }
                assert_eq!(client.call("bad__fine", json!({})).text(), "fine", "{at}: and afterwards");
            }
        }
    }
}
