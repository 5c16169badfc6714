//! Records that the start of a gateway takes over, and those of changed pins.

use crate::config::Config;
use crate::store::approvals::Approvals;
use crate::store::audit::AuditLog;
use crate::store::directory::StateDir;
use crate::store::logins::{LoginKey, Logins};
use crate::store::pins::PinNews;

/// Assigns stored catalogs and logins of older versions, which were kept per launch, to the one
/// upstream that has the launch. A failure is logged, and the next start tries again.
pub(super) fn adopt_old_records(config: &Config, store: Option<&StateDir>, logins: Option<&Logins>) {
    let all = || config.upstreams.iter().chain(&config.disabled);
    if let Some(store) = store {
        store.adopt_catalogs(all());
    }
    if let Some(Err(error)) = logins.map(|logins| logins.adopt(all().map(LoginKey::of).collect())) {
        tracing::warn!(error = %error, "logins of an older version are not taken over; log in again, or restart headend");
    }
}

/// Records changes of pins; ends approvals and grants for digests that are no longer pinned.
pub(super) fn record_pin_changes(news: &PinNews, approvals: &Approvals, audit: &AuditLog) {
    for entry in news.entries() {
        // Not awaited: the store keeps the pins themselves, and no call waits for this record.
        if entry.by.is_some() {
            audit.record_done(entry);
        } else {
            drop(audit.record(entry, false));
        }
    }
    let over = news.over();
    if over.is_empty() {
        return;
    }
    approvals.invalidate(|asked| {
        let is_over = over.contains(&(true, asked.launch)) || over.contains(&(false, asked.definition));
        *asked.upstream == *news.upstream.as_str() && is_over
    });
}
