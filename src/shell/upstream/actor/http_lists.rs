//! Reads the lists of an HTTP upstream, one after the other, beside all other work of its session.
//! A slow list delays neither the others nor the session, and its answer is used whenever it comes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context as Polled, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::base::aside::{LONG_TEXT, run_aside_if};
use crate::base::clock;
use crate::catalog::inventory::{Inventory, ListBounds, ListReading};
use crate::config::InstanceScope;
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::fault::ProtocolFault;
use crate::engine::handshake::EraHint;
use crate::engine::lists::{DuePage, PATIENCE, UpstreamLists};
use crate::mcp::asking::input::Roots;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::method::ItemList;
use crate::mcp::version::Era;
use crate::upstream::actor::askers::{self, AskerItems, VisibleLists, for_askers, seen, unseen};
use crate::upstream::actor::context::ActorContext;
use crate::upstream::http::exchange::HttpLink;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::unread::ListReaders;
use crate::wire::json::raw::RawJson;

/// How long the session that reads the lists for clients with input may take to open.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// Most such sessions at once.
const SESSIONS: usize = 4;
const LATE: &str = "not answered within `start-timeout`";

/// The action to take after reading lists.
pub(super) enum ListStep {
    /// Publish these lists to clients.
    News(Inventory),
    /// Check whether the server is still there.
    Doubt,
    /// End the session: the server is gone, or refuses the gateway's credentials. The text says
    /// why.
    Lost(String),
}

type PageAnswer = Result<Result<RawJson, RawJson>, HttpError>;

/// A page that was requested.
struct RequestedPage {
    list: ItemList,
    begun: Instant,
    /// Deadline of the answer; `None` after it has passed, although the answer is still used.
    until: Option<Instant>,
    answer: BoxFuture<'static, (ListReading, PageAnswer)>,
}

/// The result of a request.
enum ListResult {
    Page(Box<ListReading>, PageAnswer),
    /// The lists, and the additions that only clients with input see.
    ForAskers(Box<(Inventory, AskerItems)>),
}

/// The state of reading the lists of one session.
pub(super) struct HttpLists<'a> {
    context: &'a ActorContext,
    link: Arc<HttpLink>,
    lists: UpstreamLists,
    /// At most two requests for each list: a late one, and another attempt.
    asked: Vec<RequestedPage>,
    /// True once the server has answered a page, so that the credentials are known to be accepted.
    admitted: bool,
    /// Set while the lists are read again as a client that can be asked for input; they are
    /// published after that.
    for_askers: Option<(Inventory, BoxFuture<'static, AskerItems>)>,
    /// True for the lists that clients see, false for those of a session that reads for clients
    /// with input.
    is_main: bool,
}

impl<'a> HttpLists<'a> {
    pub(super) fn new(context: &'a ActorContext, link: &Arc<HttpLink>, is_main: bool) -> Self {
        let mut lists = UpstreamLists::new(ListBounds::of(context.handle.spec.load().max_inventory));
        lists.begin(link.agreed.offers);
        lists.set_instructions(link.instructions());
        let link = Arc::clone(link);
        Self { context, link, lists, asked: Vec::new(), admitted: false, for_askers: None, is_main }
    }

    /// Records lists that have changed according to the server.
    pub(super) fn changed(&mut self, lists: &[ItemList]) {
        self.lists.changed(lists);
    }

    /// Records how long it took to judge the lists.
    pub(super) fn judged(&mut self, took: Duration) {
        self.lists.judged(took, clock::now());
    }

    /// Records that messages of the server may have been missed.
    pub(super) fn reopened(&mut self) {
        self.lists.set_instructions(self.link.instructions());
        self.lists.reopened(clock::now());
    }

    /// Reads lists as they are due, until there is something to do. Cancel-safe.
    pub(super) async fn next(&mut self) -> ListStep {
        let (context, is_main) = (self.context, self.is_main);
        loop {
            let now = clock::now();
            let is_free = self.asked.iter().all(|asked| now >= asked.begun + PATIENCE);
            if is_free && let Some(page) = self.lists.next(now) {
                self.ask(page, now);
                continue;
            }
            if is_free
                && self.for_askers.is_none()
                && let Some(news) = self.lists.news(now)
            {
                match self.askers(&news) {
                    Some(reading) => self.for_askers = Some((news, reading)),
                    None => return self.tell(news),
                }
            }
            if self.for_askers.is_none() && self.asked.iter().all(|asked| asked.until.is_none()) {
                self.told();
            }
            let patience = self.asked.iter().map(|asked| asked.begun + PATIENCE).filter(|until| *until > now).min();
            let late = self.asked.iter().filter_map(|asked| asked.until).min();
            let refresh = self.lists.refresh_at().filter(|_| is_free && self.for_askers.is_none());
            let wake = [patience, late, refresh].into_iter().flatten().min();
            tokio::select! {
                read = poll_fn(|polled| self.poll(polled)) => {
                    let step = match read {
                        ListResult::Page(reading, answer) => self.heard(*reading, answer),
                        ListResult::ForAskers(read) => Some(self.tell_with(read.0, read.1)),
                    };
                    if let Some(step) = step {
                        return step;
                    }
                }
                () = clock::sleep_until(wake) => self.late(),
                () = context.handle.unread.now.notified(), if is_main => self.lists.retry(),
            }
        }
    }

    /// Requests a page of a list.
    fn ask(&mut self, page: DuePage, now: Instant) {
        let link = Arc::clone(&self.link);
        let list = page.reading.list;
        // Legacy servers want an object even if it is empty.
        let params = page.params(link.hop(), link.agreed.revision).unwrap_or(RawJson::EMPTY_OBJECT);
        let reading = page.reading;
        let answer = Box::pin(async move { (reading, link.ask(list.method(), Some(&params)).await) });
        let until = Some(now + self.context.handle.spec.load().start_timeout);
        self.asked.push(RequestedPage { list, begun: now, until, answer });
    }

    /// Polls all requests for the next page or the additional lists that are ready.
    fn poll(&mut self, polled: &mut Polled<'_>) -> Poll<ListResult> {
        let ready =
            self.asked.iter_mut().enumerate().find_map(|(at, asked)| match asked.answer.as_mut().poll(polled) {
                Poll::Ready(answer) => Some((at, answer)),
                Poll::Pending => None,
            });
        if let Some((at, (reading, answer))) = ready {
            self.asked.swap_remove(at);
            return Poll::Ready(ListResult::Page(Box::new(reading), answer));
        }
        let Some((_, reading)) = &mut self.for_askers else { return Poll::Pending };
        let Poll::Ready(shown) = reading.as_mut().poll(polled) else { return Poll::Pending };
        let news = self.for_askers.take().map(|(news, _)| news).unwrap_or_default();
        Poll::Ready(ListResult::ForAskers(Box::new((news, shown))))
    }

    /// Processes a page; returns an action if the connection may be lost.
    fn heard(&mut self, reading: ListReading, answer: PageAnswer) -> Option<ListStep> {
        let (list, now, metrics) = (reading.list, clock::now(), &self.context.handle.metrics);
        let error = match answer {
            Ok(answer) => {
                self.admitted = true;
                let is_long = answer.as_ref().is_ok_and(|result| result.bytes().len() >= LONG_TEXT);
                let (next, fault) = run_aside_if(is_long, || self.lists.answered(reading, answer, now));
                fault.into_iter().for_each(|fault| metrics.fault(fault));
                for quirk in self.lists.take_quirks() {
                    metrics.fault(ProtocolFault::Lenient);
                    self.context.handle.health.flaws.read(quirk);
                }
                next.into_iter().for_each(|page| self.ask(page, now));
                return None;
            }
            Err(HttpError::NoRoom(_)) => {
                self.lists.no_room(list);
                return None;
            }
            Err(error @ HttpError::Connect(_)) => return Some(ListStep::Lost(error.to_string())),
            // Once a list was read, the credentials are valid, and are refused only for this list.
            Err(error @ (HttpError::Unadmitted(..) | HttpError::MoreScopes(_) | HttpError::NoToken(_)))
                if !self.admitted =>
            {
                return Some(ListStep::Lost(error.to_string()));
            }
            Err(error) => error,
        };
        metrics.fault(ProtocolFault::BadList);
        self.lists.failed(list, &error.to_string(), now);
        error.is_of_a_dead_server().then_some(ListStep::Doubt)
    }

    /// Gives up requests that were not answered in time. The last late answer of each list is still
    /// used.
    fn late(&mut self) {
        let now = clock::now();
        let late = |asked: &RequestedPage| asked.until.is_some_and(|until| until <= now);
        for list in ItemList::ALL {
            if !self.asked.iter().any(|asked| asked.list == list && late(asked)) {
                continue;
            }
            self.asked.retain(|asked| asked.list != list || asked.until.is_some());
            self.asked.iter_mut().filter(|asked| asked.list == list).for_each(|asked| asked.until = None);
            self.context.handle.metrics.fault(ProtocolFault::BadList);
            self.lists.failed(list, LATE, now);
        }
    }

    /// Reports to operators how the readings ended.
    fn told(&mut self) {
        if !self.is_main {
            return;
        }
        let handle = &self.context.handle;
        while let Some((list, trouble)) = self.lists.told() {
            handle.unread.told(list, ListReaders::Everyone, trouble, &handle.health);
        }
    }

    fn tell(&mut self, news: Inventory) -> ListStep {
        self.told();
        ListStep::News(news)
    }

    /// Starts to read the lists once more as clients that can be asked for input, if their view may
    /// differ.
    fn askers(&self, plain: &Inventory) -> Option<BoxFuture<'static, AskerItems>> {
        let is_shared = self.context.handle.spec.load().instance == InstanceScope::Shared;
        let is_wanted = self.is_main && !is_shared && self.link.agreed.revision.era() == Era::Legacy;
        let (context, link, plain) = (self.context.clone(), Arc::clone(&self.link), plain.clone());
        is_wanted.then(|| {
            let reading = async move {
                for_askers(&plain, &Roots::Hidden, SESSIONS, |kinds| seen_with(&context, &link, kinds)).await
            };
            Box::pin(reading) as BoxFuture<'static, _>
        })
    }

    /// Adds the items that only clients with input see. If they are unknown now, those known before
    /// stay.
    fn tell_with(&mut self, mut news: Inventory, shown: AskerItems) -> ListStep {
        let (now, most) = (clock::now(), self.context.handle.spec.load().max_inventory);
        let mut is_whole = true;
        for (list, why) in askers::add(&mut news, shown, most) {
            let Some(why) = why else { continue };
            is_whole = false;
            self.lists.failed_for_askers(list, &format!("as a client that can be asked: {why}"), now);
        }
        self.lists.read_for_askers(is_whole);
        self.tell(news)
    }
}

/// Reads the lists as a client with these capabilities sees them, in a session of its own.
async fn seen_with(context: &ActorContext, link: &HttpLink, kinds: InputKinds) -> VisibleLists {
    let apps = context.handle.spec.load().own_apps();
    let parts = link.parts_with(DeclaredCapabilities::new(kinds, &Roots::Hidden).with_apps(apps));
    let opened = tokio::time::timeout(OPEN_TIME, HttpLink::open(&parts, EraHint::Legacy)).await;
    let Ok(Ok(other)) = opened else { return unseen(None) };
    let mut lists = HttpLists::new(context, &other, false);
    // Each list that is not answered delays the next one for a while.
    let limit = context.handle.spec.load().start_timeout + PATIENCE * 4;
    let read = tokio::time::timeout(limit, async {
        loop {
            match lists.next().await {
                ListStep::News(news) => return Ok(news),
                ListStep::Lost(why) => return Err(why),
                ListStep::Doubt => {}
            }
        }
    });
    let shown = match read.await {
        Ok(Ok(news)) => {
            let mut whys = Vec::new();
            while let Some((list, trouble)) = lists.lists.told() {
                whys.extend(trouble.map(|trouble| (list, trouble.why)));
            }
            let why = |list: ItemList| whys.iter().find(|(of, _)| *of == list).map(|(_, why)| why.clone());
            seen(&news, |list| why(list).unwrap_or_else(|| LATE.to_owned()))
        }
        Ok(Err(why)) => unseen(Some(&why)),
        Err(_) => unseen(Some(LATE)),
    };
    drop(lists);
    other.close().await;
    shown
}
