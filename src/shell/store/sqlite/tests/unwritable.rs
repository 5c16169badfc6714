//! A file whose disk takes nothing: it is read whole or not at all, and writes wait for the disk.

use std::time::Duration;

use super::super::open as files;
use super::super::open::ReadOnlyCopy;
use super::*;
use crate::base::clock;

/// Returns the keys in `meta` that [`put`] made.
fn keys(connection: &Connection) -> Vec<String> {
    let mut select = connection.prepare("SELECT key FROM meta WHERE key LIKE 'k_' ORDER BY key").unwrap();
    let rows = select.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

fn bytes(path: &Path) -> [Option<Vec<u8>>; 2] {
    ["", "-wal"].map(|end| fs::read(format!("{}{end}", path.display())).ok())
}

/// Returns a copy of the files as a process that was killed leaves them, without the index of the
/// journal.
fn killed(dir: &tempfile::TempDir, name: &str) -> (tempfile::TempDir, PathBuf) {
    let other = tempfile::Builder::new().prefix(name).tempdir().unwrap();
    for end in ["", "-wal"] {
        let from = format!("{}{end}", file(dir).display());
        if fs::exists(&from).unwrap() {
            fs::copy(from, other.path().join(format!("headend.db{end}"))).unwrap();
        }
    }
    let path = other.path().join("headend.db");
    (other, path)
}

#[test]
fn a_copy_has_all_that_was_committed_and_leaves_the_files_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    db.write(|connection| put(connection, "k1")).run_now().unwrap();
    let (_in_journal, path) = killed(&dir, "odd ?#%name");
    assert!(bytes(&path)[1].as_ref().is_some_and(|journal| !journal.is_empty()), "it stands in the journal alone");
    let before = bytes(&path);
    let ReadOnlyCopy { connection, .. } = files::copy_to_memory(&path).unwrap();
    assert_eq!(keys(&connection), ["k1"]);
    assert!(put(&connection, "k2").is_err(), "a copy takes no writes");
    drop(connection);
    assert_eq!(bytes(&path), before);
    assert!(!fs::exists(format!("{}-shm", path.display())).unwrap(), "no index was made");

    db.write(|connection| put(connection, "k2")).run_now().unwrap();
    close(db, &dir);
    let (_whole, path) = killed(&dir, "whole");
    let before = bytes(&path);
    assert_eq!(before[1], None);
    assert_eq!(keys(&files::copy_to_memory(&path).unwrap().connection), ["k1", "k2"]);
    assert_eq!(bytes(&path), before);
}

#[test]
fn a_file_that_is_not_whole_without_a_write_is_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    db.damage("PRAGMA user_version = 1");
    close(db, &dir);
    let older = files::copy_to_memory(&file(&dir)).unwrap_err().to_string();
    assert!(older.contains("older headend"), "{older}");

    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    fs::write(dir.path().join("headend.db-journal"), "half a write").unwrap();
    let journal = files::copy_to_memory(&file(&dir)).unwrap_err().to_string();
    assert!(journal.contains("undone"), "{journal}");

    let dir = tempfile::tempdir().unwrap();
    assert!(files::copy_to_memory(&file(&dir)).is_err(), "there is none");
    fs::write(file(&dir), "").unwrap();
    fs::set_permissions(file(&dir), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(files::copy_to_memory(&file(&dir)).is_err(), "nothing was written to it yet");
}

#[test]
fn writes_are_refused_one_by_one_until_the_disk_takes_them_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    assert!(db.health().is_writable());
    db.refuse_writes(true);
    let refused = db.write(|connection| put(connection, "k1")).run_now().unwrap_err();
    assert!(refused.is_unwritable(), "{refused}");
    assert!(!db.health().is_writable());
    assert!(db.health().trouble().unwrap().why.contains("cannot be written"));
    // Operations that only read, or find nothing to write, still succeed.
    assert_eq!(count(&db), 1);
    db.write(|connection| connection.query_row("SELECT count(*) FROM meta", [], |row| row.get::<_, i64>(0)))
        .run_now()
        .unwrap();
    // Nor does one prove anything that writes what is there already.
    let same = |connection: &Connection| connection.execute("UPDATE meta SET value = value", []);
    let refused = db.write(same).run_now().unwrap_err();
    assert!(refused.is_unwritable() && !db.health().is_writable(), "{refused}");
    db.refuse_writes(false);
    let deadline = clock::now() + Duration::from_secs(5);
    while !db.health().is_writable() {
        assert!(clock::now() < deadline, "it tries again by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(db.health().trouble().is_none());
    db.write(|connection| put(connection, "k2")).run_now().unwrap();
    assert_eq!(db.read(|connection| Ok(keys(connection))).run_now().unwrap(), ["k2"]);
}
