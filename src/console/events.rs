//! The event stream that tells an open page which of its parts have changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select_all;
use futures_util::stream;
use http::Response;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::session::SignedInVisitor;
use super::site::ConsoleSite;
use crate::base::clock;
use crate::listener::body::ReplyBody;
use crate::listener::reply;
use crate::operator::OperatorDataPart;
use crate::policy::consent::ApprovalView;
use crate::wire::foreign;
use crate::wire::json::raw::{RawJson, RawObject};

/// Time after a change in which further changes join the same event.
const GATHER: Duration = Duration::from_millis(300);
/// Interval of keep-alives. A keep-alive names every part, since times on the page ("3 min ago")
/// grow old.
const BEAT: Duration = Duration::from_secs(20);

/// Most new approvals that one event names, and most characters of a name in it.
const MAX_TOLD: usize = 4;
const MAX_NAME: usize = 80;
/// Interval at which parts without a channel are checked.
const LOOK: Duration = Duration::from_secs(2);

/// The state of one page's event stream.
struct EventFollower {
    console: Arc<ConsoleSite>,
    visitor: SignedInVisitor,
    /// Parts with a channel, each with the number that was last announced.
    watches: Vec<(OperatorDataPart, watch::Receiver<u64>, u64)>,
    /// Parts without a channel, each with the number that was last announced.
    counts: Vec<(OperatorDataPart, u64)>,
    /// Ids of the approvals that the page has been told of.
    known: HashSet<String>,
    /// True once the first event was sent.
    greeted: bool,
    _place: OwnedSemaphorePermit,
}

/// Opens the event stream of one page; `None` if too many streams are open.
pub(crate) fn stream(console: &Arc<ConsoleSite>, visitor: &SignedInVisitor) -> Option<Response<ReplyBody>> {
    let place = Arc::clone(&console.streams).try_acquire_owned().ok()?;
    let seen = |(part, mut watch): (OperatorDataPart, watch::Receiver<u64>)| {
        let now = *watch.borrow_and_update();
        (part, watch, now)
    };
    let follower = EventFollower {
        console: Arc::clone(console),
        visitor: visitor.clone(),
        watches: console.desk().watches().into_iter().map(seen).collect(),
        counts: console.desk().counts(),
        known: HashSet::new(),
        greeted: false,
        _place: place,
    };
    Some(reply::events(stream::unfold(follower, next)))
}

/// Waits for the next event of the stream; `None` when the console stops or the session has ended.
async fn next(mut follower: EventFollower) -> Option<(Bytes, EventFollower)> {
    if !follower.greeted {
        follower.greeted = true;
        // The first event names every part, so a change between the page and its stream is not
        // lost.
        let text = format!("retry: 3000\n\n{}{}", event(follower.all()), follower.waiting(true));
        return Some((text.into(), follower));
    }
    let stop = follower.console.stop.clone();
    let parts = tokio::select! {
        parts = follower.wait() => parts,
        () = stop.cancelled() => return None,
    };
    let open = follower.console.doors.is_open(&follower.visitor, clock::uptime());
    open.then(|| {
        let waiting =
            if parts.contains(&OperatorDataPart::Approvals) { follower.waiting(false) } else { String::new() };
        ((event(parts) + &waiting).into(), follower)
    })
}

impl EventFollower {
    /// Waits for changes and returns the parts to announce. Returns all parts after [`BEAT`]
    /// without a change, or if the session has ended.
    async fn wait(&mut self) -> Vec<OperatorDataPart> {
        let start = clock::now();
        loop {
            if tokio::time::timeout(LOOK, self.woken()).await.is_ok() {
                tokio::time::sleep(GATHER).await;
            }
            let parts = self.changed();
            if !parts.is_empty() {
                return parts;
            }
            let gone = !self.console.doors.is_open(&self.visitor, clock::uptime());
            if gone || clock::since(start) >= BEAT {
                return self.all();
            }
        }
    }

    /// Waits until a channel signals.
    async fn woken(&mut self) {
        let mut changes: Vec<_> = self.watches.iter_mut().map(|(_, watch, _)| Box::pin(watch.changed())).collect();
        while !changes.is_empty() {
            let (change, _, rest) = select_all(changes).await;
            if change.is_ok() {
                return;
            }
            // The sender is gone, so this channel never signals again.
            changes = rest;
        }
        std::future::pending().await
    }

    /// Returns the parts that have changed since the last call, and remembers their numbers.
    fn changed(&mut self) -> Vec<OperatorDataPart> {
        let mut parts = Vec::new();
        for (part, watch, told) in &mut self.watches {
            let now = *watch.borrow_and_update();
            if std::mem::replace(told, now) != now {
                parts.push(*part);
            }
        }
        let counts = self.console.desk().counts();
        parts.extend(counts.iter().filter(|count| !self.counts.contains(count)).map(|(part, _)| *part));
        self.counts = counts;
        parts
    }

    /// Returns the event with the number of open approvals. Unless it is the first, it names the
    /// new ones since the last event, by caller and item, without their arguments.
    fn waiting(&mut self, is_first: bool) -> String {
        let open = self.console.desk().approvals();
        let new = open.iter().filter(|approval| !is_first && !self.known.contains(&approval.id)).take(MAX_TOLD);
        let mut out = RawObject::default();
        out.set("new", RawJson::list(new.map(notification)));
        out.set("count", RawJson::number(open.len()));
        self.known = open.into_iter().map(|approval| approval.id).collect();
        format!("event: waiting\ndata: {}\n\n", out.encode().text())
    }

    /// Returns all parts, some of them twice.
    fn all(&self) -> Vec<OperatorDataPart> {
        let watched = self.watches.iter().map(|(part, ..)| *part);
        watched.chain(self.counts.iter().map(|(part, _)| *part)).collect()
    }
}

/// Describes an approval for a notification of the browser.
fn notification(approval: &ApprovalView) -> RawJson {
    let short = |text: &str| foreign::short(text, MAX_NAME);
    let title = format!("{} waits for your answer", short(&approval.exposed));
    let effect = if approval.destructive { " It may delete." } else { "" };
    let text = format!(
        "{} wants to use this {} of {}.{effect}",
        short(approval.caller.name()),
        approval.kind,
        short(&approval.upstream)
    );
    RawObject::of_strings(&[("id", &approval.id), ("title", &title), ("text", &text)]).encode()
}

/// Encodes an event that names the changed parts, each once.
fn event(mut parts: Vec<OperatorDataPart>) -> String {
    parts.sort_unstable();
    parts.dedup();
    let words: Vec<&str> = parts.iter().map(OperatorDataPart::into_str).collect();
    format!("event: changed\ndata: {}\n\n", words.join(" "))
}
