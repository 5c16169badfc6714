//! Calls that wait until they may pass, and requests that wait for the turns of their parked calls.

use std::time::Instant;

use super::{Gateway, Who};
use crate::engine::call::Progress;
use crate::engine::failure::Reason;
use crate::engine::sim::world::chance::Chance;
use crate::engine::sim::world::link::Link;
use crate::engine::turns::Ticket;
use crate::wire::id::ClientId;
use crate::wire::raw::RawJson;

/// A request that goes on with a parked call, and waits for the call's turn.
pub(super) struct Returning {
    pub(super) turn: Ticket,
    pub(super) link: usize,
    pub(super) key: u64,
    pub(super) who: Who,
    pub(super) now: (u8, Option<Progress>),
    pub(super) answers: Option<RawJson>,
    pub(super) since: Instant,
}

impl Gateway {
    /// Lets calls pass that may.
    pub(super) fn pass_on(&mut self, links: &mut [Link], chance: &mut Chance) {
        for (link, turn) in self.over.drain(..) {
            links[link].leaves(turn);
        }
        for at in 0..links.len() {
            while let Some((turn, passer)) = links[at].passes() {
                let key = self.calls.iter().find(|call| call.has_turn(at, turn)).map(|call| call.key);
                let returns =
                    self.returning.iter().position(|returning| (returning.link, returning.turn) == (at, turn));
                match (key, returns) {
                    (Some(key), _) => self.with_call(key, |gateway, call| call.pass_on(passer, gateway, links)),
                    (None, Some(returns)) => self.goes_on(returns, links, chance),
                    (None, None) => links[at].leaves(turn),
                }
            }
        }
    }

    /// A request has the turn of its call.
    fn goes_on(&mut self, at: usize, links: &mut [Link], chance: &mut Chance) {
        let Returning { turn, link, key, who, now, answers, .. } = self.returning.swap_remove(at);
        if !self.calls.iter().any(|call| call.key == key) {
            self.over.push((link, turn));
            return self.refuse(&who, Reason::UpstreamProtocol, "the call has ended");
        }
        self.with_call(key, |gateway, call| {
            call.change_turn(Some(turn), gateway);
            call.attach(who, now, answers.as_ref(), gateway, links, chance)
        });
    }

    /// Requests wait no more for turns of their calls.
    pub(super) fn drop_returning(&mut self, is_gone: impl Fn(&Returning) -> bool) -> Option<ClientId> {
        let gone: Vec<Returning> = self.returning.extract_if(.., |returning| is_gone(returning)).collect();
        self.over.extend(gone.iter().map(|returning| (returning.link, returning.turn)));
        gone.into_iter().next().map(|returning| returning.who.id)
    }

    /// Calls that go on wait no longer for the one that has the turn.
    pub(super) fn force_late(&mut self, links: &mut [Link], chance: &mut Chance) {
        while let Some(at) = self.returning.iter().position(|returning| {
            let patience = links[returning.link].askers.patience();
            returning.since + patience <= self.now
        }) {
            let Returning { link, turn, .. } = self.returning[at];
            links[link].forces(turn);
            self.goes_on(at, links, chance);
        }
    }
}
