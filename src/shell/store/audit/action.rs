//! Audit records of operators' actions, from the admin socket, the console, reloads by signal or by
//! a changed file, and commands that work on the store without a daemon.
//!
//! An action leaves one record, written once its outcome is known. Its place in the queue is
//! reserved before the action begins, unless the action takes effect at once
//! ([`OperatorAction::is_immediate`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::AuditLog;
use super::queue::RecordSlot;
use super::ticket::UnrecordedError;
use crate::base::task_group::TaskGroup;
use crate::policy::{AuditEntry, AuditEvent, OperatorAction};

/// Length limit of names and outcomes in a record, in characters.
const MAX_TEXT: usize = 400;
/// Time between two records of wrong attempts.
const PAUSE: Duration = Duration::from_secs(60);
/// Name in the record of wrong attempts, whose author is not known.
const STRANGER: &str = "unknown";

/// Builds the record of an action that has ended. `outcome` is a few words for people: `Ok` for an
/// action that was done, `Err` for one that was refused.
pub fn ended_entry(action: OperatorAction, by: &str, name: Option<&str>, outcome: Result<&str, &str>) -> AuditEntry {
    let (result, why) = match outcome {
        Ok(why) => ("done", why),
        Err(why) => ("refused", why),
    };
    let why = shorten(why);
    AuditEntry { result, why: why.into(), ..begun_entry(action, by, name) }
}

/// Builds the record of an action whose outcome is not known yet.
fn begun_entry(action: OperatorAction, by: &str, name: Option<&str>) -> AuditEntry {
    let name = name.map(|name| Arc::from(shorten(name)));
    AuditEntry { action: Some(action), name, by: Some(Arc::from(by)), ..AuditEntry::new(AuditEvent::Action) }
}

/// Returns the first line of a text, cut to [`MAX_TEXT`] characters.
fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(MAX_TEXT).collect();
    if short.len() < text.trim_end().len() { short + "…" } else { short }
}

impl AuditLog {
    /// Begins an action of the person or cause `by`: waits for the place of its record, unless the
    /// action takes effect at once.
    ///
    /// # Errors
    /// [`UnrecordedError`], if the action must not happen: it opens something while the log takes
    /// no records and calls are refused for that, or there is no writer.
    pub async fn begin(
        &self,
        action: OperatorAction,
        by: &str,
        name: Option<&str>,
    ) -> Result<ActionRecord, UnrecordedError> {
        if action.opens() && self.trouble().is_some_and(|(_, stops_calls)| stops_calls) {
            return Err(UnrecordedError);
        }
        let slot = if action.is_immediate() { None } else { Some(self.reserve().await?) };
        Ok(ActionRecord { audit: self.clone(), slot, entry: Some(Box::new(begun_entry(action, by, name))) })
    }
}

/// The record of an action that has begun. If it is dropped before [`Self::end`], it is written
/// with the outcome "unfinished".
#[derive(Debug)]
#[must_use = "it is written with the outcome of the action"]
pub struct ActionRecord {
    audit: AuditLog,
    slot: Option<RecordSlot>,
    /// The record until it is written.
    entry: Option<Box<AuditEntry>>,
}

impl ActionRecord {
    /// Sets the person or cause, if it is known only now.
    pub fn set_by(&mut self, by: &str) {
        self.change(|entry| entry.by = Some(Arc::from(by)));
    }

    /// Sets the action, if it is known only now.
    pub fn set_action(&mut self, action: OperatorAction) {
        self.change(|entry| entry.action = Some(action));
    }

    /// Sets the name of the action's subject, if it is known only now.
    pub fn set_name(&mut self, name: &str) {
        self.change(|entry| entry.name = Some(Arc::from(shorten(name))));
    }

    /// Sets the number of approvals, grants or pins that the action covers.
    pub fn set_count(&mut self, count: usize) {
        self.change(|entry| entry.count = u64::try_from(count).ok());
    }

    fn change(&mut self, change: impl FnOnce(&mut AuditEntry)) {
        if let Some(entry) = &mut self.entry {
            change(entry);
        }
    }

    /// Writes the record with the outcome in a few words: `Ok` for done, `Err` for refused.
    pub fn end(mut self, outcome: Result<&str, &str>) {
        self.change(|entry| {
            entry.result = if outcome.is_ok() { "done" } else { "refused" };
            entry.why = Cow::Owned(shorten(outcome.unwrap_or_else(|why| why)));
        });
        self.write();
    }

    /// Drops the record without writing it: there was no action.
    pub fn forget(mut self) {
        self.entry = None;
    }

    fn write(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        match self.slot.take() {
            Some(slot) => slot.record(*entry),
            // The action has taken effect. Its record is queued, or counted as lost.
            None => self.audit.record_done(*entry),
        }
    }
}

impl Drop for ActionRecord {
    fn drop(&mut self) {
        self.change(|entry| {
            entry.result = "unfinished";
            entry.why = Cow::Borrowed("headend ended, or the request did, before the outcome was known");
        });
        self.write();
    }
}

/// Records wrong attempts at a bounded rate, since strangers can make as many as they like: the
/// first one at once, further ones as one record a minute with their number.
#[derive(Clone, Debug)]
pub struct WrongAttempts {
    action: OperatorAction,
    audit: AuditLog,
    tasks: TaskGroup,
    stop: CancellationToken,
    /// Attempts since the last record; `None` if the last minute had none.
    count: Arc<Mutex<Option<u64>>>,
}

impl WrongAttempts {
    /// Creates a counter for one kind of attempt. When `stop` fires, the attempts so far are
    /// recorded.
    pub fn new(action: OperatorAction, audit: AuditLog, tasks: TaskGroup, stop: CancellationToken) -> Self {
        Self { action, audit, tasks, stop, count: Arc::default() }
    }

    /// Counts an attempt. The first one of its minute is recorded at once.
    pub fn count(&self) {
        let mut count = self.count.lock();
        match &mut *count {
            Some(count) => *count = count.saturating_add(1),
            None => {
                *count = Some(0);
                drop(count);
                self.record(1);
                self.tasks.spawn("wrong attempts", self.clone().sum_up());
            }
        }
    }

    /// Records the number of further attempts each minute, until a minute has none.
    async fn sum_up(self) {
        loop {
            let is_over = tokio::time::timeout(PAUSE, self.stop.cancelled()).await.is_ok();
            let further = {
                let mut count = self.count.lock();
                let further = count.unwrap_or(0);
                *count = (further > 0 && !is_over).then_some(0);
                further
            };
            if further > 0 {
                self.record(further);
            }
            if further == 0 || is_over {
                return;
            }
        }
    }

    fn record(&self, count: u64) {
        let entry = ended_entry(self.action, STRANGER, None, Err("wrong"));
        self.audit.record_done(AuditEntry { count: Some(count), ..entry });
    }
}

#[cfg(test)]
mod tests;
