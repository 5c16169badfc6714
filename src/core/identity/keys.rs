//! The key set of an issuer.
//!
//! Source: RFC 7517; RFC 8037 for Ed25519.

use bytes::Bytes;
use jsonwebtoken::DecodingKey;
use strum::VariantArray as _;

use super::algorithm::SignatureAlgorithm;
use super::refusal::TokenRefusal;
use crate::wire::digest::Digest;
use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::json::raw::{RawJson, RawObject};

/// Most keys that are read; the rest of a larger set is ignored.
const MAX_KEYS: usize = 64;
/// Longest `kid` of a key, in bytes.
pub(super) const MAX_KEY_ID: usize = 256;
const BOUNDS: JsonBounds = JsonBounds { depth: 16, nodes: 20_000 };

/// The public keys of an issuer that verify signatures.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<PublicKey>,
}

/// A public key of an issuer.
#[derive(Debug)]
pub(super) struct PublicKey {
    id: Option<String>,
    /// The algorithms that fit the key's type, curve and `alg`.
    algorithms: Vec<SignatureAlgorithm>,
    pub(super) key: DecodingKey,
    /// The digest of the key's parameters.
    digest: Digest,
}

/// The digest of a key's parameters, by which a validated token is bound to its key.
pub type KeyDigest = Digest;

impl KeySet {
    /// Reads a key set. Keys for other uses, of other types or with faults are ignored; `None` for
    /// a document that is no key set.
    pub fn parse(body: &Bytes) -> Option<Self> {
        let document = read_object(body)?;
        let keys = document.list("keys")?;
        let keys = keys.iter().take(MAX_KEYS).filter_map(|raw| PublicKey::parse(&RawObject::parse(raw).ok()?));
        Some(Self { keys: keys.collect() })
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Reports whether a key is in the set.
    pub fn has(&self, digest: &KeyDigest) -> bool {
        self.keys.iter().any(|key| key.digest == *digest)
    }

    /// Finds the key of a token. A token without a key id has one if exactly one key fits its
    /// algorithm.
    ///
    /// # Errors
    /// [`TokenRefusal::UnknownKey`] and [`TokenRefusal::OtherKey`].
    pub(super) fn find(
        &self,
        id: Option<&str>,
        algorithm: SignatureAlgorithm,
    ) -> Result<(&PublicKey, KeyDigest), TokenRefusal> {
        let mut named = self.keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id).peekable();
        if named.peek().is_none() {
            return Err(TokenRefusal::UnknownKey);
        }
        let mut fitting = named.filter(|key| key.algorithms.contains(&algorithm));
        let first = fitting.next().ok_or(TokenRefusal::OtherKey)?;
        if fitting.next().is_some() {
            return Err(TokenRefusal::UnknownKey);
        }
        Ok((first, first.digest))
    }
}

impl PublicKey {
    /// Reads a key; `None` for one that verifies no signatures here.
    fn parse(key: &RawObject) -> Option<Self> {
        let text = |name: &str| key.string(name);
        if key.get("use").is_some() && text("use")? != "sig" {
            return None;
        }
        if let Some(operations) = key.list("key_ops")
            && !operations.iter().any(|one| one.said().is_some_and(|word| word == "verify"))
        {
            return None;
        }
        let (key_type, curve) = (text("kty")?, text("crv").unwrap_or_default());
        let (n, e, x, y) = (text("n"), text("e"), text("x"), text("y"));
        let (decoding, fitting, parts) = match (key_type.as_str(), curve.as_str()) {
            ("RSA", _) => {
                let (n, e) = (n?, e?);
                (DecodingKey::from_rsa_components(&n, &e).ok()?, "RSPS", [n, e])
            }
            ("EC", "P-256") => (DecodingKey::from_ec_components(x.as_deref()?, y.as_deref()?).ok()?, "ES256", [x?, y?]),
            ("EC", "P-384") => (DecodingKey::from_ec_components(x.as_deref()?, y.as_deref()?).ok()?, "ES384", [x?, y?]),
            ("OKP", "Ed25519") => (DecodingKey::from_ed_components(x.as_deref()?).ok()?, "EdDSA", [x?, String::new()]),
            _ => return None,
        };
        let stated = key.get("alg").map(|_| text("alg"));
        let fits = |algorithm: &SignatureAlgorithm| {
            let name: &str = algorithm.into();
            let of_type =
                if fitting == "RSPS" { name.starts_with("RS") || name.starts_with("PS") } else { name == fitting };
            of_type && stated.as_ref().is_none_or(|stated| stated.as_deref() == Some(name))
        };
        let algorithms: Vec<_> = SignatureAlgorithm::VARIANTS.iter().copied().filter(fits).collect();
        let id = text("kid").filter(|id| id.len() <= MAX_KEY_ID);
        let digest = Digest::of(format!("{key_type} {curve} {} {}", parts[0], parts[1]).as_bytes());
        (!algorithms.is_empty()).then_some(Self { id, algorithms, key: decoding, digest })
    }
}

/// Reads a JSON object within bounds; `None` for anything else and for one with a key twice.
pub(super) fn read_object(bytes: &Bytes) -> Option<RawObject> {
    let frame = Frame::from_client(bytes.clone(), BOUNDS).ok()?;
    RawObject::parse(&RawJson::checked(frame.bytes().clone()).ok()?).ok()
}
