//! A machine on which one call in flight can be timed.
//!
//! A virtual CPU that went to sleep takes tens of microseconds to wake up, and two processes that
//! take turns run twice as fast on one CPU as on two: either would drown the gateway's share. So
//! spinners at idle priority keep the CPUs awake, and the load and the upstream each stay on a CPU
//! of their own, as they do with a gateway between them.

use std::fs;
use std::process::{Command, Stdio};

use crate::gateway::on_path;
use crate::process::{MeasuredProcess, ServerProcess};

/// A quiet machine: until dropped, CPUs stay awake and processes stay on their CPUs.
#[derive(Debug)]
pub(crate) struct Quiet {
    _spinners: Option<ServerProcess>,
    held: Vec<u32>,
    allowed: String,
}

impl Quiet {
    /// Makes the machine quiet as far as its tools allow; prints missing tools.
    pub(crate) fn begin(upstream: Option<MeasuredProcess>) -> Self {
        let spinners = spinners();
        let mut quiet = Self { _spinners: spinners, held: Vec::new(), allowed: allowed_cpus() };
        let cpus = split(&quiet.allowed);
        let processes = [Some(std::process::id()), upstream.map(MeasuredProcess::pid)];
        match cpus.as_slice() {
            [first, second, ..] if on_path("taskset") => {
                for (pid, cpu) in processes.into_iter().zip([first, second]) {
                    if let Some(pid) = pid.filter(|pid| hold(*pid, cpu)) {
                        quiet.held.push(pid);
                    }
                }
            }
            _ => eprintln!("no taskset, or a single CPU: what one call takes will depend on who shares a CPU"),
        }
        quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        for pid in &self.held {
            if !hold(*pid, &self.allowed) {
                eprintln!("process {pid} could not be released from its CPU");
            }
        }
    }
}

/// Starts spinners, children at idle priority that keep the CPUs awake.
fn spinners() -> Option<ServerProcess> {
    let program = std::env::current_exe().ok().filter(|_| on_path("chrt"))?;
    let spinners = ServerProcess::start(Command::new("chrt").args(["--idle", "0"]).arg(program).arg("spin"));
    if spinners.is_err() {
        eprintln!("no chrt: what one call takes will include waking up CPUs");
    }
    spinners.ok()
}

/// Pins the main thread of a process to these CPUs; the load and the upstream have no other working
/// thread.
fn hold(pid: u32, cpus: &str) -> bool {
    let mut command = Command::new("taskset");
    command.args(["--pid", "--cpu-list", cpus, &pid.to_string()]).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns the CPUs this process may use, as `taskset` writes them: `0-3,6`.
fn allowed_cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap_or_default().trim().to_owned()
}

/// Returns the first CPUs of such a list.
fn split(list: &str) -> Vec<String> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().take(2).map(|cpu| cpu.to_string()).collect()
}
