//! Validates W3C trace context: headend passes on the well-formed part.
//!
//! The gateway adds no span of its own yet, so the context stays unchanged. `baggage` does not
//! pass: it can hold data that is not meant for a third party.
//!
//! Source: W3C Trace Context, 3.2 and 3.3; MCP 2026-07-28, basic, "`_meta`" (these keys,
//! unprefixed).

/// The key and header of the trace's identifier and of the caller's span.
pub const PARENT: &str = "traceparent";
/// The key and header for additions of tracing systems.
pub const STATE: &str = "tracestate";
/// The key and header of further data of the trace; dropped.
pub(crate) const BAGGAGE: &str = "baggage";

/// The longest `tracestate` to pass on, in bytes: every system has to accept this much.
const MAX_STATE_BYTES: usize = 512;
const MAX_STATE_MEMBERS: usize = 32;

/// Reports whether a `traceparent` is well-formed.
pub(crate) fn is_parent(text: &str) -> bool {
    let hex = |part: Option<&str>, length: usize| {
        part.is_some_and(|p| p.len() == length && p.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
    };
    let id =
        |part: Option<&str>, length: usize| hex(part, length) && part.is_some_and(|p| p.bytes().any(|b| b != b'0'));
    let mut parts = text.split('-');
    let version = parts.next();
    let good = hex(version, 2)
        && version != Some("ff")
        && id(parts.next(), 32)
        && id(parts.next(), 16)
        && hex(parts.next(), 2);
    // Later versions may append parts; the first has exactly four.
    good && (version != Some("00") || parts.next().is_none()) && text.len() <= MAX_STATE_BYTES && is_visible(text)
}

/// Reports whether a `tracestate` is well-formed. It means nothing without a `traceparent`.
pub(crate) fn is_state(text: &str) -> bool {
    let members = || text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty());
    let count = members().count();
    text.len() <= MAX_STATE_BYTES && (1..=MAX_STATE_MEMBERS).contains(&count) && members().all(is_member)
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let key_byte = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let starts_well = key.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let good_key = starts_well && key.len() <= 256 && key.bytes().all(key_byte) && key.matches('@').count() <= 1;
    let good_value = !value.is_empty() && value.len() <= 256 && !value.contains('=') && is_visible(value);
    good_key && good_value
}

/// Reports whether a text is visible ASCII and spaces.
fn is_visible(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_has_four_parts_of_hex_digits() {
        const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (label, text, good) in [
            ("good", GOOD.to_owned(), true),
            ("later version", format!("cc{}-what-follows", &GOOD[2..]), true),
            ("more of version 00", format!("{GOOD}-x"), false),
            ("version ff", format!("ff{}", &GOOD[2..]), false),
            ("upper case", GOOD.to_uppercase(), false),
            ("no trace", "00-00000000000000000000000000000000-b7ad6b7169203331-01".to_owned(), false),
            ("no span", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".to_owned(), false),
            ("short", "00-0af7-b7ad6b7169203331-01".to_owned(), false),
            ("no flags", GOOD[..52].to_owned(), false),
            ("a line more", format!("cc{}-\r\nX: y", &GOOD[2..]), false),
            ("nothing", String::new(), false),
        ] {
            assert_eq!(is_parent(&text), good, "{label}");
        }
    }

    #[test]
    fn a_state_is_a_short_list_of_keys_and_values() {
        for (label, text, good) in [
            ("one", "rojo=00f067aa0ba902b7".to_owned(), true),
            ("several, loosely", "rojo=1, congo=t61rcWkgMzE ,,x@vendor=a/b:c".to_owned(), true),
            ("no value", "rojo".to_owned(), false),
            ("empty value", "rojo=".to_owned(), false),
            ("equals sign in the value", "a=b=c".to_owned(), false),
            ("upper case", "Rojo=1".to_owned(), false),
            ("two vendors", "a@b@c=1".to_owned(), false),
            ("a line more", "a=b\r\nX: y".to_owned(), false),
            ("not ASCII", "a=é".to_owned(), false),
            ("too many", vec!["a=b"; 33].join(","), false),
            ("too long", format!("a={},b={}", "x".repeat(256), "y".repeat(256)), false),
            ("nothing", " , ".to_owned(), false),
        ] {
            assert_eq!(is_state(&text), good, "{label}");
        }
    }
}
