//! The context of an upstream's actor, for any transport, and its reports.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::catalog::inventory::Inventory;
use crate::catalog::name::UpstreamName;
use crate::config::EraChoice;
use crate::engine::handshake::{Agreed, EraHint};
use crate::upstream::session::handle::Handle;
use crate::upstream::session::lane::Lane;
use crate::upstream::session::link::{Link, LinkState};
use crate::upstream::spawner::Spawner;

/// A report of an actor to the supervisor.
#[derive(Debug)]
pub(crate) struct Report {
    pub upstream: UpstreamName,
    /// Reports of a handle that was replaced meanwhile are dropped.
    pub handle: Arc<Handle>,
    pub news: News,
    /// Told once clients see what it is about.
    pub shown: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
pub(crate) enum News {
    /// What the upstream offers, as far as its lists could be read, and what it agreed to.
    Inventory(Inventory, Agreed),
    /// The link went up or down.
    State,
}

/// Everything an actor works with.
#[derive(Clone)]
pub(crate) struct Context {
    pub handle: Arc<Handle>,
    pub lane: Arc<Lane>,
    /// For the main session, whose notifications are the upstream's.
    pub reports: Option<mpsc::Sender<Report>>,
    pub spawner: Spawner,
    /// The era that the last run of this program learnt.
    pub remembered: Option<EraHint>,
    /// All that is offered of the lists is known from an earlier run.
    pub is_known: bool,
    /// Calls wait until the lists are read and shown: what a server changed while it was stopped must be pinned before a call is
    /// sent.
    pub lists_first: bool,
}

impl Context {
    pub(crate) async fn report(&self, news: News) {
        self.send(news, None).await;
    }

    /// Reports what was read, and whether that is all that is to be read for now. What is returned is told once clients see it.
    pub(crate) async fn report_lists(
        &self,
        inventory: Inventory,
        agreed: Agreed,
        is_whole: bool,
    ) -> oneshot::Receiver<()> {
        let (told, shown) = oneshot::channel();
        self.send(News::Inventory(inventory, agreed), Some(told)).await;
        self.lane.listed.store(is_whole, Ordering::Relaxed);
        shown
    }

    async fn send(&self, news: News, shown: Option<oneshot::Sender<()>>) {
        let Some(reports) = &self.reports else { return };
        let report = Report { upstream: self.handle.name.clone(), handle: Arc::clone(&self.handle), news, shown };
        // The supervisor outlives its actors except in the last moments of a shutdown.
        drop(reports.send(report).await);
    }

    /// The context of one life, which can be ended without the upstream.
    pub(crate) fn life(&self, lists_first: bool) -> Self {
        let spawner = Spawner { stop: self.spawner.stop.child_token(), ..self.spawner.clone() };
        Self { spawner, lists_first, ..self.clone() }
    }

    /// How to ask for the era at the next start.
    pub(crate) fn first_hint(&self) -> EraHint {
        match self.handle.spec.load().era {
            EraChoice::Auto => self.remembered.unwrap_or(EraHint::Probe),
            EraChoice::Legacy => EraHint::Legacy,
            EraChoice::Modern => EraHint::Modern,
        }
    }
}

/// How one incarnation went.
#[derive(Debug)]
pub(crate) struct Run {
    pub why: String,
    pub next: Option<EraHint>,
    /// How long it was ready, if it ever was.
    pub served: Option<Duration>,
}

/// Announces that a session is open.
pub(crate) fn ready(context: &Context, agreed: &Agreed) {
    let (upstream, revision) = (&context.handle.name, agreed.revision);
    if context.lane.is_main() {
        tracing::info!(upstream.name = %upstream, revision = %revision, "upstream ready");
    } else {
        tracing::debug!(upstream.name = %upstream, revision = %revision, "upstream session of a client's own ready");
    }
}

/// Lets calls through a new link, and subscribes again where resources are watched.
pub(crate) async fn open(context: &Context, link: Link) {
    context.lane.set_state(LinkState::Ready(link.clone()));
    restore(context, link);
    context.report(News::State).await;
}

fn restore(context: &Context, link: Link) {
    let (handle, lane) = (Arc::clone(&context.handle), Arc::clone(&context.lane));
    context.spawner.tasks.spawn("restore", async move { lane.news.updates.restore(&handle, &link).await });
}
