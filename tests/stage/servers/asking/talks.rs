//! Helpers for calls that run side by side and whose clients answer their questions.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{answered, going_on};
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};

/// How long one call is read before the next.
pub(super) const TURN: Duration = Duration::from_millis(2);

/// A call of the tool that asks, whose client answers its questions.
pub(super) struct AskingToolCall {
    era: ClientEra,
    arguments: Value,
    reply: Value,
    call: OpenCall,
    /// Parameters of the questions so far.
    pub(super) asked: Vec<Value>,
    response: Option<Value>,
}

impl AskingToolCall {
    /// Starts the call, whose questions all get this reply.
    pub(super) fn begin(client: &mut Mcp, era: ClientEra, arguments: &Value, reply: Value) -> Self {
        let call = client.open("tools/call", json!({"name": "fx__inquire", "arguments": arguments}));
        Self { era, arguments: arguments.clone(), reply, call, asked: Vec::new(), response: None }
    }

    /// Takes one message of the call, if there is one. Returns whether the call is over.
    pub(super) fn step(&mut self, client: &mut Mcp) -> bool {
        if self.response.is_some() {
            return true;
        }
        let message = match self.call.next_within(TURN) {
            Ok(message) => message.expect("the call is answered"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                return false;
            }
        };
        if message.get("method").is_some() {
            client.respond(&message["id"], self.reply.clone());
            self.asked.push(message["params"].clone());
        } else if self.era == ClientEra::Modern && message["result"]["resultType"] == "input_required" {
            let requests = message["result"]["inputRequests"].as_object().unwrap();
            self.asked.extend(requests.values().map(|request| request["params"].clone()));
            let responses: Map<_, _> = requests.keys().map(|key| (key.clone(), self.reply.clone())).collect();
            let params = going_on(&self.arguments, responses.into(), &message["result"]["requestState"]);
            self.call = client.open("tools/call", params);
        } else {
            self.response = Some(message);
        }
        self.response.is_some()
    }

    /// Runs the call to its end and returns the reported answers.
    pub(super) fn end(mut self, client: &mut Mcp) -> Vec<Value> {
        while !self.step(client) {}
        self.answers()
    }

    /// Returns the answers that the tool of an ended call reports.
    pub(super) fn answers(&self) -> Vec<Value> {
        answered(self.response.as_ref().expect("the call is over"))
    }
}

/// One step of a client's work; returns true at its end.
pub(super) type ClientWork<'w> = Box<dyn FnMut() -> bool + 'w>;

/// Does the work of several clients in turn, one step of each at a time.
pub(super) fn in_turn(works: Vec<ClientWork<'_>>) {
    let mut works = VecDeque::from(works);
    while let Some(mut work) = works.pop_front() {
        if !work() {
            works.push_back(work);
        }
    }
}
