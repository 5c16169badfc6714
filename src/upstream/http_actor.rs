//! The life of an HTTP upstream: find its era, read its lists, hear of changes. Calls do not pass here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method as HttpMethod, StatusCode};
use tokio::sync::Notify;

use crate::base::clock;
use crate::base::never::or_never;
use crate::catalog::inventory::Gap;
use crate::engine::ask::Declared;
use crate::engine::handshake::{EraHint, Question, listen_params};
use crate::engine::lost::{Verdict, judge};
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::upstream::answer::{Gauge, Reader, drain, is_event_stream};
use crate::upstream::context::{self, Context, Run, ready};
use crate::upstream::http::HttpLink;
use crate::upstream::http_lists::{HttpLists, Step};
use crate::upstream::http_parts::{Fields, LinkParts};
use crate::upstream::initialize::Unopened;
use crate::upstream::link::Link;
use crate::upstream::remote::Remote;
use crate::upstream::spawner::Spawner;
use crate::upstream::sse;
use crate::upstream::stdio::next_judged;
use crate::wire::message::{self, Message};
use crate::wire::raw::RawJson;

/// Bursts of change notifications become one reading.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long to wait before a change stream is opened again.
const REOPEN: Duration = Duration::from_secs(2);
/// How long the first call of a client's own session waits for the session's stream: an answer may come on it.
const OPEN_TIME: Duration = Duration::from_millis(250);
/// How long the head of a change stream may take.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// How long the server has for a sign of life after calls without an answer, and the time between two of these questions.
const SIGN_TIME: Duration = Duration::from_secs(5);
const SIGN_PAUSE: Duration = Duration::from_secs(1);

/// Serves one connection's worth of an HTTP upstream: until it cannot be reached any more or the gateway stops.
pub(crate) async fn serve(context: &Context, remote: &Arc<Remote>, hint: EraHint) -> Run {
    let (handle, lane) = (&context.handle, &context.lane);
    let Spawner { stop, tasks, intake, .. } = &context.spawner;
    let down = |why: String, served| Run { why, next: None, served };
    handle.health.flaws.hide_given(&handle.spec.load());
    let parts = LinkParts {
        remote: Arc::clone(remote),
        tasks: tasks.clone(),
        gauge: Gauge {
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
        Ok(Err(Unopened::Older(why))) => {
            let left = limit.saturating_sub(clock::now().duration_since(begun));
            let run = Box::pin(sse::serve(context, remote, left)).await;
            // A URL that is wrong fails both ways, and the operator should see both.
            let why = if run.served.is_none() { format!("{why}; over HTTP+SSE: {}", run.why) } else { run.why };
            return Run { why, ..run };
        }
        Ok(Err(Unopened::Failed(why))) => return down(why, None),
        Err(_) => {
            handle.health.ran_out();
            return down("no answer to the handshake in time".to_owned(), None);
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
            // It may come later; calls can do without it.
            _late = tokio::time::timeout(OPEN_TIME, opened.notified()) => {}
            () = stop.cancelled() => {}
        }
    }
    let ready_at = clock::now();
    ready(context, &link.agreed);
    context::open(context, Link::Http(Arc::clone(&link))).await;
    let why = tokio::select! {
        why = following => why,
        () = stop.cancelled() => "stopped".to_owned(),
    };
    if stop.is_cancelled() {
        link.close().await;
    }
    down(why, Some(clock::now().duration_since(ready_at)))
}

/// Hears a stream to its end. Cancel-safe.
async fn hear_all(link: &Arc<HttpLink>, reader: &mut Reader) {
    while let Ok(message) = reader.next().await {
        // The result of `subscriptions/listen` ends it.
        if link.agreed.revision.era() == Era::Modern && matches!(message, Message::Response(_)) {
            return;
        }
        link.heard(message);
    }
}

/// Hears the server's stream of the session, of which `opened` is told when it stands or does not. On the main lane also reads the
/// lists, again whenever the upstream says so; `listed` is told when clients see them. Returns why it gave up.
async fn follow(context: &Context, link: &Arc<HttpLink>, opened: &Notify, listed: &Notify) -> String {
    let (is_main, health) = (context.lane.is_main(), &context.handle.health);
    let mut asked = clock::now();
    // The stream is opened before the lists are read, so that no change falls between the two.
    let mut stream = open_changes(link).await;
    opened.notify_one();
    let mut judged = is_main.then(|| context.handle.judged.subscribe());
    let mut lists = is_main.then(|| HttpLists::new(context, link, true));
    // The time to open the stream again, while there is none.
    let mut reopen = None;
    // When this lane last sought a session whose stream the server refuses.
    let mut sought: Option<Instant> = None;
    loop {
        let mut doubt = false;
        tokio::select! {
            () = stream.hear(link), if reopen.is_none() => reopen = Some(clock::now() + stream.reopen()),
            () = clock::sleep_until(reopen), if reopen.is_some() => {
                stream = open_changes(link).await;
                reopen = None;
                opened.notify_one();
                // What happened while it was gone is not known, so everything is read again.
                match &mut lists {
                    Some(lists) => lists.reopened(),
                    None if matches!(stream, Changes::Refused) && !context.lane.news.updates.uris().is_empty() => {
                        sought = Some(clock::now());
                        seek_session(link).await;
                    }
                    None => {}
                }
            }
            () = link.renewed.notified() => {
                // A new session has a stream of its own, and a client's call in it may be under way. The stream of a session that this lane sought
                // waits: a server that forgets every session would get one handshake after the other.
                let is_sought = sought.is_some_and(|at| clock::now().duration_since(at) < REOPEN);
                let at = clock::now() + if is_main || is_sought { stream.reopen() } else { Duration::ZERO };
                reopen = Some(reopen.map_or(at, |before| at.min(before)));
            }
            () = link.outdated.notified() => return "the server speaks another revision, or offers something else, than before".to_owned(),
            () = health.doubted(asked), if is_main => doubt = true,
            () = link.changed.notified(), if is_main => {
                tokio::time::sleep(DEBOUNCE).await;
                lists.iter_mut().for_each(|lists| lists.changed(&link.take_changed()));
            }
            took = next_judged(&mut judged) => lists.iter_mut().for_each(|lists| lists.judged(took)),
            step = or_never(lists.as_mut().map(HttpLists::next)) => match step {
                Step::News(news) => {
                    let is_awaited = news.has_gap(Gap::Awaited);
                    let shown = context.report_lists(news, link.agreed, !is_awaited).await;
                    if context.lists_first && !is_awaited {
                        let _supervisor_is_gone = shown.await;
                        listed.notify_one();
                    }
                }
                Step::Doubt => doubt = true,
                Step::Lost(why) => return why,
            },
        }
        if doubt {
            asked = clock::now() + SIGN_PAUSE;
            let was_away = health.begin_look();
            if let Some(why) = no_sign_of_life(context, link).await {
                return why;
            }
            health.answered();
            // It may have been another server, of which nothing told.
            if was_away {
                reopen = Some(clock::now() + stream.reopen());
            }
        }
    }
}

/// Asks in the session of a client that watches resources, and whose stream is refused. If the server does not know it, another one is opened, in which the
/// client's resources are watched again.
async fn seek_session(link: &Arc<HttpLink>) {
    let asked = tokio::time::timeout(SIGN_TIME, link.ask(Method::Ping, Some(&RawJson::EMPTY_OBJECT))).await;
    if let Ok(Err(error)) = asked {
        tracing::debug!(error = %error, "the stream of a session is refused, and nothing tells whether it lives");
    }
}

/// Asks the server for a sign of life; any answer is one, except that it fails. Returns why it counts as dead.
async fn no_sign_of_life(context: &Context, link: &Arc<HttpLink>) -> Option<String> {
    let revision = link.agreed.revision;
    let (method, params) = match revision.era() {
        Era::Modern => (Method::Discover, Question::Discover(revision).params(link.hop(), &Declared::default())),
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

/// The upstream's stream of changes.
enum Changes {
    Stream(Box<Reader>),
    /// It could not be opened this time.
    Failed,
    /// The server refuses it as one does that does not know the session.
    Refused,
    /// The upstream offers none.
    None,
}

impl Changes {
    /// Hears the stream to its end; the upstream that offers none may do so in another session. Cancel-safe.
    async fn hear(&mut self, link: &Arc<HttpLink>) {
        match self {
            Self::Stream(reader) => hear_all(link, reader).await,
            Self::Failed => {}
            Self::Refused | Self::None => std::future::pending().await,
        }
    }

    /// How long to wait before it is opened again: at least so long as the server asked for.
    fn reopen(&mut self) -> Duration {
        let asked = match self {
            Self::Stream(reader) => reader.take_position().retry(),
            Self::Failed | Self::Refused | Self::None => None,
        };
        asked.unwrap_or_default().max(REOPEN)
    }
}

/// Opens the stream: GET for legacy, `subscriptions/listen` for modern.
async fn open_changes(link: &Arc<HttpLink>) -> Changes {
    let modern = link.agreed.revision.era() == Era::Modern;
    if modern && !link.agreed.offers.changes {
        return Changes::None;
    }
    let request = if modern {
        let params = listen_params(link.hop(), link.agreed.revision);
        let id = RawJson::trusted("\"listen\"");
        let body = message::encode_request(&id, Method::Listen.as_str(), Some(&params));
        link.request(HttpMethod::POST, body, &Fields::of(Method::Listen, None))
    } else {
        link.request(HttpMethod::GET, bytes::Bytes::new(), &Fields::default())
    };
    // A server may send the head of the stream together with its first event only; that must not delay the lists.
    let response = match tokio::time::timeout(HEAD_TIME, link.send(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "change stream not opened");
            return Changes::Failed;
        }
        Err(_) => return Changes::None,
    };
    if response.status() != StatusCode::OK || !is_event_stream(&response) {
        let status = response.status();
        drain(response.into_body()).await;
        return match judge(status.as_u16()) {
            Verdict::Lost | Verdict::ByBody if !modern => Changes::Refused,
            Verdict::Lost | Verdict::ByBody | Verdict::Answer if status.is_server_error() => Changes::Failed,
            Verdict::Lost | Verdict::ByBody | Verdict::Answer => Changes::None,
        };
    }
    Reader::of(response, link.gauge()).map_or(Changes::Failed, |reader| Changes::Stream(Box::new(reader)))
}
