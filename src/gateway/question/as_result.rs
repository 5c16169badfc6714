//! Questions of a legacy server on their way to a modern client, as one result of type `input_required`.

use std::time::{Duration, Instant};

use crate::base::clock;
use crate::mcp::input::InputRequest;
use crate::wire::raw::{RawJson, RawObject};

/// How long one question waits for others of the same call, so that a person is asked once.
const GATHER: Duration = Duration::from_millis(30);

/// The questions that have gathered.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    asked: Vec<(RawJson, InputRequest)>,
    until: Option<Instant>,
}

impl Inquiry {
    /// When the client is to be asked; `None` while there is nothing to ask.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.until
    }

    /// Adds a question of a parked call that was judged; its id is its key. `false` where the id is none.
    pub(crate) fn add(&mut self, id: &RawJson, judged: InputRequest) -> bool {
        let Ok(key) = id.parse::<String>() else { return false };
        self.asked.push((id.clone(), InputRequest { key, ..judged }));
        self.until.get_or_insert_with(|| clock::now() + GATHER);
        true
    }

    /// The server wants no answer any more.
    pub(crate) fn withdraw(&mut self, id: &RawJson) {
        self.asked.retain(|(key, _)| key != id);
        if self.asked.is_empty() {
            self.until = None;
        }
    }

    /// The result for the client.
    pub(crate) fn result(&self, state: &str) -> RawJson {
        input_required(self.asked.iter().map(|(_, request)| request), state)
    }
}

/// A result that asks for input.
pub(crate) fn input_required<'r>(asked: impl Iterator<Item = &'r InputRequest>, state: &str) -> RawJson {
    let mut requests = RawObject::default();
    for request in asked {
        requests.set(&request.key, request.entry());
    }
    let mut result = RawObject::default();
    result.set("resultType", RawJson::string("input_required"));
    result.set("inputRequests", requests.encode());
    result.set("requestState", RawJson::string(state));
    result.encode()
}
