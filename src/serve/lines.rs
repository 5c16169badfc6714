//! MCP over lines in both eras: stdin and stdout of `headend stdio`, connections of the admin socket that want MCP, and what
//! [`super::legacy_sse`] makes of a stream and its POSTs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;

use crate::engine::answer::{Answer, not_found};
use crate::engine::client::heard::{Heard, Said, Unreadable};
use crate::engine::route::{Params, params_object};
use crate::mcp::capability::initialize_result;

use crate::base::budget::{COUNTED_FROM, Room};
use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::gateway::admission::OverRate;
use crate::gateway::awaiting_approval::ClientCall;
use crate::gateway::awaiting_approval::Handled;
use crate::gateway::call::ClientEvent;
use crate::gateway::client::ClientContext;
use crate::gateway::question::client_requests::ClientRequests;
use crate::gateway::quota::Good;
use crate::gateway::service::Service;
use crate::gateway::watched::Subscriptions;
use crate::listener::pieces::{Pieces, Queued};
use crate::mcp::input::Kinds;
use crate::mcp::log::LogSwitch;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::serve::feed::{Feed, unclaimed, updated_notice};
use crate::serve::modern::{Wanted, claimed_revision, listen_end};
use crate::serve::open_request::{OpenRequest, Protocol};
use crate::telemetry::metrics::Connected;
use crate::upstream::session_news::ClientTag;
use crate::wire::code;
use crate::wire::frame::Bounds;
use crate::wire::id::ClientId;
use crate::wire::lines::{Line, LineDecoder};
use crate::wire::message::{self, Message, Notification, Request, Response};
use crate::wire::raw::{RawJson, RawObject};
use crate::wire::start::Start;

/// Messages that may wait for the client to read.
const OUTBOUND: usize = 64;
/// Standard input is read through a buffer of this size, in bytes.
const READ_CHUNK: usize = 64 * 1024;

/// One client on a pipe.
pub(crate) struct LineClient {
    pub(crate) service: Arc<Service>,
    pub(crate) caller: Arc<str>,
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) settled: watch::Receiver<bool>,
    /// How it is counted; none where its connections are counted already.
    pub(crate) connected: Option<Connected>,
    /// On this machine.
    pub(crate) is_here: bool,
    /// What it says comes by POST, and has room and is admitted already.
    pub(crate) by_post: bool,
    pub(crate) max_line_bytes: usize,
    pub(crate) bounds: Bounds,
    /// URIs that one subscription may name.
    pub(crate) max_uris: usize,
}

/// Serves one client until its input ends or `stop` fires. Calls in flight are cancelled then: on a pipe the end of the input
/// is the end of the client.
pub(crate) async fn serve(
    client: LineClient,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) {
    let (out, outbound) = channel();
    let written = TaskGroup::default();
    let connected = &client.connected;
    let counter = |of: fn(&Connected) -> IntCounter| connected.as_ref().map(of);
    let count = |counter: Option<IntCounter>| {
        move |bytes: &[u8]| counter.iter().for_each(|counter| counter.inc_by(bytes.len() as u64))
    };
    let reader = InspectReader::new(reader, count(counter(Connected::received)));
    let writer = InspectWriter::new(writer, count(counter(Connected::sent)));
    written.spawn("writer", write(writer, outbound));
    serve_to(client, reader, out, stop).await;
    written.join().await;
}

/// The way to a client, and its other end.
pub(crate) fn channel() -> (mpsc::Sender<Queued>, mpsc::Receiver<Queued>) {
    mpsc::channel(OUTBOUND)
}

/// The same where the messages for the client are taken from a channel. The client is gone when that is closed.
pub(crate) async fn serve_to(
    client: LineClient,
    reader: impl AsyncRead + Unpin,
    out: mpsc::Sender<Queued>,
    stop: CancellationToken,
) {
    let mut reader = reader;
    let tasks = TaskGroup::default();
    let connected = client.connected;
    let mut room = Room::new(&client.service.budget);
    let has_room = client.by_post;
    // The line that is read is given up for want of room, not for its size.
    let mut no_room = false;
    let mut decoder = LineDecoder::new(client.max_line_bytes);
    let connection = Arc::new(Connection {
        service: client.service,
        caller: client.caller,
        profile: client.profile,
        settled: client.settled,
        is_here: client.is_here,
        is_admitted: client.by_post,
        bounds: client.bounds,
        max_uris: client.max_uris,
        out,
        tasks: tasks.clone(),
        protocol: Protocol::default(),
        legacy: Mutex::new(None),
        client_requests: Mutex::new(None),
        log: Arc::default(),
        tag: ClientTag::new(),
        watched: Arc::default(),
        last_complaint: Mutex::new(None),
    });
    'serving: loop {
        while let Some(line) = decoder.next_line() {
            match line {
                Line::Full(line) => connection.line(room.keep(line)).await,
                Line::Oversize { prefix, .. } => {
                    if connection.skipped(&prefix, std::mem::take(&mut no_room)).await.is_break() {
                        break 'serving;
                    }
                }
            }
        }
        if !has_room {
            room.set(decoder.held());
        }
        if !has_room && decoder.held() >= COUNTED_FROM {
            let grown = tokio::select! {
                grown = room.grow_to(decoder.held() + READ_CHUNK) => grown,
                () = stop.cancelled() => break,
                () = connection.out.closed() => break,
            };
            if grown.is_err() {
                connection.service.metrics.limit_hit("max-buffered");
                room.set(0);
                decoder.discard();
                no_room = true;
            }
        }
        let mut free = decoder.buffer().limit(READ_CHUNK);
        let read = tokio::select! {
            read = reader.read_buf(&mut free) => read,
            () = stop.cancelled() => break,
            () = connection.out.closed() => break,
        };
        if !matches!(read, Ok(n) if n > 0) {
            break;
        }
    }
    if stop.is_cancelled() {
        connection.end_listens().await;
        // The gateway ends, not the client: calls in flight may finish until the gateway gives them up.
        tasks.join().await;
    }
    tasks.stop();
    connection.service.approvals.session_ended(connection.tag.number());
    drop(connection);
    tasks.join().await;
    drop(connected);
}

/// Writes what has gathered in one go, and large messages from where they are.
async fn write(mut writer: impl AsyncWrite + Unpin, mut outbound: mpsc::Receiver<Queued>) {
    let mut buffer = BytesMut::new();
    while let Some(first) = outbound.recv().await {
        // A client that reads no more closes the channel, and its senders notice.
        let Ok(()) = gathered(&mut writer, &mut buffer, first, &mut outbound).await else { return };
    }
}

async fn gathered(
    writer: &mut (impl AsyncWrite + Unpin),
    buffer: &mut BytesMut,
    first: Queued,
    outbound: &mut mpsc::Receiver<Queued>,
) -> std::io::Result<()> {
    let mut next = Some(first);
    while let Some(Queued { message, .. }) = &next {
        if message.len() < COUNTED_FROM {
            message.copy_to(buffer);
        } else {
            writer.write_all(buffer).await?;
            buffer.clear();
            for slice in message.clone().slices() {
                writer.write_all(&slice).await?;
            }
        }
        buffer.put_u8(b'\n');
        next = if buffer.len() < READ_CHUNK { outbound.try_recv().ok() } else { None };
    }
    writer.write_all(buffer).await?;
    buffer.clear();
    writer.flush().await
}

struct Connection {
    service: Arc<Service>,
    caller: Arc<str>,
    profile: Option<Arc<str>>,
    settled: watch::Receiver<bool>,
    is_here: bool,
    /// Its requests are admitted before they come here.
    is_admitted: bool,
    bounds: Bounds,
    max_uris: usize,
    out: mpsc::Sender<Queued>,
    tasks: TaskGroup,
    /// Its open requests.
    protocol: Protocol,
    /// The revision that `initialize` agreed on.
    legacy: Mutex<Option<Revision>>,
    /// How that client is asked for input.
    client_requests: Mutex<Option<Arc<ClientRequests>>>,
    log: Arc<LogSwitch>,
    tag: Arc<ClientTag>,
    watched: Arc<Subscriptions>,
    last_complaint: Mutex<Option<std::time::Instant>>,
}

impl Connection {
    async fn line(self: &Arc<Self>, line: Bytes) {
        let heard = Heard::read(line, self.bounds);
        let requests = heard.requests();
        match heard {
            Heard::Message(said) => self.message(said, self.admit(requests)).await,
            Heard::Batch(batch) => {
                if let Some(text) = batch.refusal(self.revision()) {
                    return self.complain(message::error_object(code::INVALID_REQUEST, text, None)).await;
                }
                let admitted = self.admit(requests);
                for said in batch.into_messages() {
                    self.message(said, admitted).await;
                }
            }
        }
    }

    /// Answers a message of which only the start was kept. Where that does not name a request that waits for its answer, the
    /// connection ends, which its client notices.
    async fn skipped(&self, start: &[u8], no_room: bool) -> ControlFlow<()> {
        let (code, text) = match no_room {
            true => (code::INTERNAL, "the gateway holds as many bytes as it may; try again"),
            false => (code::INVALID_REQUEST, "the message is too large"),
        };
        let error = message::error_object(code, text, None);
        let id = |raw: &[u8]| RawJson::trusted(Bytes::copy_from_slice(raw));
        match Start::of(start) {
            Start::Request(raw) if let Some(id) = ClientId::from_raw(id(raw)) => {
                self.answer(&id, Answer { outcome: Err(error), status: None }).await;
                ControlFlow::Continue(())
            }
            Start::Answer(raw) => {
                if let Some(client_requests) = self.client_requests() {
                    client_requests.answered(Response { id: Some(id(raw)), outcome: Err(error), broken: None });
                }
                ControlFlow::Continue(())
            }
            Start::Notifies => ControlFlow::Continue(()),
            // The start of this line names no request, so no caller is known to wait for an answer.
            Start::Unknown if !no_room => {
                self.complain(error).await;
                ControlFlow::Continue(())
            }
            Start::Request(_) | Start::Asks | Start::Unknown => {
                self.complain(error).await;
                ControlFlow::Break(())
            }
        }
    }

    /// An error without an id, at most once a second: answering garbage with garbage would feed a storm.
    async fn complain(&self, error: RawJson) {
        let now = clock::now();
        let quiet = {
            let mut last = self.last_complaint.lock();
            let quiet = last.is_some_and(|at| now.duration_since(at) < Duration::from_secs(1));
            if !quiet {
                *last = Some(now);
            }
            quiet
        };
        if !quiet {
            self.send(message::encode_error(None, &error)).await;
        }
    }

    async fn send(&self, message: impl Into<Pieces>) {
        // The writer has ended when the client is gone; then nobody is left to tell.
        drop(self.out.send(Queued::new(message, &self.service.budget)).await);
    }

    async fn answer(&self, id: &ClientId, answer: Answer) {
        self.send(Pieces::answer(id.raw(), answer)).await;
    }

    fn revision(&self) -> Option<Revision> {
        *self.legacy.lock()
    }

    fn client_requests(&self) -> Option<Arc<ClientRequests>> {
        self.client_requests.lock().clone()
    }

    fn client(&self, revision: Revision) -> ClientContext {
        let client = ClientContext::new(Arc::clone(&self.caller), self.profile.clone(), revision);
        ClientContext { tag: Some(Arc::clone(&self.tag)), is_here: self.is_here, ..client }
    }

    fn admit(&self, requests: usize) -> Result<(), OverRate> {
        if self.is_admitted { Ok(()) } else { self.service.admission.admit(&self.caller, requests) }
    }

    /// Takes one message, with whether its requests are admitted.
    async fn message(self: &Arc<Self>, said: Said, admitted: Result<(), OverRate>) {
        match said {
            Ok(Message::Request(request)) => match admitted {
                Ok(()) => self.request(request).await,
                Err(over) => self.answer(&request.id, Answer::error(code::INTERNAL, &over.to_string(), None)).await,
            },
            Ok(Message::Notification(notification)) => self.notification(&notification),
            Ok(Message::Response(response)) => {
                if let Some(client_requests) = self.client_requests() {
                    client_requests.answered(response);
                }
            }
            Err(Unreadable { id: Some(id), error }) => {
                self.answer(&id, Answer { outcome: Err(error), status: None }).await;
            }
            Err(Unreadable { id: None, error }) => self.complain(error).await,
        }
    }

    /// The era is decided for each message: a claim in `_meta` is modern, `initialize` makes the rest legacy.
    async fn request(self: &Arc<Self>, request: Request) {
        let method = Method::parse(&request.method);
        let params = match Params::read(request.params.as_ref()) {
            Ok(params) => params,
            Err(error) => {
                return self.answer(&request.id, Answer::error(code::INVALID_PARAMS, &error.to_string(), None)).await;
            }
        };
        if params.meta.has_claim() {
            return match params.meta.modern() {
                Err(error) => {
                    self.answer(&request.id, Answer::error(code::INVALID_PARAMS, &error.to_string(), None)).await
                }
                Ok(envelope) => self.modern(request, method, params, &envelope.version).await,
            };
        }
        match (method, self.revision()) {
            (Method::Initialize, None) => self.initialize(&request, &params.object).await,
            (Method::Initialize, Some(_)) => {
                let text = "this connection is initialized already";
                self.answer(&request.id, Answer::error(code::INVALID_REQUEST, text, None)).await;
            }
            (_, Some(revision)) => self.serve(revision, request, params).await,
            (Method::Ping, None) => self.answer(&request.id, Answer::ok(RawJson::EMPTY_OBJECT)).await,
            (_, None) => {
                let text = format!(
                    "start with `initialize` (revisions up to {}) or send params._meta of {}",
                    Revision::preferred(Era::Legacy),
                    Revision::preferred(Era::Modern)
                );
                self.answer(&request.id, Answer::error(code::INVALID_PARAMS, &text, None)).await;
            }
        }
    }

    async fn initialize(self: &Arc<Self>, request: &Request, params: &RawObject) {
        let Some(version) = params.string("protocolVersion") else {
            let text = "`initialize` needs params.protocolVersion";
            return self.answer(&request.id, Answer::error(code::INVALID_PARAMS, text, None)).await;
        };
        let revision = Revision::negotiate(&version);
        *self.legacy.lock() = Some(revision);
        *self.client_requests.lock() = ClientRequests::new(params.get("capabilities"));
        self.answer(&request.id, Answer::ok(initialize_result(revision))).await;
    }

    async fn modern(self: &Arc<Self>, request: Request, method: Method, params: Params, claimed: &str) {
        match claimed_revision(claimed) {
            Err(refused) => self.answer(&request.id, refused).await,
            Ok(revision) if method == Method::Listen => self.listen(revision, request, &params.object).await,
            Ok(revision) => self.serve(revision, request, params).await,
        }
    }

    async fn serve(self: &Arc<Self>, revision: Revision, request: Request, params: Params) {
        if !Method::parse(&request.method).defined_in(revision.era()) {
            return self.answer(&request.id, not_found(&request.method, revision.era())).await;
        }
        if !*self.settled.borrow() {
            // The sender lives as long as the gateway.
            drop(self.settled.clone().wait_for(|settled| *settled).await);
        }
        let open = match self.enter(&request.id, false) {
            Ok(open) => open,
            Err(refused) => return self.answer(&request.id, refused).await,
        };
        let mut client = self.client(revision);
        client.offered = Kinds::of(params.meta.input_capabilities().as_ref());
        if revision.era() == Era::Legacy {
            client.client_requests = self.client_requests();
            client.offered =
                client.client_requests.as_ref().map(|client_requests| client_requests.offered).unwrap_or_default();
            client.log = Some(Arc::clone(&self.log));
            client.watched = Some(Arc::clone(&self.watched));
        }
        match self.service.handle(&client, &request, Ok(params)) {
            Handled::Answer(answer) => self.done(open, &request.id, answer).await,
            Handled::Later(answer) => {
                let connection = Arc::clone(self);
                self.tasks.spawn("answer", async move { connection.done(open, &request.id, answer.await).await });
            }
            Handled::Overloaded => {
                self.done(open, &request.id, Answer::error(code::INTERNAL, "too many calls in flight", None)).await;
            }
            Handled::Call(call) => {
                let connection = Arc::clone(self);
                self.tasks.spawn("call", async move { connection.run(call, &request.id, open).await });
            }
        }
    }

    fn enter(&self, id: &ClientId, listens: bool) -> Result<OpenRequest, Answer> {
        let ticket = self.protocol.lock().enter(id, listens)?;
        Ok(OpenRequest::new(&self.protocol, id, ticket))
    }

    /// Answers a request, whose id is free again before its client can know.
    async fn done(&self, open: OpenRequest, id: &ClientId, answer: Answer) {
        drop(open);
        self.answer(id, answer).await;
    }

    async fn run(&self, mut call: Box<ClientCall>, id: &ClientId, open: OpenRequest) {
        loop {
            let event = tokio::select! {
                biased;
                event = call.next() => event,
                () = open.cancelled.cancelled() => return call.withdraw(),
                () = self.tasks.stop_token().cancelled() => return,
            };
            match event {
                ClientEvent::Done(answer) => return self.done(open, id, answer).await,
                ClientEvent::Question(question) => self.send(question).await,
                // A client that does not read misses progress, never an answer.
                ClientEvent::Notice(notice) => drop(self.out.try_send(Queued::new(notice, &self.service.budget))),
            }
        }
    }

    fn notification(self: &Arc<Self>, notification: &Notification) {
        match notification.method.as_str() {
            "notifications/cancelled" => {
                let params = params_object(notification.params.as_ref()).unwrap_or_default();
                if let Some(id) = params.get("requestId").cloned().and_then(ClientId::from_raw) {
                    let ticket = self.protocol.lock().ticket(&id);
                    ticket.iter().for_each(CancellationToken::cancel);
                }
            }
            "notifications/initialized" => {
                if let Some(revision) = self.revision() {
                    let connection = Arc::clone(self);
                    self.tasks.spawn("feed", async move { connection.tell_changes(revision).await });
                }
            }
            _ => {}
        }
    }

    /// List changes for a legacy client, from `initialized` on.
    async fn tell_changes(&self, revision: Revision) {
        let offered = self.client_requests().map(|client_requests| client_requests.offered).unwrap_or_default();
        let client = ClientContext { offered, log: Some(Arc::clone(&self.log)), ..self.client(revision) };
        let mut feed = Feed::new(Arc::clone(&self.service), client.clone());
        loop {
            tokio::select! {
                methods = feed.changed() => for method in methods {
                    self.send(message::encode_notification(method, None)).await;
                },
                message = unclaimed(&client) => self.send(message).await,
                uris = self.watched.watcher.updated() => for uri in uris {
                    self.send(updated_notice(&uri, None)).await;
                },
                () = self.tasks.stop_token().cancelled() => return,
                () = self.service.draining.cancelled() => return,
                () = self.out.closed() => return,
            }
        }
    }

    async fn listen(self: &Arc<Self>, revision: Revision, request: Request, params: &RawObject) {
        let wanted = match Wanted::read(params, self.max_uris) {
            Ok(wanted) => wanted,
            Err(answer) => return self.answer(&request.id, answer).await,
        };
        let open = match self.enter(&request.id, true) {
            Ok(open) => open,
            Err(refused) => return self.answer(&request.id, refused).await,
        };
        let Some(share) = self.service.admission.quota.take(&self.caller, Good::Stream) else {
            return self.done(open, &request.id, Answer::error(code::INTERNAL, "too many streams", None)).await;
        };
        let connection = Arc::clone(self);
        self.tasks.spawn("listen", async move {
            connection.follow(revision, &wanted, request.id.raw(), &open).await;
            drop(share);
        });
    }

    async fn follow(&self, revision: Revision, wanted: &Wanted, id: &RawJson, open: &OpenRequest) {
        let client = ClientContext { offered: wanted.offered, ..self.client(revision) };
        let mut feed = Feed::new(Arc::clone(&self.service), client.clone());
        let (watcher, watched) = wanted.watch(&self.service, &client).await;
        self.send(wanted.acknowledged(id, &watched)).await;
        loop {
            tokio::select! {
                methods = feed.changed() => for method in methods {
                    if let Some(notice) = wanted.notice(id, method) {
                        self.send(notice).await;
                    }
                },
                uris = watcher.updated() => for uri in uris {
                    self.send(wanted.updated(id, &uri)).await;
                },
                () = open.cancelled.cancelled() => return,
                () = self.tasks.stop_token().cancelled() => return,
                () = self.service.draining.cancelled() => {
                    self.send(listen_end(id)).await;
                    let params = RawJson::trusted(format!(r#"{{"requestId":{}}}"#, id.text()));
                    return self.send(message::encode_notification("notifications/cancelled", Some(&params))).await;
                }
                () = self.out.closed() => return,
            }
        }
    }

    /// Ends subscriptions and feeds so that only calls are left.
    async fn end_listens(&self) {
        if !self.service.draining.is_cancelled() {
            self.protocol.lock().listens().for_each(CancellationToken::cancel);
        }
        tokio::task::yield_now().await;
    }
}
