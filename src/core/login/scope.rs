//! Chooses the scopes that a login asks for.
//!
//! The challenge says which scopes a token needs; without one, the resource's metadata does. No
//! other scopes are assumed. Source: MCP 2025-11-25 and later, authorization, "Scope Selection
//! Strategy" and "Scope Challenge Handling".

use super::challenge::BearerChallenge;

/// The scope of a login that outlives its first token. Source: `OpenID` Connect Core, 11.
pub const OFFLINE: &str = "offline_access";
const MAX_SCOPES: usize = 256;

/// The sources of scopes for one login.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScopeSources<'a> {
    /// The operator's scopes.
    pub configured: &'a [String],
    /// Scopes of the token that was refused for too few of them.
    pub granted: &'a [String],
    /// The scopes of the challenge, as a text.
    pub challenge: Option<&'a str>,
    /// `scopes_supported` of the resource.
    pub resource: Option<&'a [String]>,
    /// `scopes_supported` of the authorization server.
    pub server: &'a [String],
    /// True if the login shall outlive its first token.
    pub offline: bool,
}

impl ScopeSources<'_> {
    /// Returns the scopes to ask for, each once. If there are none, the parameter is left out.
    pub fn choose(&self) -> Vec<String> {
        let mut chosen = Vec::new();
        let mut add = |scope: &str| {
            let is_new = !chosen.iter().any(|one| one == scope);
            if is_new && is_scope(scope) && chosen.len() < MAX_SCOPES {
                chosen.push(scope.to_owned());
            }
        };
        self.granted.iter().chain(self.configured).for_each(|scope| add(scope));
        match (self.challenge, self.resource) {
            (Some(challenge), _) => split(challenge).for_each(&mut add),
            (None, Some(resource)) if self.configured.is_empty() => resource.iter().for_each(|scope| add(scope)),
            (None, _) => {}
        }
        if self.offline && self.server.iter().any(|scope| scope == OFFLINE) {
            add(OFFLINE);
        }
        chosen
    }
}

/// Splits a text into its scopes.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|scope| !scope.is_empty())
}

/// Returns whether a text is a valid scope. Source: RFC 6749, 3.3.
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'))
}

/// The number of re-authorizations for one call. There are at most two, or a server that is never
/// content would ask for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepUps(u8);

impl StepUps {
    const MOST: u8 = 2;

    /// Counts one more; false, and counts nothing, if there were enough.
    pub fn another(&mut self) -> bool {
        let may = self.0 < Self::MOST;
        self.0 += u8::from(may);
        may
    }
}

/// Returns the scopes that a challenge names and a token lacks.
pub fn missing_scopes<'a>(challenge: &'a BearerChallenge, granted: &[String]) -> Vec<&'a str> {
    let wanted = challenge.scope.as_deref().unwrap_or_default();
    split(wanted).filter(|scope| !granted.iter().any(|one| one == scope)).collect()
}

#[cfg(test)]
mod tests;
