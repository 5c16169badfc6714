//! The URIs that results of tools handed to callers, each readable for an hour by its caller in the
//! profile of that call, also if no list shows it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::catalog::name::UpstreamName;
use crate::mcp::definition::app::fold_view_uri;
use crate::policy::Caller;

/// How long a URI can be read after it was last handed out.
const LIFE: Duration = Duration::from_secs(3600);
/// Most URIs that one result hands out; the others cannot be read.
pub const MAX_OF_RESULT: usize = 256;
/// Most URIs of one caller; the oldest gives way.
const MAX_URIS: usize = 1024;
/// Most URIs of all callers; the oldest of the caller with the most give way.
const MAX_ALL: usize = 16 * MAX_URIS;
/// Longest URI, in bytes.
const MAX_LENGTH: usize = 2048;

/// A URI as a caller knows it, in one profile.
type HandedKey = (Option<Arc<str>>, Arc<str>);

/// A URI that was handed to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedUri {
    /// The upstream to read it from; `None` if several upstreams handed it out.
    pub upstream: Option<UpstreamName>,
    /// The URI at the upstream.
    pub original: Arc<str>,
    /// The canonical name of the tool that handed it out last.
    pub tool: Arc<str>,
    /// Its end, on the uptime clock.
    until: Duration,
    /// The number of the handing, by which the oldest gives way.
    number: u64,
}

/// The handed URIs of one caller.
#[derive(Debug, Default)]
struct OwnUris {
    by_key: HashMap<HandedKey, HandedUri>,
    /// The keys in the order in which they were last handed out, by number.
    by_age: BTreeMap<u64, HandedKey>,
}

impl OwnUris {
    fn put(&mut self, key: HandedKey, uri: HandedUri) {
        self.by_age.insert(uri.number, key.clone());
        if let Some(before) = self.by_key.insert(key, uri) {
            self.by_age.remove(&before.number);
        }
    }

    fn remove_oldest(&mut self, count: usize) {
        for _ in 0..count {
            let Some((_, key)) = self.by_age.pop_first() else { return };
            self.by_key.remove(&key);
        }
    }
}

/// The handed URIs of all callers, under the lock.
#[derive(Debug, Default)]
struct HandedTable {
    callers: HashMap<Caller, OwnUris>,
    /// The number of the last handing.
    number: u64,
}

/// The handed URIs of all callers.
#[derive(Debug, Default)]
pub struct HandedUris(Mutex<HandedTable>);

/// The caller and profile of a call.
#[derive(Clone, Copy, Debug)]
pub struct HandedTo<'c> {
    pub caller: &'c Caller,
    pub profile: Option<&'c Arc<str>>,
}

impl HandedTo<'_> {
    fn key(self, uri: &str) -> HandedKey {
        (self.profile.map(Arc::clone), Arc::from(fold_view_uri(uri)))
    }
}

/// The tool whose result hands URIs out.
#[derive(Clone, Copy, Debug)]
pub struct HandingTool<'t> {
    pub upstream: &'t UpstreamName,
    /// The canonical name of the tool.
    pub tool: &'t Arc<str>,
}

/// A URI in the result of a tool.
#[derive(Clone, Debug)]
pub struct ResultUri {
    /// The URI that the client knows.
    pub exposed: String,
    /// The URI at the upstream.
    pub original: String,
}

impl HandedUris {
    /// Remembers the URIs that a result hands out, at most [`MAX_OF_RESULT`] of them. A URI that
    /// another upstream handed to the same caller can be read from neither.
    pub fn hand(&self, to: HandedTo<'_>, by: HandingTool<'_>, uris: &[ResultUri], now: Duration) {
        let is_fit = |uri: &&ResultUri| uri.exposed.len() <= MAX_LENGTH && !uri.exposed.chars().any(char::is_control);
        let mut uris = uris.iter().filter(is_fit).take(MAX_OF_RESULT).peekable();
        if uris.peek().is_none() {
            return;
        }
        let mut table = self.0.lock();
        let HandedTable { callers, number } = &mut *table;
        let own = callers.entry(to.caller.clone()).or_default();
        for ResultUri { exposed, original } in uris {
            *number += 1;
            let key = to.key(exposed);
            let known = own.by_key.get(&key).filter(|known| known.until > now);
            let is_alone = known.is_none_or(|known| known.upstream.as_ref() == Some(by.upstream));
            let upstream = is_alone.then(|| by.upstream.clone());
            let (original, tool) = (Arc::from(original.as_str()), Arc::clone(by.tool));
            own.put(key, HandedUri { upstream, original, tool, until: now + LIFE, number: *number });
        }
        own.remove_oldest(own.by_key.len().saturating_sub(MAX_URIS));
        while let Some(excess) = count_of(callers).checked_sub(MAX_ALL).filter(|excess| *excess > 0) {
            let Some(most) = callers.values_mut().max_by_key(|own| own.by_key.len()) else { return };
            // A part of them at a time, so that callers with as many lose as many.
            most.remove_oldest(excess.min(most.by_key.len() / 16 + 1));
            callers.retain(|_, own| !own.by_key.is_empty());
        }
    }

    /// Returns a URI that was handed to this caller within the last hour.
    pub fn find(&self, to: HandedTo<'_>, uri: &str, now: Duration) -> Option<HandedUri> {
        let table = self.0.lock();
        let own = table.callers.get(to.caller)?;
        own.by_key.get(&to.key(uri)).filter(|known| known.until > now).cloned()
    }
}

fn count_of(callers: &HashMap<Caller, OwnUris>) -> usize {
    callers.values().map(|own| own.by_key.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(exposed: &str, original: &str) -> ResultUri {
        ResultUri { exposed: exposed.to_owned(), original: original.to_owned() }
    }

    fn by<'t>(upstream: &'t UpstreamName, tool: &'t Arc<str>) -> HandingTool<'t> {
        HandingTool { upstream, tool }
    }

    #[test]
    fn a_uri_is_its_caller_s_and_profile_s_for_an_hour() {
        let (uris, upstream) = (HandedUris::default(), UpstreamName::parse("fx").unwrap());
        let (one, two, profile) = (Caller::named("one"), Caller::named("two"), Arc::<str>::from("p"));
        let (to, tool) = (|caller, profile| HandedTo { caller, profile }, Arc::<str>::from("t"));
        uris.hand(to(&one, None), by(&upstream, &tool), &[uri("a://x", "a://x")], Duration::ZERO);
        let found = |to, at| uris.find(to, "a://x", Duration::from_secs(at)).and_then(|uri| uri.upstream);
        assert_eq!(found(to(&one, None), 3599), Some(upstream.clone()));
        for other in [to(&two, None), to(&one, Some(&profile))] {
            assert_eq!(found(other, 0), None);
        }
        assert_eq!(found(to(&one, None), 3600), None);
        let rival = UpstreamName::parse("gx").unwrap();
        let hand = |at| uris.hand(to(&one, None), by(&rival, &tool), &[uri("a://x", "a://x")], Duration::from_secs(at));
        hand(3599);
        assert_eq!(found(to(&one, None), 3599), None, "of two upstreams, neither is read");
        hand(9000);
        assert_eq!(found(to(&one, None), 9000), Some(rival.clone()));
        uris.hand(to(&two, None), by(&upstream, &tool), &[uri("UI://V/a", "UI://V/a")], Duration::ZERO);
        let view = |asked| uris.find(to(&two, None), asked, Duration::ZERO);
        assert_eq!(&*view("ui://v/a").unwrap().original, "UI://V/a");
        assert_eq!(view("ui://v/A"), None);
        uris.hand(to(&two, None), by(&rival, &tool), &[uri("ui://v/a", "ui://v/a")], Duration::ZERO);
        assert_eq!(view("ui://v/a").unwrap().upstream, None, "another case is no other view");
    }

    #[test]
    fn the_oldest_uris_give_way() {
        let (uris, upstream) = (HandedUris::default(), UpstreamName::parse("fx").unwrap());
        let (callers, tool): (Vec<Caller>, _) =
            ((0..17).map(|n| Caller::named(&format!("c{n}"))).collect(), Arc::<str>::from("t"));
        let to = |n: usize| HandedTo { caller: &callers[n], profile: None };
        let hand =
            |n: usize, text: String| uris.hand(to(n), by(&upstream, &tool), &[uri(&text, "a://x")], Duration::ZERO);
        for n in 0..1030 {
            hand(0, format!("a://{n}"));
        }
        let has = |caller, n| uris.find(to(caller), &format!("a://{n}"), Duration::ZERO).is_some();
        assert!(!has(0, 5) && has(0, 6) && has(0, 1029));
        hand(0, "a://6".to_owned());
        hand(0, "a://1030".to_owned());
        assert!(has(0, 6) && !has(0, 7), "one that is handed again is new");
        for (caller, n) in (1..17).flat_map(|caller| (0..1000).map(move |n| (caller, n))) {
            hand(caller, format!("a://{n}"));
        }
        assert!(!has(0, 8) && has(0, 6) && has(0, 1029) && has(16, 500), "the caller with the most gives way");
        let sizes = || {
            let table = uris.0.lock();
            let own = &table.callers[&callers[16]];
            (count_of(&table.callers), own.by_key.len(), own.by_age.len())
        };
        let before = sizes();
        assert!(before.0 <= MAX_ALL && before.1 == before.2, "{before:?}");
        hand(16, "a".repeat(MAX_LENGTH + 1));
        assert_eq!(sizes(), before, "it is too long");
        let many: Vec<ResultUri> = (0..100_000).map(|n| uri(&format!("b://{n}"), "b")).collect();
        uris.hand(to(16), by(&upstream, &tool), &many, Duration::ZERO);
        let is_read = |n| uris.find(to(16), &format!("b://{n}"), Duration::ZERO).is_some();
        assert!(is_read(255) && !is_read(256) && has(16, 999), "a result hands out few of many");
    }
}
