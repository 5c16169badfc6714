//! Which rights are asked for.
//!
//! The challenge says what a token needs; without one the resource's metadata does. Nothing else is assumed. Source: MCP
//! 2025-11-25 and later, authorization, "Scope Selection Strategy" and "Scope Challenge Handling".

use super::challenge::Challenge;

/// Source: `OpenID` Connect Core, 11.
pub const OFFLINE: &str = "offline_access";
const MAX_SCOPES: usize = 256;

/// The origins of scopes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// The operator's.
    pub configured: &'a [String],
    /// Those of the token that was refused for too few of them.
    pub granted: &'a [String],
    pub challenge: Option<&'a str>,
    /// `scopes_supported` of the resource.
    pub resource: Option<&'a [String]>,
    /// `scopes_supported` of the authorization server.
    pub server: &'a [String],
    /// The login shall outlive its first token.
    pub offline: bool,
}

impl Sources<'_> {
    /// The scopes to ask for, each once; none: the parameter is left out.
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

/// The scopes in a text.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|scope| !scope.is_empty())
}

/// Source: RFC 6749, 3.3.
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'))
}

/// Re-authorizations for one call: at most two, or a server that is never content would ask for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepUps(u8);

impl StepUps {
    const MOST: u8 = 2;

    /// Counts one more; false when there were enough.
    pub fn another(&mut self) -> bool {
        let may = self.0 < Self::MOST;
        self.0 += u8::from(may);
        may
    }
}

/// The scopes that a challenge wants and a token lacks; empty where the token has all that it names.
pub fn lacking<'a>(challenge: &'a Challenge, granted: &[String]) -> Vec<&'a str> {
    let wanted = challenge.scope.as_deref().unwrap_or_default();
    split(wanted).filter(|scope| !granted.iter().any(|one| one == scope)).collect()
}

#[cfg(test)]
mod tests;
