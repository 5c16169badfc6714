//! The record of a relay as messages: the sender of each, its revision, and the request that it
//! answers.

use std::collections::HashMap;
use std::fs;

use http::HeaderMap;
use serde_json::Value;
use url::Url;

use super::schema::{Schema, Side};
use super::tap::{PipeTap, TappedExchange};

/// Name of the event of HTTP+SSE that is not a message.
const ENDPOINT: &str = "endpoint";

/// A message between the gateway and a peer of the suite.
#[derive(Debug)]
pub(super) struct RecordedMessage {
    from: Side,
    revision: String,
    message: Value,
    /// The method of the request that a response answers.
    answered: Option<String>,
}

impl RecordedMessage {
    pub(super) fn revision(&self) -> &str {
        &self.revision
    }
}

/// Checks one side's messages against the schema and returns their number.
pub(super) fn judge(place: &str, from: Side, entries: &[RecordedMessage], wrong: &mut Vec<String>) -> usize {
    let sent: Vec<&RecordedMessage> = entries.iter().filter(|entry| entry.from == from).collect();
    for entry in &sent {
        let schema = Schema::of(&entry.revision).unwrap();
        if let Err(why) = schema.check(from, &entry.message, entry.answered.as_deref()) {
            let answers = entry.answered.as_deref().unwrap_or("nothing");
            wrong.push(format!("{place}, {}, answers {answers}: {why}", entry.revision));
        }
    }
    sent.len()
}

/// A client's request.
#[derive(Debug)]
struct RecordedRequest {
    id: Value,
    method: String,
    revision: String,
}

/// Returns the messages of a connection over HTTP, in the revision `usual` if none is named.
pub(super) fn of_http(exchanges: &[TappedExchange], usual: &str) -> Vec<RecordedMessage> {
    let mut connection = RecordedConnection::new(usual);
    let parse = |exchange: &TappedExchange| {
        let session = header(&exchange.asked, "mcp-session-id").or(header(&exchange.answered, "mcp-session-id"));
        let (asked, answered) = (bodies(&exchange.asked, &exchange.request), answers(exchange));
        connection.learn(session.as_deref(), &asked, &answered);
        (session, header(&exchange.asked, "mcp-protocol-version"), asked, answered)
    };
    let parsed: Vec<_> = exchanges.iter().map(parse).collect();
    let mut entries = Vec::new();
    for (session, named, asked, answered) in parsed {
        connection.read(session.as_deref(), named.as_deref(), asked, answered, &mut entries);
    }
    entries
}

/// Returns the messages over HTTP+SSE: a stream and the POSTs to its endpoint are two pipes. POSTs
/// elsewhere are of a transport that the gateway tried before.
pub(super) fn of_sse(exchanges: &[TappedExchange], usual: &str) -> Vec<RecordedMessage> {
    let (streams, mut posts): (Vec<_>, Vec<_>) =
        exchanges.iter().cloned().partition(|exchange| endpoint(exchange).is_some());
    let mut entries = Vec::new();
    for stream in streams {
        let to = endpoint(&stream).unwrap();
        let (own, others): (Vec<_>, Vec<_>) = posts.into_iter().partition(|post| post.path == to);
        posts = others;
        let asked: Vec<Value> = own.iter().flat_map(|post| bodies(&post.asked, &post.request)).collect();
        entries.extend(of_two_ways(asked, answers(&stream), usual));
    }
    entries.extend(of_http(&posts, usual));
    entries
}

/// Returns the messages of a program on two pipes.
pub(super) fn of_pipes(tap: &PipeTap, usual: &str) -> Vec<RecordedMessage> {
    of_two_ways(lines(&fs::read(&tap.input).unwrap()), lines(&fs::read(&tap.output).unwrap()), usual)
}

/// Returns the messages of one session from either end.
fn of_two_ways(asked: Vec<Value>, answered: Vec<Value>, usual: &str) -> Vec<RecordedMessage> {
    let mut connection = RecordedConnection::new(usual);
    connection.learn(None, &asked, &answered);
    let mut entries = Vec::new();
    connection.read(None, None, asked, answered, &mut entries);
    entries
}

/// Agreements between the two ends. A pipe is one session without a name.
#[derive(Debug)]
struct RecordedConnection {
    usual: String,
    /// The revision of each session.
    agreed: HashMap<Option<String>, String>,
    /// The server's own requests, by session and id.
    from_server: HashMap<(Option<String>, String), String>,
}

impl RecordedConnection {
    fn new(usual: &str) -> Self {
        Self { usual: usual.to_owned(), agreed: HashMap::new(), from_server: HashMap::new() }
    }

    /// Records a handshake and requests of the server.
    fn learn(&mut self, session: Option<&str>, asked: &[Value], answered: &[Value]) {
        let session = session.map(str::to_owned);
        for request in asked.iter().filter(|message| message["method"] == "initialize") {
            let answer = answered.iter().find(|message| message["id"] == request["id"]);
            if let Some(version) = answer.and_then(|answer| answer["result"]["protocolVersion"].as_str()) {
                self.agreed.insert(session.clone(), version.to_owned());
            }
        }
        for request in answered.iter().filter(|message| message.get("id").is_some()) {
            if let Some(method) = request["method"].as_str() {
                self.from_server.insert((session.clone(), request["id"].to_string()), method.to_owned());
            }
        }
    }

    /// Reads both directions of one exchange, or of two pipes; `named` is the revision of a header.
    fn read(
        &self,
        session: Option<&str>,
        named: Option<&str>,
        asked: Vec<Value>,
        answered: Vec<Value>,
        entries: &mut Vec<RecordedMessage>,
    ) {
        let mut requests = Vec::new();
        for message in asked {
            let revision = self.revision(Some(&message), session, named);
            if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
                requests.push(RecordedRequest {
                    id: id.clone(),
                    method: method.to_owned(),
                    revision: revision.clone(),
                });
            }
            let answered = self.asked_by_server(session, &message);
            entries.push(RecordedMessage { from: Side::Client, revision, message, answered });
        }
        for message in answered {
            let is_response = message["method"].is_null();
            let request = requests.iter().find(|request| is_response && request.id == message["id"]);
            // A message that answers no request belongs to the session, or to the request whose
            // stream it is on.
            let only = requests.first().filter(|_| requests.len() == 1);
            let revision = request.or(only).map(|request| request.revision.clone());
            let revision = revision.unwrap_or_else(|| self.revision(None, session, named));
            let answered = request.map(|request| request.method.clone());
            entries.push(RecordedMessage { from: Side::Server, revision, message, answered });
        }
    }

    /// Returns the request of the server that a client's response answers.
    fn asked_by_server(&self, session: Option<&str>, message: &Value) -> Option<String> {
        let response = message["method"].is_null();
        response.then(|| self.from_server.get(&(session.map(str::to_owned), message["id"].to_string())).cloned())?
    }

    /// Returns the revision of a message: its own, else that of its session, else an offered one,
    /// else that of the header.
    fn revision(&self, message: Option<&Value>, session: Option<&str>, named: Option<&str>) -> String {
        let params = message.map(|message| &message["params"]);
        let own = params.and_then(|params| params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str());
        let agreed = self.agreed.get(&session.map(str::to_owned)).map(String::as_str);
        let offered = params.and_then(|params| params["protocolVersion"].as_str());
        let candidates = [own, agreed, offered, named, Some(&self.usual)];
        candidates.into_iter().flatten().find(|revision| Schema::of(revision).is_some()).unwrap().to_owned()
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn answers(exchange: &TappedExchange) -> Vec<Value> {
    let kind = header(&exchange.answered, "content-type").unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        return events(&String::from_utf8_lossy(&exchange.response));
    }
    bodies(&exchange.answered, &exchange.response)
}

/// Reads a JSON body as messages; an unreadable one becomes a message that fits no schema.
fn bodies(headers: &HeaderMap, body: &[u8]) -> Vec<Value> {
    let json = header(headers, "content-type").is_some_and(|kind| kind.starts_with("application/json"));
    let unreadable = |_| Value::String(String::from_utf8_lossy(body).into_owned());
    if json && !body.is_empty() { vec![serde_json::from_slice(body).unwrap_or_else(unreadable)] } else { Vec::new() }
}

/// Returns the messages in an event stream.
fn events(text: &str) -> Vec<Value> {
    let messages = named_events(text).into_iter().filter(|(name, data)| name != ENDPOINT && !data.is_empty());
    messages.map(|(_, data)| serde_json::from_str(&data).unwrap_or(Value::String(data))).collect()
}

/// Returns the name and data of each event; bytes after the last blank line are no event.
fn named_events(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\r\n", "\n");
    let Some((complete, _)) = text.rsplit_once("\n\n") else { return Vec::new() };
    let field = |event: &str, name: &str| {
        let lines = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    };
    complete.split("\n\n").map(|event| (field(event, "event"), field(event, "data"))).collect()
}

/// Returns the path that a stream of HTTP+SSE names for its client's messages.
fn endpoint(exchange: &TappedExchange) -> Option<String> {
    let named = named_events(&String::from_utf8_lossy(&exchange.response));
    let (_, place) = named.into_iter().find(|(name, _)| name == ENDPOINT)?;
    let stream = Url::parse("http://localhost").unwrap().join(&exchange.path).unwrap();
    Some(stream.join(&place).unwrap().path().to_owned())
}

/// Reads one message a line; a last line without its end was cut off with the program.
fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(bytes);
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned()));
    complete.lines().filter(|line| !line.trim().is_empty()).map(read).collect()
}
