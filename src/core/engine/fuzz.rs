//! Fuzzed properties of the texts that clients carry, and of the connection to a server that may
//! say anything.
#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a property fails by panicking")]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::askers::{CallOrigin, DefinedItem};
use super::call::{CallOutcome, OutgoingCall};
use super::handshake::EraHint;
use super::peer::{CallPort, Peer, PeerOptions, PeerTimes};
use super::route::{RequestParams, params_object};
use crate::catalog::inventory::ListBounds;
use crate::engine::connection::ask::{DeclaredCapabilities, ServerRequest};
use crate::engine::sealed::state::{StateCarrier, StateContent, StateKey, StatePayload, StateScope};
use crate::engine::sealed::task_id::{TaskKey, TaskName};
use crate::mcp::asking::input::Roots;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::meta::Meta;
use crate::mcp::method::{ItemList, Method};
use crate::mcp::version::Revision;
use crate::mcp::voice::UpstreamReader;
use crate::policy::{Caller, PolicyAction};
use crate::wire::digest::Digest;
use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::fuzz::{assert_json, halves, spliced, value};
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::{Message, Notification};
use crate::wire::secrets::SealSecrets;

const NOW: Duration = Duration::from_secs(100);

/// Checks that a sealed state opens unchanged and for its scope alone, and that no other text
/// opens.
pub fn states(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let arguments = value(data);
    let push = PolicyAction { arguments, ..PolicyAction::stand_in("ci", "git", "git__push") };
    let carrier = StateCarrier { kind: "token", revision: Revision::V2026_07_28, capabilities: 1 };
    let scope = StateScope { method: Method::ToolsCall, action: &push, carrier };
    // Made of this input alone, so that a text made from an earlier input opens nothing.
    let secret = Digest::of(data);
    let key = StateKey::new(&SealSecrets::new(*secret.bytes())).unwrap();
    assert_eq!(key.open(&scope, &text, NOW), None);
    for carried in [
        StatePayload::Upstream(text.clone().into_owned()),
        StatePayload::Pages(text.clone().into_owned()),
        StatePayload::Nothing,
    ] {
        let state = StateContent { round: data.first().copied().unwrap_or_default(), carried };
        let Some(sealed) = key.seal(&scope, &state, NOW, [1; 12]) else { continue };
        let open = |scope: &StateScope<'_>, text: &str| key.open(scope, text, NOW).map(|(opened, _)| opened);
        assert_eq!(open(&scope, &sealed), Some(state.clone()));
        let forged = spliced(&sealed, &text);
        assert_eq!(open(&scope, &forged).is_some(), forged == sealed, "{forged}");
        let opens = |other: PolicyAction| open(&StateScope { action: &other, ..scope }, &sealed).is_some();
        assert_eq!(opens(PolicyAction { caller: Caller::named(&text), ..push.clone() }), text == "ci");
        assert_eq!(opens(PolicyAction { canonical: (&*text).into(), ..push.clone() }), text == "git__push");
        assert!(!opens(PolicyAction { caller: Caller::named("cig"), upstream: "it".into(), ..push.clone() }));
    }
    tasks(&text, &secret);
}

fn tasks(text: &str, secret: &Digest) {
    let key = TaskKey::new(secret.bytes()).unwrap();
    assert_eq!(key.open(&Caller::named("ci"), text, NOW), None);
    let (upstream, id) = text.split_once('\n').unwrap_or(("git", text));
    let name = TaskName { upstream: upstream.to_owned(), item: "git__push".to_owned(), id: id.to_owned() };
    let Some(sealed) = key.seal(&Caller::named("ci"), &name, NOW, [1; 12]) else { return };
    assert_eq!(key.open(&Caller::named("ci"), &sealed, NOW), Some(name));
    let forged = spliced(&sealed, text);
    assert_eq!(key.open(&Caller::named("ci"), &forged, NOW).is_some(), forged == sealed, "{forged}");
    assert_eq!(key.open(&Caller::named(text), &sealed, NOW).is_some(), text == "ci");
}

/// Checks that a client's parameters are read or refused.
pub fn parameters(data: &[u8]) {
    let Some(params) = value(data) else { return };
    let _refused = params_object(Some(&params));
    let Ok(read) = RequestParams::read(Some(&params)) else { return };
    drop(read);
    let Ok(meta) = RawObject::parse(&params).map_err(drop).and_then(|object| Meta::of(&object).map_err(drop)) else {
        return;
    };
    let _refused = (meta.modern(), meta.progress_token(), meta.log_level());
    if let Some(capabilities) = meta.input_capabilities() {
        assert_json(&capabilities);
    }
    for (_, value) in meta.trace() {
        assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{value:?}");
    }
}

/// A call that counts its own end: answered, or cancelled by its client.
struct CountedPort {
    key: u64,
    party: CallOrigin,
    gone: Rc<Cell<u64>>,
}

impl Drop for CountedPort {
    fn drop(&mut self) {
        self.gone.set(self.gone.get() + 1);
    }
}

impl CallPort for CountedPort {
    fn key(&self) -> u64 {
        self.key
    }

    fn party(&self) -> &CallOrigin {
        &self.party
    }

    fn progress(&mut self, params: RawJson) {
        assert_json(&params);
    }

    fn log(&mut self, params: RawJson) {
        assert_json(&params);
    }

    fn notice(&mut self, _notification: Notification) {}

    fn ask(&mut self, _request: ServerRequest) -> bool {
        self.key.is_multiple_of(2)
    }

    fn withdrawn(&mut self, _id: &RawJson) {}

    fn done(self, outcome: CallOutcome) {
        match outcome {
            CallOutcome::Result { raw, .. } => assert!(raw.is_object(), "{}", raw.text()),
            CallOutcome::Error { raw } => assert_json(&raw),
            CallOutcome::Failed(_) => {}
        }
    }
}

/// Checks that each call ends and that the server is sent nothing but messages, however it answers.
/// The length of the first line decides how the handshake begins.
pub fn peer(data: &[u8]) {
    let (first, rest) = halves(data);
    let hints = [EraHint::Probe, EraHint::Legacy, EraHint::Modern];
    let hint = hints[first.len() % hints.len()];
    let all = InputKinds { form: true, url: true, sampling: true, sampling_tools: true, roots: true };
    let times = PeerTimes { probe: Duration::from_secs(5), start: Duration::from_secs(30) };
    let declared = DeclaredCapabilities::new(all, &Roots::Client);
    let ear = UpstreamReader::new("git", JsonBounds::CLIENT, |bytes| bytes);
    #[allow(clippy::disallowed_methods, reason = "an instant cannot be made otherwise; none is compared with it")]
    let mut now = Instant::now();
    let options =
        PeerOptions { ear, hint, times, bounds: ListBounds::default(), declared, lists: true, askers: Arc::default() };
    let mut peer = Peer::new(options, now);
    let gone = Rc::new(Cell::new(0));
    let mut calls = 0;
    let mut sent = Vec::new();
    for line in rest.split(|byte| *byte == b'\n') {
        now += Duration::from_millis(10);
        match line {
            b"!call" if calls < 8 => {
                calls += 1;
                let outgoing = OutgoingCall::own(Method::ToolsCall, Meta::default());
                let name = Arc::from(if calls % 3 == 0 { "a" } else { "b" });
                let item = Some(DefinedItem { list: ItemList::Tools, name, definition: Digest::of(b"") });
                let party = CallOrigin { item, ..CallOrigin::default() };
                peer.handle_call(&outgoing, CountedPort { key: calls, party, gone: Rc::clone(&gone) });
            }
            b"!cancel" => peer.handle_cancel(calls, now),
            b"!parked" => peer.handle_parked(calls),
            b"!wait" => {
                now = peer.poll_timeout().unwrap_or(now);
                peer.handle_timeout(now);
            }
            line => peer.handle_line(Bytes::copy_from_slice(line), now),
        }
        sent.extend_from_slice(&peer.outgoing().split());
        while peer.poll_event().is_some() {}
    }
    peer.handle_closed("over");
    assert_eq!(gone.get(), calls, "a call never ended");
    for line in sent.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let frame = Frame::from_upstream(Bytes::copy_from_slice(line)).unwrap();
        assert!(Message::parse(&frame).is_ok(), "{}", String::from_utf8_lossy(line));
    }
}
