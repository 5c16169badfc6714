//! Identifiers: the client's, echoed byte for byte, and our own towards upstreams.

use std::fmt;

use crate::wire::raw::RawJson;
use crate::wire::tokens::unescaped;

/// Longest id or progress token accepted from a client, in bytes of JSON text.
pub const MAX_ID_BYTES: usize = 1024;

/// The `id` of a client's request, or its progress token: a string or an integer, kept as written.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientId(RawJson);

impl ClientId {
    /// Accepts a JSON string or integer.
    ///
    /// Fractions, exponents, `null`, other types and texts over [`MAX_ID_BYTES`] are refused: JSON-RPC demands string or
    /// integer, and every official SDK reads integers only.
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

    /// The text to echo.
    pub fn raw(&self) -> &RawJson {
        &self.0
    }

    /// A key under which equal ids are equal however they are escaped; `"1"` and `1` stay different.
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

/// A client's id in a table of its requests in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdKey(bytes::Bytes);

/// Our own request id towards an upstream; also the progress token of that request.
///
/// The low 12 bits are a slot of the pending table, the bits above count that slot's uses, so a reply that comes after its
/// call ended can never be taken for the slot's next call. Stays below 2^53, which JavaScript servers need, and does not
/// wrap within 2^41 uses of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireId(pub u64);

impl WireId {
    const SLOT_BITS: u32 = 12;
    const MAX_USE: u64 = 1 << 41;
    /// How many calls one upstream can have in flight.
    pub const MAX_SLOTS: usize = 1 << Self::SLOT_BITS;

    pub fn new(slot: usize, uses: u64) -> Self {
        let slot = slot as u64 % Self::MAX_SLOTS as u64;
        Self(((uses % Self::MAX_USE) << Self::SLOT_BITS) | slot)
    }

    pub fn slot(self) -> usize {
        usize::try_from(self.0 % Self::MAX_SLOTS as u64).unwrap_or_default()
    }

    /// Requests of one connection that are sent later have a higher one.
    pub const fn number(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    /// Reads one of our ids back from a reply; anything else is not ours.
    pub fn from_raw(raw: &RawJson) -> Option<Self> {
        raw.parse::<u64>().ok().map(Self)
    }

    /// The same for a progress token, which may come back in another form, see [`number_meant`].
    pub fn from_token(raw: &RawJson) -> Option<Self> {
        Self::from_raw(number_meant(raw).as_ref().unwrap_or(raw))
    }
}

/// The number of ours that came back as its text or with a fraction of nought. `None` for any other
/// value, also for a number that is as it was sent.
pub(crate) fn number_meant(raw: &RawJson) -> Option<RawJson> {
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
