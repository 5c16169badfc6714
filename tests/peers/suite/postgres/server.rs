//! A server of `PostgreSQL` of Debian for one test: data and socket in a folder, no port.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::left_out;

/// The user `nobody` of Debian: the server refuses to run as root.
const NOBODY: u32 = 65534;
/// Folder in memory, where a wait for the disk takes no time; the temporary folder without it.
const MEMORY: &str = "/dev/shm";

/// A running server, which ends with this value.
#[derive(Debug)]
pub(super) struct PostgresServer {
    folder: TempDir,
    programs: PathBuf,
}

impl PostgresServer {
    /// Starts a server with further lines of its configuration. Prints that a test is left out
    /// where none is installed.
    pub(super) fn start(more: &str) -> Option<Self> {
        let Some(programs) = find_programs() else {
            left_out("PostgreSQL", "no /usr/lib/postgresql/*/bin/initdb; install the package postgresql");
            return None;
        };
        let memory = Path::new(MEMORY);
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if rustix::process::getuid().is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let server = Self { folder, programs };
        let data = server.data();
        server.run(&["initdb", "-D", &data, "-A", "trust", "-U", "headend", "-E", "UTF8", "--no-locale", "-N"]);
        let lines = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 300\n{more}\n",
            server.folder.path().display()
        );
        let file = Path::new(&data).join("postgresql.conf");
        fs::write(&file, fs::read_to_string(&file).unwrap() + &lines).unwrap();
        server.resume();
        Some(server)
    }

    /// Returns the URL of a database.
    pub(super) fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user=headend", self.folder.path().display())
    }

    /// Starts the server again.
    pub(super) fn resume(&self) {
        let log = self.folder.path().join("log").display().to_string();
        self.run(&["pg_ctl", "-D", &self.data(), "-l", &log, "-w", "start"]);
    }

    /// Ends the server as a crash does.
    pub(super) fn crash(&self) {
        self.run(&["pg_ctl", "-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }

    /// Makes the server a standby at its next start.
    pub(super) fn demote(&self) {
        fs::write(Path::new(&self.data()).join("standby.signal"), "").unwrap();
    }

    /// Replaces the rules of who may connect, and returns those of before.
    pub(super) fn rule(&self, rules: &str) -> String {
        let file = Path::new(&self.data()).join("pg_hba.conf");
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, rules).unwrap();
        self.run(&["pg_ctl", "-D", &self.data(), "reload"]);
        before
    }

    /// Runs statements and returns what they print.
    pub(super) fn sql(&self, database: &str, statements: &str) -> String {
        let folder = self.folder.path().display().to_string();
        self.run(&[
            "psql",
            "-h",
            &folder,
            "-U",
            "headend",
            "-d",
            database,
            "-v",
            "ON_ERROR_STOP=1",
            "-Atqc",
            statements,
        ])
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn run(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let program = self.programs.join(words[0]);
        let mut command = if rustix::process::getuid().is_root() {
            let mut command = Command::new("setpriv");
            let id = NOBODY.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(&words[1..]).current_dir("/");
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.command(&["pg_ctl", "-D", &self.data(), "-m", "immediate", "-w", "stop"]).output());
    }
}

/// Returns the folder with the programs of the newest installed version.
fn find_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let folders = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    folders.max()
}
