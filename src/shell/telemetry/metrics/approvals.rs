//! Metrics of open approvals, their answers, grants and denials.

use std::sync::Arc;
use std::time::Duration;

use strum::VariantArray as _;

use super::family::signed;
use super::table::Families;
use crate::policy::ApprovalEvidence;
use crate::policy::consent::ApprovalEnd;

/// Channel label of an approval that ended without an answer.
const NO_CHANNEL: &str = "none";

/// Answers that have a series from the start, so that a rate includes the first of them.
const ANSWERS: [ApprovalEnd; 3] = [ApprovalEnd::Granted, ApprovalEnd::Denied, ApprovalEnd::Dismissed];
/// Ends without an answer that have a series from the start.
const ENDS: [ApprovalEnd; 2] = [ApprovalEnd::TimedOut, ApprovalEnd::Superseded];

/// Numbers of approvals and grants at the moment of a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalNumbers {
    pub open: usize,
    /// Age of the oldest open approval; zero if none is open.
    pub oldest: Duration,
    /// Denials that still refuse their call.
    pub denials: usize,
    /// Live grants, by the word for their lifetime.
    pub grants: [(&'static str, usize); 4],
}

/// The series of approvals. Clones share them.
#[derive(Clone, Debug)]
pub struct ApprovalMetrics(Arc<Families>);

impl ApprovalMetrics {
    pub(super) fn new(families: Arc<Families>) -> Self {
        for channel in ApprovalEvidence::VARIANTS.iter().copied().map(channel) {
            families.answer_durations.with_label_values(&[channel]);
            ANSWERS.iter().for_each(|how| drop(families.answers.with_label_values(&[how.into_str(), channel])));
        }
        ENDS.iter().for_each(|how| drop(families.answers.with_label_values(&[how.into_str(), NO_CHANNEL])));
        Self(families)
    }

    /// Counts the end of an approval by its kind and channel. `evidence` is the evidence of the
    /// answer; without an answer the time in `waited` is not recorded.
    pub fn ended(&self, how: ApprovalEnd, evidence: Option<ApprovalEvidence>, waited: Duration) {
        let channel = evidence.map_or(NO_CHANNEL, channel);
        self.0.answers.with_label_values(&[how.into_str(), channel]).inc();
        if evidence.is_some() {
            self.0.answer_durations.with_label_values(&[channel]).observe(waited.as_secs_f64());
        }
    }

    /// Sets the numbers of approvals and grants, just before a scrape.
    pub fn observe(&self, numbers: &ApprovalNumbers) {
        self.0.approvals_open.set(signed(numbers.open));
        self.0.approvals_oldest.set(signed(numbers.oldest.as_secs()));
        self.0.denials.set(signed(numbers.denials));
        for (lifetime, count) in numbers.grants {
            self.0.grants.with_label_values(&[lifetime]).set(signed(count));
        }
    }
}

/// Returns the label of the channel whose answers have this evidence.
const fn channel(evidence: ApprovalEvidence) -> &'static str {
    match evidence {
        ApprovalEvidence::Client => "client",
        ApprovalEvidence::Page => "console",
        ApprovalEvidence::Operator => "operator",
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
        approvals.ended(ApprovalEnd::Dismissed, Some(ApprovalEvidence::Client), Duration::from_millis(9));
        approvals.ended(ApprovalEnd::Granted, Some(ApprovalEvidence::Page), Duration::from_secs(40));
        approvals.ended(ApprovalEnd::TimedOut, None, Duration::from_secs(900));
        has(r#"headend_approval_answers_total{channel="client",result="dismissed"} 1"#);
        has(r#"headend_approval_answers_total{channel="console",result="granted"} 1"#);
        has(r#"headend_approval_answers_total{channel="none",result="timed-out"} 1"#);
        has(r#"headend_approval_answer_duration_seconds_bucket{channel="client",le="0.01"} 1"#);
        has(r#"headend_approval_answer_duration_seconds_bucket{channel="console",le="30"} 0"#);
        has(r#"headend_approval_answer_duration_seconds_bucket{channel="console",le="60"} 1"#);
        assert!(!metrics.render().contains(r#"answer_duration_seconds_count{channel="none"}"#));
    }
}
