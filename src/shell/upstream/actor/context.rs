//! The context in which an upstream's actor runs, for any transport, and the reports of actors.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::catalog::inventory::Inventory;
use crate::catalog::name::UpstreamName;
use crate::config::EraChoice;
use crate::engine::handshake::{EraHint, HandshakeAgreement};
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::Lane;
use crate::upstream::session::link::{LinkState, UpstreamLink};
use crate::upstream::spawner::Spawner;

/// A report of an actor to the supervisor.
#[derive(Debug)]
pub(crate) struct ActorReport {
    pub upstream: UpstreamName,
    /// The actor's handle: reports of a handle that was replaced meanwhile are dropped.
    pub handle: Arc<UpstreamHandle>,
    pub news: ActorNews,
    /// Notified once clients see the reported state.
    pub shown: Option<oneshot::Sender<()>>,
}

/// The content of a report.
#[derive(Debug)]
pub(crate) enum ActorNews {
    /// The upstream's lists, as far as they could be read, and the terms agreed with it.
    Inventory(Box<Inventory>, HandshakeAgreement),
    /// The link went up or down.
    State,
}

/// Everything that an actor works with.
#[derive(Clone)]
pub(crate) struct ActorContext {
    pub handle: Arc<UpstreamHandle>,
    pub lane: Arc<Lane>,
    /// The receiver of reports; `None` except for the main session.
    pub reports: Option<mpsc::Sender<ActorReport>>,
    pub spawner: Spawner,
    /// The era that the last run of this program found.
    pub remembered: Option<EraHint>,
    /// True if all lists of the upstream are known from an earlier run.
    pub is_known: bool,
    /// True if calls wait until the lists are read and published: changes that were made while a
    /// server was stopped must be pinned before a call is sent.
    pub lists_first: bool,
}

impl ActorContext {
    pub(crate) async fn report(&self, news: ActorNews) {
        self.send(news, None).await;
    }

    /// Reports lists; `is_whole` says that no more are to be read for now. Returns a receiver that
    /// resolves once clients see them.
    pub(crate) async fn report_lists(
        &self,
        inventory: Inventory,
        agreed: HandshakeAgreement,
        is_whole: bool,
    ) -> oneshot::Receiver<()> {
        let (told, shown) = oneshot::channel();
        self.send(ActorNews::Inventory(Box::new(inventory), agreed), Some(told)).await;
        self.lane.listed.store(is_whole, Ordering::Relaxed);
        shown
    }

    async fn send(&self, news: ActorNews, shown: Option<oneshot::Sender<()>>) {
        let Some(reports) = &self.reports else { return };
        let report = ActorReport { upstream: self.handle.name.clone(), handle: Arc::clone(&self.handle), news, shown };
        // The supervisor outlives its actors, except in the last moments of a shutdown.
        drop(reports.send(report).await);
    }

    /// Creates the context of one life, which can be stopped without stopping the upstream.
    /// `lists_first`: calls wait until the lists are published.
    pub(crate) fn life(&self, lists_first: bool) -> Self {
        let spawner = Spawner { stop: self.spawner.stop.child_token(), ..self.spawner.clone() };
        Self { spawner, lists_first, ..self.clone() }
    }

    /// Returns how to ask for the era at the next start.
    pub(crate) fn first_hint(&self) -> EraHint {
        match self.handle.spec.load().era {
            EraChoice::Auto => self.remembered.unwrap_or(EraHint::Probe),
            EraChoice::Legacy => EraHint::Legacy,
            EraChoice::Modern => EraHint::Modern,
        }
    }
}

/// The result of one life: why it ended, and how to ask for the era next.
#[derive(Debug)]
pub(crate) struct LifeResult {
    pub why: String,
    pub next: Option<EraHint>,
    /// How long the upstream was ready; `None` if it never was.
    pub served: Option<Duration>,
}

/// Logs that a session is open.
pub(crate) fn ready(context: &ActorContext, agreed: &HandshakeAgreement) {
    let (upstream, revision) = (&context.handle.name, agreed.revision);
    if context.lane.is_main() {
        tracing::info!(upstream.name = %upstream, revision = %revision, "upstream ready");
    } else {
        tracing::debug!(upstream.name = %upstream, revision = %revision, "upstream session of a client's own ready");
    }
}

/// Lets calls pass on a new link, and subscribes to watched resources again.
pub(crate) async fn open(context: &ActorContext, link: UpstreamLink) {
    context.lane.set_state(LinkState::Ready(link.clone()));
    restore(context, link);
    context.report(ActorNews::State).await;
}

fn restore(context: &ActorContext, link: UpstreamLink) {
    let (handle, lane) = (Arc::clone(&context.handle), Arc::clone(&context.lane));
    context.spawner.tasks.spawn("restore", async move { lane.news.updates.restore(&handle, &link).await });
}
