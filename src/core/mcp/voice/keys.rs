//! Removes the gateway's keys from every `_meta` of the protocol and keeps every other byte.
//!
//! One pass over the text without recursion. It enters only values that lead to a `_meta`, and
//! skips free content such as `structuredContent`, `arguments` or the `data` of a log message.

use crate::wire::json::raw::RawJson;
use crate::wire::json::tokens::{JsonTokens, TokenKind, unescaped};

/// The key of `_meta` for the gateway's reason not to make a call.
pub const REFUSAL: &str = "headend/refusal";
/// The prefix of the gateway's keys.
const OURS: &[u8] = b"headend/";
/// The key of `_meta` for the refusal of a gateway behind this one.
const UPSTREAM_REFUSAL: &str = "headend/upstream-refusal";

/// The role of a value in a message, if the value can have a `_meta` or leads to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaRole {
    /// The result of a request.
    Result,
    /// `params`, a content block, a definition, a message of a prompt, and any other object with a
    /// `_meta`.
    Open,
    /// `inputRequests`: requests by key.
    Requests,
    /// A request among `inputRequests`.
    Request,
    /// An error object.
    Error,
    /// The `data` of an error object.
    ErrorData,
}

impl MetaRole {
    /// Returns the role of the value of a member; `None` if it leads to no `_meta`. Source: the
    /// schemas of all revisions, and of the tasks extension.
    pub(super) fn of_member(self, key: &str) -> Option<Self> {
        // Some readers ignore the case of keys.
        let is = |names: &[&str]| names.iter().any(|name| key.eq_ignore_ascii_case(name));
        let items = ["tools", "prompts", "resources", "resourceTemplates", "tasks"];
        match self {
            // Content of results, messages and tool results; messages of prompts and of sampling;
            // contents of resources.
            Self::Result | Self::Open if is(&["content", "messages", "contents", "resource"]) => Some(Self::Open),
            Self::Result | Self::Open if is(&items) || is(&["task"]) => Some(Self::Open),
            // The result of a task that has ended.
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

/// Returns the value without the gateway's keys, and their number. The refusal of a result is kept
/// under a key that names its server.
pub(super) fn remove_own_keys(value: &RawJson, place: MetaRole, upstream: &str) -> (RawJson, usize) {
    let (text, tokens) = (value.bytes(), JsonTokens::of(value.bytes()));
    let mut walk =
        MetaWalk { text, tokens, open: Vec::new(), upstream, moved: false, out: Vec::new(), copied: 0, keys: 0 };
    walk.run(place);
    let MetaWalk { mut out, copied, keys, .. } = walk;
    if keys == 0 {
        return (value.clone(), 0);
    }
    out.extend_from_slice(value.bytes().get(copied..).unwrap_or_default());
    (RawJson::trusted(out), keys)
}

/// An array or object that the walk has entered.
#[derive(Clone, Copy)]
struct OpenLevel {
    place: MetaRole,
    is_object: bool,
}

/// A walk through valid JSON that copies everything except the removed keys.
struct MetaWalk<'a> {
    text: &'a [u8],
    tokens: JsonTokens<'a>,
    open: Vec<OpenLevel>,
    upstream: &'a str,
    /// True once a refusal was moved to its new key; a second one is removed.
    moved: bool,
    out: Vec<u8>,
    /// The end of the part of the text that was copied or removed.
    copied: usize,
    keys: usize,
}

impl MetaWalk<'_> {
    /// Walks through the whole text, whose root has this role.
    fn run(&mut self, place: MetaRole) {
        // The role of the next value; `None` if it leads to no `_meta`.
        let mut leads = Some(place);
        while let Some(token) = self.tokens.next() {
            match token.kind {
                TokenKind::Object | TokenKind::Array => {
                    let level = leads.map(|place| OpenLevel { place, is_object: token.kind == TokenKind::Object });
                    // The protocol has lists of objects and no lists of lists.
                    let in_list = self.open.last().is_some_and(|level| !level.is_object);
                    match level.filter(|level| level.is_object || !in_list) {
                        Some(level) => self.open.push(level),
                        None => self.tokens.skip_to(self.tokens.depth() - 1),
                    }
                }
                TokenKind::ObjectEnd | TokenKind::ArrayEnd => {
                    self.open.pop();
                }
                TokenKind::Comma | TokenKind::Key | TokenKind::String | TokenKind::Scalar => {}
            }
            let Some(OpenLevel { place, is_object }) = self.open.last().copied() else { return };
            leads = Some(place).filter(|_| !is_object);
            if token.kind == TokenKind::Key {
                // Half of a surrogate pair is in no key of the protocol.
                let name = unescaped(self.tokens.literal(token)).unwrap_or_default();
                if place.has_meta() && name.eq_ignore_ascii_case("_meta") && self.tokens.peek() == Some(b'{') {
                    self.meta(place == MetaRole::Result);
                } else {
                    leads = place.of_member(&name);
                }
            }
        }
    }

    /// Walks through the members of a `_meta`, removes the gateway's, and moves the first refusal
    /// if it is a result's.
    fn meta(&mut self, of_result: bool) {
        self.tokens.next();
        let (mut some_kept, mut last_end) = (false, self.tokens.at());
        while let Some(token) = self.tokens.next().filter(|token| token.kind == TokenKind::Key) {
            let (start, key) = (token.start, self.tokens.literal(token));
            let is_object = self.tokens.peek() == Some(b'{');
            let value = self.tokens.at();
            self.tokens.skip_value();
            let end = self.tokens.at();
            let follows = self.tokens.peek() == Some(b',');
            if follows {
                self.tokens.next();
                self.tokens.peek();
            }
            if !starts_with_unescaped(key, OURS) {
                some_kept = true;
            } else if of_result && !self.moved && is_object && is_refusal(key) {
                (some_kept, self.moved) = (true, true);
                let told = RawJson::string(self.upstream);
                let head = format!(r#""{UPSTREAM_REFUSAL}":{{"upstream":{},"refusal":"#, told.text());
                self.replace(start..value, head.as_bytes());
                self.replace(end..end, b"}");
                self.keys += 1;
            } else {
                // Removes the comma before the member, too; before the first kept member, the comma
                // after it.
                let gone = match (some_kept, follows) {
                    (true, _) => last_end..end,
                    (false, true) => start..self.tokens.at(),
                    (false, false) => start..end,
                };
                self.replace(gone, b"");
                self.keys += 1;
            }
            last_end = end;
        }
    }

    /// Replaces a range of bytes, which has to come after all earlier replacements.
    fn replace(&mut self, gone: std::ops::Range<usize>, with: &[u8]) {
        self.out.extend_from_slice(self.text.get(self.copied..gone.start).unwrap_or_default());
        self.out.extend_from_slice(with);
        self.copied = gone.end;
    }
}

/// Reports whether a key is [`REFUSAL`], in any spelling.
fn is_refusal(key: &[u8]) -> bool {
    unescaped(key).is_some_and(|key| key == REFUSAL)
}

/// Reports whether a string literal, unescaped, begins with this text. Any text may follow, half a
/// surrogate pair too.
fn starts_with_unescaped(literal: &[u8], text: &[u8]) -> bool {
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
