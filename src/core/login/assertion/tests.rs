use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey,
};

use super::*;

fn pem(der: &[u8]) -> String {
    format!("{BEGIN}\n{}\n{END}\n", BASE64.encode(der))
}

/// Returns an RSA key for this test alone, since ring generates none.
fn rsa() -> Vec<u8> {
    let pem = include_str!("test-rsa.pem");
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    BASE64.decode(body.as_bytes()).unwrap()
}

fn keys() -> Vec<(&'static str, Vec<u8>)> {
    let random = SystemRandom::new();
    let ec = |curve| EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap().as_ref().to_vec();
    vec![
        ("ES256", ec(&ECDSA_P256_SHA256_FIXED_SIGNING)),
        ("ES384", ec(&ECDSA_P384_SHA384_FIXED_SIGNING)),
        ("EdDSA", Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref().to_vec()),
        ("RS256", rsa()),
    ]
}

#[test]
fn each_kind_of_key_signs_the_claims() {
    for (algorithm, der) in keys() {
        let key = SigningKey::parse(&pem(&der)).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        assert_eq!(format!("{key:?}"), format!("SigningKey({algorithm})"));
        let moment = AssertionMoment { now: 1_000, once: [7; 16] };
        let made = key.sign(&ClientAssertion { client: "me", audience: "https://as.example", moment }).unwrap();
        let (text, signature) = made.expose().rsplit_once('.').unwrap();
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        let verified =
            match &key.0 {
                SigningKeyPair::Es256(key) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key())
                    .verify(text.as_bytes(), &signature),
                SigningKeyPair::Es384(key) => UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key.public_key())
                    .verify(text.as_bytes(), &signature),
                SigningKeyPair::EdDsa(key) => {
                    UnparsedPublicKey::new(&ED25519, key.public_key()).verify(text.as_bytes(), &signature)
                }
                SigningKeyPair::Rs256(key) => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key())
                    .verify(text.as_bytes(), &signature),
            };
        assert!(verified.is_ok(), "{algorithm}");
        let (header, claims) = text.split_once('.').unwrap();
        let decode = |part: &str| String::from_utf8(BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap();
        assert_eq!(decode(header), format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#));
        assert_eq!(
            decode(claims),
            r#"{"iss":"me","sub":"me","aud":"https://as.example","jti":"07070707070707070707070707070707","iat":1000,"exp":1120}"#
        );
    }
}

#[test]
fn other_texts_are_no_keys() {
    let (_, der) = keys().remove(0);
    for text in ["", "secret", BEGIN, &pem(b"x"), &pem(&der[..40]), &pem(&der).replace("PRIVATE", "EC PRIVATE")] {
        assert_eq!(SigningKey::parse(text).unwrap_err(), FORM);
    }
}
