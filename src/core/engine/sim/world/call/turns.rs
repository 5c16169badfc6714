//! A call that waits until it may pass.

use std::time::Duration;

use super::{Call, IDLE, LONGEST};
use crate::engine::askers::Party;
use crate::engine::call::Deadline;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::sim::world::gateway::Gateway;
use crate::engine::sim::world::link::Link;
use crate::engine::turns::{Passer, Ticket};
use crate::mcp::version::Era;

/// How long a call waits.
const QUEUED: Duration = Duration::from_secs(30);

impl Call {
    /// Sends the call as soon as it may pass.
    pub(in crate::engine::sim::world) fn send(&mut self, gateway: &mut Gateway, links: &mut [Link]) -> bool {
        let link = &mut links[self.link];
        if let Some(passer) = link.passer(&self.outgoing.party).filter(|_| link.era() == Era::Legacy) {
            (self.turn, self.waits) = (Some(link.enters(passer, &self.outgoing.party)), Some((passer, gateway.now)));
            return true;
        }
        self.go(gateway, links)
    }

    /// The call may pass.
    pub(in crate::engine::sim::world) fn pass_on(
        &mut self,
        passer: Passer,
        gateway: &mut Gateway,
        links: &mut [Link],
    ) -> bool {
        self.waits = None;
        match passer {
            Passer::Plain => self.turn = None,
            Passer::Asker | Passer::Returning => self.outgoing.party.in_turn = true,
        }
        self.deadline = Deadline::new(gateway.now, IDLE, LONGEST);
        self.go(gateway, links)
    }

    /// Whether it waits for that turn, or has it.
    pub(in crate::engine::sim::world) fn has_turn(&self, link: usize, turn: Ticket) -> bool {
        self.link == link && self.turn == Some(turn)
    }

    /// Its turn is another one from now on, or over.
    pub(in crate::engine::sim::world) fn change_turn(&mut self, turn: Option<Ticket>, gateway: &mut Gateway) {
        let before = std::mem::replace(&mut self.turn, turn);
        gateway.over.extend(before.map(|turn| (self.link, turn)));
    }

    pub(in crate::engine::sim::world) fn upstream(&self) -> usize {
        self.link
    }

    pub(in crate::engine::sim::world) fn party(&self) -> &Party {
        &self.outgoing.party
    }

    /// Whether a request that goes on with it waits for its turn. One that is sent again has that of the one before.
    pub(in crate::engine::sim::world) fn returns(&self, links: &[Link]) -> bool {
        self.turn.is_none() && links[self.link].passer(&self.outgoing.party) == Some(Passer::Asker)
    }

    /// Time has passed, and the call waits.
    pub(in crate::engine::sim::world) fn pass_waiting(&mut self, gateway: &mut Gateway, links: &[Link]) -> bool {
        let Some((passer, _)) = self.waits.filter(|(_, since)| gateway.now >= *since + QUEUED) else { return true };
        // Its item may have been seen to ask meanwhile.
        let takes_turns = links[self.link].passer(&self.outgoing.party) == Some(Passer::Asker);
        assert!(passer != Passer::Plain || takes_turns, "a call starves that only waits for a question to be tied");
        assert!(!gateway.rests, "a call waits for its turn, and nothing goes on");
        self.fail(gateway, &Failure::new(Reason::Busy, Executed::No, "busy"))
    }
}
