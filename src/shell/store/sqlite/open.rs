//! Opens the file and judges it: for writing, or, where its disk takes nothing, as a copy in memory
//! to be read.
//!
//! `SQLite` writes even to read a file with a write-ahead log: the log's index is a file beside it.
//! So a file whose disk is full or read-only is copied: as it lies there where its log holds
//! nothing, else through a connection that has the file for itself, for which `SQLite` keeps the
//! index in memory. All that was ever committed is in the copy, or there is none.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::describe_error;
use super::schema;
use crate::base::clock;
use crate::config::source::guard;
use crate::store::port::DbError;

/// Longest time for which another process may hold the file.
pub(super) const BUSY: Duration = Duration::from_secs(5);
/// Longest time for which another process may hold the file while it is opened, in place of
/// [`BUSY`]: on a busy machine the writing of another process's log alone may take some seconds,
/// and waiting processes get their turn by chance. A start that gives up is an outage; one that
/// waits is not.
const OPENING: Duration = Duration::from_secs(20);
/// Pause between two tries of an operation for which `SQLite` itself does not wait.
const RETRY: Duration = Duration::from_millis(5);
/// Most attempts to copy a file that changes meanwhile.
const COPIES: usize = 5;
/// Pages that are copied in one step.
const PAGES: std::ffi::c_int = 1024;

/// Opens the file for reading and writing, and makes it if it is missing. Checks its permissions
/// and content, turns the write-ahead log on, and migrates the tables to this version. Blocks.
pub(super) fn open_for_writing(path: &Path) -> Result<Connection, DbError> {
    make_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|error| describe_error(path, &error))?;
    prepare(&connection).map_err(|error| describe_error(path, &error))?;
    schema::migrate(&mut connection, &clock::random()).map_err(|obstacle| stopped(path, obstacle))?;
    connection.busy_timeout(BUSY).map_err(|error| describe_error(path, &error))?;
    Ok(connection)
}

/// Makes a database without a file.
#[cfg(test)]
pub(super) fn in_memory(path: &Path) -> Result<Connection, DbError> {
    let mut connection = Connection::open_in_memory().map_err(|error| describe_error(path, &error))?;
    harden(&connection).map_err(|error| describe_error(path, &error))?;
    schema::migrate(&mut connection, &clock::random()).map_err(|obstacle| stopped(path, obstacle))?;
    Ok(connection)
}

fn stopped(path: &Path, obstacle: schema::SchemaObstacle) -> DbError {
    match obstacle {
        schema::SchemaObstacle::Newer(found) => DbError::Newer { path: path.to_owned(), found, known: schema::VERSION },
        schema::SchemaObstacle::Foreign => {
            DbError::Corrupt { path: path.to_owned(), why: "its tables are not ours".to_owned() }
        }
        schema::SchemaObstacle::Sql(error) => describe_error(path, &error),
    }
}

/// Returns the paths of the file, of its write-ahead log, and of the log's index.
fn files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| beside(path, end))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut file = path.as_os_str().to_owned();
    file.push(end);
    PathBuf::from(file)
}

/// Makes the file with mode 0600 if it is missing, and takes the rights of others from one that is
/// there; the files beside it get the same mode from `SQLite`, which follows no link for them.
/// Fails if any of them is a link, belongs to another user, or may be written by others.
///
/// The file is not opened where it is there: closing it would give back the locks of another
/// connection of this process.
fn make_file(path: &Path) -> Result<(), DbError> {
    let failed =
        |path: &Path, error: &io::Error| DbError::NotWritable { path: path.to_owned(), why: error.to_string() };
    match fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // A disk that takes no writes may say so first.
        Err(_) if path.exists() => {}
        Err(error) => return Err(failed(path, &error)),
    }
    let [file, ..] = files(path);
    if check_files(path)?.permissions().mode() & guard::SECRET != 0 {
        let alone = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&file, alone).map_err(|error| failed(&file, &error))?;
    }
    Ok(())
}

/// Fails if the file is missing, or if it or a file beside it is a link, belongs to another user,
/// or may be written by others. Returns the file's metadata.
fn check_files(path: &Path) -> Result<fs::Metadata, DbError> {
    let refused = |path: &Path, error: io::Error| DbError::Refused { path: path.to_owned(), why: error.to_string() };
    let [file, others @ ..] = files(path);
    for other in others {
        match guard::check_path(&other, guard::SHARED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(&other, error)),
            _ => {}
        }
    }
    guard::check_path(&file, guard::SHARED).map_err(|error| refused(&file, error))
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(OPENING)?;
    harden(connection)?;
    connection.pragma_update(None, "secure_delete", true)?;
    let mode = write_ahead(connection)?;
    if mode != "wal" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        return Err(rusqlite::Error::SqliteFailure(code, Some(format!("its journal stays {mode:?}"))));
    }
    connection.pragma_update(None, "synchronous", "FULL")
}

fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(verdict)));
    }
    Ok(())
}

/// Turns the write-ahead log on, and returns the journal mode that the file has then. Repeats it
/// while the file is busy: of several processes that do it at once `SQLite` refuses all but one
/// without asking the busy handler, since each holds a lock that the other one wants.
fn write_ahead(connection: &Connection) -> rusqlite::Result<String> {
    let until = clock::now() + OPENING;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && clock::now() < until => {
                std::thread::sleep(RETRY);
            }
            mode => return mode,
        }
    }
}

/// A fingerprint of the file and its log: their lengths and modification times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp([Option<(u64, SystemTime)>; 2]);

impl FileStamp {
    pub(super) fn of(path: &Path) -> Self {
        let one = |path: PathBuf| {
            let data = fs::symlink_metadata(path).ok()?;
            Some((data.len(), data.modified().ok()?))
        };
        let [file, log, _] = files(path);
        Self([one(file), one(log)])
    }

    /// Returns whether the log may hold something that the file does not.
    fn has_log(self) -> bool {
        let Self([_, log]) = self;
        log.is_some_and(|(length, _)| length != 0)
    }
}

/// A copy of the file's content in memory, which takes no writes.
#[derive(Debug)]
pub(super) struct ReadOnlyCopy {
    pub(super) connection: Connection,
    /// The fingerprint of the file when it was copied.
    pub(super) stamp: FileStamp,
}

/// Copies a file of this program's version into memory, where it can only be read. Nothing on the
/// disk changes. Tries again if the file changes meanwhile.
///
/// # Errors
/// When not all that was committed can be read.
pub(super) fn copy_to_memory(path: &Path) -> Result<ReadOnlyCopy, DbError> {
    let sql = |error: rusqlite::Error| describe_error(path, &error);
    for _ in 0..COPIES {
        check_files(path)?;
        let stamp = FileStamp::of(path);
        let connection = copy(path, stamp)?;
        if FileStamp::of(path) != stamp {
            continue;
        }
        harden(&connection).map_err(sql)?;
        judge_version(&connection, path)?;
        connection.pragma_update(None, "query_only", true).map_err(sql)?;
        return Ok(ReadOnlyCopy { connection, stamp });
    }
    Err(DbError::Busy { path: path.to_owned() })
}

/// Copies the file's content of one moment into memory while other processes may write it. The file
/// is not changed, and must be of this program's version.
///
/// # Errors
/// When not all that was committed can be read.
pub(super) fn snapshot(path: &Path) -> Result<Connection, DbError> {
    check_files(path)?;
    let source = match source(path) {
        Ok(source) => source,
        // The disk takes no writes, not even those of a reader.
        Err(error) if error.is_unwritable() => {
            let ReadOnlyCopy { connection, .. } = copy_to_memory(path)?;
            connection.pragma_update(None, "query_only", false).map_err(|error| describe_error(path, &error))?;
            return Ok(connection);
        }
        Err(error) => return Err(error),
    };
    let copy = copy_in_one_step(&source).map_err(|error| describe_error(path, &error))?;
    copy.ok_or_else(|| DbError::Busy { path: path.to_owned() })
}

/// Opens a file of this program's version to be read while other processes may write it. Closing it
/// leaves its log.
pub(super) fn source(path: &Path) -> Result<Connection, DbError> {
    let sql = |error: rusqlite::Error| describe_error(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(path, flags).map_err(sql)?;
    source.busy_timeout(OPENING).map_err(sql)?;
    source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sql)?;
    harden(&source).map_err(sql)?;
    judge_version(&source, path)?;
    Ok(source)
}

/// Opens a file of this program's version for a look while other processes may write it. Nothing on
/// the disk changes.
///
/// # Errors
/// When it cannot be read.
pub(super) fn open_to_look(path: &Path) -> Result<Connection, DbError> {
    check_files(path)?;
    if FileStamp::of(path).has_log() {
        return source(path);
    }
    let connection = open_without_log(path).map_err(|error| describe_error(path, &error))?;
    judge_version(&connection, path)?;
    Ok(connection)
}

/// Copies a database in one step, which is one moment of it; `None` if it was locked for too long.
fn copy_in_one_step(source: &Connection) -> rusqlite::Result<Option<Connection>> {
    let until = clock::now() + OPENING;
    let mut copy = Connection::open_in_memory()?;
    let is_done = {
        let backup = Backup::new(source, &mut copy)?;
        loop {
            if backup.step(-1)? == StepResult::Done {
                break true;
            }
            if clock::now() >= until {
                break false;
            }
            std::thread::sleep(RETRY);
        }
    };
    Ok(is_done.then_some(copy))
}

/// Checks that a copy that was written is whole and of this program's version.
///
/// # Errors
/// The fault of the copy.
pub(super) fn check_copy(path: &Path) -> Result<(), DbError> {
    let copy = open_without_log(path).map_err(|error| describe_error(path, &error))?;
    let verdict = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    let verdict = verdict.map_err(|error| describe_error(path, &error))?;
    if verdict != "ok" {
        let why = format!("the copy is not what was written: {verdict}");
        return Err(DbError::Failed { path: path.to_owned(), why });
    }
    judge_version(&copy, path)
}

/// Fails unless the file has the tables of this program's version. Does not migrate it: reading
/// must not change it.
fn judge_version(connection: &Connection, path: &Path) -> Result<(), DbError> {
    let taken = schema::count_taken_steps(connection, schema::VERSION).map_err(|obstacle| stopped(path, obstacle))?;
    if taken != schema::VERSION {
        let why = "it was not made whole, or by an older headend, and has to be written first".to_owned();
        return Err(DbError::Failed { path: path.to_owned(), why });
    }
    Ok(())
}

fn copy(path: &Path, stamp: FileStamp) -> Result<Connection, DbError> {
    let failed = |why: String| DbError::Failed { path: path.to_owned(), why };
    let journal = beside(path, "-journal");
    if fs::symlink_metadata(&journal).is_ok_and(|data| data.len() != 0) {
        return Err(failed("an earlier write has to be undone first".to_owned()));
    }
    let source = if stamp.has_log() { open_exclusively(path) } else { open_without_log(path) };
    let copy = source.and_then(|source| {
        let mut copy = Connection::open_in_memory()?;
        Backup::new(&source, &mut copy)?.run_to_completion(PAGES, Duration::ZERO, None)?;
        Ok(copy)
    });
    copy.map_err(|error| describe_error(path, &error))
}

/// Opens the file to be read as it lies there, without locks and without its write-ahead log, which
/// must be empty.
fn open_without_log(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(address(path), flags)
}

/// Opens the file with its write-ahead log, locked against other processes, so that the log's index
/// is in memory. Closing it leaves the log.
fn open_exclusively(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    Ok(connection)
}

/// Returns the `SQLite` URI of a file that nothing changes while it is open: `file:`, the path with
/// special bytes as `%XX`, and `?immutable=1`, by which neither locks nor the write-ahead log are
/// used.
fn address(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut address = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => address.push(char::from(*byte)),
            other => address.push_str(&format!("%{other:02x}")),
        }
    }
    address + "?immutable=1"
}
