//! A simulated client of any revision, on pipes or HTTP, with a person who answers questions. Its
//! ids and progress tokens are those of every other client, so that a mix-up shows.

use std::fmt::Write as _;

use super::chance::WorldChance;
use super::truth::{CalledTool, WorldTruth};
use super::words::{self, Words, about, member, members, tag};
use crate::mcp::version::{Era, Revision};

/// Capabilities of clients: the questions that they can be asked.
const OFFERS: [&str; 4] = [
    r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#,
    r#"{"elicitation":{}}"#,
    r#"{"sampling":{},"roots":{}}"#,
    "{}",
];

/// The text before a call's number in an approval's question.
const ARGUMENT: &str = r"\n  n: ";

/// An action of a client on its connections.
#[derive(Debug)]
pub(super) enum ClientSend {
    /// A message; over HTTP a POST, whose answer is the stream of that number.
    Message { text: String, stream: u64 },
    /// The client closes a stream.
    Closes { stream: u64 },
}

/// A request in flight.
#[derive(Debug)]
struct WorldRequest {
    id: u64,
    /// The call that it begins or continues.
    n: u64,
    stream: u64,
    cancelled: bool,
}

/// A question that the person can answer.
#[derive(Debug)]
struct WorldQuestion {
    /// The gateway's id of the question, as JSON.
    id: String,
    method: String,
    /// The numbers of the question's call and of the question; `None` for a question of the
    /// gateway.
    numbers: Option<(u64, u64)>,
    /// The call that the answer can approve.
    approves: Option<u64>,
}

/// Key and method of a question, with its call and its number; these are `None` for the gateway's
/// own question.
type KeyedQuestion = (String, String, Option<(u64, u64)>);

/// A call that continues when its questions are answered.
#[derive(Debug)]
struct PausedCall {
    n: u64,
    state: String,
    asked: Vec<KeyedQuestion>,
}

pub(super) struct WorldClient {
    pub(super) number: u64,
    caller: &'static str,
    pub(super) revision: Revision,
    pub(super) is_http: bool,
    capabilities: &'static str,
    ids: u64,
    /// Number of the last stream over HTTP, unique in the world.
    streams: u64,
    is_greeted: bool,
    open: Vec<WorldRequest>,
    asked: Vec<WorldQuestion>,
    held: Vec<PausedCall>,
    pub(super) out: Vec<ClientSend>,
    /// The last answer to a question, to be sent again.
    again: Option<String>,
}

/// Returns the header fields of a request over HTTP that repeat its body.
pub(super) fn headers_of(text: &str) -> String {
    let words = Words::of(text);
    let name = member(words.params, "name").unwrap_or_default().trim_matches('"');
    format!("Mcp-Method: {}\r\nMcp-Name: {name}\r\n", words.method)
}

impl WorldClient {
    pub(super) fn new(
        number: u64,
        caller: &'static str,
        revision: Revision,
        is_http: bool,
        chance: &mut WorldChance,
    ) -> Self {
        // Nearly all offer everything, since most mix-ups need questions.
        let capabilities = if chance.one_in(4) { chance.pick(&OFFERS) } else { OFFERS[0] };
        let mut client = Self {
            number,
            caller,
            revision,
            is_http,
            capabilities,
            ids: 0,
            streams: number << 20,
            is_greeted: revision.era() == Era::Modern,
            open: Vec::new(),
            asked: Vec::new(),
            held: Vec::new(),
            out: Vec::new(),
            again: None,
        };
        if !client.is_modern() {
            let params = format!(
                r#"{{"protocolVersion":"{revision}","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}"#
            );
            client.send(words::request("0", "initialize", &params));
        }
        client
    }

    pub(super) fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }

    /// Returns whether no request is in flight and no call is paused.
    pub(super) fn is_idle(&self) -> bool {
        self.live() == 0 && self.held.is_empty() && self.out.is_empty() && self.is_greeted
    }

    /// Returns the number of requests that wait for an answer. A cancelled one may get an answer
    /// too.
    fn live(&self) -> usize {
        self.open.iter().filter(|open| !open.cancelled).count()
    }

    fn send(&mut self, text: String) -> u64 {
        self.streams += 1;
        self.out.push(ClientSend::Message { text, stream: self.streams });
        self.streams
    }

    /// Gives up all calls of the client, which is gone.
    pub(super) fn dies(&mut self, truth: &mut WorldTruth) {
        for n in self.open.iter().map(|open| open.n).chain(self.held.iter().map(|held| held.n)) {
            truth.call(n).given_up = true;
        }
    }

    /// Returns whether the client waits for an answer on that stream.
    pub(super) fn waits_on(&self, stream: u64) -> bool {
        self.open.iter().any(|open| open.stream == stream && !open.cancelled)
    }

    /// Makes one random move of the client: a call, an answer or a cancellation. Returns whether
    /// there was one.
    pub(super) fn act(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        if !self.is_greeted {
            return false;
        }
        match chance.below(12) {
            0..=4 if self.live() < 4 => {
                let batch = self.revision.features().batch && chance.one_in(4);
                let calls = (0..if batch { 2 } else { 1 }).map(|_| self.calls(chance, truth)).collect::<Vec<_>>();
                let text = if batch { format!("[{}]", calls.join(",")) } else { calls.concat() };
                self.send(text);
            }
            5 if chance.one_in(2) => return self.cancel(chance, truth),
            6 => match self.again.clone() {
                Some(again) => {
                    self.send(again);
                }
                None => return false,
            },
            _ => return self.answer(chance, truth),
        }
        true
    }

    /// Begins a new call and returns its request.
    fn calls(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> String {
        let item = match chance.below(8) {
            0 => CalledTool::Hidden,
            1..=2 => CalledTool::Asks,
            3 => CalledTool::Task,
            _ => CalledTool::Open,
        };
        let upstream = chance.pick(&["a", "b"]);
        let n = truth.made((self.number, self.caller), item, upstream);
        self.open(n);
        let params = format!(r#"{{"name":"{upstream}__{}","arguments":{{"n":{n}}}"#, item.original());
        self.request(&params)
    }

    /// Enters a request under the next id.
    fn open(&mut self, n: u64) {
        self.ids += 1;
        self.open.push(WorldRequest { id: self.ids, n, stream: self.streams + 1, cancelled: false });
    }

    /// Returns the text of the request entered last. `params` are not closed yet.
    fn request(&self, params: &str) -> String {
        let id = self.ids.to_string();
        let meta = match self.is_modern() {
            true => format!(
                r#""io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientCapabilities":{},"progressToken":{id}"#,
                self.revision, self.capabilities
            ),
            false => format!(r#""progressToken":{id}"#),
        };
        words::request(&id, "tools/call", &format!(r#"{params},"_meta":{{{meta}}}}}"#))
    }

    fn cancel(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        let live: Vec<usize> = (0..self.open.len()).filter(|at| !self.open[*at].cancelled).collect();
        if live.is_empty() {
            return false;
        }
        let open = &mut self.open[chance.pick(&live)];
        open.cancelled = true;
        let (id, n, stream) = (open.id, open.n, open.stream);
        truth.call(n).given_up = true;
        if self.is_http && self.is_modern() {
            self.open.retain(|open| open.id != id);
            self.out.push(ClientSend::Closes { stream });
        } else {
            self.send(words::notification("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#)));
        }
        true
    }

    /// Answers one of the questions; returns whether there was one.
    pub(super) fn answer(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        if !self.held.is_empty() {
            let held = self.held.swap_remove(chance.below(self.held.len()));
            self.go_on(&held, chance, truth);
            return true;
        }
        if self.asked.is_empty() {
            return false;
        }
        let WorldQuestion { id, method, numbers, approves } = self.asked.swap_remove(chance.below(self.asked.len()));
        if chance.one_in(16) {
            // This question stays without an answer.
            return true;
        }
        let said = says(&method, numbers, approves, chance, truth);
        let text = words::result(&id, &said);
        self.again = Some(text.clone());
        self.send(text);
        true
    }

    /// Sends the request of a call once more, with the answers.
    fn go_on(&mut self, held: &PausedCall, chance: &mut WorldChance, truth: &mut WorldTruth) {
        let mut responses = String::new();
        for (key, method, numbers) in &held.asked {
            let approves = numbers.is_none().then_some(held.n);
            let comma = if responses.is_empty() { "" } else { "," };
            write!(responses, r#"{comma}"{key}":{}"#, says(method, *numbers, approves, chance, truth)).unwrap();
        }
        let (n, state) = (held.n, &held.state);
        self.open(n);
        let (item, upstream) = (truth.call(n).item, truth.call(n).upstream);
        let params = format!(
            r#"{{"name":"{upstream}__{}","arguments":{{"n":{n}}},"inputResponses":{{{responses}}},"requestState":"{state}""#,
            item.original()
        );
        let text = self.request(&params);
        self.send(text);
        // The client repeats the call as if the response had been lost. Questions that the gateway
        // named are parked there.
        let waits =
            held.asked.iter().all(|(key, ..)| !key.starts_with("k=") && key.contains('-') && !key.starts_with("page"));
        if waits && chance.one_in(8) {
            truth.call(n).repeated = true;
            self.open(n);
            let text = self.request(&params);
            self.send(text);
        }
    }

    /// Takes a message of the gateway; over HTTP one that came on that stream.
    pub(super) fn hear(&mut self, text: &str, stream: u64, truth: &mut WorldTruth) {
        truth.note(|| format!("client {} hears {text}", self.number));
        let words = Words::of(text);
        match (words.method, words.id) {
            ("", "") => panic!("client {} was told of an error of its own: {text}", self.number),
            ("", _) => self.answered(&words, truth),
            (method, "") => self.told(method, &words, stream),
            (_, _) => self.question(&words, stream, truth),
        }
    }

    fn answered(&mut self, words: &Words<'_>, truth: &mut WorldTruth) {
        let id = words.number().expect("our ids are numbers");
        if id == 0 {
            assert!(!self.is_greeted && words.result.contains(self.revision.as_str()), "{words:?}");
            self.is_greeted = true;
            self.send(words::notification("notifications/initialized", "{}"));
            return;
        }
        let at = self.open.iter().position(|open| open.id == id);
        let at =
            at.unwrap_or_else(|| panic!("client {} was answered to no request of its own: {words:?}", self.number));
        let WorldRequest { n, cancelled, .. } = self.open.swap_remove(at);
        if member(words.result, "resultType") == Some("\"input_required\"") {
            assert!(self.is_modern(), "a legacy client was asked as modern ones are: {words:?}");
            let state = member(words.result, "requestState").unwrap().trim_matches('"').to_owned();
            let asked = members(member(words.result, "inputRequests").unwrap_or("{}"));
            let asked = asked.into_iter().map(|(key, request)| {
                let ours = key == "gw.consent";
                assert!(!ours || about(request, ARGUMENT) == Some(n), "asked to approve another call: {words:?}");
                let numbers = (!ours).then(|| truth.shown((self.number, self.caller), request));
                let method = member(request, "method").unwrap().trim_matches('"').to_owned();
                (key.to_owned(), method, numbers)
            });
            let held = PausedCall { n, state, asked: asked.collect() };
            if !cancelled {
                self.held.push(held);
            }
            return;
        }
        let text = if words.result.is_empty() { words.error } else { words.result };
        // A repeated request has an answer of its own; the call ends with the last of them.
        if !self.open.iter().any(|open| open.n == n) {
            truth.ended(n, self.number, text);
        }
    }

    fn told(&mut self, method: &str, words: &Words<'_>, stream: u64) {
        match method {
            "notifications/progress" => {
                let token: u64 = member(words.params, "progressToken").unwrap().parse().unwrap();
                let open = self.open.iter().find(|open| open.id == token);
                let open = open.unwrap_or_else(|| panic!("progress of nothing: {words:?}"));
                assert!(!self.is_http || open.stream == stream, "progress on a foreign stream: {words:?}");
                if let Some(of) = about(words.params, "p=") {
                    assert_eq!(of, open.n, "progress of another call: {words:?}");
                }
            }
            "notifications/cancelled" => {
                let id = member(words.params, "requestId").unwrap();
                self.asked.retain(|asked| asked.id != id);
            }
            _ => {}
        }
    }

    fn question(&mut self, words: &Words<'_>, stream: u64, truth: &mut WorldTruth) {
        assert!(!self.is_modern(), "a modern client was asked as legacy ones are: {words:?}");
        assert!(self.asked.iter().all(|asked| asked.id != words.id), "a question's id is used again: {words:?}");
        let ours = tag(words.params, "headend needs your approval:").is_some();
        // The form without fields, for a call that is held for the operator.
        let is_notice = tag(words.params, "headend needs your approval of ").is_some();
        let numbers = (!ours && !is_notice).then(|| truth.shown((self.number, self.caller), words.params));
        let approves = ours.then(|| about(words.params, ARGUMENT).expect("our question shows the arguments"));
        if let Some(n) = approves {
            assert_eq!(truth.call(n).client, self.number, "asked to approve a call of another client: {words:?}");
        }
        if self.is_http && !is_notice {
            let n = numbers.map_or(approves, |(n, _)| Some(n));
            let is_stray = numbers.is_some_and(|(n, _)| truth.has_answered(n));
            let open = self.open.iter().find(|open| open.stream == stream && (is_stray || Some(open.n) == n));
            assert!(open.is_some(), "asked on a stream of another call: {words:?}");
        }
        self.asked.push(WorldQuestion { id: words.id.to_owned(), method: words.method.to_owned(), numbers, approves });
    }
}

/// Returns a person's answer to a question, as the result that the client sends. `approves` is the
/// call that it can approve, if the question is the gateway's own.
fn says(
    method: &str,
    numbers: Option<(u64, u64)>,
    approves: Option<u64>,
    chance: &mut WorldChance,
    truth: &mut WorldTruth,
) -> String {
    let Some((n, k)) = numbers else {
        let Some(approves) = approves.filter(|_| !chance.one_in(5)) else {
            return r#"{"action":"decline"}"#.to_owned();
        };
        if chance.one_in(6) {
            return r#"{"action":"accept","content":{"decision":"deny"}}"#.to_owned();
        }
        truth.call(approves).agreed = true;
        return r#"{"action":"accept","content":{"decision":"once"}}"#.to_owned();
    };
    truth.given(n, k);
    match method {
        "sampling/createMessage" => {
            format!(r#"{{"role":"assistant","content":{{"type":"text","text":"a={n}-{k}"}},"model":"m"}}"#)
        }
        "roots/list" => format!(r#"{{"roots":[{{"uri":"file:///a={n}-{k}"}}]}}"#),
        _ if chance.one_in(5) => format!(r#"{{"action":"decline","_meta":{{"x":"a={n}-{k}"}}}}"#),
        _ => format!(r#"{{"action":"accept","content":{{"x":"a={n}-{k}"}}}}"#),
    }
}
