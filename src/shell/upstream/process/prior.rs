//! The programs of the daemon before this one, which may still run after this process has taken
//! over. An upstream's own program starts only once they have ended.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::base::task_group::TaskGroup;
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::upstream::process::lifeline::wait_until_ended;

/// The programs of the daemon before this one; clones share them. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct PriorPrograms(Option<Arc<PriorState>>);

#[derive(Debug)]
struct PriorState {
    /// Fires once this process serves in place of the daemon before.
    begun: CancellationToken,
    /// Each upstream of the daemon before, with whether its programs have ended.
    upstreams: Mutex<HashMap<String, watch::Receiver<bool>>>,
}

impl PriorPrograms {
    /// Watches the programs of a daemon that is being taken over: `lifelines` are the read ends of
    /// its upstreams' pipes. No upstream starts before `begun` fires.
    pub fn watch(lifelines: Vec<(String, OwnedFd)>, begun: CancellationToken, tasks: &TaskGroup) -> Self {
        let watched = lifelines.into_iter().map(|(name, lifeline)| {
            let (ended, has_ended) = watch::channel(false);
            let stop = tasks.stop_token().clone();
            tasks.spawn("prior programs", async move {
                if stop.run_until_cancelled(wait_until_ended(lifeline)).await.is_some() {
                    ended.send_replace(true);
                }
            });
            (name, has_ended)
        });
        let upstreams = Mutex::new(watched.collect());
        Self(Some(Arc::new(PriorState { begun, upstreams })))
    }

    /// Waits until the upstream may start: this process serves, and no program of the daemon before
    /// is left that could be the same server. For a name that the daemon before did not have, that
    /// is none at all, since the server may have had another name. Waits forever if that cannot be
    /// known. Cancel-safe.
    pub async fn wait(&self, upstream: &UpstreamSettings) {
        let Some(prior) = &self.0 else { return };
        prior.begun.cancelled().await;
        if !matches!(upstream.target, UpstreamTarget::Stdio { .. }) {
            return;
        }
        let watched: Vec<watch::Receiver<bool>> = {
            let upstreams = prior.upstreams.lock();
            match upstreams.get(upstream.name.as_str()) {
                Some(own) => vec![own.clone()],
                None => upstreams.values().cloned().collect(),
            }
        };
        for mut one in watched {
            if one.wait_for(|ended| *ended).await.is_err() && !*one.borrow() {
                return std::future::pending().await;
            }
        }
    }
}
