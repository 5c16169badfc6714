//! A store of version 1 is opened with everything in it.

use super::*;
use crate::catalog::name::UpstreamName;
use crate::config::ApprovalSettings;
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::policy::{ChangePolicy, PinState, UpstreamTrust};
use crate::store::approvals::Approvals;
use crate::store::db::Db;
use crate::store::pins::{ItemVerdict, ListedItems, PinRegistry, PinTier};
use crate::wire::json::raw::RawJson;

const VERSION_1: &str = include_str!("../../../../../tests/data/store/version-1.sql");
/// More pins and grants of it.
const DEFINITIONS: &str = include_str!("../../../../../tests/data/store/version-1-definitions.sql");

#[tokio::test]
async fn a_store_of_version_1_is_opened_with_all_that_was_decided_and_its_texts_are_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let old = Connection::open(file(&dir)).unwrap();
    old.execute_batch(VERSION_1).unwrap();
    let private = |connection: &Connection, table: &str| -> Vec<String> {
        let sql = format!("SELECT message FROM {table} UNION ALL SELECT waiting FROM pins WHERE kind = 'launch'");
        let mut select = connection.prepare(&sql).unwrap();
        select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert!(private(&old, "prompts").iter().all(|text| !text.starts_with("sealed:")));
    drop(old);

    let db = Db::open(dir.path()).unwrap();
    let (approvals, pins) =
        (Approvals::open(db.clone(), &ApprovalSettings::default()).unwrap(), PinRegistry::open(db.clone()).unwrap());
    let grants: Vec<_> = approvals.grants().iter().map(|grant| (grant.id().to_string(), grant.uses())).collect();
    assert_eq!(grants, [("00000000000000aa".to_owned(), 3)]);
    assert_eq!(approvals.all_approvals().await.unwrap()[0].message, "headend asks for consent.");
    assert_eq!(pins.find("fx__echo", None).unwrap().state, PinState::Pinned);
    let launch = pins.find("docs", None).unwrap();
    assert!(launch.state == PinState::Rejected && launch.waiting.unwrap().contains("marker"));
    assert_eq!(
        (db.audit_heads().run_now().unwrap()[0].head.seq, db.installation_key().run_now().unwrap()),
        (7, [0xab; 32])
    );
    drop((approvals, pins));
    close(db, &dir);

    let now = Connection::open(file(&dir)).unwrap();
    assert_eq!(now.pragma_query_value(None, "user_version", |row| row.get(0)), Ok(14));
    assert!(
        private(&now, "approvals").iter().all(|text| text.starts_with("sealed:1:")),
        "{:?}",
        private(&now, "approvals")
    );
    assert!(!fs::read(file(&dir)).unwrap().windows(6).any(|bytes| bytes == b"marker"), "not even in free pages");
}

/// Returns a tool of that store with its lists in some order: that of the pins, that which waits,
/// and another.
fn tool(name: &str, order: usize, description: &str) -> Definition {
    let (words, required, values) = [
        ("summary,status,labels", r#""query","fields""#, r#""up","down""#),
        ("labels,summary,status", r#""fields","query""#, r#""down","up""#),
        ("status,labels,summary", r#""fields","query""#, r#""up","down""#),
    ][order];
    let text = format!(
        r#"{{"name":"{name}", "inputSchema": {{"type":"object", "required":[ {required} ], "properties":{{"fields":{{"type":"string","default":"{words}"}},"order":{{"enum":[{values}]}}}}}},"description":"{description}"}}"#
    );
    Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
}

fn fx() -> UpstreamName {
    UpstreamName::parse("fx").unwrap()
}

/// Returns the verdict about a listed tool: the digest that its grants need and the bytes that
/// clients get, or nothing.
fn judged(pins: &PinRegistry, item: &Definition) -> Option<(crate::policy::Digest, RawJson)> {
    let tier = PinTier { trust: UpstreamTrust::Standard, on_change: ChangePolicy::Quarantine, most: 100 };
    let listed = ListedItems { items: &[item], is_recalled: false, removed: 0, reading: None };
    match pins.judge(&fx(), tier, listed, &|_| None).pop()? {
        ItemVerdict::Shown => Some((item.digest, item.raw.encode())),
        ItemVerdict::AsPinned(item) => Some((item.digest, item.raw.encode())),
        ItemVerdict::Away(_) => None,
    }
}

#[tokio::test]
async fn pins_grants_and_denials_of_a_store_of_version_1_hold_whatever_order_the_lists_come_in() {
    let dir = tempfile::tempdir().unwrap();
    let old = Connection::open(file(&dir)).unwrap();
    old.execute_batch(VERSION_1).unwrap();
    old.execute_batch(DEFINITIONS).unwrap();
    drop(old);
    let db = Db::open(dir.path()).unwrap();
    let (approvals, pins) =
        (Approvals::open(db.clone(), &ApprovalSettings::default()).unwrap(), PinRegistry::open(db.clone()).unwrap());
    let granted = |item: &str| {
        let grants = approvals.grants();
        grants.iter().find(|grant| *grant.asked().item == *item).map(|grant| grant.asked().definition)
    };
    let state = |name: &str| pins.find(&format!("fx__{name}"), None).unwrap().state;

    let pinned = tool("search", 0, "Finds.").raw.encode();
    for order in 0..3 {
        let (digest, bytes) = judged(&pins, &tool("search", order, "Finds.")).unwrap();
        assert_eq!(Some(digest), granted("fx__search"), "order {order}: the grant is for it");
        assert_eq!(bytes.text(), pinned.text(), "order {order}: the bytes are those that were pinned");
    }
    assert_eq!((state("search"), judged(&pins, &tool("search", 1, "Finds!"))), (PinState::Pinned, None));
    assert_eq!(state("search"), PinState::Changed, "another description is a change");
    assert!(judged(&pins, &tool("search", 2, "Finds.")).is_some(), "it is back");

    assert_eq!(state("shuffled"), PinState::Changed);
    assert_eq!(judged(&pins, &tool("shuffled", 1, "Finds.")).unwrap().1, tool("shuffled", 0, "Finds.").raw.encode());
    assert_eq!(state("shuffled"), PinState::Pinned, "only its order had changed");

    for order in [1, 2] {
        assert!(judged(&pins, &tool("denied", order, "Finds.")).is_none(), "order {order} stays rejected");
        assert_eq!(state("denied"), PinState::Rejected);
        assert!(judged(&pins, &tool("never", order, "Finds.")).is_none(), "order {order} stays rejected");
        assert_eq!(state("never"), PinState::Rejected);
    }
    assert!(judged(&pins, &tool("denied", 0, "Finds.")).is_some(), "what was approved before is not what was rejected");
    assert!(judged(&pins, &tool("changed", 2, "Finds all.")).is_none());
    assert_eq!(state("changed"), PinState::Changed);
    let waiting = pins.find("fx__changed", None).unwrap().waiting_digest.unwrap();
    assert!(judged(&pins, &tool("changed", 1, "Finds all.")).is_none(), "in another order it is what was shown");
    pins.approve("fx__changed", None, waiting, "uid:1").await.unwrap();
    assert!(judged(&pins, &tool("changed", 2, "Finds all.")).is_some());

    let odd = r#"{"name":"odd","description":7,"annotations":"reads only","inputSchema":{"properties":{}}}"#;
    let odd = Definition::read(ItemList::Tools, &RawJson::trusted(odd)).unwrap();
    let (digest, bytes) = judged(&pins, &odd).unwrap();
    assert_eq!(Some(digest), granted("fx__odd"), "a repair is no change");
    assert_eq!(bytes.text(), r#"{"name":"odd","inputSchema":{"properties":{},"type":"object"}}"#);
    let echo = Definition::read(ItemList::Tools, &RawJson::trusted(r#"{"name":"echo","description":"one"}"#)).unwrap();
    assert!(judged(&pins, &echo).is_some());
    assert_eq!(approvals.grants().iter().count(), 3, "no grant has ended");
}
