//! Open approvals, their answers, grants and denials.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};
use strum::VariantArray as _;

use super::builder::{Builder, signed};
use crate::policy::Evidence;
use crate::policy::consent::Closed;

/// From the answer of a client without a person to the longest time that an approval usually stays
/// open, in seconds.
const ANSWER_BUCKETS: &[f64] = &[0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// The channel of an approval that ended without an answer.
const NO_CHANNEL: &str = "none";

/// Answers that have a series from the start, so that a rate sees the first of them.
const ANSWERS: [Closed; 3] = [Closed::Granted, Closed::Denied, Closed::Dismissed];
const ENDS: [Closed; 2] = [Closed::TimedOut, Closed::Superseded];

/// Numbers of approvals and grants at the moment of a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalNumbers {
    pub open: usize,
    /// Age of the oldest open approval; zero if none is open.
    pub oldest: Duration,
    /// Denials that still refuse their call.
    pub denials: usize,
    /// Live grants by the word of their lifetime.
    pub grants: [(&'static str, usize); 4],
}

/// The families of approvals. Clones share them.
#[derive(Clone, Debug)]
pub struct ApprovalMetrics {
    open: IntGauge,
    oldest: IntGauge,
    denials: IntGauge,
    grants: IntGaugeVec,
    answers: IntCounterVec,
    durations: HistogramVec,
}

impl ApprovalMetrics {
    /// # Errors
    /// A family that the registry refuses, which is a mistake in this file.
    pub(super) fn new(b: &Builder) -> Result<Self, prometheus::Error> {
        let this = Self {
            open: b.gauge("headend_approvals_open", "Open approvals of this process.")?,
            oldest: b.gauge(
                "headend_approvals_oldest_age_seconds",
                "Age of the oldest open approval; 0 while none is open.",
            )?,
            denials: b.gauge("headend_denials", "Denials by a person that still refuse the same call.")?,
            grants: b.gauges("headend_grants", "Grants in force, by lifetime.", &["lifetime"])?,
            answers: b.counters(
                "headend_approval_answers_total",
                "Approvals that were answered or ended without an answer, by result and channel.",
                &["result", "channel"],
            )?,
            durations: b.histograms(
                "headend_approval_answer_duration_seconds",
                "Time from the opening of an approval to its answer, by channel.",
                &["channel"],
                ANSWER_BUCKETS,
            )?,
        };
        for channel in Evidence::VARIANTS.iter().copied().map(channel) {
            this.durations.with_label_values(&[channel]);
            ANSWERS.iter().for_each(|how| drop(this.answers.with_label_values(&[how.into_str(), channel])));
        }
        ENDS.iter().for_each(|how| drop(this.answers.with_label_values(&[how.into_str(), NO_CHANNEL])));
        Ok(this)
    }

    /// Counts the end of an approval. `evidence` is that of its answer, if it got one.
    pub fn ended(&self, how: Closed, evidence: Option<Evidence>, waited: Duration) {
        let channel = evidence.map_or(NO_CHANNEL, channel);
        self.answers.with_label_values(&[how.into_str(), channel]).inc();
        if evidence.is_some() {
            self.durations.with_label_values(&[channel]).observe(waited.as_secs_f64());
        }
    }

    /// Sets the numbers of approvals and grants, just before a scrape.
    pub fn observe(&self, numbers: &ApprovalNumbers) {
        self.open.set(signed(numbers.open));
        self.oldest.set(signed(numbers.oldest.as_secs()));
        self.denials.set(signed(numbers.denials));
        for (lifetime, count) in numbers.grants {
            self.grants.with_label_values(&[lifetime]).set(signed(count));
        }
    }
}

/// The channel that gives answers of that evidence.
const fn channel(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Client => "client",
        Evidence::Page => "console",
        Evidence::Operator => "operator",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn an_answer_is_counted_by_result_and_channel_and_timed_if_somebody_gave_it() {
        let metrics = Metrics::new().unwrap();
        let has = |line: &str| assert!(metrics.render().lines().any(|l| l == line), "{line}\n{}", metrics.render());
        has(r#"headend_approval_answers_total{channel="operator",result="denied"} 0"#);
        has(r#"headend_approval_answer_duration_seconds_count{channel="client"} 0"#);
        let approvals = metrics.approvals();
        approvals.ended(Closed::Dismissed, Some(Evidence::Client), Duration::from_millis(9));
        approvals.ended(Closed::Granted, Some(Evidence::Page), Duration::from_secs(40));
        approvals.ended(Closed::TimedOut, None, Duration::from_secs(900));
        has(r#"headend_approval_answers_total{channel="client",result="dismissed"} 1"#);
        has(r#"headend_approval_answers_total{channel="console",result="granted"} 1"#);
        has(r#"headend_approval_answers_total{channel="none",result="timed-out"} 1"#);
        has(r#"headend_approval_answer_duration_seconds_bucket{channel="client",le="0.01"} 1"#);
        has(r#"headend_approval_answer_duration_seconds_bucket{channel="console",le="30"} 0"#);
        has(r#"headend_approval_answer_duration_seconds_bucket{channel="console",le="60"} 1"#);
        assert!(!metrics.render().contains(r#"answer_duration_seconds_count{channel="none"}"#));
    }
}
