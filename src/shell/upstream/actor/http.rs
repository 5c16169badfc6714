//! The task of an HTTP upstream: finds its era, reads its lists, and follows its stream of changes.
//! Calls do not pass through this task.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::{Method as HttpMethod, StatusCode};
use tokio::sync::Notify;

use crate::base::clock;
use crate::base::never::or_never;
use crate::catalog::inventory::ListGap;
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::connection::lost::{SessionVerdict, judge_status};
use crate::engine::handshake::{EraHint, HandshakeQuestion, LEGACY_ADVICE, listen_params};
use crate::engine::pace::stream_pace::{SHORTEST, StreamPace};
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::upstream::actor::context::{self, ActorContext, LifeResult, ready};
use crate::upstream::actor::http_lists::{HttpLists, ListStep};
use crate::upstream::actor::sse;
use crate::upstream::http::answer::{AnswerReader, AnswerRules, drain, is_event_stream};
use crate::upstream::http::exchange::HttpLink;
use crate::upstream::http::initialize::HandshakeFailure;
use crate::upstream::http::parts::{HeaderFields, LinkParts};
use crate::upstream::http::remote::RemoteServer;
use crate::upstream::line::connection::next_judged;
use crate::upstream::session::link::UpstreamLink;
use crate::upstream::spawner::Spawner;
use crate::upstream::state::http_error::HttpError;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{self, Message};

/// Change notifications within this time lead to one reading.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long the first call of a client's own session waits for the session's stream, on which its
/// answer may arrive.
const OPEN_TIME: Duration = Duration::from_millis(250);
/// How long the head of a change stream may take.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// How long the server has to give a sign of life after calls without an answer.
const SIGN_TIME: Duration = Duration::from_secs(5);
const SIGN_PAUSE: Duration = Duration::from_secs(1);

/// Serves an HTTP upstream until it cannot be reached any more or the gateway stops.
pub(crate) async fn serve(context: &ActorContext, remote: &Arc<RemoteServer>, hint: EraHint) -> LifeResult {
    let (handle, lane) = (&context.handle, &context.lane);
    let Spawner { stop, tasks, intake, .. } = &context.spawner;
    let down = |why: String, served| LifeResult { why, next: None, served };
    handle.health.flaws.hide_given(&handle.spec.load());
    let parts = LinkParts {
        remote: Arc::clone(remote),
        tasks: tasks.clone(),
        gauge: AnswerRules {
            ear: intake.ear(&handle.name),
            metrics: handle.metrics.clone(),
            flaws: Arc::clone(&handle.health.flaws),
            intake: intake.clone(),
            revision: None,
        },
        upstream: handle.name.clone(),
        declared: lane.declared.clone(),
        news: lane.news.clone(),
        is_main: lane.is_main(),
        start_limit: handle.start_limit(),
        stop: stop.clone(),
    };
    let (begun, limit) = (clock::now(), handle.start_limit());
    let opened = tokio::select! {
        opened = tokio::time::timeout(limit, HttpLink::open(&parts, hint)) => opened,
        () = stop.cancelled() => return down("stopped".to_owned(), None),
    };
    let link = match opened {
        Ok(Ok(link)) => link,
        Ok(Err(HandshakeFailure::Older(why))) => {
            let left = limit.saturating_sub(clock::now().duration_since(begun));
            let run = Box::pin(sse::serve(context, remote, left)).await;
            // A wrong URL fails both ways, and the operator should see both errors.
            let why = if run.served.is_none() { format!("{why}; over HTTP+SSE: {}", run.why) } else { run.why };
            return LifeResult { why, ..run };
        }
        Ok(Err(HandshakeFailure::Failed(why))) => return down(why, None),
        Err(_) => {
            handle.health.ran_out();
            let advice = if remote.is_probing.swap(false, Ordering::Relaxed) { LEGACY_ADVICE } else { "" };
            return down(format!("no answer to the handshake in time{advice}"), None);
        }
    };
    if lane.is_main() {
        handle.health.main_renewed();
    }
    let (opened, listed) = (Notify::new(), Notify::new());
    let mut following = Box::pin(follow(context, &link, &opened, &listed));
    if context.lists_first {
        tokio::select! {
            why = &mut following => return down(why, None),
            () = listed.notified() => {}
            () = stop.cancelled() => {
                link.close().await;
                return down("stopped".to_owned(), None);
            }
        }
    }
    if !lane.is_main() {
        tokio::select! {
            _never = &mut following => {}
            // The stream may open later; calls can do without it.
            _late = tokio::time::timeout(OPEN_TIME, opened.notified()) => {}
            () = stop.cancelled() => {}
        }
    }
    let ready_at = clock::now();
    ready(context, &link.agreed);
    context::open(context, UpstreamLink::Http(Arc::clone(&link))).await;
    let why = tokio::select! {
        why = following => why,
        () = stop.cancelled() => "stopped".to_owned(),
    };
    if stop.is_cancelled() {
        link.close().await;
    }
    down(why, Some(clock::now().duration_since(ready_at)))
}

/// Passes on all messages of a stream until its end, and skips unreadable events. Sets `has_lived`
/// when a message arrives. Cancel-safe.
async fn follow_stream(link: &Arc<HttpLink>, reader: &mut AnswerReader, has_lived: &mut bool) {
    let is_modern = link.agreed.revision.era() == Era::Modern;
    loop {
        match reader.next().await {
            // The result of `subscriptions/listen` ends the stream.
            Ok(Message::Response(_)) if is_modern => return,
            Ok(message) => {
                *has_lived |= !is_acknowledgement(&message);
                link.heard(message);
            }
            Err(HttpError::Protocol(_)) => {
                if let Some(call) = reader.take_unread() {
                    link.unread(call);
                }
            }
            Err(_) => return,
        }
    }
}

/// Returns whether a message only confirms that the stream of a modern server is open.
fn is_acknowledgement(message: &Message) -> bool {
    matches!(message, Message::Notification(notice) if notice.method == "notifications/subscriptions/acknowledged")
}

/// Follows the session's stream; notifies `opened` when it is open, or known not to open. On the
/// main lane also reads the lists, again whenever the upstream says so, and notifies `listed` when
/// clients see them. Returns the reason why the connection is given up.
async fn follow(context: &ActorContext, link: &Arc<HttpLink>, opened: &Notify, listed: &Notify) -> String {
    let (is_main, health) = (context.lane.is_main(), &context.handle.health);
    let mut asked = clock::now();
    // The stream is opened before the lists are read, so that no change is missed in between.
    let mut stream = open_changes(link).await;
    opened.notify_one();
    let mut judged = is_main.then(|| context.handle.judged.subscribe());
    let mut lists = is_main.then(|| HttpLists::new(context, link, true));
    // Time to open the stream again, while it is closed.
    let mut reopen = None;
    let mut pace = StreamPace::default();
    let mut has_stood = stream.stands();
    // True if messages of the server may have been missed.
    let mut is_behind = false;
    // Time of the last attempt of this lane to find out about a session whose stream the server
    // refuses.
    let mut sought: Option<Instant> = None;
    loop {
        let mut doubt = false;
        tokio::select! {
            () = stream.hear(link), if reopen.is_none() => {
                is_behind |= stream.has_lived();
                reopen = Some(stream.reopen(&mut pace));
            }
            () = clock::sleep_until(reopen), if reopen.is_some() => {
                stream = open_changes(link).await;
                reopen = None;
                opened.notify_one();
                // Changes may have been missed while the stream was closed, so everything is read
                // again.
                let is_read = std::mem::take(&mut is_behind);
                lists.iter_mut().filter(|_| is_read).for_each(HttpLists::reopened);
                let is_watching = is_main || !context.lane.news.updates.uris().is_empty();
                let is_gone = std::mem::replace(&mut has_stood, stream.stands()) && !stream.stands();
                if stream.may_tell_of_session(is_gone, link.agreed.revision.era()) && is_watching {
                    sought = Some(clock::now());
                    seek_session(link).await;
                }
            }
            () = link.renewed.notified() => {
                // A new session has a stream of its own, and a client's call in it may be under
                // way. The stream of a session that resulted from this lane's own check waits: a
                // server that forgets every session would otherwise get one handshake after the
                // other.
                let is_sought = sought.is_some_and(|at| clock::now().duration_since(at) < SHORTEST);
                let at = if is_main || is_sought { stream.reopen(&mut pace) } else { clock::now() };
                reopen = Some(reopen.map_or(at, |before| at.min(before)));
                is_behind = true;
            }
            () = link.outdated.notified() => return "the server speaks another revision, or offers something else, than before".to_owned(),
            () = health.doubted(asked), if is_main => doubt = true,
            () = link.changed.notified(), if is_main => {
                tokio::time::sleep(DEBOUNCE).await;
                lists.iter_mut().for_each(|lists| lists.changed(&link.take_changed()));
            }
            took = next_judged(&mut judged) => lists.iter_mut().for_each(|lists| lists.judged(took)),
            step = or_never(lists.as_mut().map(HttpLists::next)) => match step {
                ListStep::News(news) => {
                    let is_awaited = news.has_gap(ListGap::Awaited);
                    let shown = context.report_lists(news, link.agreed, !is_awaited).await;
                    if context.lists_first && !is_awaited {
                        let _supervisor_is_gone = shown.await;
                        listed.notify_one();
                    }
                }
                ListStep::Doubt => doubt = true,
                ListStep::Lost(why) => return why,
            },
        }
        if doubt {
            asked = clock::now() + SIGN_PAUSE;
            let was_away = health.begin_look();
            if let Some(why) = no_sign_of_life(context, link).await {
                return why;
            }
            health.answered();
            // It may have been replaced by another server, which no message told.
            if was_away {
                reopen = Some(clock::now() + SHORTEST);
                is_behind = true;
            }
        }
    }
}

/// Asks in a session whose stream is refused whether the server knows it: in the main session, or
/// in that of a client that watches resources. If the server does not know it, asking opens a new
/// one, in which the client's resources are watched again.
async fn seek_session(link: &Arc<HttpLink>) {
    let asked = tokio::time::timeout(SIGN_TIME, link.ask(Method::Ping, Some(&RawJson::EMPTY_OBJECT))).await;
    if let Ok(Err(error)) = asked {
        tracing::debug!(error = %error, "the stream of a session is refused, and nothing tells whether it lives");
    }
}

/// Asks the server for a sign of life, which any answer is except a server error. Returns the
/// reason if it counts as dead.
async fn no_sign_of_life(context: &ActorContext, link: &Arc<HttpLink>) -> Option<String> {
    let revision = link.agreed.revision;
    let (method, params) = match revision.era() {
        Era::Modern => (
            Method::Discover,
            HandshakeQuestion::Discover(revision).params(link.hop(), &DeclaredCapabilities::default()),
        ),
        Era::Legacy => (Method::Ping, RawJson::EMPTY_OBJECT),
    };
    let limit = context.handle.spec.load().call_timeout.min(SIGN_TIME);
    let name = method.as_str();
    match tokio::time::timeout(limit, link.ask(method, Some(&params))).await {
        Err(_) => Some(format!("`{name}` is not answered, like calls before it")),
        Ok(Err(error)) if error.is_of_a_dead_server() => Some(format!("`{name}`: {error}")),
        Ok(_) => None,
    }
}

/// The state of the upstream's stream of changes.
enum ChangeStream {
    /// The stream is open; the flag says whether it has brought a message.
    Stream(Box<AnswerReader>, bool),
    /// The stream could not be opened this time.
    Failed,
    /// The server refuses the stream in a way that may mean that it does not know the session.
    Refused,
    /// The upstream offers no stream.
    None,
}

impl ChangeStream {
    /// Follows the stream to its end. Never resolves if there is no stream, because only another
    /// session may have one. Cancel-safe.
    async fn hear(&mut self, link: &Arc<HttpLink>) {
        match self {
            Self::Stream(reader, has_lived) => follow_stream(link, reader, has_lived).await,
            Self::Failed => {}
            Self::Refused | Self::None => std::future::pending().await,
        }
    }

    fn stands(&self) -> bool {
        matches!(self, Self::Stream(..))
    }

    /// Returns whether the answer to the request for the stream may mean that a legacy server does
    /// not know the session; `is_gone` says that the previous stream was open.
    fn may_tell_of_session(&self, is_gone: bool, era: Era) -> bool {
        matches!(self, Self::Refused) || is_gone && era == Era::Legacy
    }

    /// Returns whether the stream has brought a message.
    fn has_lived(&self) -> bool {
        matches!(self, Self::Stream(_, true))
    }

    /// Returns the time to open the stream again, not before the time that the server asked for.
    fn reopen(&mut self, pace: &mut StreamPace) -> Instant {
        let has_lived = self.has_lived();
        let wish = match self {
            Self::Stream(reader, _) => reader.take_position().retry(),
            Self::Failed | Self::Refused | Self::None => None,
        };
        let now = clock::now();
        now + pace.ended(has_lived, wish, clock::jitter(), now)
    }
}

/// Opens the stream: by GET at a legacy server, by `subscriptions/listen` at a modern one.
async fn open_changes(link: &Arc<HttpLink>) -> ChangeStream {
    let modern = link.agreed.revision.era() == Era::Modern;
    if modern && !link.agreed.offers.changes {
        return ChangeStream::None;
    }
    let request = if modern {
        let params = listen_params(link.hop(), link.agreed.revision);
        let id = RawJson::trusted("\"listen\"");
        let body = message::encode_request(&id, Method::Listen.as_str(), Some(&params));
        link.request(HttpMethod::POST, body, &HeaderFields::of(Method::Listen, None))
    } else {
        link.request(HttpMethod::GET, bytes::Bytes::new(), &HeaderFields::default())
    };
    // A server may send the head of the stream only together with its first event; that must not
    // delay the lists.
    let response = match tokio::time::timeout(HEAD_TIME, link.send(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "change stream not opened");
            return ChangeStream::Failed;
        }
        Err(_) => return ChangeStream::None,
    };
    if response.status() != StatusCode::OK || !is_event_stream(&response) {
        let status = response.status();
        drain(response.into_body()).await;
        return match judge_status(status.as_u16()) {
            // A server without such a stream answers 405.
            SessionVerdict::Doubtful if status == StatusCode::METHOD_NOT_ALLOWED => ChangeStream::None,
            SessionVerdict::Lost | SessionVerdict::ByBody | SessionVerdict::Doubtful if !modern => {
                ChangeStream::Refused
            }
            SessionVerdict::Failing => ChangeStream::Failed,
            SessionVerdict::Lost | SessionVerdict::ByBody | SessionVerdict::Doubtful | SessionVerdict::Answer => {
                ChangeStream::None
            }
        };
    }
    AnswerReader::of(response, link.gauge())
        .map_or(ChangeStream::Failed, |reader| ChangeStream::Stream(Box::new(reader), false))
}
