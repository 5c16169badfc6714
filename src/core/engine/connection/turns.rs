//! The queue of calls on a connection on which a server's question does not tell its call.
//!
//! While a question is held because its call is not known yet ([`super::attribution`]), new calls
//! wait. Calls of items that ask questions pass one at a time, in one queue; all other calls pass
//! freely. If an item is seen to ask while calls of it wait, these calls keep their place and take
//! turns from then on. A parked call that its client resumes is next in the queue and does not wait
//! for a held question: its server may need the answer before anything else can end.

use std::collections::VecDeque;

use crate::engine::askers::{AskerRegistry, DefinedItem};

/// The conditions on a connection that hold calls back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnGate {
    /// True while a question is held because its call is not known yet.
    pub is_held: bool,
    /// True while a call of an item that asks is in flight without a turn, because it was sent
    /// before its item was seen to ask.
    pub is_taken: bool,
}

/// The kind of a queued call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// A call of an item that is not known to ask.
    Plain,
    /// A call of an item that asks.
    Asker,
    /// A parked call that its client resumes. It is in flight already.
    Returning,
}

/// The number of a queued call.
pub type TurnTicket = u64;

/// A queued call.
#[derive(Debug)]
struct QueuedTurn {
    ticket: TurnTicket,
    passer: TurnKind,
    item: Option<DefinedItem>,
}

/// The calls that wait and the calls that hold a turn. The number of call slots bounds both.
#[derive(Debug, Default)]
pub struct TurnQueue {
    gate: TurnGate,
    tickets: TurnTicket,
    passed: Vec<TurnTicket>,
    waiting: VecDeque<QueuedTurn>,
}

impl TurnQueue {
    /// Adds a call to the queue and returns its ticket. The call may go when [`Self::pass`] returns
    /// that ticket.
    pub fn enter(&mut self, passer: TurnKind, item: Option<DefinedItem>) -> TurnTicket {
        self.tickets += 1;
        self.waiting.push_back(QueuedTurn { ticket: self.tickets, passer, item });
        self.tickets
    }

    /// Takes the next call that may pass now from the queue, and returns it with its kind.
    ///
    /// Calls pass in the order of arrival, a resumed one first. A call that is not
    /// [`TurnKind::Plain`] holds the turn until [`Self::leave`]. Waiting plain calls whose item is
    /// known to ask by now become [`TurnKind::Asker`].
    pub fn pass(&mut self, askers: &AskerRegistry) -> Option<(TurnTicket, TurnKind)> {
        let has_asked = |item: &Option<DefinedItem>| item.as_ref().is_some_and(|item| askers.conduct(item).is_some());
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.passer == TurnKind::Plain) {
            if has_asked(&waiting.item) {
                waiting.passer = TurnKind::Asker;
            }
        }
        let is_free = self.passed.is_empty() && !self.gate.is_taken;
        let may_pass = |passer: TurnKind| match passer {
            TurnKind::Returning => is_free,
            TurnKind::Asker => is_free && !self.gate.is_held,
            TurnKind::Plain => !self.gate.is_held,
        };
        let returning = self.waiting.iter().position(|waiting| waiting.passer == TurnKind::Returning);
        let first = || self.waiting.iter().position(|waiting| may_pass(waiting.passer));
        let at = returning.filter(|_| may_pass(TurnKind::Returning)).or_else(first)?;
        let QueuedTurn { ticket, passer, .. } = self.waiting.remove(at)?;
        if passer != TurnKind::Plain {
            self.passed.push(ticket);
        }
        Some((ticket, passer))
    }

    /// Lets a call pass at once, beside the call that holds the turn. For a resumed call that has
    /// waited long enough: the call that holds the turn may be waiting for it.
    pub fn force(&mut self, ticket: TurnTicket) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.ticket == ticket) {
            self.waiting.remove(at);
            self.passed.push(ticket);
        }
    }

    /// Removes a call that no longer waits, or ends its turn.
    pub fn leave(&mut self, ticket: TurnTicket) {
        self.passed.retain(|passed| *passed != ticket);
        self.waiting.retain(|waiting| waiting.ticket != ticket);
    }

    /// Sets the conditions that the next [`Self::pass`] obeys.
    pub fn set(&mut self, gate: TurnGate) {
        self.gate = gate;
    }

    /// Returns the number of calls that wait or hold a turn, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn left_over(&self) -> usize {
        self.passed.len() + self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mcp::method::ItemList;
    use crate::wire::digest::Digest;

    fn all(turns: &mut TurnQueue) -> Vec<TurnTicket> {
        std::iter::from_fn(|| turns.pass(&AskerRegistry::default())).map(|(ticket, _)| ticket).collect()
    }

    #[test]
    fn calls_of_items_that_ask_pass_one_at_a_time_and_others_freely() {
        let mut turns = TurnQueue::default();
        let [a, b, plain] = [TurnKind::Asker, TurnKind::Asker, TurnKind::Plain].map(|passer| turns.enter(passer, None));
        assert_eq!(all(&mut turns), [a, plain]);
        turns.leave(a);
        assert_eq!(all(&mut turns), [b]);
        let (c, d) = (turns.enter(TurnKind::Asker, None), turns.enter(TurnKind::Asker, None));
        turns.leave(c);
        turns.leave(b);
        assert_eq!(all(&mut turns), [d], "one that gave up is no obstacle");
    }

    #[test]
    fn while_a_question_waits_new_calls_wait_and_go_on_in_their_order() {
        let mut turns = TurnQueue::default();
        turns.set(TurnGate { is_held: true, is_taken: false });
        let [one, asker, two] =
            [TurnKind::Plain, TurnKind::Asker, TurnKind::Plain].map(|passer| turns.enter(passer, None));
        assert!(all(&mut turns).is_empty());
        turns.set(TurnGate { is_held: false, is_taken: true });
        assert_eq!(all(&mut turns), [one, two], "a call that asks is in flight without its turn");
        turns.set(TurnGate::default());
        assert_eq!(all(&mut turns), [asker]);
    }

    #[test]
    fn calls_that_wait_take_turns_where_their_item_is_seen_to_ask_meanwhile() {
        let item =
            |name: &str| DefinedItem { list: ItemList::Tools, name: Arc::from(name), definition: Digest::of(b"") };
        let (mut turns, askers) = (TurnQueue::default(), AskerRegistry::default());
        turns.set(TurnGate { is_held: true, is_taken: false });
        let [one, plain, two] = ["form", "echo", "form"].map(|name| turns.enter(TurnKind::Plain, Some(item(name))));
        assert_eq!(turns.pass(&askers), None);
        askers.asked(&item("form"));
        turns.set(TurnGate::default());
        let passed: Vec<_> = std::iter::from_fn(|| turns.pass(&askers)).collect();
        assert_eq!(passed, [(one, TurnKind::Asker), (plain, TurnKind::Plain)]);
        turns.leave(one);
        assert_eq!(turns.pass(&askers), Some((two, TurnKind::Asker)));
    }

    #[test]
    fn a_call_that_goes_on_is_next_and_waits_for_no_question() {
        let mut turns = TurnQueue::default();
        let [first, second, parked] =
            [TurnKind::Asker, TurnKind::Asker, TurnKind::Returning].map(|p| turns.enter(p, None));
        assert_eq!(all(&mut turns), [parked], "it was there before them");
        turns.leave(parked);
        assert_eq!(all(&mut turns), [first]);
        let again = turns.enter(TurnKind::Returning, None);
        turns.set(TurnGate { is_held: true, is_taken: false });
        assert!(all(&mut turns).is_empty());
        turns.force(again);
        turns.leave(first);
        turns.set(TurnGate::default());
        assert!(all(&mut turns).is_empty(), "it has passed");
        turns.leave(again);
        assert_eq!(all(&mut turns), [second]);
        turns.leave(second);
        assert_eq!(turns.left_over(), 0);
    }
}
