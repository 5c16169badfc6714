//! The URIs that results of tools handed to callers, each readable for an hour by its caller in the
//! profile of that call, also if no list shows it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::catalog::name::UpstreamName;
use crate::policy::Caller;

/// How long a URI can be read after it was last handed out.
const LIFE: Duration = Duration::from_secs(3600);
/// Most URIs of one caller; the oldest gives way.
const MAX_URIS: usize = 1024;
/// Most URIs of all callers; the oldest of the caller with the most gives way.
const MAX_ALL: usize = 16 * MAX_URIS;
/// Longest URI, in bytes.
const MAX_LENGTH: usize = 2048;

/// A URI as a caller knows it, in one profile.
type HandedKey = (Option<Arc<str>>, String);

/// A URI that was handed to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedUri {
    /// The upstream to read it from; `None` if several upstreams handed it out.
    pub upstream: Option<UpstreamName>,
    /// The URI at the upstream.
    pub original: Arc<str>,
    /// Its end, on the uptime clock.
    until: Duration,
}

/// The handed URIs of one caller.
type OwnUris = HashMap<HandedKey, HandedUri>;

/// The handed URIs of all callers.
#[derive(Debug, Default)]
pub struct HandedUris(Mutex<HashMap<Caller, OwnUris>>);

/// The caller and profile of a call.
#[derive(Clone, Copy, Debug)]
pub struct HandedTo<'c> {
    pub caller: &'c Caller,
    pub profile: Option<&'c Arc<str>>,
}

impl HandedTo<'_> {
    fn key(self, uri: &str) -> HandedKey {
        (self.profile.map(Arc::clone), uri.to_owned())
    }
}

impl HandedUris {
    /// Remembers that a tool of `upstream` handed out its URI `original`, which the client knows as
    /// `uri`. A URI that another upstream handed to the same caller can be read from neither.
    pub fn hand(&self, to: HandedTo<'_>, uri: &str, upstream: &UpstreamName, original: &str, now: Duration) {
        if uri.len() > MAX_LENGTH || uri.chars().any(char::is_control) {
            return;
        }
        let (key, mut all) = (to.key(uri), self.0.lock());
        let own = all.entry(to.caller.clone()).or_default();
        let known = own.get(&key).filter(|known| known.until > now);
        let is_alone = known.is_none_or(|known| known.upstream.as_ref() == Some(upstream));
        let upstream = is_alone.then(|| upstream.clone());
        own.insert(key, HandedUri { upstream, original: Arc::from(original), until: now + LIFE });
        if own.len() > MAX_URIS {
            remove_oldest(own);
        }
        if all.values().map(HashMap::len).sum::<usize>() > MAX_ALL {
            let most = all.values_mut().max_by_key(|own| own.len());
            most.into_iter().for_each(remove_oldest);
            all.retain(|_, own| !own.is_empty());
        }
    }

    /// Returns a URI that was handed to this caller within the last hour.
    pub fn find(&self, to: HandedTo<'_>, uri: &str, now: Duration) -> Option<HandedUri> {
        let all = self.0.lock();
        all.get(to.caller)?.get(&to.key(uri)).filter(|known| known.until > now).cloned()
    }
}

fn remove_oldest(own: &mut OwnUris) {
    let oldest = own.iter().min_by_key(|(_, uri)| uri.until).map(|(key, _)| key.clone());
    oldest.into_iter().for_each(|key| drop(own.remove(&key)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_its_caller_s_and_profile_s_for_an_hour() {
        let (uris, upstream) = (HandedUris::default(), UpstreamName::parse("fx").unwrap());
        let (one, two, profile) = (Caller::named("one"), Caller::named("two"), Arc::<str>::from("p"));
        let to = |caller, profile| HandedTo { caller, profile };
        uris.hand(to(&one, None), "a://x", &upstream, "a://x", Duration::ZERO);
        let found = |to, at| uris.find(to, "a://x", Duration::from_secs(at)).and_then(|uri| uri.upstream);
        assert_eq!(found(to(&one, None), 3599), Some(upstream.clone()));
        for other in [to(&two, None), to(&one, Some(&profile))] {
            assert_eq!(found(other, 0), None);
        }
        assert_eq!(found(to(&one, None), 3600), None);
        let rival = UpstreamName::parse("gx").unwrap();
        uris.hand(to(&one, None), "a://x", &rival, "a://x", Duration::from_secs(3599));
        assert_eq!(found(to(&one, None), 3599), None, "of two upstreams, neither is read");
        uris.hand(to(&one, None), "a://x", &rival, "a://x", Duration::from_secs(9000));
        assert_eq!(found(to(&one, None), 9000), Some(rival));
    }

    #[test]
    fn the_oldest_uris_give_way() {
        let (uris, upstream) = (HandedUris::default(), UpstreamName::parse("fx").unwrap());
        let callers: Vec<Caller> = (0..17).map(|n| Caller::named(&format!("c{n}"))).collect();
        let to = |n: usize| HandedTo { caller: &callers[n], profile: None };
        for n in 0..1030_u64 {
            uris.hand(to(0), &format!("a://{n}"), &upstream, "a://x", Duration::from_millis(n));
        }
        let has = |caller, n| uris.find(to(caller), &format!("a://{n}"), Duration::ZERO).is_some();
        assert!(!has(0, 5) && has(0, 6) && has(0, 1029));
        for (caller, n) in (1..17).flat_map(|caller| (0..1000_u64).map(move |n| (caller, n))) {
            uris.hand(to(caller), &format!("a://{n}"), &upstream, "a://x", Duration::from_secs(60));
        }
        assert!(!has(0, 6) && has(0, 1029) && has(16, 0), "the caller with the most gives way");
        let count = || uris.0.lock()[&callers[16]].len();
        let before = count();
        uris.hand(to(16), &"a".repeat(MAX_LENGTH + 1), &upstream, "a", Duration::ZERO);
        assert_eq!(count(), before, "it is too long");
    }
}
