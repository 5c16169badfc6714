//! Signs tokens with an issuer's own key, those too that the issuer would never issue.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair, KeyPairComponents, PublicKeyComponents};
use ring::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RsaEncoding};
use ring::{hmac, rand};
use serde_json::{Value, json};

/// Header and identifier of an RSA public key in `SubjectPublicKeyInfo`, before a key of 2048 bits.
const SPKI: &str = "30820122300d06092a864886f70d01010105000382010f00";

/// Tokens of one issuer: the header and the claims of a real one, and the issuer's key.
pub(super) struct TokenMint {
    header: Value,
    claims: Value,
    key: KeyPair,
    number: Cell<u64>,
}

impl TokenMint {
    /// Creates a mint for tokens like `real`, which `key` signs, a private JWK.
    pub(super) fn like(real: &str, key: &Value) -> Self {
        let part = |at: usize| {
            let bytes = BASE64URL_NOPAD.decode(real.split('.').nth(at).unwrap().as_bytes()).unwrap();
            serde_json::from_slice(&bytes).unwrap()
        };
        Self { header: part(0), claims: part(1), key: private_key(key), number: Cell::new(0) }
    }

    /// Returns the same mint with another key of the issuer.
    pub(super) fn with_key(&self, key: &Value) -> Self {
        let mut header = self.header.clone();
        header["kid"] = key["kid"].clone();
        Self { header, claims: self.claims.clone(), key: private_key(key), number: Cell::new(1 << 32) }
    }

    /// Returns the claim of that name.
    pub(super) fn claim(&self, name: &str) -> &Value {
        &self.claims[name]
    }

    /// Returns the name of the key, as it is in the header.
    pub(super) fn kid(&self) -> &Value {
        &self.header["kid"]
    }

    /// Returns a good token that was never used.
    pub(super) fn token(&self) -> String {
        self.changed(|_, _| {})
    }

    /// Returns a token with a claim of this value, or without the claim.
    pub(super) fn with_claim(&self, name: &str, value: impl Into<Option<Value>>) -> String {
        self.changed(|_, claims| set(claims, name, value.into()))
    }

    /// Returns a token with a header parameter of this value, or without the parameter.
    pub(super) fn with_header(&self, name: &str, value: impl Into<Option<Value>>) -> String {
        self.changed(|header, _| set(header, name, value.into()))
    }

    /// Returns a token whose header and claims were changed before it was signed with RS256.
    pub(super) fn changed(&self, change: impl FnOnce(&mut Value, &mut Value)) -> String {
        self.signed(change, |key, text| by_rsa(key, &RSA_PKCS1_SHA256, text))
    }

    /// Returns a token that the issuer's key signed by another algorithm.
    pub(super) fn by_rs512(&self) -> String {
        self.signed(|header, _| header["alg"] = json!("RS512"), |key, text| by_rsa(key, &RSA_PKCS1_SHA512, text))
    }

    /// Returns a token without a signature.
    pub(super) fn unsigned(&self, alg: &str) -> String {
        self.signed(|header, _| header["alg"] = json!(alg), |_, _| Vec::new())
    }

    /// Returns tokens whose HS256 secret is a public text: forms of the issuer's public key.
    pub(super) fn by_public_key(&self) -> Vec<(&'static str, String)> {
        let spki = [&hex(SPKI)[..], self.key.public_key().as_ref()].concat();
        let lines: Vec<String> = BASE64.encode(&spki).as_bytes().chunks(64).map(text).collect();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"));
        let modulus = PublicKeyComponents::<Vec<u8>>::from(self.key.public()).n;
        let secrets = [
            ("HS256 with the public key in PEM", pem.into_bytes()),
            ("HS256 with the public key in DER", spki),
            ("HS256 with the modulus of the public key", modulus),
        ];
        secrets.into_iter().map(|(label, secret)| (label, self.by_hmac(&secret))).collect()
    }

    fn by_hmac(&self, secret: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        self.signed(|header, _| header["alg"] = json!("HS256"), |_, text| hmac::sign(&key, text).as_ref().to_vec())
    }

    /// Returns a good token with other claims put between its header and its signature.
    pub(super) fn tampered(&self) -> String {
        let (good, other) = (self.token(), self.with_claim("sub", json!("mallory")));
        let (good, other): (Vec<_>, Vec<_>) = (good.split('.').collect(), other.split('.').collect());
        [good[0], other[1], good[2]].join(".")
    }

    fn signed(
        &self,
        change: impl FnOnce(&mut Value, &mut Value),
        sign: impl FnOnce(&KeyPair, &[u8]) -> Vec<u8>,
    ) -> String {
        let (mut header, mut claims) = (self.header.clone(), self.claims.clone());
        let number = self.number.replace(self.number.get() + 1);
        claims["jti"] = json!(format!("minted {number}"));
        claims["iat"] = json!(now());
        claims["exp"] = json!(now() + 600);
        change(&mut header, &mut claims);
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let text = format!("{}.{}", part(&header), part(&claims));
        let signature = sign(&self.key, text.as_bytes());
        format!("{text}.{}", BASE64URL_NOPAD.encode(&signature))
    }
}

/// Returns the time of the system, in seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Sets or removes a member.
fn set(object: &mut Value, name: &str, value: Option<Value>) {
    match value {
        Some(value) => object[name] = value,
        None => drop(object.as_object_mut().unwrap().remove(name)),
    }
}

fn by_rsa(key: &KeyPair, encoding: &'static dyn RsaEncoding, text: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(encoding, &SystemRandom::new() as &dyn rand::SecureRandom, text, &mut signature).unwrap();
    signature
}

fn private_key(jwk: &Value) -> KeyPair {
    let number = |name: &str| BASE64URL_NOPAD.decode(jwk[name].as_str().unwrap().as_bytes()).unwrap();
    KeyPair::from_components(&KeyPairComponents {
        public_key: PublicKeyComponents { n: number("n"), e: number("e") },
        d: number("d"),
        p: number("p"),
        q: number("q"),
        dP: number("dp"),
        dQ: number("dq"),
        qInv: number("qi"),
    })
    .unwrap()
}

fn hex(digits: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(digits.as_bytes()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
