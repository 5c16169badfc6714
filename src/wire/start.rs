//! The start of a message whose rest was not kept: whose answer it was.

/// The most that a start can say, as far as it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The answer to the request of that id.
    Answer(u64),
    /// A request or notification.
    Asks,
    /// Anything else, or the id comes later.
    Unknown,
}

impl Start {
    /// Reads the members of the envelope before the first large one. Names with escapes are not looked into.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::read(bytes).unwrap_or(Self::Unknown)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.trim_ascii_start().strip_prefix(b"{")?;
        let mut id = None;
        loop {
            let (name, after) = string(rest.trim_ascii_start())?;
            rest = after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
            match name {
                b"method" => return Some(Self::Asks),
                b"result" | b"error" => return id.map(Self::Answer),
                b"id" | b"jsonrpc" => {}
                _ => return None,
            }
            let (value, after) = match string(rest) {
                Some((_, after)) => (None, after),
                None => {
                    let (number, after) = rest.split_at(rest.iter().position(|byte| !byte.is_ascii_digit())?);
                    (Some(std::str::from_utf8(number).ok()?.parse::<u64>().ok()?), after)
                }
            };
            if name == b"id" {
                id = value;
            }
            rest = after.trim_ascii_start().strip_prefix(b",")?;
        }
    }
}

/// A string without escapes, and what comes after it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = bytes.strip_prefix(b"\"")?;
    let (text, rest) = inner.split_at(memchr::memchr2(b'"', b'\\', inner)?);
    Some((text, rest.strip_prefix(b"\"")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_an_answer_names_its_request() {
        for (text, start) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":["#, Start::Answer(7)),
            (r#"{"id":7,"jsonrpc":"2.0","result":{"content":["#, Start::Answer(7)),
            (" {\t\"id\" : 7 , \"error\" :", Start::Answer(7)),
            (r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage""#, Start::Asks),
            (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":7"#, Start::Asks),
            (r#"{"jsonrpc":"2.0","result":{"id":7},"id":"#, Start::Unknown),
            (r#"{"jsonrpc":"2.0","id":"7","result":"#, Start::Unknown),
            (r#"{"jsonrpc":"2.0","id":99999999999999999999999,"result":"#, Start::Unknown),
            (r#"{"jsonrpc":"2.0","id":7.5,"result":"#, Start::Unknown),
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
