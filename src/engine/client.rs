//! One client on any transport: the requests that it waits for, by its own ids.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::engine::answer::Answer;
use crate::wire::code;
use crate::wire::id::{ClientId, IdKey};

pub(crate) mod heard;

/// Subscriptions that one client may have open.
const MAX_LISTENS: usize = 16;

/// One client. `T` is the ticket by which its transport ends a request.
#[derive(Debug, Default)]
pub(crate) struct Client<T> {
    open: HashMap<IdKey, Open<T>>,
}

/// A request without an answer.
#[derive(Debug)]
struct Open<T> {
    ticket: T,
    listens: bool,
}

impl<T: Clone + Default> Client<T> {
    /// Enters a request under its id, or a subscription.
    ///
    /// # Errors
    /// The answer to send: the id is in use, or too many subscriptions are open.
    pub(crate) fn enter(&mut self, id: &ClientId, listens: bool) -> Result<T, Answer> {
        let refused = |text| Err(Answer::error(code::INVALID_REQUEST, text, None).with_status(400));
        let is_full = listens && self.listens().count() >= MAX_LISTENS;
        match self.open.entry(id.key()) {
            Entry::Occupied(_) => refused("a request with this id is still in progress"),
            Entry::Vacant(_) if is_full => refused("too many subscriptions; end one of them first"),
            Entry::Vacant(place) => {
                let ticket = T::default();
                place.insert(Open { ticket: ticket.clone(), listens });
                Ok(ticket)
            }
        }
    }

    /// A request is answered, or will never be: its id is free again.
    pub(crate) fn close(&mut self, key: &IdKey) {
        self.open.remove(key);
    }

    /// The ticket of an open request.
    pub(crate) fn ticket(&self, id: &ClientId) -> Option<T> {
        self.open.get(&id.key()).map(|open| open.ticket.clone())
    }

    /// The tickets of open subscriptions.
    pub(crate) fn listens(&self) -> impl Iterator<Item = &T> {
        self.open.values().filter(|open| open.listens).map(|open| &open.ticket)
    }

    /// Whether it waits for nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::wire::raw::RawJson;

    #[test]
    fn an_id_is_one_requests_until_it_is_closed_however_it_is_written() {
        let id = |text: &'static str| ClientId::from_raw(RawJson::trusted(text)).unwrap();
        let mut client = Client::<Rc<Cell<bool>>>::default();
        let ticket = client.enter(&id("\"a\""), true).unwrap();
        assert!(client.enter(&id("\"\\u0061\""), false).is_err());
        assert!(Rc::ptr_eq(&client.ticket(&id("\"\\u0061\"")).unwrap(), &ticket));
        assert!(client.ticket(&id("1")).is_none() && client.enter(&id("1"), false).is_ok());
        assert_eq!(client.listens().count(), 1);
        client.close(&id("\"\\u0061\"").key());
        assert!(client.enter(&id("\"a\""), false).is_ok() && client.listens().count() == 0);
        for n in 0..MAX_LISTENS {
            let id = ClientId::from_raw(RawJson::trusted(format!("{}", n + 2))).unwrap();
            assert!(client.enter(&id, true).is_ok(), "{n}");
        }
        assert!(client.enter(&id("\"b\""), true).is_err() && client.enter(&id("\"b\""), false).is_ok());
        assert!(!client.is_idle());
    }
}
