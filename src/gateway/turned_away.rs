//! Records of calls that were answered as if their item did not exist.
//!
//! Whether it exists must not show in the time of the answer either. So a request does the same for a hidden name and for one that
//! nothing has: it hands what was asked for to a queue that never makes it wait ([`TurnedAway::tell`]). One task looks later which
//! of them exist, records those and throws the others away ([`Watch::run`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::catalog::merge::{Catalog, Entry};
use crate::gateway::service::{ClientContext, Service, decided};
use crate::gateway::snapshot::{self, Snapshot};
use crate::mcp::method::{List, Method};
use crate::policy::refusals::{EVERY, Refusals, Summary};
use crate::policy::{self, Decision, Event, Facts, Kind, Record};
use crate::wire::raw::RawObject;

/// Calls that may wait to be looked at; further ones are only counted.
const QUEUE: usize = 1024;
/// Longest name or URI that is looked at, in bytes. Names are shorter, and so are the URIs that a server lists.
const MAX_NAME: usize = 4096;
/// How long calls are collected after the first, so that not each of them wakes the task.
const REST: Duration = Duration::from_millis(10);
/// What stands in place of a rule's id where a profile leaves an item out.
const PROFILE: &str = "profile";

/// One call that was answered so.
#[derive(Debug)]
struct Call {
    snapshot: Arc<Snapshot>,
    client: ClientContext,
    method: Method,
    list: List,
    /// `None` for one that is too long.
    name: Option<String>,
}

/// Where requests hand such calls over.
#[derive(Debug)]
pub(crate) struct TurnedAway {
    queue: mpsc::Sender<Call>,
    /// Calls that found no place in the queue or have too long a name.
    missed: Arc<AtomicU64>,
}

/// The other end.
#[derive(Debug)]
pub(crate) struct Watch {
    calls: mpsc::Receiver<Call>,
    missed: Arc<AtomicU64>,
    refusals: Refusals,
    /// When calls that were missed are summed up next.
    missed_due: Option<Duration>,
}

/// A queue and its end.
pub(crate) fn queue() -> (TurnedAway, Watch) {
    let (queue, calls) = mpsc::channel(QUEUE);
    let missed = Arc::<AtomicU64>::default();
    let watch = Watch { calls, missed: Arc::clone(&missed), refusals: Refusals::default(), missed_due: None };
    (TurnedAway { queue, missed }, watch)
}

impl TurnedAway {
    /// Takes note of a call that was answered with "unknown". Never waits, and does not look whether the item exists.
    pub(crate) fn tell(&self, snapshot: &Arc<Snapshot>, client: &ClientContext, method: Method, params: &RawObject) {
        let Some((list, name)) = named(method, params) else { return };
        let name = Some(name).filter(|name| name.len() <= MAX_NAME);
        let call = Call { snapshot: Arc::clone(snapshot), client: client.clone(), method, list, name };
        if self.queue.try_send(call).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a request names; `List::Templates` where only a completion can name it.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other method names an item")]
fn named(method: Method, params: &RawObject) -> Option<(List, String)> {
    match method {
        Method::ToolsCall => Some((List::Tools, params.string("name")?)),
        Method::PromptsGet => Some((List::Prompts, params.string("name")?)),
        Method::ResourcesRead | Method::ResourcesSubscribe => Some((List::Resources, params.string("uri")?)),
        Method::Complete => {
            let reference = RawObject::parse(params.get("ref")?).ok()?;
            match reference.string("type")?.as_str() {
                "ref/prompt" => Some((List::Prompts, reference.string("name")?)),
                _ => Some((List::Templates, reference.string("uri")?)),
            }
        }
        _ => None,
    }
}

impl Call {
    fn find(&self, catalog: &Catalog) -> Option<usize> {
        let name = self.name.as_deref()?;
        match self.list {
            List::Tools | List::Prompts => catalog.find(self.list, name),
            List::Resources => catalog.find(List::Resources, name).or_else(|| catalog.find_template(name)),
            List::Templates => catalog.find(List::Templates, name).or_else(|| catalog.find(List::Resources, name)),
        }
    }

    /// The item, if it exists, and the rule that keeps it from the caller.
    fn kept_back(&self) -> Option<(&Entry, Arc<str>)> {
        let Self { snapshot, client, .. } = self;
        let view = snapshot.view(client.profile.as_deref())?;
        if let Some(at) = self.find(&view.catalog) {
            let (entry, rules) = view.item(at)?;
            // Visible, but for clients that can be asked for input only: the protocol's rule, no decision.
            let rule = snapshot.policy.hiding(rules, &self.facts(entry))?;
            return Some((entry, Arc::clone(rule)));
        }
        let entry = snapshot.whole.catalog.entry(self.find(&snapshot.whole.catalog)?)?;
        Some((entry, Arc::from(PROFILE)))
    }

    fn facts<'c>(&'c self, entry: &'c Entry) -> Facts<'c> {
        let kind = if self.method == Method::Complete {
            Kind::Completion
        } else if self.method == Method::ResourcesSubscribe {
            Kind::Subscription
        } else {
            snapshot::kind(entry.list)
        };
        Facts {
            caller: &self.client.caller,
            profile: self.client.profile.as_deref().unwrap_or_default(),
            upstream: entry.upstream_name.as_str(),
            canonical: &entry.canonical,
            kind,
            annotations: entry.annotations,
            arguments: None,
        }
    }
}

impl Watch {
    /// Looks at what was handed over until `stop` fires; what was counted by then is summed up.
    pub(crate) async fn run(mut self, service: Arc<Service>, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let wait = self.next().map(|due| due.saturating_sub(clock::uptime()));
            tokio::select! {
                _ = self.calls.recv_many(&mut batch, QUEUE) => {}
                () = clock::sleep_until(wait.map(|wait| clock::now() + wait)) => {}
                () = stop.cancelled() => break,
            }
            tokio::time::sleep(REST).await;
            self.look(&service, &mut batch);
            self.sum_up(&service, clock::uptime());
        }
        self.look(&service, &mut batch);
        self.sum_up(&service, Duration::MAX - EVERY);
    }

    fn next(&self) -> Option<Duration> {
        self.refusals.next().into_iter().chain(self.missed_due).min()
    }

    fn look(&mut self, service: &Service, batch: &mut Vec<Call>) {
        while let Ok(call) = self.calls.try_recv() {
            batch.push(call);
        }
        for call in batch.drain(..) {
            if call.name.is_none() {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            let Some((entry, rule)) = call.kept_back() else { continue };
            let facts = call.facts(entry);
            let own = self.refusals.refused(&call.client.caller, &entry.canonical, clock::uptime());
            let decision = Decision::Deny { rule, hidden: true };
            let record = Record::new(&facts, &entry.canonical, &decision);
            service.metrics.decision(record.decision(), record.rule());
            if own {
                service.wrote_hidden(&record, decided(&record, &facts, entry, &call.client, None));
            }
        }
    }

    fn sum_up(&mut self, service: &Service, now: Duration) {
        for summary in self.refusals.due(now) {
            service.wrote_refusals(summed(summary));
        }
        if self.missed_due.is_some_and(|due| due > now) {
            return;
        }
        let missed = self.missed.swap(0, Ordering::Relaxed);
        // Seen at once, then once a minute.
        self.missed_due = (missed > 0).then(|| now.saturating_add(EVERY));
        if missed > 0 {
            let why =
                "calls of unknown names that came too fast, or with too long a name, to look whether they are hidden";
            let unseen = policy::Entry { count: Some(missed), result: "unseen", ..policy::Entry::new(Event::Refusals) };
            service.wrote_refusals(policy::Entry { why: why.into(), ..unseen });
        }
    }
}

fn summed(summary: Summary) -> policy::Entry {
    let Summary { caller, calls, items, others } = summary;
    let more = if others { " and others" } else { "" };
    let why = format!("further calls of items that the caller cannot see: {}{more}", items.join(", "));
    policy::Entry { caller, result: "deny", count: Some(calls), why: why.into(), ..policy::Entry::new(Event::Refusals) }
}

#[cfg(test)]
mod tests;
