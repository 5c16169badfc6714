//! Judges whether an answer over HTTP says that the server does not know the session of a request.
//!
//! Two kinds of answer prove it, and that the server has not looked at the request: a 404 with
//! any body, and a 400 with a JSON-RPC error that the transport made before any method ran: its id
//! is not the request's, and its code or message is that of an SDK's transport. Large SDKs say it
//! in other ways too: any other 4xx that is no JSON-RPC answer to the request, or whose message
//! names a session, is a doubt. The gateway then asks the server whether it knows the session, and
//! repeats the request only if it does not. An answer that names a session but comes as a result of
//! the method, or as a 5xx, proves nothing about the request: it is never repeated, and a session
//! that the server does not know is replaced for the next request.

use crate::wire::code::{INVALID_REQUEST, METHOD_NOT_FOUND};
use crate::wire::json::raw::RawObject;
use crate::wire::message::Response;

const NOT_FOUND: u16 = 404;
const BAD_REQUEST: u16 = 400;
/// Codes of the official SDKs for a session that is missing, unknown or not initialized.
const CODES: [i64; 3] = [-32000, NO_SESSION, INVALID_REQUEST];
/// Code of the TypeScript SDK for a session that it does not know.
const NO_SESSION: i64 = -32001;
/// Id that the Python SDK writes into an error that answers no request.
const NO_ID: &str = "server-error";

/// The meaning of an HTTP status for the session of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionVerdict {
    /// The server does not know the session.
    Lost,
    /// The body decides: see [`is_lost`]. If it does not say so, there is a doubt as for
    /// [`Self::Doubtful`].
    ByBody,
    /// The server has refused the request, and may not know the session: see [`is_doubtful`].
    Doubtful,
    /// The server has failed. The request may have been executed, and the text may name the
    /// session.
    Failing,
    /// The status says nothing about the session.
    Answer,
}

/// Judges the status of the answer to a request with a session id.
pub fn judge_status(status: u16) -> SessionVerdict {
    match status {
        NOT_FOUND => SessionVerdict::Lost,
        BAD_REQUEST => SessionVerdict::ByBody,
        // These are about time, size and rate, not about the session.
        ..400 | 408 | 413 | 425 | 429 | 431 => SessionVerdict::Answer,
        500.. => SessionVerdict::Failing,
        _ => SessionVerdict::Doubtful,
    }
}

/// Returns whether the body of a [`SessionVerdict::ByBody`] says that the session is not known.
pub fn is_lost(answer: &Response) -> bool {
    let Err(error) = &answer.outcome else { return false };
    let Ok(error) = RawObject::parse(error) else { return false };
    is_of_no_request(answer) && (code_of(&error).is_some_and(|code| CODES.contains(&code)) || names_it(&error))
}

/// Returns whether a 4xx with this body leaves a doubt about the session. `is_ours` is true if its
/// id is the request's.
pub fn is_doubtful(answer: &Response, is_ours: bool) -> bool {
    let names_it = || answer.outcome.as_ref().is_err_and(|error| RawObject::parse(error).is_ok_and(|e| names_it(&e)));
    !is_ours || names_it()
}

/// Returns whether an answer to a request blames the session. The server may not know it, or the
/// method speaks of a session of its own.
pub fn blames_session(answer: &Response) -> bool {
    let Err(error) = &answer.outcome else { return false };
    let Ok(error) = RawObject::parse(error) else { return false };
    code_of(&error) == Some(NO_SESSION) || names_it(&error)
}

/// Returns whether an answer says that the server does not know the method. If so, the server has
/// looked at the request.
pub fn lacks_method(answer: &Response) -> bool {
    let Err(error) = &answer.outcome else { return false };
    RawObject::parse(error).is_ok_and(|error| code_of(&error) == Some(METHOD_NOT_FOUND))
}

/// Returns whether the text of an answer has the word "session".
pub fn names_session(text: &[u8]) -> bool {
    let word = b"session";
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Returns whether an answer says by its id that it answers no request.
pub fn is_of_no_request(answer: &Response) -> bool {
    answer.id.as_ref().is_none_or(|id| id.parse::<String>().is_ok_and(|id| id == NO_ID))
}

fn code_of(error: &RawObject) -> Option<i64> {
    error.get("code").and_then(|code| code.parse::<i64>().ok())
}

/// Returns whether the message of an error names a session.
fn names_it(error: &RawObject) -> bool {
    error.string("message").is_some_and(|text| names_session(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::raw::RawJson;

    fn answer(id: Option<&str>, outcome: Result<RawJson, RawJson>) -> Response {
        Response { id: id.map(|id| RawJson::trusted(id.to_owned())), outcome, broken: None }
    }

    #[test]
    fn only_a_transport_s_own_error_is_a_lost_session() {
        for (id, code, message, lost) in [
            (None, -32000, "Bad Request: No valid session ID provided", true),
            (None, -32000, "Bad Request: Server not initialized", true),
            (None, -32000, "", true),
            (Some("\"server-error\""), -32600, "Bad Request: No valid session ID provided", true),
            (Some("\"server-error\""), -32001, "x", true),
            (None, -32602, "Unknown SESSION", true),
            (None, -32602, "Unknown tool", false),
            (None, -32603, "x", false),
            (Some("7"), -32000, "no session", false),
            (Some("\"7\""), -32600, "no session", false),
            (Some("0"), -32001, "no session", false),
            (Some("\"\""), -32001, "no session", false),
        ] {
            let error = RawJson::trusted(format!(r#"{{"code":{code},"message":"{message}"}}"#));
            assert_eq!(is_lost(&answer(id, Err(error))), lost, "{id:?} {code} {message}");
        }
        assert!(!is_lost(&answer(None, Ok(RawJson::EMPTY_OBJECT))));
    }

    #[test]
    fn a_status_is_proof_or_doubt_or_says_nothing_of_the_session() {
        for (verdict, codes) in [
            (SessionVerdict::Lost, &[404][..]),
            (SessionVerdict::ByBody, &[400]),
            (SessionVerdict::Doubtful, &[401, 403, 405, 409, 410, 422]),
            (SessionVerdict::Failing, &[500, 502, 503]),
            (SessionVerdict::Answer, &[200, 202, 307, 408, 413, 425, 429, 431]),
        ] {
            codes.iter().for_each(|code| assert_eq!(judge_status(*code), verdict, "{code}"));
        }
    }

    #[test]
    fn an_answer_of_the_method_is_a_doubt_only_if_it_blames_the_session() {
        for (code, message, doubtful, blames) in [
            (-32600, "Invalid session ID", true, true),
            (-32001, "unknown", false, true),
            (-32602, "bad arguments", false, false),
        ] {
            let error = RawJson::trusted(format!(r#"{{"code":{code},"message":"{message}"}}"#));
            let ours = answer(Some("7"), Err(error));
            assert_eq!((is_doubtful(&ours, true), blames_session(&ours)), (doubtful, blames), "{code} {message}");
            assert!(is_doubtful(&ours, false), "the answer to no request");
        }
        let result = answer(Some("7"), Ok(RawJson::trusted(r#"{"text":"session"}"#.to_owned())));
        assert!(!is_doubtful(&result, true) && !blames_session(&result), "a result is the method's");
        assert!(names_session(b"Unauthorized: Session not found") && !names_session(b"sess ion"));
    }
}
