//! Whether all readers understand the text of a URI the same way.
//!
//! Resource rules match text, but servers read `%2e%2e`, `//` and `FILE:` each in their own way,
//! and a URI that matched a template was written by the client. Rules therefore look at a second
//! reading where there is one, and take a URI whose meaning depends on the reader for any resource
//! of its upstream.

use super::pattern::is_special;

/// Other meanings of a URI besides its own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Reading {
    /// Nothing else.
    Plain,
    /// This text as well: decoded, scheme and host in lower case.
    Other(String),
    /// Something that cannot be told without knowing the server.
    Unclear,
}

/// Reads a URI or template without its upstream's name.
pub(in crate::policy) fn read(uri: &str) -> Reading {
    let Some(decoded) = decode(uri) else {
        return Reading::Unclear;
    };
    let decoded = lower_host(&decoded);
    let (scheme, rest) = decoded.split_once(':').unwrap_or(("", &decoded));
    if is_unclear(scheme, rest) {
        Reading::Unclear
    } else if decoded == uri {
        Reading::Plain
    } else {
        Reading::Other(decoded)
    }
}

/// The glob that matches the second reading of what `glob` matches; `None` when it is the same.
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

/// Moves decoded bytes into a glob, where they stand for themselves.
fn push_escaped(glob: &mut String, bytes: &mut Vec<u8>) -> Option<()> {
    for c in String::from_utf8(std::mem::take(bytes)).ok()?.chars() {
        if is_special(c) {
            glob.push('\\');
        }
        glob.push(c);
    }
    Some(())
}

/// Percent-decodes once; `None` when that is not possible, or would be possible again.
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

/// The byte that the first two characters stand for, and the rest.
fn encoded_byte(text: &str) -> Option<(u8, &str)> {
    let (hex, rest) = text.split_at_checked(2)?;
    let byte = u8::from_str_radix(hex, 16).ok()?;
    hex.bytes().all(|b| b.is_ascii_hexdigit()).then_some((byte, rest))
}

/// Puts the scheme in lower case, and the host where the scheme is known to ignore its case.
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
