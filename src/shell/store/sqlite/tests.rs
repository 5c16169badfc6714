use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::TransactionBehavior;

use super::open::BUSY;
use super::*;
use crate::policy::consent::{ApprovalSubject, GrantArguments, GrantLifetime, GrantRow};
use crate::policy::{ApprovalEvidence, PolicyAction};
use crate::store::port::{ApprovalOperations as _, AuditOperations as _, GrantOperations as _};
use crate::store::seal::KeySource;

mod unwritable;
mod version_1;

/// The database of a directory with a key of its own, without the types above.
pub(super) fn open(dir: &Path) -> Result<Sqlite, DbError> {
    let seals = Seals::of(dir, &KeySource { make: true, ..KeySource::default() }).map_err(DbError::Key)?;
    Sqlite::open(dir.join(FILE), seals)
}

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("headend.db")
}

/// Returns the sentence that a file is refused with; it names the file and the way out.
fn refusal(dir: &tempfile::TempDir) -> String {
    let text = open(dir.path()).unwrap_err().to_string();
    assert!(text.contains(&file(dir).display().to_string()), "{text}");
    text
}

fn count(db: &Sqlite) -> i64 {
    db.read(|connection| connection.query_row("SELECT count(*) FROM meta", [], |row| row.get(0))).run_now().unwrap()
}

fn put(connection: &Connection, key: &str) -> rusqlite::Result<usize> {
    connection.execute("INSERT INTO meta (key, value) VALUES (?1, x'00')", [key])
}

#[test]
fn a_fresh_store_is_for_its_owner_alone_and_durable() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    let pragma = |name: &'static str| {
        let read = db.read(move |c| c.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0)));
        read.run_now().unwrap()
    };
    assert_eq!(pragma("journal_mode"), "wal".to_owned().into());
    assert_eq!((pragma("synchronous"), pragma("trusted_schema")), (2.into(), 0.into()));
    assert_eq!(db.installation_key().run_now().unwrap().len(), 32);
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
    drop(db);
    fs::set_permissions(file(&dir), fs::Permissions::from_mode(0o644)).unwrap();
    let again = open(dir.path()).unwrap();
    assert_eq!(fs::metadata(file(&dir)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(count(&again), 1, "the key is made once");
}

#[test]
fn the_journal_is_emptied_beside_jobs_that_wait() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    let (go, wait) = mpsc::channel();
    let (begun, holds) = mpsc::channel();
    db.read(move |_| {
        begun.send(()).unwrap();
        wait.recv().unwrap();
        Ok(())
    })
    .then(|outcome| outcome.unwrap());
    holds.recv().unwrap();
    db.write(|connection| put(connection, "one")).then(|outcome| assert_eq!(outcome.unwrap(), 1));
    let (reply, emptied) = mpsc::channel();
    db.empty_journal().then(move |outcome| reply.send(outcome).unwrap());
    go.send(()).unwrap();
    emptied.recv().unwrap().unwrap();
    let journal = fs::metadata(dir.path().join("headend.db-wal")).unwrap();
    assert_eq!(journal.len(), 0);
}

#[test]
fn jobs_that_wait_share_one_transaction_and_fail_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    // Holds the thread, with no operation beside it, until all others wait.
    let (go, wait) = mpsc::channel::<()>();
    let (begun, holds) = mpsc::channel();
    let held = db.write(move |_| {
        begun.send(()).unwrap();
        wait.recv().unwrap();
        Ok(())
    });
    held.then(|_| {});
    holds.recv().unwrap();
    let (reply, answers) = mpsc::sync_channel(100);
    for n in 0..100 {
        let (reply, path) = (reply.clone(), file(&dir));
        // Every tenth writes and then fails. The others tell what is visible outside of their
        // transaction.
        let work = move |connection: &Connection| {
            put(connection, &format!("k{n}"))?;
            let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            let outside = || Connection::open(path)?.query_row("SELECT count(*) FROM meta", [], count);
            if n % 10 == 0 { Err(rusqlite::Error::InvalidQuery) } else { outside() }
        };
        db.write(work).then(move |outcome| reply.send((n, outcome.ok())).unwrap());
    }
    go.send(()).unwrap();
    for (at, (n, outside)) in answers.iter().take(100).enumerate() {
        assert_eq!((n, outside), (at, (n % 10 != 0).then_some(1)), "in order, and nothing before everything");
    }
    assert_eq!(count(&db), 91);
}

fn grant(id: &str) -> GrantRow {
    let asked = ApprovalSubject::new(
        &PolicyAction::stand_in("ci", "fx", "fx__echo"),
        &Arc::from("ask-all"),
        ApprovalEvidence::Client,
    );
    GrantRow {
        id: Arc::from(id),
        asked,
        arguments: GrantArguments::Any,
        lifetime: GrantLifetime::UntilChanged,
        evidence: ApprovalEvidence::Operator,
        by: Arc::from("uid:1"),
        granted_at: 1,
        last_used: 1,
        uses: 0,
    }
}

#[test]
fn grants_that_cannot_be_read_cover_nothing_and_can_be_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    for id in ["aaaa", "bbbb", "cccc", "dddd"] {
        db.keep_grant(grant(id), None).run_now().unwrap();
    }
    db.write(|connection| {
        connection.execute("UPDATE grants SET caller = CAST(x'ff' AS TEXT) WHERE id IN ('bbbb', 'cccc')", [])?;
        connection.execute("UPDATE grants SET kind = 'other' WHERE id = 'dddd'", [])
    })
    .run_now()
    .unwrap();
    let live =
        |db: &Sqlite| -> Vec<String> { db.grants().run_now().unwrap().iter().map(|row| row.id.to_string()).collect() };
    assert_eq!(live(&db), ["aaaa"], "the others hold");
    let revoke = |id: Option<&str>| -> Vec<(String, bool)> {
        let revoked = db.revoke_grants(id.map(str::to_owned), 2).run_now().unwrap();
        revoked.iter().map(|one| (one.id.to_string(), one.row.is_some())).collect()
    };
    assert_eq!(revoke(Some("bbbb")), [("bbbb".to_owned(), false)]);
    assert_eq!(revoke(Some("bbbb")), []);
    let mut rest = revoke(None);
    rest.sort();
    assert_eq!(rest, [("aaaa".to_owned(), true), ("cccc".to_owned(), false), ("dddd".to_owned(), false)]);
    assert_eq!(live(&db), Vec::<String>::new());
}

#[test]
fn what_is_answered_is_on_the_disk_for_others_to_see() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (open(dir.path()).unwrap(), open(dir.path()).unwrap());
    one.write(|connection| put(connection, "one")).run_now().unwrap();
    other.write(|connection| put(connection, "other")).run_now().unwrap();
    assert_eq!((count(&one), count(&other)), (3, 3));
}

#[test]
fn many_processes_may_make_the_store_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let made = || open(dir.path()).map(|db| count(&db));
    let counts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(made)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert_eq!(counts, [1; 8]);
}

#[test]
fn a_store_that_another_process_makes_meanwhile_is_never_taken_for_a_foreign_one() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    // Unmakes and makes the store in one step each, as the first start makes it.
    let tables = [
        "grants",
        "approvals",
        "answers",
        "pins",
        "limits",
        "audit_heads",
        "meta",
        "used_states",
        "ended_sessions",
        "ended_floors",
        "session_levels",
        "session_resources",
        "sign_ins",
        "client_tokens",
        "logins",
        "login_issuers",
        "registrations",
    ];
    let unmake: String =
        tables.map(|name| format!("DROP TABLE IF EXISTS {name};")).concat() + "PRAGMA user_version = 0;";
    let steps = [unmake.as_str(), "CREATE TABLE grants (x); PRAGMA user_version = 1;"];
    let mut maker = Connection::open(file(&dir)).unwrap();
    maker.busy_timeout(BUSY).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in steps.iter().cycle().take(400) {
                let change = maker.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
                change.execute_batch(step).unwrap();
                change.commit().unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let reader = Connection::open(file(&dir)).unwrap();
        reader.busy_timeout(BUSY).unwrap();
        while !done.load(Ordering::Acquire) {
            schema::count_taken_steps(&reader, schema::VERSION).unwrap();
        }
    });
}

#[test]
fn a_file_that_is_no_database_is_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(file(&dir), "this is text, and long enough to be taken for a header of a database file".repeat(20))
        .unwrap();
    let text = refusal(&dir);
    assert!(text.contains("move it away") && text.contains("asked for again"), "{text}");
}

#[test]
fn a_damaged_file_is_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    for n in 0..200 {
        db.write(move |connection| put(connection, &format!("{n:>200}"))).run_now().unwrap();
    }
    assert_eq!(db.grants().run_now().unwrap().len(), 0);
    // Closed, so that the file is read and not the log.
    close(db, &dir);
    let mut bytes = fs::read(file(&dir)).unwrap();
    let length = bytes.len();
    bytes[length / 2..length / 2 + 8192].fill(0xa5);
    fs::write(file(&dir), bytes).unwrap();
    let text = refusal(&dir);
    assert!(text.contains("damaged") && text.contains("move it away"), "{text}");
}

#[test]
fn a_database_of_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let other = Connection::open(file(&dir)).unwrap();
    other.execute_batch("CREATE TABLE precious (x)").unwrap();
    drop(other);
    assert!(refusal(&dir).contains("not ours"));
    let other = Connection::open(file(&dir)).unwrap();
    assert_eq!(other.query_row("SELECT count(*) FROM precious", [], |row| row.get::<_, i64>(0)), Ok(0));
}

#[test]
fn a_store_of_a_newer_program_is_refused_with_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    db.damage("PRAGMA user_version = 99");
    close(db, &dir);
    let text = refusal(&dir);
    assert!(text.contains("newer headend") && text.contains("99") && text.contains("knows 14"), "{text}");
}

#[test]
fn a_place_where_no_file_can_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(file(&dir)).unwrap();
    assert!(refusal(&dir).contains("is not a file"));
}

/// Drops it and waits until its thread has closed the file.
fn close<D>(db: D, dir: &tempfile::TempDir) {
    drop(db);
    while dir.path().join("headend.db-wal").exists() {
        std::thread::yield_now();
    }
}
