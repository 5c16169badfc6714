//! Sealed request states, which a modern client carries from one round of a call to the next.
//!
//! An upstream that needs input answers a call with `input_required` and a `requestState`, and the
//! client repeats that state in its next request. The upstream's own state travels inside ours,
//! encrypted and bound to the caller, the upstream, the item and the arguments: an upstream sees
//! one credential for all callers and could not tell them apart. Source: MCP 2026-07-28,
//! basic/patterns/mrtr, server requirements for `requestState`.
//!
//! A state outlives the process that sealed it, and so does its key (`AES-256-GCM-SIV`, which stays
//! secure if a nonce repeats by chance in that long life). A state continues a call once:
//! [`crate::engine::sealed::used`] knows the states used in this process, the store those of all
//! processes.

use std::time::Duration;

use crate::catalog::holder::SealHolder;
use crate::engine::sealed::{NONCE_BYTES, TextKeys};
use crate::mcp::method::Method;
use crate::mcp::version::Revision;
use crate::policy::PolicyAction;
use crate::wire::digest::Digest;
use crate::wire::secrets::SealSecrets;

/// Lifetime of a state: the time that a client has for one round.
pub const LIFE: Duration = Duration::from_secs(600);
/// Longest sealed state that is made or opened, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Most rounds of one call. A server that asks more often is treated as broken.
pub const MAX_ROUNDS: u8 = 16;

/// The keys that seal and open request states.
pub struct StateKey(TextKeys);

impl std::fmt::Debug for StateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateKey")
    }
}

/// Properties of the client that carries a state, besides those in the [`PolicyAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCarrier {
    /// Kind of the credential with which the caller authenticated, such as `token`.
    pub kind: &'static str,
    pub revision: Revision,
    /// Kinds of input that the client offers, one bit each.
    pub capabilities: u8,
}

/// The request that a state is bound to: one action, one method and one client.
#[derive(Clone, Copy, Debug)]
pub struct StateScope<'a> {
    pub method: Method,
    pub action: &'a PolicyAction,
    pub carrier: StateCarrier,
}

impl StateScope<'_> {
    /// Encodes the scope as the data that the seal authenticates. No two scopes are encoded alike.
    fn bytes(&self) -> Vec<u8> {
        let PolicyAction { caller, upstream, canonical, definition, launch, arguments, .. } = self.action;
        let StateCarrier { kind, revision, capabilities } = self.carrier;
        let holder = SealHolder { caller: caller.name(), kind, profile: self.action.profile(), revision, capabilities };
        let mut bytes = holder.bytes();
        for part in [&**upstream, self.method.as_str(), &**canonical] {
            bytes.extend_from_slice(&part.len().to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        // By canonical digest: a client may write the same arguments differently in the next round.
        for digest in [&Digest::of_arguments(arguments.as_ref()), definition, launch] {
            bytes.extend_from_slice(digest.bytes());
        }
        bytes
    }
}

/// The plain content of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateContent {
    /// Number of rounds so far.
    pub round: u8,
    pub carried: StatePayload,
}

/// The data with which a call continues in its next round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatePayload {
    /// Nothing: the upstream gave no state, so the next request carries none.
    Nothing,
    /// The upstream's own `requestState`.
    Upstream(String),
    /// The name of a call that is parked in this process.
    Parked([u8; 16]),
    /// Keys of the questions about pages. The upstream refused the call until the pages were
    /// opened.
    Pages(String),
    /// The id of the open approval that the call waits for. The call has no permit yet.
    Consent([u8; 16]),
    /// The call waits until the operator logs in at the upstream. It has no permit yet.
    Login,
}

/// The nonce of a sealed state, by which a second use is recognised.
pub type StateId = [u8; NONCE_BYTES];

/// The use of a state. It is remembered until the state expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateUse {
    pub id: StateId,
    /// Expiry of the state, in seconds since 1970.
    pub until: u64,
}

impl StatePayload {
    /// Returns whether the state leads to the memory of the process that has sealed it.
    pub const fn is_local(&self) -> bool {
        match self {
            Self::Parked(_) | Self::Consent(_) => true,
            Self::Nothing | Self::Upstream(_) | Self::Pages(_) | Self::Login => false,
        }
    }

    /// Returns the tag and the bytes of which a sealed state is made.
    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Nothing => (0, &[]),
            Self::Upstream(state) => (1, state.as_bytes()),
            Self::Parked(id) => (2, id),
            Self::Pages(keys) => (3, keys.as_bytes()),
            Self::Consent(id) => (4, id),
            Self::Login => (5, &[]),
        }
    }

    /// Reads what [`Self::parts`] has written; `None` for an unknown tag or invalid bytes.
    fn of(kind: u8, bytes: &[u8]) -> Option<Self> {
        let text = || String::from_utf8(bytes.to_vec()).ok();
        match kind {
            0 => Some(Self::Nothing),
            1 => text().map(Self::Upstream),
            2 => bytes.try_into().ok().map(Self::Parked),
            3 => text().map(Self::Pages),
            4 => bytes.try_into().ok().map(Self::Consent),
            5 => bytes.is_empty().then_some(Self::Login),
            _ => None,
        }
    }
}

impl StateKey {
    /// Derives the keys from the installation's secrets. Never returns `None`.
    pub fn new(secrets: &SealSecrets) -> Option<Self> {
        Some(Self(TextKeys::new(secrets)))
    }

    /// Seals a state at `now`, the time since 1970; `None` if the text would be too long. `nonce`
    /// must never be used twice.
    pub fn seal(
        &self,
        scope: &StateScope<'_>,
        state: &StateContent,
        now: Duration,
        nonce: [u8; NONCE_BYTES],
    ) -> Option<String> {
        let until = now.saturating_add(LIFE).as_secs();
        let mut bytes = until.to_be_bytes().to_vec();
        bytes.push(state.round);
        let (kind, carried) = state.carried.parts();
        bytes.push(kind);
        bytes.extend_from_slice(carried);
        self.0.seal(nonce, &scope.bytes(), &bytes, MAX_BYTES)
    }

    /// Seals `carried` for the round after `round`; `None` after [`MAX_ROUNDS`] rounds, or if the
    /// text would be too long.
    pub fn next(
        &self,
        scope: &StateScope<'_>,
        round: u8,
        carried: StatePayload,
        now: Duration,
        nonce: [u8; NONCE_BYTES],
    ) -> Option<String> {
        let round = round.checked_add(1).filter(|round| *round <= MAX_ROUNDS)?;
        self.seal(scope, &StateContent { round, carried }, now, nonce)
    }

    /// Opens a sealed state and returns it with its [`StateUse`]. Returns `None` if it was not
    /// sealed for exactly this scope or has expired; the result does not tell which.
    pub fn open(&self, scope: &StateScope<'_>, sealed: &str, now: Duration) -> Option<(StateContent, StateUse)> {
        if sealed.len() > MAX_BYTES {
            return None;
        }
        let read = |plain: &[u8]| {
            let (until, rest) = plain.split_first_chunk::<8>()?;
            let ([round, kind], carried) = rest.split_first_chunk::<2>()?;
            let until = u64::from_be_bytes(*until);
            let opened = StateContent { round: *round, carried: StatePayload::of(*kind, carried)? };
            (now.as_secs() < until).then_some((opened, until))
        };
        let (id, (opened, until)) = self.0.open(sealed, &scope.bytes(), read)?;
        Some((opened, StateUse { id, until }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Caller;
    use crate::wire::json::raw::RawJson;

    const NOW: Duration = Duration::from_secs(100);
    const CARRIER: StateCarrier = StateCarrier { kind: "token", revision: Revision::V2026_07_28, capabilities: 1 };

    fn key(secret: u8) -> StateKey {
        StateKey::new(&SealSecrets::new([secret; 32])).unwrap()
    }

    fn sealed(scope: &StateScope<'_>, carried: StatePayload) -> (StateKey, String) {
        let key = key(7);
        let state = StateContent { round: 2, carried };
        let text = key.seal(scope, &state, NOW, [1; NONCE_BYTES]).unwrap();
        (key, text)
    }

    fn open(key: &StateKey, scope: &StateScope<'_>, text: &str) -> Option<StateContent> {
        key.open(scope, text, NOW).map(|(opened, _)| opened)
    }

    #[test]
    fn a_state_opens_only_where_it_was_sealed() {
        let of = |text: &'static str| Some(RawJson::trusted(text));
        let push = PolicyAction {
            profile: Some("work".into()),
            arguments: of(r#"{"a":1,"b":2}"#),
            ..PolicyAction::stand_in("ci", "git", "git__push")
        };
        let scope = StateScope { method: Method::ToolsCall, action: &push, carrier: CARRIER };
        let (key, text) = sealed(&scope, StatePayload::Upstream("theirs".to_owned()));
        let opened = StateContent { round: 2, carried: StatePayload::Upstream("theirs".to_owned()) };
        assert_eq!(open(&key, &scope, &text), Some(opened.clone()));
        let rewritten = PolicyAction { arguments: of(r#"{ "b":2, "a":1 }"#), ..push.clone() };
        let same = StateScope { action: &rewritten, ..scope };
        assert_eq!(open(&key, &same, &text), Some(opened), "the same arguments written differently");
        for (label, other) in [
            ("caller", PolicyAction { caller: Caller::named("dev"), ..push.clone() }),
            ("profile", PolicyAction { profile: None, ..push.clone() }),
            ("upstream", PolicyAction { upstream: "hub".into(), ..push.clone() }),
            ("item", PolicyAction { canonical: "git__pull".into(), ..push.clone() }),
            ("arguments", PolicyAction { arguments: of(r#"{"a":1,"b":3}"#), ..push.clone() }),
            ("no arguments", PolicyAction { arguments: None, ..push.clone() }),
            ("launch", PolicyAction { launch: Digest::of(b"m"), ..push.clone() }),
            ("definition", PolicyAction { definition: Digest::of(b"e"), ..push.clone() }),
        ] {
            let foreign = StateScope { action: &other, ..scope };
            assert_eq!(key.open(&foreign, &text, NOW), None, "another {label}");
        }
        let foreign = StateScope { method: Method::PromptsGet, ..scope };
        assert_eq!(key.open(&foreign, &text, NOW), None, "another method");
        assert_eq!(key.open(&scope, &text, NOW + LIFE), None, "too late");
        for (label, carrier) in [
            ("kind of caller", StateCarrier { kind: "user", ..CARRIER }),
            ("revision", StateCarrier { revision: Revision::V2025_11_25, ..CARRIER }),
            ("capabilities", StateCarrier { capabilities: 3, ..CARRIER }),
        ] {
            assert_eq!(key.open(&StateScope { carrier, ..scope }, &text, NOW), None, "another {label}");
        }
        assert_eq!(self::key(8).open(&scope, &text, NOW), None, "another installation");
        let later = StateKey::new(&SealSecrets { current: [8; 32], earlier: vec![[7; 32]] }).unwrap();
        assert!(open(&later, &scope, &text).is_some(), "of an earlier key");
        let used = key.open(&scope, &text, NOW).unwrap().1;
        assert_eq!(used, StateUse { id: [1; NONCE_BYTES], until: (NOW + LIFE).as_secs() });
    }

    #[test]
    fn arguments_that_are_no_text_are_told_apart() {
        // A lone surrogate passes through the gateway as bytes, but no `String` can hold it.
        let [one, two] = [r#"{"x":"\ud800","path":"/tmp/a"}"#, r#"{"x":"\ud800","path":"/etc/shadow"}"#];
        let [one, two] = [one, two].map(|text| PolicyAction {
            arguments: Some(RawJson::trusted(text)),
            ..PolicyAction::stand_in("c", "u", "u__t")
        });
        let scope = StateScope { method: Method::ToolsCall, action: &one, carrier: CARRIER };
        let (key, text) = sealed(&scope, StatePayload::Nothing);
        assert!(open(&key, &scope, &text).is_some());
        assert!(open(&key, &StateScope { action: &two, ..scope }, &text).is_none());
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let action = PolicyAction::stand_in("c", "u", "u__p");
        let scope = StateScope { method: Method::PromptsGet, action: &action, carrier: CARRIER };
        for carried in [
            StatePayload::Parked([9; 16]),
            StatePayload::Pages("a".to_owned()),
            StatePayload::Consent([3; 16]),
            StatePayload::Login,
        ] {
            let (key, text) = sealed(&scope, carried.clone());
            assert_eq!(open(&key, &scope, &text), Some(StateContent { round: 2, carried }));
        }
        let (key, text) = sealed(&scope, StatePayload::Nothing);
        assert_eq!(open(&key, &scope, &text), Some(StateContent { round: 2, carried: StatePayload::Nothing }));
        for at in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open(&scope, &String::from_utf8(forged).unwrap(), NOW), None, "byte {at}");
        }
        for junk in ["", "AAAA", "%%%", "v1.a.b"] {
            assert_eq!(key.open(&scope, junk, NOW), None, "{junk}");
        }
    }
}
