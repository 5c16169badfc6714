//! A client's connection to the daemon: Streamable HTTP, HTTP+SSE, or lines on the admin socket or
//! the pipes of `headend stdio`.

use std::collections::HashSet;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::timeout;

use crate::ledger::{RequestEnd, RequestTicket};
use crate::stage::SoakFacts;
use crate::wire::{self, SoakResponseHead, SoakWire};

/// The revision without sessions.
const MODERN: &str = "2026-07-28";
/// Revisions of clients with sessions; those of HTTP+SSE speak the first.
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// Most attempts of a client to connect on the socket.
const HELLOS: usize = 5;
/// Longest time until a relay ends after its input has.
const RELAY_END: Duration = Duration::from_secs(10);

/// The kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoakEra {
    Legacy,
    Modern,
}

/// The transport of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoakTransport {
    Http,
    Socket,
    Relay,
    Sse,
}

/// The next thing that happens to a request.
#[derive(Debug)]
pub(crate) enum SoakEvent {
    Message(Value),
    /// The end of the answer.
    Over,
    /// A status of HTTP without a message, and the beginning of its body.
    Status(u16, String),
}

/// The error of a connection that can no longer be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLost;

enum SoakConnection {
    Http(SoakHttp),
    Lines(SoakLines),
    Sse(Sse),
}

#[derive(Default)]
struct SoakHttp {
    conn: Option<SoakWire>,
    /// Head of the answer that is being read.
    head: Option<SoakResponseHead>,
    /// A second connection for messages without an answer, while a request is under way.
    side: Option<SoakWire>,
    session: Option<String>,
}

struct SoakLines {
    read: BufReader<Box<dyn AsyncRead + Unpin + Send + Sync>>,
    write: Box<dyn AsyncWrite + Unpin + Send + Sync>,
    relay: Option<Child>,
}

struct Sse {
    stream: SoakWire,
    side: Option<SoakWire>,
    endpoint: String,
}

/// A client of the daemon, of any era and transport.
pub(crate) struct SoakClient {
    pub(crate) facts: Arc<SoakFacts>,
    pub(crate) era: SoakEra,
    /// Whether the client can answer questions.
    pub(crate) asks: bool,
    revision: &'static str,
    face: SoakConnection,
    next_id: u64,
    /// Requests that were taken back: an answer may come all the same.
    given_up: HashSet<u64>,
    /// The daemon's number of starts when the client connected.
    life: u64,
}

impl SoakClient {
    /// Connects, and makes the handshake if the era has one.
    pub(crate) async fn connect(
        facts: &Arc<SoakFacts>,
        era: SoakEra,
        way: SoakTransport,
        asks: bool,
        pick: usize,
    ) -> Result<Self, ConnectionLost> {
        let life = facts.life.load(Ordering::SeqCst);
        let mut tries = 0;
        let face = loop {
            tries += 1;
            let why = match timeout(facts.patience, open(facts, way)).await {
                Ok(Ok(face)) => break face,
                _ if facts.is_restarting(life) => return Err(ConnectionLost),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "timed out".to_owned(),
            };
            // The socket holds few connections before their hello, and the oldest gives way to the
            // next.
            if way == SoakTransport::Socket && tries < HELLOS {
                facts.ledger.note("connections to the socket that gave way before their hello was read");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            facts.ledger.sent("connect").end_with(RequestEnd::Failed, || format!("{way:?}: {why}"));
            return Err(ConnectionLost);
        };
        let revision = if way == SoakTransport::Sse { LEGACY[0] } else { LEGACY[1 + pick % 3] };
        let facts = Arc::clone(facts);
        let mut client = Self { facts, era, asks, revision, face, next_id: 0, given_up: HashSet::new(), life };
        if era == SoakEra::Legacy {
            client.initialize().await?;
        }
        Ok(client)
    }

    async fn initialize(&mut self) -> Result<(), ConnectionLost> {
        let params = json!({"protocolVersion": self.revision, "capabilities": self.capabilities(),
            "clientInfo": {"name": "soak", "version": "1"}});
        let greeted = self.request("initialize", "initialize", params, usual).await?;
        if greeted["result"].is_null() {
            return Err(ConnectionLost);
        }
        self.tell(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        Ok(())
    }

    fn capabilities(&self) -> Value {
        if self.asks { json!({"elicitation": {}}) } else { json!({}) }
    }

    pub(crate) fn is_http(&self) -> bool {
        matches!(self.face, SoakConnection::Http(_))
    }

    /// Returns the bytes of a request over HTTP, which the caller sends.
    pub(crate) fn bytes(&mut self, method: &str, params: Value) -> Vec<u8> {
        let (_, params, body) = self.dress(method, params);
        let session = if let SoakConnection::Http(http) = &self.face { http.session.clone() } else { None };
        wire::request("POST", "/mcp", &self.fields(method, &params, session.as_deref()), &body)
    }

    /// Returns the request for the session's own stream.
    pub(crate) fn stream_bytes(&self) -> Vec<u8> {
        let session = if let SoakConnection::Http(http) = &self.face { http.session.clone() } else { None };
        wire::request("GET", "/mcp", &self.fields("", &Value::Null, session.as_deref()), "")
    }

    fn dress(&mut self, method: &str, mut params: Value) -> (u64, Value, String) {
        self.next_id += 1;
        if self.era == SoakEra::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "soak", "version": "1"});
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities();
        }
        let body = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}).to_string();
        (self.next_id, params, body)
    }

    fn fields(&self, method: &str, params: &Value, session: Option<&str>) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("Host", self.facts.address.to_string()),
            ("Authorization", format!("Bearer {}", self.facts.token())),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ];
        if self.era == SoakEra::Modern {
            fields.push(("MCP-Protocol-Version", MODERN.to_owned()));
            fields.push(("Mcp-Method", method.to_owned()));
            let named = match method {
                "tools/call" | "prompts/get" => params["name"].as_str(),
                "resources/read" => params["uri"].as_str(),
                _ => None,
            };
            fields.extend(named.map(|name| ("Mcp-Name", name.to_owned())));
        } else if let Some(session) = session {
            fields.push(("Mcp-Session-Id", session.to_owned()));
            fields.push(("MCP-Protocol-Version", self.revision.to_owned()));
        }
        fields
    }

    /// Sends a request and returns its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> io::Result<u64> {
        let (id, params, body) = self.dress(method, params);
        let session = if let SoakConnection::Http(http) = &self.face { http.session.clone() } else { None };
        let fields = self.fields(method, &params, session.as_deref());
        let address = self.facts.address;
        match &mut self.face {
            SoakConnection::Http(http) => {
                let mut conn = match http.conn.take() {
                    Some(conn) => conn,
                    None => SoakWire::open(address).await?,
                };
                conn.send(&wire::request("POST", "/mcp", &fields, &body)).await?;
                (http.conn, http.head) = (Some(conn), None);
            }
            SoakConnection::Lines(lines) => lines.write.write_all(format!("{body}\n").as_bytes()).await?,
            SoakConnection::Sse(sse) => {
                let status = sse.post(address, &fields, &body).await?;
                if status != 202 {
                    return Err(io::Error::other(format!("the POST was answered with {status}")));
                }
            }
        }
        Ok(id)
    }

    /// Waits for the next event of the request under way.
    pub(crate) async fn next(&mut self) -> io::Result<SoakEvent> {
        let text = match &mut self.face {
            SoakConnection::Http(http) => return http.next().await,
            SoakConnection::Lines(lines) => {
                let mut line = String::new();
                if lines.read.read_line(&mut line).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                line
            }
            SoakConnection::Sse(sse) => sse.stream.event().await?.ok_or(io::ErrorKind::UnexpectedEof)?,
        };
        Ok(SoakEvent::Message(wire::message(text.as_bytes())?))
    }

    /// Sends a message that has no answer but 202.
    pub(crate) async fn tell(&mut self, message: &Value) {
        let body = message.to_string();
        let session = if let SoakConnection::Http(http) = &self.face { http.session.clone() } else { None };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let fields = self.fields(&method, &Value::Null, session.as_deref());
        let address = self.facts.address;
        let ticket = self.facts.ledger.sent("notification or response");
        let sent = timeout(self.facts.patience, async {
            match &mut self.face {
                SoakConnection::Http(http) => post(&mut http.side, address, "/mcp", &fields, &body).await,
                SoakConnection::Lines(lines) => {
                    lines.write.write_all(format!("{body}\n").as_bytes()).await.map(|()| 202)
                }
                SoakConnection::Sse(sse) => sse.post(address, &fields, &body).await,
            }
        });
        let sent = sent.await;
        let ConnectionLost = match sent {
            Ok(Ok(202)) => return ticket.end(RequestEnd::Answered),
            Ok(Ok(status)) => self.refused(ticket, status, ""),
            Ok(Err(error)) => self.broken(ticket, &error.to_string()),
            Err(_) => self.broken(ticket, "not taken in time"),
        };
    }

    /// Sends a request and reads its whole answer. `judge` turns the answer into the request's end.
    pub(crate) async fn request(
        &mut self,
        kind: &'static str,
        method: &str,
        params: Value,
        judge: impl FnOnce(&Value) -> RequestEnd,
    ) -> Result<Value, ConnectionLost> {
        let ticket = self.facts.ledger.sent(kind);
        match self.ask(method, params).await {
            Ok(id) => self.answer(kind, ticket, id, judge).await,
            Err(error) => Err(self.broken(ticket, &error.to_string())),
        }
    }

    /// Waits for the answer to a request that was sent.
    pub(crate) async fn answer(
        &mut self,
        kind: &'static str,
        ticket: RequestTicket,
        id: u64,
        judge: impl FnOnce(&Value) -> RequestEnd,
    ) -> Result<Value, ConnectionLost> {
        loop {
            let message = match timeout(self.facts.patience, self.next()).await {
                Ok(Ok(SoakEvent::Message(message))) => message,
                Ok(Ok(SoakEvent::Status(status, body))) => return Err(self.refused(ticket, status, &body)),
                Ok(Ok(SoakEvent::Over)) => return Err(self.broken(ticket, "the stream ended without an answer")),
                Ok(Err(error)) => return Err(self.broken(ticket, &error.to_string())),
                Err(_) => return Err(self.broken(ticket, "no answer in time")),
            };
            if self.hear(kind, &message, id).await {
                let end = match judge(&message) {
                    RequestEnd::Failed if self.facts.is_restarting(self.life) => RequestEnd::Cut,
                    end => end,
                };
                ticket.end_with(end, || message.to_string());
                self.rest(kind, id).await?;
                return Ok(message);
            }
        }
    }

    /// Returns whether this message is the answer to that request. If it is a question of a server,
    /// answers it.
    async fn hear(&mut self, kind: &'static str, message: &Value, id: u64) -> bool {
        let has_id = message.get("id").is_some_and(|id| !id.is_null());
        if message.get("method").is_some() {
            if has_id {
                let result = json!({"action": "accept", "content": {"who": "me", "name": "Ada"}});
                self.tell(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).await;
            }
            return false;
        }
        if message["id"] == id {
            return true;
        }
        let late = message["id"].as_u64().is_some_and(|id| self.given_up.contains(&id));
        if !late {
            self.facts.ledger.twice(kind, &message.to_string());
        }
        false
    }

    /// Reads an answer over HTTP to its end: nothing may follow the response.
    async fn rest(&mut self, kind: &'static str, id: u64) -> Result<(), ConnectionLost> {
        let SoakConnection::Http(http) = &mut self.face else { return Ok(()) };
        loop {
            match timeout(self.facts.patience, http.next()).await {
                Ok(Ok(SoakEvent::Message(message))) => {
                    if message.get("method").is_none() && message["id"] == id {
                        self.facts.ledger.twice(kind, &message.to_string());
                    }
                }
                Ok(Ok(SoakEvent::Over | SoakEvent::Status(..))) => return Ok(()),
                _ => {
                    http.conn = None;
                    return Ok(());
                }
            }
        }
    }

    fn refused(&self, ticket: RequestTicket, status: u16, body: &str) -> ConnectionLost {
        // A session ends with its daemon, and the table of a restarted one is empty.
        let expected = matches!(status, 429 | 503) || self.facts.is_restarting(self.life);
        let end = if expected { RequestEnd::Refused } else { RequestEnd::Failed };
        ticket.end_with(end, || format!("{:?}, {}: status {status} {body:?}", self.era, self.face.name()));
        ConnectionLost
    }

    /// Ends a request whose connection broke.
    pub(crate) fn broken(&self, ticket: RequestTicket, why: &str) -> ConnectionLost {
        let end = if self.facts.is_restarting(self.life) { RequestEnd::Cut } else { RequestEnd::Lost };
        ticket.end_with(end, || format!("{:?}, {}: {why}", self.era, self.face.name()));
        ConnectionLost
    }

    /// Takes a request back in the way of its era and transport.
    pub(crate) async fn cancel(&mut self, id: u64, ticket: RequestTicket) {
        if let (SoakConnection::Http(http), SoakEra::Modern) = (&mut self.face, self.era) {
            // Closing the connection is the cancellation.
            (http.conn, http.head) = (None, None);
            return ticket.end(RequestEnd::Cancelled);
        }
        self.given_up.insert(id);
        let mut params = json!({"requestId": id});
        if self.era == SoakEra::Modern {
            params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": MODERN});
        }
        self.tell(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
        let SoakConnection::Http(http) = &mut self.face else { return ticket.end(RequestEnd::Cancelled) };
        // The stream of the call must end all the same.
        loop {
            match timeout(self.facts.patience, http.next()).await {
                Ok(Ok(SoakEvent::Message(_))) => {}
                Ok(Ok(SoakEvent::Over | SoakEvent::Status(..))) => return ticket.end(RequestEnd::Cancelled),
                Ok(Err(_)) => {
                    http.conn = None;
                    return ticket.end(RequestEnd::Cancelled);
                }
                Err(_) => {
                    http.conn = None;
                    let ConnectionLost = self.broken(ticket, "the stream of a cancelled call stays open");
                    return;
                }
            }
        }
    }

    /// Ends the session in the usual way, or forgets it.
    pub(crate) async fn leave(mut self, politely: bool) {
        if let SoakConnection::Http(http) = &self.face
            && let (Some(session), true) = (http.session.clone(), politely)
        {
            let fields = self.fields("", &Value::Null, Some(&session));
            let ticket = self.facts.ledger.sent("end of a session");
            let address = self.facts.address;
            let ended = async {
                let mut conn = SoakWire::open(address).await?;
                conn.send(&wire::request("DELETE", "/mcp", &fields, "")).await?;
                conn.head().await
            };
            let ConnectionLost = match timeout(self.facts.patience, ended).await {
                Ok(Ok(head)) if head.status < 300 => return ticket.end(RequestEnd::Answered),
                Ok(Ok(head)) => self.refused(ticket, head.status, ""),
                Ok(Err(error)) => self.broken(ticket, &error.to_string()),
                Err(_) => self.broken(ticket, "no answer in time"),
            };
            return;
        }
        if let SoakConnection::Lines(SoakLines { relay: Some(relay), write, .. }) = &mut self.face {
            // The client of a relay may also be killed together with it.
            let ended = if politely {
                *write = Box::new(tokio::io::sink());
                timeout(RELAY_END, relay.wait()).await.is_ok()
            } else {
                timeout(RELAY_END, relay.kill()).await.is_ok()
            };
            if !ended {
                self.facts.ledger.note("relays that did not end with their input");
            }
        }
    }
}

/// Returns the end of a request that must succeed.
pub(crate) fn usual(answer: &Value) -> RequestEnd {
    let failed = answer.get("error").is_some() || answer["result"]["isError"] == true;
    if failed { RequestEnd::Failed } else { RequestEnd::Answered }
}

impl SoakConnection {
    fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "HTTP",
            Self::Lines(SoakLines { relay: Some(_), .. }) => "relay",
            Self::Lines(_) => "socket",
            Self::Sse(_) => "HTTP+SSE",
        }
    }
}

impl SoakHttp {
    async fn next(&mut self) -> io::Result<SoakEvent> {
        let Some(conn) = &mut self.conn else { return Ok(SoakEvent::Over) };
        if let Some(head) = &self.head {
            let event = if head.is_stream { conn.event().await? } else { None };
            let Some(event) = event else {
                if head.closes {
                    self.conn = None;
                }
                return Ok(SoakEvent::Over);
            };
            return Ok(SoakEvent::Message(wire::message(event.as_bytes())?));
        }
        let head = conn.head().await?;
        if self.session.is_none() {
            self.session.clone_from(&head.session);
        }
        let (status, is_stream) = (head.status, head.is_stream);
        self.head = Some(head);
        if is_stream {
            return Box::pin(self.next()).await;
        }
        let body = conn.body().await?;
        Ok(match wire::message(&body) {
            // A refusal before the request was read answers no id.
            Ok(message) if !message["id"].is_null() && !matches!(status, 429 | 503) => SoakEvent::Message(message),
            _ => SoakEvent::Status(status, String::from_utf8_lossy(&body).chars().take(200).collect()),
        })
    }
}

impl Sse {
    async fn post(&mut self, address: std::net::SocketAddr, fields: &[(&str, String)], body: &str) -> io::Result<u16> {
        let path = self.endpoint.clone();
        post(&mut self.side, address, &path, fields, body).await
    }
}

/// Sends a POST whose answer has no message in it.
async fn post(
    side: &mut Option<SoakWire>,
    address: std::net::SocketAddr,
    path: &str,
    fields: &[(&str, String)],
    body: &str,
) -> io::Result<u16> {
    let mut conn = match side.take() {
        Some(conn) => conn,
        None => SoakWire::open(address).await?,
    };
    conn.send(&wire::request("POST", path, fields, body)).await?;
    let head = conn.head().await?;
    conn.body().await?;
    if !head.closes {
        *side = Some(conn);
    }
    Ok(head.status)
}

async fn open(facts: &Arc<SoakFacts>, way: SoakTransport) -> anyhow::Result<SoakConnection> {
    Ok(match way {
        SoakTransport::Http => SoakConnection::Http(SoakHttp::default()),
        SoakTransport::Socket => {
            let (read, mut write) = UnixStream::connect(&facts.socket).await.context("the socket")?.into_split();
            write.write_all(b"{\"headend\":1,\"want\":\"mcp\"}\n").await?;
            let mut read: BufReader<Box<dyn AsyncRead + Unpin + Send + Sync>> = BufReader::new(Box::new(read));
            let mut hello = String::new();
            read.read_line(&mut hello).await?;
            anyhow::ensure!(hello.contains("\"want\":\"mcp\""), "the hello was answered with {hello:?}");
            SoakConnection::Lines(SoakLines { read, write: Box::new(write), relay: None })
        }
        SoakTransport::Relay => {
            // The relay reads the configuration, which must not be a refused one just then.
            let _valid = facts.file.read().await;
            let mut command = facts.command(&["stdio"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
            let mut relay = command.spawn().context("the relay")?;
            let (stdin, stdout) = (relay.stdin.take().context("stdin")?, relay.stdout.take().context("stdout")?);
            // Until it has read the configuration.
            tokio::time::sleep(Duration::from_millis(300)).await;
            SoakConnection::Lines(SoakLines {
                read: BufReader::new(Box::new(stdout)),
                write: Box::new(stdin),
                relay: Some(relay),
            })
        }
        SoakTransport::Sse => {
            let mut stream = SoakWire::open(facts.address).await?;
            let fields = [
                ("Host", facts.address.to_string()),
                ("Authorization", format!("Bearer {}", facts.token())),
                ("Accept", "text/event-stream".to_owned()),
            ];
            stream.send(&wire::request("GET", "/sse", &fields, "")).await?;
            let head = stream.head().await?;
            anyhow::ensure!(head.status == 200 && head.is_stream, "GET /sse was answered with {}", head.status);
            let endpoint = stream.event().await?.context("the stream ended before its endpoint")?;
            SoakConnection::Sse(Sse { stream, side: None, endpoint })
        }
    })
}
