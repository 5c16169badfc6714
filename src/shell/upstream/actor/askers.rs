//! Reads the lists of a legacy server as clients see them that can be asked for input: many servers
//! hide tools from clients that cannot.
//!
//! Each session of a client has exactly the client's capabilities, and the main session, which
//! reads the lists, has none. So further sessions of the gateway read the lists too: one with all
//! capabilities and, if that session sees more, one with each capability. They carry no call, and
//! questions of the server on them are refused. An item is offered to the clients whose
//! capabilities suffice to see it. If an item has two definitions, the one for fewer capabilities
//! counts, so the order of answers never changes the catalog.

use std::future::Future;

use futures_util::{StreamExt as _, stream};

use crate::catalog::inventory::{Inventory, ListGap};
use crate::mcp::asking::input::Roots;
use crate::mcp::asking::kinds::{Audience, InputKinds};
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;

/// Each list as a client with some capabilities sees it, or the reason why it is unknown: `None` if
/// the list takes long, or the server does not open such a session, which some servers never do.
pub(super) type VisibleLists = [Result<Vec<Definition>, Option<String>>; 4];

/// For each list, its items for the clients of each audience, fewer capabilities first.
pub(super) type AskerItems = [(ItemList, Result<Vec<(Audience, Vec<Definition>)>, Option<String>>); 4];

/// Returns that all lists are unknown for this reason.
pub(super) fn unseen(why: Option<&str>) -> VisibleLists {
    ItemList::ALL.map(|_| Err(why.map(str::to_owned)))
}

/// Converts an inventory. `why` returns the reason why a list was not read.
pub(super) fn seen(inventory: &Inventory, why: impl Fn(ItemList) -> String) -> VisibleLists {
    ItemList::ALL.map(|list| match inventory.gap(list) {
        None => Ok(inventory.items(list).to_vec()),
        // The list takes long, as it does for everyone: this part of it follows with the rest.
        Some(ListGap::Awaited) => Err(None),
        Some(ListGap::Unread | ListGap::Askers) => Err(Some(why(list))),
    })
}

/// Returns all kinds of input that a client can be asked for, within what the operator reveals to
/// the server.
fn everything(roots: &Roots) -> InputKinds {
    let roots = matches!(roots, Roots::Client);
    InputKinds { form: true, url: true, sampling: true, sampling_tools: true, roots }
}

/// Returns the sets of capabilities that suffice for most tools, smaller ones first.
fn parts(roots: &Roots) -> Vec<InputKinds> {
    let none = InputKinds::default();
    // Fixed roots are available to clients that offer nothing, too.
    let first = matches!(roots, Roots::Fixed(_)).then_some(none);
    let last = matches!(roots, Roots::Client).then_some(InputKinds { roots: true, ..none });
    let middle =
        [InputKinds { form: true, ..none }, InputKinds { url: true, ..none }, InputKinds { sampling: true, ..none }];
    first.into_iter().chain(middle).chain(last).collect()
}

/// Returns sets of capabilities that real clients have, for tools that need more than one
/// capability.
fn combined() -> [InputKinds; 3] {
    let sampling = InputKinds { sampling: true, ..InputKinds::default() };
    let both = InputKinds { form: true, ..sampling };
    [InputKinds { sampling_tools: true, ..sampling }, both, InputKinds { url: true, ..both }]
}

/// Reads the lists as clients see them beyond `plain`, with this many sessions at once. Most
/// servers show the same to everyone, which takes one session.
pub(super) async fn for_askers<F: Future<Output = VisibleLists>>(
    plain: &Inventory,
    roots: &Roots,
    at_once: usize,
    read: impl Fn(InputKinds) -> F,
) -> AskerItems {
    let all = everything(roots);
    let most = read(all).await;
    let lists = || ItemList::ALL.into_iter().zip(&most);
    let hides = lists().any(|(list, seen)| seen.as_ref().is_ok_and(|items| plain.lacks(list, items)));
    let mut readings: Vec<(InputKinds, VisibleLists)> = Vec::new();
    if hides {
        readings = read_all(parts(roots), at_once, &read).await;
        let is_shown = |at: usize, item: &Definition| {
            let mut seen = readings.iter().filter_map(|(_, seen)| seen.get(at)?.as_ref().ok());
            seen.any(|items| items.iter().any(|other| other.key == item.key))
        };
        let is_missing = |(at, (list, seen)): (usize, (ItemList, &Result<Vec<Definition>, _>))| {
            let items = seen.as_deref().unwrap_or_default();
            items.iter().any(|item| plain.lacks(list, std::slice::from_ref(item)) && !is_shown(at, item))
        };
        if lists().enumerate().any(is_missing) {
            let more = read_all(combined().into(), at_once, &read).await;
            readings.extend(more);
        }
    }
    readings.push((all, most));
    let mut at = 0..ItemList::ALL.len();
    ItemList::ALL.map(|list| {
        let at = at.next().unwrap_or_default();
        let shown = readings.iter_mut().filter_map(|(kinds, seen)| Some((Audience::with(*kinds), seen.get_mut(at)?)));
        let items = shown.map(|(audience, seen)| std::mem::replace(seen, Err(None)).map(|items| (audience, items)));
        (list, items.collect())
    })
}

/// Reads the lists once for each set of capabilities, this many at once.
async fn read_all<F: Future<Output = VisibleLists>>(
    sets: Vec<InputKinds>,
    at_once: usize,
    read: &impl Fn(InputKinds) -> F,
) -> Vec<(InputKinds, VisibleLists)> {
    let readings: Vec<_> = sets.into_iter().map(|kinds| async move { (kinds, read(kinds).await) }).collect();
    stream::iter(readings).buffered(at_once).collect().await
}

/// Adds the items that only clients with input see, up to `most` items in a list. Returns the lists
/// for which these items are unknown, with the reason; they are marked as a gap, so that known
/// items stay.
pub(super) fn add(news: &mut Inventory, shown: AskerItems, most: usize) -> Vec<(ItemList, Option<String>)> {
    let mut unknown = Vec::new();
    for (list, shown) in shown {
        match shown {
            // Without the list for everyone it is unknown which items the others see in addition.
            _ if news.gap(list).is_some() => {}
            Ok(shown) => shown.into_iter().for_each(|(audience, items)| news.add_for(audience, list, items, most)),
            Err(why) => {
                news.set_gap(list, Some(ListGap::Askers));
                unknown.push((list, why));
            }
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::wire::json::raw::RawJson;

    fn tools(names: &[&str]) -> Vec<Definition> {
        let tool =
            |name: &&str| Definition::read(ItemList::Tools, &RawJson::trusted(format!(r#"{{"name":"{name}"}}"#)));
        names.iter().map(|name| tool(name).unwrap()).collect()
    }

    /// Returns the tools of a server that shows each to clients with these capabilities.
    fn shown(kinds: InputKinds) -> Vec<&'static str> {
        let all: [(&str, bool); 6] = [
            ("plain", true),
            ("forms", kinds.form),
            ("pages", kinds.url),
            ("models", kinds.sampling),
            ("any", kinds.form || kinds.sampling),
            ("both", kinds.form && kinds.sampling),
        ];
        all.into_iter().filter(|(_, is_shown)| *is_shown).map(|(name, _)| name).collect()
    }

    #[tokio::test]
    async fn each_item_is_for_those_whose_capabilities_were_enough() {
        let none = InputKinds::default();
        let mut plain = Inventory::default();
        plain.replace(ItemList::Tools, tools(&shown(none)));
        let seen = |kinds: InputKinds| [Ok(tools(&shown(kinds))), Ok(vec![]), Ok(vec![]), Err(Some("no".to_owned()))];
        let found = for_askers(&plain, &Roots::Hidden, 2, |kinds| std::future::ready(seen(kinds))).await;
        assert_eq!(add(&mut plain, found, 100), [(ItemList::Templates, Some("no".to_owned()))]);
        assert_eq!(plain.gap(ItemList::Templates), Some(ListGap::Askers));
        for bits in 0..32_u8 {
            let has = |at: u8| bits >> at & 1 == 1;
            let kinds =
                InputKinds { form: has(0), url: has(1), sampling: has(2), sampling_tools: has(3), roots: has(4) };
            let items = plain.items(ItemList::Tools).iter().filter(|item| item.audience.has(kinds));
            let mut names: Vec<&str> = items.map(|item| item.key.as_str()).collect();
            let mut want = shown(kinds);
            names.sort_unstable();
            want.sort_unstable();
            assert_eq!(names, want, "{kinds:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_shows_all_to_everyone_is_read_once_more() {
        let mut plain = Inventory::default();
        plain.replace(ItemList::Tools, tools(&["a"]));
        for (shown, sessions) in [(&["a"][..], 1), (&["a", "b"], 5)] {
            let asked = RefCell::new(Vec::new());
            let read = |kinds: InputKinds| {
                asked.borrow_mut().push(kinds);
                std::future::ready([Ok(tools(shown)), Ok(vec![]), Ok(vec![]), Ok(vec![])])
            };
            let found = for_askers(&plain, &Roots::Client, 1, read).await;
            let asked = asked.into_inner();
            assert!(asked[0].roots, "{asked:?}");
            assert_eq!(asked.len(), sessions, "{asked:?}");
            assert!(found.iter().all(|(_, found)| found.is_ok()));
        }
    }

    #[tokio::test]
    async fn fixed_roots_are_there_for_clients_that_offer_nothing() {
        let roots = Roots::Fixed(vec!["file:///a".to_owned()]);
        let mut plain = Inventory::default();
        let read = |_| std::future::ready([Ok(tools(&["roots"])), Ok(vec![]), Ok(vec![]), Ok(vec![])]);
        let found = for_askers(&plain, &roots, 1, read).await;
        add(&mut plain, found, 100);
        assert!(plain.items(ItemList::Tools)[0].audience.is_all());
    }
}
