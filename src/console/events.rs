//! The event stream that tells an open page which of its parts have changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select_all;
use futures_util::stream;
use http::Response;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::desk::Part;
use super::session::Visitor;
use super::site::Console;
use crate::base::clock;
use crate::listener::body::ReplyBody;
use crate::listener::reply;

/// Changes within this time become one event.
const GATHER: Duration = Duration::from_millis(300);
/// Interval of keep-alives. They name every part, since times on the page ("3 min ago") grow old.
const BEAT: Duration = Duration::from_secs(20);

/// How often to check parts without a channel.
const LOOK: Duration = Duration::from_secs(2);

struct Follower {
    console: Arc<Console>,
    visitor: Visitor,
    /// Parts with a channel, and the number last sent.
    watches: Vec<(Part, watch::Receiver<u64>, u64)>,
    counts: Vec<(Part, u64)>,
    greeted: bool,
    _place: OwnedSemaphorePermit,
}

/// The stream for one page; `None` when too many are open.
pub(crate) fn stream(console: &Arc<Console>, visitor: &Visitor) -> Option<Response<ReplyBody>> {
    let place = Arc::clone(&console.streams).try_acquire_owned().ok()?;
    let seen = |(part, mut watch): (Part, watch::Receiver<u64>)| {
        let now = *watch.borrow_and_update();
        (part, watch, now)
    };
    let follower = Follower {
        console: Arc::clone(console),
        visitor: visitor.clone(),
        watches: console.desk.watches().into_iter().map(seen).collect(),
        counts: console.desk.counts(),
        greeted: false,
        _place: place,
    };
    Some(reply::events(stream::unfold(follower, next)))
}

async fn next(mut follower: Follower) -> Option<(Bytes, Follower)> {
    if !follower.greeted {
        follower.greeted = true;
        // A change between the page and the stream is not lost: the first event names every part.
        let text = format!("retry: 3000\n\n{}", event(follower.all()));
        return Some((text.into(), follower));
    }
    let stop = follower.console.stop.clone();
    let parts = tokio::select! {
        parts = follower.wait() => parts,
        () = stop.cancelled() => return None,
    };
    let open = follower.console.doors.is_open(&follower.visitor, clock::uptime());
    open.then(|| (event(parts).into(), follower))
}

impl Follower {
    /// The next parts to announce; after [`BEAT`] without a change, all of them.
    async fn wait(&mut self) -> Vec<Part> {
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
            if gone || start.elapsed() >= BEAT {
                return self.all();
            }
        }
    }

    /// Resolves when a channel signals.
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

    fn changed(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        for (part, watch, told) in &mut self.watches {
            let now = *watch.borrow_and_update();
            if std::mem::replace(told, now) != now {
                parts.push(*part);
            }
        }
        let counts = self.console.desk.counts();
        parts.extend(counts.iter().filter(|count| !self.counts.contains(count)).map(|(part, _)| *part));
        self.counts = counts;
        parts
    }

    fn all(&self) -> Vec<Part> {
        let watched = self.watches.iter().map(|(part, ..)| *part);
        watched.chain(self.counts.iter().map(|(part, _)| *part)).collect()
    }
}

fn event(mut parts: Vec<Part>) -> String {
    parts.sort_unstable();
    parts.dedup();
    let words: Vec<&str> = parts.iter().map(Part::into_str).collect();
    format!("event: changed\ndata: {}\n\n", words.join(" "))
}
