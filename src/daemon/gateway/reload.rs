//! Reloads the configuration: reads it, checks it and applies it as a whole or not at all.

use std::path::Path;

use super::RunningGateway;
use crate::base::clock;
use crate::config::plan::{ReloadPlan, diff};
use crate::config::{self, FileFingerprint, LoadedConfig};
use crate::daemon::own_places::find_protected_folders;
use crate::daemon::systemd;
use crate::gateway::supervisor::SupervisorOrder;
use crate::policy::{AuditEntry, OperatorAction};
use crate::store::audit::action::ActionRecord;
use crate::store::directory::StateDir;
use std::sync::Arc;

/// Author of a reload in the audit log if a changed file caused it.
const FILE_WATCH: &str = "file-watch";

impl RunningGateway {
    /// Reads the configuration again and applies all of it or nothing. Returns the plan of changes.
    ///
    /// `by` is the person or signal in the audit record. `switched` is an upstream that a command
    /// has enabled or disabled in its file: if the plan contains that change, the record says so,
    /// else it says reload.
    ///
    /// # Errors
    /// The reason why the reload was refused; the old configuration stays in force.
    pub(crate) async fn reload(
        &self,
        by: &str,
        switched: Option<(OperatorAction, &str)>,
    ) -> Result<ReloadPlan, String> {
        let _one_at_a_time = self.reloading.lock().await;
        let action = switched.map_or(OperatorAction::Reload, |(action, _)| action);
        let record = self.service.audit.begin(action, by, None).await;
        let mut record = record.map_err(|error| format!("nothing was done: {error}"))?;
        record.set_action(OperatorAction::Reload);
        self.apply((self.source.load)(), record, switched).await
    }

    /// Reads the files after a change and applies them; logs and records the outcome. Does nothing
    /// if the files equal those read last, or if the configuration file is missing, since it may be
    /// about to be replaced.
    ///
    /// Returns `false`, and changes nothing, if the files differ from `look`.
    pub(crate) async fn reload_changed(&self, look: Option<&[FileFingerprint]>) -> bool {
        let _one_at_a_time = self.reloading.lock().await;
        let is_there = self.source.path.as_ref().is_some_and(|path| path.exists());
        let loading = (self.source.load)();
        if look.is_some_and(|look| look != loading.files) {
            return false;
        }
        if is_there && *self.source.files.lock() != loading.files {
            // `begin` neither waits nor fails for a reload, whose record is written afterwards.
            if let Ok(record) = self.service.audit.begin(OperatorAction::Reload, FILE_WATCH, None).await {
                drop(self.apply(loading, record, None).await);
            }
        }
        true
    }

    /// Applies a configuration that was read, tells the service manager, and logs and records the
    /// outcome.
    async fn apply(
        &self,
        loading: LoadedConfig,
        mut record: ActionRecord,
        switched: Option<(OperatorAction, &str)>,
    ) -> Result<ReloadPlan, String> {
        systemd::notify_reloading();
        let outcome = Box::pin(self.check_and_apply(loading)).await;
        systemd::notify_ready();
        self.service.reload_ended(outcome.as_ref().map(drop).map_err(String::as_str));
        match &outcome {
            Ok(plan) => {
                let changed = |action| if action == OperatorAction::Enable { &plan.start } else { &plan.stop };
                if let Some((action, name)) = switched
                    && changed(action).iter().any(|upstream| upstream.as_str() == name)
                {
                    record.set_action(action);
                    record.set_name(name);
                }
                record.end(Ok(&plan.to_string()));
                tracing::info!(plan = %plan, "configuration reloaded");
                if !plan.opens.is_empty() {
                    let opens = plan.opens.join(", ");
                    tracing::warn!(opens = %opens, "the new configuration allows more than the old one");
                    // The reload has taken effect, so a failed record is not an error.
                    self.service.audit.record_done(AuditEntry::gateway("opened", opens));
                }
            }
            Err(why) => {
                record.end(Err(why));
                self.service.metrics.reloaded(false, clock::unix_seconds());
                tracing::error!(error = %why, "configuration refused, the old one stays in force");
            }
        }
        outcome
    }

    /// Returns the plan of a reload without applying it; `file` replaces the configuration file.
    ///
    /// # Errors
    /// The reason why the reload would be refused.
    pub(crate) fn rehearse(&self, file: Option<&Path>) -> Result<ReloadPlan, String> {
        let LoadedConfig { outcome, .. } = file.map_or_else(|| (self.source.load)(), config::load);
        let (config, _) = outcome?;
        drop(self.make_ready(&config)?);
        let now = &self.service.snapshots.load().config;
        let plan = diff(now, &config.without(&now.off));
        plan.refusal().map_or(Ok(plan), Err)
    }

    /// Checks the configuration, lets the supervisor apply it, then applies the settings outside
    /// the snapshot. Logs new warnings.
    async fn check_and_apply(&self, loading: LoadedConfig) -> Result<ReloadPlan, String> {
        let state = self.store.as_ref().map(StateDir::dir);
        self.service.approvals.set_places(find_protected_folders(self.source.path.as_deref(), &loading.files, state));
        *self.source.files.lock() = loading.files;
        let (config, warnings) = loading.outcome?;
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let warned = std::mem::replace(&mut *self.source.warned.lock(), warnings.clone());
        for warning in warnings.iter().filter(|warning| !warned.contains(warning)) {
            tracing::warn!(warning = %warning, "configuration");
        }
        let ready = self.make_ready(&config)?;
        let before = Arc::clone(&self.service.snapshots.load().config);
        let order = |reply| SupervisorOrder::Apply { config: Box::new(config), reply };
        let applied = SupervisorOrder::ask(&self.supervised.orders, order).await;
        let plan = applied.ok_or_else(|| "the gateway is shutting down".to_owned())??;
        self.put_in_force(&before, ready).await;
        // Grants end with their upstream, even if one with the same name is added later.
        self.service.approvals.invalidate(|asked| plan.stop.iter().any(|name| *name.as_str() == *asked.upstream));
        Ok(plan)
    }
}
