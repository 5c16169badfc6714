//! Helpers for child processes: waiting for them, reading their output, inspecting them, ending
//! them.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ExitStatus, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Waits for a child with piped outputs, and kills it if it takes too long.
pub(crate) fn output_within(mut child: Child, patience: Duration, what: &str) -> Output {
    let stdout = child.stdout.take().map(|pipe| thread::spawn(move || read_all(pipe)));
    let stderr = child.stderr.take().map(|pipe| thread::spawn(move || read_all(pipe)));
    let status = wait(&mut child, patience);
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let collect = |reader: Option<thread::JoinHandle<Vec<u8>>>| reader.map(|r| r.join().unwrap()).unwrap_or_default();
    let (stdout, stderr) = (collect(stdout), collect(stderr));
    let Some(status) = status else {
        panic!("{what} did not end within {patience:?}\n{}", String::from_utf8_lossy(&stderr));
    };
    Output { status, stdout, stderr }
}

fn read_all(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Bytes before an error are still worth showing.
    let _ignored = pipe.read_to_end(&mut bytes);
    bytes
}

/// Waits until the child ends, at most this long.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Asks repeatedly until the answer is yes. Fails with this description after a minute, which only
/// a machine that has stalled needs.
pub(crate) fn eventually(what: &str, probe: impl FnMut() -> bool) {
    within(Duration::from_secs(60), what, probe);
}

/// Asks repeatedly like [`eventually`], within this time.
pub(crate) fn within(patience: Duration, what: &str, mut probe: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !probe() {
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Lines that a child prints, collected while it runs. Each look reads the pipe first, so it
/// includes every line that the child wrote before.
#[derive(Debug, Clone)]
pub(crate) struct Lines(Arc<Printed>);

#[derive(Debug)]
struct Printed {
    pipe: OwnedFd,
    read: Mutex<ReadLines>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct ReadLines {
    lines: Vec<String>,
    /// The beginning of a line whose end has not arrived.
    rest: Vec<u8>,
    has_ended: bool,
}

/// Default capacity of a pipe in bytes.
const PIPE_BYTES: usize = 64 << 10;

impl Lines {
    pub(crate) fn of(pipe: impl Into<OwnedFd>) -> Self {
        let printed = Arc::new(Printed { pipe: pipe.into(), read: Mutex::default(), more: Condvar::new() });
        let lines = Self(Arc::clone(&printed));
        thread::spawn(move || {
            while !printed.now().has_ended {
                printed.poll(None);
            }
        });
        lines
    }

    /// Returns all lines of a child that has ended. The last ones may be read after its end was
    /// noticed.
    pub(crate) fn to_end(&self) -> Vec<String> {
        self.0.wait_for(Duration::from_secs(10), |read| read.has_ended.then_some(()));
        self.all()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.now().lines.clone()
    }

    /// Waits until `find` returns a value for the lines so far.
    pub(crate) fn wait_for<T>(&self, patience: Duration, find: impl Fn(&[String]) -> Option<T>) -> Option<T> {
        self.0.wait_for(patience, |read| find(&read.lines))
    }
}

impl Printed {
    /// Reads the contents of the pipe, and returns all lines so far.
    fn now(&self) -> MutexGuard<'_, ReadLines> {
        let mut read = self.read.lock().unwrap();
        if !read.has_ended && self.poll(Some(&Timespec::default())) {
            read.add(&self.pipe);
            self.more.notify_all();
        }
        read
    }

    /// Returns whether there is something to read, or the end.
    fn poll(&self, patience: Option<&Timespec>) -> bool {
        retry_on_intr(|| poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], patience)).unwrap() > 0
    }

    fn wait_for<T>(&self, patience: Duration, find: impl Fn(&ReadLines) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let mut read = self.now();
        loop {
            if let Some(found) = find(&read) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // Waits are short, so that the caller's own check notices a child that has ended.
            drop(self.more.wait_timeout(read, left.min(Duration::from_millis(100))).unwrap());
            read = self.now();
        }
    }
}

impl ReadLines {
    fn add(&mut self, pipe: &OwnedFd) {
        let from = self.rest.len();
        self.rest.resize(from + PIPE_BYTES, 0);
        let count = retry_on_intr(|| rustix::io::read(pipe, &mut self.rest[from..])).unwrap_or(0);
        self.rest.truncate(from + count);
        self.has_ended = count == 0;
        if let Some(end) = memchr::memrchr(b'\n', &self.rest[from..]) {
            let rest = self.rest.split_off(from + end + 1);
            let whole = std::mem::replace(&mut self.rest, rest);
            self.lines.extend(whole[..from + end].split(|byte| *byte == b'\n').map(line));
        }
        if self.has_ended && !self.rest.is_empty() {
            self.lines.push(line(&std::mem::take(&mut self.rest)));
        }
    }
}

fn line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim_end().to_owned()
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

/// Returns the processes that have this one as an ancestor.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        next += 1;
        for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found.remove(0);
    found
}

/// Returns whether a process with this id still runs (a zombie does not).
pub(crate) fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Ends a daemon: by SIGTERM twice, then by SIGKILL.
pub(crate) fn end(child: &mut Child) {
    for (signal, patience) in [(Signal::TERM, 1500), (Signal::TERM, 3000), (Signal::KILL, 5000)] {
        if wait(child, Duration::ZERO).is_some() {
            return;
        }
        // The process may have ended already; then the signal has no receiver.
        let _ignored = if signal == Signal::KILL {
            kill_process_group(pid_of(child), signal)
        } else {
            kill_process(pid_of(child), signal)
        };
        if wait(child, Duration::from_millis(patience)).is_some() {
            return;
        }
    }
}

/// Returns whether a program is installed.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

/// Returns the output of a program that has ended, for the message of a failure.
pub(crate) fn said(output: &Output) -> String {
    format!(
        "{:?}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Returns a port on which nothing listens. It is below the ports that Linux assigns by itself, so
/// no other test gets it by chance.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let turn = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + u16::try_from(turn % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
