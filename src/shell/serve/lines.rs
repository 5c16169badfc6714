//! Serves MCP over lines in both eras: on stdin and stdout of `headend stdio`, on connections of
//! the admin socket, and on the streams and POSTs that [`super::legacy_sse`] combines.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;

use crate::base::access::Access;
use crate::base::budget::{BudgetRoom, COUNTED_FROM};
use crate::base::clock;
use crate::base::never::or_never;
use crate::base::task_group::TaskGroup;
use crate::engine::answer::RequestAnswer;
use crate::engine::client::heard::{ClientInput, ClientMessage};
use crate::engine::client::{ClientAction, ClientProtocol, ServedRequest};
use crate::gateway::call::ClientEvent;
use crate::gateway::client::admission::RateExceeded;
use crate::gateway::client::connected::ConnectedClient;
use crate::gateway::client::quota::QuotaKind;
use crate::gateway::client::{ClientContext, ClientTag};
use crate::gateway::service::Service;
use crate::gateway::waiting::client_call::{ClientCall, RequestOutcome};
use crate::listener::pieces::{MessageSlices, QueuedMessage};
use crate::listener::press::BodyPace;
use crate::mcp::capability::initialize_result;
use crate::mcp::client_name::ClientName;
use crate::mcp::version::{Era, Revision};
use crate::policy::Caller;
use crate::serve::feed::ClientNotifications;
use crate::serve::listening::OpenSubscription;
use crate::serve::open_request::{OpenRequest, SharedProtocol};
use crate::telemetry::metrics::CountedConnection;
use crate::wire::code;
use crate::wire::frame::JsonBounds;
use crate::wire::id::ClientId;
use crate::wire::lines::{LineDecoder, StreamLine};
use crate::wire::message::{self, Message};

mod departure;
mod news;
pub mod posts;
mod write;

use self::departure::Departure;
pub use self::departure::{LEAVING, LEFT};
use self::posts::PostedCredential;
use self::write::{READ_CHUNK, write};

/// Most messages that may wait for the client to read.
const OUTBOUND: usize = 64;
/// How long a client whose input has ended may leave its answers unread before it counts as gone.
const UNREAD: Duration = Duration::from_secs(1);

/// Notification by which a relay of lines says that its own input has ended: its client answers no
/// more questions, and only waits for the answers to its requests.
pub const INPUT_OVER: &str = r#"{"jsonrpc":"2.0","method":"notifications/headend/input_over"}"#;

/// A client on a pipe, and the limits that apply to it.
pub struct LineClient {
    pub service: Arc<Service>,
    pub caller: Caller,
    pub access: Arc<Access>,
    pub profile: Option<Arc<str>>,
    /// Counts the connection and its bytes; `None` if that happens elsewhere.
    pub connected: Option<CountedConnection>,
    /// True for a client on this machine.
    pub is_here: bool,
    /// The credential of a client whose messages arrive by POST; they have room and were admitted
    /// already. `None` for other clients.
    pub posts: Option<Arc<PostedCredential>>,
    /// True if the end of the input ends only the input: requests before it are still answered.
    pub drains: bool,
    /// True for a relay that answers [`LEAVING`].
    pub is_relay: bool,
    pub max_line_bytes: usize,
    /// Most URIs that one subscription may name.
    pub max_uris: usize,
}

/// Serves one client until its input or its access ends, or `stop` fires. Then cancels calls in
/// flight, unless the client [`drains`](LineClient::drains).
pub async fn serve(
    client: LineClient,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) {
    let (out, outbound) = channel();
    let written = TaskGroup::default();
    let connected = &client.connected;
    let counter = |of: fn(&CountedConnection) -> IntCounter| connected.as_ref().map(of);
    let count = |counter: Option<IntCounter>| {
        move |bytes: &[u8]| counter.iter().for_each(|counter| counter.inc_by(bytes.len() as u64))
    };
    let reader = InspectReader::new(reader, count(counter(CountedConnection::received)));
    let writer = InspectWriter::new(writer, count(counter(CountedConnection::sent)));
    written.spawn("writer", write(writer, outbound));
    let drains = client.drains;
    serve_to(client, reader, out, stop).await;
    if drains {
        // A host that reads nothing loses its last answers.
        return drop(tokio::time::timeout(UNREAD, written.join()).await);
    }
    written.join().await;
}

/// Creates the queue of messages to a client.
pub fn channel() -> (mpsc::Sender<QueuedMessage>, mpsc::Receiver<QueuedMessage>) {
    mpsc::channel(OUTBOUND)
}

/// Serves a client as [`serve`] does, with a queue for its messages. Closing it ends the client.
pub async fn serve_to(
    client: LineClient,
    reader: impl AsyncRead + Unpin,
    out: mpsc::Sender<QueuedMessage>,
    stop: CancellationToken,
) {
    let mut reader = reader;
    let tasks = TaskGroup::default();
    let mut room = BudgetRoom::of_request(&client.service.budget, client.access.caller());
    let has_room = client.posts.is_some();
    // True if the current line is discarded for lack of room, not for its size.
    let mut no_room = false;
    let mut decoder = LineDecoder::new(client.max_line_bytes);
    let mut pace = BodyPace::new();
    let connection = Arc::new(LineConnection {
        client,
        out,
        tasks: tasks.clone(),
        protocol: SharedProtocol::default(),
        legacy: OnceLock::new(),
        entry: OnceLock::new(),
        tag: ClientTag::new(),
        input_over: CancellationToken::new(),
    });
    let (budget, caller) = (&connection.client.service.budget, connection.client.access.caller());
    let mut has_ended = false;
    let mut departure = Departure::default();
    let mut arriving = connection.client.is_relay.then(|| Arc::clone(&connection.client.service.arriving));
    'serving: loop {
        while let Some(line) = decoder.next_line() {
            match line {
                StreamLine::Full(line) if departure.is_over(&line) => {
                    arriving = None;
                    connection.end_listens().await;
                }
                StreamLine::Full(line) => connection.line(room.keep(line)).await,
                StreamLine::Oversize { prefix, .. } => {
                    let (step, flow) = ClientProtocol::skipped(&prefix, std::mem::take(&mut no_room));
                    connection.act(step).await;
                    if flow.is_break() {
                        break 'serving;
                    }
                }
            }
        }
        if !has_room {
            room.set(decoder.held());
        }
        let mut has_failed = false;
        if !has_room && decoder.held() >= COUNTED_FROM && room.try_grow_to(decoder.held() + READ_CHUNK).is_err() {
            has_failed = tokio::select! {
                grown = room.grow_to(decoder.held() + READ_CHUNK) => grown.is_err(),
                () = stop.cancelled() => break,
                () = connection.client.access.ended() => break,
                () = connection.out.closed() => break,
            };
            // The client did not cause the wait.
            pace = BodyPace::new();
        }
        if !has_failed {
            let held = if has_room { 0 } else { decoder.held() };
            let mut free = decoder.buffer().limit(READ_CHUNK);
            let read = tokio::select! {
                read = reader.read_buf(&mut free) => Some(read),
                () = pace.wait_until_too_slow(held, budget, caller) => None,
                () = departure.is_due(&stop) => {
                    if departure.begin(connection.client.is_relay, &connection.out, budget) { continue } else { break }
                }
                () = or_never(departure.has_left().then(|| tasks.join())) => break,
                () = connection.client.access.ended() => break,
                () = connection.given_up() => break,
                () = connection.out.closed() => break,
            };
            match read {
                Some(Ok(bytes)) if bytes > 0 => pace.count(bytes, decoder.held()),
                Some(read) => {
                    has_ended = read.is_ok();
                    break;
                }
                None => has_failed = true,
            }
        }
        if has_failed {
            connection.client.service.metrics.limit_hit("max-buffered");
            room.set(0);
            decoder.discard();
            no_room = true;
        }
    }
    drop(arriving);
    if has_ended && connection.client.drains {
        if let Some(StreamLine::Full(line)) = decoder.last_line() {
            connection.line(room.keep(line)).await;
        }
        connection.drain(&stop).await;
    }
    if stop.is_cancelled() {
        connection.end_listens().await;
        // The gateway is ending, not the client: calls may complete until the gateway gives up.
        tasks.join().await;
    }
    tasks.stop();
    connection.client.service.approvals.session_ended(connection.tag.number());
    drop(connection);
    tasks.join().await;
}

/// The state of one client on a pipe.
struct LineConnection {
    client: LineClient,
    out: mpsc::Sender<QueuedMessage>,
    tasks: TaskGroup,
    protocol: SharedProtocol,
    /// The client's context as a legacy client, once it has sent `initialize`.
    legacy: OnceLock<ClientContext>,
    /// The entry among connected clients, once the client has sent something.
    entry: OnceLock<ConnectedClient>,
    tag: Arc<ClientTag>,
    /// Fires when the input has ended, while its requests are still being answered.
    input_over: CancellationToken,
}

impl LineConnection {
    /// Handles one line: a message, a batch, or the end of a relay's input.
    async fn line(self: &Arc<Self>, line: Bytes) {
        if *line == *INPUT_OVER.as_bytes() {
            return self.end_input();
        }
        let heard = ClientInput::read(line, JsonBounds::CLIENT);
        let requests = heard.requests();
        match heard {
            ClientInput::Message(said) => self.message(said, self.admit(requests)).await,
            ClientInput::Batch(batch) => {
                if let Some(text) = batch.refusal(self.legacy.get().map(|client| client.revision)) {
                    let error = message::error_object(code::INVALID_REQUEST, text, None);
                    return self.act(ClientAction::Complain(error)).await;
                }
                let admitted = self.admit(requests);
                for said in batch.into_messages() {
                    self.message(said, admitted).await;
                }
            }
        }
    }

    /// Handles one message. `admitted`: the caller's rate allows the requests in its line.
    async fn message(self: &Arc<Self>, said: ClientMessage, admitted: Result<(), RateExceeded>) {
        if let (Ok(Message::Request(request)), Err(over)) = (&said, admitted) {
            return self.answer(&request.id, RequestAnswer::error(code::INTERNAL, &over.to_string(), None)).await;
        }
        let step = self.protocol.lock().heard(said, None);
        self.act(step).await;
    }

    /// Carries out what the protocol asks for after a message.
    async fn act(self: &Arc<Self>, step: ClientAction<CancellationToken>) {
        match step {
            ClientAction::Nothing => {}
            ClientAction::Answer(id, answer) => self.answer(&id, answer).await,
            ClientAction::Complain(error) => {
                if self.protocol.lock().complains(clock::now()) {
                    self.send(message::encode_error(None, &error)).await;
                }
            }
            ClientAction::Initialize(id, revision, capabilities, name) => {
                let client = self.context(revision).initialized(capabilities.as_ref(), name.clone());
                // Boxed: this happens once, and inlining it would grow the future of every message.
                Box::pin(self.initialize(id, client, name)).await;
            }
            ClientAction::Serve(served) => self.serve(served).await,
            ClientAction::Cancel(ticket) => ticket.cancel(),
            ClientAction::Initialized => {
                let Some(client) = self.legacy.get().cloned() else { return };
                let (connection, news) =
                    (Arc::clone(self), ClientNotifications::new(&self.client.service, client, None));
                self.tasks.spawn("feed", async move { connection.tell(news).await });
            }
            ClientAction::Answered(response) => {
                if let Some(client_requests) = self.legacy.get().and_then(|client| client.client_requests.as_ref()) {
                    client_requests.answered(response);
                }
            }
        }
    }

    /// Answers `initialize`, and keeps what the client said in it.
    async fn initialize(self: &Arc<Self>, id: ClientId, client: ClientContext, name: Option<ClientName>) {
        self.enter(|| name.clone());
        self.client.service.name_host(|| name);
        // Set once for each connection.
        drop(self.legacy.set(client.clone()));
        let (extensions, instructions) = self.client.service.greeting(&client).await;
        let result = initialize_result(client.revision, extensions, &instructions);
        self.answer(&id, RequestAnswer::ok(result)).await;
    }

    /// Queues a message for the client, and waits while the queue is full.
    async fn send(&self, message: impl Into<MessageSlices>) {
        // If the client is gone, the writer has ended, and there is no one to send the message to.
        drop(self.out.send(QueuedMessage::new(message, &self.client.service.budget)).await);
    }

    async fn answer(&self, id: &ClientId, answer: RequestAnswer) {
        self.send(MessageSlices::answer(id.raw(), answer)).await;
    }

    fn context(&self, revision: Revision) -> ClientContext {
        let client =
            ClientContext::new(self.client.caller.clone(), self.access(), self.client.profile.clone(), revision);
        let input_over = Some(self.input_over.clone());
        ClientContext { tag: Some(Arc::clone(&self.tag)), is_here: self.client.is_here, input_over, ..client }
    }

    /// Returns the access of the message that is handled.
    fn access(&self) -> Arc<Access> {
        let posted = self.client.posts.as_ref().map(|posts| posts.access());
        posted.unwrap_or_else(|| Arc::clone(&self.client.access))
    }

    /// Resolves when a client that posts its messages has been without a valid credential for too
    /// long, and has no request open. Cancel-safe.
    async fn given_up(&self) {
        or_never(self.client.posts.as_ref().map(|posts| posts.given_up(|| self.protocol.lock().is_idle()))).await;
    }

    /// Adds the client to the connected clients, once.
    fn enter(&self, name: impl FnOnce() -> Option<ClientName>) {
        self.entry.get_or_init(|| self.client.service.clients.enter(&self.client.caller, name()));
    }

    /// Counts requests against the caller's rate, unless a POST has done so.
    fn admit(&self, requests: usize) -> Result<(), RateExceeded> {
        if self.client.posts.is_some() {
            Ok(())
        } else {
            self.client.service.admission.admit(&self.client.caller, requests)
        }
    }

    /// Serves a request, in a task of its own if it takes time.
    async fn serve(self: &Arc<Self>, served: ServedRequest<CancellationToken>) {
        let ServedRequest { request, revision, params, listens, ticket } = served;
        let open = OpenRequest::new(&self.protocol, &request.id, ticket);
        let client = match self.legacy.get().filter(|_| revision.era() == Era::Legacy) {
            // Another credential of the caller may give other rights.
            Some(client) => ClientContext { access: self.access(), ..client.clone() },
            None => {
                self.enter(|| params.meta.client_info().and_then(ClientName::read));
                self.client.service.name_host(|| params.meta.client_name());
                let (offered, apps) = params.meta.client_offer();
                ClientContext { offered, apps, ..self.context(revision) }
            }
        };
        if listens {
            let id = request.id.raw().clone();
            let Some(share) = self.client.service.admission.quota.take(&self.client.caller, QuotaKind::Stream) else {
                return self
                    .done(open, &request.id, RequestAnswer::error(code::INTERNAL, "too many streams", None))
                    .await;
            };
            let (service, max_uris) = (&self.client.service, self.client.max_uris);
            // Boxed: this is rare, and inlining it would grow every request's future.
            return match Box::pin(OpenSubscription::open(service, client, &id, &params.object, max_uris)).await {
                Err(refused) => self.done(open, &request.id, refused).await,
                Ok(listening) => {
                    let connection = Arc::clone(self);
                    self.tasks.spawn("listen", async move {
                        connection.follow(listening, &id, &open).await;
                        drop(share);
                    });
                }
            };
        }
        self.client.service.settled().await;
        match self.client.service.handle(&client, &request, Ok(params)) {
            RequestOutcome::Answer(answer) => self.done(open, &request.id, answer).await,
            RequestOutcome::Later(answer) => {
                let connection = Arc::clone(self);
                self.tasks.spawn("answer", async move { connection.done(open, &request.id, answer.await).await });
            }
            RequestOutcome::Overloaded => {
                self.done(open, &request.id, RequestAnswer::error(code::INTERNAL, "too many calls in flight", None))
                    .await;
            }
            RequestOutcome::Call(call) => {
                let connection = Arc::clone(self);
                self.tasks.spawn("call", async move { connection.run(call, &request.id, open).await });
            }
        }
    }

    /// Answers a request. Its id is free again before the client can read the answer.
    async fn done(&self, open: OpenRequest, id: &ClientId, answer: RequestAnswer) {
        drop(open);
        self.answer(id, answer).await;
    }

    /// Runs a call to its answer and sends its events.
    async fn run(&self, mut call: Box<ClientCall>, id: &ClientId, open: OpenRequest) {
        loop {
            let is_held = call.is_held();
            let event = tokio::select! {
                biased;
                () = open.cancelled.cancelled(), if is_held => return,
                () = self.tasks.stop_token().cancelled(), if is_held => return,
                event = call.next() => event,
                () = open.cancelled.cancelled() => return call.withdraw(),
                () = self.tasks.stop_token().cancelled() => return,
            };
            match event {
                ClientEvent::Done(answer) => return self.done(open, id, answer).await,
                ClientEvent::Question(question) => self.send(question).await,
                // A client that does not read loses progress notifications, never an answer.
                ClientEvent::Notice(notice) => {
                    drop(self.out.try_send(QueuedMessage::new(notice, &self.client.service.budget)))
                }
            }
        }
    }

    /// Marks the input as ended: no more answers and changes for the client, and held calls end.
    fn end_input(&self) {
        if let Some(client_requests) = self.legacy.get().and_then(|client| client.client_requests.as_ref()) {
            client_requests.close();
        }
        self.input_over.cancel();
        self.protocol.lock().listens().for_each(CancellationToken::cancel);
    }

    /// Waits, after the input has ended, for all answers, or until the client stops reading.
    async fn drain(&self, stop: &CancellationToken) {
        self.end_input();
        let stuck = async {
            let mut is_full = false;
            while !(std::mem::replace(&mut is_full, self.out.capacity() == 0) && is_full) {
                tokio::time::sleep(UNREAD).await;
            }
        };
        tokio::select! {
            () = self.tasks.join() => {}
            () = stop.cancelled() => {}
            () = self.client.access.ended() => {}
            () = self.out.closed() => {}
            () = stuck => {}
        }
    }

    /// Ends subscriptions, so that only calls are left, unless the drain ends them already.
    async fn end_listens(&self) {
        if !self.client.service.draining.is_cancelled() {
            self.protocol.lock().listens().for_each(CancellationToken::cancel);
        }
        tokio::task::yield_now().await;
    }
}
