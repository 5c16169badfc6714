//! Removes the gateway's keys from every `_meta` of the protocol and keeps every other byte.
//!
//! One pass over the text without recursion. It enters only values that lead to a `_meta`, and steps over free content
//! such as `structuredContent`, `arguments` or the `data` of a log message.

use std::borrow::Cow;

use crate::wire::raw::RawJson;

/// Key of `_meta` for the gateway's reason not to do something.
pub(crate) const REFUSAL: &str = "headend/refusal";
/// Prefix of the gateway's keys.
const OURS: &[u8] = b"headend/";
/// Key of `_meta` for the refusal of a gateway behind this one.
const UPSTREAM_REFUSAL: &str = "headend/upstream-refusal";

/// A place in a message that can have a `_meta`, or leads to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The result of a request.
    Result,
    /// `params`, a content block, a definition, a message of a prompt, and any other object with a `_meta`.
    Open,
    /// `inputRequests`: requests by key.
    Requests,
    /// One of these requests.
    Request,
    /// An error object.
    Error,
    /// Its `data`.
    ErrorData,
}

impl Place {
    /// The place that a member leads to. Source: the schemas of all revisions, and that of the tasks extension.
    pub(super) fn of_member(self, key: &str) -> Option<Self> {
        // Some readers ignore the case of keys.
        let is = |names: &[&str]| names.iter().any(|name| key.eq_ignore_ascii_case(name));
        let items = ["tools", "prompts", "resources", "resourceTemplates", "tasks"];
        match self {
            // Content of results, messages and tool results; messages of prompts and of sampling; contents of resources.
            Self::Result | Self::Open if is(&["content", "messages", "contents", "resource"]) => Some(Self::Open),
            Self::Result | Self::Open if is(&items) || is(&["task"]) => Some(Self::Open),
            // Result of a task that has ended.
            Self::Result | Self::Open if is(&["result"]) => Some(Self::Result),
            Self::Result | Self::Open if is(&["inputRequests"]) => Some(Self::Requests),
            Self::Result | Self::Open if is(&["error"]) => Some(Self::Error),
            Self::Requests => Some(Self::Request),
            Self::Request if is(&["params"]) => Some(Self::Open),
            Self::Error if is(&["data"]) => Some(Self::ErrorData),
            // Pages that error -32042 asks to open.
            Self::ErrorData if is(&["elicitations"]) => Some(Self::Open),
            Self::Result | Self::Open | Self::Request | Self::Error | Self::ErrorData => None,
        }
    }

    fn has_meta(self) -> bool {
        matches!(self, Self::Result | Self::Open)
    }
}

/// The value without our keys, and their number. The refusal of a result is kept under a key that names its server.
pub(super) fn without_ours(value: &RawJson, place: Place, upstream: &str) -> (RawJson, usize) {
    let mut walk = Walk {
        text: value.bytes(),
        at: 0,
        open: Vec::new(),
        upstream,
        moved: false,
        out: Vec::new(),
        copied: 0,
        keys: 0,
    };
    walk.run(place);
    let Walk { mut out, copied, keys, .. } = walk;
    if keys == 0 {
        return (value.clone(), 0);
    }
    out.extend_from_slice(value.bytes().get(copied..).unwrap_or_default());
    (RawJson::trusted(out), keys)
}

/// An array or object that the walk has entered.
#[derive(Clone, Copy)]
struct Level {
    place: Place,
    is_object: bool,
}

/// Walks through valid JSON and copies everything but the removed keys.
struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    open: Vec<Level>,
    upstream: &'a str,
    /// The first refusal was moved to its new key; a second one is removed.
    moved: bool,
    out: Vec<u8>,
    /// End of the part of the text that was copied or removed.
    copied: usize,
    keys: usize,
}

impl<'a> Walk<'a> {
    fn run(&mut self, place: Place) {
        self.value(Some(place));
        while let Some(level) = self.open.last().copied() {
            match self.next_byte() {
                Some(b'}' | b']') => {
                    self.at += 1;
                    self.open.pop();
                }
                Some(b',') => self.at += 1,
                Some(b'"') if level.is_object => {
                    let key = self.key();
                    // Half of a surrogate pair occurs in no key of the protocol.
                    let name = serde_json::from_slice::<Cow<'_, str>>(key).unwrap_or_default();
                    if level.place.has_meta() && name.eq_ignore_ascii_case("_meta") && self.next_byte() == Some(b'{') {
                        self.meta(level.place == Place::Result);
                    } else {
                        self.value(level.place.of_member(&name));
                    }
                }
                Some(_) if !level.is_object => self.value(Some(level.place)),
                Some(_) | None => return,
            }
        }
    }

    /// Enters a value that leads on, and steps over any other.
    fn value(&mut self, place: Option<Place>) {
        // The protocol has lists of objects and no lists of lists.
        let in_list = self.open.last().is_some_and(|level| !level.is_object);
        match (self.next_byte(), place) {
            (Some(b'{'), Some(place)) => self.enter(Level { place, is_object: true }),
            (Some(b'['), Some(place)) if !in_list => self.enter(Level { place, is_object: false }),
            _ => self.skip(),
        }
    }

    fn enter(&mut self, level: Level) {
        self.at += 1;
        self.open.push(level);
    }

    /// Walks through the members of a `_meta`.
    fn meta(&mut self, of_result: bool) {
        self.at += 1;
        let (mut some_kept, mut last_end) = (false, self.at);
        while self.next_byte() == Some(b'"') {
            let start = self.at;
            let key = self.key();
            self.next_byte();
            let value = self.at;
            self.skip();
            let end = self.at;
            let follows = self.next_byte() == Some(b',');
            if follows {
                self.at += 1;
                self.next_byte();
            }
            if !begins(key, OURS) {
                some_kept = true;
            } else if of_result && !self.moved && is_refusal(key) && self.text.get(value) == Some(&b'{') {
                (some_kept, self.moved) = (true, true);
                let told = RawJson::string(self.upstream);
                let head = format!(r#""{UPSTREAM_REFUSAL}":{{"upstream":{},"refusal":"#, told.text());
                self.replace(start..value, head.as_bytes());
                self.replace(end..end, b"}");
                self.keys += 1;
            } else {
                // Remove the comma before it; before the first kept member, the one after it.
                let gone = match (some_kept, follows) {
                    (true, _) => last_end..end,
                    (false, true) => start..self.at,
                    (false, false) => start..end,
                };
                self.replace(gone, b"");
                self.keys += 1;
            }
            last_end = end;
        }
        if self.next_byte() == Some(b'}') {
            self.at += 1;
        }
    }

    /// Replaces bytes, which come after all earlier replacements.
    fn replace(&mut self, gone: std::ops::Range<usize>, with: &[u8]) {
        self.out.extend_from_slice(self.text.get(self.copied..gone.start).unwrap_or_default());
        self.out.extend_from_slice(with);
        self.copied = gone.end;
    }

    /// The next byte that is not white space.
    fn next_byte(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Steps over a key and its colon; returns the literal with its quotes.
    fn key(&mut self) -> &'a [u8] {
        let start = self.at;
        self.string();
        let literal = self.text.get(start..self.at).unwrap_or_default();
        if self.next_byte() == Some(b':') {
            self.at += 1;
        }
        literal
    }

    /// Steps over a string.
    fn string(&mut self) {
        self.at += 1;
        while let Some(rest) = self.text.get(self.at..) {
            match memchr::memchr2(b'"', b'\\', rest) {
                Some(n) if rest.get(n) == Some(&b'\\') => self.at += n + 2,
                Some(n) => {
                    self.at += n + 1;
                    return;
                }
                None => break,
            }
        }
        self.at = self.text.len();
    }

    /// Steps over any value.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.next_byte() {
            match byte {
                b'"' => self.string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                b',' | b':' => self.at += 1,
                _ => self.scalar(),
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Steps over a number, `true`, `false` or `null`.
    fn scalar(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'));
        self.at += end.unwrap_or(rest.len()).max(1);
    }
}

fn is_refusal(key: &[u8]) -> bool {
    serde_json::from_slice::<Cow<'_, str>>(key).is_ok_and(|key| key == REFUSAL)
}

/// Whether a string literal, with its escapes read, begins with this text. Any text may follow, half a surrogate pair
/// too.
fn begins(literal: &[u8], text: &[u8]) -> bool {
    let mut rest = literal.get(1..).unwrap_or_default();
    text.iter().all(|want| {
        let (read, after) = match rest {
            [b'\\', b'u', after @ ..] => {
                let digits = after.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
                let read = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                (read, after.get(4..).unwrap_or_default())
            }
            [b'\\', b'/', after @ ..] => (Some(u32::from(b'/')), after),
            [byte, after @ ..] => (Some(u32::from(*byte)), after),
            [] => (None, rest),
        };
        rest = after;
        read == Some(u32::from(*want))
    })
}
