//! Sealed session ids, with which legacy clients over HTTP keep their sessions when the gateway
//! restarts.
//!
//! An id holds the terms that `initialize` agreed on, encrypted and bound to caller, credential and
//! profile, so a live session needs nothing on disk. The client's capabilities are abbreviated in
//! it: with the usual client libraries an id stays below 100 characters, since some intermediaries
//! take no more than 128, and it never exceeds 1,000.

use std::time::Duration;

use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::{NONCE_BYTES, TextKeys};
use crate::mcp::version::{Era, Revision};
use crate::policy::Caller;
use crate::wire::json::raw::RawJson;
use crate::wire::secrets::SealSecrets;

/// Longest id that is made or opened, in bytes.
const MAX_BYTES: usize = 1000;
/// Frequent parts of capabilities, each abbreviated to one byte. JSON contains none of these bytes.
const WORDS: [&str; 12] = [
    r#""listChanged":true"#,
    r#""listChanged":false"#,
    r#""elicitation":"#,
    r#""sampling":"#,
    r#""context":"#,
    r#""roots":"#,
    r#""tools":"#,
    r#""form":"#,
    r#""url":"#,
    "{}",
    r#""extensions":{"io.modelcontextprotocol/ui":"#,
    r#""mimeTypes":["text/html;profile=mcp-app"]"#,
];
/// The character that stands for the first of [`WORDS`]; the others follow it.
const FIRST_WORD: char = '\u{10}';

/// The name of a session, on disk and in its id. It is also the nonce of the id.
pub type SessionName = [u8; NONCE_BYTES];

/// The keys that seal and open session ids.
pub struct SessionKey(TextKeys);

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey")
    }
}

/// The identity that a session id is bound to. The id opens for no other owner.
#[derive(Clone, Copy, Debug)]
pub struct SessionOwner<'a> {
    pub caller: &'a Caller,
    /// Kind of the credential with which the caller authenticated, such as `token`.
    pub kind: &'a str,
    /// Digest of the caller's token; empty for a caller without one.
    pub token: &'a [u8],
    pub profile: Option<&'a str>,
}

impl SessionOwner<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.profile.is_some())];
        let profile = self.profile.unwrap_or_default();
        for part in [self.caller.name().as_bytes(), self.kind.as_bytes(), self.token, profile.as_bytes()] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// The terms of a session, which its id holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    /// Time of `initialize`, in seconds since 1970.
    pub opened: u64,
    /// Expiry of the id, in seconds since 1970.
    pub until: u64,
    /// The agreed revision, always a legacy one.
    pub revision: Revision,
    /// True if the client was on this machine.
    pub is_here: bool,
    /// Capabilities that are declared to servers in the client's name.
    pub capabilities: Option<RawJson>,
    /// The run of the replica that opened the session; `None` without a cluster.
    pub run: Option<RunId>,
}

impl SessionTerms {
    fn bytes(&self) -> Option<Vec<u8>> {
        let flags = [self.is_here, self.capabilities.is_some(), self.run.is_some()];
        let mut bytes = vec![flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag))];
        let date: String = self.revision.as_str().chars().filter(char::is_ascii_digit).collect();
        bytes.extend_from_slice(&date.parse::<u32>().ok()?.to_be_bytes());
        bytes.extend_from_slice(&self.opened.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(self.until.checked_sub(self.opened)?).ok()?.to_be_bytes());
        if let Some(run) = self.run {
            bytes.extend_from_slice(&run.bytes());
        }
        if let Some(capabilities) = &self.capabilities {
            bytes.extend_from_slice(abbreviated(&capabilities.text())?.as_bytes());
        }
        Some(bytes)
    }

    /// Reads what [`Self::bytes`] has written.
    fn of(bytes: &[u8]) -> Option<Self> {
        let ([flags], rest) = bytes.split_first_chunk::<1>()?;
        let (date, rest) = rest.split_first_chunk::<4>()?;
        let (opened, rest) = rest.split_first_chunk::<8>()?;
        let (life, rest) = rest.split_first_chunk::<4>()?;
        let (run, rest) = match flags & 4 {
            0 => (None, rest),
            _ => rest.split_first_chunk::<8>().and_then(|(run, rest)| Some((Some(RunId::new(*run)?), rest)))?,
        };
        let date = u32::from_be_bytes(*date);
        let date = format!("{:04}-{:02}-{:02}", date / 10_000, date / 100 % 100, date % 100);
        let opened = u64::from_be_bytes(*opened);
        let capabilities = std::str::from_utf8(rest).ok()?;
        Some(Self {
            opened,
            until: opened.checked_add(u64::from(u32::from_be_bytes(*life)))?,
            revision: Revision::parse(&date).filter(|revision| revision.era() == Era::Legacy)?,
            is_here: flags & 1 != 0,
            capabilities: (flags & 2 != 0).then(|| RawJson::trusted(expanded(capabilities))),
            run,
        })
    }
}

/// Returns each word behind the character that stands for it.
fn words() -> impl DoubleEndedIterator<Item = (char, &'static str)> {
    (FIRST_WORD..='\u{1b}').zip(WORDS).collect::<Vec<_>>().into_iter()
}

/// Abbreviates a JSON text; `None` if it contains a character that stands for a word.
fn abbreviated(text: &str) -> Option<String> {
    if words().any(|(short, _)| text.contains(short)) {
        return None;
    }
    Some(words().fold(text.to_owned(), |text, (short, word)| text.replace(word, short.encode_utf8(&mut [0; 4]))))
}

/// Undoes [`abbreviated`].
fn expanded(text: &str) -> String {
    words().rev().fold(text.to_owned(), |text, (short, word)| text.replace(short, word))
}

impl SessionKey {
    /// Derives the keys from the installation's secrets. Never returns `None`.
    pub fn new(secrets: &SealSecrets) -> Option<Self> {
        Some(Self(TextKeys::new(secrets)))
    }

    /// Makes the id of a session; `None` if the terms do not fit into it. `name` must never be used
    /// twice.
    pub fn seal(&self, owner: &SessionOwner<'_>, terms: &SessionTerms, name: SessionName) -> Option<String> {
        self.0.seal(name, &owner.bytes(), &terms.bytes()?, MAX_BYTES)
    }

    /// Opens an id and returns the name and the terms of its session. `now` is the time since 1970.
    /// Returns `None` if the id was not made for this owner or has expired; the result does not
    /// tell which.
    pub fn open(&self, owner: &SessionOwner<'_>, sealed: &str, now: Duration) -> Option<(SessionName, SessionTerms)> {
        if sealed.len() > MAX_BYTES {
            return None;
        }
        let (name, terms) = self.0.open(sealed, &owner.bytes(), SessionTerms::of)?;
        (now.as_secs() < terms.until).then_some((name, terms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    /// The id of a session without a cluster, made by another library.
    const ALONE: &str = "AwMDAwMDAwMDAwMD4M_rYL18w4Qh1s0B262qJ1UpD_EV1RTlDh6ZXSheM7hN3Utmpw";

    /// The user of this machine, with the generated token.
    fn owner() -> SessionOwner<'static> {
        SessionOwner { caller: Caller::local(), kind: "token", token: &[7; 32], profile: Some("work") }
    }

    fn key(secret: u8) -> SessionKey {
        SessionKey::new(&SealSecrets::new([secret; 32])).unwrap()
    }

    fn terms(capabilities: Option<&'static str>) -> SessionTerms {
        SessionTerms {
            opened: NOW.as_secs() - 60,
            until: NOW.as_secs() + 3600,
            revision: Revision::V2025_06_18,
            is_here: true,
            capabilities: capabilities.map(RawJson::trusted),
            run: None,
        }
    }

    #[test]
    fn an_id_opens_for_its_owner_alone_and_until_its_time_is_over() {
        let terms = terms(Some(r#"{"roots":{"listChanged":true},"elicitation":{}}"#));
        let id = key(1).seal(&owner(), &terms, [3; 12]).unwrap();
        assert!(id.len() < 100 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        assert_eq!(key(1).open(&owner(), &id, NOW), Some(([3; 12], terms.clone())));
        for (label, other) in [
            ("caller", SessionOwner { caller: &Caller::named("dev"), ..owner() }),
            ("caller of that name", SessionOwner { caller: Caller::anyone(), kind: "anyone", token: &[], ..owner() }),
            ("kind", SessionOwner { kind: "anyone", ..owner() }),
            ("token", SessionOwner { token: &[8; 32], ..owner() }),
            ("profile", SessionOwner { profile: None, ..owner() }),
            ("empty profile", SessionOwner { profile: Some(""), ..owner() }),
        ] {
            assert_eq!(key(1).open(&other, &id, NOW), None, "another {label}");
        }
        assert_eq!(key(1).open(&owner(), &id, NOW + Duration::from_secs(3600)), None, "too late");
        assert_eq!(key(2).open(&owner(), &id, NOW), None, "another installation");
        let later = SessionKey::new(&SealSecrets { current: [2; 32], earlier: vec![[1; 32]] }).unwrap();
        assert_eq!(later.open(&owner(), &id, NOW), Some(([3; 12], terms)), "of an earlier key");
        for at in 0..id.len() {
            let mut forged = id.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key(1).open(&owner(), &String::from_utf8(forged).unwrap(), NOW), None, "byte {at}");
        }
        for junk in ["", "AAAA", "%%%", &id[..20]] {
            assert_eq!(key(1).open(&owner(), junk, NOW), None, "{junk}");
        }
    }

    #[test]
    fn every_legacy_revision_and_all_capabilities_come_back_as_they_were() {
        for revision in Revision::of(Era::Legacy) {
            for capabilities in [
                None,
                Some("{}"),
                Some(r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}"#),
                Some(r#"{"sampling" : { },"roots":{"listChanged":false,"x":"\u0010 é \"{}\""}}"#),
            ] {
                let terms = SessionTerms { revision, is_here: false, ..terms(capabilities) };
                let id = key(1).seal(&owner(), &terms, [3; 12]).unwrap();
                assert_eq!(key(1).open(&owner(), &id, NOW).unwrap().1, terms);
                assert!(id.len() <= 128 || capabilities.is_some_and(|text| text.contains('é')), "{id}");
            }
        }
    }

    #[test]
    fn an_id_names_the_run_of_its_replica_only_in_a_cluster() {
        let alone = terms(Some(r#"{"elicitation":{}}"#));
        let run = RunId::new([9; 8]);
        let in_cluster = SessionTerms { run, ..alone.clone() };
        let [id, longer] = [&alone, &in_cluster].map(|terms| key(1).seal(&owner(), terms, [3; 12]).unwrap());
        assert_eq!(id, ALONE);
        assert_eq!(key(1).open(&owner(), &longer, NOW), Some(([3; 12], in_cluster)));
        assert!(longer.len() <= id.len() + 11 && longer.len() <= 128, "{longer}");
    }

    #[test]
    fn capabilities_that_make_an_id_too_long_get_none() {
        let of = |length: usize| {
            let text = format!(r#"{{"elicitation":{{"x":"{}"}}}}"#, "y".repeat(length));
            let terms = SessionTerms { capabilities: Some(RawJson::trusted(text)), ..terms(None) };
            key(1).seal(&owner(), &terms, [3; 12])
        };
        assert!(of(600).is_some_and(|id| id.len() <= 1000));
        assert_eq!(of(800), None);
    }
}
