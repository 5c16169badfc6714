use super::*;
use crate::engine::ended::MAX_NOTES;
use crate::mcp::version::Revision;

const OWNER: SessionOwner<'static> = SessionOwner { caller: "ci", kind: "token", token: &[7; 32], profile: None };

fn open(dir: &tempfile::TempDir) -> (Db, SessionStore) {
    let db = Db::open(dir.path()).unwrap();
    (db.clone(), SessionStore::open(db).unwrap().unwrap())
}

fn terms() -> SessionTerms {
    let opened = clock::since_1970().as_secs();
    let revision = Revision::V2025_06_18;
    SessionTerms { opened, until: opened + 3600, revision, is_here: false, capabilities: None }
}

#[tokio::test]
async fn a_session_is_found_after_a_restart_until_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let (id, session) = store.begin(&OWNER, &terms()).unwrap();
    let (other, _) = store.begin(&OWNER, &terms()).unwrap();
    session.keep_level(LogLevel::Warning).await;
    let one = session.keep_resource("fx://doc/1").await;
    session.keep_resource("fx://doc/2").await;
    session.drop_resource(one, "fx://doc/1").await;
    drop((db, store, session));

    let (_, store) = open(&dir);
    let (session, _) = store.find(&OWNER, &id).unwrap();
    let kept = session.look().await.unwrap().unwrap();
    assert_eq!(kept.level.as_deref(), Some("warning"));
    let [(slot, uri)] = &kept.resources[..] else { panic!("{kept:?}") };
    assert_eq!(uri, "fx://doc/2");
    assert!(session.keep_resource("fx://doc/3").await > *slot, "no place is given twice");
    let raw = std::fs::read(dir.path().join("headend.db-wal")).unwrap();
    assert!(!raw.windows(8).any(|bytes| bytes == b"fx://doc"), "what is watched lies sealed");
    session.end();
    assert!(store.settled().await);
    assert!(store.find(&OWNER, &id).is_none());
    assert_eq!(session.look().await.unwrap(), Some(Kept::default()), "nothing is kept of an ended session");
    drop((store, session));

    let (_, store) = open(&dir);
    assert!(store.find(&OWNER, &id).is_none() && store.find(&OWNER, &other).is_some());
}

#[tokio::test]
async fn a_session_that_cannot_be_kept_as_a_whole_is_not_revived() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let (many, session) = store.begin(&OWNER, &terms()).unwrap();
    for n in 0..9 {
        session.keep_resource(&format!("fx://{n}/{}", "x".repeat(MAX_KEPT / 8))).await;
    }
    assert!(session.has_ended());
    let (unwritten, session) = store.begin(&OWNER, &terms()).unwrap();
    let (ended, other) = store.begin(&OWNER, &terms()).unwrap();
    db.refuse_writes(true);
    session.keep_level(LogLevel::Debug).await;
    other.end();
    assert!(!store.settled().await);
    assert!(store.begin(&OWNER, &terms()).is_none(), "its end could not be noted");
    db.refuse_writes(false);
    while !db.health().is_writable() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    store.sweep();
    assert!(store.settled().await);
    drop((db, store, session, other));
    let (_, store) = open(&dir);
    assert!([many, unwritten, ended].iter().all(|id| store.find(&OWNER, id).is_none()));
}

#[tokio::test]
async fn ended_sessions_are_bounded_on_disk_and_none_of_them_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let count = |db: &Db| db.ended_sessions(0).unwrap().len();
    let now = clock::since_1970().as_secs();
    let ids: Vec<String> = (0..MAX_NOTES as u64 + 100)
        .map(|n| {
            let terms = SessionTerms { opened: now - 100_000 + n, until: now + 3600, ..terms() };
            let (id, session) = store.begin(&OWNER, &terms).unwrap();
            session.end();
            if n % 1000 == 0 {
                db.all_so_far().run_now().unwrap();
            }
            id
        })
        .collect();
    assert!(store.settled().await);
    assert!(count(&db) <= MAX_NOTES, "{}", count(&db));
    drop((db, store));
    let (_, store) = open(&dir);
    assert!(ids.iter().all(|id| store.find(&OWNER, id).is_none()));
}
