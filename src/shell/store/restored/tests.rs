use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::config;
use crate::store::audit::{self, MAIN};
use crate::store::backup;
use crate::telemetry::metrics::Metrics;

/// Creates a state directory that is a restored backup.
fn restored() -> (TempDir, Db) {
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(Db::open(state.path()).unwrap());
    let done = backup::write(state.path(), &place.path().join("b"), false).unwrap();
    let db = Db::open(&done.dir).unwrap();
    (place, db)
}

fn open_log(db: &Db) -> AuditLog {
    let metrics = Metrics::new().unwrap().audit();
    audit::open_in(db.dir(), db, &config::AuditSettings::default(), MAIN, metrics).unwrap()
}

/// Repeats the steps of a daemon's start.
async fn start(db: &Db) -> RestoreReview {
    let review = RestoreReview::open(db.clone(), true).unwrap();
    let audit = open_log(db);
    review.clone().record(audit.clone()).await;
    audit.flush().await;
    review
}

/// Counts the records of the restore in the log.
fn records(db: &Db) -> usize {
    let files = fs::read_dir(db.dir().join("audit")).unwrap();
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default());
    texts.map(|text| text.matches("\"result\":\"restored\"").count()).sum()
}

#[tokio::test]
async fn a_restore_is_recorded_once_and_waits_for_its_review() {
    let (_place, db) = restored();
    let of_backup = db.identity().run_now().unwrap();
    let reading = RestoreReview::open(db.clone(), false).unwrap();
    assert!(reading.backup_time().is_some());
    assert_eq!(db.identity().run_now().unwrap(), of_backup, "a gateway beside the daemon changes nothing");

    start(&db).await;
    assert_eq!(records(&db), 1);
    let own = db.identity().run_now().unwrap();
    assert_ne!(own, of_backup, "two restores of one backup have nothing in common");
    let review = start(&db).await;
    assert_eq!((records(&db), db.identity().run_now().unwrap()), (1, own));

    let time = review.backup_time().unwrap();
    assert_eq!(review.end().await, Ok(time));
    assert_eq!(review.end().await, Err(NOTHING_DUE.to_owned()));
    assert_eq!(review.backup_time(), None);
    assert_eq!(start(&db).await.backup_time(), None);
    assert_eq!(records(&db), 1);
}

#[tokio::test]
async fn a_crash_before_the_mark_changes_repeats_the_record() {
    let (_place, db) = restored();
    let review = RestoreReview::open(db.clone(), true).unwrap();
    let audit = open_log(&db);
    let writer = audit.hold().await;
    let recorded = tokio::time::timeout(Duration::from_millis(50), review.record(audit.clone()));
    assert!(recorded.await.is_err(), "the record waits for the disk");
    drop(writer);
    audit.flush().await;
    drop(audit);
    assert_eq!(records(&db), 1, "it is written after its task has ended");
    assert!(!db.restore_mark().run_now().unwrap().unwrap().is_recorded);
    start(&db).await;
    start(&db).await;
    assert_eq!(records(&db), 2, "repeated once");
}
