//! Marks in the environment of each child that say which headend process started it. The next
//! headend that starts with the same state directory ends the processes of owners that are dead,
//! which are left behind only if a guard was killed.
//!
//! The processes of a live owner are left alone, even if others use the same state directory, as
//! several `headend stdio` may. A mark that leaves any doubt, such as one from another container,
//! ends nothing.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::base::clock;
use crate::upstream::process::cgroup::Cgroup;
use crate::upstream::process::launch::MARK;
use crate::upstream::process::procfs::ProcessEntry;

/// How long a start waits for the end of left processes, and when SIGTERM is followed by SIGKILL.
const PATIENCE: Duration = Duration::from_secs(2);
const POLITE: Duration = Duration::from_millis(800);
const AGAIN: Duration = Duration::from_millis(20);

/// A headend process, past or present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOwner {
    /// Identifies the state directory; 0 without one.
    state: u64,
    /// A random number that identifies the run.
    run: u64,
    /// Inode of the namespace in which `pid` counts.
    namespace: u64,
    pid: i32,
    started: u64,
}

impl ProcessOwner {
    /// Returns the owner that stands for this process.
    fn of(dir: Option<&Path>) -> Option<Self> {
        let state = dir.map_or(Some(0), |dir| {
            let meta = fs::metadata(dir).ok()?;
            Some((meta.dev().rotate_left(32) ^ meta.ino()).max(1))
        })?;
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        // If `/proc` belongs to another namespace, numbers in it mean other processes.
        let shown = fs::read_link("/proc/self").ok()?;
        shown.to_str().filter(|shown| shown.parse() == Ok(pid))?;
        Some(Self {
            state,
            run: u64::from_le_bytes(clock::random()),
            namespace,
            pid,
            started: ProcessEntry::at(pid)?.started,
        })
    }

    /// Parses the output of [`fmt::Display`], with or without the number of a start behind it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (state, run, namespace, pid, started) = (number()?, number()?, number()?, number()?, number()?);
        Some(Self { state, run, namespace, pid: i32::try_from(pid).ok()?, started })
    }

    /// Returns whether the other is a headend with the same state directory that has certainly
    /// ended.
    pub fn may_clean(&self, other: &Self) -> bool {
        let comparable = self.state != 0 && self.state == other.state && self.namespace == other.namespace;
        let lives = ProcessEntry::at(other.pid).is_some_and(|seen| seen.started == other.started && !seen.is_over);
        comparable && self.run != other.run && !lives
    }
}

impl fmt::Display for ProcessOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, run, namespace, pid, started } = self;
        write!(f, "{state:x}.{run:x}.{namespace:x}.{pid:x}.{started:x}")
    }
}

/// The source of marks, one for each start.
#[derive(Clone, Debug)]
pub struct OwnerMarks(Option<Arc<(ProcessOwner, AtomicU64)>>);

impl OwnerMarks {
    /// Ends the processes that dead owners with the same state directory left behind, then returns
    /// the marks of this process. Blocks meanwhile, for [`PATIENCE`] at most.
    pub fn claim(dir: Option<&Path>) -> Self {
        let owner = ProcessOwner::of(dir);
        if let Some(owner) = owner.as_ref().filter(|owner| owner.state != 0) {
            let is_dead = |mark: &str| ProcessOwner::parse(mark).is_some_and(|other| owner.may_clean(&other));
            for (_, group) in Cgroup::others().iter().filter(|(mark, _)| is_dead(mark)) {
                group.kill();
                group.remove();
            }
            end_all("of an earlier run", || marked(is_dead));
        }
        Self(owner.map(|owner| Arc::new((owner, AtomicU64::new(0)))))
    }

    /// Returns a mark that no other start has.
    pub fn next(&self) -> Option<String> {
        let (owner, count) = self.0.as_deref()?;
        Some(format!("{owner}.{:x}", count.fetch_add(1, Ordering::Relaxed)))
    }
}

/// Ends all processes that have exactly this mark. Blocks.
pub fn end_marked(mark: &str) {
    end_all("without its guard", || marked(|other| other == mark));
}

/// Returns the processes whose mark is wanted.
fn marked(is_wanted: impl Fn(&str) -> bool) -> Vec<ProcessEntry> {
    let is_wanted = |seen: &ProcessEntry| !seen.is_over && mark_of(seen).is_some_and(|mark| is_wanted(&mark));
    ProcessEntry::all().filter(is_wanted).collect()
}

/// Returns the mark of a process whose environment can be read.
fn mark_of(seen: &ProcessEntry) -> Option<String> {
    let environment = fs::read(format!("/proc/{}/environ", seen.pid.as_raw_nonzero())).ok()?;
    let found = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(found.to_vec()).ok()
}

/// Ends the processes that `left` returns until there are none, for [`PATIENCE`] at most. Blocks.
fn end_all(why: &str, left: impl Fn() -> Vec<ProcessEntry>) {
    let begun = clock::now();
    let mut told = false;
    loop {
        let found = left();
        let elapsed = clock::now().duration_since(begun);
        if found.is_empty() || elapsed > PATIENCE {
            if !found.is_empty() {
                tracing::error!(processes = found.len(), "processes of upstreams {why} cannot be ended");
            }
            return;
        }
        if !std::mem::replace(&mut told, true) {
            let pids: Vec<i32> = found.iter().map(|seen| seen.pid.as_raw_nonzero().get()).collect();
            tracing::warn!(?pids, "ending processes of upstreams {why}");
            found.iter().for_each(|seen| seen.signal(Signal::TERM));
        } else if elapsed > POLITE {
            found.iter().for_each(|seen| seen.signal(Signal::KILL));
        }
        std::thread::sleep(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn child(mark: &str) -> Child {
        Command::new("sleep").arg("30").env(MARK, mark).spawn().unwrap()
    }

    #[test]
    fn a_mark_reads_back_with_the_number_of_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let owner = ProcessOwner::of(Some(dir.path())).unwrap();
        assert_eq!(ProcessOwner::parse(&owner.to_string()), Some(owner.clone()));
        let marks = OwnerMarks(Some(Arc::new((owner.clone(), AtomicU64::new(0)))));
        let (one, two) = (marks.next().unwrap(), marks.next().unwrap());
        assert_ne!(one, two);
        assert_eq!(ProcessOwner::parse(&one), ProcessOwner::parse(&two));
        assert_eq!(ProcessOwner::parse(&one), Some(owner));
        for text in ["", "1.2.3.4", "1.2.3.-4.5", "1.2.3.ffffffff.5", "x.2.3.4.5"] {
            assert_eq!(ProcessOwner::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_owners_of_the_same_place_that_are_dead_for_certain_are_cleaned_up_after() {
        let dir = tempfile::tempdir().unwrap();
        let own = ProcessOwner::of(Some(dir.path())).unwrap();
        let mut living = child("x");
        let pid = i32::try_from(living.id()).unwrap();
        let lives =
            ProcessOwner { run: own.run ^ 1, pid, started: ProcessEntry::at(pid).unwrap().started, ..own.clone() };
        let earlier = ProcessOwner { started: lives.started - 1, ..lives.clone() };
        for (label, other, may) in [
            ("itself", own.clone(), false),
            ("one that lives", lives.clone(), false),
            ("an earlier process of that number", earlier.clone(), true),
            ("one with another state directory", ProcessOwner { state: own.state ^ 1, ..earlier.clone() }, false),
            ("one in another container", ProcessOwner { namespace: own.namespace ^ 1, ..earlier.clone() }, false),
        ] {
            assert_eq!(own.may_clean(&other), may, "{label}");
        }
        let without = ProcessOwner { state: 0, ..own.clone() };
        assert!(!without.may_clean(&ProcessOwner { state: 0, ..earlier }), "no state directory is no common one");
        living.kill().unwrap();
        assert!(!own.may_clean(&lives) || ProcessEntry::at(pid).is_some_and(|seen| seen.is_over), "a zombie is dead");
        living.wait().unwrap();
        assert!(own.may_clean(&lives));
    }

    #[test]
    fn what_a_dead_owner_left_is_ended_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let own = ProcessOwner::of(Some(dir.path())).unwrap();
        let dead = ProcessOwner { run: own.run ^ 1, started: own.started - 1, ..own.clone() };
        let lives = ProcessOwner { run: own.run ^ 2, ..own.clone() };
        let (mut left, mut kept) = (child(&format!("{dead}.0")), child(&format!("{lives}.0")));
        // A process has its own environment only after its `exec`.
        std::thread::sleep(Duration::from_millis(100));
        let _marks = OwnerMarks::claim(Some(dir.path()));
        assert!(!left.wait().unwrap().success());
        assert!(kept.try_wait().unwrap().is_none());
        end_marked(&format!("{lives}.1"));
        assert!(kept.try_wait().unwrap().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| end_marked(&format!("{lives}.0")));
            assert!(!kept.wait().unwrap().success());
        });
    }
}
