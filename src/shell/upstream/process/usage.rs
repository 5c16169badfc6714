//! CPU time and memory of the processes of upstreams, read from `/proc`. On a system without it
//! there are no values.
//!
//! All processes of an upstream are below its guard, also those whose parent has ended. The time of
//! a process that has ended is included in that of the parent that waited for it, so a guard's own
//! children are counted when they end.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::telemetry::metrics::Usage;

/// Most processes that are read; with more on the system, no usage is reported.
const MOST: usize = 32_768;
/// Length of a clock tick: `USER_HZ` is 100 on each architecture that headend is built for. Source:
/// `times(2)`.
const TICK: Duration = Duration::from_millis(10);

/// The data of a process in `/proc/<pid>/stat`. Source: `proc_pid_stat(5)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessTimes {
    parent: u32,
    own: u64,
    /// Time of children that have ended and were waited for.
    ended: u64,
}

impl ProcessTimes {
    fn parse(stat: &[u8]) -> Option<Self> {
        // The name in parentheses may contain anything, parentheses too.
        let end = memchr::memrchr(b')', stat)?;
        let mut fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let mut ticks = fields.skip(9).map_while(|field| field.parse::<u64>().ok());
        let mut both = || Some(ticks.next()?.saturating_add(ticks.next()?));
        Some(Self { parent, own: both()?, ended: both()? })
    }
}

/// Returns the usage of the processes below each guard; empty if it is unknown. Reads a small file
/// for each process of the system, and blocks meanwhile.
pub fn below(guards: &[u32]) -> HashMap<u32, Usage> {
    if guards.is_empty() {
        return HashMap::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let numbers: Vec<u32> = numbers.take(MOST + 1).collect();
    if numbers.len() > MOST {
        return HashMap::new();
    }
    let seen: HashMap<u32, ProcessTimes> = numbers.into_iter().filter_map(|pid| Some((pid, times(pid)?))).collect();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    seen.iter().for_each(|(pid, times)| children.entry(times.parent).or_default().push(*pid));
    guards
        .iter()
        .filter_map(|guard| Some((*guard, sum(*guard, seen.get(guard)?.ended, &seen, &mut children))))
        .collect()
}

/// Adds up the usage below a guard. `ended` is the time of its own children that have ended.
fn sum(guard: u32, ended: u64, seen: &HashMap<u32, ProcessTimes>, children: &mut HashMap<u32, Vec<u32>>) -> Usage {
    let (mut ticks, mut memory) = (ended, 0_u64);
    // No list of children is used twice, so this terminates even if `/proc` changed while it was
    // read.
    let mut open = children.remove(&guard).unwrap_or_default();
    while let Some(pid) = open.pop() {
        open.extend(children.remove(&pid).unwrap_or_default());
        let Some(times) = seen.get(&pid) else { continue };
        ticks = ticks.saturating_add(times.own).saturating_add(times.ended);
        memory = memory.saturating_add(resident(pid).unwrap_or_default());
    }
    Usage { cpu: TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)), memory }
}

fn times(pid: u32) -> Option<ProcessTimes> {
    ProcessTimes::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the resident memory of a process in bytes; `None` if it has ended.
fn resident(pid: u32) -> Option<u64> {
    resident_in(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/status")).ok()?))
}

/// Parses `/proc/<pid>/status`, which counts in KiB for any page size. Source:
/// `proc_pid_status(5)`.
fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::{Child, ChildStdout, Command, Stdio};

    use super::*;

    #[test]
    fn times_are_read_whatever_the_name_is() {
        for name in ["sh", "a b", "x) R 1 (", ")"] {
            let stat = format!("7 ({name}) S 5 7 7 0 -1 4194560 1 0 0 0 11 12 13 14 20 0 1 0 4711 1 2 3\n");
            let times = ProcessTimes::parse(stat.as_bytes());
            assert_eq!(times, Some(ProcessTimes { parent: 5, own: 23, ended: 27 }), "{name}");
        }
        for cut in ["", "7 (sh", "7 (sh) S 5", "7 (sh) S 5 7 7 0 -1 4194560 1 0 0 0 11 12 13", "7 (sh) S x 7 7"] {
            assert_eq!(ProcessTimes::parse(cut.as_bytes()), None, "{cut}");
        }
    }

    #[test]
    fn memory_is_read_in_kib() {
        assert_eq!(resident_in("Name:\tsh\nVmHWM:\t    9 kB\nVmRSS:\t    1500 kB\nThreads:\t1\n"), Some(1_536_000));
        for none in ["", "Name:\tkthreadd\n", "VmRSS:\t1500\n", "VmRSS:\tx kB\n", "VmRSS:\t18446744073709551615 kB\n"] {
            assert_eq!(resident_in(none), None, "{none}");
        }
    }

    /// Starts a shell that has a running child, and a child that has ended after some work.
    fn family() -> (Child, BufReader<ChildStdout>) {
        let script = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; sh -c 'echo up; read end'; exit 0";
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        (child, out)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_below_a_process_count_and_it_does_not_itself() {
        let (mut child, mut out) = family();
        let guard = child.id();
        let used = below(&[guard, u32::MAX]);
        assert_eq!(used.len(), 1, "a process that is not there has no usage");
        let usage = used[&guard];
        // The ended child has used some time; the running child is one shell.
        assert!(usage.cpu >= TICK, "{usage:?}");
        let one = resident(guard).unwrap();
        assert!((one / 8..one * 8).contains(&usage.memory), "{usage:?}, and {one} bytes for the shell above");
        drop(child.stdin.take());
        out.read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap();
        assert!(below(&[guard]).is_empty() && below(&[]).is_empty());
    }
}
