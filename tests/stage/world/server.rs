//! A simulated server of either era, a process on pipes or a session behind HTTP. It works on
//! several calls at once, and chance decides what it does with each: progress, questions of every
//! kind, a result, an error, nothing.

use std::fmt::Write as _;

use super::chance::WorldChance;
use super::tasks::WorldTask;
use super::truth::{WorldTruth, numbers};
use super::words::{self, Words, member, members, quoted};
use crate::mcp::version::{Era, Revision};

/// The list of tools of every server.
const TOOLS: &str = concat!(
    r#""tools":[{"name":"open","inputSchema":{"type":"object"}},"#,
    r#"{"name":"hidden","inputSchema":{"type":"object"}},"#,
    r#"{"name":"asks","inputSchema":{"type":"object"}},"#,
    r#"{"name":"task","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]"#
);

/// A message of a server, and the stream that it is for: that of a request, or the session's own.
#[derive(Debug)]
pub(super) struct ServerMessage {
    pub(super) on: Option<u64>,
    pub(super) text: String,
    /// Whether it is the answer to the request of that stream.
    pub(super) last: bool,
}

/// A call that the server works on.
#[derive(Debug)]
struct ServerCall {
    /// The id of the request, as JSON.
    id: String,
    /// The stream of the request, over HTTP.
    on: Option<u64>,
    n: u64,
    /// The progress token.
    token: Option<String>,
    steps: u32,
    /// The client's capabilities: the questions that the server may ask.
    capabilities: String,
    /// The number of an open question.
    open: Option<u64>,
    /// The session's own stream, if the question was asked there.
    aside: Option<u64>,
}

/// The way in which a legacy server asks its questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskingManner {
    /// Waits for the answers to its questions.
    Polite,
    /// Answers a call even if the call's question is open.
    Hasty,
    /// Works on one call at a time, the oldest.
    Serial,
    /// Asks two questions at once.
    Twice,
    /// Asks about calls that it has answered.
    Late,
}

impl AskingManner {
    pub(super) const ALL: [Self; 5] = [Self::Polite, Self::Hasty, Self::Serial, Self::Twice, Self::Late];

    fn waits(self) -> bool {
        matches!(self, Self::Polite | Self::Serial | Self::Twice)
    }
}

pub(super) struct WorldServer {
    pub(super) revision: Revision,
    lines: bool,
    manner: AskingManner,
    /// The last call that the server answered, and the capabilities of its client.
    over: Option<(u64, String)>,
    work: Vec<ServerCall>,
    pub(super) tasks: Vec<WorldTask>,
    pub(super) out: Vec<ServerMessage>,
    /// The ids of all requests of this connection.
    ids: Vec<u64>,
    /// The last answer, to be repeated.
    sent: Option<(Option<u64>, String)>,
    /// The capabilities in `initialize`.
    declared: String,
    /// The stream of the session itself.
    pub(super) own: Option<u64>,
}

impl WorldServer {
    pub(super) fn new(revision: Revision, lines: bool, manner: AskingManner) -> Self {
        Self {
            revision,
            lines,
            manner,
            over: None,
            work: Vec::new(),
            tasks: Vec::new(),
            out: Vec::new(),
            ids: Vec::new(),
            sent: None,
            declared: String::new(),
            own: None,
        }
    }

    pub(super) fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }

    pub(super) fn say(&mut self, on: Option<u64>, text: String, last: bool) {
        self.out.push(ServerMessage { on, text, last });
    }

    /// Takes a message of the gateway; over HTTP a request that is answered on that stream.
    pub(super) fn hear(&mut self, text: &str, on: Option<u64>, truth: &mut WorldTruth) {
        let words = Words::of(text);
        if words.method.is_empty() {
            return self.answer(&words, truth);
        }
        if words.id.is_empty() {
            return self.notice(&words);
        }
        let id = words.number().expect("our ids are numbers");
        if words.method == "server/discover" {
            // A new connection to a server without sessions.
            self.ids.clear();
        }
        if words.method != "initialize" {
            assert!(!self.ids.contains(&id), "wire id {id} used twice");
            self.ids.push(id);
        }
        let result = match words.method {
            "initialize" if !self.is_modern() => {
                self.declared = member(words.params, "capabilities").unwrap_or_default().to_owned();
                format!(
                    r#"{{"protocolVersion":"{}","capabilities":{{"tools":{{}},"tasks":{{"requests":{{"tools":{{"call":{{}}}}}}}}}},"serverInfo":{{"name":"s","version":"1"}}}}"#,
                    self.revision
                )
            }
            "server/discover" if self.is_modern() => {
                if !words.params.contains(self.revision.as_str()) {
                    let error =
                        format!(r#"{{"code":-32022,"message":"no","data":{{"supported":["{}"]}}}}"#, self.revision);
                    return self.say(on, words::error(words.id, &error), true);
                }
                let head = self.revision.features().result_head;
                format!(
                    r#"{{{head}"supportedVersions":["{}"],"capabilities":{{"tools":{{}},"extensions":{{"io.modelcontextprotocol/tasks":{{}}}}}}}}"#,
                    self.revision
                )
            }
            "tools/list" => format!("{{{}{TOOLS}}}", self.revision.features().result_head),
            "ping" if !self.is_modern() => "{}".to_owned(),
            "tools/call" => return self.call(&words, on, truth),
            "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => {
                return self.about_task(&words, on, truth);
            }
            _ => return self.say(on, words::error(words.id, r#"{"code":-32601,"message":"no"}"#), true),
        };
        self.say(on, words::result(words.id, &result), true);
    }

    fn call(&mut self, words: &Words<'_>, on: Option<u64>, truth: &mut WorldTruth) {
        let name = member(words.params, "name").unwrap_or_default().trim_matches('"');
        let n =
            member(words.params, "arguments").and_then(|arguments| member(arguments, "n")).unwrap().parse().unwrap();
        let meta = member(words.params, "_meta").unwrap_or_default();
        let capabilities = match self.is_modern() {
            true => member(meta, "io.modelcontextprotocol/clientCapabilities").unwrap_or_default().to_owned(),
            false => self.declared.clone(),
        };
        if name == "task" {
            return self.begins(words, on, n, capabilities, truth);
        }
        let state = member(words.params, "requestState");
        match (state, member(words.params, "inputResponses")) {
            (None, None) => truth.took(n),
            (state, responses) => {
                assert!(self.is_modern(), "a legacy server heard of states");
                let (of, k) = numbers(state.unwrap_or_default(), "s=").expect("a state that this server gave out");
                assert_eq!(of, n, "call {n} goes on with the state of call {of}");
                for (key, response) in members(responses.unwrap_or("{}")) {
                    let (of, key) = numbers(key, "k=").expect("a key that this server gave out");
                    assert!(of == n && key >= k, "call {n} goes on with an answer about call {of}");
                    truth.heard(of, key, response);
                }
            }
        }
        let token = member(meta, "progressToken").map(str::to_owned);
        self.work.push(ServerCall {
            id: words.id.to_owned(),
            on,
            n,
            token,
            steps: 0,
            capabilities,
            open: None,
            aside: None,
        });
    }

    fn notice(&mut self, words: &Words<'_>) {
        if words.method == "notifications/cancelled" {
            let id = member(words.params, "requestId").unwrap_or_default();
            self.work.retain(|work| work.id != id);
            self.result_unwanted(|waits, _| waits == id);
        }
    }

    /// Notes that the gateway has closed the stream of a request, which tells a modern server that
    /// the request is cancelled.
    pub(super) fn closed(&mut self, on: u64) {
        if self.is_modern() {
            self.work.retain(|work| work.on != Some(on));
            self.result_unwanted(|_, waits| waits == Some(on));
        }
    }

    /// Takes the answer to a question of a legacy server.
    fn answer(&mut self, words: &Words<'_>, truth: &mut WorldTruth) {
        let Some((n, k)) = numbers(words.id, "k=") else { return };
        truth.heard(n, k, if words.result.is_empty() { words.error } else { words.result });
        for work in self.work.iter_mut().filter(|work| work.open == Some(k)) {
            (work.open, work.aside) = (None, None);
        }
        self.task_answered(k);
    }

    /// Makes a random move about one of the server's calls; returns whether there was one.
    pub(super) fn act(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        if chance.one_in(16)
            && let Some((on, text)) = self.sent.take()
        {
            // The answer once more, and late.
            if self.lines {
                self.say(on, text, false);
            }
            return true;
        }
        if (self.work.is_empty() || chance.one_in(3)) && self.works(false, chance, truth) {
            return true;
        }
        if self.work.is_empty() {
            return self.manner == AskingManner::Late && chance.one_in(8) && self.ask_late(chance, truth);
        }
        if self.manner == AskingManner::Late && chance.one_in(4) && self.ask_late(chance, truth) {
            return true;
        }
        let at = if self.manner == AskingManner::Serial { 0 } else { chance.below(self.work.len()) };
        let steps = self.work[at].steps;
        self.work[at].steps += 1;
        match chance.below(if steps > 4 { 4 } else { 10 }) {
            0..=2 => self.finish(at, chance, truth),
            3 => self.refuse(at, chance, truth),
            4..=5 => self.progress(at),
            6 if self.work[at].open.is_some() && self.work[at].aside.is_none() && !self.is_modern() => {
                self.withdraw(at)
            }
            _ => self.ask(at, chance, truth),
        }
        true
    }

    /// Answers its oldest call that it can answer; returns whether there was one.
    pub(super) fn end_one(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        let can_end = |work: &ServerCall| work.aside.is_none() && (work.open.is_none() || !self.waits());
        let at = self.work.iter().position(can_end).filter(|at| *at == 0 || self.manner != AskingManner::Serial);
        if let Some(at) = at {
            self.finish(at, chance, truth);
        }
        at.is_some() || self.works(true, chance, truth)
    }

    /// Returns the number of calls that the server has not answered.
    pub(super) fn open_work(&self) -> usize {
        self.work.len() + self.tasks.iter().filter(|task| task.is_open()).count()
    }

    /// Returns whether the server waits for the answers to its questions.
    fn waits(&self) -> bool {
        !self.is_modern() && self.manner.waits()
    }

    /// Asks about a call that it has answered; returns whether there is one.
    fn ask_late(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        let Some((n, capabilities)) = self.over.clone().filter(|_| !self.is_modern()) else { return false };
        let kinds: Vec<WorldQuestionKind> =
            WorldQuestionKind::ALL.into_iter().filter(|kind| kind.is_in(&capabilities)).collect();
        if kinds.is_empty() || (!self.lines && self.own.is_none()) {
            return false;
        }
        let (k, kind) = (truth.new_question(n), chance.pick(&kinds));
        self.say(self.own, words::request(&quoted(&format!("k={n}-{k}")), kind.method(), &kind.params(n, k)), false);
        true
    }

    fn finish(&mut self, at: usize, chance: &mut WorldChance, truth: &mut WorldTruth) {
        let work = &self.work[at];
        if work.aside.is_some() || (work.open.is_some() && self.waits()) {
            // The answer might overtake the question, which then is about no call in flight.
            return self.progress(at);
        }
        // The calls stay in their order.
        let ServerCall { id, on, n, capabilities, .. } = self.work.remove(at);
        self.over = Some((n, capabilities));
        truth.answered(n);
        let text = match chance.below(if self.lines { 24 } else { 20 }) {
            // A response with both a result and an error, which the gateway cannot read.
            23 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}},"error":{{"code":1,"message":"c={n}"}}}}"#),
            0..=3 => words::error(&id, &format!(r#"{{"code":-32000,"message":"c={n}"}}"#)),
            _ => {
                let head = self.revision.features().result_head;
                words::result(&id, &format!(r#"{{{head}"content":[{{"type":"text","text":"c={n}"}}]}}"#))
            }
        };
        self.sent = Some((on, text.clone()));
        self.say(on, text, true);
    }

    /// Refuses the call until a page is opened, if the client can open one.
    fn refuse(&mut self, at: usize, chance: &mut WorldChance, truth: &mut WorldTruth) {
        let work = &self.work[at];
        if work.steps > 1 || work.open.is_some() || truth.call(work.n).proofs > 0 {
            return self.finish(at, chance, truth);
        }
        let ServerCall { id, on, n, .. } = self.work.remove(at);
        let k = truth.new_question(n);
        truth.proved(n);
        // The error names the question; its answer never comes here, only the call once more.
        truth.closes_itself(n, k);
        let page =
            format!(r#"{{"mode":"url","message":"q={n}-{k}","url":"https://x.example/","elicitationId":"e{k}"}}"#);
        let error = format!(r#"{{"code":-32042,"message":"first","data":{{"elicitations":[{page}]}}}}"#);
        self.say(on, words::error(&id, &error), true);
    }

    fn progress(&mut self, at: usize) {
        let ServerCall { on, n, steps, token, .. } = &self.work[at];
        let Some(token) = token else { return };
        let params = format!(r#"{{"progressToken":{token},"progress":{steps},"message":"p={n}"}}"#);
        let (on, text) = (*on, words::notification("notifications/progress", &params));
        self.say(on, text, false);
    }

    fn withdraw(&mut self, at: usize) {
        let ServerCall { on, n, open, .. } = &mut self.work[at];
        let Some(k) = open.take() else { return };
        let params = format!(r#"{{"requestId":"k={n}-{k}"}}"#);
        let (on, text) = (*on, words::notification("notifications/cancelled", &params));
        self.say(on, text, false);
    }

    fn ask(&mut self, at: usize, chance: &mut WorldChance, truth: &mut WorldTruth) {
        let work = &self.work[at];
        let kinds: Vec<WorldQuestionKind> =
            WorldQuestionKind::ALL.into_iter().filter(|kind| kind.is_in(&work.capabilities)).collect();
        if work.open.is_some() || kinds.is_empty() {
            return self.progress(at);
        }
        let n = work.n;
        if !self.is_modern() {
            let aside = self.own.filter(|_| chance.one_in(3));
            let on = aside.or(work.on);
            for _ in 0..if self.manner == AskingManner::Twice { 2 } else { 1 } {
                let (k, kind) = (truth.new_question(n), chance.pick(&kinds));
                (self.work[at].open, self.work[at].aside) = (Some(k), aside);
                let text = words::request(&quoted(&format!("k={n}-{k}")), kind.method(), &kind.params(n, k));
                self.say(on, text, false);
            }
            return;
        }
        let ServerCall { id, on, .. } = self.work.swap_remove(at);
        let mut requests = String::new();
        let mut first = None;
        for _ in 0..=chance.below(2) {
            let (k, kind) = (truth.new_question(n), chance.pick(&kinds));
            first = first.or(Some(k));
            let comma = if requests.is_empty() { "" } else { "," };
            write!(requests, r#"{comma}"k={n}-{k}":{{"method":"{}","params":{}}}"#, kind.method(), kind.params(n, k))
                .unwrap();
        }
        let state = format!("s={n}-{}", first.unwrap_or_default());
        let result =
            format!(r#"{{"resultType":"input_required","inputRequests":{{{requests}}},"requestState":"{state}"}}"#);
        self.say(on, words::result(&id, &result), true);
    }
}

/// The kinds of questions.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorldQuestionKind {
    Form,
    Url,
    Sampling,
    Roots,
}

impl WorldQuestionKind {
    pub(super) const ALL: [Self; 4] = [Self::Form, Self::Url, Self::Sampling, Self::Roots];

    pub(super) fn is_in(self, capabilities: &str) -> bool {
        let elicitation = member(capabilities, "elicitation");
        match self {
            Self::Form => elicitation.is_some_and(|modes| modes == "{}" || modes.contains("form")),
            Self::Url => elicitation.is_some_and(|modes| modes.contains("url")),
            Self::Sampling => member(capabilities, "sampling").is_some(),
            Self::Roots => member(capabilities, "roots").is_some(),
        }
    }

    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Form | Self::Url => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    pub(super) fn params(self, n: u64, k: u64) -> String {
        match self {
            Self::Form => format!(
                r#"{{"message":"q={n}-{k}","requestedSchema":{{"type":"object","properties":{{"x":{{"type":"string"}}}}}}}}"#
            ),
            Self::Url => {
                format!(r#"{{"mode":"url","message":"q={n}-{k}","url":"https://x.example/","elicitationId":"e{k}"}}"#)
            }
            Self::Sampling => format!(
                r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":"q={n}-{k}"}}}}],"maxTokens":9}}"#
            ),
            Self::Roots => format!(r#"{{"_meta":{{"x":"q={n}-{k}"}}}}"#),
        }
    }
}
