//! Readings that change many pins at once: their audit records, and the table of pins after them.

use super::*;
use crate::policy::{AuditEntry, ListChanges, MAX_SINGLE_CHANGES};

fn tools(count: usize, description: &str) -> Vec<Definition> {
    (0..count).map(|n| tool(&format!("t{n}"), description)).collect()
}

/// Collects the audit records of changes, as the hook would write them.
fn recorded(pins: &PinRegistry) -> Arc<Mutex<Vec<AuditEntry>>> {
    let entries = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&entries);
    pins.on_change(Box::new(move |news| kept.lock().extend(news.entries())));
    entries
}

#[test]
fn twenty_changes_have_a_record_each_and_more_have_one() {
    let tier = PinTier { most: 20_000, ..TIER };
    let most = MAX_SINGLE_CHANGES;
    for (count, records) in [(1, 1), (most, most), (most + 1, 1), (10_000, 1)] {
        let pins = PinRegistry::memory();
        let entries = recorded(&pins);
        assert!(shown(&pins, tier, &tools(count, "one")).iter().all(|shown| *shown));
        assert_eq!(entries.lock().len(), 0, "first sight is not announced");
        assert!(shown(&pins, tier, &tools(count, "two")).iter().all(|shown| !shown));
        let entries = entries.lock();
        assert_eq!(entries.len(), records, "{count}");
        let changes = entries[0].changes.as_deref().copied();
        assert_eq!(changes.is_some(), count > most);
        if let Some(ListChanges { added, changed, withheld, .. }) = changes {
            assert_eq!((added, changed, withheld), (0, count as u64, count as u64));
            assert_eq!((entries[0].result, entries[0].count), ("relisted", Some(count as u64)));
        }
    }
}

#[test]
fn the_record_of_a_reading_counts_what_was_added_changed_withheld_and_removed() {
    let pins = PinRegistry::memory();
    let tier = PinTier { most: 2_000, ..TIER };
    let entries = recorded(&pins);
    shown(&pins, tier, &tools(600, "one"));
    let mut items = tools(600, "two");
    items.extend((0..10).map(|n| tool(&format!("new{n}"), "one")));
    let items: Vec<&Definition> = items.iter().collect();
    pins.judge(&name(), tier, ListedItems { removed: 3, ..of_items(&items) }, &|_| None);
    let entries = entries.lock();
    let changes = entries[0].changes.as_deref().unwrap();
    assert_eq!((changes.added, changes.changed, changes.withheld, changes.removed), (10, 600, 600, 3));
    assert!(entries[0].why.contains("10 added, 600 changed"), "{}", entries[0].why);
}

#[tokio::test]
async fn one_record_of_many_changes_ends_every_grant_and_an_operators_decisions_stay_single() {
    let pins = PinRegistry::memory();
    let (ended, entries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, written) = (Arc::clone(&ended), Arc::clone(&entries));
    pins.on_change(Box::new(move |news| {
        counted.fetch_add(news.over().len(), Ordering::SeqCst);
        written.fetch_add(news.entries().len(), Ordering::SeqCst);
    }));
    shown(&pins, TIER, &tools(100, "one"));
    let changed = tools(100, "two");
    shown(&pins, TIER, &changed);
    assert_eq!((entries.load(Ordering::SeqCst), ended.load(Ordering::SeqCst)), (1, 100));
    let decisions: Vec<PinDecision> = changed
        .iter()
        .map(|item| PinDecision { name: format!("fx__{}", item.key), kind: PinKind::Tool, shown: item.digest })
        .collect();
    let decided = pins.decide_all(&decisions, true, "uid:1").await.unwrap();
    assert!(decided.iter().all(Result::is_ok));
    assert_eq!(entries.load(Ordering::SeqCst), 101, "each decision has its own record");
}

#[tokio::test]
async fn a_process_does_not_read_its_own_changes_again_and_still_reads_those_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let open = || PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap();
    let (first, second) = (open(), open());
    let tier = PinTier { most: 2_000, ..TIER };
    shown(&first, tier, &tools(600, "one"));
    shown(&first, tier, &tools(600, "two"));
    assert!(!first.refresh().await.unwrap(), "its own steps are in its table");
    assert!(second.refresh().await.unwrap());
    shown(&second, tier, &tools(600, "three"));
    assert!(first.refresh().await.unwrap());
    assert_eq!(first.find("fx__t599", None).unwrap().shown(), Some(tools(600, "three")[599].digest));
}
