//! Sealed values: sealed anew with another key, named without theirs, and counted.

use super::*;
use crate::catalog::name::UpstreamName;
use crate::config::source::secret::Secret;
use crate::engine::sealed::ended::EndedSession;
use crate::policy::consent::ApprovalView;
use crate::policy::{Caller, UpstreamTrust};
use crate::store::pin_record::{PinKey, PinKind, PinStep, PinText};

const QUERY: &str = r#"{"transport":"auto","url":"https://a.example/?key=1"}"#;

fn open(dir: &tempfile::TempDir, keys: [Option<&str>; 2]) -> Db {
    let [given, previous] = keys.map(|key| key.map(|key| Secret::new(key.repeat(32))));
    Db::open_keyed(dir.path(), &KeySource { given, previous, make: true }).unwrap()
}

fn key() -> LoginKey {
    LoginKey { upstream: "docs".to_owned(), launch: "l".to_owned() }
}

fn session() -> EndedSession {
    EndedSession { caller: Caller::named("ci"), opened: 1, name: [7; 12], until: 1 << 40 }
}

fn view() -> ApprovalView {
    ApprovalView { id: "a1".to_owned(), message: "arguments".to_owned(), until: 1 << 40, ..ApprovalView::default() }
}

/// Writes a value of each sealed kind.
fn fill(db: &Db) {
    db.enter_approval("x".to_owned(), view(), Digest::of(b"action")).run_now().unwrap();
    let launch = PinKey::launch(&UpstreamName::parse("docs").unwrap());
    let text = PinText { digest: Digest::of(b"1"), text: QUERY.into() };
    let (trust, folders) = (UpstreamTrust::Standard, Vec::new());
    let step = PinStep::Started { text, words: QUERY.to_owned(), trust, folders };
    db.take_steps(vec![(launch, step)], Vec::new(), 1).run_now().unwrap();
    let (issuer, value) = ("i".to_owned(), "tokens".to_owned());
    let made = NewLogin { key: key(), issuer: issuer.clone(), issuer_before: None, version: 1, value };
    assert_eq!(db.keep_login(made).run_now().unwrap(), None);
    db.keep_registration(key(), issuer, "client".to_owned()).run_now().unwrap();
    for slot in 0..5 {
        db.keep_resource(session(), slot, format!("file:///{slot}")).run_now().unwrap();
    }
}

/// Checks that every value of [`fill`] opens.
fn check(db: &Db) {
    assert_eq!(db.approval_details("a1".to_owned()).run_now().unwrap().unwrap().message, "arguments");
    assert_eq!(db.listed_approvals(0, true).run_now().unwrap()[0].message, "arguments");
    assert_eq!(db.login(key()).run_now().unwrap().unwrap().value.as_deref(), Some("tokens"));
    assert_eq!(db.registrations(key()).run_now().unwrap(), ["client"]);
    assert_eq!(db.kept_session(session()).run_now().unwrap().unwrap().resources.len(), 5);
    let (_, pins) = db.pins_changed(u64::MAX).run_now().unwrap().unwrap();
    let record = &pins.iter().find(|(key, _)| key.kind == PinKind::Launch).unwrap().1;
    assert_eq!(record.approved.as_deref().or(record.waiting.as_deref()), Some(QUERY));
}

/// Runs at most `steps` steps of two values; returns the numbers of sealed and of lost values.
fn reseal(db: &Db, steps: usize) -> (usize, Vec<String>) {
    let (mut next, mut sealed, mut lost) = (Some(ResealPosition::default()), 0, Vec::new());
    for _ in 0..steps {
        let Some(from) = next else { break };
        let part = db.reseal(from, 2).run_now().unwrap();
        assert!(part.sealed + part.lost.len() <= 2, "{part:?}");
        sealed += part.sealed;
        lost.extend(part.lost);
        next = part.next;
    }
    (sealed, lost)
}

fn count(dir: &tempfile::TempDir) -> Vec<u64> {
    let cluster = postgres::testing::settings_for(dir.path());
    let counts = Db::count_sealed_values(dir.path(), cluster.as_ref()).unwrap();
    counts.into_iter().map(|(_, count)| count).collect()
}

#[test]
fn every_kind_of_sealed_value_is_sealed_anew_however_often_that_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    fill(&open(&dir, [Some("a"), None]));
    assert_eq!(count(&dir), [10]);
    for steps in [1, 3, 5] {
        let db = open(&dir, [Some("b"), Some("a")]);
        reseal(&db, steps);
        check(&db);
    }
    let db = open(&dir, [Some("b"), Some("a")]);
    let (sealed, lost) = reseal(&db, usize::MAX);
    assert!((1..10).contains(&sealed) && lost.is_empty(), "{sealed} {lost:?}");
    assert_eq!((reseal(&db, usize::MAX), count(&dir)), ((0, Vec::new()), vec![10]));
    drop(db);
    check(&open(&dir, [Some("b"), None]));
}

#[test]
fn values_without_their_key_are_named_and_stay_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    fill(&open(&dir, [Some("a"), None]));
    let db = open(&dir, [Some("b"), Some("c")]);
    let (sealed, lost) = reseal(&db, usize::MAX);
    assert_eq!((sealed, lost.len()), (0, 10), "{lost:?}");
    for name in ["the login of docs", "the client registration of docs", "the text of approval a1"] {
        assert!(lost.iter().any(|lost| lost == name), "{lost:?}");
    }
    // Values of the present key between them are left alone.
    db.keep_resource(session(), 9, "file:///9".to_owned()).run_now().unwrap();
    assert_eq!(reseal(&db, usize::MAX).0, 0);
    drop(db);
    let db = open(&dir, [Some("b"), Some("a")]);
    assert_eq!(reseal(&db, usize::MAX), (10, Vec::new()));
    assert_eq!(count(&dir), [11]);
}

#[test]
fn a_key_of_the_configuration_takes_over_from_the_file_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(crate::store::seal::KEY_FILE);
    fill(&open(&dir, [None, None]));
    assert_eq!(reseal(&open(&dir, [Some("a"), None]), usize::MAX).0, 10);
    std::fs::remove_file(&file).unwrap();
    check(&open(&dir, [Some("a"), None]));
    assert!(!file.exists());
    assert_eq!(reseal(&open(&dir, [None, Some("a")]), usize::MAX).0, 10);
    assert!(file.exists());
    check(&open(&dir, [None, None]));
}
