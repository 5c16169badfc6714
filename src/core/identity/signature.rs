//! Verifies signatures for the JWT library with ring, which is in the program anyway. Nothing is
//! signed.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes ring the provider of the JWT library. Does nothing after the first call.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    // It fails only if there is a provider already, and then tokens are verified by that one.
    ONCE.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

/// The scheme of a signature, for the kinds of keys.
enum SignatureScheme {
    Rsa(&'static RsaParameters),
    Point(&'static dyn VerificationAlgorithm),
}

/// Verifies signatures of one algorithm by one key.
struct RingVerifier {
    algorithm: Algorithm,
    scheme: SignatureScheme,
    key: DecodingKey,
}

fn verifier_factory(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let scheme = match algorithm {
        Algorithm::RS256 => SignatureScheme::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => SignatureScheme::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => SignatureScheme::Rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => SignatureScheme::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => SignatureScheme::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => SignatureScheme::Rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => SignatureScheme::Point(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => SignatureScheme::Point(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => SignatureScheme::Point(&ED25519),
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 | _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, scheme, key: key.clone() }))
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified = match (&self.scheme, self.key.kind()) {
            (SignatureScheme::Rsa(scheme), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(scheme, message, signature).is_ok()
            }
            (SignatureScheme::Point(scheme), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*scheme, key).verify(message, signature).is_ok()
            }
            (SignatureScheme::Rsa(_) | SignatureScheme::Point(_), _) => false,
        };
        if verified { Ok(()) } else { Err(Error::new()) }
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
