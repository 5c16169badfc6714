//! Programs of this replica that other replicas of the cluster use.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::config::Placement;
use crate::gateway::service::Service;
use crate::upstream::line::share;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::link::UpstreamLink;

/// Longest wait for a program that is starting; the other replica asks again.
const START: Duration = Duration::from_secs(5);
/// Messages that wait for the connection to the other replica.
const MESSAGES: usize = 8;

impl Service {
    /// Returns the upstream of this name, if one replica at a time runs its program.
    pub(crate) fn program(&self, upstream: &str) -> Option<Arc<UpstreamHandle>> {
        let snapshot = self.snapshots.load();
        let found = snapshot.handles.iter().find(|handle| handle.name.as_str() == upstream);
        found.filter(|handle| handle.spec.load().placement == Placement::One).map(Arc::clone)
    }

    /// Serves the program of an upstream to another replica in a task, which takes the replica's
    /// bytes from `input`. Returns the messages for the replica; `None` if the program does not run
    /// here.
    pub(crate) async fn share_program(
        &self,
        handle: &Arc<UpstreamHandle>,
        input: impl Stream<Item = Bytes> + Unpin + Send + 'static,
    ) -> Option<mpsc::Receiver<Bytes>> {
        // Keeps a lazy program running for as long as the other replica uses it.
        let used = handle.main.take();
        let link = match timeout(START, handle.main.link(&handle.spec.load_full())).await {
            Ok(Ok(UpstreamLink::Stdio(link))) if link.is_shared() => link,
            Ok(_) | Err(_) => return None,
        };
        let (out, messages) = mpsc::channel(MESSAGES);
        let (leaving, giving_up) = (self.draining.clone(), self.giving_up.clone());
        let limit = self.snapshots.load().config.server.limits.upstream_result_bytes;
        self.tasks.spawn("shared program", async move {
            tokio::select! {
                () = share::serve(link, input, out, limit, leaving) => {}
                () = giving_up.cancelled() => {}
            }
            drop(used);
        });
        Some(messages)
    }
}
