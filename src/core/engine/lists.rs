//! The lists of one upstream: the page to ask for, the items read so far, and the time to read again. For every
//! transport.

use std::time::Instant;

use crate::catalog::inventory::{Excess, Inventory, ListBounds, Next, Reading};
use crate::engine::fault::Fault;
use crate::engine::handshake::{Offers, message_of};
use crate::engine::refresh::Allowance;
use crate::mcp::meta::HopMeta;
use crate::mcp::method::List;
use crate::mcp::version::{Era, Revision};
use crate::wire::raw::RawJson;

/// A page to ask for.
#[derive(Debug)]
pub struct Page {
    pub reading: Reading,
    cursor: Option<String>,
}

impl Page {
    /// `params` of the request for it in that revision.
    pub fn params(&self, hop: &HopMeta, revision: Revision) -> Option<RawJson> {
        let cursor = self.cursor.as_ref().map(|cursor| format!(r#""cursor":{}"#, RawJson::string(cursor).text()));
        let meta = (revision.era() == Era::Modern).then(|| format!(r#""_meta":{}"#, hop.envelope(revision).text()));
        let members: Vec<String> = cursor.into_iter().chain(meta).collect();
        (!members.is_empty()).then(|| RawJson::trusted(format!("{{{}}}", members.join(","))))
    }
}

/// What is known of an upstream's lists.
#[derive(Debug)]
pub struct Lists {
    bounds: ListBounds,
    /// Set when reading begins.
    offers: Option<Offers>,
    inventory: Inventory,
    /// Lists that are being read, and lists to read again after that.
    reading: Vec<List>,
    stale: Vec<List>,
    /// Stale lists whose last answer found no room. Without them nothing is told of what the server offers.
    unread: Vec<List>,
    allowance: Allowance,
    /// When a stale list may be read, if that is not yet.
    refresh_at: Option<Instant>,
    /// The inventory is whole and was not told yet.
    is_news: bool,
}

impl Lists {
    /// Nothing is read before [`Self::begin`].
    pub fn new(bounds: ListBounds) -> Self {
        Self {
            bounds,
            offers: None,
            inventory: Inventory::default(),
            reading: Vec::new(),
            stale: Vec::new(),
            unread: Vec::new(),
            allowance: Allowance::default(),
            refresh_at: None,
            is_news: false,
        }
    }

    /// Everything that the server offers is to be read, from the start.
    pub fn begin(&mut self, offers: Offers) {
        self.offers = Some(offers);
        self.inventory.completions = offers.completions;
        self.inventory.tasks = offers.tasks;
        self.inventory.skipped.clear();
        self.reading.clear();
        self.is_news = false;
        self.changed(&List::ALL);
    }

    /// These lists are to be read again, as far as the server has them.
    pub fn changed(&mut self, lists: &[List]) {
        let Some(offers) = self.offers else { return };
        for &list in lists {
            let is_offered = match list {
                // Servers exist that forget to declare it.
                List::Tools => true,
                List::Prompts => offers.prompts,
                List::Resources | List::Templates => offers.resources,
            };
            if is_offered && !self.stale.contains(&list) {
                self.stale.push(list);
            }
        }
    }

    /// The first page of a list that is due. Of each list one reading runs and at most one waits: whatever changes meanwhile is
    /// seen by the one that waits.
    pub fn next(&mut self, now: Instant) -> Option<Page> {
        let Self { stale, reading, allowance, .. } = self;
        let Some(at) = stale.iter().position(|list| !reading.contains(list) && allowance.take(*list, now)) else {
            let waiting = stale.iter().filter(|list| !reading.contains(list));
            self.refresh_at = waiting.map(|list| allowance.due(*list, now)).min();
            return None;
        };
        let list = stale.remove(at);
        reading.push(list);
        Some(Page { reading: Reading::new(list, self.bounds), cursor: None })
    }

    /// When [`Self::next`] has another list.
    pub fn refresh_at(&self) -> Option<Instant> {
        self.refresh_at
    }

    pub(crate) fn are_read(&self) -> bool {
        !self.reading.is_empty()
    }

    /// Takes the answer to a page. What follows is the next page, or the end of the list, with a fault where it was not whole. Of
    /// a list that cannot be read the inventory keeps what was known.
    pub fn answered(
        &mut self,
        mut reading: Reading,
        answer: Result<RawJson, RawJson>,
    ) -> (Option<Page>, Option<Fault>) {
        let list = reading.list;
        let mut fault = None;
        match answer.map(|result| reading.page(&result)) {
            Ok(Ok(Next::Page(cursor))) => return (Some(Page { reading, cursor: Some(cursor) }), None),
            Ok(Ok(Next::Done { items, skipped, excess })) => {
                fault = (!skipped.is_empty()).then_some(Fault::BadList);
                self.inventory.replace(list, items);
                self.inventory.set_excess(list, excess);
                self.inventory.skipped.extend(skipped);
            }
            Ok(Err(error)) => {
                fault = Some(Fault::BadList);
                self.inventory.skipped.push(format!("{}: {error}", list.member()));
            }
            // A declared capability does not mean that every method of it works; the list is then empty.
            Err(error) => {
                tracing::debug!(target: "headend::upstream", list = list.member(), error = %message_of(&error), "list refused by the upstream");
                self.inventory.replace(list, Vec::new());
                self.inventory.set_excess(list, Excess::default());
            }
        }
        self.ended(list);
        (None, fault)
    }

    /// The list is not read this time; why, where somebody should know.
    pub fn give_up(&mut self, list: List, why: Option<&str>) {
        self.inventory.skipped.extend(why.map(|why| format!("{}: {why}", list.member())));
        self.ended(list);
    }

    /// The gateway had no room for the answer, of which the server knows nothing: the list is read again when it is due.
    pub fn no_room(&mut self, list: List) {
        self.reading.retain(|reading| *reading != list);
        for lists in [&mut self.stale, &mut self.unread] {
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
    }

    fn ended(&mut self, list: List) {
        self.reading.retain(|reading| *reading != list);
        self.unread.retain(|unread| *unread != list);
        // Also when a list is read again at once: a server that never stops changing is still seen.
        self.is_news |= self.reading.is_empty() && self.unread.is_empty();
    }

    /// All that the server offers, once after each reading.
    pub fn news(&mut self) -> Option<Inventory> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        let news = self.inventory.clone();
        self.inventory.skipped.clear();
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sim::epoch;

    /// Reads the tools once, answered so.
    fn read(lists: &mut Lists, answer: Result<&'static str, &'static str>) -> Option<Fault> {
        lists.changed(&[List::Tools]);
        let page = lists.next(epoch())?;
        let answer = answer.map(RawJson::trusted).map_err(RawJson::trusted);
        let (next, fault) = lists.answered(page.reading, answer);
        assert!(next.is_none(), "one page");
        fault
    }

    #[test]
    fn a_list_that_is_not_whole_is_a_fault_and_a_refused_one_is_none() {
        let good = r#"{"tools":[{"name":"a"}]}"#;
        for (label, answer, fault, items) in [
            ("whole", Ok(good), None, 1),
            ("one item is none", Ok(r#"{"tools":[{"name":"a"},{"x":1}]}"#), Some(Fault::BadList), 1),
            ("no list", Ok(r#"{"tools":7}"#), Some(Fault::BadList), 2),
            ("refused", Err(r#"{"code":-32601,"message":"no"}"#), None, 0),
        ] {
            let mut lists = Lists::new(ListBounds::default());
            lists.begin(Offers::default());
            assert_eq!(read(&mut lists, Ok(r#"{"tools":[{"name":"x"},{"name":"y"}]}"#)), None, "{label}");
            assert_eq!(lists.news().unwrap().items(List::Tools).len(), 2, "{label}");
            assert_eq!(read(&mut lists, answer), fault, "{label}");
            let news = lists.news().unwrap();
            assert_eq!(news.items(List::Tools).len(), items, "{label}");
            assert_eq!(news.skipped.len(), usize::from(fault.is_some()), "{label}");
            assert!(lists.news().is_none(), "{label}: told once");
        }
    }

    #[test]
    fn only_what_is_offered_is_read_and_nothing_before_the_handshake() {
        let mut lists = Lists::new(ListBounds::default());
        lists.changed(&List::ALL);
        assert!(lists.next(epoch()).is_none());
        lists.begin(Offers { prompts: true, ..Offers::default() });
        let read: Vec<List> = std::iter::from_fn(|| lists.next(epoch())).map(|page| page.reading.list).collect();
        assert_eq!(read, [List::Tools, List::Prompts]);
        lists.changed(&[List::Tools, List::Resources]);
        assert!(lists.next(epoch()).is_none(), "the tools are being read");
        lists.give_up(List::Tools, None);
        assert!(lists.news().is_none(), "the prompts are being read");
        assert_eq!(lists.next(epoch()).unwrap().reading.list, List::Tools, "once more");
    }
}
