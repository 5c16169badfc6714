//! Decides which transfer and content codings of HTTP bodies are accepted: only those that headend
//! can undo.
//!
//! Both functions take the values of all lines of the field, in the order received, since lines of
//! one name are one list (RFC 9110, section 5.3). A check of only the first or the last line would
//! let another coding pass.

/// Reports whether `Transfer-Encoding` is absent or exactly `chunked`.
///
/// With any other coding, or with `chunked` twice, the body is still coded after it was unchunked.
/// RFC 9112, section 6.1: such a request is answered with 501.
pub fn is_plain_transfer<'v>(mut lines: impl Iterator<Item = &'v [u8]>) -> bool {
    match (lines.next(), lines.next()) {
        (None, _) => true,
        (Some(one), None) => one.trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Reports whether `Content-Encoding` names no coding but `identity`. RFC 9110, section 8.4: the
/// list holds the codings in the order in which they were applied, so one coding anywhere in it
/// means that the body is coded.
pub fn is_plain_content<'v>(lines: impl Iterator<Item = &'v [u8]>) -> bool {
    let mut codings = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'v>(values: &'v [&'v str]) -> impl Iterator<Item = &'v [u8]> {
        values.iter().map(|value| value.as_bytes())
    }

    #[test]
    fn chunked_alone_can_be_undone() {
        for (values, plain) in [
            (&[][..], true),
            (&["chunked"][..], true),
            (&["Chunked "][..], true),
            (&["gzip, chunked"][..], false),
            (&["gzip", "chunked"][..], false),
            (&["chunked", "chunked"][..], false),
            (&["chunked, chunked"][..], false),
            (&["chunked, identity"][..], false),
            (&["identity, chunked"][..], false),
            (&["identity"][..], false),
            (&["chunked;q=1"][..], false),
            (&["chunked,"][..], false),
            (&[""][..], false),
            (&["\u{b}chunked"][..], false),
            (&["xchunked"][..], false),
        ] {
            assert_eq!(is_plain_transfer(lines(values)), plain, "{values:?}");
        }
    }

    #[test]
    fn one_content_coding_anywhere_codes_the_body() {
        for (values, plain) in [
            (&[][..], true),
            (&["identity"][..], true),
            (&["Identity, identity"][..], true),
            (&["identity", "identity"][..], true),
            (&["", " , "][..], true),
            (&["gzip"][..], false),
            (&["identity, gzip"][..], false),
            (&["gzip, identity"][..], false),
            (&["identity", "gzip"][..], false),
            (&["gzip", "identity"][..], false),
            (&["identity;q=1"][..], false),
        ] {
            assert_eq!(is_plain_content(lines(values)), plain, "{values:?}");
        }
    }
}
