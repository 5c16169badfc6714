//! The keys of one issuer: fetched when a token first needs them, and again by age and for an
//! unknown key id.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use url::Url;

use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::config::IssuerSettings;
use crate::identity::discovery::{key_address, metadata_addresses, reach_of};
use crate::identity::keys::KeySet;
use crate::identity::refusal::TokenRefusal;
use crate::identity::token::{PresentedToken, ValidToken};
use crate::login::request::{OAuthRequest, RequestContent};
use crate::upstream::login::fetcher::Fetcher;
use crate::upstream::net::trust::Certificates;

/// Age from which keys are fetched again while they stay in use.
const FRESH: Duration = Duration::from_secs(600);
/// Age from which keys are not used any more, if the issuer is away.
const MAX_AGE: Duration = Duration::from_secs(86_400);
/// Least time between two fetches for unknown key ids, and between two attempts by age.
const PAUSE: Duration = Duration::from_secs(30);
/// Least time between two attempts while there are no keys.
const RETRY: Duration = Duration::from_secs(5);

/// The reason why a token proves nothing at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproved {
    Refused(TokenRefusal),
    /// The issuer could not be asked for its keys; the token may be valid. Contains the time to
    /// wait.
    NoKeys(Duration),
}

/// The keys of one issuer, shared by all requests.
#[derive(Debug)]
pub struct IssuerKeys {
    settings: IssuerSettings,
    fetcher: Fetcher,
    tasks: TaskGroup,
    state: Mutex<KeyState>,
    /// Held while keys are fetched.
    fetching: tokio::sync::Mutex<()>,
}

/// The last keys, and when which fetch happened, on the uptime clock.
#[derive(Debug, Default)]
struct KeyState {
    set: Option<Arc<KeySet>>,
    fetched: Duration,
    /// Start of the last attempt by age, or of the last one that failed.
    tried: Option<Duration>,
    /// Time of the last fetch for an unknown key id, since the keys were refreshed by age.
    looked_up: Option<Duration>,
}

impl KeyState {
    fn usable(&self, now: Duration) -> Option<&Arc<KeySet>> {
        self.set.as_ref().filter(|_| now.saturating_sub(self.fetched) < MAX_AGE)
    }
}

impl IssuerKeys {
    pub fn new(settings: IssuerSettings, tasks: TaskGroup) -> Self {
        let fetcher = Fetcher::new(Arc::new(Certificates::default()), settings.proxy.clone());
        Self { settings, fetcher, tasks, state: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    /// Returns the keys that are known, and fetches them in the background if they are old.
    pub fn known(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let now = clock::uptime();
        let mut state = self.state.lock();
        let known = state.usable(now).cloned()?;
        let is_due = now.saturating_sub(state.fetched) >= FRESH
            && state.tried.is_none_or(|tried| now.saturating_sub(tried) >= PAUSE);
        if is_due {
            state.tried = Some(now);
            let (keys, seen) = (Arc::clone(self), Arc::clone(&known));
            self.tasks.spawn("issuer keys", async move { keys.refresh(&seen).await });
        }
        Some(known)
    }

    /// Judges a token, and fetches keys if that may prove it.
    ///
    /// # Errors
    /// [`Unproved`].
    pub async fn validate(self: &Arc<Self>, token: &PresentedToken<'_>) -> Result<ValidToken, Unproved> {
        let terms = &self.settings.terms;
        // A token that no key would prove does not make the gateway ask for keys.
        token.check_claims(terms, clock::since_1970()).map_err(Unproved::Refused)?;
        let keys = match self.known() {
            Some(keys) => keys,
            None => self.first().await.ok_or(Unproved::NoKeys(RETRY))?,
        };
        match token.validate(terms, &keys, clock::since_1970()) {
            Err(TokenRefusal::UnknownKey) => match self.look_up(&keys).await {
                Some(keys) => token.validate(terms, &keys, clock::since_1970()),
                None => Err(TokenRefusal::UnknownKey),
            },
            judged => judged,
        }
        .map_err(Unproved::Refused)
    }

    /// Fetches the first keys, unless another request has done so or failed a moment ago.
    async fn first(&self) -> Option<Arc<KeySet>> {
        let _fetching = self.fetching.lock().await;
        let now = clock::uptime();
        {
            let state = self.state.lock();
            if let Some(known) = state.usable(now) {
                return Some(Arc::clone(known));
            }
            if state.tried.is_some_and(|tried| now.saturating_sub(tried) < RETRY) {
                return None;
            }
        }
        self.fetch().await
    }

    /// Fetches keys for a key id that is not among `seen`, unless that was done less than
    /// [`PAUSE`] ago. Requests that wait for a fetch get its keys.
    async fn look_up(&self, seen: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        let _fetching = self.fetching.lock().await;
        let now = clock::uptime();
        {
            let mut state = self.state.lock();
            if let Some(known) = state.set.as_ref().filter(|known| !Arc::ptr_eq(known, seen)) {
                return Some(Arc::clone(known));
            }
            if state.looked_up.is_some_and(|last| now.saturating_sub(last) < PAUSE) {
                return None;
            }
            state.looked_up = Some(now);
        }
        self.fetch().await
    }

    /// Fetches keys in place of old ones.
    async fn refresh(&self, seen: &Arc<KeySet>) {
        let _fetching = self.fetching.lock().await;
        let is_done = self.state.lock().set.as_ref().is_some_and(|known| !Arc::ptr_eq(known, seen));
        if !is_done && self.fetch().await.is_some() {
            self.state.lock().looked_up = None;
        }
    }

    /// Asks the issuer for its keys and keeps them. Logs a failure.
    async fn fetch(&self) -> Option<Arc<KeySet>> {
        let fetched = Box::pin(self.ask()).await.filter(|set| !set.is_empty()).map(Arc::new);
        let mut state = self.state.lock();
        match &fetched {
            Some(set) => {
                state.fetched = clock::uptime();
                state.set = Some(Arc::clone(set));
            }
            None => {
                state.tried = Some(clock::uptime());
                let issuer = &self.settings.terms.name;
                tracing::warn!(
                    issuer,
                    "the issuer's keys cannot be fetched; see its address in [[server.auth.issuers]]"
                );
            }
        }
        fetched
    }

    async fn ask(&self) -> Option<KeySet> {
        let address = match &self.settings.jwks {
            Some(address) => address.clone(),
            None => self.discover().await?,
        };
        KeySet::parse(&self.get(address).await?)
    }

    /// Finds the address of the keys by the issuer's metadata.
    async fn discover(&self) -> Option<Url> {
        let issuer = &self.settings.terms.issuer;
        for address in metadata_addresses(issuer) {
            if let Some(found) = self.get(address).await.and_then(|document| key_address(&document, issuer)) {
                return Some(found);
            }
        }
        None
    }

    async fn get(&self, url: Url) -> Option<bytes::Bytes> {
        let mut reach = reach_of(&url, &self.settings.terms.issuer);
        if self.settings.jwks.as_ref() == Some(&url) {
            reach = reach_of(&url, url.as_str());
        }
        let request = OAuthRequest { url, reach, content: RequestContent::None, authorization: None, revision: None };
        let answer = self.fetcher.send(&request).await.ok()?;
        answer.is_success().then_some(answer.body)
    }
}
