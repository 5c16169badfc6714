//! An issuer of tests: keys, a key set and signed tokens.

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

/// A key of an issuer, for ES256.
#[derive(Debug)]
pub struct TestKey {
    id: String,
    pair: EcdsaKeyPair,
}

impl TestKey {
    #[expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "only for tests")]
    pub fn new(id: &str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap();
        Self { id: id.to_owned(), pair }
    }

    /// Returns the public key as it stands in a key set.
    pub fn jwk(&self) -> String {
        let point = self.pair.public_key().as_ref();
        let part = |from: usize| BASE64URL_NOPAD.encode(point.get(from..from + 32).unwrap_or_default());
        let (id, x, y) = (&self.id, part(1), part(33));
        format!(r#"{{"kty":"EC","crv":"P-256","use":"sig","kid":"{id}","x":"{x}","y":"{y}"}}"#)
    }

    /// Returns a header for this key.
    pub fn header(&self) -> String {
        format!(r#"{{"alg":"ES256","typ":"at+jwt","kid":"{}"}}"#, self.id)
    }

    /// Signs claims under the usual header.
    pub fn token(&self, claims: &str) -> String {
        self.token_with(&self.header(), claims)
    }

    /// Signs any header and claims.
    #[expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "only for tests")]
    pub fn token_with(&self, header: &str, claims: &str) -> String {
        let part = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
    }
}

/// Returns the key set of these keys.
pub fn key_set(keys: &[&TestKey]) -> String {
    format!(r#"{{"keys":[{}]}}"#, keys.iter().map(|key| key.jwk()).collect::<Vec<_>>().join(","))
}
