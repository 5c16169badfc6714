//! Tells a person that approvals are open, by a program or a URL: `[policy.consent] notify`.
//!
//! No call waits for a notice, and no notice is queued. A notice is made when it goes out, from the
//! approvals that are open then and were in no earlier notice, so a burst makes one notice and an
//! approval answered meanwhile is left out. The first goes out after [`GATHER`], the next one
//! [`PAUSE`] later. If a notice fails, its approvals are not in the next one; they are on the
//! console.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::slots::{PoolSlot, SlotPool};
use crate::base::task_group::TaskGroup;
use crate::config::{NotifyReceiver, NotifySettings};
use crate::gateway::service::Service;
use crate::policy::consent::{ApprovalId, ApprovalView};

mod failed;
mod notice;
mod post;
mod program;

use self::failed::{NoticeError, TIME};
use self::notice::{LISTED, notice, test_notice};
use self::post::{SharedTlsConfig, post};

/// Delay of a notice, so that approvals opened together are in one.
const GATHER: Duration = Duration::from_millis(300);
/// Time from one notice to the next.
const PAUSE: Duration = Duration::from_secs(5);
/// Most notices under way at once.
const AT_ONCE: usize = 4;

/// The sender of notices.
#[derive(Debug)]
pub struct NoticeSender {
    service: Arc<Service>,
    tasks: TaskGroup,
    stop: CancellationToken,
    places: SlotPool,
    tls: SharedTlsConfig,
    /// Target of the last notice, and whether it failed.
    last: Mutex<Option<(NotifyReceiver, bool)>>,
}

impl NoticeSender {
    /// Starts the task that sends notices of open approvals, until `stop` fires.
    pub fn start(service: &Arc<Service>, tasks: &TaskGroup, stop: &CancellationToken) -> Arc<Self> {
        let this = Arc::new(Self {
            service: Arc::clone(service),
            tasks: tasks.clone(),
            stop: stop.clone(),
            places: SlotPool::new(AT_ONCE),
            tls: OnceLock::new(),
            last: Mutex::default(),
        });
        tasks.spawn("notices", Arc::clone(&this).run());
        this
    }

    /// Sends a test notice, for the operator who sets notices up. Returns the notifier's public
    /// name.
    ///
    /// # Errors
    /// The reason of the failure, or that no notifier is configured.
    pub async fn try_out(&self) -> Result<String, String> {
        let notify = self.setting().ok_or("`notify` is not set in [policy.consent]")?;
        let place = self.places.try_take().ok_or("four notices are under way; try again in ten seconds")?;
        let to = public_name(&notify.to);
        let outcome = self.send(&notify, test_notice(self.page().as_deref()), place).await;
        outcome.map(|()| to.clone()).map_err(|why| format!("{to}: {why}"))
    }

    async fn run(self: Arc<Self>) {
        let stop = self.stop.clone();
        let _ended = stop.run_until_cancelled(self.follow()).await;
    }

    /// Sends a notice whenever approvals are open that no earlier one listed.
    async fn follow(self: &Arc<Self>) {
        let mut changed = self.service.approvals.changed();
        let mut told: HashSet<ApprovalId> = HashSet::new();
        let mut next = clock::now();
        while changed.changed().await.is_ok() {
            clock::sleep_until(Some(next.max(clock::now() + GATHER))).await;
            let place = self.places.take().await;
            changed.borrow_and_update();
            let Some(notify) = self.setting() else { continue };
            let open = self.service.approvals.open_approvals();
            let ids: HashSet<ApprovalId> = open.iter().map(|approval| approval.id).collect();
            told.retain(|id| ids.contains(id));
            let fresh: Vec<ApprovalId> =
                open.iter().map(|approval| approval.id).filter(|id| !told.contains(id)).collect();
            if fresh.is_empty() {
                continue;
            }
            let page = self.page();
            let listed: Vec<ApprovalView> =
                fresh.iter().take(LISTED).filter_map(|id| self.service.approvals.view(id)).collect();
            let more = fresh.len().saturating_sub(LISTED);
            let notice = notice(&listed, more, open.len(), notify.arguments, page.as_deref());
            told.extend(fresh);
            next = clock::now() + PAUSE;
            let this = Arc::clone(self);
            self.tasks.spawn("notice", async move { this.deliver(&notify, notice, place).await });
        }
    }

    fn setting(&self) -> Option<NotifySettings> {
        self.service.snapshots.load().config.consent.notify.clone()
    }

    /// Returns the base URL of the console's pages, which has no sign-in in it.
    fn page(&self) -> Option<String> {
        self.service.console.get().cloned()
    }

    /// Sends a notice and counts it. Logs a failure after a success and a success after a failure.
    async fn deliver(&self, notify: &NotifySettings, notice: Bytes, place: PoolSlot) {
        let outcome = self.send(notify, notice, place).await;
        if matches!(outcome, Err(NoticeError::Stopped)) {
            return;
        }
        let fails = outcome.is_err();
        self.service.metrics.notified(!fails);
        let before = self.last.lock().replace((notify.to.clone(), fails));
        let failed = before.is_some_and(|(to, failed)| failed && to == notify.to);
        let to = public_name(&notify.to);
        match outcome {
            Err(why) if !failed => {
                tracing::warn!(to = %to, why = %why, "notices of open approvals do not get through; see `notify` in [policy.consent]");
            }
            Ok(()) if failed => tracing::info!(to = %to, "notices of open approvals get through again"),
            Ok(()) | Err(_) => {}
        }
    }

    async fn send(&self, notify: &NotifySettings, notice: Bytes, place: PoolSlot) -> Result<(), NoticeError> {
        match &notify.to {
            NotifyReceiver::Program(command) => program::run(command, notice, &self.stop).await,
            NotifyReceiver::Url(hook) => {
                let sent = tokio::time::timeout(TIME, post(hook, notice, &self.tls, place));
                let sent = self.stop.run_until_cancelled(sent).await.ok_or(NoticeError::Stopped)?;
                sent.unwrap_or(Err(NoticeError::Late))
            }
        }
    }
}

/// Returns the notifier's public name: its program or origin, without arguments and paths, which
/// may be secrets.
fn public_name(to: &NotifyReceiver) -> String {
    match to {
        NotifyReceiver::Program(command) => command.first().cloned().unwrap_or_default(),
        NotifyReceiver::Url(hook) => hook.origin.clone(),
    }
}
