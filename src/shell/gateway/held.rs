//! The place of a call that is held open while it waits for a person: for how long, and what its
//! end says of its client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::base::access::Access;
use crate::base::clock;
use crate::config::Consent;
use crate::gateway::client::ClientContext;
use crate::policy::consent::hold::{Ended, Held, Holder, NotHeld};
use crate::policy::consent::unattended::{AskingHost, UnattendedHosts};

/// All held calls, and the hosts whose calls are held since no person is there. Clones are the
/// same.
#[derive(Clone, Debug, Default)]
pub struct HeldCalls {
    held: Arc<Mutex<Held>>,
    unattended: Arc<Mutex<UnattendedHosts>>,
}

impl HeldCalls {
    /// How many calls are held now.
    pub fn count(&self) -> usize {
        self.held.lock().len()
    }

    /// Whether the host was found to have no person shortly before.
    pub fn is_unattended(&self, host: &AskingHost) -> bool {
        self.unattended.lock().contains(host, clock::uptime())
    }

    /// Remembers whether a person is at the host.
    pub fn set_unattended(&self, host: AskingHost, is_unattended: bool) {
        let mut hosts = self.unattended.lock();
        if is_unattended {
            hosts.insert(host, clock::uptime());
        } else {
            hosts.remove(&host);
        }
    }

    /// Holds a call, if its time is not over already.
    ///
    /// # Errors
    /// Why it is not held.
    pub fn hold(
        &self,
        consent: &Consent,
        holder: Holder,
        client: &ClientContext,
        arrived: Instant,
    ) -> Result<Hold, NotHeld> {
        let (access, profile) = (Arc::clone(&client.access), client.profile.clone());
        let wanted = consent.hold_of(&holder.caller, profile.as_deref(), &holder.client);
        let patience = self.held.lock().begin(&holder, wanted, consent.max_held, clock::uptime())?;
        let hold = Hold { calls: self.clone(), holder, access, profile, arrived, patience, ended: None };
        if hold.until(consent) <= clock::now() {
            hold.end(Ended::Over);
            return Err(NotHeld::NoTime);
        }
        Ok(hold)
    }
}

/// The place of a held call. Dropped before its wait has ended, its client gave the call up, unless
/// its access was withdrawn.
#[derive(Debug)]
pub struct Hold {
    calls: HeldCalls,
    holder: Holder,
    access: Arc<Access>,
    profile: Option<Arc<str>>,
    arrived: Instant,
    patience: Duration,
    ended: Option<Ended>,
}

impl Hold {
    /// When the wait is over, counted from the arrival of the call however often it was decided. A
    /// reload may make that sooner.
    pub fn until(&self, consent: &Consent) -> Instant {
        let Holder { caller, client } = &self.holder;
        self.arrived + self.patience.min(consent.hold_of(caller, self.profile.as_deref(), client))
    }

    /// Gives the place back.
    pub fn end(mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let waited = clock::now().duration_since(self.arrived);
        let left = if self.access.is_withdrawn() { Ended::Over } else { Ended::GaveUp(waited) };
        let ended = self.ended.unwrap_or(left);
        self.calls.held.lock().end(&self.holder, ended, clock::uptime());
    }
}
