//! Shorthands for tests and fuzzing.
#![allow(clippy::unwrap_used, reason = "tests")]

#[cfg(test)]
use bytes::Bytes;
use url::Url;

use super::authorize::LoginRandomness;
use super::terms::{LoginTerms, ResourceRule};
#[cfg(test)]
use super::{assertion::SigningKey, document::PeerDocument, error::DocumentKind, request::OAuthAnswer};

pub(super) fn terms(url: &str) -> LoginTerms {
    LoginTerms {
        url: Url::parse(url).unwrap(),
        issuers: Vec::new(),
        first_issuer: None,
        is_unattended: false,
        client: None,
        client_metadata_url: None,
        scopes: Vec::new(),
        resource: ResourceRule::Auto,
        redirect_url: "http://127.0.0.1:8628/oauth/callback".to_owned(),
        revision: None,
    }
}

pub(super) fn chance() -> LoginRandomness {
    LoginRandomness { state: [1; 32], verifier: [2; 32], nonce: [3; 16], once: [4; 16] }
}

/// Generates a key that signs for a client.
#[cfg(test)]
pub(super) fn signing_key() -> SigningKey {
    let random = ring::rand::SystemRandom::new();
    let curve = &ring::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
    let der = ring::signature::EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
    let text = data_encoding::BASE64.encode(der.as_ref());
    SigningKey::parse(&format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")).unwrap()
}

#[cfg(test)]
pub(super) fn json(status: u16, body: &str) -> OAuthAnswer {
    OAuthAnswer { status, is_json: true, body: Bytes::copy_from_slice(body.as_bytes()) }
}

#[cfg(test)]
pub(super) fn document(body: &str) -> PeerDocument {
    PeerDocument::of(DocumentKind::Server, &Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

#[cfg(test)]
pub(super) fn texts(urls: &[Url]) -> Vec<&str> {
    urls.iter().map(Url::as_str).collect()
}
