//! One pass over a message: checks its grammar and notes the positions of its envelope's members;
//! for a client's message it also checks the bounds and the keys.
//!
//! This is the fast path for common messages, like the [grammar](crate::wire::json::grammar). If it
//! returns `None`, `frame` and `message` read the text again, and either name the error or accept
//! the message after all.

use crate::wire::json::grammar::{DEEPEST, TokenRange, TokenVisitor, walk};
use crate::wire::json::raw::has_duplicates;

/// Positions of the members of an envelope in the text of its message; unknown members are not
/// noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) jsonrpc: Option<TokenRange>,
    pub(crate) id: Option<TokenRange>,
    pub(crate) method: Option<TokenRange>,
    pub(crate) params: Option<TokenRange>,
    pub(crate) result: Option<TokenRange>,
    pub(crate) error: Option<TokenRange>,
}

impl Envelope {
    /// Reads a message of any size. Returns `None` if the text is no JSON object, has one of these
    /// members twice, or has an escape in a key of the outermost object.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let mut reading = EnvelopeWalk::<false>::new(text, usize::MAX, usize::MAX);
        walk(text, &mut reading)?;
        Some(reading.envelope)
    }

    /// Reads a message within bounds. Also returns `None` if it breaks them, or if any object in it
    /// has a key twice or a key with an escape.
    pub(crate) fn within(text: &[u8], depth: usize, nodes: usize) -> Option<Self> {
        let mut reading = EnvelopeWalk::<true>::new(text, depth, nodes);
        walk(text, &mut reading)?;
        Some(reading.envelope)
    }

    /// Returns the field for a key, quotes included; `None` for an unknown key.
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<TokenRange>> {
        match key {
            b"\"jsonrpc\"" => Some(&mut self.jsonrpc),
            b"\"id\"" => Some(&mut self.id),
            b"\"method\"" => Some(&mut self.method),
            b"\"params\"" => Some(&mut self.params),
            b"\"result\"" => Some(&mut self.result),
            b"\"error\"" => Some(&mut self.error),
            _ => None,
        }
    }
}

/// The state of a walk over a message. `CHECKED` adds the bounds and the comparison of keys.
struct EnvelopeWalk<'t, const CHECKED: bool> {
    text: &'t [u8],
    /// The bounds: levels of nesting, and number of values, keys included.
    deepest: usize,
    most: usize,
    envelope: Envelope,
    depth: usize,
    nodes: usize,
    /// The key of the member that is being read at the top level.
    key: TokenRange,
    /// The position where that member's value begins, if the value is a container.
    start: usize,
    /// Keys of all open objects, innermost last.
    keys: Vec<&'t [u8]>,
    /// For each open container, the index of its first key in `keys`.
    starts: [usize; DEEPEST as usize],
}

impl<'t, const CHECKED: bool> EnvelopeWalk<'t, CHECKED> {
    fn new(text: &'t [u8], deepest: usize, most: usize) -> Self {
        let keys = Vec::with_capacity(if CHECKED { 16 } else { 0 });
        let (key, starts) = (TokenRange::default(), [0; DEEPEST as usize]);
        Self { text, deepest, most, envelope: Envelope::default(), depth: 0, nodes: 0, key, start: 0, keys, starts }
    }

    /// Stores the position of the value that has just ended, if its key belongs to the envelope;
    /// `None` if the envelope has that member already.
    fn note(&mut self, value: TokenRange) -> Option<()> {
        let Some(member) = self.envelope.member(self.key.of(self.text)) else { return Some(()) };
        member.replace(value).is_none().then_some(())
    }

    /// Counts a value or a key; `None` beyond the bound.
    fn count(&mut self) -> Option<()> {
        self.nodes += 1;
        (!CHECKED || self.nodes <= self.most).then_some(())
    }
}

impl<const CHECKED: bool> TokenVisitor for EnvelopeWalk<'_, CHECKED> {
    #[inline(always)]
    fn opens(&mut self, at: usize, is_object: bool) -> Option<()> {
        if self.depth == 0 && !is_object {
            return None;
        }
        if self.depth == 1 {
            self.start = at;
        }
        if CHECKED {
            *self.starts.get_mut(self.depth)? = self.keys.len();
        }
        self.depth += 1;
        if CHECKED && self.depth > self.deepest {
            return None;
        }
        self.count()
    }

    #[inline(always)]
    fn closes(&mut self, end: usize, is_object: bool) -> Option<()> {
        self.depth -= 1;
        if CHECKED && is_object {
            let start = *self.starts.get(self.depth)?;
            if has_duplicates(self.keys.get_mut(start..)?) {
                return None;
            }
            self.keys.truncate(start);
        }
        if self.depth == 1 { self.note(TokenRange { start: self.start, end }) } else { Some(()) }
    }

    #[inline(always)]
    fn key(&mut self, place: TokenRange, is_escaped: bool) -> Option<()> {
        if is_escaped && (CHECKED || self.depth == 1) {
            return None;
        }
        if self.depth == 1 {
            self.key = place;
        }
        if CHECKED {
            self.keys.push(place.of(self.text));
        }
        self.count()
    }

    #[inline(always)]
    fn scalar(&mut self, place: TokenRange) -> Option<()> {
        match self.depth {
            0 => return None,
            1 => self.note(place)?,
            _ => {}
        }
        self.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<[Option<&str>; 6]> {
        let envelope = Envelope::of(text.as_bytes())?;
        let Envelope { jsonrpc, id, method, params, result, error } = envelope;
        let of = |place: TokenRange| std::str::from_utf8(place.of(text.as_bytes())).unwrap();
        Some([jsonrpc, id, method, params, result, error].map(|place| place.map(of)))
    }

    #[test]
    fn members_of_the_envelope_alone_are_noted() {
        let text = r#" { "jsonrpc" : "2.0","id":7,"x":{"id":8},"method":"m" ,"params":{"method":[1, {}]}, "result":null,"error":-1 } "#;
        let want = [r#""2.0""#, "7", r#""m""#, r#"{"method":[1, {}]}"#, "null", "-1"];
        assert_eq!(read(text), Some(want.map(Some)));
        assert_eq!(read("{}"), Some([None; 6]));
        for none in [r#"{"id":1,"id":1}"#, r#"{"\u0069d":1}"#, "[]", "1", r#"["id",1]"#, "{", r#"{"id":1}}"#] {
            assert_eq!(read(none), None, "{none}");
        }
        assert_eq!(read(r#"{"x":1,"x":2,"result":{"\u0061":1}}"#).and_then(|of| of[4]), Some(r#"{"\u0061":1}"#));
    }

    #[test]
    fn a_message_of_a_client_keeps_its_bounds_and_has_no_key_twice() {
        let within = |text: &str, depth: usize, nodes: usize| Envelope::within(text.as_bytes(), depth, nodes).is_some();
        let text = r#"{"id":[{"a":{"b":1}},{"a":2}]}"#;
        assert!(within(text, 4, 11));
        assert!(!within(text, 3, 11));
        assert!(!within(text, 4, 10));
        for twins in [r#"{"a":1,"a":2}"#, r#"{"a":{"x":1},"a":2}"#, r#"{"b":[{"x":1,"x":2}]}"#, r#"{"a":1,"\u0061":2}"#]
        {
            assert!(!within(twins, 9, 99), "{twins}");
        }
        assert!(within(r#"{"a":{"a":[{"a":1},"a"]},"b":{"a":2}}"#, 9, 99));
    }
}
