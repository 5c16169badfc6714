//! Tests of one client's side of the protocol: what each message leads to, alone and in any order.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::engine::client::asked::{RequestField, fits_session, is_modern};
use crate::engine::client::heard::ClientInput;
use crate::wire::frame::JsonBounds;

type Ticket = Rc<()>;

const CLAIM: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The head of an HTTP request.
#[derive(Debug)]
struct Fields<'a>(&'a [(&'a str, &'a str)]);

impl RequestHead for Fields<'_> {
    fn field(&self, field: RequestField) -> (Option<&[u8]>, bool) {
        let mut values = self.0.iter().filter(|(name, _)| *name == field.into_str()).map(|(_, value)| value.as_bytes());
        (values.next(), values.next().is_some())
    }
}

fn said(text: &str) -> ClientMessage {
    match ClientInput::read(text.to_owned().into(), JsonBounds::CLIENT) {
        ClientInput::Message(said) => said,
        ClientInput::Batch(_) => panic!("a batch: {text}"),
    }
}

fn request(id: &str, method: &str, params: &str) -> ClientMessage {
    said(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#))
}

/// Describes a step in a word; an answer with its code, 0 for a result.
fn word(step: &ClientAction<Ticket>) -> String {
    match step {
        ClientAction::Nothing => "nothing".to_owned(),
        ClientAction::Answer(_, RequestAnswer { outcome: Ok(_), .. }) => "answer 0".to_owned(),
        ClientAction::Answer(_, RequestAnswer { outcome: Err(error), .. }) => format!("answer {}", code_of(error)),
        ClientAction::Complain(error) => format!("complain {}", code_of(error)),
        ClientAction::Initialize(_, revision, ..) => format!("initialize {revision}"),
        ClientAction::Serve(served) => {
            format!("{} {}", if served.listens { "listen" } else { "serve" }, served.revision)
        }
        ClientAction::Cancel(_) => "cancel".to_owned(),
        ClientAction::Initialized => "initialized".to_owned(),
        ClientAction::Answered(_) => "answered".to_owned(),
    }
}

fn code_of(error: &RawJson) -> i64 {
    error.parse::<serde_json::Value>().unwrap()["code"].as_i64().unwrap()
}

#[test]
fn each_message_is_of_the_era_that_its_body_says() {
    let told = |head: &Fields<'_>, method: &str, params: &str| {
        let head = Some(head).filter(|head| !head.0.is_empty()).map(|head| head as &dyn RequestHead);
        word(&ClientProtocol::agreed(Revision::V2025_06_18).heard(request("1", method, params), head))
    };
    let none = Fields(&[]);
    let session = Fields(&[("mcp-protocol-version", "2025-06-18")]);
    let modern = Fields(&[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")]);
    let claimed = CLAIM.replace("2026-07-28", "1900-01-01");
    for (head, method, params, want) in [
        (&none, "tools/list", "", "serve 2025-06-18"),
        (&none, "tools/list", CLAIM, "serve 2026-07-28"),
        (&none, "tools/list", claimed.as_str(), "answer -32022"),
        (&none, "tools/list", r#""_meta":7"#, "answer -32602"),
        (&none, "subscriptions/listen", CLAIM, "listen 2026-07-28"),
        (&none, "subscriptions/listen", "", "serve 2025-06-18"),
        (&none, "initialize", r#""protocolVersion":"2025-06-18""#, "answer -32600"),
        (&none, "initialize", CLAIM, "answer -32601"),
        (&none, "ping", CLAIM, "answer -32601"),
        (&none, "rpc.discover", CLAIM, "answer -32601"),
        (&session, "tools/list", "", "serve 2025-06-18"),
        (&session, "tools/list", CLAIM, "answer -32020"),
        (&modern, "tools/list", "", "answer -32602"),
        (&modern, "tools/list", CLAIM, "serve 2026-07-28"),
        (&modern, "tools/call", CLAIM, "answer -32020"),
        (&modern, "initialize", r#""protocolVersion":"2025-06-18""#, "answer -32020"),
        (&modern, "rpc.discover", "", "answer -32601"),
    ] {
        assert_eq!(told(head, method, params), want, "{method} {params} under {head:?}");
    }
}

#[test]
fn headers_of_2026_07_28_are_checked_as_if_no_revision_had_followed() {
    const NOW: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
    const LATER: (&str, &str) = ("mcp-protocol-version", "2099-12-31");
    const CALL: (&str, &str) = ("mcp-method", "tools/call");
    const NAME: (&str, &str) = ("mcp-name", "t");
    // Returns the error for a call of the tool `t` that claims this revision under these headers,
    // or the revision if the call may pass.
    let told = |claimed: &str, head: &[(&str, &str)]| {
        let params = format!(r#""name":"t",{}"#, CLAIM.replace("2026-07-28", claimed));
        let Ok(Message::Request(request)) = request("1", "tools/call", &params) else { panic!("no request: {params}") };
        match CheckedRequest::of(&request, Some(&Fields(head))) {
            Ok(CheckedRequest::Modern { revision, .. }) => revision.to_string(),
            Ok(CheckedRequest::Initialize { .. } | CheckedRequest::Legacy(_)) => panic!("not modern: {params}"),
            Err(answer) => {
                assert_eq!(answer.status, Some(400));
                answer.outcome.unwrap_err().text().into_owned()
            }
        }
    };
    let bad = |why: &str| format!(r#"{{"code":-32020,"message":"{why}"}}"#);
    for (headers, want) in [
        (vec![NOW, CALL, NAME], "2026-07-28".to_owned()),
        (vec![NOW, NOW, CALL, NAME], bad("the header mcp-protocol-version occurs twice")),
        (vec![CALL, NAME], bad("the MCP-Protocol-Version header is missing")),
        (vec![LATER, CALL, NAME], bad("MCP-Protocol-Version differs from the version in params._meta")),
        (vec![NOW, NAME], bad("the Mcp-Method header is missing")),
        (vec![NOW, ("mcp-method", "ping"), NAME], bad("Mcp-Method differs from the method in the body")),
        (vec![NOW, CALL], bad("the Mcp-Name header is missing")),
        (vec![NOW, CALL, ("mcp-name", "u")], bad("Mcp-Name differs from the name in the body")),
    ] {
        assert_eq!(told("2026-07-28", &headers), want, "{headers:?}");
    }
    assert_eq!(told("2099-12-31", &[LATER, CALL, NAME]), "2099-12-31");
    for claimed in ["2025-11-25", "2031-01-01", ""] {
        let want = format!(
            r#"{{"code":-32022,"message":"Unsupported protocol version; this server speaks 2099-12-31, 2026-07-28","data":{{"supported":["2099-12-31","2026-07-28"],"requested":"{claimed}"}}}}"#
        );
        assert_eq!(told(claimed, &[CALL, NAME]), want);
    }
}

#[test]
fn a_session_has_no_modern_version_over_its_messages() {
    const VERSION: &str = "mcp-protocol-version";
    for (versions, modern, fits) in [
        (vec![], false, true),
        (vec![(VERSION, "2025-06-18")], false, true),
        (vec![(VERSION, " 2025-11-25 ")], false, true),
        (vec![(VERSION, "2025-06-18"), (VERSION, "2025-06-18")], false, false),
        (vec![(VERSION, "1900-01-01")], false, false),
        (vec![(VERSION, "\u{e9}")], false, false),
        (vec![(VERSION, "2026-07-28")], true, false),
        (vec![(VERSION, "v999")], true, false),
    ] {
        let head = Fields(&versions);
        assert_eq!((is_modern(&head), fits_session(&head)), (modern, fits), "{versions:?}");
    }
}

#[test]
fn nothing_of_the_legacy_era_comes_before_initialize() {
    let mut client = ClientProtocol::<Ticket>::default();
    for (text, want) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "answer 0"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, "answer -32602"),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, "answer -32602"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}"#, "answer -32602"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x","capabilities":{"roots":{"listChanged":1}}}}"#,
            "answer -32602",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x","capabilities":{"roots":{"listChanged":null}}}}"#,
            "initialize 2025-11-25",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}"#, "answer -32600"),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "initialized"),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, "serve 2025-11-25"),
        (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}"#, "nothing"),
        (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#, "cancel"),
        (r#"{"jsonrpc":"2.0","id":"ask-1","result":{}}"#, "answered"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "answer -32600"),
        ("{", "complain -32700"),
    ] {
        assert_eq!(word(&client.heard(said(text), None)), want, "{text}");
    }
}

#[test]
fn a_skipped_message_is_answered_where_its_start_names_a_request() {
    for (start, no_room, want, ends) in [
        (r#"{"id":7,"method":"tools/call","params":"#, false, "answer -32600", false),
        (r#"{"id":7,"method":"tools/call","params":"#, true, "answer -32603", false),
        (r#"{"id":"ask-1","result":"#, true, "answered", false),
        (r#"{"method":"notifications/x","params":"#, true, "nothing", false),
        (r#"{"method":"tools/call","params":"#, false, "complain -32600", true),
        ("[", false, "complain -32600", false),
        ("[", true, "complain -32603", true),
    ] {
        let (step, flow) = ClientProtocol::<Ticket>::skipped(start.as_bytes(), no_room);
        assert_eq!((word(&step).as_str(), flow.is_break()), (want, ends), "{start}");
    }
}

/// A second, simpler implementation of a client's state.
#[derive(Default)]
struct Model {
    agreed: Option<Revision>,
    initialized: bool,
    open: BTreeMap<&'static str, (Ticket, bool)>,
}

impl Model {
    fn request(&self, id: &str, method: &str, claims: bool) -> String {
        let listens = claims && method == "subscriptions/listen";
        let too_many = listens && self.open.values().filter(|(_, listens)| *listens).count() == MAX_LISTENS;
        match (claims, method, self.agreed) {
            (true, "initialize" | "ping", _) => "answer -32601".to_owned(),
            (false, "initialize", Some(_)) => "answer -32600".to_owned(),
            (false, "initialize", None) => "initialize 2025-06-18".to_owned(),
            (false, "ping", None) => "answer 0".to_owned(),
            (false, _, None) => "answer -32602".to_owned(),
            _ if self.open.contains_key(id) || too_many => "answer -32600".to_owned(),
            (true, ..) if listens => "listen 2026-07-28".to_owned(),
            (true, ..) => "serve 2026-07-28".to_owned(),
            (false, _, Some(revision)) => format!("serve {revision}"),
        }
    }
}

/// Ids, each in two spellings.
const IDS: &[(&str, &str)] =
    &[("\"a\"", "\"\\u0061\""), ("\"1\"", "\"\\u0031\""), ("1", "1"), ("0", "0"), ("-1", "-1")];

fn play(seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut client, mut model) = (ClientProtocol::<Ticket>::default(), Model::default());
    // More ids than a client may have subscriptions.
    let numbers: Vec<&'static str> = (100..100 + 2 * MAX_LISTENS).map(|n| &*n.to_string().leak()).collect();
    let ids: Vec<(&'static str, &'static str)> =
        IDS.iter().copied().chain(numbers.into_iter().map(|id| (id, id))).collect();
    for step in 0..steps {
        let at = format!("seed {seed}, step {step}");
        let (id, other) = ids[random.usize(..ids.len())];
        let spelled = if random.bool() { id } else { other };
        match random.u8(..10) {
            0..6 => {
                let methods =
                    ["tools/list", "tools/call", "subscriptions/listen", "subscriptions/listen", "initialize", "ping"];
                let (method, claims) = (methods[random.usize(..methods.len())], random.bool());
                let params = if claims { CLAIM } else { r#""protocolVersion":"2025-06-18""# };
                let want = model.request(id, method, claims);
                let took = client.heard(request(spelled, method, params), None);
                assert_eq!(word(&took), want, "{at}: {method} {spelled}, claims {claims}");
                match took {
                    ClientAction::Initialize(..) => model.agreed = Some(Revision::V2025_06_18),
                    ClientAction::Serve(served) => {
                        assert!(model.open.values().all(|(ticket, _)| !Rc::ptr_eq(ticket, &served.ticket)), "{at}");
                        assert_eq!(served.request.id.raw().text(), spelled, "{at}: echoed as written");
                        model.open.insert(id, (served.ticket, served.listens));
                    }
                    ClientAction::Answer(answered, _) => assert_eq!(answered.raw().text(), spelled, "{at}"),
                    ClientAction::Nothing
                    | ClientAction::Complain(_)
                    | ClientAction::Cancel(_)
                    | ClientAction::Initialized
                    | ClientAction::Answered(_) => {
                        panic!("{at}: no answer to a request")
                    }
                }
            }
            6 => {
                let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}"#;
                let step = client.heard(said(&text.replace("ID", spelled)), None);
                match (step, model.open.get(id)) {
                    (ClientAction::Cancel(ticket), Some((open, _))) => {
                        assert!(Rc::ptr_eq(&ticket, open), "{at}: another request")
                    }
                    (ClientAction::Nothing, None) => {}
                    (step, open) => panic!("{at}: {} of {open:?}", word(&step)),
                }
            }
            7 => {
                let text = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                let first = model.agreed.is_some() && !model.initialized;
                model.initialized |= first;
                let want = if first { "initialized" } else { "nothing" };
                assert_eq!(word(&client.heard(said(text), None)), want, "{at}");
            }
            _ => {
                if let Some(id) = model.open.keys().copied().nth(random.usize(..ids.len())) {
                    drop(model.open.remove(id));
                    client.close(&ClientId::from_raw(RawJson::trusted(id)).unwrap().key());
                }
            }
        }
        let listens = model.open.values().filter(|(_, listens)| *listens).count();
        assert_eq!((client.listens().count(), client.is_idle()), (listens, model.open.is_empty()), "{at}");
        assert!(listens <= MAX_LISTENS, "{at}");
    }
}

#[test]
fn each_request_is_served_or_answered_once_in_any_order() {
    for seed in 0..1_000 {
        play(seed, 120);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "any moment will do to count from")]
fn errors_without_an_id_are_a_second_apart() {
    let (mut client, start) = (ClientProtocol::<Ticket>::default(), Instant::now());
    for (millis, want) in [(0, true), (1, false), (999, false), (1_000, true), (1_001, false), (5_000, true)] {
        assert_eq!(client.complains(start + Duration::from_millis(millis)), want, "{millis}");
    }
}
