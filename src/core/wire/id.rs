//! Request ids and progress tokens: a client's, echoed byte for byte, and headend's own towards
//! upstreams.

use std::fmt;

use crate::wire::json::raw::RawJson;
use crate::wire::json::tokens::unescaped;

/// The longest id or progress token accepted from a client, in bytes of JSON text.
pub const MAX_ID_BYTES: usize = 1024;

/// The `id` of a client's request, or its progress token: a string or an integer, kept as written.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientId(RawJson);

impl ClientId {
    /// Accepts a JSON string or integer; `None` for anything else.
    ///
    /// Fractions, exponents, `null`, other types and texts over [`MAX_ID_BYTES`] are refused:
    /// JSON-RPC demands a string or an integer, and every official SDK reads integers only.
    pub fn from_raw(raw: RawJson) -> Option<Self> {
        let text = raw.bytes();
        let fits = text.len() <= MAX_ID_BYTES;
        let is_id = match text.first()? {
            b'"' => unescaped(text).is_some(),
            b'-' | b'0'..=b'9' => !text.iter().any(|b| matches!(b, b'.' | b'e' | b'E')),
            _ => false,
        };
        (fits && is_id).then_some(Self(raw))
    }

    /// Returns the JSON text to echo.
    pub fn raw(&self) -> &RawJson {
        &self.0
    }

    /// Returns a key for tables. Ids that differ in their escapes only have equal keys; `"1"` and
    /// `1` stay different.
    pub fn key(&self) -> IdKey {
        let text = self.0.bytes();
        if memchr::memchr(b'\\', text).is_none() {
            return IdKey(text.clone());
        }
        let plain = unescaped(text).map(|text| RawJson::string(&text));
        IdKey(plain.unwrap_or_else(|| self.0.clone()).into_bytes())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({})", self.0.text())
    }
}

/// The key of a client's id in a table of its requests in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdKey(bytes::Bytes);

/// A request id of headend's own towards an upstream; also the progress token of that request.
///
/// The low 12 bits are a slot of the pending table, the bits above count the uses of that slot, so
/// a response that arrives after its call ended can never be taken for the slot's next call. Stays
/// below 2^53, which JavaScript servers need, and does not wrap within 2^41 uses of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireId(pub u64);

impl WireId {
    const SLOT_BITS: u32 = 12;
    const MAX_USE: u64 = 1 << 41;
    /// The limit of calls that one upstream can have in flight.
    pub const MAX_SLOTS: usize = 1 << Self::SLOT_BITS;

    pub fn new(slot: usize, uses: u64) -> Self {
        let slot = slot as u64 % Self::MAX_SLOTS as u64;
        Self(((uses % Self::MAX_USE) << Self::SLOT_BITS) | slot)
    }

    pub fn slot(self) -> usize {
        usize::try_from(self.0 % Self::MAX_SLOTS as u64).unwrap_or_default()
    }

    /// Returns the number of uses of the slot, the bits above the slot number.
    pub const fn number(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    /// Reads the id of a response; `None` if it cannot be one of ours.
    pub fn from_raw(raw: &RawJson) -> Option<Self> {
        raw.parse::<u64>().ok().map(Self)
    }

    /// Reads the token of a progress notification, which may come back in another form, see
    /// [`normalize_number`].
    pub fn from_token(raw: &RawJson) -> Option<Self> {
        Self::from_raw(normalize_number(raw).as_ref().unwrap_or(raw))
    }
}

/// Returns the plain form of a number of ours that came back as a string or with a fraction of
/// zero. `None` for any other value, also for a number in its plain form.
pub(crate) fn normalize_number(raw: &RawJson) -> Option<RawJson> {
    let text = raw.bytes();
    let digits = match text.strip_prefix(b"\"") {
        Some(text) => text.strip_suffix(b"\"")?,
        None => {
            let at = text.iter().position(|byte| *byte == b'.')?;
            let (whole, fraction) = text.split_at_checked(at)?;
            fraction.get(1..)?.iter().all(|byte| *byte == b'0').then_some(whole)?
        }
    };
    let is_plain = digits == b"0" || digits.first().is_some_and(|first| (b'1'..=b'9').contains(first));
    let is_number = is_plain && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| RawJson::trusted(text.slice_ref(digits)))
}

impl fmt::Display for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_strings_and_integers_and_nothing_else() {
        for (text, ok) in [
            ("1", true),
            ("-7", true),
            ("12345678901234567890123", true),
            ("\"a\"", true),
            ("\"\"", true),
            ("1.0", false),
            ("1e3", false),
            ("null", false),
            ("true", false),
            ("{}", false),
            ("[1]", false),
        ] {
            assert_eq!(ClientId::from_raw(RawJson::trusted(text)).is_some(), ok, "{text}");
        }
        let long = format!("\"{}\"", "a".repeat(MAX_ID_BYTES));
        assert!(ClientId::from_raw(RawJson::trusted(long)).is_none());
    }

    #[test]
    fn equal_ids_have_equal_keys_however_they_are_written() {
        let key = |text: &'static str| ClientId::from_raw(RawJson::trusted(text)).unwrap().key();
        assert_eq!(key("\"a\""), key("\"\\u0061\""));
        assert_ne!(key("\"1\""), key("1"));
    }

    #[test]
    fn wire_ids_keep_slot_and_stay_exact_in_a_double() {
        let id = WireId::new(7, u64::MAX);
        assert_eq!(id.slot(), 7);
        assert!(id.0 < 1 << 53);
        assert_ne!(WireId::new(7, 1), WireId::new(7, 2));
    }
}
