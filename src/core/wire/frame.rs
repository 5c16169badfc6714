//! Admission of messages: bytes become a [`Frame`] only if they are UTF-8, one JSON value, and
//! within bounds.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use serde::de::IgnoredAny;

use crate::wire::json::envelope::Envelope;
use crate::wire::json::raw::has_duplicates;
use crate::wire::json::tokens::{JsonTokens, TokenKind};

/// An admitted message: UTF-8, without a byte order mark and without CR or LF, so that it fits a
/// line and an SSE field.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: Bytes,
    /// Positions of the message's members, if admission has read them.
    envelope: Option<Envelope>,
}

/// Bounds of a message's JSON. The size in bytes is bounded where the bytes are read.
#[derive(Clone, Copy, Debug)]
pub struct JsonBounds {
    /// The limit for the nesting of arrays and objects, in levels.
    pub depth: usize,
    /// The limit for the number of values, keys included.
    pub nodes: usize,
}

impl JsonBounds {
    /// Bounds of a client's message: real arguments stay below ten levels.
    pub const CLIENT: Self = Self { depth: 64, nodes: 100_000 };
    /// Bounds of an upstream's message: clients' own parsers give up at 100 to 1000 levels, and a
    /// million numbers pass.
    pub const UPSTREAM: Self = Self { depth: 256, nodes: 2_000_000 };
}

/// The reason why bytes are not admitted as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("not UTF-8")]
    NotUtf8,
    #[error("not valid JSON")]
    Syntax,
    #[error("nested too deeply")]
    TooDeep,
    #[error("too many values")]
    TooManyNodes,
    #[error("an object has the same key twice")]
    DuplicateKey,
}

impl Frame {
    /// Admits bytes of an upstream. Only the encoding is checked here. The grammar is checked when
    /// the message is parsed, and the bounds after that, since a message that breaks them still has
    /// to end the call that it answers.
    ///
    /// # Errors
    /// [`FrameError::NotUtf8`].
    pub fn from_upstream(bytes: Bytes) -> Result<Self, FrameError> {
        let bytes = strip_bom(bytes);
        if std::str::from_utf8(&bytes).is_err() {
            return Err(FrameError::NotUtf8);
        }
        Ok(Self { bytes: replace_line_breaks(bytes), envelope: None })
    }

    /// Admits bytes of a client: checks the bounds, and that no object at any depth has a key
    /// twice, because the upstream might read the other value than the one that was judged. The
    /// grammar of an object is checked here or when it is parsed as a message.
    ///
    /// # Errors
    /// The first bound or rule that the bytes break.
    pub fn from_client(bytes: Bytes, bounds: JsonBounds) -> Result<Self, FrameError> {
        let mut frame = Self::from_upstream(bytes)?;
        frame.envelope = Envelope::within(&frame.bytes, bounds.depth, bounds.nodes);
        if frame.envelope.is_none() {
            frame.check(bounds)?;
        }
        Ok(frame)
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the positions of the message's members; `None` if only a full parse can tell.
    pub(crate) fn envelope(&self) -> Option<Envelope> {
        self.envelope.or_else(|| Envelope::of(&self.bytes))
    }

    /// Checks the bounds of a frame whose grammar was checked before.
    ///
    /// # Errors
    /// The first bound that the frame breaks.
    pub fn within(&self, bounds: JsonBounds) -> Result<(), FrameError> {
        // Quick check that most frames pass: a value takes at least a byte and its separator, and a
        // level takes its opening bracket.
        let few_values = self.bytes.len().div_ceil(2) <= bounds.nodes;
        if few_values && memchr::memchr2_iter(b'{', b'[', &self.bytes).nth(bounds.depth).is_none() {
            return Ok(());
        }
        self.scan(bounds, false)
    }

    /// Checks bounds and duplicate keys, and the grammar of text that is no object.
    fn check(&self, bounds: JsonBounds) -> Result<(), FrameError> {
        let scanned = self.scan(bounds, true);
        let is_object = self.bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        if is_object && scanned.is_ok() {
            return Ok(());
        }
        // The scan's verdict means nothing for text that is not JSON.
        match serde_json::from_slice::<IgnoredAny>(&self.bytes) {
            Err(error) if !error.to_string().starts_with("recursion limit") => Err(FrameError::Syntax),
            Err(_) | Ok(_) => scanned,
        }
    }

    /// Checks depth and number of values; `compares` also checks each object for a key that occurs
    /// twice.
    fn scan(&self, bounds: JsonBounds, compares: bool) -> Result<(), FrameError> {
        let mut tokens = JsonTokens::of(&self.bytes);
        // Keys of all open objects, innermost last, and the index of each object's first key.
        let (mut keys, mut starts) = (Vec::new(), Vec::new());
        let mut nodes = 0;
        while let Some(token) = tokens.next() {
            match token.kind {
                TokenKind::Comma | TokenKind::ArrayEnd => continue,
                TokenKind::ObjectEnd => {
                    let start = starts.pop().unwrap_or(keys.len());
                    if has_duplicates(keys.get_mut(start..).unwrap_or_default()) {
                        return Err(FrameError::DuplicateKey);
                    }
                    keys.truncate(start);
                    continue;
                }
                TokenKind::Object if compares => starts.push(keys.len()),
                TokenKind::Key if compares => {
                    keys.push(tokens.unquoted(token).unwrap_or(Cow::Borrowed(tokens.literal(token))));
                }
                TokenKind::Object | TokenKind::Array | TokenKind::Key | TokenKind::String | TokenKind::Scalar => {}
            }
            nodes += 1;
            if nodes > bounds.nodes {
                return Err(FrameError::TooManyNodes);
            }
            if tokens.depth() > bounds.depth {
                return Err(FrameError::TooDeep);
            }
        }
        Ok(())
    }
}

fn strip_bom(mut bytes: Bytes) -> Bytes {
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        bytes = bytes.slice(3..);
    }
    bytes
}

/// Replaces line breaks by spaces. In valid JSON they stand only between tokens, so the value stays
/// equal. Copies bytes that are shared.
pub fn replace_line_breaks(bytes: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &bytes).is_none() {
        return bytes;
    }
    let mut bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(shared.as_ref()));
    for byte in bytes.iter_mut() {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::grammar::tests::json;
    use crate::wire::message::{Message, MessageError};
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    /// Admits a text, and for an object also checks the grammar with the parser of messages.
    fn admit(text: &str) -> Result<Frame, FrameError> {
        let frame = Frame::from_client(Bytes::copy_from_slice(text.as_bytes()), JsonBounds::CLIENT)?;
        match Message::parse(&frame) {
            Err(MessageError::Syntax) => Err(FrameError::Syntax),
            Ok(_) | Err(MessageError::Shape { .. }) => Ok(frame),
        }
    }

    #[test]
    fn only_one_well_formed_value_without_twin_keys_is_admitted() {
        for (label, text, want) in [
            ("plain", r#"{"a":[1,{"b":"c,}"}],"d":"\"{"}"#, Ok(())),
            ("same key in different objects", r#"{"a":{"a":1},"b":{"a":2}}"#, Ok(())),
            ("same key around a child", r#"{"a":{"x":1},"a":2}"#, Err(FrameError::DuplicateKey)),
            ("same key deep inside an array", r#"[[{"x":1,"x":2}]]"#, Err(FrameError::DuplicateKey)),
            ("same key by escape", r#"{"name":1,"n\u0061me":2}"#, Err(FrameError::DuplicateKey)),
            ("value equal to a key", r#"{"a":"b","b":"a"}"#, Ok(())),
            ("trailing comma", r#"{"a":1,}"#, Err(FrameError::Syntax)),
            ("two values", "{}{}", Err(FrameError::Syntax)),
            ("nothing", "", Err(FrameError::Syntax)),
            ("lone surrogate in a value", r#"{"a":"\ud800"}"#, Ok(())),
        ] {
            assert_eq!(admit(text).map(|_| ()), want, "{label}");
        }
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(admit(&nested(64)).is_ok());
        assert_eq!(admit(&nested(65)).unwrap_err(), FrameError::TooDeep);
        assert_eq!(admit(&nested(100_000)).unwrap_err(), FrameError::TooDeep);
        assert_eq!(admit(&format!("[{}1]", "1,".repeat(100_000))).unwrap_err(), FrameError::TooManyNodes);
        let keys: Vec<String> = (0..50).map(|n| format!("\"k{n}\":1")).collect();
        assert!(admit(&format!("{{{}}}", keys.join(","))).is_ok());
        assert_eq!(admit(&format!("{{{},\"k7\":2}}", keys.join(","))).unwrap_err(), FrameError::DuplicateKey);
    }

    #[test]
    fn what_an_upstream_sends_is_held_against_the_bounds_whatever_its_size() {
        let bounds = JsonBounds { depth: 4, nodes: 20 };
        for (text, want) in [
            ("[[[[1]]]]", Ok(())),
            ("[[[[[1]]]]]", Err(FrameError::TooDeep)),
            (r#"{"a":[{"b":[{}]}]}"#, Err(FrameError::TooDeep)),
            (r#"["[[[[[[[[[[", "{{{{{{{{{{"]"#, Ok(())),
            ("[[],[],[],[],[],[],[],[]]", Ok(())),
            ("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", Ok(())),
            ("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", Err(FrameError::TooManyNodes)),
            (r#"{"a":1,"a":2}"#, Ok(())),
        ] {
            assert_eq!(
                Frame::from_upstream(Bytes::from_static(text.as_bytes())).unwrap().within(bounds),
                want,
                "{text}"
            );
        }
    }

    #[test]
    fn line_breaks_and_the_byte_order_mark_disappear() {
        let frame = admit("\u{feff}{\r\n\"a\": \"b\\n\"\n}").unwrap();
        assert_eq!(frame.bytes().as_ref(), b"{  \"a\": \"b\\n\" }");
        assert_eq!(Frame::from_upstream(Bytes::from_static(b"\xff")).unwrap_err(), FrameError::NotUtf8);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn one_pass_admits_what_the_scan_admits(text in json(), depth in 0_usize..6, nodes in 0_usize..30) {
            let bounds = JsonBounds { depth, nodes };
            let frame = Frame::from_upstream(Bytes::from(text.clone())).unwrap();
            let is_object = serde_json::from_slice::<&RawValue>(frame.bytes()).is_ok_and(|json| json.get().starts_with('{'));
            let admitted = is_object && frame.check(bounds).is_ok();
            prop_assert_eq!(Envelope::within(frame.bytes(), depth, nodes).is_some(), admitted, "{}", text);
        }
    }

    proptest! {
        #[test]
        fn every_value_that_serde_writes_is_admitted(keys in prop::collection::btree_map(".*", ".*", 0..20)) {
            let text = serde_json::to_string(&keys).unwrap();
            prop_assert!(admit(&text).is_ok());
        }
    }
}
