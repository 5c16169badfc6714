//! Questions that a modern client gets as the result of its request, and those of a modern server.

use super::Call;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::{Gathered, Round};
use crate::engine::sim::world::chance::Chance;
use crate::engine::sim::world::gateway::Gateway;
use crate::engine::sim::world::house::{HOUSE, scope};
use crate::engine::sim::world::link::Link;
use crate::engine::state::{Carried, MAX_ROUNDS, Opened};
use crate::mcp::input::{input_required, pages, passed_on, requests};
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

impl Call {
    fn seal(&self, carried: Carried, gateway: &Gateway, chance: &mut Chance) -> Option<String> {
        let round = self.round.checked_add(1).filter(|round| *round <= MAX_ROUNDS)?;
        HOUSE.states.seal(&scope(&self.action), &Opened { round, carried }, gateway.uptime(), chance.bytes())
    }

    /// A modern client opens the pages that an error wants opened.
    pub(super) fn pages(&self, raw: &RawJson, gateway: &Gateway, chance: &mut Chance) -> Option<RawJson> {
        let error = RawObject::parse(raw).ok()?;
        let is_it = error.get("code")?.parse::<i64>().ok() == Some(code::URL_ELICITATION_REQUIRED);
        let pages = pages(&error, &self.terms).ok().filter(|_| is_it && self.who.is_modern())?;
        let keys = pages.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(" ");
        let sealed = self.seal(Carried::Pages(keys), gateway, chance)?;
        Some(input_required(pages.iter().map(|(key, page)| (key, page)), &sealed))
    }

    /// A modern server asks.
    pub(super) fn asks_by_result(
        &mut self,
        raw: &RawJson,
        gateway: &mut Gateway,
        links: &mut [Link],
        chance: &mut Chance,
    ) -> bool {
        let wrong = |why: &str| Failure::new(Reason::UpstreamProtocol, Executed::Unknown, why);
        if self.asks_on_stream() {
            self.round += 1;
            return match requests(raw, &self.terms) {
                Ok(wanted) if self.round <= MAX_ROUNDS => {
                    let round = Round::new(wanted, self.who.revision, || "page".to_owned());
                    self.talk(round, gateway, links)
                }
                _ => self.fail(gateway, &wrong("asked wrongly")),
            };
        }
        let passed = passed_on(raw, &self.terms, |state| {
            self.seal(state.map_or(Carried::Nothing, Carried::Upstream), gateway, chance)
        });
        match passed {
            Ok(result) => self.end(gateway, &Ok(result)),
            Err(_) => self.fail(gateway, &wrong("asked wrongly")),
        }
    }

    /// A modern client has what has gathered as the result of its request, and the call waits for its next one.
    pub(super) fn inquire(&mut self, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) -> bool {
        let Some((id, park)) = &mut self.park else { return true };
        park.leave(gateway.now);
        let id = *id;
        let Some(sealed) = self.seal(Carried::Parked(id), gateway, chance) else {
            self.fail(gateway, &Failure::malformed());
            return self.give_up(gateway, links);
        };
        let result = self.gathered.result(&sealed);
        self.gathered = Gathered::default();
        links[self.link].parked(self.key);
        self.change_turn(None, gateway);
        gateway.answer(&self.who, &Ok(result));
        self.is_viewed = false;
        true
    }
}
