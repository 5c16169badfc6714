//! How far the text of a URI says what it means.
//!
//! Resource rules match text, but servers read `%2e%2e`, `//` and `FILE:` each in their own way,
//! and a URI that matched a template was written by the client. Rules therefore look at a second
//! reading where there is one, and take a URI whose meaning depends on the reader for any resource
//! of its upstream.

/// What a URI may mean besides its own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Reading {
    /// Nothing else.
    Plain,
    /// This text as well: decoded, scheme and authority in lower case.
    Other(String),
    /// Something that cannot be told without knowing the server.
    Unclear,
}

/// Reads a URI or template without its upstream's name.
pub(in crate::policy) fn read(uri: &str) -> Reading {
    let Some(decoded) = decode(uri) else {
        return Reading::Unclear;
    };
    let decoded = lower_authority(&decoded);
    let (scheme, rest) = decoded.split_once(':').unwrap_or(("", &decoded));
    if is_unclear(scheme, rest) {
        Reading::Unclear
    } else if decoded == uri {
        Reading::Plain
    } else {
        Reading::Other(decoded)
    }
}

/// Percent-decodes once; `None` when that is not possible, or would be possible again.
fn decode(uri: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(uri.len());
    let mut parts = uri.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let byte = u8::from_str_radix(part.get(..2).filter(|hex| is_hex(hex))?, 16).ok()?;
        if byte == b'%' {
            return None;
        }
        bytes.push(byte);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Puts scheme and authority, which mean the same in either case, in lower case.
fn lower_authority(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once(':') else {
        return uri.to_owned();
    };
    let start = scheme.len() + 1;
    let authority = rest.strip_prefix("//").map_or(0, |after| {
        2 + after.find(['/', '?', '#', '{']).unwrap_or(after.len())
    });
    let (head, tail) = uri.split_at(start + authority);
    head.to_ascii_lowercase() + tail
}

fn is_unclear(scheme: &str, rest: &str) -> bool {
    // One name for a local file, out of `file:/a`, `file://localhost/a` and `file:///a`.
    if scheme == "file" && !rest.starts_with("///") {
        return true;
    }
    if rest.chars().any(|c| c.is_control() || c == '\\') {
        return true;
    }
    // Dots in a query too: whether `?` ends the path is the server's choice.
    if rest.split(['/', '?', '#']).any(|segment| matches!(segment, "." | "..")) {
        return true;
    }
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path);
    // `://` stays: a URI inside a path is usual, and no file system has such a name to hide.
    path.match_indices("//").any(|(at, _)| !path.get(..at).is_some_and(|before| before.ends_with(':')))
}

#[cfg(test)]
mod tests;
