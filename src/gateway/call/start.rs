//! From a permit to a call on its way.

use std::sync::Arc;

use crate::base::clock;
use crate::engine::askers::Item;
use crate::engine::call::{Deadline, Progress};
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::park::ParkId;
use crate::engine::turns::Passer;
use crate::gateway::admission::InFlight;
use crate::gateway::call::opening::{Opened, Opening};
use crate::gateway::call::{Call, ClientEvent, Running};
use crate::gateway::prepared::TaskWay;
use crate::mcp::version::Era;
use crate::upstream::exchange::Exchange;
use crate::upstream::handle::Slot;
use crate::upstream::parked::ended;
use crate::upstream::task::{Manner, TaskExchange};
use crate::wire::raw::RawJson;

impl Call {
    /// [`Self::start`] unless the caller's access ends before that.
    pub(super) async fn begin(&mut self) -> Result<Option<ClientEvent>, Failure> {
        let access = Arc::clone(&self.access);
        tokio::select! {
            // Nearly every call starts at once, and then nothing waits for the end of the access.
            biased;
            started = self.start() => started,
            () = access.ended() => Err(self.given_up(Executed::No)),
        }
    }

    /// Sends the call, as soon as there is a place, a slot and a way for it, and everything is on disk that has to be. Waiting
    /// may be broken off and begun again until it is sent. Returns early with a notice for the client where it waits for the
    /// upstream.
    async fn start(&mut self) -> Result<Option<ClientEvent>, Failure> {
        if self.opening.is_none() {
            let since = clock::now();
            if let InFlight::Queued(queued) = &mut self.place {
                // A call that reports progress holds its place for so long.
                let longest = self.handle.spec.load().call_max;
                self.place = Box::pin(self.service.admission.wait(queued, longest)).await?;
            }
            let caller = self.access.caller();
            // Its place in line is before a slot that has become free.
            let free = if self.queued.is_begun() { None } else { self.handle.free_slot(caller) };
            let slot = match free {
                Some(slot) => slot,
                None => self.queued.slot(&self.handle, caller).await?,
            };
            if let Some((id, answers)) = self.input.as_ref().and_then(|input| input.parked.clone()) {
                return Box::pin(self.rejoin(&id, answers.as_ref(), slot)).await.map(|()| None);
            }
            if let Some((lane, link)) = self.handle.open_lane(&self.wants) {
                return self.send(Opened { slot, lane, link, since }).await.map(|()| None);
            }
            self.opening = Some(Opening::new(&self.handle, &self.wants, slot, since));
        }
        // What seldom waits must not make every call's future larger.
        Box::pin(self.go_through()).await
    }

    /// Goes on waiting for the upstream, and tells the client from time to time that its call does.
    async fn go_through(&mut self) -> Result<Option<ClientEvent>, Failure> {
        loop {
            let Some(opening) = &mut self.opening else { return Err(Failure::down()) };
            if let Some(way) = opening.way(self.progress.is_some()).await {
                let Some(opening) = self.opening.take() else { return Err(Failure::down()) };
                return self.send(opening.opened(way?)).await.map(|()| None);
            }
            // Counted from its arrival, so that it goes on from what the client was told while the call was held.
            let waited = clock::now().duration_since(self.labels.arrived);
            let text = format!("Waiting for the server `{}` to start.", self.handle.name);
            let told = self.progress.as_mut().and_then(|progress| progress.waiting(waited, &text));
            if let Some(notice) = told.and_then(|params| self.notice("notifications/progress", &params)) {
                return Ok(Some(notice));
            }
        }
    }

    /// Continues the progress counter from the value the client saw while the call was held.
    pub(crate) fn resume_progress(&mut self, progress: Option<Progress>) {
        if progress.is_some() {
            self.progress = progress;
        }
    }

    async fn send(&mut self, opened: Opened) -> Result<(), Failure> {
        let Opened { slot, lane, link, since } = opened;
        let item = self.waiting.as_ref().and_then(|outgoing| outgoing.party.item.as_ref());
        // One that waits already keeps its place.
        let passer = self.queued.passer().or_else(|| lane.news.turns.passer(item));
        let (slot, turn, link) = match passer.filter(|_| link.agreed().revision.era() == Era::Legacy) {
            Some(passer) => {
                let (passer, spec) = ((passer, item.cloned()), self.handle.spec.load_full());
                let (slot, turn) = self.queued.turn(slot, &lane, passer, Arc::clone(&spec)).await?;
                // The server may have been started anew meanwhile.
                (slot, turn, lane.link(&spec).await?)
            }
            None => (slot, None, link),
        };
        // Until the call is taken out, a wait that is cancelled changes nothing.
        if let Some(level) = self.waiting.as_ref().and_then(|outgoing| outgoing.log_level) {
            Box::pin(self.handle.ask_for_logs(&link, &self.permit, level)).await;
        }
        self.pass().await?;
        let Some(mut outgoing) = self.waiting.take() else { return Err(Failure::down()) };
        outgoing.party.in_turn = turn.is_some();
        let Some((entry, _)) = self.view.item(self.entry) else { return Err(Failure::down()) };
        if outgoing.resumed && link.agreed().revision.era() == Era::Legacy {
            let text = "The server that asked for input was replaced; start the call again.";
            return Err(Failure::new(Reason::UpstreamProtocol, Executed::Unknown, text));
        }
        let sent = clock::now();
        let spec = self.handle.spec.load();
        self.handle.metrics.queued(sent.duration_since(since));
        let manner = Manner::of(&link, self.labels.method, entry, self.task_way() == Some(&TaskWay::Passes));
        // What may ask for input may have to go on without the client having been asked.
        let keeps = manner == Manner::Perhaps
            || self.input.as_ref().is_some_and(|input| input.client_requests.is_some() || input.offered.any());
        self.kept = keeps.then(|| outgoing.clone());
        let exchange = if manner == Manner::Required {
            Exchange::Task(Box::new(TaskExchange::start(
                self.way(link, lane.clone()),
                self.terms(),
                outgoing,
                &entry.headers,
            )))
        } else {
            Exchange::Sent(self.handle.call(&link, &self.permit, outgoing, &entry.headers))
        };
        let deadline = Deadline::new(sent, spec.call_timeout, spec.call_max);
        self.running = Some(Running { exchange, deadline, sent, lane, turn, _slot: slot });
        Ok(())
    }

    /// Waits for another way where the server ended before a byte of the call was written; once.
    pub(super) fn send_again(&mut self) -> bool {
        let Some(Running { exchange: Exchange::Sent(sent), .. }) = &mut self.running else { return false };
        let Some(outgoing) = sent.take_unsent().filter(|_| !self.again) else { return false };
        let Some(Running { _slot: slot, .. }) = self.running.take() else { return false };
        (self.again, self.waiting) = (true, Some(*outgoing));
        self.opening = Some(Opening::new(&self.handle, &self.wants, slot, clock::now()));
        true
    }

    /// Waits for what has to be on disk, then looks a last time.
    async fn pass(&mut self) -> Result<(), Failure> {
        if let Some(gate) = &mut self.gate {
            gate.pass().await?;
            self.gate = None;
        }
        self.recheck()
    }

    /// Goes on with a parked call. Broken off, it is begun again: to attach twice does no harm.
    async fn rejoin(&mut self, id: &ParkId, answers: Option<&RawJson>, slot: Slot) -> Result<(), Failure> {
        let caller = Arc::clone(&self.action.caller);
        let lane = self.service.parks.lane(&caller, id).ok_or_else(ended)?;
        // The call runs again, so it takes its turn again; a request that is sent again shares that of the one before.
        let item = self.view.item(self.entry).map(|(entry, _)| Item::of(entry));
        let asks = lane.news.turns.passer(item.as_ref()) == Some(Passer::Asker);
        let (slot, turn) = match self.service.parks.turn(&caller, id) {
            None if asks => {
                let passer = (Passer::Returning, item);
                self.queued.turn(slot, &lane, passer, self.handle.spec.load_full()).await?
            }
            shared => (slot, shared),
        };
        if let Some(turn) = &turn {
            self.service.parks.set_turn(&caller, id, turn);
        }
        Box::pin(self.pass()).await?;
        let held = self.service.parks.attach(&caller, id, answers, turn.clone()).await.ok_or_else(ended)?;
        let (sent, spec) = (clock::now(), self.handle.spec.load());
        let deadline = Deadline::new(sent, spec.call_timeout, spec.call_max);
        self.running = Some(Running { exchange: Exchange::Held(held), deadline, sent, lane, turn, _slot: slot });
        if let Some(input) = &mut self.input {
            input.parked = None;
        }
        Ok(())
    }
}
