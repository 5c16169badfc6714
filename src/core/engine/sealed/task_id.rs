//! Sealed task ids, under which clients know the tasks of upstreams.
//!
//! An id contains the upstream's own id, encrypted and bound to the caller: an upstream sees one
//! credential for all callers and takes any client that knows an id for the owner of the task. The
//! item is in it too, so that the rules on a tool hold for its tasks. Source: MCP extension
//! `io.modelcontextprotocol/tasks`, "Security Considerations".

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::mcp::task::LIFE;
use crate::policy::Caller;

/// Longest id that is made or opened, in bytes. Clients repeat it in a header.
const MAX_BYTES: usize = 4096;

/// The key that seals and opens task ids. It lives as long as the process.
pub struct TaskKey(LessSafeKey);

impl std::fmt::Debug for TaskKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskKey")
    }
}

/// A task, with the upstream and the tool that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskName {
    pub upstream: String,
    /// Canonical name of the tool whose call became the task.
    pub item: String,
    /// The upstream's own id of the task.
    pub id: String,
}

impl TaskName {
    /// Reads what [`TaskKey::seal`] encodes behind the expiry.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (upstream, rest) = part(bytes)?;
        let (item, id) = part(rest)?;
        Some(Self { upstream, item, id: String::from_utf8(id.to_vec()).ok()? })
    }
}

/// Reads a text behind its length of two bytes, and returns it with the rest.
fn part(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

impl TaskKey {
    /// Makes the key from a secret. Never returns `None`.
    pub fn new(secret: &[u8; 32]) -> Option<Self> {
        UnboundKey::new(&AES_256_GCM, secret).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    /// Seals the id of a task for its caller at `now`, the time since the process started; `None`
    /// if the id would be too long. `nonce` must never be used twice.
    pub fn seal(&self, caller: &Caller, name: &TaskName, now: Duration, nonce: [u8; NONCE_LEN]) -> Option<String> {
        let mut bytes = now.saturating_add(LIFE).as_secs().to_be_bytes().to_vec();
        for text in [&name.upstream, &name.item] {
            bytes.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(name.id.as_bytes());
        let aad = Aad::from(caller.key().as_bytes());
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes).ok()?;
        let sealed = BASE64URL_NOPAD.encode(&[&nonce[..], &bytes].concat());
        (sealed.len() <= MAX_BYTES).then_some(sealed)
    }

    /// Opens an id and returns its task. Returns `None` if the id was not made in this process for
    /// this caller or has expired; the result does not tell which.
    pub fn open(&self, caller: &Caller, sealed: &str, now: Duration) -> Option<TaskName> {
        if sealed.len() > MAX_BYTES {
            return None;
        }
        let bytes = BASE64URL_NOPAD.decode(sealed.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(caller.key().as_bytes());
        let plain = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed).ok()?;
        let (until, name) = plain.split_first_chunk::<8>()?;
        (now.as_secs() < u64::from_be_bytes(*until)).then(|| TaskName::parse(name)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn sealed(id: &str) -> (TaskKey, TaskName, Option<String>) {
        let key = TaskKey::new(&[7; 32]).unwrap();
        let name = TaskName { upstream: "git".to_owned(), item: "git__push".to_owned(), id: id.to_owned() };
        let text = key.seal(&Caller::named("ci"), &name, NOW, [1; NONCE_LEN]);
        (key, name, text)
    }

    #[test]
    fn an_id_opens_for_its_caller_alone_and_for_a_day() {
        let (key, name, text) = sealed("786512e2-9e0d");
        let text = text.unwrap();
        assert!(
            text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')),
            "fit for a header: {text}"
        );
        assert!(!text.contains("786512e2"), "{text}");
        assert_eq!(key.open(&Caller::named("ci"), &text, NOW), Some(name.clone()));
        assert_eq!(key.open(&Caller::named("ci"), &text, NOW + LIFE - Duration::from_secs(1)), Some(name));
        assert_eq!(key.open(&Caller::named("dev"), &text, NOW), None, "another caller");
        assert_eq!(key.open(&Caller::named("ci"), &text, NOW + LIFE), None, "too late");
        assert_eq!(TaskKey::new(&[8; 32]).unwrap().open(&Caller::named("ci"), &text, NOW), None, "another process");
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let (key, name, text) = sealed("");
        let text = text.unwrap();
        assert_eq!(key.open(&Caller::named("ci"), &text, NOW), Some(name), "an empty id is an id");
        for at in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open(&Caller::named("ci"), &String::from_utf8(forged).unwrap(), NOW), None, "byte {at}");
        }
        for junk in ["", "AAAA", "%%%", "786512e2-9e0d"] {
            assert_eq!(key.open(&Caller::named("ci"), junk, NOW), None, "{junk}");
        }
    }

    #[test]
    fn an_id_too_long_for_a_header_is_not_given() {
        assert!(sealed(&"x".repeat(2500)).2.is_some());
        assert!(sealed(&"x".repeat(4000)).2.is_none());
    }
}
