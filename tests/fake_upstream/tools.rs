//! The server's items, and the actions of its tools.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::asking;
use super::behaviour::Behaviour;
use super::server::{FakeError, FakeReply, FakeServer};

/// Returns the tools that are always there.
pub(crate) fn definitions() -> Vec<Value> {
    let tool = |name: &str, properties: Value| {
        json!({
            "name": name,
            "title": format!("The tool {name}"),
            "description": format!("Does {name}."),
            "inputSchema": {"type": "object", "properties": properties, "$defs": {"unused": {"$anchor": "u"}}},
            "x-vendor": {"z": 1, "a": 2},
        })
    };
    let mut write = tool("write", json!({}));
    write["annotations"] = json!({"destructiveHint": true, "readOnlyHint": false});
    vec![
        tool("echo", json!({"text": {"type": "string"}})),
        tool("sleep", json!({"ms": {"type": "integer"}})),
        tool("progress", json!({"steps": {"type": "integer"}, "delay_ms": {"type": "integer"}})),
        tool("raw", json!({"file": {"type": "string"}})),
        tool("fail", json!({})),
        tool("exit", json!({})),
        tool(
            "region",
            json!({
                "region": {"type": "string", "x-mcp-header": "Region"},
                "n": {"type": "integer", "x-mcp-header": "N"},
            }),
        ),
        write,
        tool("denied", json!({})),
        tool("ask", json!({})),
        tool("env", json!({})),
        tool("mutate", json!({})),
    ]
}

fn text(text: &str) -> Result<FakeReply, FakeError> {
    Ok(FakeReply::of(json!({"content": [{"type": "text", "text": text}]})))
}

/// Logs that a call with a number was stopped before its end.
struct Stopped<'c> {
    server: &'c FakeServer,
    number: Option<&'c Value>,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.server.note(&json!({"stopped": number}).to_string());
        }
    }
}

/// Runs one call.
pub(crate) async fn call(
    server: &Arc<FakeServer>,
    request: &super::server::FakeRequest,
) -> Result<FakeReply, FakeError> {
    let calls = server.calls.fetch_add(1, Ordering::SeqCst) + 1;
    if server.args.behaviours.iter().any(|b| matches!(b, Behaviour::CrashAfter(n) if calls > *n)) {
        return server.exit(4).await;
    }
    if server.does(Behaviour::Asks)
        && let Some(answer) = asking::call(server, request).await
    {
        return answer;
    }
    let arguments = &request.params["arguments"];
    let number = |name: &str, default: u64| arguments[name].as_u64().unwrap_or(default);
    let name = request.params["name"].as_str().unwrap_or_default();
    if let Some(result) = server.patches()["results"].get(name) {
        return Ok(FakeReply::of(result.clone()));
    }
    match name {
        "echo" => match arguments["text"].as_str() {
            Some(echoed) => text(echoed),
            None => text(&arguments.to_string()),
        },
        "sleep" => {
            let mut stopped = Stopped { server, number: arguments.get("n") };
            if let Some(number) = stopped.number {
                // From here on it can be stopped: the line of its request comes before that.
                server.note(&json!({"begun": number}).to_string());
            }
            tokio::time::sleep(Duration::from_millis(number("ms", 0))).await;
            stopped.number = None;
            text("slept")
        }
        "progress" => {
            let steps = number("steps", 3);
            for step in 1..=steps {
                tokio::time::sleep(Duration::from_millis(number("delay_ms", 1))).await;
                let token = &request.params["_meta"]["progressToken"];
                if !token.is_null() {
                    let params = json!({"progressToken": token, "progress": step, "total": steps});
                    request.notify("notifications/progress", &params);
                }
            }
            text("done")
        }
        "raw" => {
            let file = arguments["file"].as_str().unwrap_or_default();
            let message = "n".repeat(usize::try_from(number("note_bytes", 0)).unwrap());
            for step in 1..=number("steps", 0) {
                let token = &request.params["_meta"]["progressToken"];
                request.notify(
                    "notifications/progress",
                    &json!({"progressToken": token, "progress": step, "message": message}),
                );
            }
            Ok(FakeReply::Verbatim(
                std::fs::read_to_string(file).map_err(|error| FakeError::params(&error.to_string()))?,
            ))
        }
        "fail" => Ok(FakeReply::of(json!({"content": [{"type": "text", "text": "it failed"}], "isError": true}))),
        "exit" => server.exit(5).await,
        "region" => text(&json!({"arguments": arguments, "headers": request.param_headers}).to_string()),
        "write" | "denied" | "ask" => text(name),
        "env" => {
            let variables: std::collections::BTreeMap<String, String> = std::env::vars().collect();
            text(&json!({"pid": server.number(), "env": variables}).to_string())
        }
        "mutate" => {
            server.grow();
            text("grown")
        }
        "job" if server.does(Behaviour::Tasks) => server.jobs.call(&request.params),
        extra if extra.starts_with("extra_") || extra.starts_with("grown_") => text(extra),
        other => Err(FakeError::params(&format!("Unknown tool: {other}"))),
    }
}

/// Answers `prompts/get` for a prompt of one argument.
pub(crate) fn prompt(params: &Value) -> Result<FakeReply, FakeError> {
    if params["name"] != "p" {
        return Err(FakeError::params("Unknown prompt"));
    }
    let said = format!("About {}", params["arguments"]["a"].as_str().unwrap_or_default());
    Ok(FakeReply::of(json!({"messages": [{"role": "user", "content": {"type": "text", "text": said}}]})))
}

/// Answers `resources/read` for any document below `fx://doc/`, and with the content in the `reads`
/// of the patch file, under the URI that was asked for if it has none.
pub(crate) fn read(patches: &Value, params: &Value, modern: bool) -> Result<FakeReply, FakeError> {
    let uri = params["uri"].as_str().unwrap_or_default();
    if let Some(content) = patches["reads"].get(uri) {
        let mut content = content.clone();
        if content["uri"].is_null() {
            content["uri"] = json!(uri);
        }
        return Ok(FakeReply::of(json!({"contents": [content]})));
    }
    if !uri.starts_with("fx://doc/") {
        let code = if modern { -32602 } else { -32002 };
        return Err(FakeError { code, message: "Resource not found".to_owned(), data: json!({"uri": uri}) });
    }
    Ok(FakeReply::of(json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": format!("text of {uri}")}]})))
}
