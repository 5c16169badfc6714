//! The start of a message whose rest was dropped: the id that it answers, or its method.

use crate::wire::tokens::{Kind, Tokens, unquoted};

/// The most that a start can say, as far as it was kept. Ids are JSON, a number or a string without escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// The answer to the request of that id.
    Answer(&'a [u8]),
    /// A request of that id.
    Request(&'a [u8]),
    Notifies,
    /// A request or notification whose id, if any, comes later.
    Asks,
    /// Anything else, or an answer whose id comes later.
    Unknown,
}

impl<'a> Start<'a> {
    /// Reads the members of the envelope before the first large one. Names with escapes are not looked into.
    pub fn of(bytes: &'a [u8]) -> Self {
        let (mut id, mut asks) = (None, false);
        let found = Self::read(bytes, &mut id, &mut asks);
        // Its method may be what is too large.
        found.unwrap_or(if asks { id.map_or(Self::Asks, Self::Request) } else { Self::Unknown })
    }

    fn read(bytes: &'a [u8], id: &mut Option<&'a [u8]>, asks: &mut bool) -> Option<Self> {
        let mut tokens = Tokens::of(bytes);
        tokens.next().filter(|first| first.kind == Kind::Object)?;
        loop {
            let name = tokens.next().filter(|name| name.kind == Kind::Key)?;
            let name = tokens.literal(name);
            match name {
                b"\"result\"" | b"\"error\"" if !*asks => return id.map(Self::Answer),
                b"\"id\"" | b"\"jsonrpc\"" | b"\"method\"" => {}
                _ => return None,
            }
            let is_method = name == b"\"method\"";
            *asks |= is_method;
            let token = tokens.next()?;
            let value = tokens.literal(token);
            let is_number = token.kind == Kind::Scalar && value.iter().all(u8::is_ascii_digit);
            let is_plain = token.kind == Kind::String && !token.escaped && unquoted(value).is_some();
            if !is_number && !is_plain {
                return None;
            }
            if is_method && value.starts_with(b"\"notifications/") {
                return Some(Self::Notifies);
            }
            // What nothing follows may have been cut.
            tokens.next().filter(|comma| comma.kind == Kind::Comma)?;
            if name == b"\"id\"" {
                *id = Some(value);
            }
            if let Some(id) = id.filter(|_| *asks) {
                return Some(Self::Request(id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_message_names_its_request() {
        for (text, start) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":["#, Start::Answer(b"7")),
            (r#"{"id":7,"jsonrpc":"2.0","result":{"content":["#, Start::Answer(b"7")),
            (" {\t\"id\" : 7 , \"error\" :", Start::Answer(b"7")),
            (r#"{"jsonrpc":"2.0","id":"ask-7","result":"#, Start::Answer(b"\"ask-7\"")),
            (r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params""#, Start::Request(b"7")),
            (r#"{"method":"tools/call","jsonrpc":"2.0","id":"a b","params":"#, Start::Request(b"\"a b\"")),
            (r#"{"method":"tools/call","params":{"id":7,"#, Start::Asks),
            (r#"{"method":"tools/call","id":"\u0061","params":{"#, Start::Asks),
            (r#"{"method":"tools/call","id":7"#, Start::Asks),
            (r#"{"id":7,"method":"tools/aaaaaaaaaaaaaaaa"#, Start::Request(b"7")),
            (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":7"#, Start::Notifies),
            (r#"{"jsonrpc":"2.0","result":{"id":7},"id":"#, Start::Unknown),
            (r#"{"jsonrpc":"2.0","id":7.5,"result":"#, Start::Unknown),
            (r#"{"jsonrpc":"2.0","id":,"result":"#, Start::Unknown),
            (r#"{"jsonrpc":"2.0","i\u0064":7,"result":"#, Start::Unknown),
            (r#"{"x":1,"id":7,"result":"#, Start::Unknown),
            (r#"{"id":7"#, Start::Unknown),
            (r#"[{"id":7,"result":"#, Start::Unknown),
            ("    ", Start::Unknown),
            ("", Start::Unknown),
        ] {
            assert_eq!(Start::of(text.as_bytes()), start, "{text}");
        }
    }
}
