//! Request states: what a modern client carries from one round of a call to the next.
//!
//! The upstream's own state travels inside ours, encrypted and bound to the caller, the upstream, the item and the arguments:
//! an upstream sees one credential for all our callers and could not tell them apart. Source: MCP 2026-07-28,
//! basic/patterns/mrtr, server requirements for `requestState`.

use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use data_encoding::BASE64URL_NOPAD;

use crate::mcp::method::Method;
use crate::policy::Action;
use crate::wire::digest::Digest;

/// How long a client may take for one round.
pub const LIFE: Duration = Duration::from_secs(600);
/// Longest state that is looked at, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Rounds of one call; a server that asks more often is broken.
pub const MAX_ROUNDS: u8 = 16;

/// Seals and opens states; lives as long as the process.
pub struct StateKey(LessSafeKey);

impl std::fmt::Debug for StateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateKey")
    }
}

/// What a state is bound to: one action, of one method.
#[derive(Clone, Copy, Debug)]
pub struct StateScope<'a> {
    pub method: Method,
    pub action: &'a Action,
}

impl StateScope<'_> {
    /// Everything, with separators that none of the parts can contain.
    fn bytes(&self) -> Vec<u8> {
        let Action { caller, upstream, canonical, definition, launch, arguments, .. } = self.action;
        let mut bytes = Vec::new();
        for part in [&**caller, self.action.profile(), &**upstream, self.method.as_str(), &**canonical] {
            bytes.extend_from_slice(&part.len().to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        // Clients may write the same arguments differently the second time.
        for digest in [&Digest::of_arguments(arguments.as_ref()), definition, launch] {
            bytes.extend_from_slice(digest.bytes());
        }
        bytes
    }
}

/// The content of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// How many rounds there have been.
    pub round: u8,
    pub carried: Carried,
}

/// The parts needed to continue a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The upstream gave no state, so none must be sent to it.
    Nothing,
    /// The upstream's own state.
    Upstream(String),
    /// The call waits here, under this name.
    Parked([u8; 16]),
    /// The upstream refused the call until pages were opened; the keys of the questions about them.
    Pages(String),
    /// A person is asked to agree to the call, by the prompt of this name. Nothing was permitted yet.
    Consent([u8; 16]),
}

/// Names one sealed state, so that it can be told whether it was used before.
pub type StateId = [u8; NONCE_LEN];

impl Carried {
    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Nothing => (0, &[]),
            Self::Upstream(state) => (1, state.as_bytes()),
            Self::Parked(id) => (2, id),
            Self::Pages(keys) => (3, keys.as_bytes()),
            Self::Consent(id) => (4, id),
        }
    }

    fn of(kind: u8, bytes: &[u8]) -> Option<Self> {
        let text = || String::from_utf8(bytes.to_vec()).ok();
        match kind {
            0 => Some(Self::Nothing),
            1 => text().map(Self::Upstream),
            2 => bytes.try_into().ok().map(Self::Parked),
            3 => text().map(Self::Pages),
            4 => bytes.try_into().ok().map(Self::Consent),
            _ => None,
        }
    }
}

impl StateKey {
    /// `None` never happens with a secret of this length.
    pub fn new(secret: &[u8; 32]) -> Option<Self> {
        UnboundKey::new(&AES_256_GCM, secret).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    /// Seals a state at `now`, the time since the process started. `nonce` must never be used twice.
    pub fn seal(
        &self,
        scope: &StateScope<'_>,
        state: &Opened,
        now: Duration,
        nonce: [u8; NONCE_LEN],
    ) -> Option<String> {
        let until = now.saturating_add(LIFE).as_secs();
        let mut bytes = until.to_be_bytes().to_vec();
        bytes.push(state.round);
        let (kind, carried) = state.carried.parts();
        bytes.push(kind);
        bytes.extend_from_slice(carried);
        let aad = Aad::from(scope.bytes());
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes).ok()?;
        let sealed = BASE64URL_NOPAD.encode(&[&nonce[..], &bytes].concat());
        (sealed.len() <= MAX_BYTES).then_some(sealed)
    }

    /// Seals the state for the round after `round`; `None` where there have been too many.
    pub fn next(
        &self,
        scope: &StateScope<'_>,
        round: u8,
        carried: Carried,
        now: Duration,
        nonce: [u8; NONCE_LEN],
    ) -> Option<String> {
        let round = round.checked_add(1).filter(|round| *round <= MAX_ROUNDS)?;
        self.seal(scope, &Opened { round, carried }, now, nonce)
    }

    /// Opens a state; `None` when it was not sealed here for exactly this scope, or is too old. Which of these is not told.
    pub fn open(&self, scope: &StateScope<'_>, sealed: &str, now: Duration) -> Option<(Opened, StateId)> {
        if sealed.len() > MAX_BYTES {
            return None;
        }
        let bytes = BASE64URL_NOPAD.decode(sealed.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(scope.bytes());
        let plain = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed).ok()?;
        let (until, rest) = plain.split_first_chunk::<8>()?;
        let ([round, kind], carried) = rest.split_first_chunk::<2>()?;
        if now.as_secs() >= u64::from_be_bytes(*until) {
            return None;
        }
        Some((Opened { round: *round, carried: Carried::of(*kind, carried)? }, *nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::raw::RawJson;

    const NOW: Duration = Duration::from_secs(100);

    fn sealed(scope: &StateScope<'_>, carried: Carried) -> (StateKey, String) {
        let key = StateKey::new(&[7; 32]).unwrap();
        let state = Opened { round: 2, carried };
        let text = key.seal(scope, &state, NOW, [1; NONCE_LEN]).unwrap();
        (key, text)
    }

    fn open(key: &StateKey, scope: &StateScope<'_>, text: &str) -> Option<Opened> {
        key.open(scope, text, NOW).map(|(opened, _)| opened)
    }

    #[test]
    fn a_state_opens_only_where_it_was_sealed() {
        let of = |text: &'static str| Some(RawJson::trusted(text));
        let push = Action {
            profile: Some("work".into()),
            arguments: of(r#"{"a":1,"b":2}"#),
            ..Action::stand_in("ci", "git", "git__push")
        };
        let scope = StateScope { method: Method::ToolsCall, action: &push };
        let (key, text) = sealed(&scope, Carried::Upstream("theirs".to_owned()));
        let opened = Opened { round: 2, carried: Carried::Upstream("theirs".to_owned()) };
        assert_eq!(open(&key, &scope, &text), Some(opened.clone()));
        let rewritten = Action { arguments: of(r#"{ "b":2, "a":1 }"#), ..push.clone() };
        let same = StateScope { action: &rewritten, ..scope };
        assert_eq!(open(&key, &same, &text), Some(opened), "the same arguments written differently");
        for (label, other) in [
            ("caller", Action { caller: "dev".into(), ..push.clone() }),
            ("profile", Action { profile: None, ..push.clone() }),
            ("upstream", Action { upstream: "hub".into(), ..push.clone() }),
            ("item", Action { canonical: "git__pull".into(), ..push.clone() }),
            ("arguments", Action { arguments: of(r#"{"a":1,"b":3}"#), ..push.clone() }),
            ("no arguments", Action { arguments: None, ..push.clone() }),
            ("launch", Action { launch: Digest::of(b"m"), ..push.clone() }),
            ("definition", Action { definition: Digest::of(b"e"), ..push.clone() }),
        ] {
            let foreign = StateScope { action: &other, ..scope };
            assert_eq!(key.open(&foreign, &text, NOW), None, "another {label}");
        }
        let foreign = StateScope { method: Method::PromptsGet, ..scope };
        assert_eq!(key.open(&foreign, &text, NOW), None, "another method");
        assert_eq!(key.open(&scope, &text, NOW + LIFE), None, "too late");
        assert_eq!(StateKey::new(&[8; 32]).unwrap().open(&scope, &text, NOW), None, "another process");
    }

    #[test]
    fn arguments_that_are_no_text_are_told_apart() {
        // A lone surrogate passes through a gateway that keeps bytes, and no string can hold it.
        let [one, two] = [r#"{"x":"\ud800","path":"/tmp/a"}"#, r#"{"x":"\ud800","path":"/etc/shadow"}"#];
        let [one, two] = [one, two]
            .map(|text| Action { arguments: Some(RawJson::trusted(text)), ..Action::stand_in("c", "u", "u__t") });
        let scope = StateScope { method: Method::ToolsCall, action: &one };
        let (key, text) = sealed(&scope, Carried::Nothing);
        assert!(open(&key, &scope, &text).is_some());
        assert!(open(&key, &StateScope { action: &two, ..scope }, &text).is_none());
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let action = Action::stand_in("c", "u", "u__p");
        let scope = StateScope { method: Method::PromptsGet, action: &action };
        for carried in [Carried::Parked([9; 16]), Carried::Pages("a".to_owned()), Carried::Consent([3; 16])] {
            let (key, text) = sealed(&scope, carried.clone());
            assert_eq!(open(&key, &scope, &text), Some(Opened { round: 2, carried }));
        }
        let (key, text) = sealed(&scope, Carried::Nothing);
        assert_eq!(open(&key, &scope, &text), Some(Opened { round: 2, carried: Carried::Nothing }));
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
