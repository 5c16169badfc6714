//! Reads the lists of a legacy server as clients see them that can be asked for input: many servers hide tools from those that cannot.
//!
//! Each session of a client has exactly the client's capabilities, and the main session, which reads the lists, has none. So further
//! sessions of the gateway's own read them too, one with all capabilities and, if that is shown more, one with each. They carry no
//! call, and whatever their server asks on them is refused. An item is for the clients whose capabilities were enough to be shown it;
//! of two definitions of one item the one for fewer capabilities counts, so that no order of answers changes the catalog.

use std::future::Future;

use futures_util::{StreamExt as _, stream};

use crate::catalog::inventory::{Gap, Inventory};
use crate::mcp::input::Roots;
use crate::mcp::item::Definition;
use crate::mcp::kinds::{Audience, Kinds};
use crate::mcp::method::List;

/// Each list as a client with some capabilities sees it, or why that is not known: `None` where the list takes long, or the server
/// opens no such session, which some never do.
pub(super) type Seen = [Result<Vec<Definition>, Option<String>>; 4];

/// For each list what it has for the clients of each audience, those with fewer capabilities first.
pub(super) type ForAskers = [(List, Result<Vec<(Audience, Vec<Definition>)>, Option<String>>); 4];

/// Nothing is known, for that reason.
pub(super) fn unseen(why: Option<&str>) -> Seen {
    List::ALL.map(|_| Err(why.map(str::to_owned)))
}

/// The lists of an inventory. `why` tells the trouble of a list.
pub(super) fn seen(inventory: &Inventory, why: impl Fn(List) -> String) -> Seen {
    List::ALL.map(|list| match inventory.gap(list) {
        None => Ok(inventory.items(list).to_vec()),
        // It takes long, as it does for everyone: this part of it follows with the rest.
        Some(Gap::Awaited) => Err(None),
        Some(Gap::Unread | Gap::Askers) => Err(Some(why(list))),
    })
}

/// Everything that a client can be asked for, as far as the operator lets the server know.
fn everything(roots: &Roots) -> Kinds {
    let roots = matches!(roots, Roots::Client);
    Kinds { form: true, url: true, sampling: true, sampling_tools: true, roots }
}

/// The sets of capabilities that are enough for most tools, those with less first.
fn parts(roots: &Roots) -> Vec<Kinds> {
    let none = Kinds::default();
    // Fixed roots are there for clients that offer nothing too.
    let first = matches!(roots, Roots::Fixed(_)).then_some(none);
    let last = matches!(roots, Roots::Client).then_some(Kinds { roots: true, ..none });
    let middle = [Kinds { form: true, ..none }, Kinds { url: true, ..none }, Kinds { sampling: true, ..none }];
    first.into_iter().chain(middle).chain(last).collect()
}

/// Sets of capabilities that real clients have, for what none of them alone is enough for.
fn combined() -> [Kinds; 3] {
    let sampling = Kinds { sampling: true, ..Kinds::default() };
    let both = Kinds { form: true, ..sampling };
    [Kinds { sampling_tools: true, ..sampling }, both, Kinds { url: true, ..both }]
}

/// Reads the lists as clients see them beyond `plain`, with so many sessions at once. Most servers show the same to everyone, which
/// takes one session.
pub(super) async fn for_askers<F: Future<Output = Seen>>(
    plain: &Inventory,
    roots: &Roots,
    at_once: usize,
    read: impl Fn(Kinds) -> F,
) -> ForAskers {
    let all = everything(roots);
    let most = read(all).await;
    let lists = || List::ALL.into_iter().zip(&most);
    let hides = lists().any(|(list, seen)| seen.as_ref().is_ok_and(|items| plain.lacks(list, items)));
    let mut readings: Vec<(Kinds, Seen)> = Vec::new();
    if hides {
        readings = read_all(parts(roots), at_once, &read).await;
        let is_shown = |at: usize, item: &Definition| {
            let mut seen = readings.iter().filter_map(|(_, seen)| seen.get(at)?.as_ref().ok());
            seen.any(|items| items.iter().any(|other| other.key == item.key))
        };
        let is_missing = |(at, (list, seen)): (usize, (List, &Result<Vec<Definition>, _>))| {
            let items = seen.as_deref().unwrap_or_default();
            items.iter().any(|item| plain.lacks(list, std::slice::from_ref(item)) && !is_shown(at, item))
        };
        if lists().enumerate().any(is_missing) {
            let more = read_all(combined().into(), at_once, &read).await;
            readings.extend(more);
        }
    }
    readings.push((all, most));
    let mut at = 0..List::ALL.len();
    List::ALL.map(|list| {
        let at = at.next().unwrap_or_default();
        let shown = readings.iter_mut().filter_map(|(kinds, seen)| Some((Audience::with(*kinds), seen.get_mut(at)?)));
        let items = shown.map(|(audience, seen)| std::mem::replace(seen, Err(None)).map(|items| (audience, items)));
        (list, items.collect())
    })
}

async fn read_all<F: Future<Output = Seen>>(
    sets: Vec<Kinds>,
    at_once: usize,
    read: &impl Fn(Kinds) -> F,
) -> Vec<(Kinds, Seen)> {
    let readings: Vec<_> = sets.into_iter().map(|kinds| async move { (kinds, read(kinds).await) }).collect();
    stream::iter(readings).buffered(at_once).collect().await
}

/// Adds what clients see that can be asked; no more than `most` items are in a list then. Of the lists that are returned, with the
/// reason, that part is not known and a gap: what was known of it stays.
pub(super) fn add(news: &mut Inventory, shown: ForAskers, most: usize) -> Vec<(List, Option<String>)> {
    let mut unknown = Vec::new();
    for (list, shown) in shown {
        match shown {
            // Without the list for everyone nothing tells what the others are shown besides.
            _ if news.gap(list).is_some() => {}
            Ok(shown) => shown.into_iter().for_each(|(audience, items)| news.add_for(audience, list, items, most)),
            Err(why) => {
                news.set_gap(list, Some(Gap::Askers));
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
    use crate::wire::raw::RawJson;

    fn tools(names: &[&str]) -> Vec<Definition> {
        let tool = |name: &&str| Definition::read(List::Tools, &RawJson::trusted(format!(r#"{{"name":"{name}"}}"#)));
        names.iter().map(|name| tool(name).unwrap()).collect()
    }

    /// The tools of a server that shows each to clients with these capabilities.
    fn shown(kinds: Kinds) -> Vec<&'static str> {
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
        let none = Kinds::default();
        let mut plain = Inventory::default();
        plain.replace(List::Tools, tools(&shown(none)));
        let seen = |kinds: Kinds| [Ok(tools(&shown(kinds))), Ok(vec![]), Ok(vec![]), Err(Some("no".to_owned()))];
        let found = for_askers(&plain, &Roots::Hidden, 2, |kinds| std::future::ready(seen(kinds))).await;
        assert_eq!(add(&mut plain, found, 100), [(List::Templates, Some("no".to_owned()))]);
        assert_eq!(plain.gap(List::Templates), Some(Gap::Askers));
        for bits in 0..32_u8 {
            let has = |at: u8| bits >> at & 1 == 1;
            let kinds = Kinds { form: has(0), url: has(1), sampling: has(2), sampling_tools: has(3), roots: has(4) };
            let items = plain.items(List::Tools).iter().filter(|item| item.audience.has(kinds));
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
        plain.replace(List::Tools, tools(&["a"]));
        for (shown, sessions) in [(&["a"][..], 1), (&["a", "b"], 5)] {
            let asked = RefCell::new(Vec::new());
            let read = |kinds: Kinds| {
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
        assert!(plain.items(List::Tools)[0].audience.is_all());
    }
}
