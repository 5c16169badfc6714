//! The logins of upstreams: how their renewals ended, and until when their tokens are good.

use std::time::Duration;

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use strum::VariantArray as _;

/// How an attempt to renew a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Renewal {
    Renewed,
    /// The server could not be asked, or gave no usable answer; the login stays.
    Failed,
    /// The server has ended the login.
    Expired,
}

#[derive(Debug)]
pub(super) struct LoginFamilies {
    renewals: IntCounterVec,
    ends: IntGaugeVec,
}

impl LoginFamilies {
    /// # Errors
    /// A family that the registry refuses, which is a mistake in this file.
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let renewals =
            Opts::new("headend_login_renewals_total", "Attempts to renew the login at an upstream, by result.");
        let ends =
            Opts::new("headend_login_token_expiry_timestamp_seconds", "When the token in use for an upstream expires.");
        let families = Self {
            renewals: IntCounterVec::new(renewals, &["upstream", "result"])?,
            ends: IntGaugeVec::new(ends, &["upstream"])?,
        };
        registry.register(Box::new(families.renewals.clone()))?;
        registry.register(Box::new(families.ends.clone()))?;
        Ok(families)
    }

    /// Counts an attempt to renew a login.
    pub(super) fn renewal(&self, name: &str, result: Renewal) {
        self.renewals.with_label_values(&[name, result.into_str()]).inc();
    }

    /// The token in use expires then, in time since 1970; `None` without a token, and for one that never does.
    pub(super) fn token_expires(&self, name: &str, end: Option<Duration>) {
        match end.and_then(|end| i64::try_from(end.as_secs()).ok()) {
            Some(end) => self.ends.with_label_values(&[name]).set(end),
            // There may have been none.
            None => drop(self.ends.remove_label_values(&[name])),
        }
    }

    /// Drops the series of an upstream.
    pub(super) fn forget(&self, name: &str) {
        drop(self.ends.remove_label_values(&[name]));
        Renewal::VARIANTS.iter().for_each(|result| drop(self.renewals.remove_label_values(&[name, result.into_str()])));
    }
}
