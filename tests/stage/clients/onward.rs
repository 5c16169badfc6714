//! Tests of what an upstream sees of a call: its own names, headers made for it, and nothing about
//! the client's connection.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::upstream::{Fake, InputLog, Listening};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// Value of each header field that belongs to the client's connection.
const CANARY: &str = "canary-of-the-client";
const OWN_TO_THE_HOP: [&str; 10] = [
    "Cookie",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-Ip",
    "Last-Event-Id",
    "Proxy-Authorization",
    "Mcp-Param-Unknown",
    "X-Anything",
];

type HeaderPairs<'a> = &'a [(&'a str, &'a str)];

/// A gateway in front of an upstream of that era, over HTTP or on pipes.
struct OnwardGateway {
    gateway: Gateway,
    log: InputLog,
    _server: Option<Listening>,
}

impl OnwardGateway {
    fn new(era: &str, over_http: bool) -> Self {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let server = over_http.then(|| Fake::http(era).logging(&log).spawn());
        let setup = match &server {
            Some(server) => setup.url("fx", &server.url),
            None => setup.fake("fx", &Fake::stdio(era).logging(&log)),
        };
        let gateway = setup.start();
        gateway.wait_for_tools(&["fx__region"]);
        Self { gateway, log, _server: server }
    }

    fn all() -> impl Iterator<Item = (String, Self)> {
        let kinds = [("legacy", false), ("modern", false), ("legacy", true), ("modern", true)];
        kinds.into_iter().map(|(era, http)| (format!("{era} upstream, HTTP {http}"), Self::new(era, http)))
    }

    /// Returns the last message of that method, and the header fields that came with it.
    fn last(&self, method: &str) -> (Value, Value) {
        let lines = self.log.lines_with(&[]);
        let named = format!("\"method\":\"{method}\"");
        let at = lines.iter().rposition(|line| line.contains(&named)).unwrap_or_else(|| panic!("no {method} arrived"));
        let before = at.checked_sub(1).map(|before| serde_json::from_str::<Value>(&lines[before]).unwrap());
        let headers = before.map(|line| line["headers"].clone()).unwrap_or_default();
        (serde_json::from_str(&lines[at]).unwrap(), headers)
    }
}

/// Sends a request with header fields added or replaced.
fn send(client: &mut Mcp, method: &str, params: Value, more: HeaderPairs<'_>) {
    let params = client.dress(params);
    let mut headers = client.headers(method, &params);
    headers.retain(|(name, _)| !more.iter().any(|(other, _)| name.eq_ignore_ascii_case(other)));
    headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let body = json!({"jsonrpc": "2.0", "id": 77, "method": method, "params": params}).to_string();
    let answer = client.exchange(&json!(77), &headers, &body);
    assert!(answer.message.get("result").is_some(), "{}", answer.raw);
}

#[test]
fn an_http_upstream_gets_headers_that_are_made_for_it() {
    let scene = OnwardGateway::new("modern", true);
    let region = json!({"name": "fx__region", "arguments": {"region": " Zürich", "n": 7}});
    let mirrored = [("Mcp-Param-Region", "=?base64?IFrDvHJpY2g=?="), ("Mcp-Param-N", "7")];
    let document = "fx://doc/Zürich";
    for era in ClientEra::BOTH {
        let mut client = scene.gateway.client(era);
        // A legacy client sends no such headers, but the upstream gets them.
        send(&mut client, "tools/call", region.clone(), if era == ClientEra::Modern { &mirrored } else { &[] });
        let (message, headers) = scene.last("tools/call");
        assert_eq!(message["params"]["name"], "region", "{era:?}");
        for (name, value) in [
            ("mcp-name", "region"),
            ("mcp-method", "tools/call"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-param-region", "=?base64?IFrDvHJpY2g=?="),
            ("mcp-param-n", "7"),
        ] {
            assert_eq!(headers[name], value, "{era:?} {name}: {headers}");
        }
        let named = [("Mcp-Name", "=?base64?Zng6Ly9kb2MvWsO8cmljaA==?=")];
        send(
            &mut client,
            "resources/read",
            json!({"uri": document}),
            if era == ClientEra::Modern { &named } else { &[] },
        );
        let (message, headers) = scene.last("resources/read");
        assert_eq!(message["params"]["uri"], document, "{era:?}");
        assert_eq!(headers["mcp-name"], "=?base64?Zng6Ly9kb2MvWsO8cmljaA==?=", "{era:?}: {headers}");
    }
}

#[test]
fn nothing_of_the_clients_connection_reaches_an_upstream() {
    for (label, scene) in OnwardGateway::all() {
        for era in ClientEra::BOTH {
            let mut client = scene.gateway.client(era);
            let mut more: Vec<(&str, &str)> = OWN_TO_THE_HOP.iter().map(|name| (*name, CANARY)).collect();
            let origin = format!("http://{}", scene.gateway.address);
            more.push(("Origin", &origin));
            if era == ClientEra::Modern {
                more.push(("Mcp-Session-Id", CANARY));
            }
            send(&mut client, "tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}}), &more);
            let (_, headers) = scene.last("tools/call");
            let received = scene.log.lines_with(&[]).join("\n");
            let address = scene.gateway.address.to_string();
            let (token, session) = (scene.gateway.token().unwrap(), client.session());
            let secrets = [Some(CANARY), Some(token.as_str()), Some(address.as_str()), session.as_deref()];
            for secret in secrets.into_iter().flatten() {
                assert!(!received.contains(secret), "{label}, {era:?}: {secret} in {received}");
            }
            for name in ["authorization", "cookie", "origin", "last-event-id", "x-forwarded-for", "mcp-param-unknown"] {
                assert!(headers.get(name).is_none(), "{label}, {era:?}: {headers}");
            }
        }
    }
}

#[test]
fn a_trace_goes_on_upstream_when_it_is_well_formed() {
    let own = json!({"traceparent": PARENT, "tracestate": "a=b", "baggage": "tenant=secret"});
    let header = [("traceparent", PARENT), ("tracestate", "a=b"), ("baggage", "tenant=secret")];
    let other = [("traceparent", "00-11111111111111111111111111111111-2222222222222222-00")];
    let rows: [(&str, Value, HeaderPairs<'_>, [Option<&str>; 2]); 6] = [
        ("in the message", own.clone(), &[], [Some(PARENT), Some("a=b")]),
        ("in the headers", json!({}), &header, [Some(PARENT), Some("a=b")]),
        ("in both", own, &other, [Some(PARENT), Some("a=b")]),
        ("malformed", json!({"traceparent": "00-xyz", "tracestate": "a=b"}), &[], [None, None]),
        ("malformed state", json!({"traceparent": PARENT, "tracestate": "A"}), &[], [Some(PARENT), None]),
        ("malformed header", json!({}), &[("traceparent", "00-0-0-0"), ("tracestate", "a=b")], [None, None]),
    ];
    for (label, scene) in OnwardGateway::all() {
        for era in ClientEra::BOTH {
            let mut client = scene.gateway.client(era);
            for (row, meta, more, [parent, state]) in &rows {
                let params = json!({"name": "fx__echo", "arguments": {"text": row}, "_meta": meta});
                send(&mut client, "tools/call", params, more);
                let (message, headers) = scene.last("tools/call");
                assert_eq!(message["params"]["arguments"]["text"], **row, "{label}");
                for (key, want) in [("traceparent", *parent), ("tracestate", *state), ("baggage", None)] {
                    let told = message["params"]["_meta"].get(key).and_then(Value::as_str);
                    assert_eq!(told, want, "{label}, {era:?} client, {row}: {key} in {message}");
                    if !headers.is_null() {
                        let told = headers.get(key).and_then(Value::as_str);
                        assert_eq!(told, want, "{label}, {era:?} client, {row}: {key} in {headers}");
                    }
                }
            }
        }
    }
}
