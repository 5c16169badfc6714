//! A store of version 1 is opened with everything in it.

use super::*;
use crate::config::Consent;
use crate::policy::PinState;
use crate::store::approvals::Approvals;
use crate::store::pins::Pins;

const VERSION_1: &str = include_str!("../../../../tests/data/store/version-1.sql");

#[tokio::test]
async fn a_store_of_version_1_is_opened_with_all_that_was_decided_and_its_texts_are_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let old = Connection::open(file(&dir)).unwrap();
    old.execute_batch(VERSION_1).unwrap();
    let private = |connection: &Connection| -> Vec<String> {
        let sql = "SELECT message FROM prompts UNION ALL SELECT waiting FROM pins WHERE kind = 'launch'";
        let mut select = connection.prepare(sql).unwrap();
        select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert!(private(&old).iter().all(|text| !text.starts_with("sealed:")));
    drop(old);

    let db = Db::open(dir.path()).unwrap();
    let (approvals, pins) =
        (Approvals::open(db.clone(), &Consent::default()).unwrap(), Pins::open(db.clone()).unwrap());
    let grants: Vec<_> = approvals.grants().iter().map(|grant| (grant.id().to_string(), grant.uses())).collect();
    assert_eq!(grants, [("00000000000000aa".to_owned(), 3)]);
    assert_eq!(approvals.all_prompts().await.unwrap()[0].message, "headend asks for consent.");
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
    assert_eq!(now.pragma_query_value(None, "user_version", |row| row.get(0)), Ok(2));
    assert!(private(&now).iter().all(|text| text.starts_with("sealed:1:")), "{:?}", private(&now));
    assert!(!fs::read(file(&dir)).unwrap().windows(6).any(|bytes| bytes == b"marker"), "not even in free pages");
}
