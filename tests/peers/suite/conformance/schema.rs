//! The official JSON Schemas of the protocol, and the definition in them that a message must fit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::{Value, json};

/// Characters of a wrong message to show.
const SHOWN: usize = 2000;

/// Sender of a message: the schemas have other definitions for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Returns the definition that lists this side's messages.
    fn union(self, what: &str) -> String {
        format!("{self:?}{what}")
    }
}

/// The schema of one revision.
#[derive(Debug)]
pub(super) struct Schema {
    document: Value,
    /// Compiled validators by definition, kept because compiling takes a moment.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Schema {
    /// Returns the schema of a revision; `None` if no run of the suite uses that revision.
    pub(super) fn of(revision: &str) -> Option<&'static Self> {
        static LEGACY: OnceLock<Schema> = OnceLock::new();
        static MODERN: OnceLock<Schema> = OnceLock::new();
        let parse = |text: &str| {
            let mut document: Value = serde_json::from_str(text).unwrap();
            // The protocol's source says that a form holds numbers; the schema that is made of it
            // says integers.
            let types =
                document.pointer_mut("/$defs/ElicitResult/properties/content/additionalProperties/anyOf/1/type");
            if let Some(types) = types.and_then(Value::as_array_mut) {
                types.push(json!("number"));
            }
            Self { document, validators: Mutex::default() }
        };
        match revision {
            "2025-11-25" => Some(LEGACY.get_or_init(|| parse(include_str!("../../../data/schema/2025-11-25.json")))),
            "2026-07-28" => Some(MODERN.get_or_init(|| {
                let core = parse(include_str!("../../../data/schema/2026-07-28.json"));
                core.with_extension(include_str!("../../../data/schema/ext-tasks.json"))
            })),
            _ => None,
        }
    }

    /// Adds the definitions of an extension.
    fn with_extension(mut self, text: &str) -> Self {
        let mut extension: Value = serde_json::from_str(text).unwrap();
        // A client's answer passes unchanged, and the suite answers an unknown question with a
        // malformed one.
        let responses = "/$defs/UpdateTaskRequest/allOf/1/properties/params/properties/inputResponses";
        *extension.pointer_mut(responses).unwrap() = json!({"type": "object"});
        let definitions = self.document["$defs"].as_object_mut().unwrap();
        for (name, definition) in std::mem::take(extension["$defs"].as_object_mut().unwrap()) {
            definitions.entry(name).or_insert(definition);
        }
        self
    }

    /// Returns whether a message of that side is one of this revision; `answered` is the method
    /// that a response answers.
    ///
    /// # Errors
    /// The mistake, and the message.
    pub(super) fn check(&self, from: Side, message: &Value, answered: Option<&str>) -> Result<(), String> {
        self.judge(from, message, answered).map_err(|why| {
            let shown: String = message.to_string().chars().take(SHOWN).collect();
            format!("{why}\n    in {shown}")
        })
    }

    fn judge(&self, from: Side, message: &Value, answered: Option<&str>) -> Result<(), String> {
        if let Some(method) = message["method"].as_str() {
            let (envelope, kind) = if message.get("id").is_some() {
                ("JSONRPCRequest", "Request")
            } else {
                ("JSONRPCNotification", "Notification")
            };
            self.fits(envelope, message)?;
            let union = from.union(kind);
            let definition = self.member(&union, method).ok_or_else(|| format!("{method:?} is no {union}"))?;
            return self.fits(&definition, message);
        }
        let Some(result) = message.get("result") else { return self.fits("JSONRPCErrorResponse", message) };
        self.fits("JSONRPCResultResponse", message)?;
        match answered {
            Some(method) => self.fits(&self.result_of(from, method, result)?, result),
            None => Err("a result that answers nothing".to_owned()),
        }
    }

    /// Returns the definition of the result of a request of the other side.
    fn result_of(&self, from: Side, method: &str, result: &Value) -> Result<String, String> {
        if result["resultType"] == "input_required" && self.knows("InputRequiredResult") {
            return Ok("InputRequiredResult".to_owned());
        }
        if result["resultType"] == "task" && method == "tools/call" && self.knows("CreateTaskResult") {
            return Ok("CreateTaskResult".to_owned());
        }
        let union = from.other().union("Request");
        let request = self.member(&union, method).ok_or_else(|| format!("a result for {method:?}, no {union}"))?;
        let result = format!("{}Result", request.trim_end_matches("Request"));
        Ok(if self.knows(&result) { result } else { "EmptyResult".to_owned() })
    }

    fn knows(&self, definition: &str) -> bool {
        self.document["$defs"].get(definition).is_some()
    }

    /// Returns the definition of that method among those that a union lists. A union of one is that
    /// definition itself.
    fn member(&self, union: &str, method: &str) -> Option<String> {
        let definitions = &self.document["$defs"];
        let references = definitions[union]["anyOf"].as_array().into_iter().flatten();
        let names = references.filter_map(|member| member["$ref"].as_str()?.rsplit('/').next());
        let mut names = names.chain([union]);
        let found = names.find(|name| definitions[name]["properties"]["method"]["const"] == method);
        found.or_else(|| self.extended(union, method)).map(str::to_owned)
    }

    /// Returns the definition of that method among those of the extension, which lists them
    /// nowhere.
    fn extended(&self, union: &str, method: &str) -> Option<&'static str> {
        let names = ["GetTaskRequest", "UpdateTaskRequest", "CancelTaskRequest"];
        let is = |name: &&str| self.document["$defs"][name]["allOf"][1]["properties"]["method"]["const"] == method;
        names.into_iter().find(|name| union == "ClientRequest" && is(name))
    }

    fn fits(&self, definition: &str, value: &Value) -> Result<(), String> {
        let validator = self.validator(definition);
        let wrong: Vec<String> =
            validator.iter_errors(value).map(|error| format!("at `{}`: {error}", error.instance_path())).collect();
        if wrong.is_empty() { Ok(()) } else { Err(format!("not a {definition}: {}", wrong.join("; "))) }
    }

    fn validator(&self, definition: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock().unwrap();
        let compile = || {
            let schema = json!({
                "$schema": self.document["$schema"],
                "$defs": self.document["$defs"],
                "$ref": format!("#/$defs/{definition}"),
            });
            Arc::new(jsonschema::validator_for(&schema).unwrap())
        };
        Arc::clone(validators.entry(definition.to_owned()).or_insert_with(compile))
    }
}

#[test]
fn a_message_that_breaks_the_schema_is_found() {
    let modern = "2026-07-28";
    let legacy = "2025-11-25";
    let request = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let result = |result: Value| json!({"jsonrpc": "2.0", "id": 1, "result": result});
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": modern,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = Some("tools/call");
    let task = json!({"resultType": "task", "taskId": "t", "status": "working", "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": null});
    let cases = [
        ("a call", legacy, Side::Client, request("tools/call", json!({"name": "x"})), None, true),
        ("a call of nothing", legacy, Side::Client, request("tools/call", json!({})), None, false),
        ("a call without `_meta`", modern, Side::Client, request("tools/call", json!({"name": "x"})), None, false),
        ("a modern call", modern, Side::Client, request("tools/call", json!({"name": "x", "_meta": meta})), None, true),
        ("a ping", legacy, Side::Client, request("ping", json!({})), None, true),
        ("a ping of an era without", modern, Side::Client, request("ping", json!({"_meta": meta})), None, false),
        ("a call by a server", legacy, Side::Server, request("tools/call", json!({"name": "x"})), None, false),
        ("a result", legacy, Side::Server, result(json!({"content": []})), call, true),
        ("a result without `resultType`", modern, Side::Server, result(json!({"content": []})), call, false),
        ("a result without content", legacy, Side::Server, result(json!({})), call, false),
        ("an empty result", legacy, Side::Server, result(json!({})), Some("ping"), true),
        ("a result of nothing", legacy, Side::Server, result(json!({})), None, false),
        ("a task", modern, Side::Server, result(task.clone()), call, true),
        ("a task of a prompt", modern, Side::Server, result(task.clone()), Some("prompts/get"), false),
        ("a task without an id", modern, Side::Server, result(json!({"resultType": "task"})), call, false),
        ("an unknown task", modern, Side::Client, request("tasks/get", json!({"_meta": meta})), None, false),
        ("an error", legacy, Side::Server, json!({"jsonrpc": "2.0", "error": {"code": 1, "message": ""}}), None, true),
        ("an odd error", legacy, Side::Server, json!({"jsonrpc": "2.0", "error": {"code": 1}}), None, false),
    ];
    for (label, revision, from, message, answered, good) in cases {
        let judged = Schema::of(revision).unwrap().check(from, &message, answered);
        assert_eq!(judged.is_ok(), good, "{label}: {judged:?}");
    }
}
