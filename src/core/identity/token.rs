//! Reads and judges one JWT.
//!
//! The library verifies the signature. Everything else is judged here: the library takes a claim of
//! the wrong type for an absent one, reads the clock itself, and leaves `nbf` unjudged by default.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::Validation;
use serde::de::IgnoredAny;

use super::algorithm::SignatureAlgorithm;
use super::keys::{KeyDigest, KeySet, MAX_KEY_ID, read_object};
use super::refusal::TokenRefusal;
use super::signature;
use super::terms::{ANY_JWT, IssuerTerms, short_type};
use crate::policy::{Caller, CallerRights, Groups, Scopes};
use crate::wire::json::raw::{RawJson, RawObject, elements};

/// Time by which the clocks of issuer and gateway may differ.
pub const LEEWAY: Duration = Duration::from_secs(60);
/// Longest token, in bytes.
const MAX_TOKEN: usize = 16 * 1024;
/// Most audiences, scopes or groups of a token.
const MAX_LIST: usize = 256;
/// Longest audience, scope or group, in bytes.
const MAX_TEXT: usize = 1024;

/// A token as a client presents it: nothing of it is proved yet.
pub struct PresentedToken<'a> {
    text: &'a [u8],
    algorithm: SignatureAlgorithm,
    key_id: Option<String>,
    /// The value of `typ`.
    kind: Option<String>,
    issuer: String,
    claims: RawObject,
}

/// The caller and the rights that a valid token proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidToken {
    pub caller: Caller,
    pub rights: Arc<CallerRights>,
    /// The token's audiences. The place that it was presented at still has to be one of them.
    pub audiences: Vec<String>,
    /// Time since 1970 from which the token is refused, leeway included.
    pub expires: Duration,
    /// The key that signed it. The token is valid as long as the issuer has that key.
    pub key: KeyDigest,
}

/// Reports whether a bearer token may be a JWT: three parts of base64url.
pub fn is_jwt(text: &[u8]) -> bool {
    let is_part = |part: &[u8]| part.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    text.len() <= MAX_TOKEN
        && text.split(|byte| *byte == b'.').count() == 3
        && text.split(|byte| *byte == b'.').all(is_part)
}

impl<'a> PresentedToken<'a> {
    /// Reads the header and the claims of a token.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn parse(text: &'a [u8]) -> Result<Self, TokenRefusal> {
        if !is_jwt(text) {
            return Err(TokenRefusal::Form);
        }
        let mut parts = text.split(|byte| *byte == b'.');
        let mut object = || {
            let part = BASE64URL_NOPAD.decode(parts.next().unwrap_or_default()).map_err(|_| TokenRefusal::Form)?;
            read_object(&Bytes::from(part)).ok_or(TokenRefusal::Json)
        };
        let (header, claims) = (object()?, object()?);
        if ["crit", "enc", "zip", "b64"].iter().any(|name| header.get(name).is_some()) {
            return Err(TokenRefusal::Critical);
        }
        let algorithm = optional_text(&header, "alg")?.ok_or(TokenRefusal::Algorithm)?;
        let algorithm = algorithm.parse().map_err(|_| TokenRefusal::Algorithm)?;
        let key_id = optional_text(&header, "kid")?;
        if key_id.as_ref().is_some_and(|id| id.len() > MAX_KEY_ID) {
            return Err(TokenRefusal::UnknownKey);
        }
        let kind = optional_text(&header, "typ")?;
        let issuer = optional_text(&claims, "iss")?.ok_or(TokenRefusal::NoIssuer)?;
        Ok(Self { text, algorithm, key_id, kind, issuer, claims })
    }

    /// Returns the unproved issuer, by which the keys are chosen.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Judges everything except the signature and the place.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    fn judge(&self, terms: &IssuerTerms, now: Duration) -> Result<Judged, TokenRefusal> {
        if self.issuer != terms.issuer {
            return Err(TokenRefusal::OtherIssuer);
        }
        if !terms.algorithms.contains(&self.algorithm) {
            return Err(TokenRefusal::Algorithm);
        }
        let kind = short_type(self.kind.as_deref().ok_or(TokenRefusal::Type)?);
        if !terms.types.iter().any(|wanted| wanted.eq_ignore_ascii_case(kind)) {
            return Err(TokenRefusal::Type);
        }
        let audiences = texts(&self.claims, "aud")?.ok_or(TokenRefusal::NoAudience)?;
        if audiences.is_empty() {
            return Err(TokenRefusal::NoAudience);
        }
        let expires = seconds(&self.claims, "exp")?.ok_or(TokenRefusal::NoExpiry)?.saturating_add(LEEWAY);
        if now >= expires {
            return Err(TokenRefusal::Expired);
        }
        if seconds(&self.claims, "nbf")?.is_some_and(|begin| begin > now.saturating_add(LEEWAY)) {
            return Err(TokenRefusal::NotYetValid);
        }
        let subject = optional_text(&self.claims, &terms.subject_claim)?.ok_or(TokenRefusal::Subject)?;
        let caller = Caller::issued(&terms.name, &subject).ok_or(TokenRefusal::Subject)?;
        let scopes = words(&self.claims, &terms.scopes_claim)?;
        if kind.eq_ignore_ascii_case(ANY_JWT) {
            if ["nonce", "at_hash", "c_hash"].iter().any(|name| self.claims.get(name).is_some()) {
                return Err(TokenRefusal::IdToken);
            }
            if scopes.is_none() {
                return Err(TokenRefusal::NoScopes);
            }
        }
        let groups = groups(&self.claims, &terms.groups_claim);
        let rights = Arc::new(CallerRights { scopes: Scopes::Of(unique(scopes.unwrap_or_default())), groups });
        Ok(Judged { caller, rights, audiences, expires })
    }

    /// Judges the token by the terms and the keys of its issuer. `now` is the time since 1970.
    ///
    /// # Errors
    /// [`TokenRefusal`]. [`TokenRefusal::UnknownKey`] may be cured by fetching the keys again.
    pub fn validate(&self, terms: &IssuerTerms, keys: &KeySet, now: Duration) -> Result<ValidToken, TokenRefusal> {
        let Judged { caller, rights, audiences, expires } = self.judge(terms, now)?;
        let (key, digest) = keys.find(self.key_id.as_deref(), self.algorithm)?;
        signature::install();
        let mut rules = Validation::new(self.algorithm.library());
        rules.required_spec_claims = HashSet::from(["iss", "aud", "exp"].map(str::to_owned));
        rules.set_issuer(&[&terms.issuer]);
        // Judged above, by our own clock and with their types; audiences depend on the place.
        (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
        jsonwebtoken::decode::<IgnoredAny>(self.text, &key.key, &rules).map_err(|_| TokenRefusal::Signature)?;
        Ok(ValidToken { caller, rights, audiences, expires, key: digest })
    }

    /// Reports whether the token passes all rules that need no key, so that keys may be fetched
    /// for it.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn check_claims(&self, terms: &IssuerTerms, now: Duration) -> Result<(), TokenRefusal> {
        self.judge(terms, now).map(drop)
    }
}

impl fmt::Debug for PresentedToken<'_> {
    /// Shows nothing of the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresentedToken")
    }
}

/// The claims of a token that passed every rule which needs no key.
struct Judged {
    caller: Caller,
    rights: Arc<CallerRights>,
    audiences: Vec<String>,
    expires: Duration,
}

/// Returns the text of a member; `None` if it is absent.
fn optional_text(object: &RawObject, name: &str) -> Result<Option<String>, TokenRefusal> {
    object.get(name).map(|raw| raw.parse::<String>().map_err(|_| TokenRefusal::ClaimType)).transpose()
}

/// Returns the texts of a member that is one text or a list of texts; `None` if it is absent.
fn texts(object: &RawObject, name: &str) -> Result<Option<Vec<String>>, TokenRefusal> {
    let Some(raw) = object.get(name) else { return Ok(None) };
    if raw.is_string() {
        return Ok(optional_text(object, name)?.map(|text| vec![text]));
    }
    let list = elements(raw).map_err(|_| TokenRefusal::ClaimType)?;
    let text = |raw: &RawJson| raw.parse::<String>().ok().filter(|text| text.len() <= MAX_TEXT);
    if list.len() > MAX_LIST {
        return Err(TokenRefusal::ClaimType);
    }
    list.iter().map(text).collect::<Option<Vec<_>>>().ok_or(TokenRefusal::ClaimType).map(Some)
}

/// Returns the words of a member: a text with spaces between them, or a list.
fn words(object: &RawObject, name: &str) -> Result<Option<Vec<String>>, TokenRefusal> {
    let split = |text: String| text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let words = texts(object, name)?.map(|texts| texts.into_iter().flat_map(split).collect::<Vec<_>>());
    if words.as_ref().is_some_and(|words| words.len() > MAX_LIST) { Err(TokenRefusal::ClaimType) } else { Ok(words) }
}

/// Returns the groups. A claim that is missing, too long or of another type leaves them unknown.
fn groups(claims: &RawObject, name: &str) -> Groups {
    match texts(claims, name) {
        Ok(Some(groups)) => Groups::Of(unique(groups)),
        Ok(None) | Err(_) => Groups::Unknown,
    }
}

/// Returns the time of a claim, in whole seconds since 1970; `None` if it is absent. Fractions are
/// allowed (RFC 7519, section 2).
fn seconds(claims: &RawObject, name: &str) -> Result<Option<Duration>, TokenRefusal> {
    let Some(raw) = claims.get(name) else { return Ok(None) };
    let seconds = raw.parse::<f64>().map_err(|_| TokenRefusal::ClaimType)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| TokenRefusal::ClaimType).map(Some)
}

fn unique(mut texts: Vec<String>) -> Box<[Box<str>]> {
    let mut seen = HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    texts.into_iter().map(String::into_boxed_str).collect()
}

#[cfg(test)]
mod tests;
