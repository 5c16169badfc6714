//! Checks the elicitations of servers: the address to open, the form to fill in, and the text
//! around both.
//!
//! The message names the server first and last. An elicitation that looks like one of headend's
//! own, asks for a secret, or leads to an address that people should not open is declined: the
//! server learns that the person said no, and the operator learns the reason. Source: MCP
//! 2026-07-28, client/elicitation, "Safe URL handling", "Trust" and "Statefulness".
//!
//! Every elicitation passes here, on the terms of its call ([`ElicitationTerms`]). These are
//! declined:
//!
//! - an address that is not `https` with a public host name or a host of `elicit-hosts`; on
//!   loopback also `http`, if client and server are both on this machine; never a number, user info
//!   or a listener of headend. Counted as `unsafe_url`;
//! - a form with `format: password`, a text field named like a secret in one of six languages, or a
//!   text that asks for a secret, without `elicit-secrets`. Counted as `secret_question`;
//! - a form with the choices or the key of headend's own forms, with headend's name or keys, or
//!   with hidden characters in choices. Counted as `forged_question`.
//!
//! Only members that the protocol names reach the client. A form that includes fields from
//! elsewhere (`$ref`, `allOf`), or has two lists of choices for one field, is malformed. So is a
//! form of more than 64 fields, or with a name or a value of more than 200 characters: these go
//! back to the server unchanged, so they cannot be cut. A result with more than 64 questions, or a
//! task with more over its life, is malformed too, and none of them is shown.
//!
//! The effect of declining depends on the question:
//!
//! - from a legacy server: its request is answered with `decline`;
//! - from a modern server, for a legacy client: its result is answered with `decline` for that key
//!   and the person's answers to the others;
//! - from a modern server, for a modern client: the gateway declines every question of that result
//!   at once, and the call continues; if the result asks for sampling or roots as well, the call
//!   ends with an error;
//! - of a client's own task: the client sees the task without the question, and headend declines it
//!   with a `tasks/update`;
//! - in an error -32042: the client gets -32603 without any of its addresses and words.

use crate::mcp::asking::imitation::has_gateway_name;
use crate::mcp::asking::input_error::InputError;
use crate::wire::json::raw::{RawJson, RawObject};

mod address;
mod form;
mod host;
mod secret;
mod terms;
mod text;

pub use self::form::{ALLOW_TITLE, DECISION, DENY, ONCE, SESSION, YES_ONCE};
pub use self::host::HostPattern;
pub use self::terms::{ElicitationSettings, ElicitationTerms, OwnListeners};
pub use self::text::bound_message;

/// Checks an elicitation against the terms, and edits it: removes unknown members, and names the
/// server in the message.
///
/// # Errors
/// [`InputError`]: a kind that the client did not offer is refused before anything else is checked.
pub fn check_elicitation(params: &mut RawObject, terms: &ElicitationTerms) -> Result<(), InputError> {
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
    // A member of the other mode would reach the client unchecked.
    params.retain(|name| members.contains(&name));
    let message = params.string("message").ok_or(InputError::Malformed)?;
    if has_gateway_name(&params.encode()) {
        return Err(InputError::Imitates);
    }
    if mode == "url" {
        let url = params.string("url").ok_or(InputError::Malformed)?;
        let url = address::check_address(&url, terms).map_err(InputError::Address)?;
        params.set("url", RawJson::string(&url));
    } else if let Some(schema) = params.get("requestedSchema") {
        let schema = form::check_form(schema, &message, terms.elicit.secrets)?;
        params.set("requestedSchema", schema);
    }
    params.set("message", RawJson::string(&text::label_message(&terms.upstream, &message)));
    Ok(())
}

#[cfg(test)]
mod tests;
