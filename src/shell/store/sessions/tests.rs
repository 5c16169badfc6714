use super::*;
use crate::engine::sealed::ended::MAX_NOTES;
use crate::mcp::version::Revision;

/// The owner of sessions: our own user, by the generated token.
fn owner() -> SessionOwner<'static> {
    SessionOwner { caller: Caller::local(), kind: "token", token: &[7; 32], profile: None }
}

fn open(dir: &tempfile::TempDir) -> (Db, SessionStore) {
    let db = Db::open(dir.path()).unwrap();
    (db.clone(), SessionStore::open(db).unwrap().unwrap())
}

fn goes_on(store: &SessionStore, id: &str) -> bool {
    store.find(&owner(), id).is_some_and(|(session, _)| !session.has_ended())
}

/// Removes the notes of all ended sessions, and returns what is kept of one of them.
async fn look_without_end(db: &Db, session: &KeptSession) -> SessionRows {
    db.damage("DELETE FROM ended_sessions");
    session.look().await.unwrap().unwrap()
}

fn terms() -> SessionTerms {
    let opened = clock::since_1970().as_secs();
    let revision = Revision::V2025_06_18;
    SessionTerms { opened, until: opened + 3600, revision, is_here: false, capabilities: None, run: None }
}

#[tokio::test]
async fn a_session_is_found_after_a_restart_until_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let (id, session) = store.begin(&owner(), &terms()).unwrap();
    let (other, _) = store.begin(&owner(), &terms()).unwrap();
    session.keep_level(LogLevel::Warning).await;
    let one = session.keep_resource("fx://doc/1").await;
    session.keep_resource("fx://doc/2").await;
    session.drop_resource(one, "fx://doc/1").await;
    drop((db, store, session));

    let (_, store) = open(&dir);
    let (session, _) = store.find(&owner(), &id).unwrap();
    let kept = session.look().await.unwrap().unwrap();
    assert_eq!(kept.level.as_deref(), Some("warning"));
    let [(slot, uri)] = &kept.resources[..] else { panic!("{kept:?}") };
    assert_eq!(uri, "fx://doc/2");
    assert!(session.keep_resource("fx://doc/3").await > *slot, "no place is given twice");
    let raw = std::fs::read(dir.path().join("headend.db-wal")).unwrap();
    assert!(!raw.windows(8).any(|bytes| bytes == b"fx://doc"), "what is watched lies sealed");
    session.end();
    assert!(store.settled().await);
    assert!(!goes_on(&store, &id));
    assert_eq!(session.look().await.unwrap(), None, "an ended session is not revived");
    drop((store, session));

    let (db, store) = open(&dir);
    assert!(!goes_on(&store, &id) && goes_on(&store, &other));
    let (session, _) = store.find(&owner(), &id).unwrap();
    assert_eq!(look_without_end(&db, &session).await, SessionRows::default(), "nothing is kept of an ended session");
}

#[tokio::test]
async fn a_session_that_cannot_be_kept_as_a_whole_is_not_revived() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let (many, session) = store.begin(&owner(), &terms()).unwrap();
    for n in 0..9 {
        session.keep_resource(&format!("fx://{n}/{}", "x".repeat(MAX_KEPT / 8))).await;
    }
    assert!(session.has_ended());
    let (unwritten, session) = store.begin(&owner(), &terms()).unwrap();
    let (ended, other) = store.begin(&owner(), &terms()).unwrap();
    db.refuse_writes(true);
    session.keep_level(LogLevel::Debug).await;
    other.end();
    assert!(!store.settled().await);
    assert!(store.begin(&owner(), &terms()).is_none(), "its end could not be noted");
    db.refuse_writes(false);
    while !db.health().is_writable() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    store.sweep();
    assert!(store.settled().await);
    drop((db, store, session, other));
    let (_, store) = open(&dir);
    assert!([many, unwritten, ended].iter().all(|id| !goes_on(&store, id)));
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
            let (id, session) = store.begin(&owner(), &terms).unwrap();
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
    assert!(ids.iter().all(|id| !goes_on(&store, id)));
}

#[tokio::test]
async fn nothing_is_kept_of_a_session_that_ended_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let (_, session) = store.begin(&owner(), &terms()).unwrap();
    // A server takes its time for a subscription, and the client ends its session meanwhile.
    session.end();
    session.keep_resource("fx://doc/1").await;
    session.keep_level(LogLevel::Debug).await;
    assert_eq!(session.look().await.unwrap(), None);
    assert_eq!(look_without_end(&db, &session).await, SessionRows::default());
}

#[tokio::test]
async fn a_session_that_ended_by_a_clock_ahead_stays_ended_when_that_is_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let terms = terms();
    let (_, session) = store.begin(&owner(), &SessionTerms { until: terms.opened, ..terms }).unwrap();
    assert!(db.latest_time().run_now().unwrap().as_secs() < terms.opened);
    session.end();
    assert!(store.settled().await);
    assert!(db.latest_time().run_now().unwrap().as_secs() >= terms.opened, "the next process begins no earlier");
}

#[test]
fn an_id_is_unknown_to_every_other_store_whatever_its_key() {
    let given = crate::config::source::secret::Secret::new("one key for all".repeat(4));
    let key = crate::store::seal::KeySource { given: Some(given), ..Default::default() };
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = dirs.each_ref().map(|dir| {
        let db = Db::open_with(dir.path(), &key).unwrap();
        assert!(db.secrets("x").unwrap().is_some());
        SessionStore::open(db).unwrap().unwrap()
    });
    let (id, session) = one.begin(&owner(), &terms()).unwrap();
    // A second store knows nothing of the end.
    session.end();
    assert!(!goes_on(&one, &id) && !goes_on(&other, &id));
}

#[tokio::test]
async fn no_session_that_ended_comes_back_however_many_end_while_the_store_takes_no_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (db, store) = open(&dir);
    let sessions: Vec<_> = (0..MAX_UNNOTED + 100).map(|_| store.begin(&owner(), &terms()).unwrap()).collect();
    let dev = Caller::named("dev");
    let other = SessionOwner { caller: &dev, ..owner() };
    let (theirs, live) = store.begin(&other, &terms()).unwrap();
    db.refuse_writes(true);
    for (n, (_, session)) in sessions.iter().enumerate() {
        session.end();
        if n % 1000 == 0 {
            db.all_so_far().run_now().unwrap();
        }
    }
    assert!(!store.settled().await);
    db.refuse_writes(false);
    while !db.health().is_writable() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    while !store.settled().await {
        store.sweep();
    }
    let ids: Vec<String> = sessions.into_iter().map(|(id, _)| id).collect();
    drop((db, store, live));
    let (_, store) = open(&dir);
    assert_eq!(ids.iter().filter(|id| goes_on(&store, id)).count(), 0);
    assert!(store.find(&other, &theirs).is_some_and(|(session, _)| !session.has_ended()), "another caller's");
}
