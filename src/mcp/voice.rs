//! What a server may not say: the words that are the gateway's own.
//!
//! Clients are told that a result with `headend/refusal` in `_meta` is the gateway's, and that our error codes and the objects
//! in their `data` are. Whatever an upstream says passes here once, before anything is made of it: keys of `_meta` that begin
//! with `headend/` are taken out wherever the protocol has `_meta`, and errors that look like ours become plain failures with
//! the original inside. A gateway behind this one is a server like all others: what it refuses arrives as what it said.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use memchr::memmem::Finder;

use crate::wire::code;
use crate::wire::frame::{Bounds, Frame, FrameError};
use crate::wire::message::{Message, MessageError, Notification, Request, error_object};
use crate::wire::raw::{RawJson, RawObject};

mod keys;

pub(crate) use self::keys::REFUSAL;
use self::keys::{Place, without_ours};

/// The member of `data` that names the server whose error stands beside it.
const NAMED: &str = "upstream-name";
/// The member of a refusal that every refusal has and few other things.
const EXECUTED: &str = "executed";
/// The other members of a refusal.
const MEMBERS: [&str; 5] = ["reason", "retryable", "retry-after-ms", "approval", "call-id"];

/// What was taken from one message, to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Keys of `_meta`.
    pub(crate) keys: usize,
    /// Errors that became another one.
    pub(crate) errors: usize,
}

impl std::ops::AddAssign for Taken {
    fn add_assign(&mut self, more: Self) {
        self.keys += more.keys;
        self.errors += more.errors;
    }
}

/// A message of an upstream.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) message: Message,
    /// The bound that it broke, where its envelope alone is left.
    pub(crate) broken: Option<FrameError>,
    pub(crate) taken: Taken,
}

/// Hears what one upstream says. Clones share what they hear with.
#[derive(Clone)]
pub(crate) struct Ear(Arc<Hearing>);

struct Hearing {
    upstream: Box<str>,
    bounds: Bounds,
    keep: Box<dyn Fn(Bytes) -> Bytes + Send + Sync>,
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ear({})", self.0.upstream)
    }
}

impl Ear {
    /// For an upstream of that name, whose messages have these bounds. Bytes that had to be written anew pass through `keep`, which counts them like those that
    /// were received.
    pub(crate) fn new(upstream: &str, bounds: Bounds, keep: impl Fn(Bytes) -> Bytes + Send + Sync + 'static) -> Self {
        Self(Arc::new(Hearing { upstream: Box::from(upstream), bounds, keep: Box::new(keep) }))
    }

    /// Reads a message: the only way in which what an upstream says becomes one.
    ///
    /// # Errors
    /// [`MessageError`].
    pub(crate) fn hear(&self, frame: &Frame) -> Result<Heard, MessageError> {
        let mut taken = Taken::default();
        let (mut message, broken) = Message::of_upstream(frame, self.0.bounds)?;
        match &mut message {
            Message::Response(response) => match &mut response.outcome {
                Ok(result) => self.strip(result, Place::Result, &mut taken),
                Err(error) => match instead_of(error, &self.0.upstream, &mut taken) {
                    Some(instead) => *error = self.kept(instead),
                    None => self.strip(error, Place::Error, &mut taken),
                },
            },
            Message::Request(Request { params: Some(params), .. })
            | Message::Notification(Notification { params: Some(params), .. }) => {
                self.strip(params, Place::Open, &mut taken);
            }
            Message::Request(_) | Message::Notification(_) => {}
        }
        Ok(Heard { message, broken, taken })
    }

    /// Takes our keys out. What has none costs a search and keeps its bytes.
    fn strip(&self, value: &mut RawJson, place: Place, taken: &mut Taken) {
        if !may_have_ours(value.bytes()) {
            return;
        }
        let (without, keys) = without_ours(value, place, &self.0.upstream);
        if keys > 0 {
            taken.keys += keys;
            *value = self.kept(without);
        }
    }

    fn kept(&self, written: RawJson) -> RawJson {
        RawJson::trusted((self.0.keep)(written.into_bytes()))
    }
}

/// Whether a key of ours can be in this text, in any spelling: as it is, or with an escape for one of its letters.
fn may_have_ours(text: &[u8]) -> bool {
    // To prepare a search costs as much as to search most results.
    static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("headend"));
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    let is_letter_of_ours = |at: usize| {
        let code = text.get(at + 4..at + 6).unwrap_or_default();
        matches!(code, [b'6', b'1' | b'4' | b'5' | b'8' | b'e' | b'E'] | [b'2', b'f' | b'F'])
    };
    NAME.find(text).is_some() || ESCAPE.find_iter(text).any(is_letter_of_ours)
}

/// What clients are told instead of an upstream's error object; `None` where it passes as it is.
pub(crate) fn instead_of(error: &RawJson, upstream: &str, taken: &mut Taken) -> Option<RawJson> {
    let Ok(object) = RawObject::parse(error) else {
        // No object, or a member twice, of which a client may read the one that is not read here.
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

#[expect(clippy::cast_precision_loss, reason = "three small constants")]
fn is_own_code(code: &RawJson) -> bool {
    // As most clients read it: to them 1001.0 is 1001.
    let is = |own: i64| code.parse::<f64>().is_ok_and(|code| (code - own as f64).abs() < 1.0);
    [code::DENIED, code::LIMITED, code::AWAITING_APPROVAL].into_iter().any(is)
}

/// Whether `data` of an error has the members of a refusal, or says of another server what the gateway says.
fn is_own_data(data: &RawJson) -> bool {
    if !data.is_object() {
        return false;
    }
    // With a member twice, a client may see another one than is seen here.
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
