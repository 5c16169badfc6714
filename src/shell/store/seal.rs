//! Sealed values: texts encrypted with a key that is not in the database, each bound to its place
//! there.
//!
//! A sealed value is `sealed:1:<key>:<bytes>`: the format, the id of the key in hexadecimal, and in
//! base64url the nonce with the output of AES-256-GCM. The place (table, column, row) is
//! authenticated with the text, so that values cannot be swapped. A value of another key or place
//! does not open and counts as absent; a value that was never sealed is read as it is.
//!
//! The key comes from `[secrets] key`, else from `secrets.key` in the state directory, which the
//! first of several processes creates. The first key seals, and all keys open: `[secrets]
//! previous-key` too, and the file beside a configured key. A store opened for writing seals plain
//! values, which release 0.1.0 wrote, and seals approvals and launches of an earlier key again;
//! `headend secrets rekey` does so for every sealed value.
//! No decision depends on a sealed value: grants and pins are digests. Commands without a daemon
//! create no key.
//!
//! [`Seals::secrets`] derives further keys from the same ones: those of session ids, states of
//! calls and cursors, which clients carry over a restart. They are bound to one store, which knows
//! the sessions that ended and the states that were used. Another store does not accept them, even
//! with the same `[secrets] key`, or if it was made anew beside the same `secrets.key`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use rustix::fs::OFlags;

use crate::base::clock;
use crate::config::source::guard;
use crate::config::source::secret::Secret;
use crate::store::disk::files::create_once;
use crate::wire::secrets::SealSecrets;

/// Name of the key file in the state directory, used if the configuration has no key.
pub const KEY_FILE: &str = "secrets.key";
/// Shortest key that the file may hold, in bytes.
const MIN_KEY_BYTES: usize = 32;
/// Prefix of each sealed value of this format.
const FORMAT: &str = "sealed:1:";
/// Origins of keys, as messages name them.
const GIVEN: &str = "`key` in [secrets]";
const PREVIOUS: &str = "`previous-key` in [secrets]";
const KEPT: &str = "the file secrets.key in the state directory";
const ID_BYTES: usize = 8;

/// The sources of a store's keys.
#[derive(Clone, Debug, Default)]
pub struct KeySource {
    /// Key of the configuration. If it is set, the key file still opens earlier values.
    pub given: Option<Secret>,
    /// Previous key of the configuration, which only opens.
    pub previous: Option<Secret>,
    /// Whether a missing key file is created.
    pub make: bool,
}

/// The keys of a store; clones share them.
#[derive(Clone)]
pub struct Seals(Arc<SealKeys>);

struct SealKeys {
    /// The first key seals, all of them open.
    keys: Vec<SealKey>,
    /// Whether a value could not be opened.
    lost: AtomicBool,
}

struct SealKey {
    /// Where the operator keeps the key, such as [`GIVEN`].
    origin: &'static str,
    id: [u8; ID_BYTES],
    aead: LessSafeKey,
    /// Input of the keys for other purposes.
    derived: Prk,
}

/// The result of opening a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnsealedValue {
    /// The value was never sealed.
    Clear,
    Text {
        text: String,
        /// Whether the value was sealed with the key that seals now.
        current: bool,
    },
    /// The key is missing, the value was sealed for another place, or it is damaged.
    Lost,
}

/// Returns the id that values sealed with this key have, in hexadecimal. `None` would be a failure
/// of the library's key derivation and never happens.
pub fn key_id(key: &Secret) -> Option<String> {
    SealKey::of(GIVEN, key.expose()).map(|key| key.hex())
}

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seals({})", self.0.keys.len())
    }
}

impl Seals {
    /// Loads the keys of a state directory. Creates the key file if `source` says so and there is
    /// no other key.
    ///
    /// # Errors
    /// A sentence with the file and the way out.
    pub fn of(dir: &Path, source: &KeySource) -> Result<Self, String> {
        let path = dir.join(KEY_FILE);
        let told = |error: io::Error| format!("{} {error}", path.display());
        let mut kept = read_key_file(&path).map_err(told)?;
        if kept.is_none() && source.given.is_none() && source.make {
            create_once(dir, KEY_FILE, &BASE64URL_NOPAD.encode(&clock::random::<32>())).map_err(told)?;
            // If several processes created the file at once, the first one won.
            kept = read_key_file(&path).map_err(told)?;
        }
        let given = source.given.as_ref().map(|key| (GIVEN, key.expose()));
        let kept = kept.as_deref().map(|key| (KEPT, key));
        // A previous key alone must not seal.
        let previous = source.previous.as_ref().filter(|_| given.or(kept).is_some());
        let previous = previous.map(|key| (PREVIOUS, key.expose()));
        let secrets = if given.is_some() { [given, previous, kept] } else { [kept, previous, None] };
        Self::with(secrets.into_iter().flatten()).ok_or_else(|| told(io::Error::other("makes no key")))
    }

    /// Derives the keys of these secrets, each with its origin; the first one seals. `None` would
    /// be a failure of the library's key derivation and never happens.
    pub fn with<'s>(secrets: impl Iterator<Item = (&'static str, &'s str)>) -> Option<Self> {
        let keys = secrets.map(|(origin, secret)| SealKey::of(origin, secret)).collect::<Option<_>>()?;
        Some(Self(Arc::new(SealKeys { keys, lost: AtomicBool::new(false) })))
    }

    /// Returns the id of the key that seals, in hexadecimal; `None` if there is no key.
    pub fn current_id(&self) -> Option<String> {
        self.0.keys.first().map(SealKey::hex)
    }

    /// Returns the origins of the keys that only open.
    pub fn earlier_origins(&self) -> Vec<&'static str> {
        self.0.keys.iter().skip(1).map(|key| key.origin).collect()
    }

    /// Returns the origin of the key with this id; `None` if there is no such key.
    pub fn origin_of(&self, id: &str) -> Option<&'static str> {
        self.0.keys.iter().find(|key| key.hex() == id).map(|key| key.origin)
    }

    /// Returns the beginning of every value that the current key sealed; `None` if there is no key.
    pub fn current_prefix(&self) -> Option<String> {
        self.0.keys.first().map(SealKey::prefix)
    }

    /// Seals a text for a place (table, column, row); `None` if there is no key.
    pub fn seal(&self, place: &[&str], text: &str) -> Option<String> {
        let key = self.0.keys.first()?;
        let head = key.prefix();
        let nonce: [u8; NONCE_LEN] = clock::random();
        let mut bytes = text.as_bytes().to_vec();
        let aad = Aad::from(encode_place(&head, place));
        key.aead.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes).ok()?;
        Some(head + &BASE64URL_NOPAD.encode(&[&nonce[..], &bytes].concat()))
    }

    /// Returns the text of a stored value, sealed or not; `None` if its seal cannot be opened.
    pub fn opened(&self, place: &[&str], stored: String) -> Option<String> {
        match self.open(place, &stored) {
            UnsealedValue::Clear => Some(stored),
            UnsealedValue::Text { text, .. } => Some(text),
            UnsealedValue::Lost => None,
        }
    }

    /// Opens a value that was stored in that place. Logs the first value of the process that does
    /// not open.
    pub fn open(&self, place: &[&str], stored: &str) -> UnsealedValue {
        if !stored.starts_with("sealed:") {
            return UnsealedValue::Clear;
        }
        match self.try_open(place, stored) {
            Some((text, current)) => UnsealedValue::Text { text, current },
            None => {
                if !self.0.lost.swap(true, Ordering::Relaxed) {
                    let key =
                        stored.strip_prefix(FORMAT).and_then(|rest| rest.get(..2 * ID_BYTES)).unwrap_or("unknown");
                    tracing::warn!(
                        key,
                        "values in the store are sealed with a key that is not here, and count as absent; \
                         give it as [secrets] key or previous-key, or in the file secrets.key of the state directory"
                    );
                }
                UnsealedValue::Lost
            }
        }
    }

    /// Derives the secrets for another purpose of one installation, in the order of the keys;
    /// `None` if there is no key.
    pub fn secrets(&self, purpose: &str, installation: &[u8; 32]) -> Option<SealSecrets> {
        let mut secrets = self.0.keys.iter().filter_map(|key| key.secret(purpose, installation));
        Some(SealSecrets { current: secrets.next()?, earlier: secrets.collect() })
    }

    /// Whether there is any key.
    pub fn can_seal(&self) -> bool {
        !self.0.keys.is_empty()
    }

    /// Whether some value could not be opened so far.
    pub fn has_lost(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Opens a sealed value; also returns whether the first key sealed it.
    fn try_open(&self, place: &[&str], stored: &str) -> Option<(String, bool)> {
        let (id, encoded) = stored.strip_prefix(FORMAT)?.split_once(':')?;
        let at = self.0.keys.iter().position(|key| key.hex() == id)?;
        let bytes = BASE64URL_NOPAD.decode(encoded.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(encode_place(&format!("{FORMAT}{id}:"), place));
        let plain = self.0.keys.get(at)?.aead.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed);
        Some((String::from_utf8(plain.ok()?.to_vec()).ok()?, at == 0))
    }
}

impl SealKey {
    /// Derives the keys and the id of a secret of any length (HKDF, RFC 5869).
    fn of(origin: &'static str, secret: &str) -> Option<Self> {
        let derived = Salt::new(HKDF_SHA256, b"headend").extract(secret.as_bytes());
        let mut id = [0; 32];
        derived.expand(&[b"seal 1 id"], HKDF_SHA256).and_then(|okm| okm.fill(&mut id)).ok()?;
        let key = UnboundKey::from(derived.expand(&[b"seal 1 key"], &AES_256_GCM).ok()?);
        Some(Self { origin, id: *id.first_chunk()?, aead: LessSafeKey::new(key), derived })
    }

    fn hex(&self) -> String {
        HEXLOWER.encode(&self.id)
    }

    /// Returns the beginning of every value that this key sealed.
    fn prefix(&self) -> String {
        format!("{FORMAT}{}:", self.hex())
    }

    fn secret(&self, purpose: &str, installation: &[u8; 32]) -> Option<[u8; 32]> {
        let mut secret = [0; 32];
        let info = [purpose.as_bytes(), installation];
        self.derived.expand(&info, HKDF_SHA256).and_then(|okm| okm.fill(&mut secret)).ok()?;
        Some(secret)
    }
}

/// Encodes the head and the place for authentication. Each part is preceded by its length, so that
/// no two places encode to the same bytes.
fn encode_place(head: &str, place: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [head].iter().chain(place) {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

/// Reads the key file; `None` if there is none.
///
/// # Errors
/// When other users may read the file, or it holds no key.
fn read_key_file(path: &Path) -> io::Result<Option<String>> {
    let file = match guard::open(path, OFlags::RDONLY, guard::SECRET) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = guard::read_bounded(&file, guard::MAX_KEY)?;
    let text = str::from_utf8(&bytes).map_err(io::Error::other)?.trim();
    if text.len() < MIN_KEY_BYTES {
        return Err(io::Error::other(
            "holds no key; put the right one back, or remove the file: open questions and the queries of launch URLs in the \
             store are then lost, clients begin new sessions, and nothing else",
        ));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const PLACE: &[&str] = &["prompts", "message", "p1"];

    fn seals(secrets: &[&str]) -> Seals {
        Seals::with(secrets.iter().map(|secret| ("a test", *secret))).unwrap()
    }

    fn text(text: &str, current: bool) -> UnsealedValue {
        UnsealedValue::Text { text: text.to_owned(), current }
    }

    #[test]
    fn a_value_opens_with_its_key_in_its_place_and_nowhere_else() {
        let one = seals(&["one"]);
        let sealed = one.seal(PLACE, "the arguments").unwrap();
        assert!(sealed.starts_with("sealed:1:") && !sealed.contains("arguments"), "{sealed}");
        assert_ne!(one.seal(PLACE, "the arguments").unwrap(), sealed, "a nonce of its own");
        assert_eq!(one.open(PLACE, &sealed), text("the arguments", true));
        let others: [&[&str]; 4] =
            [&["prompts", "message", "p2"], &["prompts", "messag", "ep1"], &["prompts", "message"], &[]];
        for place in others {
            assert_eq!(one.open(place, &sealed), UnsealedValue::Lost, "{place:?}");
        }
        assert_eq!(seals(&["two"]).open(PLACE, &sealed), UnsealedValue::Lost);
        assert_eq!(seals(&[]).open(PLACE, &sealed), UnsealedValue::Lost);
        assert_eq!(seals(&[]).seal(PLACE, "x"), None);
    }

    #[test]
    fn a_new_key_seals_and_the_one_before_still_opens() {
        let sealed = seals(&["one"]).seal(PLACE, "x").unwrap();
        let both = seals(&["two", "one"]);
        assert_eq!(both.open(PLACE, &sealed), text("x", false));
        let again = both.seal(PLACE, "x").unwrap();
        assert_eq!(seals(&["two"]).open(PLACE, &again), text("x", true));
        assert_eq!(seals(&["one"]).open(PLACE, &again), UnsealedValue::Lost);
    }

    #[test]
    fn what_never_was_sealed_is_known_and_no_damage_panics() {
        let one = seals(&["one"]);
        assert_eq!(one.open(PLACE, "headend asks for consent."), UnsealedValue::Clear);
        assert_eq!(one.open(PLACE, ""), UnsealedValue::Clear);
        assert!(!one.has_lost());
        let sealed = one.seal(PLACE, "\u{e9}\u{1f511}").unwrap();
        for at in 0..sealed.len() {
            // Once cut off, and once with another byte.
            for bad in [sealed[..at].to_owned(), format!("{}~{}", &sealed[..at], &sealed[at + 1..])] {
                assert!(!matches!(one.open(PLACE, &bad), UnsealedValue::Text { .. }), "{bad}");
            }
        }
        for bad in [
            "sealed:",
            "sealed:2:00:x",
            "sealed:1:",
            "sealed:1::",
            "sealed:1:\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}x",
        ] {
            assert_eq!(one.open(PLACE, bad), UnsealedValue::Lost, "{bad}");
        }
        assert!(one.has_lost());
    }

    #[test]
    fn secrets_for_other_purposes_follow_the_keys() {
        let all = |keys: &[&str], purpose| {
            let secrets = seals(keys).secrets(purpose, &[1; 32]);
            secrets.map(|secrets| secrets.all().copied().collect::<Vec<_>>()).unwrap_or_default()
        };
        let both = all(&["two", "one"], "cursors");
        assert_eq!(both, [all(&["two"], "cursors"), all(&["one"], "cursors")].concat());
        assert!(both[0] != both[1] && both[0] != all(&["two"], "states")[0]);
        assert!(all(&[], "cursors").is_empty());
    }

    #[test]
    fn the_key_is_made_once_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let none = Seals::of(dir.path(), &KeySource::default()).unwrap();
        assert!(none.seal(PLACE, "x").is_none() && !dir.path().join(KEY_FILE).exists(), "only looking makes no key");
        let make = KeySource { make: true, ..KeySource::default() };
        let sealed = Seals::of(dir.path(), &make).unwrap().seal(PLACE, "x").unwrap();
        let path = dir.path().join(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Seals::of(dir.path(), &KeySource::default()).unwrap().open(PLACE, &sealed), text("x", true));
        let given = KeySource { given: Some(Secret::new("given".repeat(8))), make: true, ..KeySource::default() };
        assert_eq!(Seals::of(dir.path(), &given).unwrap().open(PLACE, &sealed), text("x", false), "from before");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Seals::of(dir.path(), &make).unwrap_err();
        assert!(refused.contains("secrets.key may be read by others (mode 0640); run `chmod go-rwx "), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "\n").unwrap();
        let refused = Seals::of(dir.path(), &make).unwrap_err();
        assert!(refused.contains("secrets.key holds no key; put the right one back"), "{refused}");
    }

    #[test]
    fn a_previous_key_opens_beside_the_present_one_and_never_seals() {
        let dir = tempfile::tempdir().unwrap();
        let secret = |text: &str| Some(Secret::new(text.repeat(32)));
        let of = |given: &str, previous: &str| {
            let given = secret(given).filter(|_| !given.is_empty());
            Seals::of(dir.path(), &KeySource { given, previous: secret(previous), make: false }).unwrap()
        };
        let old = of("a", "z").seal(PLACE, "x").unwrap();
        let both = of("b", "a");
        assert_eq!(both.open(PLACE, &old), text("x", false));
        assert_eq!(both.earlier_origins(), [PREVIOUS]);
        let id = old.split(':').nth(2).unwrap();
        assert_eq!((both.origin_of(id), of("b", "c").origin_of(id)), (Some(PREVIOUS), None));
        assert_eq!(key_id(&secret("b").unwrap()), both.current_id());
        assert!(both.seal(PLACE, "y").unwrap().starts_with(&both.current_prefix().unwrap()));
        let alone = of("", "a");
        assert!(!alone.can_seal() && alone.open(PLACE, &old) == UnsealedValue::Lost, "only beside a key that seals");
    }

    #[test]
    fn all_who_make_the_key_at_once_have_the_same() {
        let make = KeySource { make: true, ..KeySource::default() };
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let of = || Seals::of(dir.path(), &make).unwrap();
            let all: Vec<Seals> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..16).map(|_| scope.spawn(of)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let sealed = all[0].seal(PLACE, "x").unwrap();
            assert!(all.iter().all(|seals| seals.open(PLACE, &sealed) == text("x", true)));
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        }
    }

    #[test]
    fn a_configured_key_leaves_none_in_the_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let given = KeySource { given: Some(Secret::new("given".repeat(8))), make: true, ..KeySource::default() };
        assert!(Seals::of(dir.path(), &given).unwrap().seal(PLACE, "x").is_some());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
