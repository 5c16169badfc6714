//! Answers to a test's client, read whole or piece by piece.
#![allow(dead_code, reason = "a tool of both grounds, of which each uses its own part")]

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::http::{self, EventReader, ResponseHead, StreamEvent, TestConnection};

/// The answer to one request.
#[derive(Debug, Clone)]
pub(crate) struct McpAnswer {
    /// HTTP status; 200 over stdio.
    pub(crate) status: u16,
    pub(crate) head: ResponseHead,
    /// The response message.
    pub(crate) message: Value,
    /// Text of the response as received.
    pub(crate) raw: String,
    /// Earlier messages on the same stream.
    pub(crate) notices: Vec<Value>,
}

impl McpAnswer {
    /// Returns the result; fails if there is none.
    pub(crate) fn result(&self) -> &Value {
        self.message.get("result").unwrap_or_else(|| panic!("no result but {} {}", self.status, self.raw))
    }

    /// Returns the error's code, if it is an error.
    pub(crate) fn code(&self) -> Option<i64> {
        self.message.pointer("/error/code").and_then(Value::as_i64)
    }

    /// Returns whether a tool reported a failure.
    pub(crate) fn is_error(&self) -> bool {
        self.message.pointer("/result/isError").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns the texts of a tool's result.
    pub(crate) fn text(&self) -> String {
        let content = self.result().get("content").and_then(Value::as_array).cloned().unwrap_or_default();
        content.iter().filter_map(|part| part.get("text")?.as_str().map(str::to_owned)).collect()
    }
}

/// A request that is under way. Dropping it closes its connection.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) id: Value,
    pub(crate) conn: TestConnection,
    pub(super) head: Option<ResponseHead>,
    pub(super) events: EventReader,
}

impl OpenCall {
    /// Waits for the status line and fields.
    pub(crate) fn head(&mut self) -> &ResponseHead {
        if self.head.is_none() {
            self.head = Some(self.conn.head().unwrap());
        }
        self.head.as_ref().unwrap()
    }

    /// Waits for the next message; `None` after the end of the answer.
    pub(crate) fn next(&mut self) -> Option<Value> {
        self.next_within(http::PATIENCE).unwrap()
    }

    /// Waits like [`OpenCall::next`], within this time; fails if nothing came.
    pub(crate) fn next_within(&mut self, patience: Duration) -> std::io::Result<Option<Value>> {
        self.conn.patience(patience);
        if self.head.is_none() {
            self.head = Some(self.conn.head()?);
        }
        if self.head.as_ref().is_some_and(ResponseHead::is_stream) {
            let event = self.events.next(&mut self.conn)?;
            return Ok(event.map(|event| serde_json::from_str(&event.data).unwrap()));
        }
        let mut body = Vec::new();
        while let Some(piece) = self.conn.piece()? {
            body.extend_from_slice(&piece);
        }
        Ok((!body.is_empty()).then(|| serde_json::from_slice(&body).unwrap()))
    }

    /// Waits for the next event as received; `None` at the end of the stream.
    pub(crate) fn event(&mut self) -> Option<StreamEvent> {
        assert!(self.head().is_stream(), "not a stream: {:?}", self.head());
        self.conn.patience(http::PATIENCE);
        self.events.next_of_any_kind(&mut self.conn).unwrap()
    }

    /// Waits for the response, and drops the notices before it.
    pub(crate) fn response(&mut self) -> Value {
        while let Some(message) = self.next() {
            if message.get("id") == Some(&self.id) && message.get("method").is_none() {
                return message;
            }
        }
        panic!("the stream ended without a response to {}", self.id);
    }
}

pub(super) fn read_answer(conn: &mut TestConnection) -> std::io::Result<McpAnswer> {
    let head = conn.head()?;
    let mut notices = Vec::new();
    if head.is_stream() {
        let mut events = EventReader::default();
        let mut last = None;
        // Reads on after the response: the stream must end by itself.
        while let Some(event) = events.next(conn)? {
            // Half of a surrogate pair passes through: it is JSON, but no readable text.
            let whole: &RawValue = serde_json::from_str(&event.data)?;
            let message: Value = serde_json::from_str(whole.get()).unwrap_or(Value::Null);
            if message.get("method").is_some() || (message.is_null() && whole.get().contains("\"method\":")) {
                notices.push(message);
            } else {
                last = Some((message, event.data));
            }
        }
        let (message, raw) = last.ok_or_else(|| std::io::Error::other("a stream without a response"))?;
        return Ok(McpAnswer { status: head.status, head, message, raw, notices });
    }
    let mut body = Vec::new();
    while let Some(piece) = conn.piece()? {
        body.extend_from_slice(&piece);
    }
    let raw = String::from_utf8_lossy(&body).into_owned();
    let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(McpAnswer { status: head.status, head, message, raw, notices })
}
