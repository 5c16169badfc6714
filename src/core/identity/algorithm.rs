//! The algorithms of signatures that a token may have: asymmetric ones only, so that no public key
//! is ever a secret.

use jsonwebtoken::Algorithm;

/// An algorithm of a token's signature, with its name in RFC 7518 and RFC 8037.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, strum::EnumString, serde::Serialize,
)]
#[strum(const_into_str)]
#[serde(into = "&'static str")]
pub enum SignatureAlgorithm {
    #[strum(serialize = "RS256")]
    Rs256,
    #[strum(serialize = "RS384")]
    Rs384,
    #[strum(serialize = "RS512")]
    Rs512,
    #[strum(serialize = "PS256")]
    Ps256,
    #[strum(serialize = "PS384")]
    Ps384,
    #[strum(serialize = "PS512")]
    Ps512,
    #[strum(serialize = "ES256")]
    Es256,
    #[strum(serialize = "ES384")]
    Es384,
    #[strum(serialize = "EdDSA")]
    EdDsa,
}

impl SignatureAlgorithm {
    /// Returns the library's value.
    pub(super) const fn library(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Rs384 => Algorithm::RS384,
            Self::Rs512 => Algorithm::RS512,
            Self::Ps256 => Algorithm::PS256,
            Self::Ps384 => Algorithm::PS384,
            Self::Ps512 => Algorithm::PS512,
            Self::Es256 => Algorithm::ES256,
            Self::Es384 => Algorithm::ES384,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}
