//! Rate limits: how they are written, and the arithmetic (GCRA: one time stamp for each bucket).
//!
//! A bucket holds `burst` calls and refills evenly at `rate`. Its whole state is the time at which
//! it will be full again, in nanoseconds; a time that has passed means full.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Kind;
use super::decide::Facts;
use super::rule::{Field, Patterns, Problems, Target};

mod buckets;

pub(in crate::policy) use self::buckets::Limited;
pub(crate) use self::buckets::{CallerLimiter, Limiter};

/// Longest time that an empty bucket may take to fill: a hundred years, far from overflow.
const MAX_FILL: u64 = 100 * 366 * Per::Day.nanos();

/// A limit as the operator wrote it. Lists as in [`RuleSpec`](super::RuleSpec).
#[derive(Clone, Debug)]
pub(crate) struct LimitSpec {
    pub(crate) id: String,
    pub(crate) tools: Vec<String>,
    pub(crate) upstreams: Vec<String>,
    pub(crate) callers: Vec<String>,
    /// What gets a bucket of its own; all calls that agree in these share one.
    pub(crate) key: Vec<KeyPart>,
    pub(crate) rate: Rate,
    /// How many calls may come at once.
    pub(crate) burst: u32,
}

/// What tells buckets apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KeyPart {
    Caller,
    Upstream,
    /// The tool or prompt. All resources of one upstream count as one, since a client can make up
    /// any number of URIs that match a template.
    Tool,
}

/// A number of calls in a unit of time, written `30/m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rate {
    pub(crate) count: u32,
    pub(crate) per: Per,
}

/// Unit of time of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Per {
    Second,
    Minute,
    Hour,
    Day,
}

impl Per {
    const fn nanos(self) -> u64 {
        let seconds = match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        };
        seconds * 1_000_000_000
    }
}

impl Rate {
    /// Reads `N/s`, `N/m`, `N/h` or `N/d`. Zero is read; [`Policy::build`](super::Policy::build)
    /// refuses it where it knows the key.
    ///
    /// # Errors
    /// [`RateError`] for anything else.
    pub(crate) fn parse(text: &str) -> Result<Self, RateError> {
        let (count, per) = text.split_once('/').ok_or(RateError::Form)?;
        let per = match per {
            "s" => Per::Second,
            "m" => Per::Minute,
            "h" => Per::Hour,
            "d" => Per::Day,
            _ => return Err(RateError::Form),
        };
        // `u32::from_str` alone would take a sign.
        if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
            return Err(RateError::Form);
        }
        let count = count.parse().map_err(|_| RateError::TooLarge)?;
        Ok(Self { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Second => 's',
            Per::Minute => 'm',
            Per::Hour => 'h',
            Per::Day => 'd',
        };
        write!(f, "{}/{per}", self.count)
    }
}

/// Why a text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RateError {
    #[error("must be a whole number and a unit, such as \"10/s\", \"30/m\", \"500/h\" or \"1000/d\"")]
    Form,
    #[error("must not be more than 4294967295 in its unit")]
    TooLarge,
}

/// A compiled limit.
#[derive(Debug)]
pub(in crate::policy) struct Limit {
    pub(in crate::policy) id: Arc<str>,
    pub(in crate::policy) target: Target,
    identity: Identity,
    quota: Quota,
}

/// What makes a limit the same limit after a reload: while this stays, so do its buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    id: Arc<str>,
    /// Sorted: the order in which they are written means nothing.
    key: Vec<KeyPart>,
    rate: Rate,
    burst: u32,
}

impl Limit {
    /// `None` when the quota has problems.
    pub(in crate::policy) fn compile(spec: &LimitSpec, index: usize, problems: &mut Problems) -> Option<Self> {
        let path = format!("policy.limits[{index}]");
        let mut list = |field, texts| Patterns::compile(&path, field, texts, problems);
        let target = Target {
            upstreams: list(Field::Upstreams, &spec.upstreams),
            tools: list(Field::Tools, &spec.tools),
            prompts: Patterns::default(),
            resources: Patterns::default(),
            callers: list(Field::Callers, &spec.callers),
        };
        if spec.key.is_empty() {
            let message = "must name at least one of \"caller\", \"upstream\" and \"tool\"";
            problems.add(format!("{path}.key"), message);
        } else if spec.key.iter().collect::<HashSet<_>>().len() < spec.key.len() {
            problems.add(format!("{path}.key"), "must not name the same part twice");
        }
        let quota = Quota::new(spec.rate, spec.burst);
        let quota = quota.map_err(|e| problems.add(format!("{path}.{}", e.key()), e.to_string()));
        let id: Arc<str> = Arc::from(spec.id.as_str());
        let mut key = spec.key.clone();
        key.sort_unstable();
        let identity = Identity { id: Arc::clone(&id), key, rate: spec.rate, burst: spec.burst };
        Some(Self { id, target, identity, quota: quota.ok()? })
    }

    /// Which of the limit's buckets a call draws from; unused parts are empty.
    fn bucket<'f>(&self, facts: &Facts<'f>) -> [&'f str; 3] {
        let mut parts = [""; 3];
        for (slot, part) in parts.iter_mut().zip([KeyPart::Caller, KeyPart::Upstream, KeyPart::Tool]) {
            if !self.identity.key.contains(&part) {
                continue;
            }
            *slot = match (part, facts.kind) {
                (KeyPart::Caller, _) => facts.caller,
                (KeyPart::Tool, Kind::Tool | Kind::Prompt | Kind::Task) => facts.canonical,
                (KeyPart::Upstream | KeyPart::Tool, _) => facts.upstream,
            };
        }
        parts
    }
}

/// The two numbers of the arithmetic, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Quota {
    /// What one call costs. Rounded up, so that the rate is never exceeded.
    interval: u64,
    /// How far ahead the bucket's time may be for a call to be admitted: `burst - 1` intervals.
    tolerance: u64,
}

impl Quota {
    fn new(rate: Rate, burst: u32) -> Result<Self, QuotaError> {
        if rate.count == 0 {
            return Err(QuotaError::NoRate);
        }
        let further = burst.checked_sub(1).ok_or(QuotaError::NoBurst)?;
        let interval = rate.per.nanos().div_ceil(u64::from(rate.count));
        match interval.checked_mul(u64::from(further)) {
            Some(tolerance) if tolerance <= MAX_FILL => Ok(Self { interval, tolerance }),
            Some(_) | None => Err(QuotaError::Endless),
        }
    }
}

/// Why rate and burst make no quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum QuotaError {
    #[error("must not be zero; to forbid the calls, write a rule with effect = \"deny\"")]
    NoRate,
    #[error("must be at least 1, else no call is ever admitted")]
    NoBurst,
    #[error("would take over a hundred years to refill at this rate")]
    Endless,
}

impl QuotaError {
    const fn key(self) -> &'static str {
        match self {
            Self::NoRate => "rate",
            Self::NoBurst | Self::Endless => "burst",
        }
    }
}

/// Answer of [`admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Admission {
    Admit,
    /// Refused; the same call would be admitted after this time, if no other comes first.
    RetryAfter(Duration),
}

/// One call against one bucket: its state after the call, and whether the call is admitted.
///
/// `state` is the time at which the bucket is full again and `now` the present, in nanoseconds
/// since the same moment; a new bucket's state is zero. A refused call leaves the state as it is.
pub(in crate::policy) fn admit(state: u64, quota: Quota, now: u64) -> (u64, Admission) {
    let wait = state.saturating_sub(quota.tolerance).saturating_sub(now);
    if wait == 0 {
        (state.max(now).saturating_add(quota.interval), Admission::Admit)
    } else {
        (state, Admission::RetryAfter(Duration::from_nanos(wait)))
    }
}

#[cfg(test)]
mod tests;
