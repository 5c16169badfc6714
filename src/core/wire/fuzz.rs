//! Properties of the message layer that hold for any bytes; the fuzz targets and tests call them.
#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a property fails by panicking")]

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::canonical;
use super::frame::{Frame, FrameError, JsonBounds};
use super::headers::{ParamHeaders, decode_value, encode_value};
use super::lines::{LineDecoder, StreamLine};
use super::message::{Message, encode_answer, encode_notification, encode_request};
use super::sse::{SseDecoder, SseError, SseEvent, event};
use crate::wire::json::plain::is_plain;
use crate::wire::json::raw::{RawJson, RawObject, elements};

/// Reads the bytes as one JSON value, as a frame of an upstream holds it. `None` also for a value
/// that is nested more than 64 levels deep, beyond what readers of single values handle.
pub fn value(data: &[u8]) -> Option<RawJson> {
    let frame = Frame::from_upstream(Bytes::copy_from_slice(data)).ok()?;
    frame.within(JsonBounds { depth: 64, nodes: usize::MAX }).ok()?;
    let raw: &RawValue = serde_json::from_slice(frame.bytes()).ok()?;
    Some(RawJson::slice_of(frame.bytes(), raw))
}

/// Splits the bytes at the first line feed.
pub fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let at = memchr::memchr(b'\n', data).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

/// Panics unless `raw` is one JSON value.
pub(crate) fn assert_json(raw: &RawJson) {
    assert!(serde_json::from_slice::<&RawValue>(raw.bytes()).is_ok(), "not JSON: {}", raw.text());
}

/// Cuts bytes into chunks whose sizes come from the bytes themselves.
fn chunks(data: &[u8]) -> impl Iterator<Item = Bytes> + '_ {
    let mut rest = data;
    let mut turn = data.len();
    std::iter::from_fn(move || {
        let size = usize::from(*rest.get(turn % rest.len().max(1))?) % 7 + 1;
        turn = turn.wrapping_mul(31).wrapping_add(size);
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        Some(Bytes::copy_from_slice(chunk))
    })
}

/// Checks that admission of a client's frame is stable (an admitted frame is admitted again,
/// unchanged), and that it refuses exactly the frames with a key twice.
pub fn frames(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(frame) = Frame::from_upstream(bytes.clone()) {
        reads(&frame);
    }
    let admitted = Frame::from_client(bytes.clone(), JsonBounds::CLIENT);
    let frame = match admitted {
        Ok(frame) => frame,
        Err(FrameError::DuplicateKey) => {
            let frame = Frame::from_upstream(bytes).unwrap();
            assert!(serde_json::from_slice::<UniqueKeys>(frame.bytes()).is_err(), "no key stands twice");
            return;
        }
        Err(FrameError::NotUtf8 | FrameError::Syntax | FrameError::TooDeep | FrameError::TooManyNodes) => return,
    };
    assert!(memchr::memchr2(b'\r', b'\n', frame.bytes()).is_none());
    let again = Frame::from_client(frame.bytes().clone(), JsonBounds::CLIENT).unwrap();
    assert_eq!(again.bytes(), frame.bytes());
    if reads(&frame)
        && let Err(error) = serde_json::from_slice::<UniqueKeys>(frame.bytes())
    {
        assert!(!error.to_string().contains("twice"), "a key stands twice: {error}");
    }
}

/// Reads a message and checks that its encoding reads back as the same parts; returns whether the
/// frame is a message at all.
fn reads(frame: &Frame) -> bool {
    let Ok(message) = Message::parse(frame) else { return false };
    let encoded = match &message {
        Message::Request(request) if is_plain(&request.method) => {
            encode_request(request.id.raw(), &request.method, request.params.as_ref())
        }
        Message::Notification(notice) if is_plain(&notice.method) => {
            encode_notification(&notice.method, notice.params.as_ref())
        }
        Message::Response(response) if response.id.is_some() => {
            encode_answer(response.id.as_ref().unwrap(), &response.outcome)
        }
        Message::Request(_) | Message::Notification(_) | Message::Response(_) => return true,
    };
    let again = Message::parse(&Frame::from_upstream(encoded).unwrap()).unwrap();
    match (&message, &again) {
        (Message::Request(a), Message::Request(b)) => {
            assert_eq!((a.id.key(), &a.method), (b.id.key(), &b.method));
            assert!(a.params == b.params);
        }
        (Message::Notification(a), Message::Notification(b)) => {
            assert!(a.method == b.method && a.params == b.params);
        }
        (Message::Response(a), Message::Response(b)) => assert!(a.id == b.id && a.outcome == b.outcome),
        _ => panic!("{message:?} became {again:?}"),
    }
    true
}

/// A reader of JSON that fails if an object has a key twice; slow and simple, as a reference.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut seen = HashSet::new();
        while let Some((key, Self)) = map.next_entry::<String, Self>()? {
            if !seen.insert(key) {
                return Err(A::Error::custom("a key stands twice"));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while let Some(Self) = seq.next_element()? {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

/// Checks that lines do not depend on how a stream is cut into chunks, and that each keeps the
/// limit.
pub fn lines(data: &[u8]) {
    let limit = data.first().map_or(1, |first| usize::from(*first) + 1);
    let read = |parts: &mut dyn Iterator<Item = Bytes>| {
        let mut decoder = LineDecoder::new(limit);
        let mut found = Vec::new();
        for part in parts {
            decoder.buffer().extend_from_slice(&part);
            found.extend(std::iter::from_fn(|| decoder.next_line()));
        }
        (found, decoder.finish())
    };
    let whole = read(&mut std::iter::once(Bytes::copy_from_slice(data)));
    assert_eq!(whole, read(&mut chunks(data)));
    for line in &whole.0 {
        let (StreamLine::Full(text) | StreamLine::Oversize { prefix: text, .. }) = line;
        assert!(text.len() <= limit && !text.contains(&b'\n'));
    }
}

/// Checks that events do not depend on how a stream is cut into chunks, and that the encoder's
/// output reads back as the same event.
pub fn sse(data: &[u8]) {
    let limit = data.first().map_or(64, |first| 64 + usize::from(*first));
    let whole = events(limit, &mut std::iter::once(Bytes::copy_from_slice(data)));
    let cut = events(limit, &mut chunks(data));
    assert_eq!(whole, cut);
    for found in whole.into_iter().flatten() {
        assert!(std::str::from_utf8(&found.data).is_ok());
        if memchr::memchr2(b'\n', b'\r', &found.data).is_some() {
            continue;
        }
        let written = event(found.id.as_deref(), found.name.as_deref(), &[&found.data]);
        let wanted = SseEvent { retry: None, ..found };
        assert_eq!(events(4096, &mut chunks(&written)), [Ok(wanted)]);
    }
}

fn events(limit: usize, parts: &mut dyn Iterator<Item = Bytes>) -> Vec<Result<SseEvent, SseError>> {
    let mut decoder = SseDecoder::new(limit);
    let mut found = Vec::new();
    for part in parts {
        decoder.push(part);
        found.extend(std::iter::from_fn(|| decoder.next_event()).map(|event| event.map_err(SseError::without_start)));
    }
    found
}

/// Checks that any text travels in a header, and that the headers made from arguments pass the
/// comparison with them. The bytes are a header's value; or a schema, a line feed and arguments.
pub fn headers(data: &[u8]) {
    if let Ok(text) = decode_value(data) {
        assert_eq!(decode_value(encode_value(&text).as_bytes()).unwrap(), text);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let encoded = encode_value(text);
        assert!(encoded.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')), "{encoded:?}");
        assert_eq!(decode_value(encoded.as_bytes()).unwrap(), text);
    }
    let (schema, arguments) = halves(data);
    let Some(schema) = value(schema) else { return };
    let Ok(mirrored) = ParamHeaders::from_schema(&schema.text()) else { return };
    let arguments = value(arguments).filter(RawJson::is_object);
    let arguments = arguments.as_ref().map(RawJson::text);
    let Ok(made) = mirrored.values(arguments.as_deref()) else { return };
    let find = |name: &str| {
        let is = |(made, _): &&(String, String)| name.strip_prefix("Mcp-Param-") == Some(made.as_str());
        made.iter().find(is).map(|(_, value)| value.as_bytes())
    };
    assert_eq!(mirrored.check(arguments.as_deref(), find), Ok(()));
}

/// Checks that a canonical text is JSON and its own canonical text, and that an object that is
/// parsed and encoded again is equal and has the same canonical text.
pub fn canonical(data: &[u8]) {
    let Some(value) = value(data) else { return };
    let canonical_text = canonical::canonicalize(&value).ok().map(|text| RawJson::trusted(text.into_owned()));
    if let Some(text) = &canonical_text {
        assert_json(text);
        assert_eq!(canonical::canonicalize(text).unwrap(), text.bytes().as_ref());
    }
    if let Ok(items) = elements(&value) {
        items.iter().for_each(assert_json);
    }
    let Ok(object) = RawObject::parse(&value) else { return };
    let encoded = object.encode();
    assert_json(&encoded);
    assert!(RawObject::parse(&encoded).unwrap() == object);
    assert!(canonical::canonicalize(&encoded).ok().map(|text| RawJson::trusted(text.into_owned())) == canonical_text);
}

/// Writes a second text into the middle of a sealed one, either over as many bytes or as an
/// insertion.
pub(crate) fn spliced(sealed: &str, other: &str) -> String {
    let at = other.bytes().map(usize::from).sum::<usize>() % (sealed.len() + 1);
    let rest = if other.len().is_multiple_of(2) { sealed.get(at + other.len()..) } else { sealed.get(at..) };
    [sealed.get(..at), Some(other), rest].into_iter().flatten().collect()
}
