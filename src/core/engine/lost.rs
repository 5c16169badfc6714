//! The answers over HTTP that say that the server does not know the session of a request, so that it has not looked at the request.
//!
//! A 404 does, whatever its body. So does a 400 with a JSON-RPC error that the transport made before any method ran: its id is not
//! the request's, and its code or its words are those of the SDKs' transports. Every other answer is one to the request.

use crate::wire::code::INVALID_REQUEST;
use crate::wire::message::Response;
use crate::wire::raw::RawObject;

const NOT_FOUND: u16 = 404;
const BAD_REQUEST: u16 = 400;
/// The codes of the official SDKs for a session that is missing, unknown or not initialized.
const CODES: [i64; 3] = [-32000, -32001, INVALID_REQUEST];
/// The id of an error without one in the Python SDK.
const NO_ID: &str = "server-error";

/// The meaning of a status for the session of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Lost,
    /// The body has to be read: see [`is_lost`].
    ByBody,
    Answer,
}

/// Judges the status of the answer to a request with a session id.
pub fn judge(status: u16) -> Verdict {
    match status {
        NOT_FOUND => Verdict::Lost,
        BAD_REQUEST => Verdict::ByBody,
        _ => Verdict::Answer,
    }
}

/// Whether the body of a [`Verdict::ByBody`] says that the session is not known.
pub fn is_lost(answer: &Response) -> bool {
    let Err(error) = &answer.outcome else { return false };
    let Ok(error) = RawObject::parse(error) else { return false };
    let code = error.get("code").and_then(|code| code.parse::<i64>().ok());
    let names_it = || error.string("message").is_some_and(|text| text.to_ascii_lowercase().contains("session"));
    is_of_no_request(answer) && (code.is_some_and(|code| CODES.contains(&code)) || names_it())
}

/// Whether an answer says by its id that it is to no request.
pub fn is_of_no_request(answer: &Response) -> bool {
    answer.id.as_ref().is_none_or(|id| id.parse::<String>().is_ok_and(|id| id == NO_ID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::raw::RawJson;

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
        let verdicts = [200, 400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 503].map(judge);
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Answer).count(), 10);
    }
}
