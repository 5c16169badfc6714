//! Tests of lists that are read, refused, broken and late, on a clock that does not run.

use super::*;
use crate::engine::sim::epoch;

const GOOD: Result<&str, &str> = Ok(r#"{"tools":[{"name":"a"}]}"#);
const REFUSED: Result<&str, &str> = Err(r#"{"code":-32603,"message":"not now"}"#);
const ABSENT: Result<&str, &str> = Err(r#"{"code":-32601,"message":"no"}"#);

fn answer(
    lists: &mut UpstreamLists,
    page: DuePage,
    answer: Result<&'static str, &'static str>,
    now: Instant,
) -> Option<ProtocolFault> {
    let answer = answer.map(RawJson::trusted).map_err(RawJson::trusted);
    let (next, fault) = lists.answered(page.reading, answer, now);
    assert!(next.is_none(), "one page");
    fault
}

/// Reads the tools once, with this answer.
fn read(
    lists: &mut UpstreamLists,
    answered: Result<&'static str, &'static str>,
    now: Instant,
) -> Option<ProtocolFault> {
    lists.changed(&[ItemList::Tools]);
    let page = lists.next(now)?;
    answer(lists, page, answered, now)
}

/// Returns lists of tools alone, of which two are known.
fn known(now: Instant) -> UpstreamLists {
    let mut lists = UpstreamLists::new(ListBounds::default());
    lists.begin(ServerOffers::default());
    assert_eq!(read(&mut lists, Ok(r#"{"tools":[{"name":"x"},{"name":"y"}]}"#), now), None);
    assert_eq!(lists.news(now).unwrap().items(ItemList::Tools).len(), 2);
    while lists.told().is_some() {}
    lists
}

#[test]
fn a_list_that_cannot_be_read_keeps_what_was_known_and_one_that_is_not_there_is_empty() {
    let now = epoch();
    for (label, answer, fault, items, skipped, gap) in [
        ("whole", GOOD, false, 1, 0, None),
        ("one item is none", Ok(r#"{"tools":[{"name":"a"},{"x":1}]}"#), true, 1, 1, None),
        ("no list", Ok(r#"{"tools":7}"#), true, 2, 0, Some(ListGap::Unread)),
        ("refused", REFUSED, true, 2, 0, Some(ListGap::Unread)),
        ("refused without a code", Err("{}"), true, 2, 0, Some(ListGap::Unread)),
        ("not there", ABSENT, false, 0, 0, None),
    ] {
        let mut lists = known(now);
        assert_eq!(read(&mut lists, answer, now).is_some(), fault, "{label}");
        let news = lists.news(now).unwrap();
        assert_eq!((news.items(ItemList::Tools).len(), news.skipped.len()), (items, skipped), "{label}");
        assert_eq!(news.gap(ItemList::Tools), gap, "{label}");
        assert!(lists.news(now).is_none(), "{label}: told once");
        let told = lists.told().unwrap();
        assert_eq!((told.0, told.1.is_some()), (ItemList::Tools, gap.is_some()), "{label}");
        assert!(lists.told().is_none(), "{label}: told once");
    }
}

#[test]
fn a_list_without_an_end_offers_what_was_read_of_it_and_is_a_gap() {
    let now = epoch();
    let mut lists = known(now);
    lists.changed(&[ItemList::Tools]);
    let mut page = lists.next(now).unwrap();
    for _ in 0..2 {
        let text = RawJson::trusted(r#"{"tools":[{"name":"a"}],"nextCursor":"c"}"#);
        let (next, fault) = lists.answered(page.reading, Ok(text), now);
        let Some(next) = next else {
            assert_eq!(fault, Some(ProtocolFault::BadList));
            let news = lists.news(now).unwrap();
            assert_eq!((news.items(ItemList::Tools).len(), news.gap(ItemList::Tools)), (1, Some(ListGap::Unread)));
            assert!(lists.told().unwrap().1.unwrap().why.contains("cursor"));
            return;
        };
        page = next;
    }
    panic!("the loop has no end");
}

#[test]
fn attempts_are_twice_as_far_apart_each_time_and_a_change_or_the_operator_ends_the_wait() {
    let mut now = epoch();
    let mut lists = known(now);
    read(&mut lists, REFUSED, now);
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert!(lists.next(now).is_none(), "it rests");
        let again = lists.refresh_at().unwrap();
        waits.push(again.duration_since(now).as_secs());
        now = again;
        let page = lists.next(now).unwrap();
        answer(&mut lists, page, REFUSED, now);
        assert_eq!(lists.told().unwrap().1.unwrap().attempts as usize, waits.len() + 1);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    lists.reopened(now);
    assert!(lists.next(now).is_none(), "another stream is no reason");
    for wanted in [true, false] {
        if wanted {
            lists.changed(&[ItemList::Tools])
        } else {
            lists.retry()
        }
        let page = lists.next(now).expect("at once");
        answer(&mut lists, page, REFUSED, now);
    }
    lists.news(now);
    lists.retry();
    let page = lists.next(now).unwrap();
    assert_eq!(answer(&mut lists, page, GOOD, now), None);
    let news = lists.news(now).unwrap();
    assert_eq!((news.items(ItemList::Tools).len(), news.gap(ItemList::Tools)), (1, None));
    assert_eq!(lists.told().unwrap(), (ItemList::Tools, None));
    assert!(lists.next(now).is_none() && lists.refresh_at().is_none(), "nothing is due any more");
    read(&mut lists, REFUSED, now + LONGEST);
    assert_eq!(lists.told().unwrap().1.unwrap().attempts, 1, "a good reading forgets the bad ones");
}

#[test]
fn a_server_that_reports_changes_and_refuses_the_list_is_asked_once_a_second() {
    let start = epoch();
    let mut lists = known(start);
    let asked =
        (0..60_000).filter(|ms| read(&mut lists, REFUSED, start + Duration::from_millis(*ms)).is_some()).count();
    assert!((60..=65).contains(&asked), "{asked}");
}

#[test]
fn a_list_that_is_not_there_is_not_asked_for_again_with_each_stream() {
    let now = epoch();
    let mut lists = known(now);
    let mut asked = 0;
    for second in 0..600 {
        let now = now + Duration::from_secs(second);
        lists.reopened(now);
        while let Some(page) = lists.next(now) {
            asked += 1;
            answer(&mut lists, page, ABSENT, now);
        }
    }
    assert!((10..=20).contains(&asked), "{asked}");
}

#[test]
fn one_list_holds_up_the_others_for_a_while_only() {
    let mut now = epoch();
    let mut lists = UpstreamLists::new(ListBounds::default());
    lists.begin(ServerOffers { prompts: true, ..ServerOffers::default() });
    let (tools, prompts) = (lists.next(now).unwrap(), lists.next(now).unwrap());
    let (_, fault) = lists.answered(prompts.reading, Ok(RawJson::trusted(r#"{"prompts":[{"name":"p"}]}"#)), now);
    assert!(fault.is_none() && lists.news(now).is_none(), "the tools may come soon");
    assert_eq!(lists.refresh_at(), Some(now + PATIENCE));
    now += PATIENCE;
    let news = lists.news(now).unwrap();
    assert_eq!((news.items(ItemList::Prompts).len(), news.gap(ItemList::Tools)), (1, Some(ListGap::Awaited)));
    lists.failed(ItemList::Tools, "not answered in time", now);
    let news = lists.news(now).unwrap();
    assert_eq!(news.gap(ItemList::Tools), Some(ListGap::Unread));
    assert!(lists.told().is_some());
    // The late answer to the request that was given up.
    assert_eq!(answer(&mut lists, tools, GOOD, now), None);
    let news = lists.news(now).unwrap();
    assert_eq!((news.items(ItemList::Tools).len(), news.gap(ItemList::Tools)), (1, None));
    assert!(lists.next(now + LONGEST).is_none(), "it is not read once more");
}

#[test]
fn what_only_askers_see_is_a_gap_of_its_own_whose_wait_grows_too() {
    let mut now = epoch();
    let mut lists = known(now);
    let mut waits = Vec::new();
    for _ in 0..4 {
        lists.changed(&[]);
        lists.failed_for_askers(ItemList::Tools, "refused", now);
        lists.read_for_askers(false);
        assert!(lists.news(now).is_none(), "it is told with what was read");
        assert!(lists.next(now).is_none());
        let again = lists.refresh_at().unwrap();
        waits.push(again.duration_since(now).as_secs());
        now = again;
        let page = lists.next(now).unwrap();
        answer(&mut lists, page, GOOD, now);
        assert_eq!(lists.news(now).unwrap().gap(ItemList::Tools), None);
    }
    assert_eq!(waits, [1, 2, 4, 8]);
    lists.failed_for_askers(ItemList::Prompts, "not offered", now);
    assert!(lists.next(now + LONGEST).is_none());
}

#[test]
fn only_what_is_offered_is_read_and_nothing_before_the_handshake() {
    let mut lists = UpstreamLists::new(ListBounds::default());
    lists.changed(&ItemList::ALL);
    assert!(lists.next(epoch()).is_none());
    lists.begin(ServerOffers { prompts: true, ..ServerOffers::default() });
    let read: Vec<ItemList> = std::iter::from_fn(|| lists.next(epoch())).map(|page| page.reading.list).collect();
    assert_eq!(read, [ItemList::Tools, ItemList::Prompts]);
    lists.changed(&[ItemList::Tools, ItemList::Resources]);
    assert!(lists.next(epoch()).is_none(), "the tools are being read");
    lists.no_room(ItemList::Tools);
    assert!(lists.news(epoch()).is_none(), "the prompts are being read");
    assert_eq!(lists.next(epoch()).unwrap().reading.list, ItemList::Tools, "once more");
}
