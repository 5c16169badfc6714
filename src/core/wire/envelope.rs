//! One pass over a message: its grammar, the places of its envelope's members and, for one of a client, its bounds and its keys.
//!
//! For the common case, like the [grammar](crate::wire::grammar): where it gives nothing, `frame` and `message` look again and say
//! what is wrong, or take it after all.

use crate::wire::grammar::{DEEPEST, Place, Visit, walk};
use crate::wire::raw::twins;

/// Where the members of an envelope stand; unknown ones are not noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) jsonrpc: Option<Place>,
    pub(crate) id: Option<Place>,
    pub(crate) method: Option<Place>,
    pub(crate) params: Option<Place>,
    pub(crate) result: Option<Place>,
    pub(crate) error: Option<Place>,
}

impl Envelope {
    /// Reads a message. `None`: it is no object of JSON, or has one of these members twice or an escape in one of its own keys.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let mut reading = Reading::<false>::new(text, usize::MAX, usize::MAX);
        walk(text, &mut reading)?;
        Some(reading.envelope)
    }

    /// Reads a message within bounds. `None` also: it breaks them, or any object in it has a key twice or with an escape.
    pub(crate) fn within(text: &[u8], depth: usize, nodes: usize) -> Option<Self> {
        let mut reading = Reading::<true>::new(text, depth, nodes);
        walk(text, &mut reading)?;
        Some(reading.envelope)
    }

    /// The member of that name, quotes included.
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Place>> {
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

/// What is known in the middle of a message. `CHECKED`: against bounds, and keys are compared.
struct Reading<'t, const CHECKED: bool> {
    text: &'t [u8],
    /// The bounds.
    deepest: usize,
    most: usize,
    envelope: Envelope,
    depth: usize,
    nodes: usize,
    /// The member of the envelope that is being read: its key, and where its value begins if that is a container.
    key: Place,
    start: usize,
    /// Keys of all open objects, innermost last, and where those of each container start.
    keys: Vec<&'t [u8]>,
    starts: [usize; DEEPEST as usize],
}

impl<'t, const CHECKED: bool> Reading<'t, CHECKED> {
    fn new(text: &'t [u8], deepest: usize, most: usize) -> Self {
        let keys = Vec::with_capacity(if CHECKED { 16 } else { 0 });
        let (key, starts) = (Place::default(), [0; DEEPEST as usize]);
        Self { text, deepest, most, envelope: Envelope::default(), depth: 0, nodes: 0, key, start: 0, keys, starts }
    }

    /// A member of the envelope has ended.
    fn note(&mut self, value: Place) -> Option<()> {
        let Some(member) = self.envelope.member(self.key.of(self.text)) else { return Some(()) };
        member.replace(value).is_none().then_some(())
    }

    fn count(&mut self) -> Option<()> {
        self.nodes += 1;
        (!CHECKED || self.nodes <= self.most).then_some(())
    }
}

impl<const CHECKED: bool> Visit for Reading<'_, CHECKED> {
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
            if twins(self.keys.get_mut(start..)?) {
                return None;
            }
            self.keys.truncate(start);
        }
        if self.depth == 1 { self.note(Place { start: self.start, end }) } else { Some(()) }
    }

    #[inline(always)]
    fn key(&mut self, place: Place, is_escaped: bool) -> Option<()> {
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
    fn scalar(&mut self, place: Place) -> Option<()> {
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
        let of = |place: Place| std::str::from_utf8(place.of(text.as_bytes())).unwrap();
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
