//! Turns of the calls in one lane: adapts [`crate::engine::connection::turns`] to calls that are
//! futures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::catalog::name::UpstreamName;
use crate::engine::askers::{AskerRegistry, ConductLesson, DefinedItem};
use crate::engine::connection::turns::{TurnGate, TurnKind, TurnQueue as Row, TurnTicket};

/// The turn of a call of an item that asks. Dropping it passes the turn to the next call; requests
/// that resume the same call share it.
pub(crate) type SharedCallTurn = Option<Arc<CallTurn>>;

/// A call's position in the row of waiting calls, or its turn. Dropping it leaves the row, and lets
/// the next calls pass.
#[derive(Debug)]
pub struct CallTurn {
    turns: Arc<CallTurns>,
    ticket: TurnTicket,
}

impl Drop for CallTurn {
    fn drop(&mut self) {
        self.turns.change(|row, waiting| {
            waiting.remove(&self.ticket);
            row.leave(self.ticket);
        });
    }
}

/// The calls of one lane that wait for their turn, or have it. The lock guards one operation at a
/// time; calls that need not wait never take it.
#[derive(Debug)]
pub struct CallTurns {
    askers: Arc<AskerRegistry>,
    is_held: AtomicBool,
    row: Mutex<(Row, WaitingTickets)>,
}

/// Channels that tell waiting calls that they may pass, and how.
type WaitingTickets = HashMap<TurnTicket, oneshot::Sender<TurnKind>>;

impl CallTurns {
    pub(super) fn new(askers: Arc<AskerRegistry>) -> Self {
        Self { askers, is_held: AtomicBool::default(), row: Mutex::default() }
    }

    /// Returns the knowledge about items of the upstream that ask questions.
    pub fn askers(&self) -> &Arc<AskerRegistry> {
        &self.askers
    }

    /// Returns the kind of turn that a call of this item must wait for; `None` if it needs none.
    pub fn passer(&self, item: Option<&DefinedItem>) -> Option<TurnKind> {
        if item.is_some_and(|item| self.askers.conduct(item).is_some()) {
            return Some(TurnKind::Asker);
        }
        self.is_held.load(Ordering::Relaxed).then_some(TurnKind::Plain)
    }

    /// Sets whether calls are held back. Calls that wait and may pass now do so.
    pub(super) fn set(&self, gate: TurnGate) {
        self.is_held.store(gate.is_held, Ordering::Relaxed);
        self.change(|row, _| row.set(gate));
    }

    /// Changes the row of calls, then lets all calls pass that may.
    fn change<T>(&self, act: impl FnOnce(&mut Row, &mut WaitingTickets) -> T) -> T {
        let (row, waiting) = &mut *self.row.lock();
        let done = act(row, waiting);
        while let Some((ticket, passer)) = row.pass(&self.askers) {
            let told = waiting.remove(&ticket).is_some_and(|waits| waits.send(passer).is_ok());
            if !told {
                row.leave(ticket);
            }
        }
        done
    }

    /// Waits for the call's turn; returns `None` for a plain call, which may pass but has no turn.
    /// A call that is resumed gets the turn after `attribution-timeout` at the latest, because the
    /// call that has it may wait for the resumed one.
    ///
    /// # Errors
    /// The wait took longer than `patience`; not for a resumed call.
    pub(super) async fn take(
        self: Arc<Self>,
        passer: TurnKind,
        item: Option<DefinedItem>,
        patience: Duration,
    ) -> Result<SharedCallTurn, ()> {
        let (told, passes) = oneshot::channel();
        let ticket = self.change(|row, waiting| {
            let ticket = row.enter(passer, item);
            waiting.insert(ticket, told);
            ticket
        });
        let turn = Arc::new(CallTurn { turns: Arc::clone(&self), ticket });
        let patience = if passer == TurnKind::Returning { self.askers.patience() } else { patience };
        match (tokio::time::timeout(patience, passes).await, passer) {
            (Ok(Ok(TurnKind::Plain)), _) => Ok(None),
            (Ok(Ok(TurnKind::Asker | TurnKind::Returning)), _) => Ok(Some(turn)),
            (Ok(Err(_)) | Err(_), TurnKind::Returning) => {
                self.change(|row, _| row.force(ticket));
                Ok(Some(turn))
            }
            (Ok(Err(_)) | Err(_), TurnKind::Plain | TurnKind::Asker) => Err(()),
        }
    }

    /// Logs for the operator what was learnt about items of the upstream.
    pub(super) fn learned(&self, upstream: &UpstreamName, lesson: &ConductLesson) {
        match lesson {
            ConductLesson::Asks(item) => tracing::info!(
                upstream.name = %upstream, item = %item.name,
                "this item asks its client on a connection that calls share; its calls pass one at a time from now on"
            ),
            ConductLesson::Suspects(items) => {
                let items = items.iter().map(|item| item.name.to_string()).collect::<Vec<_>>().join(", ");
                tracing::warn!(
                    upstream.name = %upstream, items,
                    "the server asked something while calls of these items were in progress, and nothing said which of them asked; \
                     their calls pass one at a time until that is known (instance = \"per-session\" gives each client its own)"
                );
            }
            ConductLesson::Late(item) => tracing::warn!(
                upstream.name = %upstream, item = %item.name,
                "the server asked something after the last call, one of this item, had ended; its questions are refused from now on"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::mcp::method::ItemList;

    fn turns() -> Arc<CallTurns> {
        Arc::new(CallTurns::new(Arc::default()))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_pass_in_their_order_and_one_that_gives_up_keeps_no_place() {
        let turns = turns();
        let first = Arc::clone(&turns).take(TurnKind::Asker, None, LONG).await.unwrap();
        let order = Arc::new(AtomicUsize::new(0));
        let wait = |n: usize, patience: Duration| {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            async move {
                let turn = turns.take(TurnKind::Asker, None, patience).await;
                (turn.is_ok(), order.fetch_add(1, Ordering::Relaxed), n)
            }
        };
        let ends = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(first);
        };
        let (one, gone, two, ()) = tokio::join!(wait(1, LONG), wait(2, Duration::from_secs(1)), wait(3, LONG), ends);
        assert_eq!((gone, one, two), ((false, 0, 2), (true, 1, 1), (true, 2, 3)));
        assert_eq!(turns.row.lock().0.left_over(), 0);
        assert!(turns.row.lock().1.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_plain_call_waits_only_while_a_question_does() {
        let turns = turns();
        assert_eq!(turns.passer(None), None);
        turns.set(TurnGate { is_held: true, is_taken: false });
        assert_eq!(turns.passer(None), Some(TurnKind::Plain));
        let held = Arc::clone(&turns).take(TurnKind::Plain, None, Duration::from_secs(1)).await;
        assert!(held.is_err(), "longer than it waits");
        let opens = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            turns.set(TurnGate::default());
        };
        let (passes, ()) = tokio::join!(Arc::clone(&turns).take(TurnKind::Plain, None, LONG), opens);
        assert!(matches!(passes, Ok(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_goes_on_waits_no_longer_than_it_takes_to_tie_a_question() {
        let turns = turns();
        let item = DefinedItem {
            list: ItemList::Tools,
            name: Arc::from("form"),
            definition: crate::wire::digest::Digest::of(b""),
        };
        assert_eq!(turns.passer(Some(&item)), None);
        let holds = Arc::clone(&turns).take(TurnKind::Asker, None, LONG).await.unwrap();
        let goes_on = Arc::clone(&turns).take(TurnKind::Returning, None, Duration::ZERO).await.unwrap();
        assert!(goes_on.is_some());
        drop(holds);
        let next = Arc::clone(&turns).take(TurnKind::Asker, None, Duration::from_secs(1)).await;
        assert!(next.is_err(), "one of them runs");
        drop(goes_on);
        assert!(Arc::clone(&turns).take(TurnKind::Asker, None, Duration::from_secs(1)).await.is_ok());
    }
}
