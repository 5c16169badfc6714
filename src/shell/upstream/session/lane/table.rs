//! The lanes of one upstream, and the choice of one for a client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::owner::{LaneKey, LaneOwnership, LaneRequest, place};
use super::{Lane, LaneUse, MAX_PROCESSES, MAX_SESSIONS};
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::engine::askers::AskerRegistry;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::handshake::HandshakeAgreement;
use crate::upstream::session::link::LinkState;
use crate::upstream::state::health::UpstreamHealth;

/// The lanes of one upstream besides the main one.
#[derive(Debug)]
pub struct Lanes {
    table: Mutex<HashMap<LaneKey, Arc<Lane>, RandomState>>,
    /// The conduct of the upstream's items, on all of its lanes.
    askers: Arc<AskerRegistry>,
    health: Arc<UpstreamHealth>,
}

/// The lane that a call takes.
#[derive(Debug)]
pub enum LaneChoice {
    Main,
    Owned(LaneUse),
    /// A new session, which the caller has to open.
    New(Arc<Lane>, LaneUse),
}

impl Lanes {
    pub fn new(askers: Arc<AskerRegistry>, health: Arc<UpstreamHealth>) -> Self {
        Self { table: Mutex::default(), askers, health }
    }

    pub fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// The lane of this client where there is one; `Some(None)` stands for the main lane.
    pub fn find(
        &self,
        spec: &UpstreamSettings,
        agreed: HandshakeAgreement,
        wants: &LaneRequest,
    ) -> Option<Option<LaneUse>> {
        let Some((key, _)) = place(spec, agreed, wants) else { return Some(None) };
        self.table.lock().get(&key).map(|lane| Some(lane.take()))
    }

    /// The lane for a call of this client.
    ///
    /// # Errors
    /// [`FailureReason::Busy`] when there are too many.
    pub fn choose(
        &self,
        spec: &UpstreamSettings,
        agreed: HandshakeAgreement,
        wants: &LaneRequest,
    ) -> Result<LaneChoice, CallFailure> {
        let Some((key, client)) = place(spec, agreed, wants) else { return Ok(LaneChoice::Main) };
        let declared = wants.declared(spec);
        let mut table = self.table.lock();
        if let Some(lane) = table.get(&key) {
            return Ok(LaneChoice::Owned(lane.take()));
        }
        let most = if matches!(spec.target, UpstreamTarget::Stdio { .. }) { MAX_PROCESSES } else { MAX_SESSIONS };
        if table.len() >= most {
            let detail = format!("The server `{}` has too many sessions.", spec.name);
            return Err(
                CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, detail).retry_after(Duration::from_secs(30))
            );
        }
        let owner = Some(LaneOwnership { key: key.clone(), client: client.map(Arc::downgrade) });
        let lane =
            Arc::new(Lane::new(spec.name.clone(), declared, Arc::clone(&self.askers), owner, Arc::clone(&self.health)));
        lane.set_state(LinkState::Starting);
        table.insert(key, Arc::clone(&lane));
        let used = lane.take();
        Ok(LaneChoice::New(lane, used))
    }

    /// Ends a lane that failed: the next call opens another one.
    pub fn close(&self, lane: &Arc<Lane>) {
        Self::remove(&mut self.table.lock(), lane);
    }

    /// Ends an unused session; `false` if a call uses it meanwhile.
    pub fn close_unused(&self, lane: &Arc<Lane>) -> bool {
        let mut table = self.table.lock();
        // Users come through the table, so none can come now.
        let unused = !lane.is_used();
        if unused {
            Self::remove(&mut table, lane);
        }
        unused
    }

    fn remove(table: &mut HashMap<LaneKey, Arc<Lane>, RandomState>, lane: &Arc<Lane>) {
        let Some(LaneOwnership { key, .. }) = &lane.owner else { return };
        if table.get(key).is_some_and(|current| Arc::ptr_eq(current, lane)) {
            table.remove(key);
        }
        // A call that waits for it must not wait any longer.
        lane.set_state(LinkState::Stopped);
    }
}
