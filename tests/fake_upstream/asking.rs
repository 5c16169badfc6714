//! Tools that ask their client in the middle of a call, as legacy servers do, and report the
//! answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot};

use super::server::{FakeError, FakeReply, FakeRequest, FakeServer, notification};

/// Questions that wait for an answer, and calls that wait for one another.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// Channels of open questions, by session and id.
    open: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    /// Number of calls that reached a meeting.
    met: Mutex<HashMap<String, u64>>,
    arrived: Notify,
    /// Names of opened gates.
    passed: Mutex<HashSet<String>>,
}

pub(crate) fn definitions() -> Vec<Value> {
    let tool = |name: &str, description: &str| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
    vec![
        tool("inquire", "Asks what its arguments say and gives the answers back."),
        tool("gate", "Wants a page opened before the first call of a key."),
        tool("pid", "Says which process this is."),
        tool("meet", "Asks nothing and ends when so many calls have met."),
        tool("linger", "Asks nothing and ends after so many milliseconds."),
        tool("afterthought", "Ends at once, and asks so many milliseconds later."),
    ]
}

/// Returns the tools that a server shows only to clients with these capabilities. The definition of
/// `moody` depends on them.
pub(crate) fn of_capabilities(capabilities: &Value) -> Vec<Value> {
    let elicitation = &capabilities["elicitation"];
    let tools = [
        ("browse", elicitation["url"].is_object(), "Opens pages.".to_owned()),
        ("sample", capabilities["sampling"].is_object(), "Asks the model.".to_owned()),
        ("moody", elicitation.is_object(), format!("For {capabilities}.")),
    ];
    let shown = tools.into_iter().filter(|(_, is_shown, _)| *is_shown);
    let schema = json!({"type": "object"});
    shown.map(|(name, _, text)| json!({"name": name, "description": text, "inputSchema": schema})).collect()
}

impl Asking {
    /// Passes a message without a method to the call that waits for it: the answer to one of our
    /// questions.
    pub(crate) fn answered(&self, session: &str, message: &Value) {
        let key = format!("{session} {}", message["id"]);
        if let Some(waiting) = self.open.lock().unwrap().remove(&key) {
            // The call may have ended.
            drop(waiting.send(message.clone()));
        }
    }

    /// Waits until `count` calls have reached the meeting of that name. More may come later.
    async fn meet(&self, name: &str, count: u64) {
        *self.met.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        self.arrived.notify_waiters();
        loop {
            let arrived = self.arrived.notified();
            if self.met.lock().unwrap()[name] >= count {
                return;
            }
            arrived.await;
        }
    }
}

fn text(text: &str) -> Result<FakeReply, FakeError> {
    Ok(FakeReply::of(json!({"content": [{"type": "text", "text": text}]})))
}

/// Runs one of these tools; `None` for any other.
pub(crate) async fn call(server: &Arc<FakeServer>, request: &FakeRequest) -> Option<Result<FakeReply, FakeError>> {
    let arguments = &request.params["arguments"];
    Some(match request.params["name"].as_str()? {
        "inquire" => inquire(server, request, arguments).await,
        "gate" => gate(server, arguments),
        "browse" | "sample" | "moody" => text("done"),
        "pid" => text(&server.number().to_string()),
        "meet" => {
            server.asking.meet(arguments["name"].as_str()?, arguments["of"].as_u64().unwrap_or(2)).await;
            text("met")
        }
        "afterthought" => {
            let (server, later, arguments) = (Arc::clone(server), request.later(), arguments.clone());
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(arguments["ms"].as_u64().unwrap_or(50))).await;
                let id = arguments["id"].clone();
                drop(ask(&server, &later, &arguments, &id, &arguments["question"]).await);
            });
            text("soon")
        }
        "linger" => {
            tokio::time::sleep(std::time::Duration::from_millis(arguments["ms"].as_u64()?)).await;
            text("lingered")
        }
        _ => return None,
    })
}

/// Runs the tool that asks. `rounds`: lists of questions `{method, params}`, each list asked at
/// once, one list after the other; `tag`: the start of their ids; `via`: `call` (the call's own
/// stream) or `session`; `meet` and `of`: wait for so many calls before asking; `open`: answer only
/// after another call has met `open`; `withdraw`: withdraw all other questions of a round when one
/// is answered; `hasty`: answer while questions are open; `done`: ids of pages that the tool
/// reports as done at the end.
async fn inquire(server: &Arc<FakeServer>, request: &FakeRequest, arguments: &Value) -> Result<FakeReply, FakeError> {
    if let Some(name) = arguments["meet"].as_str() {
        server.asking.meet(name, arguments["of"].as_u64().unwrap_or(2)).await;
    }
    let tag = arguments["tag"].as_str().unwrap_or("q");
    let mut answers = Vec::new();
    let mut count = 0;
    for round in arguments["rounds"].as_array().into_iter().flatten() {
        let mut waiting = Vec::new();
        for question in round.as_array().into_iter().flatten() {
            count += 1;
            let id = json!(format!("{tag}/{count}"));
            waiting.push((id.clone(), ask(server, request, arguments, &id, question)));
        }
        if arguments["hasty"] == true {
            return text("hasty");
        }
        let mut first = true;
        for (id, answer) in waiting {
            if arguments["withdraw"] == true && !first {
                let params = json!({"requestId": id, "reason": "not needed"});
                say(request, arguments, &notification("notifications/cancelled", &params));
                continue;
            }
            first = false;
            let answer = answer.await.map_err(|_| FakeError::new(-32603, "two questions of one id"))?;
            answers.push(json!({"id": id, "result": answer["result"], "error": answer["error"]}));
        }
    }
    for page in arguments["done"].as_array().into_iter().flatten() {
        let params = json!({"elicitationId": page});
        say(request, arguments, &notification("notifications/elicitation/complete", &params));
    }
    if let Some(name) = arguments["open"].as_str() {
        server.asking.meet(name, 2).await;
    }
    text(&json!(answers).to_string())
}

/// Asks the client of that request; `arguments` may name the stream.
pub(crate) fn ask(
    server: &Arc<FakeServer>,
    request: &FakeRequest,
    arguments: &Value,
    id: &Value,
    question: &Value,
) -> oneshot::Receiver<Value> {
    let (sender, answer) = oneshot::channel();
    server.asking.open.lock().unwrap().insert(format!("{} {id}", request.session), sender);
    let mut message = json!({"jsonrpc": "2.0", "id": id, "method": question["method"]});
    if let Some(params) = question.get("params") {
        message["params"] = params.clone();
    }
    say(request, arguments, &message.to_string());
    answer
}

/// Sends a message on the stream that the arguments name.
fn say(request: &FakeRequest, arguments: &Value, message: &str) {
    let aside: Option<&mpsc::UnboundedSender<String>> = request.aside.as_ref();
    let way = if arguments["via"] == "session" { aside } else { Some(&request.notices) };
    // Without a stream the message is lost, as with real servers.
    way.into_iter().for_each(|way| drop(way.send(message.to_owned())));
}

fn gate(server: &Arc<FakeServer>, arguments: &Value) -> Result<FakeReply, FakeError> {
    let key = arguments["key"].as_str().unwrap_or_default();
    if !server.asking.passed.lock().unwrap().insert(key.to_owned()) {
        return text("through the gate");
    }
    let page = |n: u64| {
        let url = format!("https://gate.example/{key}/{n}");
        json!({"mode": "url", "message": "Log in", "url": url, "elicitationId": format!("{key}-{n}")})
    };
    let pages: Vec<Value> = (1..=arguments["pages"].as_u64().unwrap_or(1)).map(page).collect();
    Err(FakeError { code: -32042, message: "open the gate first".to_owned(), data: json!({"elicitations": pages}) })
}
