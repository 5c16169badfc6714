//! Text for people in which the escapes of hidden characters are marked, so that a page or a
//! terminal can colour them.

use std::fmt;

use super::{characters, spell_character};

/// A text in parts: each is plain text, or the escapes of hidden characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedText {
    parts: Vec<(bool, String)>,
    bytes: usize,
}

impl MarkedText {
    /// Creates a text from words of headend's own, without any escapes.
    pub fn own(text: &str) -> Self {
        let mut out = Self::default();
        out.push_own(text);
        out
    }

    /// Creates a text from foreign lines: hidden characters are spelled out, line feeds and tabs
    /// stay.
    pub fn of(text: &str) -> Self {
        Self::beginning(text, usize::MAX).0
    }

    /// Does the same for the beginning of a text, up to `most` bytes of output. Also returns how
    /// many bytes of the foreign text it holds.
    pub fn beginning(text: &str, most: usize) -> (Self, usize) {
        let (mut out, mut at) = (Self::default(), 0);
        for (c, hidden) in characters(text) {
            let takes = if hidden { spell_character(c).len() } else { c.len_utf8() };
            if out.bytes + takes > most {
                break;
            }
            at += c.len_utf8();
            out.add(hidden, c);
        }
        (out, at)
    }

    /// Creates a text from a foreign one between quotes, which it cannot close.
    pub fn quoted(text: &str) -> Self {
        let mut out = Self::default();
        out.push_quoted(text);
        out
    }

    /// Appends words of headend's own, without any escapes.
    pub fn push_own(&mut self, text: &str) {
        self.put(false, text);
    }

    /// Appends foreign text between quotes, which it cannot close.
    pub fn push_quoted(&mut self, text: &str) {
        self.put(false, "\"");
        for (c, hidden) in characters(text) {
            match c {
                '"' => self.put(false, "\\\""),
                '\\' => self.put(false, "\\\\"),
                '\n' => self.put(false, "\\n"),
                '\t' => self.put(false, "\\t"),
                c => self.add(hidden, c),
            }
        }
        self.put(false, "\"");
    }

    /// Appends foreign text as [`Self::of`] shows it.
    pub fn push(&mut self, text: &str) {
        for (c, hidden) in characters(text) {
            self.add(hidden, c);
        }
    }

    /// Returns the parts in order, each with whether it holds escapes of hidden characters.
    pub fn parts(&self) -> impl Iterator<Item = (bool, &str)> {
        self.parts.iter().map(|(hidden, text)| (*hidden, text.as_str()))
    }

    /// Returns the length of the text in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a character, spelled out if it is hidden.
    fn add(&mut self, hidden: bool, c: char) {
        if hidden {
            self.put(true, &spell_character(c));
        } else {
            self.put(false, c.encode_utf8(&mut [0; 4]));
        }
    }

    /// Appends a text to the last part, or as a new part if that is of the other kind.
    fn put(&mut self, hidden: bool, text: &str) {
        self.bytes += text.len();
        match self.parts.last_mut() {
            Some((last, parts)) if *last == hidden => parts.push_str(text),
            _ => self.parts.push((hidden, text.to_owned())),
        }
    }
}

impl fmt::Display for MarkedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|(_, text)| f.write_str(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_parts_of_their_own_and_quotes_stay_closed() {
        let told = |marked: &MarkedText| -> String {
            marked.parts().map(|(hidden, text)| if hidden { format!("<{text}>") } else { text.to_owned() }).collect()
        };
        assert_eq!(told(&MarkedText::of("a\u{202e}b\n\t语\u{3164}\r")), "a<\\u{202e}>b\n\t语<\\u{3164}\\r>");
        let quoted = MarkedText::quoted("a\"b\\\n\t\u{200b}ß\\u{200b}");
        assert_eq!(told(&quoted), r#""a\"b\\\n\t<\u{200b}>ß\\u{200b}""#);
        assert_eq!((quoted.len(), quoted.is_empty()), (quoted.to_string().len(), false));
        let (cut, at) = MarkedText::beginning("ab\u{202e}c", 9);
        assert_eq!((told(&cut).as_str(), at), ("ab", 2));
        assert_eq!(MarkedText::beginning("ab\u{202e}c", 11).1, 6);
        assert!(MarkedText::default().is_empty() && MarkedText::own("x").parts().eq([(false, "x")]));
    }
}
