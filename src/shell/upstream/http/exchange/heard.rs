//! Messages of a server in its session other than answers, and their recipients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{HttpLink, SIDE};
use crate::engine::call::CallOutcome;
use crate::engine::connection::unasked::{MessageStream, NoticeRecipient, find_recipient};
use crate::engine::event::CallEvent;
use crate::engine::failure::CallFailure;
use crate::engine::fault::ProtocolFault;
use crate::mcp::method::ItemList;
use crate::upstream::line::call::count_in_share;
use crate::wire::id::WireId;
use crate::wire::message::{Message, Notification};

impl HttpLink {
    /// Handles a message on the session's own stream.
    pub fn heard(self: &Arc<Self>, message: Message) {
        match message {
            Message::Notification(notice) => {
                if let Some((call, event)) = self.told(notice, MessageStream::Shared) {
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
                    && !self.to_call(call.0, CallEvent::Done(self.gauge().outcome(response)))
                {
                    self.gauge().metrics.fault(ProtocolFault::LateReply);
                }
            }
        }
    }

    /// Fails this call, because an event on the session's own stream names it and cannot be read.
    pub fn unread(self: &Arc<Self>, call: u64) {
        if self.to_call(call, CallEvent::Done(CallOutcome::Failed(CallFailure::malformed()))) {
            self.gauge().metrics.fault(ProtocolFault::MalformedReply);
        }
    }

    /// Returns the lists that have changed since the last call of this function.
    pub fn take_changed(&self) -> Vec<ItemList> {
        std::mem::take(&mut self.desk.lock().changed)
    }

    /// Handles a notification; returns it with its call if it is for a call.
    pub(super) fn told(&self, notice: Notification, stream: MessageStream) -> Option<(u64, CallEvent)> {
        match find_recipient(notice, stream) {
            NoticeRecipient::Progress(id, params) => return Some((id.0, CallEvent::Progress(params))),
            NoticeRecipient::Notice(id, notice) => return Some((id.0, CallEvent::Notice(notice))),
            NoticeRecipient::Log(id, notice) => match id.map(|id| id.0).or_else(|| self.desk.lock().only_call()) {
                Some(call) => return Some((call, CallEvent::Log(notice.params?))),
                None => self.parts.news.tell(notice),
            },
            NoticeRecipient::Withdrawn(id) => {
                let mut desk = self.desk.lock();
                if desk.attribution.withdrawn(&id) {
                    self.tell_gate(&mut desk);
                    return None;
                }
                let call = desk.attribution.open.take(&id)?;
                return Some((call, CallEvent::Withdrawn(id)));
            }
            NoticeRecipient::Owner(notice) => self.parts.news.tell(notice),
            NoticeRecipient::Updated(uri) => self.parts.news.updates.updated(&uri),
            NoticeRecipient::Changed(lists) => {
                self.desk.lock().change(lists);
                self.changed.notify_one();
            }
            NoticeRecipient::Wrong(fault) => self.gauge().metrics.fault(fault),
            NoticeRecipient::Nobody => {}
        }
        None
    }

    /// Sends an event to a call. Returns whether the call received it. Messages that may be missed
    /// leave room for those that may not.
    pub(super) fn to_call(&self, call: u64, event: CallEvent) -> bool {
        let called = self.desk.lock().calls.get(&call).map(|called| (called.events.clone(), called.party.clone()));
        let Some((sender, party)) = called else { return false };
        let share = |params| count_in_share(params, &party, &self.gauge().intake.budget).ok();
        let (may_be_missed, event) = match event {
            CallEvent::Progress(params) => (true, share(params).map(CallEvent::Progress)),
            CallEvent::Log(params) => (true, share(params).map(CallEvent::Log)),
            event @ (CallEvent::Ask(_)
            | CallEvent::Notice(_)
            | CallEvent::Withdrawn(_)
            | CallEvent::Alive
            | CallEvent::Unwritten
            | CallEvent::Done(_)) => (false, Some(event)),
        };
        let has_room = !may_be_missed || sender.capacity() > SIDE / 2;
        has_room && event.is_some_and(|event| sender.try_send(event).is_ok())
    }
}
