//! Makes the assertions of `private_key_jwt`, with which a client proves its identity by its key.
//!
//! A few claims under one signature need no JWT library: nothing of a peer is parsed or verified
//! here. Source: RFC 7523, 3; `OpenID` Connect Core, 9.

use std::fmt;

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use zeroize::Zeroizing;

use super::error::OAuthError;
use super::hidden::SecretText;
use crate::wire::json::raw::{RawJson, RawObject};

/// Lifetime of an assertion, in seconds. It is sent at once, but clocks differ.
const LIFE: u64 = 120;
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
const FORM: OAuthError = OAuthError::Key(
    "`private-key` is no unencrypted PKCS#8 key in PEM; `openssl pkcs8 -topk8 -nodes -in KEY` makes one of other forms",
);

/// A private key of the configuration, for signing.
pub struct SigningKey(SigningKeyPair);

enum SigningKeyPair {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

/// The time of an assertion, and bytes that are used once.
#[derive(Clone, Copy, Debug)]
pub struct AssertionMoment {
    /// Seconds since 1970.
    pub now: u64,
    pub once: [u8; 16],
}

/// The variable claims of an assertion.
pub(super) struct ClientAssertion<'a> {
    pub(super) client: &'a str,
    pub(super) audience: &'a str,
    pub(super) moment: AssertionMoment,
}

impl SigningKey {
    /// Reads a PKCS#8 key in PEM: EC on P-256 or P-384, Ed25519, or RSA.
    ///
    /// # Errors
    /// [`OAuthError::Key`], for the operator.
    pub fn parse(pem: &str) -> Result<Self, OAuthError> {
        let (_, rest) = pem.split_once(BEGIN).ok_or(FORM)?;
        let (body, _) = rest.split_once(END).ok_or(FORM)?;
        let body: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
        let key = Zeroizing::new(BASE64.decode(body.as_bytes()).map_err(|_| FORM)?);
        let random = SystemRandom::new();
        let ec = |curve| EcdsaKeyPair::from_pkcs8(curve, &key, &random).ok();
        let kind = ec(&ECDSA_P256_SHA256_FIXED_SIGNING)
            .map(SigningKeyPair::Es256)
            .or_else(|| ec(&ECDSA_P384_SHA384_FIXED_SIGNING).map(SigningKeyPair::Es384))
            .or_else(|| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).ok().map(SigningKeyPair::EdDsa))
            .or_else(|| RsaKeyPair::from_pkcs8(&key).ok().map(SigningKeyPair::Rs256));
        kind.map(Self).ok_or(FORM)
    }

    pub fn algorithm(&self) -> &'static str {
        match &self.0 {
            SigningKeyPair::Es256(_) => "ES256",
            SigningKeyPair::Es384(_) => "ES384",
            SigningKeyPair::EdDsa(_) => "EdDSA",
            SigningKeyPair::Rs256(_) => "RS256",
        }
    }

    /// Signs an assertion and returns it as a JWT.
    pub(super) fn sign(&self, assertion: &ClientAssertion<'_>) -> Result<SecretText, OAuthError> {
        let header = RawObject::of_strings(&[("alg", self.algorithm()), ("typ", "JWT")]);
        let once = HEXLOWER.encode(&assertion.moment.once);
        let mut claims = RawObject::of_strings(&[
            ("iss", assertion.client),
            ("sub", assertion.client),
            ("aud", assertion.audience),
            ("jti", &once),
        ]);
        claims.set("iat", RawJson::number(assertion.moment.now));
        claims.set("exp", RawJson::number(assertion.moment.now.saturating_add(LIFE)));
        let part = |object: &RawObject| BASE64URL_NOPAD.encode(object.encode().bytes());
        let text = format!("{}.{}", part(&header), part(&claims));
        let signature = self.signature(text.as_bytes());
        let signature = signature.ok_or(OAuthError::Key("signing with `private-key` fails"))?;
        Ok(SecretText::new(format!("{text}.{}", BASE64URL_NOPAD.encode(&signature))))
    }

    /// Signs a text; `None` if the cryptographic library fails.
    fn signature(&self, text: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.0 {
            SigningKeyPair::Es256(key) | SigningKeyPair::Es384(key) => {
                key.sign(&random, text).ok().map(|made| made.as_ref().to_vec())
            }
            SigningKeyPair::EdDsa(key) => Some(key.sign(text).as_ref().to_vec()),
            SigningKeyPair::Rs256(key) => {
                let mut made = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut made).ok()?;
                Some(made)
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.algorithm())
    }
}

#[cfg(test)]
mod tests;
