//! The server behind both transports: state, and the answer to each request.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::asking::Asking;
use super::behaviour::{Behaviour, after_handshake};
use super::jobs::{self, FakeTasks};
use super::script::FakeScript;
use super::{Args, FakeEras, asking, tools};

pub(crate) const MODERN: &str = "2026-07-28";
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A result before it is written.
#[derive(Debug)]
pub(crate) enum FakeReply {
    Value(Value),
    /// Exactly this text.
    Verbatim(String),
    /// No answer at all.
    Silence,
}

impl FakeReply {
    pub(crate) fn of(value: Value) -> Self {
        Self::Value(value)
    }
}

/// An error answer.
#[derive(Debug)]
pub(crate) struct FakeError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Value,
}

impl FakeError {
    pub(crate) fn new(code: i64, message: &str) -> Self {
        Self { code, message: message.to_owned(), data: Value::Null }
    }

    pub(crate) fn params(message: &str) -> Self {
        Self::new(-32602, message)
    }
}

/// One request, and the streams to its client.
#[derive(Debug)]
pub(crate) struct FakeRequest {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
    /// `Mcp-Param-*` headers as they came.
    pub(crate) param_headers: Map<String, Value>,
    /// Channel for notifications of this request.
    pub(crate) notices: mpsc::UnboundedSender<String>,
    /// The session of the request; empty on a pipe.
    pub(crate) session: String,
    /// The session's own stream, if there is one.
    pub(crate) aside: Option<mpsc::UnboundedSender<String>>,
}

impl FakeRequest {
    pub(crate) fn is_modern(&self) -> bool {
        self.params["_meta"].get(VERSION).is_some()
    }

    /// Returns a copy of the request for messages after its answer.
    pub(crate) fn later(&self) -> Self {
        Self {
            id: self.id.clone(),
            method: self.method.clone(),
            params: Value::Null,
            param_headers: Map::default(),
            notices: self.notices.clone(),
            session: self.session.clone(),
            aside: self.aside.clone(),
        }
    }

    /// Returns the request's key: its session and id, since ids are unique in one session only.
    fn key(&self) -> String {
        format!("{} {}", self.session, self.id)
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        drop(self.notices.send(notification(method, params)));
    }
}

pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// A subscription's wishes and its stream.
#[derive(Debug, Clone)]
struct FakeSubscription {
    id: Value,
    wanted: Value,
    notices: mpsc::UnboundedSender<String>,
}

/// The program that the server is: its number, and its end with a status. Where the program is a
/// task, the task goes on until it is ended.
#[derive(Clone)]
pub(crate) struct FakeExit {
    number: u32,
    exit: Arc<dyn Fn(i32) + Send + Sync>,
}

impl FakeExit {
    pub(crate) fn new(number: u32, exit: impl Fn(i32) + Send + Sync + 'static) -> Self {
        Self { number, exit: Arc::new(exit) }
    }
}

impl std::fmt::Debug for FakeExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exit")
    }
}

/// State of the server's process.
#[derive(Debug)]
pub(crate) struct FakeServer {
    pub(crate) args: Args,
    exit: FakeExit,
    pub(crate) script: FakeScript,
    pub(crate) calls: AtomicU64,
    log: Option<Mutex<File>>,
    grown: AtomicU64,
    /// True once `initialize` took place on this pipe.
    initialized: AtomicBool,
    forgot_modern: AtomicBool,
    listeners: Mutex<Vec<FakeSubscription>>,
    /// List changes for legacy clients; over HTTP for the sessions' streams.
    pub(crate) changes: broadcast::Sender<String>,
    /// The writer of stdout.
    stdout: Mutex<Option<mpsc::UnboundedSender<String>>>,
    running: Mutex<HashMap<String, oneshot::Sender<()>>>,
    pub(crate) jobs: FakeTasks,
    pub(crate) asking: Asking,
    /// The input that clients of the sessions can give.
    pub(crate) capabilities: Mutex<HashMap<String, Value>>,
}

impl FakeServer {
    pub(crate) fn new(args: Args, exit: FakeExit) -> Self {
        let log = args.log.as_ref().map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            Mutex::new(file.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        });
        let script = args.script.as_deref().map(FakeScript::read).unwrap_or_default();
        Self {
            args,
            exit,
            script,
            calls: AtomicU64::new(0),
            log,
            grown: AtomicU64::new(0),
            initialized: AtomicBool::new(false),
            forgot_modern: AtomicBool::new(false),
            listeners: Mutex::default(),
            changes: broadcast::channel(64).0,
            stdout: Mutex::default(),
            running: Mutex::default(),
            jobs: FakeTasks::default(),
            asking: Asking::default(),
            capabilities: Mutex::default(),
        }
    }

    /// Returns the number of the program.
    pub(crate) const fn number(&self) -> u32 {
        self.exit.number
    }

    /// Ends the program.
    pub(crate) async fn exit<T>(&self, code: i32) -> T {
        (self.exit.exit)(code);
        std::future::pending().await
    }

    pub(crate) fn does(&self, behaviour: Behaviour) -> bool {
        self.args.behaviours.contains(&behaviour)
    }

    fn offers(&self) -> Value {
        let changes = json!({"listChanged": !self.does(Behaviour::NoChanges)});
        let mut offers =
            json!({"tools": changes, "prompts": changes, "resources": changes, "completions": {}, "logging": {}});
        if let Some(extensions) = self.patches().get("extensions") {
            offers["extensions"] = extensions.clone();
        }
        if self.patches()["subscribes"] == true {
            offers["resources"]["subscribe"] = json!(true);
        }
        offers
    }

    /// Returns the instructions in the patch file, of any type; an empty text without them.
    fn instructions(&self) -> Value {
        self.patches().get("instructions").cloned().unwrap_or_else(|| json!(""))
    }

    /// Returns whether the server answers with 503 for now.
    pub(crate) fn is_sick(&self) -> bool {
        self.args.sick.as_ref().is_some_and(|file| file.exists())
    }

    /// Logs a line.
    pub(crate) fn note(&self, line: &str) {
        if let Some(log) = &self.log {
            // One write, so that lines of several processes never mix.
            log.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }

    pub(crate) fn set_stdout(&self, sender: mpsc::UnboundedSender<String>) {
        *self.stdout.lock().unwrap() = Some(sender);
    }

    /// Writes a line to stdout, where that is the transport.
    pub(crate) fn out(&self, line: String) {
        if let Some(stdout) = &*self.stdout.lock().unwrap() {
            drop(stdout.send(line));
        }
    }

    /// Adds a tool and announces the change.
    pub(crate) fn grow(&self) {
        self.grown.fetch_add(1, Ordering::SeqCst);
        let method = "notifications/tools/list_changed";
        drop(self.changes.send(notification(method, &json!({}))));
        if self.initialized.load(Ordering::SeqCst) {
            self.out(notification(method, &json!({})));
        }
        for listener in self.listeners.lock().unwrap().iter() {
            if listener.wanted["toolsListChanged"] == true {
                let params = json!({"_meta": {SUBSCRIPTION: listener.id}});
                drop(listener.notices.send(notification(method, &params)));
            }
        }
    }

    /// Stops a running request, if it still runs.
    pub(crate) fn cancel(&self, session: &str, id: &Value) {
        if let Some(stop) = self.running.lock().unwrap().remove(&format!("{session} {id}")) {
            // The request may just have ended.
            let _ended = stop.send(());
        }
    }

    /// Serves a request and returns the whole answer as text; `None` if there is no answer.
    pub(crate) async fn answer(self: &Arc<Self>, request: &FakeRequest) -> Option<String> {
        let answer = self.correct_answer(request).await?;
        Some(self.args.slip.map_or(answer.clone(), |slip| slip.of(&answer)))
    }

    async fn correct_answer(self: &Arc<Self>, request: &FakeRequest) -> Option<String> {
        if self.does(Behaviour::NeverAnswer) {
            return std::future::pending().await;
        }
        let (stop, stopped) = oneshot::channel();
        self.running.lock().unwrap().insert(request.key(), stop);
        let handled = tokio::select! {
            handled = self.handle(request) => handled,
            Ok(()) = stopped => return None,
        };
        self.running.lock().unwrap().remove(&request.key());
        let id =
            if self.does(Behaviour::WrongId) && !is_greeting(request) { json!("wrong") } else { request.id.clone() };
        Some(match handled {
            Ok(FakeReply::Silence) => return None,
            Ok(FakeReply::Verbatim(text)) => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{text}}}"),
            Ok(FakeReply::Value(mut result)) => {
                if request.is_modern() {
                    dress(&request.method, &mut result);
                }
                if self.does(Behaviour::ReplyBoth) && !is_greeting(request) {
                    json!({"jsonrpc": "2.0", "id": id, "result": result, "error": {"code": 1, "message": "both"}})
                        .to_string()
                } else {
                    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
                }
            }
            Err(failure) => {
                let mut error = json!({"code": failure.code, "message": failure.message});
                if !failure.data.is_null() {
                    error["data"] = failure.data;
                }
                json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
            }
        })
    }

    /// Returns whether modern requests are served.
    pub(crate) fn speaks_modern(&self) -> bool {
        self.args.era != FakeEras::Legacy && !self.forgot_modern.load(Ordering::SeqCst)
    }

    fn speaks_legacy(&self) -> bool {
        self.args.era != FakeEras::Modern
    }

    async fn handle(self: &Arc<Self>, request: &FakeRequest) -> Result<FakeReply, FakeError> {
        let (method, params) = (request.method.as_str(), &request.params);
        if method == "server/discover" {
            return self.discover().await;
        }
        if method == "initialize" {
            if let Value::Object(late) = self.instead(method) {
                tokio::time::sleep(std::time::Duration::from_millis(late["after"].as_u64().unwrap())).await;
            }
            self.learn(&request.session, params);
            return self.initialize(params);
        }
        let modern = request.is_modern();
        if modern && !self.speaks_modern() {
            return Err(FakeError::new(-32601, "Method not found"));
        }
        if !modern && !self.speaks_legacy() {
            return Err(FakeError::params("params._meta is missing"));
        }
        match self.instead(method) {
            Value::Null => {}
            Value::Number(code) => return Err(FakeError::new(code.as_i64().unwrap(), "not now")),
            Value::String(kind) if kind == "malformed" => return Ok(FakeReply::of(json!({}))),
            Value::String(kind) if kind == "silent" => return std::future::pending().await,
            Value::Object(late) if late.contains_key("after") => {
                tokio::time::sleep(std::time::Duration::from_millis(late["after"].as_u64().unwrap())).await;
            }
            Value::String(_) | Value::Object(_) | Value::Bool(_) | Value::Array(_) => {}
        }
        match method {
            "ping" if !modern => Ok(FakeReply::of(json!({}))),
            "logging/setLevel" if !modern => Ok(FakeReply::of(json!({}))),
            "tools/list" => self.page("tools", &self.tools(&request.session), params),
            "prompts/list" => {
                let argument = json!({"name": "a", "required": true});
                self.page(
                    "prompts",
                    &[json!({"name": "p", "description": "A prompt.", "arguments": [argument]})],
                    params,
                )
            }
            "resources/list" => {
                let resource = json!({"uri": "fx://doc/1", "name": "doc 1", "mimeType": "text/plain"});
                self.page("resources", &[resource], params)
            }
            "resources/templates/list" => {
                let template = json!({"uriTemplate": "fx://doc/{id}", "name": "doc"});
                self.page("resourceTemplates", &[template], params)
            }
            "tools/call" => {
                if self.does(Behaviour::ForgetModern) && modern {
                    self.forgot_modern.store(true, Ordering::SeqCst);
                    return Err(FakeError::new(-32601, "Method not found"));
                }
                tools::call(self, request).await
            }
            "tasks/get" | "tasks/result" | "tasks/cancel" if !modern => {
                self.jobs.question(self, request).await;
                self.jobs.about(method, params)
            }
            "prompts/get" => tools::prompt(params),
            "resources/read" => tools::read(&self.patches(), params, modern),
            "completion/complete" => {
                Ok(FakeReply::of(json!({"completion": {"values": ["alpha", "beta"], "hasMore": false}})))
            }
            "subscriptions/listen" if modern => {
                self.listen(request);
                std::future::pending().await
            }
            _ => Err(FakeError::new(-32601, "Method not found")),
        }
    }

    async fn discover(self: &Arc<Self>) -> Result<FakeReply, FakeError> {
        if self.does(Behaviour::ExitOnDiscover) {
            return self.exit(6).await;
        }
        if self.does(Behaviour::SilentOnDiscover) {
            return Ok(FakeReply::Silence);
        }
        if self.does(Behaviour::DiscoverEmptyResult) {
            return Ok(FakeReply::Verbatim("{}".to_owned()));
        }
        if !self.speaks_modern() {
            return Err(FakeError::new(-32601, "Method not found"));
        }
        after_handshake(self);
        let info = json!({"name": self.args.name, "version": "1.0.0"});
        Ok(FakeReply::of(json!({
            "supportedVersions": [MODERN],
            "capabilities": self.offers(),
            "instructions": self.instructions(),
            "_meta": {"io.modelcontextprotocol/serverInfo": info},
        })))
    }

    fn initialize(self: &Arc<Self>, params: &Value) -> Result<FakeReply, FakeError> {
        if !self.speaks_legacy() {
            let data = json!({"supported": [MODERN], "requested": params["protocolVersion"]});
            return Err(FakeError { code: -32022, message: "Unsupported protocol version".to_owned(), data });
        }
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        let known = REVISIONS.into_iter().find(|revision| *revision == asked).unwrap_or("2025-11-25");
        let revision = self.args.revision.as_deref().unwrap_or(known);
        self.initialized.store(true, Ordering::SeqCst);
        after_handshake(self);
        let mut capabilities = self.offers();
        if self.does(Behaviour::Tasks) {
            capabilities["tasks"] = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        Ok(FakeReply::of(json!({
            "protocolVersion": revision,
            "capabilities": capabilities,
            "instructions": self.instructions(),
            "serverInfo": {"name": self.args.name, "version": "1.0.0"},
        })))
    }

    /// Keeps the capabilities of a client: the questions that it can answer.
    pub(crate) fn learn(&self, session: &str, params: &Value) {
        self.capabilities.lock().unwrap().insert(session.to_owned(), params["capabilities"].clone());
    }

    fn listen(&self, request: &FakeRequest) {
        let wanted = request.params["notifications"].clone();
        let meta = json!({SUBSCRIPTION: request.id});
        request.notify("notifications/subscriptions/acknowledged", &json!({"notifications": wanted, "_meta": meta}));
        let listener = FakeSubscription { id: request.id.clone(), wanted, notices: request.notices.clone() };
        self.listeners.lock().unwrap().push(listener);
    }

    fn tools(&self, session: &str) -> Vec<Value> {
        let named = |name: String| json!({"name": name, "inputSchema": {"type": "object"}});
        let mut tools = tools::definitions();
        tools.extend(self.does(Behaviour::Tasks).then(jobs::definition));
        let known = self.capabilities.lock().unwrap().get(session).cloned().unwrap_or_default();
        let is_coy = self.does(Behaviour::Coy);
        if self.does(Behaviour::Asks) && (!is_coy || known["elicitation"].is_object()) {
            tools.extend(asking::definitions());
        }
        if is_coy {
            tools.extend(asking::of_capabilities(&known));
        }
        tools.extend((0..self.args.tools).map(|n| named(format!("extra_{n:04}"))));
        tools.extend((0..self.grown.load(Ordering::SeqCst)).map(|n| named(format!("grown_{n}"))));
        tools
    }

    /// Returns the entry of the file of lists for that method; null if there is none.
    pub(crate) fn instead(&self, method: &str) -> Value {
        let text = self.args.lists.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        text.map(|text| serde_json::from_str::<Value>(&text).unwrap()[method].clone()).unwrap_or_default()
    }

    /// Returns the patch file's current content.
    pub(crate) fn patches(&self) -> Value {
        let text = self.args.patch.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        text.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
    }

    /// Returns the definitions of the list `key` with the patch file's members, and with its `more`
    /// definitions.
    fn patched(&self, key: &str, items: &[Value]) -> Vec<Value> {
        let patches = self.patches();
        let mut items = items.to_vec();
        items.extend(patches["more"][key].as_array().cloned().unwrap_or_default());
        for item in &mut items {
            let key = ["uri", "uriTemplate", "name"].into_iter().find_map(|member| item[member].as_str());
            let patch = key.and_then(|key| patches.get(key)?.as_object()).cloned().unwrap_or_default();
            for (member, value) in patch {
                item[member] = value;
            }
        }
        items
    }

    fn page(&self, key: &str, items: &[Value], params: &Value) -> Result<FakeReply, FakeError> {
        let items = &self.patched(key, items);
        let size = self.args.page_size.unwrap_or(items.len().max(1));
        let start = match &params["cursor"] {
            Value::Null => 0,
            cursor => {
                let at = cursor.as_str().and_then(|cursor| cursor.strip_prefix("at-")?.parse().ok());
                at.ok_or_else(|| FakeError::params("unknown cursor"))?
            }
        };
        let end = items.len().min(start + size);
        let mut page = json!({key: items.get(start..end).unwrap_or_default()});
        let loops = ["tools", "prompts", "resources"]
            .iter()
            .any(|list| *list == key && self.instead(&format!("{list}/list")) == "loop");
        if loops || self.does(Behaviour::CursorLoop) {
            page["nextCursor"] = json!("at-0");
        } else if end < items.len() {
            page["nextCursor"] = json!(format!("at-{end}"));
        }
        Ok(FakeReply::of(page))
    }
}

fn is_greeting(request: &FakeRequest) -> bool {
    matches!(request.method.as_str(), "initialize" | "server/discover")
}

/// Adds the members that the modern era requires on results.
fn dress(method: &str, result: &mut Value) {
    result["resultType"] = json!("complete");
    if method.ends_with("/list") || matches!(method, "server/discover" | "resources/read") {
        result["ttlMs"] = json!(1000);
        result["cacheScope"] = json!("public");
    }
}
