//! A very fast MCP server, so that the measurement shows the program in front of it.
//!
//! One thread: the load generator takes another, and the rest is for the gateway.

mod script;

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::serve;
use crate::tls::CertificateFiles;
use crate::upstream::script::{RenderedScript, ScriptReply};

/// The revisions an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchUpstreamEras {
    /// `initialize` with a session, and the stateless revision.
    Both,
    /// `initialize` with a session alone; `server/discover` is unknown.
    Legacy,
}

/// The form of an upstream's answers over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchResponseKind {
    /// One JSON body.
    Json,
    /// An event stream.
    Sse,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpstreamOptions {
    /// Where to listen, repeatable; port 0 takes a free one.
    #[arg(long, required_unless_present = "stdio")]
    listen: Vec<SocketAddr>,
    /// Speak newline-delimited JSON-RPC on stdin and stdout.
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
    /// Number of tools to list, at least the four that can be called.
    #[arg(long, default_value_t = 4)]
    tools: usize,
    /// How a call is answered over HTTP.
    #[arg(long, default_value = "json")]
    answers: BenchResponseKind,
    /// Which revisions to speak.
    #[arg(long, default_value = "both")]
    eras: BenchUpstreamEras,
    /// Speak TLS, by the certificates in this folder.
    #[arg(long)]
    tls: Option<PathBuf>,
    /// End when stdin closes.
    #[arg(long, hide = true)]
    until_eof: bool,
}

pub(crate) fn main(options: &UpstreamOptions) -> anyhow::Result<()> {
    if options.stdio {
        return stdio(&RenderedScript::new(options.tools, options.eras));
    }
    if options.until_eof {
        crate::exit_at_eof();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let server = Arc::new(BenchUpstream::of(options.tools, options.eras, options.answers));
        let acceptor = options.tls.as_deref().map(|folder| CertificateFiles::at(folder).acceptor()).transpose()?;
        let mut accepting = JoinSet::new();
        for listener in serve::bind(&options.listen).await? {
            accepting.spawn(listen(listener, acceptor.clone(), Arc::clone(&server)));
        }
        while let Some(ended) = accepting.join_next().await {
            ended.context("accept connections")??;
        }
        Ok(())
    })
}

/// Answers line by line; writes once for all the requests that one read brought.
fn stdio(script: &RenderedScript) -> anyhow::Result<()> {
    let mut input = BufReader::with_capacity(64 << 10, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let (mut line, mut pending) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line).context("read stdin")? > 0 {
        for message in script.reply(&line).into_messages() {
            message.iter().for_each(|piece| pending.extend_from_slice(piece));
            pending.push(b'\n');
        }
        line.clear();
        if memchr::memchr(b'\n', input.buffer()).is_none() {
            output.write_all(&pending).and_then(|()| output.flush()).context("write stdout")?;
            pending.clear();
        }
    }
    Ok(())
}

/// One upstream over HTTP.
#[derive(Debug)]
pub(crate) struct BenchUpstream {
    script: RenderedScript,
    answers: BenchResponseKind,
    sessions: AtomicU64,
}

impl BenchUpstream {
    pub(crate) fn of(tools: usize, eras: BenchUpstreamEras, answers: BenchResponseKind) -> Self {
        Self { script: RenderedScript::new(tools, eras), answers, sessions: AtomicU64::new(0) }
    }

    /// Answers one request. Sessions are handed out and not checked; the end-to-end tests check
    /// them.
    async fn handle(&self, request: Request<Incoming>) -> Result<Response<ReadyBody>, hyper::Error> {
        let method = request.method().clone();
        if method == Method::GET {
            return Ok(event_stream(ReadyBody::open()));
        }
        if method == Method::DELETE {
            return Ok(status(StatusCode::NO_CONTENT));
        }
        if method != Method::POST {
            let mut refusal = status(StatusCode::METHOD_NOT_ALLOWED);
            refusal.headers_mut().insert(ALLOW, http::HeaderValue::from_static("GET, POST, DELETE"));
            return Ok(refusal);
        }
        let body = request.into_body().collect().await?.to_bytes();
        Ok(match (self.script.reply(&body), self.answers) {
            (ScriptReply::Nothing, _) => status(StatusCode::ACCEPTED),
            (ScriptReply::Opened(message), _) => {
                let mut answer = json(message);
                let session = self.sessions.fetch_add(1, Ordering::Relaxed);
                answer.headers_mut().insert("mcp-session-id", http::HeaderValue::from(session));
                answer
            }
            (ScriptReply::Message(message), BenchResponseKind::Json) => json(message),
            (reply, _) => event_stream(ReadyBody::events(reply.into_messages())),
        })
    }
}

/// Serves one listener until accepting fails.
///
/// # Errors
/// When a connection cannot be accepted.
pub(crate) async fn listen(
    listener: tokio::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
    server: Arc<BenchUpstream>,
) -> anyhow::Result<()> {
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { server.handle(request).await }
    });
    serve::serve(listener, acceptor, service).await
}

fn status(code: StatusCode) -> Response<ReadyBody> {
    let mut response = Response::new(ReadyBody::sized(Vec::new()));
    *response.status_mut() = code;
    response
}

fn json(message: Vec<Bytes>) -> Response<ReadyBody> {
    let mut response = Response::new(ReadyBody::sized(message));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn event_stream(events: ReadyBody) -> Response<ReadyBody> {
    let mut response = Response::new(events);
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/event-stream"));
    response
}

/// A body of ready pieces: sized when it is one message, chunked when it is a stream of events.
#[derive(Debug)]
pub(crate) struct ReadyBody {
    ready: std::vec::IntoIter<Bytes>,
    sized: bool,
    stays_open: bool,
}

impl ReadyBody {
    fn sized(pieces: Vec<Bytes>) -> Self {
        Self { ready: pieces.into_iter(), sized: true, stays_open: false }
    }

    fn events(messages: Vec<Vec<Bytes>>) -> Self {
        let events = messages.into_iter().map(|message| {
            let mut event = b"event: message\ndata: ".to_vec();
            message.iter().for_each(|piece| event.extend_from_slice(piece));
            event.extend_from_slice(b"\n\n");
            Bytes::from(event)
        });
        Self { ready: events.collect::<Vec<_>>().into_iter(), sized: false, stays_open: false }
    }

    /// Returns a stream that begins with a comment, so that its head is sent at once, and never
    /// ends.
    fn open() -> Self {
        Self { ready: vec![Bytes::from_static(b":\n\n")].into_iter(), sized: false, stays_open: true }
    }
}

impl Body for ReadyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.ready.next() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            // Nothing will wake the task: the stream ends with its connection.
            None if self.stays_open => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.as_slice().is_empty() && !self.stays_open
    }

    fn size_hint(&self) -> SizeHint {
        if self.sized {
            SizeHint::with_exact(self.ready.as_slice().iter().map(|piece| piece.len() as u64).sum())
        } else {
            SizeHint::default()
        }
    }
}
