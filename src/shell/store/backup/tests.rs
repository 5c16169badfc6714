use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;
use crate::store::db::Db;
use crate::store::seal::KeySource;

/// Text in rows that a backup must not have.
const GONE: &str = "marker-that-must-not-come-back";
/// Text in rows that a backup keeps.
const KEPT: &str = "marker-that-stays";

/// Creates a state directory with an open database that has a row in every table.
fn state() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open_with(dir.path(), &KeySource { make: true, ..KeySource::default() }).unwrap();
    let grant = |id: &str, lifetime: &str, text: &str| {
        format!(
            "INSERT INTO grants VALUES ('{id}', 'live', '{text}', 'fx', 'tool', 'fx__a', '', '', '', '', 'L1', 0, \
             'any', '{lifetime}', NULL, 'L3', 'uid:0', 1, 1, 0, NULL, NULL);"
        )
    };
    let sql = [
        grant("1", "once", GONE),
        grant("2", "always", KEPT),
        format!(
            "INSERT INTO approvals VALUES ('1', 'o', '{GONE}', 'fx', 'tool', 'a', 'a', '', 'L1', 0, 0, 'm', 1, 2, 'd');"
        ),
        format!("INSERT INTO answers VALUES ('1', '{GONE}', 'x', 1, NULL);"),
        format!("INSERT INTO used_states VALUES (cast('{GONE}' AS BLOB), 9);"),
        format!("INSERT INTO ended_sessions VALUES ('{GONE}', 1, x'00', 9);"),
        format!("INSERT INTO ended_floors VALUES ('{GONE}', 1, 9);"),
        format!("INSERT INTO session_levels VALUES (x'00', '{GONE}', 9);"),
        format!("INSERT INTO session_resources VALUES (x'00', 1, '{GONE}', 9);"),
        format!("INSERT INTO sign_ins VALUES (cast('{GONE}' AS BLOB), x'00', 9, 1);"),
        format!("INSERT INTO audit_heads VALUES ('main', 7, x'00', '{GONE}');"),
        format!("INSERT INTO logins VALUES ('fx', 'l', 'i', 1, 'live', '{KEPT}', 0, 5, 6);"),
    ];
    db.damage(sql.concat().leak());
    // Deleted rows, which may lie in free pages.
    let row = grant("' || value || '", "always", GONE).replace("VALUES (", "SELECT ");
    let rows = row.replace(");", " FROM generated;");
    let many = "CREATE TEMP VIEW generated AS WITH RECURSIVE n(value) AS (VALUES (10) UNION ALL SELECT value + 1 FROM n \
                WHERE value < 500) SELECT value FROM n; PRAGMA secure_delete = OFF;";
    db.damage(format!("{many}{rows}DROP VIEW generated;").leak());
    db.damage("DELETE FROM grants WHERE id NOT IN ('1', '2')");
    fs::write(dir.path().join("token"), "t".repeat(40)).unwrap();
    fs::write(dir.path().join("console-token"), GONE).unwrap();
    fs::write(dir.path().join("inventory-a.json"), "{}").unwrap();
    fs::write(dir.path().join("inventory-a.json.0a1b2c3d"), GONE).unwrap();
    (dir, db)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn has(path: &Path, text: &str) -> bool {
    fs::read(path).unwrap().windows(text.len()).any(|part| part == text.as_bytes())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_backup_beside_an_open_store_has_what_lasts_and_nothing_else() {
    let (state, db) = state();
    let place = tempfile::tempdir().unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let catalog = OpenOptions::new().append(true).open(state.path().join("inventory-a.json")).unwrap();
    catalog.set_modified(old).unwrap();
    let done = write(state.path(), &place.path().join("b"), false).unwrap();
    assert_eq!(done.rows, BackupRows { grants: 1, pins: 0, logins: 1 });
    let wanted = ["headend.db", "inventory-a.json", "token"];
    assert_eq!(names(&done.dir), wanted);
    assert_eq!(names(place.path()), ["b"], "no unfinished folder is left");
    assert_eq!(mode(&done.dir), 0o700);
    for name in wanted {
        assert_eq!(mode(&done.dir.join(name)), 0o600, "{name}");
        assert!(!has(&done.dir.join(name), GONE), "{name}");
    }
    assert!(has(&done.dir.join("headend.db"), KEPT));
    let copied = fs::metadata(done.dir.join("inventory-a.json")).unwrap().modified().unwrap();
    assert_eq!(copied, old, "a catalog is as old as the original");
    // The original continues unchanged.
    assert!(has(&state.path().join("headend.db"), GONE) || has(&state.path().join("headend.db-wal"), GONE));
    assert_eq!(db.restore_mark().run_now().unwrap(), None);
}

#[test]
fn a_restored_store_has_another_identity_and_the_secret_of_the_audit_log() {
    let (state, db) = state();
    let place = tempfile::tempdir().unwrap();
    db.see(4_000_000_000).run_now().unwrap();
    let done = write(state.path(), &place.path().join("b"), true).unwrap();
    assert_eq!(mode(&done.dir.join(KEY_FILE)), 0o600);
    let copy = Db::open(&done.dir).unwrap();
    let [own, other] = [&db, &copy].map(|db| db.identity().run_now().unwrap());
    assert_ne!(own, other);
    assert_eq!(own, db.installation_key().run_now().unwrap());
    assert_eq!(own, copy.installation_key().run_now().unwrap());
    let [own, other] = [&db, &copy].map(|db| db.secrets("states 1").unwrap().unwrap());
    assert_ne!(own.current, other.current, "no state of the original counts");
    assert_eq!(copy.latest_time().run_now().unwrap().as_secs(), 4_000_000_000, "the clock does not go back");
    assert!(copy.audit_heads().run_now().unwrap().is_empty());
    let mark = copy.restore_mark().run_now().unwrap().unwrap();
    assert!(!mark.is_recorded && mark.backup_time > 0);

    // A backup of a restored store starts unreviewed and unrecorded again.
    copy.note_restore_recorded().run_now().unwrap();
    let again = write(&done.dir, &place.path().join("c"), false).unwrap();
    let again = Db::open(&again.dir).unwrap();
    assert!(!again.restore_mark().run_now().unwrap().unwrap().is_recorded);
    // The restore is reviewed before any daemon has started on the store.
    let other = again.identity().run_now().unwrap();
    assert!(again.end_restore_review().run_now().unwrap().is_some());
    assert_ne!(again.identity().run_now().unwrap(), other, "not that of the backup");
    assert_eq!(copy.end_restore_review().run_now().unwrap(), Some(mark.backup_time));
    assert_eq!(copy.end_restore_review().run_now().unwrap(), None);
}

#[test]
fn a_backup_takes_no_place_of_anything_and_follows_no_link() {
    let (state, _db) = state();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/x"), "x").unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "x").unwrap();
    symlink(at("empty"), at("link")).unwrap();
    symlink(state.path(), at("state")).unwrap();
    for name in ["full", "file", "link"] {
        let refused = write(state.path(), &at(name), false).unwrap_err();
        assert!(matches!(refused, BackupError::Taken(_)), "{name}: {refused}");
    }
    for path in [state.path().join("b"), at("state/b"), at(".."), PathBuf::from("/")] {
        let refused = write(state.path(), &path, false).unwrap_err();
        assert!(matches!(refused, BackupError::Place(_)), "{path:?}: {refused}");
    }
    let refused = write(state.path(), &at("none/b"), false).unwrap_err();
    assert!(matches!(refused, BackupError::Failed(_)), "{refused}");
    assert_eq!(names(place.path()), ["empty", "file", "full", "link", "state"]);
    assert!(names(&at("empty")).is_empty() && !state.path().join("b").exists());
    write(state.path(), &at("empty"), false).unwrap();
    assert_eq!(mode(&at("empty")), 0o700);
}

#[test]
fn a_backup_that_fails_leaves_nothing() {
    let (state, _db) = state();
    let place = tempfile::tempdir().unwrap();
    // Other users may read the key, which is found only after the database was written.
    fs::set_permissions(state.path().join(KEY_FILE), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = write(state.path(), &place.path().join("b"), true).unwrap_err().to_string();
    assert!(refused.contains("secrets.key: may be read by others"), "{refused}");
    assert!(names(place.path()).is_empty());
}

#[test]
fn a_damaged_or_older_store_is_not_backed_up() {
    let place = tempfile::tempdir().unwrap();
    let (state, db) = state();
    db.damage("PRAGMA user_version = 3");
    for _ in 0..2 {
        let refused = write(state.path(), &place.path().join("b"), false).unwrap_err().to_string();
        assert!(refused.contains("by an older headend"), "it is left as it was: {refused}");
    }
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join(db::FILE), [7; 4096]).unwrap();
    let refused = write(state.path(), &place.path().join("b"), false).unwrap_err().to_string();
    assert!(refused.contains("is damaged"), "{refused}");
    assert!(names(place.path()).is_empty());
}
