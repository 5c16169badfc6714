//! The protocol code that all demo servers share: it reads and writes lines, in both eras.
//!
//! Each running tool call has a thread, so a slow call delays no other.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};

use crate::mcp::meta::{PROTOCOL_VERSION, SERVER_INFO, SUBSCRIPTION_ID};
use crate::mcp::version::{Era, Revision};
use crate::wire::code;

/// Longest line, in bytes.
const MAX_LINE: u64 = 4 << 20;
/// Most tool calls at once.
const MAX_RUNNING: usize = 64;
/// How often a waiting tool checks for cancellation.
const GLANCE: Duration = Duration::from_millis(20);

/// An error that is sent as a JSON-RPC error response.
#[derive(Debug)]
pub(super) struct DemoRefusal {
    pub(super) code: i64,
    pub(super) message: String,
}

impl DemoRefusal {
    /// Creates the error for invalid parameters.
    pub(super) fn params(message: impl Into<String>) -> Self {
        Self { code: code::INVALID_PARAMS, message: message.into() }
    }
}

/// A demo server. Lists are JSON arrays of items as the protocol defines them.
pub(super) trait Demo: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn tools(&self) -> Value;

    /// Runs a tool and returns the text of its result; `Err` becomes a result with `isError`.
    /// `None` if there is no such tool.
    fn call(&self, tool: &str, arguments: &Map<String, Value>, call: &DemoCall) -> Option<Result<String, String>>;

    fn prompts(&self) -> Option<Value> {
        None
    }

    /// Returns the result of `prompts/get`. By default there are no prompts.
    ///
    /// # Errors
    /// The prompt is unknown, as any is by default, or its arguments do not fit.
    fn prompt(&self, name: &str, _arguments: &Map<String, Value>) -> Result<Value, DemoRefusal> {
        Err(DemoRefusal::params(format!("Unknown prompt: {name}")))
    }

    /// Returns completions for an argument of a prompt or template; by default none.
    fn complete(&self, _so_far: &str) -> Vec<String> {
        Vec::new()
    }

    fn resources(&self) -> Option<Value> {
        None
    }

    fn templates(&self) -> Value {
        json!([])
    }

    /// Returns the text of a resource; `None` if there is no such resource, as by default.
    fn read(&self, _uri: &str) -> Option<String> {
        None
    }
}

/// A running tool's access to its connection.
pub(super) struct DemoCall {
    out: DemoOutput,
    token: Option<Value>,
    cancelled: Arc<AtomicBool>,
    /// True once stdin has ended, so that no client waits any more.
    ending: Arc<AtomicBool>,
}

impl DemoCall {
    /// Sends a progress notification, if the client asked for progress.
    pub(super) fn progress(&self, done: u64, total: u64, message: &str) {
        if let Some(token) = &self.token {
            let params = json!({"progressToken": token, "progress": done, "total": total, "message": message});
            self.out.notify("notifications/progress", &params);
        }
    }

    /// Waits for this time. Returns `false` early if the client no longer waits for the answer.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut left = time;
        loop {
            if left.is_zero() {
                return true;
            }
            if self.cancelled.load(Ordering::Relaxed) || self.ending.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(left.min(GLANCE));
            left = left.saturating_sub(GLANCE);
        }
    }

    /// Announces a change of the resource list to clients that want to know.
    pub(super) fn resources_changed(&self) {
        self.out.resources_changed();
    }
}

/// Stdout, and the subscriptions of the client. Clones share it.
#[derive(Clone)]
struct DemoOutput(Arc<Mutex<DemoOutputState>>);

/// The output of a connection, and who is told of changes.
struct DemoOutputState {
    to: Box<dyn Write + Send>,
    /// True after the handshake of a legacy client, which gets changes without a subscription.
    initialized: bool,
    /// Ids of open `subscriptions/listen` requests for changes of the resource list.
    listening: Vec<Value>,
}

impl DemoOutput {
    fn lock(&self) -> MutexGuard<'_, DemoOutputState> {
        self.0.lock()
    }

    fn send(&self, message: &Value) {
        let mut sink = self.lock();
        // A client that reads no more also closes stdin, which ends the server.
        drop(writeln!(sink.to, "{message}").and_then(|()| sink.to.flush()));
    }

    fn notify(&self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn answer(&self, id: &Value, result: Result<Value, DemoRefusal>) {
        self.send(&match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(e) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": e.code, "message": e.message}}),
        });
    }

    fn resources_changed(&self) {
        let (initialized, listening) = {
            let sink = self.lock();
            (sink.initialized, sink.listening.clone())
        };
        let method = "notifications/resources/list_changed";
        if initialized {
            self.notify(method, &json!({}));
        }
        for id in listening {
            self.notify(method, &json!({"_meta": {SUBSCRIPTION_ID: id}}));
        }
    }
}

/// A connection and its running calls.
struct DemoServer<D> {
    demo: Arc<D>,
    out: DemoOutput,
    running: Arc<Mutex<HashMap<String, Arc<AtomicBool>>>>,
    ending: Arc<AtomicBool>,
}

/// Serves until `input` ends; then waiting calls end early.
///
/// # Errors
/// The error of reading `input`.
pub(super) fn serve<D: Demo>(demo: D, input: &mut impl BufRead, output: impl Write + Send + 'static) -> io::Result<()> {
    let sink = DemoOutputState { to: Box::new(output), initialized: false, listening: Vec::new() };
    let out = DemoOutput(Arc::new(Mutex::new(sink)));
    let server = DemoServer { demo: Arc::new(demo), out, running: Arc::default(), ending: Arc::default() };
    let mut threads: Vec<thread::JoinHandle<()>> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        match serde_json::from_slice::<Value>(&line) {
            Ok(message) => threads.extend(server.message(&message)),
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(_) => {
                let refused = DemoRefusal { code: code::PARSE_ERROR, message: "Parse error".to_owned() };
                server.out.answer(&Value::Null, Err(refused));
            }
        }
    }
    server.ending.store(true, Ordering::Relaxed);
    // A panicked thread has printed its message already.
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

impl<D: Demo> DemoServer<D> {
    fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<AtomicBool>>> {
        self.running.lock()
    }

    /// Handles one message. Returns the thread of a tool call.
    fn message(&self, message: &Value) -> Option<thread::JoinHandle<()>> {
        let method = message.get("method").and_then(Value::as_str)?;
        let empty = Map::new();
        let params = message.get("params").and_then(Value::as_object).unwrap_or(&empty);
        let Some(id) = message.get("id").filter(|id| id.is_string() || id.is_number()) else {
            self.notification(method, params);
            return None;
        };
        let modern = params.get("_meta").is_some_and(|meta| meta.get(PROTOCOL_VERSION).is_some());
        let era = if modern { Era::Modern } else { Era::Legacy };
        if method == "tools/call" {
            return self.call(id, params, era);
        }
        if method == "subscriptions/listen" && modern {
            self.listen(id, params);
            return None;
        }
        let result = self.request(method, params, era).map(|result| dressed(result, method, era));
        self.out.answer(id, result);
        if method == "initialize" {
            self.out.lock().initialized = true;
        }
        None
    }

    /// Handles a cancellation; other notifications are ignored.
    fn notification(&self, method: &str, params: &Map<String, Value>) {
        let Some(id) = params.get("requestId").filter(|_| method == "notifications/cancelled") else { return };
        self.out.lock().listening.retain(|listening| listening != id);
        if let Some(flag) = self.running().get(&id.to_string()) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the result of any request other than a tool call or a subscription.
    fn request(&self, method: &str, params: &Map<String, Value>, era: Era) -> Result<Value, DemoRefusal> {
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
        let unknown = || DemoRefusal { code: code::METHOD_NOT_FOUND, message: format!("Method not found: {method}") };
        let list = |key: &str, items: Option<Value>| items.map(|items| json!({ key: items })).ok_or_else(unknown);
        match method {
            "initialize" if era == Era::Legacy => Ok(self.initialize(params)),
            "server/discover" if era == Era::Modern => Ok(self.discover()),
            "ping" if era == Era::Legacy => Ok(json!({})),
            "tools/list" => list("tools", Some(self.demo.tools())),
            "prompts/list" => list("prompts", self.demo.prompts()),
            "resources/list" => list("resources", self.demo.resources()),
            "resources/templates/list" => {
                list("resourceTemplates", self.demo.resources().map(|_| self.demo.templates()))
            }
            "prompts/get" => self.demo.prompt(name, &object(params.get("arguments"))),
            "resources/read" => {
                let uri = params.get("uri").and_then(Value::as_str).unwrap_or_default();
                let code = if era == Era::Modern { code::INVALID_PARAMS } else { code::RESOURCE_NOT_FOUND };
                let text = self
                    .demo
                    .read(uri)
                    .ok_or_else(|| DemoRefusal { code, message: "Resource not found".to_owned() })?;
                Ok(json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}))
            }
            "completion/complete" => {
                let so_far = params.get("argument").and_then(|a| a.get("value")).and_then(Value::as_str);
                let values = self.demo.complete(so_far.unwrap_or_default());
                Ok(json!({"completion": {"values": values, "hasMore": false}}))
            }
            _ => Err(unknown()),
        }
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = Map::from_iter([("tools".to_owned(), json!({}))]);
        if self.demo.prompts().is_some() {
            capabilities.insert("prompts".to_owned(), json!({}));
            capabilities.insert("completions".to_owned(), json!({}));
        }
        if self.demo.resources().is_some() {
            capabilities.insert("resources".to_owned(), json!({"listChanged": true}));
        }
        Value::Object(capabilities)
    }

    fn info(&self) -> Value {
        json!({"name": format!("headend-demo-{}", self.demo.name()), "version": env!("CARGO_PKG_VERSION")})
    }

    fn initialize(&self, params: &Map<String, Value>) -> Value {
        let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let revision = Revision::negotiate(asked).as_str();
        json!({"protocolVersion": revision, "capabilities": self.capabilities(), "serverInfo": self.info()})
    }

    fn discover(&self) -> Value {
        json!({
            "supportedVersions": [Revision::preferred(Era::Modern).as_str()],
            "capabilities": self.capabilities(),
            "_meta": {SERVER_INFO: self.info()},
        })
    }

    /// Acknowledges a subscription and remembers it.
    fn listen(&self, id: &Value, params: &Map<String, Value>) {
        let wanted = params.get("notifications").and_then(|wanted| wanted.get("resourcesListChanged"));
        let resources = self.demo.resources().is_some() && wanted == Some(&Value::Bool(true));
        let granted = if resources { json!({"resourcesListChanged": true}) } else { json!({}) };
        let acknowledged = json!({"notifications": granted, "_meta": {SUBSCRIPTION_ID: id}});
        self.out.notify("notifications/subscriptions/acknowledged", &acknowledged);
        let mut sink = self.out.lock();
        if resources && sink.listening.len() < MAX_RUNNING {
            sink.listening.push(id.clone());
        }
    }

    /// Starts a tool call in a thread of its own, or refuses it if too many run.
    fn call(&self, id: &Value, params: &Map<String, Value>, era: Era) -> Option<thread::JoinHandle<()>> {
        let tool = params.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = id.to_string();
        let cancelled = Arc::new(AtomicBool::new(false));
        {
            let mut running = self.running();
            if running.len() >= MAX_RUNNING {
                drop(running);
                let busy = tool_result(Err("This server is busy; try again in a second.".to_owned()));
                self.out.answer(id, Ok(dressed(busy, "tools/call", era)));
                return None;
            }
            running.insert(key.clone(), Arc::clone(&cancelled));
        }
        let token = params.get("_meta").and_then(|meta| meta.get("progressToken")).cloned();
        let call = DemoCall { out: self.out.clone(), token, cancelled, ending: Arc::clone(&self.ending) };
        let (demo, running, id) = (Arc::clone(&self.demo), Arc::clone(&self.running), id.clone());
        let arguments = object(params.get("arguments"));
        Some(thread::spawn(move || {
            let result = demo.call(&tool, &arguments, &call);
            running.lock().remove(&key);
            if call.cancelled.load(Ordering::Relaxed) {
                return;
            }
            let answer = match result {
                Some(result) => Ok(dressed(tool_result(result), "tools/call", era)),
                None => Err(DemoRefusal::params(format!("Unknown tool: {tool}"))),
            };
            call.out.answer(&id, answer);
        }))
    }
}

fn tool_result(result: Result<String, String>) -> Value {
    let (text, is_error) = match result {
        Ok(text) => (text, false),
        Err(text) => (text, true),
    };
    json!({"content": [{"type": "text", "text": text}], "isError": is_error})
}

/// Adds the members that the modern era requires in results.
fn dressed(mut result: Value, method: &str, era: Era) -> Value {
    if let (Era::Modern, Some(result)) = (era, result.as_object_mut()) {
        result.insert("resultType".to_owned(), json!("complete"));
        if method.ends_with("/list") || matches!(method, "resources/read" | "server/discover") {
            result.insert("ttlMs".to_owned(), json!(0));
            result.insert("cacheScope".to_owned(), json!("private"));
        }
    }
    result
}

/// Returns the members of an object; none if the value is no object.
fn object(value: Option<&Value>) -> Map<String, Value> {
    value.and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Returns the `_meta` of a modern request.
#[cfg(test)]
pub(super) fn envelope() -> Value {
    json!({PROTOCOL_VERSION: Revision::preferred(Era::Modern).as_str(), crate::mcp::meta::CLIENT_CAPABILITIES: {}})
}
