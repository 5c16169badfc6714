//! Elicitations of servers: the address to open, the form to fill in, and the text around both.
//!
//! A question names its server first and last. What passes for one of ours, asks for a secret or leads to an address that
//! people should not open is declined: the server is told that the person said no, and the operator why.
//! Source: MCP 2026-07-28, client/elicitation, "Safe URL handling", "Trust" and "Statefulness".
//!
//! Every elicitation passes here, whichever way it takes, on the terms of its call ([`Terms`]):
//!
//! | declined | counted as |
//! |---|---|
//! | an address that is not `https` with a public host name or one of `elicit-hosts`; on loopback also `http`, where client and server are both on this machine; never a number, user info or a listener of ours | `unsafe_url` |
//! | a form with `format: password`, a text field named like a secret in one of six languages, or a text that asks for one, without `elicit-secrets` | `secret_question` |
//! | a form with the choices or the key of ours, our name, our keys, or choices with hidden characters | `forged_question` |
//!
//! Only members that the protocol names reach the client. A form that includes fields from elsewhere (`$ref`, `allOf`),
//! or has two lists of choices for one field, is malformed. So is a form of more than 64 fields, or with a name or a
//! value of more than 200 characters: these go back to the server unchanged, so they cannot be cut. A result with more
//! than 64 questions, or a task with more over its life, is malformed too, and none of them is shown.
//!
//! | question of | what declining means |
//! |---|---|
//! | a legacy server | its request is answered `decline` |
//! | a modern server, for a legacy client | its result is answered with `decline` for that key and the person's answers to the others |
//! | a modern server, for a modern client | the gateway declines every question of that result at once, and the call continues; if the result asks for sampling or roots as well, the call ends with an error |
//! | a client's own task | the client sees the task without the question, and a `tasks/update` of ours declines it |
//! | an error -32042 | the client gets -32603 without any of its addresses and words |

use crate::mcp::imitation::imitates;
use crate::mcp::input_error::InputError;
use crate::wire::raw::{RawJson, RawObject};

mod address;
mod form;
mod host;
mod secret;
mod terms;
mod text;

pub use self::form::{ALLOW_TITLE, DECISION, DENY, ONCE, SESSION, YES_ONCE};
pub use self::host::HostPattern;
pub use self::terms::{Elicit, Own, Terms};
pub use self::text::bounded;

/// Judges an elicitation, and names its server in it.
///
/// # Errors
/// [`InputError`]. Nothing is looked at that the client did not offer.
pub fn pass(params: &mut RawObject, terms: &Terms) -> Result<(), InputError> {
    let mode = match params.get("mode") {
        None => "form".to_owned(),
        Some(mode) => mode.parse::<String>().map_err(|_| InputError::Malformed)?,
    };
    let (offered, members): (bool, &[&str]) = match mode.as_str() {
        "form" => (terms.offered.form, &["mode", "message", "requestedSchema", "_meta"]),
        "url" => (terms.offered.url, &["mode", "message", "url", "elicitationId", "_meta"]),
        _ => return Err(InputError::Malformed),
    };
    if !offered {
        return Err(InputError::NotOffered);
    }
    // A member of the other mode would reach the client without having been judged.
    params.retain(|name| members.contains(&name));
    let message = params.string("message").ok_or(InputError::Malformed)?;
    if imitates(&params.encode()) {
        return Err(InputError::Imitates);
    }
    if mode == "url" {
        let url = params.string("url").ok_or(InputError::Malformed)?;
        let url = address::safe(&url, terms).map_err(InputError::Address)?;
        params.set("url", RawJson::string(&url));
    } else if let Some(schema) = params.get("requestedSchema") {
        let schema = form::safe(schema, &message, terms.elicit.secrets)?;
        params.set("requestedSchema", schema);
    }
    params.set("message", RawJson::string(&text::labelled(&terms.upstream, &message)));
    Ok(())
}

#[cfg(test)]
mod tests;
