//! The reasons why a token is refused, for the log. Clients learn none of them.

/// The reason why a token is refused. Its text contains nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    #[error("it is no JWT")]
    Form,
    #[error("its header or its claims cannot be read")]
    Json,
    #[error("its algorithm is not accepted")]
    Algorithm,
    #[error("its type (`typ`) is not accepted")]
    Type,
    #[error("it has `crit` or an encoding that is not supported")]
    Critical,
    #[error("it has no issuer (`iss`)")]
    NoIssuer,
    #[error("its issuer is not in the configuration")]
    OtherIssuer,
    #[error("its key is not in the issuer's key set")]
    UnknownKey,
    #[error("its algorithm does not fit the key")]
    OtherKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it has no audience (`aud`)")]
    NoAudience,
    #[error("it is for another audience")]
    OtherAudience,
    #[error("it has no expiry (`exp`)")]
    NoExpiry,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet (`nbf`)")]
    NotYetValid,
    #[error("it has no subject, or one that is not 1 to 255 printable ASCII characters")]
    Subject,
    #[error("a claim has the wrong type")]
    ClaimType,
    #[error("it is an ID token and no access token")]
    IdToken,
    #[error("it has no scopes claim")]
    NoScopes,
}
