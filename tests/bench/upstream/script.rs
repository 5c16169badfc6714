//! The upstream's answers, for any transport.
//!
//! Four tools: `echo {text}` returns its text, `length {text}` describes it, `big {bytes}` returns
//! that many bytes, and `progress {n}` sends n notices before its result. Further tools only fill
//! the list.

use std::borrow::Cow;
use std::fmt::Write;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::scenario::TextSummary;
use crate::upstream::BenchUpstreamEras;

/// The longest text `big` returns.
const BIG_MAX: usize = 4 << 20;

/// Ends a result of the stateless revision.
const MODERN_TAIL: &str = r#","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench-upstream","version":"1"}}"#;

/// A message in pieces, to be sent one after another.
type MessagePieces = Vec<Bytes>;

/// The answer to a message.
#[derive(Debug)]
pub(crate) enum ScriptReply {
    /// No answer: the message was a notification.
    Nothing,
    /// The answer to `initialize`, with which a session begins.
    Opened(MessagePieces),
    /// A result or an error.
    Message(MessagePieces),
    /// Notices, and the result at the end.
    Stream(Vec<MessagePieces>),
}

impl ScriptReply {
    pub(crate) fn into_messages(self) -> Vec<MessagePieces> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Opened(message) | Self::Message(message) => vec![message],
            Self::Stream(messages) => messages,
        }
    }
}

/// The answers, rendered in advance as far as possible.
#[derive(Debug)]
pub(crate) struct RenderedScript {
    eras: BenchUpstreamEras,
    tools: Bytes,
    filler: Bytes,
}

#[derive(Deserialize)]
struct BenchRequest<'r> {
    #[serde(borrow)]
    id: Option<&'r RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'r, str>>,
    #[serde(borrow, default)]
    params: BenchParams<'r>,
}

#[derive(Default, Deserialize)]
struct BenchParams<'r> {
    #[serde(borrow)]
    name: Option<Cow<'r, str>>,
    #[serde(borrow, default)]
    arguments: EchoArguments<'r>,
    #[serde(borrow, default, rename = "_meta")]
    meta: BenchMeta<'r>,
    #[serde(borrow, rename = "protocolVersion")]
    version: Option<Cow<'r, str>>,
}

#[derive(Default, Deserialize)]
struct EchoArguments<'r> {
    #[serde(borrow)]
    text: Option<&'r RawValue>,
    bytes: Option<usize>,
    n: Option<u32>,
}

#[derive(Default, Deserialize)]
struct BenchMeta<'r> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'r, str>>,
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'r RawValue>,
}

impl RenderedScript {
    pub(crate) fn new(tools: usize, eras: BenchUpstreamEras) -> Self {
        Self { eras, tools: Bytes::from(tool_list(tools)), filler: Bytes::from(vec![b'x'; BIG_MAX]) }
    }

    /// Answers one message.
    pub(crate) fn reply(&self, message: &[u8]) -> ScriptReply {
        let Ok(request) = serde_json::from_slice::<BenchRequest<'_>>(message) else {
            return error("null", -32700, "not a JSON-RPC message");
        };
        let (Some(id), Some(method)) = (request.id, request.method) else {
            return ScriptReply::Nothing;
        };
        let (id, params) = (id.get(), &request.params);
        let modern = self.eras == BenchUpstreamEras::Both && params.meta.version.is_some();
        match &*method {
            "tools/call" => self.call(id, params, modern),
            "tools/list" => self.list(id, modern),
            "ping" => result(id, "", false),
            "server/discover" if modern => result(
                id,
                r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":3600000,"cacheScope":"public""#,
                true,
            ),
            "initialize" if !modern => {
                let version = params.version.as_deref().filter(|version| *version < "2026").unwrap_or("2025-11-25");
                ScriptReply::Opened(vec![Bytes::from(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"bench-upstream","version":"1"}}}}}}"#
                ))])
            }
            _ => error(id, -32601, "unknown method"),
        }
    }

    fn list(&self, id: &str, modern: bool) -> ScriptReply {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":"#);
        let tail =
            if modern { format!(r#","ttlMs":3600000,"cacheScope":"public"{MODERN_TAIL}}}}}"#) } else { "}}".into() };
        ScriptReply::Message(vec![Bytes::from(head), self.tools.clone(), Bytes::from(tail)])
    }

    fn call(&self, id: &str, params: &BenchParams<'_>, modern: bool) -> ScriptReply {
        let arguments = &params.arguments;
        match (params.name.as_deref(), arguments.text, arguments.bytes, arguments.n) {
            (Some("echo"), Some(text), ..) => text_result(id, text.get(), modern),
            (Some("length"), Some(text), ..) => {
                let summary = TextSummary::of(text.get().trim_matches('"').as_bytes());
                text_result(id, &format!(r#""{summary}""#), modern)
            }
            (Some("big"), _, Some(bytes), _) if bytes <= BIG_MAX => {
                let mut head = text_head(id);
                head.push('"');
                let tail = format!(r#""{}"#, text_tail(modern));
                ScriptReply::Message(vec![Bytes::from(head), self.filler.slice(..bytes), Bytes::from(tail)])
            }
            (Some("progress"), _, _, Some(n)) => progress(id, params.meta.progress_token, n, modern),
            _ => error(id, -32602, "unknown tool or missing argument"),
        }
    }
}

fn progress(id: &str, token: Option<&RawValue>, n: u32, modern: bool) -> ScriptReply {
    let mut messages = Vec::new();
    if let Some(token) = token {
        messages.extend((1..=n).map(|done| {
            vec![Bytes::from(format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{done},"total":{n}}}}}"#
            ))]
        }));
    }
    messages.extend(text_result(id, r#""done""#, modern).into_messages());
    ScriptReply::Stream(messages)
}

fn text_head(id: &str) -> String {
    let mut head = String::with_capacity(256);
    for piece in [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":{"content":[{"type":"text","text":"#] {
        head.push_str(piece);
    }
    head
}

fn text_tail(modern: bool) -> String {
    // As servers of the official SDKs write it.
    let sound = r#"}],"isError":false"#;
    if modern { format!("{sound}{MODERN_TAIL}}}}}") } else { format!("{sound}}}}}") }
}

/// Returns a result of one text, given as the JSON string that the caller sent.
fn text_result(id: &str, text: &str, modern: bool) -> ScriptReply {
    let mut message = text_head(id);
    message.push_str(text);
    message.push_str(&text_tail(modern));
    ScriptReply::Message(vec![Bytes::from(message)])
}

fn result(id: &str, members: &str, modern: bool) -> ScriptReply {
    let tail = if modern { MODERN_TAIL } else { "" };
    ScriptReply::Message(vec![Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{members}{tail}}}}}"#))])
}

fn error(id: &str, code: i32, message: &str) -> ScriptReply {
    ScriptReply::Message(vec![Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#
    ))])
}

/// Returns the tools as a JSON array, each about as long as a short real one.
fn tool_list(count: usize) -> String {
    let mut list = String::from("[");
    let callable = ["echo", "length", "big", "progress"].map(String::from);
    let names = callable.into_iter().chain((4..count).map(|n| format!("look_up_record_{n:03}")));
    for (n, name) in names.enumerate() {
        let comma = if n == 0 { "" } else { "," };
        let written = write!(
            list,
            r#"{comma}{{"name":"{name}","description":"Looks up one record of the collection and returns its fields as text.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string","description":"What to look for."}},"bytes":{{"type":"integer","minimum":0}},"n":{{"type":"integer","minimum":0}}}}}}}}"#
        );
        written.expect("invariant: writing to a string does not fail");
    }
    list.push(']');
    list
}
