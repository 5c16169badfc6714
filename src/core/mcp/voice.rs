//! Reads the messages of upstreams and removes reserved words: a server may not speak in the
//! gateway's name.
//!
//! Clients rely on this: a result with `headend/refusal` in `_meta`, headend's error codes and the
//! objects in their `data` come from the gateway. So every message of an upstream passes here once,
//! before any other code reads it. Keys of `_meta` that begin with `headend/` are removed wherever
//! the protocol has a `_meta`, and errors that look like headend's become plain failures with the
//! original inside. A gateway behind this one is a server like any other: its refusal arrives as
//! its own statement.
//!
//! - `headend/refusal`, an object, in `_meta` of a result becomes `headend/upstream-refusal` with
//!   `{upstream, refusal}`.
//! - Any other key that begins with `headend/`, in a `_meta` of the protocol, is removed; every
//!   other byte is unchanged.
//! - An error 1001 to 1003, or with `executed` and another member of a refusal in `data`, or with
//!   `upstream-name` there, becomes -32603 with the same message and `data = {upstream,
//!   upstream-name}`: the whole original and the server's name.
//! - An error object that is malformed or has a duplicate key becomes -32603 without it.
//!
//! This covers every `_meta` of the protocol's schemas, so `structuredContent`, arguments, schemas
//! and the `data` of log messages stay unchanged. The error of a task is checked where the task is
//! read ([`super::task`]). Removed keys and replaced errors are counted by upstream.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use memchr::memmem::Finder;

use crate::mcp::nulls;
use crate::wire::code;
use crate::wire::frame::{Frame, FrameError, JsonBounds};
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::json::tokens::has_escaped_ascii;
use crate::wire::message::{Message, MessageError, Notification, Request, Response, error_object};
use crate::wire::quirk::Quirk;

mod keys;

pub use self::keys::REFUSAL;
use self::keys::{MetaRole, remove_own_keys};

/// The member of `data` with the name of the server whose error is beside it.
const NAMED: &str = "upstream-name";
/// The member that every refusal has, and few other objects.
const EXECUTED: &str = "executed";
/// Other members of a refusal.
const MEMBERS: [&str; 5] = ["reason", "retryable", "retry-after-ms", "approval", "call-id"];

/// Counts of the reserved words that were removed from one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedWords {
    /// The number of removed keys of `_meta`.
    pub keys: usize,
    /// The number of replaced errors.
    pub errors: usize,
}

impl std::ops::AddAssign for RemovedWords {
    fn add_assign(&mut self, more: Self) {
        self.keys += more.keys;
        self.errors += more.errors;
    }
}

/// A message of an upstream, cleaned of reserved words, with its flaws.
#[derive(Debug)]
pub struct UpstreamMessage {
    pub message: Message,
    /// The broken bound, if only the envelope is left.
    pub broken: Option<FrameError>,
    /// The way in which it broke the protocol and was read even so.
    pub quirk: Option<Quirk>,
    /// Counts of the reserved words that were removed.
    pub taken: RemovedWords,
}

/// A reader of the messages of one upstream. Clones share its name and bounds.
#[derive(Clone)]
pub struct UpstreamReader(Arc<UpstreamReaderSettings>);

/// The settings that all clones of a reader share.
struct UpstreamReaderSettings {
    upstream: Box<str>,
    bounds: JsonBounds,
    keep: Box<dyn Fn(Bytes) -> Bytes + Send + Sync>,
}

impl std::fmt::Debug for UpstreamReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ear({})", self.0.upstream)
    }
}

impl UpstreamReader {
    /// Creates a reader for the upstream with that name and these bounds. `keep` counts rewritten
    /// bytes against the byte budget, like received ones.
    pub fn new(upstream: &str, bounds: JsonBounds, keep: impl Fn(Bytes) -> Bytes + Send + Sync + 'static) -> Self {
        Self(Arc::new(UpstreamReaderSettings { upstream: Box::from(upstream), bounds, keep: Box::new(keep) }))
    }

    /// Parses a message, drops `null` members, and removes reserved words. No other code turns an
    /// upstream's bytes into a message.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn hear(&self, frame: &Frame) -> Result<UpstreamMessage, MessageError> {
        let mut taken = RemovedWords::default();
        let (mut message, broken, mut quirk) = Message::of_upstream(frame, self.0.bounds)?;
        if self.drop_nulls(&mut message) {
            quirk = quirk.or(Some(Quirk::NullOptional));
        }
        match &mut message {
            Message::Response(response) => match &mut response.outcome {
                Ok(result) => self.strip(result, MetaRole::Result, &mut taken),
                Err(error) => match replace_own_error(error, &self.0.upstream, &mut taken) {
                    Some(instead) => *error = self.kept(instead),
                    None => self.strip(error, MetaRole::Error, &mut taken),
                },
            },
            Message::Request(Request { params: Some(params), .. })
            | Message::Notification(Notification { params: Some(params), .. }) => {
                self.strip(params, MetaRole::Open, &mut taken);
            }
            Message::Request(_) | Message::Notification(_) => {}
        }
        Ok(UpstreamMessage { message, broken, quirk, taken })
    }

    /// Removes optional members that are `null` from a question or a notification; returns whether
    /// there were any. Results of calls are handled where their method is known.
    fn drop_nulls(&self, message: &mut Message) -> bool {
        let (place, without) = match message {
            Message::Request(Request { method, params: Some(params), .. })
            | Message::Notification(Notification { method, params: Some(params) }) => {
                let without = nulls::remove_nulls_of_params(method, params);
                (params, without)
            }
            Message::Response(Response { outcome: Ok(result), .. }) => {
                let without = nulls::remove_nulls_of_questions(result);
                (result, without)
            }
            Message::Request(_) | Message::Notification(_) | Message::Response(_) => return false,
        };
        let is_changed = without.is_some();
        without.into_iter().for_each(|without| *place = self.kept(without));
        is_changed
    }

    /// Removes the gateway's keys. A text without them costs a search and keeps its bytes.
    fn strip(&self, value: &mut RawJson, place: MetaRole, taken: &mut RemovedWords) {
        if !may_have_ours(value.bytes()) {
            return;
        }
        let (without, keys) = remove_own_keys(value, place, &self.0.upstream);
        if keys > 0 {
            taken.keys += keys;
            *value = self.kept(without);
        }
    }

    /// Counts a rewritten value against the byte budget.
    fn kept(&self, written: RawJson) -> RawJson {
        RawJson::trusted((self.0.keep)(written.into_bytes()))
    }
}

/// Reports whether one of the gateway's keys can be in this text, plain or with an escape for one
/// of its letters.
fn may_have_ours(text: &[u8]) -> bool {
    // Prepared once: preparing a search costs as much as searching most results.
    static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("headend"));
    NAME.find(text).is_some() || has_escaped_ascii(text, |c| b"headn/".contains(&c))
}

/// Returns the error that clients get in place of an upstream's; `None` if it passes unchanged.
/// Counts an error that looks like headend's own in `taken`.
pub(crate) fn replace_own_error(error: &RawJson, upstream: &str, taken: &mut RemovedWords) -> Option<RawJson> {
    let Ok(object) = RawObject::parse(error) else {
        // Not an object, or with a duplicate key, of which a client may read the member that is not
        // checked here.
        return Some(error_object(code::INTERNAL, "The server answered with an error that cannot be read.", None));
    };
    let is_own_code = object.get("code").is_some_and(is_own_code);
    if !is_own_code && !object.get("data").is_some_and(is_own_data) {
        return None;
    }
    taken.errors += 1;
    let message = object.string("message").unwrap_or_else(|| "The server gave no message.".to_owned());
    let data = format!(r#"{{"upstream":{},"{NAMED}":{}}}"#, error.text(), RawJson::string(upstream).text());
    Some(error_object(code::INTERNAL, &message, Some(&RawJson::trusted(data))))
}

/// Reports whether clients read an error code as one of headend's own.
#[expect(clippy::cast_precision_loss, reason = "three small constants")]
fn is_own_code(code: &RawJson) -> bool {
    // Compared as most clients compare: to them 1001.0 is 1001.
    let is = |own: i64| code.parse::<f64>().is_ok_and(|code| (code - own as f64).abs() < 1.0);
    [code::DENIED, code::LIMITED, code::AWAITING_APPROVAL].into_iter().any(is)
}

/// Reports whether `data` of an error has the members of a refusal, names another server as the
/// gateway does, or has a duplicate key.
fn is_own_data(data: &RawJson) -> bool {
    if !data.is_object() {
        return false;
    }
    // With a duplicate key, a client may read another value than this code.
    let Ok(mut object) = RawObject::parse(data) else { return true };
    let (mut executed, mut others, mut named) = (false, false, false);
    object.retain(|key| {
        // Some readers ignore the case of keys.
        executed |= key.eq_ignore_ascii_case(EXECUTED);
        others |= MEMBERS.iter().any(|member| key.eq_ignore_ascii_case(member));
        named |= key.eq_ignore_ascii_case(NAMED);
        true
    });
    named || executed && others
}

#[cfg(test)]
mod tests;
