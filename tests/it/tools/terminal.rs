//! Commands of `headend` on a terminal, which has 80 columns by default.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::harness::{TestHome, headend};
use super::process::{eventually, pid_of, wait};

/// A running command and its terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts `headend ARGS` in this world. `typed` is in the terminal's buffer before the command
    /// runs.
    pub(crate) fn start(world: &TestHome, args: &[&str], typed: &str) -> Self {
        Self::start_by(world, headend(), args, typed)
    }

    /// Starts this program on a terminal.
    pub(crate) fn by(world: &TestHome, program: &str, args: &[&str]) -> Self {
        Self::start_by(world, program, args, "")
    }

    /// Starts `headend ARGS` on a terminal of this many columns.
    pub(crate) fn wide(world: &TestHome, columns: u16, args: &[&str]) -> Self {
        Self::start_on(world, headend(), args, "", columns)
    }

    /// Starts `headend ARGS` as the controlling process of its terminal.
    pub(crate) fn controlling(world: &TestHome, args: &[&str]) -> Self {
        Self::start_by(world, "setsid", &[&["--ctty", headend()][..], args].concat(), "")
    }

    fn start_by(world: &TestHome, program: &str, args: &[&str], typed: &str) -> Self {
        Self::start_on(world, program, args, typed, 80)
    }

    fn start_on(world: &TestHome, program: &str, args: &[&str], typed: &str, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let mut keys = File::from(master);
        keys.write_all(typed.as_bytes()).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = world.command(program);
        let child = command.args(args).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop((command, slave));
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        let (shown, mut output) = (Arc::clone(&screen), keys.try_clone().unwrap());
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails when the last program has closed its side.
            while let Ok(read) = output.read(&mut bytes)
                && read > 0
            {
                shown.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Self { child, keys, screen, reader: Some(reader) }
    }

    /// Returns everything that was shown so far.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Waits until this text is shown.
    pub(crate) fn wait_for(&self, text: &str) {
        eventually(&format!("the terminal shows {text:?}"), || self.screen().contains(text));
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Sends the signal of Ctrl-C to the command, then waits as [`Self::end`] does.
    pub(crate) fn interrupted(self) -> (Option<i32>, String) {
        kill_process(pid_of(&self.child), Signal::INT).unwrap();
        self.end()
    }

    /// Waits for the end of the command, and returns its exit code and everything that was shown.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child, Duration::from_secs(30));
        if status.is_some() {
            self.reader.take().unwrap().join().unwrap();
        }
        (status.unwrap_or_else(|| panic!("it did not end: {}", self.screen())).code(), self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The command may have ended already.
        let _ignored = self.child.kill();
        let _ignored = self.child.wait();
    }
}
