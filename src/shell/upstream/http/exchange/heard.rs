//! Messages of a server in its session other than answers, and their recipients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{HttpLink, SIDE};
use crate::engine::call::Outcome;
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::Failure;
use crate::engine::fault::Fault;
use crate::engine::unasked::{Stream, Told, told};
use crate::mcp::method::List;
use crate::upstream::line::call::count_in_share;
use crate::wire::id::WireId;
use crate::wire::message::{Message, Notification};

impl HttpLink {
    /// Handles a message on the session's own stream.
    pub fn heard(self: &Arc<Self>, message: Message) {
        match message {
            Message::Notification(notice) => {
                if let Some((call, event)) = self.told(notice, Stream::Shared) {
                    self.to_call(call, event);
                }
            }
            Message::Request(request) => self.asked_aside(&request),
            // The response is on the wrong stream, but it names the call that it answers.
            Message::Response(response) => {
                let call = response.id.as_ref().and_then(WireId::from_raw);
                if call.is_none_or(|call| call.0 >= self.ids.load(Ordering::Relaxed)) {
                    drop(self.gauge().other_id(&response));
                } else if let Some(call) = call
                    && !self.to_call(call.0, ExchangeEvent::Done(self.gauge().outcome(response)))
                {
                    self.gauge().metrics.fault(Fault::LateReply);
                }
            }
        }
    }

    /// Fails this call, because an event on the session's own stream names it and cannot be read.
    pub fn unread(self: &Arc<Self>, call: u64) {
        if self.to_call(call, ExchangeEvent::Done(Outcome::Failed(Failure::malformed()))) {
            self.gauge().metrics.fault(Fault::MalformedReply);
        }
    }

    /// Returns the lists that have changed since the last call of this function.
    pub fn take_changed(&self) -> Vec<List> {
        std::mem::take(&mut self.desk.lock().changed)
    }

    /// Handles a notification; returns it with its call if it is for a call.
    pub(super) fn told(&self, notice: Notification, stream: Stream) -> Option<(u64, ExchangeEvent)> {
        match told(notice, stream) {
            Told::Progress(id, params) => return Some((id.0, ExchangeEvent::Progress(params))),
            Told::Notice(id, notice) => return Some((id.0, ExchangeEvent::Notice(notice))),
            Told::Log(id, notice) => match id.map(|id| id.0).or_else(|| self.desk.lock().only_call()) {
                Some(call) => return Some((call, ExchangeEvent::Log(notice.params?))),
                None => self.parts.news.tell(notice),
            },
            Told::Withdrawn(id) => {
                let mut desk = self.desk.lock();
                if desk.attribution.withdrawn(&id) {
                    self.tell_gate(&mut desk);
                    return None;
                }
                let call = desk.attribution.open.take(&id)?;
                return Some((call, ExchangeEvent::Withdrawn(id)));
            }
            Told::Owner(notice) => self.parts.news.tell(notice),
            Told::Updated(uri) => self.parts.news.updates.updated(&uri),
            Told::Changed(lists) => {
                self.desk.lock().change(lists);
                self.changed.notify_one();
            }
            Told::Wrong(fault) => self.gauge().metrics.fault(fault),
            Told::Nobody => {}
        }
        None
    }

    /// Sends an event to a call. Returns whether the call received it. Messages that may be missed
    /// leave room for those that may not.
    pub(super) fn to_call(&self, call: u64, event: ExchangeEvent) -> bool {
        let called = self.desk.lock().calls.get(&call).map(|called| (called.events.clone(), called.party.clone()));
        let Some((sender, party)) = called else { return false };
        let share = |params| count_in_share(params, &party, &self.gauge().intake.budget).ok();
        let (may_be_missed, event) = match event {
            ExchangeEvent::Progress(params) => (true, share(params).map(ExchangeEvent::Progress)),
            ExchangeEvent::Log(params) => (true, share(params).map(ExchangeEvent::Log)),
            event @ (ExchangeEvent::Ask(_)
            | ExchangeEvent::Notice(_)
            | ExchangeEvent::Withdrawn(_)
            | ExchangeEvent::Alive
            | ExchangeEvent::Unwritten
            | ExchangeEvent::Done(_)) => (false, Some(event)),
        };
        let has_room = !may_be_missed || sender.capacity() > SIDE / 2;
        has_room && event.is_some_and(|event| sender.try_send(event).is_ok())
    }
}
