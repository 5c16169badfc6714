//! Limits how often a person is led to the page on which a login at an upstream is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a person who declines is not asked again.
const REST: Duration = Duration::from_secs(600);

/// The right to lead a person to the login page: one call at a time has it, and none for a while
/// after the person declined.
#[derive(Debug)]
pub struct LoginLink {
    turn: Arc<Semaphore>,
    /// Uptime in seconds until which no call gets the right.
    rests_until: AtomicU64,
}

impl Default for LoginLink {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), rests_until: AtomicU64::new(0) }
    }
}

impl LoginLink {
    /// Takes the right, if no other call has it. Released on drop.
    pub fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).try_acquire_owned().ok()
    }

    /// Starts the pause after the person has declined.
    pub fn rest(&self, now: Duration) {
        self.rests_until.store((now + REST).as_secs(), Ordering::Relaxed);
    }

    pub fn rests(&self, now: Duration) -> bool {
        now.as_secs() < self.rests_until.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_at_a_time_leads_there_and_none_after_a_no() {
        let link = LoginLink::default();
        let now = Duration::from_secs(7);
        let first = link.turn();
        assert!(first.is_some() && link.turn().is_none());
        drop(first);
        assert!(link.turn().is_some() && !link.rests(now));
        link.rest(now);
        assert!(link.rests(now) && link.rests(now + REST / 2) && !link.rests(now + REST));
    }
}
