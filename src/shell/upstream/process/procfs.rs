//! Processes as listed in `/proc`: their parents and start times.

use std::collections::HashMap;
use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// A process, identified so that a later one with the same number is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    /// Start time, in clock ticks since the start of the system.
    pub(super) started: u64,
    /// True if the process has ended and its parent has not waited for it.
    pub(super) is_over: bool,
}

impl ProcessEntry {
    /// Returns the process with this number.
    pub(super) fn at(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses `/proc/<pid>/stat`. Source: `proc_pid_stat(5)`.
    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        // The name in parentheses may contain anything, parentheses too.
        let end = memchr::memrchr(b')', stat)?;
        let mut rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
        let state = rest.next()?;
        let parent = rest.next()?.parse().ok()?;
        let started = rest.nth(17)?.parse().ok()?;
        Some(Self { pid: Pid::from_raw(pid)?, parent, started, is_over: matches!(state, "Z" | "X") })
    }

    /// Iterates over all processes that are visible.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::at(entry.file_name().to_str()?.parse().ok()?))
    }

    /// Returns all processes below a process.
    pub(super) fn below(root: Pid) -> Vec<Self> {
        let mut children: HashMap<i32, Vec<Self>> = HashMap::new();
        for seen in Self::all() {
            children.entry(seen.parent).or_default().push(seen);
        }
        let mut found = children.remove(&root.as_raw_nonzero().get()).unwrap_or_default();
        let mut next = 0;
        while let Some(seen) = found.get(next) {
            let pid = seen.pid.as_raw_nonzero().get();
            found.extend(children.remove(&pid).unwrap_or_default());
            next += 1;
        }
        found
    }

    /// Sends the process a signal, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        let same = || Self::at(self.pid.as_raw_nonzero().get()).is_some_and(|now| now.started == self.started);
        // The process may have ended by now, or may have changed its user.
        let _sent = match pidfd_open(self.pid, PidfdFlags::empty()) {
            // From here on the number cannot mean another process.
            Ok(held) if same() => pidfd_send_signal(held, signal),
            Err(Errno::NOSYS) if same() => kill_process(self.pid, signal),
            Ok(_) | Err(_) => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_system_is_read_whatever_the_name_is() {
        let line = |name: &str, state: &str| {
            format!("7 ({name}) {state} 5 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 2 3\n").into_bytes()
        };
        for name in ["sh", "a b", "x) R 1 (", ")"] {
            let seen = ProcessEntry::parse(7, &line(name, "S")).unwrap();
            assert_eq!((seen.parent, seen.started, seen.is_over), (5, 4711, false), "{name}");
        }
        assert!(ProcessEntry::parse(7, &line("sh", "Z")).unwrap().is_over);
        for cut in ["", "7 (sh", "7 (sh) S 5", "7 (sh) S x 7 7"] {
            assert_eq!(ProcessEntry::parse(7, cut.as_bytes()), None, "{cut}");
        }
    }

    #[test]
    fn a_process_is_below_its_parent_and_no_other_gets_its_signal() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let seen = ProcessEntry::at(pid).unwrap();
        let me = rustix::process::getpid();
        assert!(ProcessEntry::below(me).contains(&seen) && !ProcessEntry::below(seen.pid).contains(&seen));
        ProcessEntry { started: seen.started + 1, ..seen }.signal(Signal::KILL);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "another process of that number");
        seen.signal(Signal::KILL);
        assert!(!child.wait().unwrap().success());
    }
}
