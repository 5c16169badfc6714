//! Callers that present a JWT: the accepted issuers, the places that the tokens are for, and the
//! tokens that were validated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::tally::LogTally;
use crate::base::task_group::TaskGroup;
use crate::config::{Config, Profile};
use crate::identity::refusal::TokenRefusal;
use crate::identity::resource::{ProtectedResource, WELL_KNOWN};
use crate::identity::token::PresentedToken;
use crate::listener::callers::caller_access::CallerAccess;
use crate::listener::callers::issuer::JwtIssuer;
use crate::listener::callers::issuer_keys::Unproved;
use crate::listener::callers::validated::{ValidatedToken, ValidatedTokens};
use crate::policy::{Caller, CallerRights};

/// Everything that JWTs are judged by.
#[derive(Debug)]
pub(in crate::listener) struct JwtCredentials {
    issuers: Vec<Arc<JwtIssuer>>,
    /// The scopes that challenges name, with spaces between; `None` without scopes.
    scope: Option<String>,
    endpoint: ProtectedResource,
    profiles: HashMap<Box<str>, ProtectedResource, RandomState>,
    /// Shared with the credentials before and after a reload.
    tokens: Arc<ValidatedTokens>,
    refusals: RefusalLog,
}

/// Limits log lines about refused tokens: one a minute for each reason.
#[derive(Debug, Default)]
struct RefusalLog(Mutex<Vec<(TokenRefusal, LogTally)>>);

impl RefusalLog {
    fn write(&self, why: TokenRefusal) {
        let mut tallies = self.0.lock();
        if !tallies.iter().any(|(known, _)| *known == why) {
            tallies.push((why, LogTally::default()));
        }
        let tally = tallies.iter().find(|(known, _)| *known == why).map(|(_, tally)| tally);
        if let Some(count) = tally.and_then(|tally| tally.count(clock::uptime())) {
            tracing::warn!(reason = %why, count, "a JWT was refused");
        }
    }
}

impl JwtCredentials {
    /// Reads the settings; `None` if JWTs are not accepted. Issuers whose settings stay keep their
    /// keys, and their callers keep their access. Withdraws the access of all others.
    pub(in crate::listener) fn next(
        before: Option<&Self>,
        config: &Config,
        scopes: &[String],
        tasks: &TaskGroup,
        giving_up: &CancellationToken,
    ) -> Option<Self> {
        let old = before.map_or(&[][..], |before| &before.issuers);
        let wanted = config.server.jwt.as_ref().map_or(&[][..], |jwt| &jwt.issuers);
        let issuers: Vec<_> = wanted
            .iter()
            .map(|settings| {
                let known = old.iter().find(|old| old.settings == *settings).map(Arc::clone);
                known.unwrap_or_else(|| Arc::new(JwtIssuer::new(settings.clone(), tasks, giving_up)))
            })
            .collect();
        let is_gone = |old: &&Arc<JwtIssuer>| !issuers.iter().any(|new| Arc::ptr_eq(new, old));
        old.iter().filter(is_gone).for_each(|issuer| issuer.access.withdraw());
        let jwt = config.server.jwt.as_ref()?;
        let place = |path: &str, audiences: Option<Vec<String>>| {
            let terms = jwt.issuers.iter().map(|issuer| &issuer.terms);
            ProtectedResource::new(&jwt.public_url, path, terms, scopes, audiences)
        };
        let endpoint = &config.server.endpoint;
        let profile = |profile: &Profile| {
            let path = format!("{endpoint}/{}", profile.name);
            (Box::from(profile.name.as_str()), place(&path, Some(profile.audiences.clone())))
        };
        Some(Self {
            scope: (!scopes.is_empty()).then(|| scopes.join(" ")),
            endpoint: place(endpoint, None),
            profiles: config.profiles.iter().map(profile).collect(),
            issuers,
            tokens: before.map_or_else(Arc::default, |before| Arc::clone(&before.tokens)),
            refusals: RefusalLog::default(),
        })
    }

    /// Returns the callers whose issuer is no longer accepted.
    pub(in crate::listener) fn withdrawn(&self) -> Vec<CallerAccess> {
        self.tokens.remove_withdrawn()
    }

    pub(in crate::listener) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Returns the place of a profile, or of the endpoint.
    pub(in crate::listener) fn place(&self, profile: Option<&str>) -> &ProtectedResource {
        profile.and_then(|profile| self.profiles.get(profile)).unwrap_or(&self.endpoint)
    }

    /// Returns the place whose metadata lies at a path. The endpoint's lies at the root too.
    pub(in crate::listener) fn place_of_metadata(&self, path: &str) -> Option<&ProtectedResource> {
        let is_root = path == WELL_KNOWN;
        let mut places = std::iter::once(&self.endpoint).chain(self.profiles.values());
        places.find(|place| is_root || place.metadata_path == path)
    }

    /// Finds a token that was validated before. `Some(Err)` if it is for another place.
    pub(in crate::listener) fn find(
        &self,
        text: &[u8],
        profile: Option<&str>,
    ) -> Option<Result<CallerAccess, TokenRefusal>> {
        self.tokens.find(text, |token| self.judge_place(token, profile))
    }

    fn judge_place(&self, token: &ValidatedToken, profile: Option<&str>) -> Result<CallerAccess, TokenRefusal> {
        let is_for = self.place(profile).accepts(&token.audiences, &token.issuer.settings.terms);
        if is_for { Ok(token.caller.clone()) } else { Err(TokenRefusal::OtherAudience) }
    }

    /// Validates a token that is not in the table.
    ///
    /// # Errors
    /// [`Unproved`].
    pub(in crate::listener) async fn validate(
        &self,
        text: &[u8],
        profile: Option<&str>,
    ) -> Result<CallerAccess, Unproved> {
        let token = PresentedToken::parse(text).map_err(Unproved::Refused)?;
        let issuer = self.issuers.iter().find(|issuer| issuer.settings.terms.issuer == token.issuer());
        let issuer = issuer.ok_or(Unproved::Refused(TokenRefusal::OtherIssuer))?;
        let valid = issuer.keys.validate(&token).await?;
        let access = issuer.access.of_caller(&valid.caller, valid.rights, valid.expires);
        if access.is_withdrawn() {
            // A reload has removed the issuer since the request began.
            return Err(Unproved::Refused(TokenRefusal::OtherIssuer));
        }
        let validated = ValidatedToken {
            caller: CallerAccess { caller: valid.caller, access },
            issuer: Arc::clone(issuer),
            audiences: valid.audiences.into(),
            expires: valid.expires,
            key: valid.key,
        };
        // A token for another place is not kept: it would push out those that are used.
        let audiences = Arc::clone(&validated.audiences);
        if !self.place(profile).accepts(&audiences, &issuer.settings.terms) {
            return Err(Unproved::Refused(TokenRefusal::OtherAudience));
        }
        self.judge_place(&self.tokens.add(text, validated), profile).map_err(Unproved::Refused)
    }

    /// Returns the access of a caller whose token another replica has validated; `None` if its
    /// issuer is not accepted here.
    pub(in crate::listener) fn of_passed(
        &self,
        caller: &Caller,
        rights: &Arc<CallerRights>,
        expires: Duration,
    ) -> Option<CallerAccess> {
        let (name, _) = caller.issuer_and_subject()?;
        let issuer = self.issuers.iter().find(|issuer| issuer.settings.terms.name == name)?;
        let access = issuer.access.of_caller(caller, Arc::clone(rights), expires);
        (!access.has_expired() && !access.is_withdrawn()).then(|| CallerAccess { caller: caller.clone(), access })
    }

    /// Logs a refusal.
    pub(in crate::listener) fn log(&self, why: TokenRefusal) {
        self.refusals.write(why);
    }
}

/// Returns the whole seconds of a wait, at least one.
pub(in crate::listener) fn seconds(wait: Duration) -> u64 {
    wait.as_secs().max(1)
}

#[cfg(test)]
mod tests;
