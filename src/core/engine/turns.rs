//! Turns of the calls on one connection on which nothing says which call a question belongs to.
//!
//! While a question waits until it is clear whose it is, new calls wait too. Calls of items that ask pass one at a time, all of them
//! in one row; all other calls pass freely. Where an item is seen to ask while calls of it wait for another's question, they take
//! turns from then on, at the same place. A call that its client goes on with, after it was parked, is the next in the row and
//! heeds no question that waits: its server may need the answer before anything else can end.

use std::collections::VecDeque;

use crate::engine::askers::{Askers, Item};

/// The obstacles for calls that want to pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// A question waits until it is clear whose it is.
    pub is_held: bool,
    /// A call of an item that asks is in flight without its turn: it was sent before that was known.
    pub is_taken: bool,
}

/// The kind of a call that wants to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passer {
    /// Of an item that is not known to ask.
    Plain,
    /// Of an item that asks.
    Asker,
    /// It is in flight and was parked.
    Returning,
}

/// Names a call that wants to pass.
pub type Ticket = u64;

/// A call that wants to pass.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    passer: Passer,
    item: Option<Item>,
}

/// The calls that wait, and those that have their turn. There are as many as call slots.
#[derive(Debug, Default)]
pub struct Turns {
    gate: Gate,
    tickets: Ticket,
    passed: Vec<Ticket>,
    waiting: VecDeque<Waiting>,
}

impl Turns {
    /// A call wants to pass; [`Self::pass`] says when.
    pub fn enter(&mut self, passer: Passer, item: Option<Item>) -> Ticket {
        self.tickets += 1;
        self.waiting.push_back(Waiting { ticket: self.tickets, passer, item });
        self.tickets
    }

    /// The next call that passes now, in the order of arrival, and how it passes.
    pub fn pass(&mut self, askers: &Askers) -> Option<(Ticket, Passer)> {
        let has_asked = |item: &Option<Item>| item.as_ref().is_some_and(|item| askers.conduct(item).is_some());
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.passer == Passer::Plain) {
            if has_asked(&waiting.item) {
                waiting.passer = Passer::Asker;
            }
        }
        let is_free = self.passed.is_empty() && !self.gate.is_taken;
        let may_pass = |passer: Passer| match passer {
            Passer::Returning => is_free,
            Passer::Asker => is_free && !self.gate.is_held,
            Passer::Plain => !self.gate.is_held,
        };
        let returning = self.waiting.iter().position(|waiting| waiting.passer == Passer::Returning);
        let first = || self.waiting.iter().position(|waiting| may_pass(waiting.passer));
        let at = returning.filter(|_| may_pass(Passer::Returning)).or_else(first)?;
        let Waiting { ticket, passer, .. } = self.waiting.remove(at)?;
        if passer != Passer::Plain {
            self.passed.push(ticket);
        }
        Some((ticket, passer))
    }

    /// A call that goes on has waited long enough: it passes beside the one that has its turn, which may be waiting for it.
    pub fn force(&mut self, ticket: Ticket) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.ticket == ticket) {
            self.waiting.remove(at);
            self.passed.push(ticket);
        }
    }

    /// A call waits no more, or its turn is over.
    pub fn leave(&mut self, ticket: Ticket) {
        self.passed.retain(|passed| *passed != ticket);
        self.waiting.retain(|waiting| waiting.ticket != ticket);
    }

    pub fn set(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Calls that wait or have their turn, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn left_over(&self) -> usize {
        self.passed.len() + self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mcp::method::List;
    use crate::wire::digest::Digest;

    fn all(turns: &mut Turns) -> Vec<Ticket> {
        std::iter::from_fn(|| turns.pass(&Askers::default())).map(|(ticket, _)| ticket).collect()
    }

    #[test]
    fn calls_of_items_that_ask_pass_one_at_a_time_and_others_freely() {
        let mut turns = Turns::default();
        let [a, b, plain] = [Passer::Asker, Passer::Asker, Passer::Plain].map(|passer| turns.enter(passer, None));
        assert_eq!(all(&mut turns), [a, plain]);
        turns.leave(a);
        assert_eq!(all(&mut turns), [b]);
        let (c, d) = (turns.enter(Passer::Asker, None), turns.enter(Passer::Asker, None));
        turns.leave(c);
        turns.leave(b);
        assert_eq!(all(&mut turns), [d], "one that gave up is no obstacle");
    }

    #[test]
    fn while_a_question_waits_new_calls_wait_and_go_on_in_their_order() {
        let mut turns = Turns::default();
        turns.set(Gate { is_held: true, is_taken: false });
        let [one, asker, two] = [Passer::Plain, Passer::Asker, Passer::Plain].map(|passer| turns.enter(passer, None));
        assert!(all(&mut turns).is_empty());
        turns.set(Gate { is_held: false, is_taken: true });
        assert_eq!(all(&mut turns), [one, two], "a call that asks is in flight without its turn");
        turns.set(Gate::default());
        assert_eq!(all(&mut turns), [asker]);
    }

    #[test]
    fn calls_that_wait_take_turns_where_their_item_is_seen_to_ask_meanwhile() {
        let item = |name: &str| Item { list: List::Tools, name: Arc::from(name), definition: Digest::of(b"") };
        let (mut turns, askers) = (Turns::default(), Askers::default());
        turns.set(Gate { is_held: true, is_taken: false });
        let [one, plain, two] = ["form", "echo", "form"].map(|name| turns.enter(Passer::Plain, Some(item(name))));
        assert_eq!(turns.pass(&askers), None);
        askers.asked(&item("form"));
        turns.set(Gate::default());
        let passed: Vec<_> = std::iter::from_fn(|| turns.pass(&askers)).collect();
        assert_eq!(passed, [(one, Passer::Asker), (plain, Passer::Plain)]);
        turns.leave(one);
        assert_eq!(turns.pass(&askers), Some((two, Passer::Asker)));
    }

    #[test]
    fn a_call_that_goes_on_is_next_and_waits_for_no_question() {
        let mut turns = Turns::default();
        let [first, second, parked] = [Passer::Asker, Passer::Asker, Passer::Returning].map(|p| turns.enter(p, None));
        assert_eq!(all(&mut turns), [parked], "it was there before them");
        turns.leave(parked);
        assert_eq!(all(&mut turns), [first]);
        let again = turns.enter(Passer::Returning, None);
        turns.set(Gate { is_held: true, is_taken: false });
        assert!(all(&mut turns).is_empty());
        turns.force(again);
        turns.leave(first);
        turns.set(Gate::default());
        assert!(all(&mut turns).is_empty(), "it has passed");
        turns.leave(again);
        assert_eq!(all(&mut turns), [second]);
        turns.leave(second);
        assert_eq!(turns.left_over(), 0);
    }
}
