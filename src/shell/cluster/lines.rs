//! The link to an upstream's program that another replica runs: one request whose body and response
//! are both streams of lines, the messages to the program and from it.
//!
//! The replica that asks has judged and recorded each call, so the owner serves the program as it
//! is, and to living replicas alone. The seal of such a request names a method that no request of a
//! client has, so none that is passed on can be taken for one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, split};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::cluster::membership::Cluster;
use crate::cluster::passed::{CALLER, is_served_by, single};
use crate::engine::sealed::peer::{PassedCredential, PassedRequest};
use crate::engine::sealed::run_id::{RunId, split_mark};
use crate::policy::Caller;
use crate::wire::digest::Digest;

/// The path of an upstream's program, before the upstream's name.
const PATH: &str = "/headend/programs/";
/// The method in the seal of such a request.
const METHOD: &str = "LINES";
/// Longest wait for the owner's answer, which waits for the program for a few seconds.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Bytes that are read at once, and pieces that wait for the connection.
const PIECE: usize = 32 * 1024;
const PIECES: usize = 4;

/// An open link to a program of another replica.
#[derive(Debug)]
pub struct ProgramLines {
    run: RunId,
    /// Name of the owner.
    pub owner: String,
    from: Incoming,
    to: mpsc::Sender<Bytes>,
    _slot: OwnedSemaphorePermit,
}

/// Returns the request that the seal of a link binds.
fn sealed_request(from: RunId, to: RunId, target: &str) -> PassedRequest<'_> {
    PassedRequest { from, to, method: METHOD, target, headers: [None, None], body: Digest::of(b"") }
}

/// Returns the upstream whose program a path names.
pub fn program_of_path(path: &str) -> Option<&str> {
    path.strip_prefix(PATH).filter(|name| !name.is_empty())
}

impl Cluster {
    /// Opens the link to the program of an upstream at its owner.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn open_lines(&self, owner: RunId, upstream: &str) -> Result<ProgramLines, String> {
        let peer = self.peer(owner).await.ok_or("the replica that runs it is gone, or names no `peer-url`")?;
        let (target, from) = (format!("{PATH}{upstream}"), self.run().ok_or("this replica has left its cluster")?);
        let credential = PassedCredential::Anyone;
        let sealed = self.vouch(&sealed_request(from, owner, &target), Caller::local(), credential);
        let header = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        let (to, pieces) = mpsc::channel::<Bytes>(PIECES);
        let pieces = stream::unfold(pieces, |mut pieces| async move {
            Some((Ok::<_, Infallible>(Frame::data(pieces.recv().await?)), pieces))
        });
        let mut request = Request::new(StreamBody::new(pieces).boxed_unsync());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target.parse().map_err(|_| "its name is no path")?;
        let headers = request.headers_mut();
        headers.insert(HOST, header(peer.authority.as_str())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        headers.insert(&CALLER, header(&from.mark(&sealed.ok_or("the request cannot be sealed")?))?);
        let name = peer.name.clone();
        let opened = timeout(HEAD_TIME, Box::pin(peer.open_lines(request))).await;
        let (response, slot) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(format!("replica `{name}` runs it: {error}")),
            Err(_) => return Err(format!("replica `{name}` runs it, and does not answer")),
        };
        if response.status() != StatusCode::OK || !is_served_by(response.headers(), owner) {
            return Err(format!("replica `{name}` runs it, and does not serve it at the moment"));
        }
        Ok(ProgramLines { run: owner, owner: name, from: response.into_body(), to, _slot: slot })
    }

    /// Returns the upstream whose program a request of another replica is for, and the run of this
    /// replica that it was sent to; `None` unless a living replica has sealed the request.
    pub async fn take_lines<'h>(&self, head: &'h Parts) -> Option<(&'h str, RunId)> {
        let upstream = program_of_path(head.uri.path()).filter(|_| head.method == Method::POST)?;
        let (from, sealed) = split_mark(single(&head.headers, &CALLER)?);
        let (from, own) = (from?, self.run()?);
        self.take_caller(&sealed_request(from, own, head.uri.path()), sealed).await?;
        Some((upstream, own))
    }
}

impl ProgramLines {
    /// Carries lines between the link and `stream` until one of them ends or the owner lives no
    /// longer. Returns the reason.
    pub async fn carry(self, cluster: &Arc<Cluster>, stream: DuplexStream) -> String {
        let Self { run, owner, mut from, to, _slot } = self;
        let (mut lines, mut messages) = split(stream);
        let send = async {
            let mut piece = BytesMut::new();
            loop {
                piece.reserve(PIECE);
                if !matches!(lines.read_buf(&mut piece).await, Ok(1..))
                    || to.send(piece.split().freeze()).await.is_err()
                {
                    return;
                }
            }
        };
        let receive = async {
            while let Some(Ok(frame)) = from.frame().await {
                if let Ok(data) = frame.into_data()
                    && messages.write_all(&data).await.is_err()
                {
                    return;
                }
            }
        };
        let over = format!("replica `{owner}` runs it no longer");
        tokio::select! {
            () = send => over,
            () = receive => over,
            () = cluster.ended(run) => format!("replica `{owner}`, which ran it, is gone"),
        }
    }
}
