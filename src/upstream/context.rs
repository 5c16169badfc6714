//! The context of an upstream's actor, for any transport, and its reports.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::catalog::inventory::Inventory;
use crate::catalog::name::UpstreamName;
use crate::config::EraChoice;
use crate::engine::handshake::{Agreed, EraHint};
use crate::upstream::handle::Handle;
use crate::upstream::link::Link;
use crate::upstream::session::Lane;
use crate::upstream::spawner::Spawner;

/// A report of an actor to the supervisor.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) upstream: UpstreamName,
    /// Reports of a handle that was replaced meanwhile are dropped.
    pub(crate) handle: Arc<Handle>,
    pub(crate) news: News,
}

#[derive(Debug)]
pub(crate) enum News {
    /// Complete lists, and what the upstream agreed to.
    Inventory(Inventory, Agreed),
    /// The link went up or down.
    State,
}

/// Everything an actor works with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) handle: Arc<Handle>,
    pub(crate) lane: Arc<Lane>,
    /// For the main session, whose notifications are the upstream's.
    pub(crate) reports: Option<mpsc::Sender<Report>>,
    pub(crate) spawner: Spawner,
    /// The era that the last run of this program learnt.
    pub(crate) remembered: Option<EraHint>,
}

impl Context {
    pub(crate) async fn report(&self, news: News) {
        let Some(reports) = &self.reports else { return };
        let report = Report { upstream: self.handle.name.clone(), handle: Arc::clone(&self.handle), news };
        // The supervisor outlives its actors except in the last moments of a shutdown.
        drop(reports.send(report).await);
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
    pub(crate) why: String,
    pub(crate) next: Option<EraHint>,
    /// How long it was ready, if it ever was.
    pub(crate) served: Option<Duration>,
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

/// Subscribes again at a restarted server.
pub(crate) fn restore(context: &Context, link: Link) {
    let (handle, lane) = (Arc::clone(&context.handle), Arc::clone(&context.lane));
    context.spawner.tasks.spawn("restore", async move { lane.news.updates.restore(&handle, &link).await });
}
