//! Readings of URIs: whether all servers understand the text of a URI alike.
//!
//! Resource rules match text, but servers read `%2e%2e`, `//` and `FILE:` each in their own way,
//! and a URI that matched a template was written by the client. Rules therefore also look at the
//! second reading of a URI, if there is one. A URI whose meaning depends on the server may be any
//! resource of its upstream.

use super::pattern::is_special;

/// The meanings of a URI besides its own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum UriReading {
    /// None.
    Plain,
    /// This text: decoded, with scheme and host in lower case.
    Other(String),
    /// Any resource: the meaning depends on the server.
    Unclear,
}

/// Reads a URI or template, given without its upstream's name.
pub(in crate::policy) fn read(uri: &str) -> UriReading {
    let Some(decoded) = decode(uri) else {
        return UriReading::Unclear;
    };
    let decoded = lower_host(&decoded);
    let (scheme, rest) = decoded.split_once(':').unwrap_or(("", &decoded));
    if is_unclear(scheme, rest) {
        UriReading::Unclear
    } else if decoded == uri {
        UriReading::Plain
    } else {
        UriReading::Other(decoded)
    }
}

/// Returns the glob that matches the second reading of the URIs that `glob` matches; `None` if it
/// is the same.
///
/// A pattern is often a URI copied from a list, so it is spelled as freely as URIs are.
pub(in crate::policy) fn respell(glob: &str) -> Option<String> {
    let (upstream, uri) = glob.split_once('+')?;
    let mut parts = uri.split('%');
    let mut decoded = parts.next()?.to_owned();
    let mut pending = Vec::new();
    for part in parts {
        let (byte, rest) = encoded_byte(part)?;
        pending.push(byte);
        if rest.is_empty() {
            continue;
        }
        push_escaped(&mut decoded, &mut pending)?;
        decoded.push_str(rest);
    }
    push_escaped(&mut decoded, &mut pending)?;
    let respelled = format!("{upstream}+{}", lower_host(&decoded));
    (respelled != glob).then_some(respelled)
}

/// Appends decoded bytes to a glob, escaped so that they are literal. Empties `bytes`.
fn push_escaped(glob: &mut String, bytes: &mut Vec<u8>) -> Option<()> {
    for c in String::from_utf8(std::mem::take(bytes)).ok()?.chars() {
        if is_special(c) {
            glob.push('\\');
        }
        glob.push(c);
    }
    Some(())
}

/// Percent-decodes once; `None` if that is not possible, or would be possible a second time.
fn decode(uri: &str) -> Option<String> {
    let mut parts = uri.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = encoded_byte(part)?;
        if byte == b'%' {
            return None;
        }
        bytes.push(byte);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Returns the byte that the first two characters encode, and the rest.
fn encoded_byte(text: &str) -> Option<(u8, &str)> {
    let (hex, rest) = text.split_at_checked(2)?;
    let byte = u8::from_str_radix(hex, 16).ok()?;
    hex.bytes().all(|b| b.is_ascii_hexdigit()).then_some((byte, rest))
}

/// Lowers the case of the scheme, and of the host if the scheme is known to ignore its case.
fn lower_host(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once(':') else {
        return uri.to_owned();
    };
    let scheme = scheme.to_ascii_lowercase();
    let host = match (scheme.as_str(), rest.strip_prefix("//")) {
        ("http" | "https" | "ws" | "wss", Some(after)) => 2 + after.find(['/', '?', '#', '{']).unwrap_or(after.len()),
        _ => 0,
    };
    let (host, tail) = rest.split_at(host);
    format!("{scheme}:{}{tail}", host.to_ascii_lowercase())
}

/// Whether servers may disagree about the meaning of a decoded URI.
fn is_unclear(scheme: &str, rest: &str) -> bool {
    // A local file is clear as `file:///a` alone, not as `file:/a` or `file://localhost/a`.
    if scheme == "file" && !rest.starts_with("///") {
        return true;
    }
    if rest.chars().any(|c| c.is_control() || c == '\\') {
        return true;
    }
    // Dots in a query count too: it is the server's choice whether `?` ends the path.
    if rest.split(['/', '?', '#']).any(|segment| matches!(segment, "." | "..")) {
        return true;
    }
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path);
    // `://` is accepted: a URI inside a path is usual, and no file system has such a name to hide.
    path.match_indices("//").any(|(at, _)| !path.get(..at).is_some_and(|before| before.ends_with(':')))
}

#[cfg(test)]
mod tests;
