//! The head of the HTTP request that a message came in: a modern one must say there what it says in the body.

use crate::engine::answer::Answer;
use crate::mcp::capability::unsupported_version_data;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::headers::decode_value;
use crate::wire::message::Request;
use crate::wire::raw::RawObject;

const VERSION: &str = "mcp-protocol-version";

/// The head of an HTTP request.
pub(crate) trait Head {
    /// The first field of that name, which is in lower case, and whether another follows.
    fn field(&self, name: &str) -> (Option<&[u8]>, bool);
}

/// Whether the head speaks of the modern era.
pub(crate) fn is_modern(head: &dyn Head) -> bool {
    text(head.field(VERSION).0).is_some_and(Revision::header_is_modern)
}

/// Whether the head may stand over a message of a session: its version is one that has sessions, or missing.
pub(crate) fn fits_session(head: &dyn Head) -> bool {
    let (version, again) = head.field(VERSION);
    let is_legacy = |text| Revision::parse(text).is_some_and(|revision| revision.era() == Era::Legacy);
    !again && version.is_none_or(|version| text(Some(version)).is_some_and(is_legacy))
}

fn text(value: Option<&[u8]>) -> Option<&str> {
    value.filter(|value| value.is_ascii()).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim)
}

pub(crate) fn mismatch(why: &str) -> Answer {
    Answer::error(code::HEADER_MISMATCH, why, None).with_status(400)
}

/// The revision that a request claims.
///
/// # Errors
/// The answer to send: it is not served, or has no `_meta` to claim it in.
pub(crate) fn claimed_revision(claimed: &str) -> Result<Revision, Answer> {
    Revision::parse(claimed).filter(|revision| revision.era() == Era::Modern).ok_or_else(|| {
        let served: Vec<&str> = Revision::of(Era::Modern).rev().map(Revision::as_str).collect();
        let text = format!("Unsupported protocol version; this server speaks {}", served.join(", "));
        let data = unsupported_version_data(claimed);
        Answer::error(code::UNSUPPORTED_VERSION, &text, Some(&data)).with_status(400)
    })
}

/// Checks version and `Mcp-*` fields against the body, which names the revision. Policy never reads them again.
///
/// Source: MCP 2026-07-28, streamable-http, "Server validation"; order as the official suite expects it.
///
/// # Errors
/// The answer to send.
pub(crate) fn check(
    head: &dyn Head,
    request: &Request,
    method: Method,
    params: &RawObject,
    claimed: &str,
) -> Result<Revision, Answer> {
    let once = |name| match head.field(name) {
        (_, true) => Err(mismatch(&format!("the header {name} stands twice"))),
        (value, false) => Ok(value),
    };
    let (version, named, name) = (text(once(VERSION)?), once("mcp-method")?, once("mcp-name")?);
    if version.is_some_and(|version| version != claimed) {
        return Err(mismatch("MCP-Protocol-Version differs from the version in params._meta"));
    }
    if named.is_some_and(|named| named.trim_ascii() != request.method.as_bytes()) {
        return Err(mismatch("Mcp-Method differs from the method in the body"));
    }
    let revision = claimed_revision(claimed)?;
    if version.is_none() {
        return Err(mismatch("the MCP-Protocol-Version header is missing"));
    }
    if named.is_none() {
        return Err(mismatch("the Mcp-Method header is missing"));
    }
    let Some(in_body) = method.name_member().and_then(|member| params.string(member)) else {
        return Ok(revision);
    };
    let Some(name) = name else { return Err(mismatch("the Mcp-Name header is missing")) };
    match decode_value(name) {
        Ok(value) if value == in_body => Ok(revision),
        Ok(_) => Err(mismatch("Mcp-Name differs from the name in the body")),
        Err(_) => Err(mismatch("Mcp-Name cannot be decoded")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::id::ClientId;
    use crate::wire::raw::RawJson;

    impl Head for Vec<(&str, &str)> {
        fn field(&self, name: &str) -> (Option<&[u8]>, bool) {
            let mut values = self.iter().filter(|(field, _)| *field == name).map(|(_, value)| value.as_bytes());
            (values.next(), values.next().is_some())
        }
    }

    /// What a call of the tool `t` is told that claims this revision with these headers; the revision where it may pass.
    fn told(claimed: &str, head: &Vec<(&str, &str)>) -> String {
        let id = ClientId::from_raw(RawJson::trusted("1")).unwrap();
        let request = Request { id, method: "tools/call".to_owned(), params: None };
        let params = RawObject::parse(&RawJson::trusted(r#"{"name":"t"}"#)).unwrap();
        match check(head, &request, Method::ToolsCall, &params, claimed) {
            Ok(revision) => revision.to_string(),
            Err(answer) => {
                assert_eq!(answer.status, Some(400));
                answer.outcome.unwrap_err().text().into_owned()
            }
        }
    }

    #[test]
    fn headers_of_2026_07_28_are_checked_as_if_no_revision_had_followed() {
        const NOW: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
        const LATER: (&str, &str) = ("mcp-protocol-version", "2099-12-31");
        const CALL: (&str, &str) = ("mcp-method", "tools/call");
        const NAME: (&str, &str) = ("mcp-name", "t");
        let bad = |why: &str| format!(r#"{{"code":-32020,"message":"{why}"}}"#);
        for (headers, want) in [
            (vec![NOW, CALL, NAME], "2026-07-28".to_owned()),
            (vec![NOW, NOW, CALL, NAME], bad("the header mcp-protocol-version stands twice")),
            (vec![CALL, NAME], bad("the MCP-Protocol-Version header is missing")),
            (vec![LATER, CALL, NAME], bad("MCP-Protocol-Version differs from the version in params._meta")),
            (vec![NOW, NAME], bad("the Mcp-Method header is missing")),
            (vec![NOW, ("mcp-method", "ping"), NAME], bad("Mcp-Method differs from the method in the body")),
            (vec![NOW, CALL], bad("the Mcp-Name header is missing")),
            (vec![NOW, CALL, ("mcp-name", "u")], bad("Mcp-Name differs from the name in the body")),
        ] {
            assert_eq!(told("2026-07-28", &headers), want, "{headers:?}");
        }
        assert_eq!(told("2099-12-31", &vec![LATER, CALL, NAME]), "2099-12-31");
        for claimed in ["2025-11-25", "2031-01-01", ""] {
            let want = format!(
                r#"{{"code":-32022,"message":"Unsupported protocol version; this server speaks 2099-12-31, 2026-07-28","data":{{"supported":["2099-12-31","2026-07-28"],"requested":"{claimed}"}}}}"#
            );
            assert_eq!(told(claimed, &vec![CALL, NAME]), want);
        }
    }

    #[test]
    fn a_session_has_no_modern_version_over_its_messages() {
        for (versions, modern, fits) in [
            (vec![], false, true),
            (vec!["2025-06-18"], false, true),
            (vec![" 2025-11-25 "], false, true),
            (vec!["2025-06-18", "2025-06-18"], false, false),
            (vec!["1900-01-01"], false, false),
            (vec!["\u{e9}"], false, false),
            (vec!["2026-07-28"], true, false),
            (vec!["v999"], true, false),
        ] {
            let head: Vec<(&str, &str)> = versions.iter().map(|version| (VERSION, *version)).collect();
            assert_eq!((is_modern(&head), fits_session(&head)), (modern, fits), "{versions:?}");
        }
    }
}
