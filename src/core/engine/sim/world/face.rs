//! The gateway's side of one client: the ladder is the engine's; here is the transport, lines or HTTP.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;

use super::chance::Chance;
use super::gateway::{Gateway, Who};
use super::link::Link;
use super::words::{self, Words};
use crate::engine::client::asked::{Field, Head};
use crate::engine::client::heard::Heard;
use crate::engine::client::{Client, Served, Step};
use crate::mcp::capability::initialize_result;
use crate::mcp::kinds::about_input;
use crate::mcp::version::{Era, Revision};
use crate::policy::Caller;
use crate::wire::frame::Bounds;
use crate::wire::id::ClientId;
use crate::wire::lines::{Line, LineDecoder};
use crate::wire::raw::RawJson;

const MAX_LINE: usize = 64 * 1024;

/// The number of a request, once it is known.
type Ticket = Rc<Cell<u64>>;

pub(super) struct Face {
    number: u64,
    caller: Caller,
    decoder: LineDecoder,
    client: Client<Ticket>,
    /// By `initialize`.
    agreed: Option<Revision>,
    /// What a legacy client can be asked for.
    declared: Option<RawJson>,
}

/// The head of a modern client's POST.
struct Fields<'t> {
    version: String,
    method: &'t str,
    name: &'t str,
}

impl Head for Fields<'_> {
    fn field(&self, field: Field) -> (Option<&[u8]>, bool) {
        let value = match field {
            Field::Version => self.version.as_str(),
            Field::Method => self.method,
            Field::Name => self.name,
        };
        (Some(value.as_bytes()), false)
    }
}

impl Face {
    pub(super) fn new(number: u64, caller: &str) -> Self {
        let (decoder, client) = (LineDecoder::new(MAX_LINE), Client::default());
        Self { number, caller: Caller::named(caller), decoder, client, agreed: None, declared: None }
    }

    /// Bytes on a pipe.
    pub(super) fn bytes(&mut self, piece: &Bytes, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) {
        self.decoder.buffer().extend_from_slice(piece);
        while let Some(line) = self.decoder.next_line() {
            let Line::Full(line) = line else { panic!("no line is that long") };
            self.body(line, 0, None, gateway, links, chance);
        }
    }

    /// The body of a POST of a client of that revision, with the stream of its answers.
    pub(super) fn post(
        &mut self,
        text: &str,
        stream: u64,
        revision: Revision,
        gateway: &mut Gateway,
        links: &mut [Link],
        chance: &mut Chance,
    ) {
        let words = Words::of(text);
        let name = words::member(words.params, "name").unwrap_or_default().trim_matches('"');
        let fields = Fields { version: revision.to_string(), method: words.method, name };
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        if revision.era() == Era::Modern {
            // Nothing is kept from one request to the next.
            self.client = Client::default();
            return self.body(bytes, stream, Some(&fields), gateway, links, chance);
        }
        self.body(bytes, stream, None, gateway, links, chance);
    }

    fn body(
        &mut self,
        bytes: Bytes,
        stream: u64,
        head: Option<&dyn Head>,
        gateway: &mut Gateway,
        links: &mut [Link],
        chance: &mut Chance,
    ) {
        let messages = match Heard::read(bytes, Bounds::CLIENT) {
            Heard::Message(message) => vec![message],
            Heard::Batch(batch) => {
                assert_eq!(batch.refusal(self.agreed), None);
                batch.into_messages()
            }
        };
        for message in messages {
            let step = self.client.heard(message, head);
            self.step(step, stream, gateway, links, chance);
        }
    }

    fn who(&self, revision: Revision, id: ClientId, stream: u64, request: u64) -> Who {
        let declared = self.declared.clone().filter(|_| revision.era() == Era::Legacy);
        Who { client: self.number, request, stream, revision, caller: self.caller.clone(), declared, id }
    }

    fn step(
        &mut self,
        step: Step<Ticket>,
        stream: u64,
        gateway: &mut Gateway,
        links: &mut [Link],
        chance: &mut Chance,
    ) {
        match step {
            Step::Nothing | Step::Initialized => {}
            Step::Initialize(id, revision, capabilities, _) => {
                self.agreed = Some(revision);
                self.declared = capabilities.as_ref().and_then(about_input);
                let who = self.who(revision, id, stream, 0);
                gateway.answer(&who, &Ok(initialize_result(revision)));
            }
            Step::Serve(Served { request, revision, params, ticket, .. }) => {
                ticket.set(gateway.new_key());
                let who = self.who(revision, request.id, stream, ticket.get());
                gateway.request(who, params, links, chance);
            }
            Step::Cancel(ticket) => {
                if let Some(id) = gateway.withdraw(ticket.get(), links) {
                    self.left(&id);
                }
            }
            Step::Answered(response) => {
                let id = response.id.and_then(|id| id.parse::<String>().ok());
                if let Some(ask) = id.and_then(|id| id.strip_prefix("ask-")?.parse().ok()) {
                    gateway.answered(self.number, ask, response.outcome, links, chance);
                }
            }
            Step::Answer(id, answer) => panic!("{id:?} was refused: {answer:?}"),
            Step::Complain(error) => panic!("{}", error.text()),
        }
    }

    /// A request was answered, or never will be.
    pub(super) fn left(&mut self, id: &ClientId) {
        self.client.close(&id.key());
    }

    pub(super) fn is_idle(&self) -> bool {
        self.client.is_idle()
    }
}
