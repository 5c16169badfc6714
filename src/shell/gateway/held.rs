//! Slots of held calls: calls kept open while a person decides elsewhere. A hold bounds the time,
//! and its end teaches how patient the client is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::base::access::Access;
use crate::base::clock;
use crate::config::ApprovalSettings;
use crate::gateway::client::ClientContext;
use crate::policy::consent::hold::{ClientKey, HoldEnd, HoldRefusal, HoldSlots};
use crate::policy::consent::unattended::{AskingHost, UnattendedHosts};

/// All held calls, and the hosts found to have no person. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct HeldCalls {
    held: Arc<Mutex<HoldSlots>>,
    unattended: Arc<Mutex<UnattendedHosts>>,
}

impl HeldCalls {
    /// Returns the number of held calls.
    pub fn count(&self) -> usize {
        self.held.lock().len()
    }

    /// Whether the host was lately found to have no person.
    pub fn is_unattended(&self, host: &AskingHost) -> bool {
        self.unattended.lock().contains(host, clock::uptime())
    }

    /// Records whether a person is at the host.
    pub fn set_unattended(&self, host: AskingHost, is_unattended: bool) {
        let mut hosts = self.unattended.lock();
        if is_unattended {
            hosts.insert(host, clock::uptime());
        } else {
            hosts.remove(&host);
        }
    }

    /// Takes a slot for a held call, if its time is not over already.
    ///
    /// # Errors
    /// Why the call is not held.
    pub fn hold(
        &self,
        consent: &ApprovalSettings,
        holder: ClientKey,
        client: &ClientContext,
        arrived: Instant,
    ) -> Result<HoldSlot, HoldRefusal> {
        let (access, profile) = (Arc::clone(&client.access), client.profile.clone());
        let wanted = consent.hold_of(&holder.caller, profile.as_deref(), &holder.client);
        let patience = self.held.lock().begin(&holder, wanted, consent.max_held, clock::uptime())?;
        let hold = HoldSlot { calls: self.clone(), holder, access, profile, arrived, patience, ended: None };
        if hold.until(consent) <= clock::now() {
            hold.end(HoldEnd::Over);
            return Err(HoldRefusal::NoTime);
        }
        Ok(hold)
    }
}

/// The slot of a held call. If it is dropped before the wait has ended, the client counts as having
/// given the call up, unless its access was withdrawn.
#[derive(Debug)]
pub struct HoldSlot {
    calls: HeldCalls,
    holder: ClientKey,
    access: Arc<Access>,
    profile: Option<Arc<str>>,
    arrived: Instant,
    patience: Duration,
    ended: Option<HoldEnd>,
}

impl HoldSlot {
    /// Returns when the wait is over, counted from the arrival of the call however often it was
    /// decided. A reload may make that sooner.
    pub fn until(&self, consent: &ApprovalSettings) -> Instant {
        let ClientKey { caller, client } = &self.holder;
        self.arrived + self.patience.min(consent.hold_of(caller, self.profile.as_deref(), client))
    }

    /// Releases the slot, with the reason for the end of the wait.
    pub fn end(mut self, ended: HoldEnd) {
        self.ended = Some(ended);
    }
}

impl Drop for HoldSlot {
    fn drop(&mut self) {
        let waited = clock::now().duration_since(self.arrived);
        let left = if self.access.is_withdrawn() { HoldEnd::Over } else { HoldEnd::GaveUp(waited) };
        let ended = self.ended.unwrap_or(left);
        self.calls.held.lock().end(&self.holder, ended, clock::uptime());
    }
}
