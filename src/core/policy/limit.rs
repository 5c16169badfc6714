//! Limits: their form in the configuration, and what each counts.
//!
//! A limit has up to three parts: a rate with a burst, a number of calls at once, and a number of
//! calls in each day (UTC). Each part has buckets of its own, one for each combination of values of
//! the limit's key; a call draws from all parts of all limits that match it, or from none. `meter`
//! is the arithmetic of one bucket, `buckets` has the live ones, `lease` makes them outlive the
//! process.
//!
//! A part keeps its buckets over a reload or restart as long as the limit's id and key stay. Other
//! numbers apply at once and refill nothing: a bucket with another rate or burst begins with the
//! calls that the old one held ([`Meter::carried`]). Parts that are added or removed leave the
//! other parts alone.
//!
//! A key can name caller, upstream and tool, never a session. The store keeps the buckets over
//! restarts and crashes (`store::leases`).
//!
//! A call is under way from its decision to its answer. A parked call stays under way; so does a
//! call whose task the gateway polls. A task that a client was given, a server's question that ends
//! its call, and a subscription are not under way, nor is a request that continues a call.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

use super::action::PolicyAction;
use super::kind::ActionKind;
use crate::policy::rules::problems::PolicyProblems;
use crate::policy::rules::rule::{CallerPatterns, PatternField, PatternList, RuleTarget};
use crate::policy::rules::truth::Truth;

pub(super) mod buckets;
pub(super) mod lease;
pub(super) mod meter;
pub(super) mod rate;
pub(super) mod withdrawal;

pub use self::buckets::{BucketRow, UsedBucket};
pub use self::lease::LimitLease;
use self::meter::{Meter, MeterError};
pub use self::meter::{StoredBucket, day_of};
pub use self::rate::{Rate, RateUnit};
pub use self::withdrawal::{LeaseBound, OverdrawnLimit};

/// A limit as the operator wrote it. Lists as in
/// [`RuleSpec`](crate::policy::rules::rule::RuleSpec).
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LimitSpec {
    pub id: String,
    pub tools: Vec<String>,
    pub upstreams: Vec<String>,
    pub callers: Vec<String>,
    /// Groups of callers; a caller whose credential does not state its groups counts.
    pub groups: Vec<String>,
    /// Parts of the key. Calls that agree in all of them share a bucket.
    pub key: Vec<KeyPart>,
    pub rate: Option<Rate>,
    /// Most calls of the rate that may come at the same moment. Without a rate it has no effect.
    pub burst: u32,
    /// Most calls that may be under way.
    pub concurrent: Option<u32>,
    /// Most calls in a day of UTC.
    pub per_day: Option<u32>,
}

/// A part of a limit's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum KeyPart {
    Caller,
    Upstream,
    /// The tool or prompt. All resources of one upstream count as one, since a client can make up
    /// any number of URIs that match a template.
    Tool,
}

/// A compiled limit.
#[derive(Debug)]
pub(in crate::policy) struct Limit {
    pub(in crate::policy) id: Arc<str>,
    pub(in crate::policy) target: RuleTarget,
    key: Vec<KeyPart>,
    pub(in crate::policy) parts: Vec<LimitPart>,
}

/// One of the numbers that a limit sets, with its arithmetic.
#[derive(Debug)]
pub(in crate::policy) struct LimitPart {
    pub(in crate::policy) identity: PartIdentity,
    pub(in crate::policy) meter: Meter,
}

/// The identity of a part over reloads and restarts. A part with an equal identity keeps its
/// buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::policy) struct PartIdentity {
    pub(in crate::policy) id: Arc<str>,
    /// Sorted: the order in which they are written means nothing.
    pub(in crate::policy) key: Vec<KeyPart>,
    pub(in crate::policy) counts: PartMeasure,
}

/// The quantity that a part counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::policy) enum PartMeasure {
    Rate { rate: Rate, burst: u32 },
    Day,
    Concurrent,
}

/// Writes the form in which rows on disk are found again: `id caller+tool 30/m*10`. An id has no
/// spaces.
impl fmt::Display for PartIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: Vec<&str> = self.key.iter().map(|part| part.into_str()).collect();
        write!(f, "{} {} ", self.id, key.join("+"))?;
        match self.counts {
            PartMeasure::Rate { rate, burst } => write!(f, "{rate}*{burst}"),
            PartMeasure::Day => f.write_str("day"),
            PartMeasure::Concurrent => f.write_str("concurrent"),
        }
    }
}

impl PartIdentity {
    /// Whether `other` is the same rate limit with other numbers.
    pub(in crate::policy) fn is_rate_of(&self, other: &Self) -> bool {
        let are_rates = matches!((self.counts, other.counts), (PartMeasure::Rate { .. }, PartMeasure::Rate { .. }));
        are_rates && self.id == other.id && self.key == other.key
    }

    /// Returns the meter of a stored rate limit that is this one with another rate or burst; `None`
    /// for any other text.
    fn other_rate(&self, text: &str) -> Option<Meter> {
        let (before, numbers) = text.rsplit_once(' ')?;
        let (own, _) = self.to_string().rsplit_once(' ').map(|(own, numbers)| (own.to_owned(), numbers.len()))?;
        let (rate, burst) = numbers.split_once('*')?;
        let meter = Meter::rate(Rate::parse(rate).ok()?, burst.parse().ok()?).ok()?;
        (matches!(self.counts, PartMeasure::Rate { .. }) && own == before).then_some(meter)
    }
}

impl Limit {
    /// Compiles a limit; adds its problems to `problems` and returns `None` if the numbers have
    /// any.
    pub(in crate::policy) fn compile(spec: &LimitSpec, index: usize, problems: &mut PolicyProblems) -> Option<Self> {
        let path = format!("policy.limits[{index}]");
        let mut list = |field, texts| PatternList::compile(&path, field, texts, problems);
        let target = RuleTarget {
            upstreams: list(PatternField::Upstreams, &spec.upstreams),
            tools: list(PatternField::Tools, &spec.tools),
            prompts: PatternList::default(),
            resources: PatternList::default(),
            who: CallerPatterns::default(),
        };
        let who = CallerPatterns::compile(&path, &spec.callers, &spec.groups, problems);
        if spec.key.is_empty() {
            let message = "must name at least one of \"caller\", \"upstream\" and \"tool\"";
            problems.add(format!("{path}.key"), message);
        } else if spec.key.iter().collect::<HashSet<_>>().len() < spec.key.len() {
            problems.add(format!("{path}.key"), "must not name the same part twice");
        }
        let id: Arc<str> = Arc::from(spec.id.as_str());
        let mut key = spec.key.clone();
        key.sort_unstable();
        let mut parts = Vec::new();
        for (counts, meter) in meters(spec) {
            let identity = PartIdentity { id: Arc::clone(&id), key: key.clone(), counts };
            match meter {
                Ok(meter) => parts.push(LimitPart { identity, meter }),
                Err(error) => {
                    problems.add(format!("{path}.{}", error.key()), error.to_string());
                    return None;
                }
            }
        }
        if parts.is_empty() {
            problems.add(path, "needs `rate`, `concurrent` or `per-day`, for example rate = \"30/m\"");
            return None;
        }
        Some(Self { id, target: RuleTarget { who, ..target }, key, parts })
    }

    /// Whether the limit counts calls of this caller.
    pub(in crate::policy) fn counts(&self, action: &PolicyAction) -> bool {
        self.target.who.covers(&action.caller, &action.rights.groups) != Truth::No
    }

    /// Which of the limit's buckets a call draws from; unused parts are empty.
    pub(in crate::policy) fn bucket<'a>(&self, action: &'a PolicyAction) -> [&'a str; 3] {
        let mut parts = [""; 3];
        for (slot, part) in parts.iter_mut().zip([KeyPart::Caller, KeyPart::Upstream, KeyPart::Tool]) {
            if !self.key.contains(&part) {
                continue;
            }
            *slot = match (part, action.kind) {
                (KeyPart::Caller, _) => action.caller.key(),
                (KeyPart::Tool, ActionKind::Tool | ActionKind::Prompt | ActionKind::Task) => &action.canonical,
                (KeyPart::Upstream | KeyPart::Tool, _) => &action.upstream,
            };
        }
        parts
    }
}

/// Returns the parts that the operator wrote, each with its meter.
fn meters(spec: &LimitSpec) -> impl Iterator<Item = (PartMeasure, Result<Meter, MeterError>)> {
    let burst = spec.burst;
    let rate = spec.rate.map(|rate| (PartMeasure::Rate { rate, burst }, Meter::rate(rate, burst)));
    let concurrent = spec.concurrent.map(|places| (PartMeasure::Concurrent, Meter::concurrent(places)));
    let per_day = spec.per_day.map(|quota| (PartMeasure::Day, Meter::per_day(quota)));
    [rate, concurrent, per_day].into_iter().flatten()
}

#[cfg(test)]
mod tests;
