//! Child processes, and the kernel's figures about them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::serve::LISTENING;

/// A tick of /proc/PID/stat: `USER_HZ`, which is 100 on every architecture this runs on.
const TICK: Duration = Duration::from_millis(10);

/// Longest time until a process ends after SIGTERM.
const STOP: Duration = Duration::from_secs(3);

/// A child that is ended when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
}

impl ServerProcess {
    /// # Errors
    /// When the program cannot be started.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::piped()).spawn();
        Ok(Self { child: child.with_context(|| format!("start {}", command.get_program().display()))? })
    }

    /// Starts a subcommand of this program that prints its addresses, and returns these.
    ///
    /// # Errors
    /// When it ends before it has named `count` addresses.
    pub(crate) fn start_own(arguments: &[&str], count: usize) -> anyhow::Result<(Self, Vec<String>)> {
        let program = std::env::current_exe().context("find this program")?;
        let mut server = Self::start(Command::new(program).args(arguments).stdout(Stdio::piped()))?;
        let output = server.child.stdout.take().context("read what the child says")?;
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let addresses: Vec<String> =
            lines.filter_map(|line| line.strip_prefix(LISTENING).map(str::to_owned)).take(count).collect();
        if addresses.len() < count {
            bail!("`bench {}` ended before it listened", arguments.join(" "));
        }
        Ok((server, addresses))
    }

    pub(crate) fn process(&self) -> MeasuredProcess {
        MeasuredProcess { pid: self.child.id(), with_children: false }
    }

    /// Returns a process that is measured with its direct children: for programs whose workers are
    /// processes.
    pub(crate) fn process_tree(&self) -> MeasuredProcess {
        MeasuredProcess { pid: self.child.id(), with_children: true }
    }

    /// Returns how the child ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }
}

impl ServerProcess {
    /// Ends it with SIGTERM, or by force where it has not ended after this time. False where it
    /// took force.
    pub(crate) fn end(&mut self, patience: Duration) -> bool {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && self.ended().is_none()
        {
            // A process that has ended needs no signal.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + patience;
        while self.ended().is_none() {
            if Instant::now() > deadline {
                // Killing fails only when it has just ended.
                drop(self.child.kill());
                drop(self.child.wait());
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end(STOP);
    }
}

/// A process to be measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredProcess {
    pid: u32,
    with_children: bool,
}

impl MeasuredProcess {
    pub(crate) fn alone(pid: u32) -> Self {
        Self { pid, with_children: false }
    }

    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    /// Returns the user and system time so far, to [`TICK`].
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn cpu(self) -> anyhow::Result<Duration> {
        self.pids()?.into_iter().map(cpu_of).sum()
    }

    /// Returns the resident memory in KiB.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn rss_kib(self) -> anyhow::Result<u64> {
        self.pids()?.into_iter().map(|pid| memory_of(pid, "VmRSS:")).sum()
    }

    /// Returns the resident memory that is backed by no file: not the program itself, but its
    /// allocations.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn anonymous_kib(self) -> anyhow::Result<u64> {
        self.pids()?.into_iter().map(|pid| memory_of(pid, "RssAnon:")).sum()
    }

    fn pids(self) -> anyhow::Result<Vec<u32>> {
        let mut pids = vec![self.pid];
        if self.with_children {
            let children = read(self.pid, &format!("task/{}/children", self.pid))?;
            pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        Ok(pids)
    }
}

fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    let stat = read(pid, "stat")?;
    // The second field is the program's name in parentheses and may contain both spaces and
    // parentheses; utime and stime are the fields 14 and 15.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times: Vec<u32> = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    let [user, system] = times.as_slice() else { bail!("/proc/{pid}/stat has no times") };
    Ok(TICK * (user + system))
}

fn memory_of(pid: u32, kind: &str) -> anyhow::Result<u64> {
    let status = read(pid, "status")?;
    let value =
        status.lines().find_map(|line| line.strip_prefix(kind)).and_then(|value| value.split_whitespace().next());
    value.and_then(|kib| kib.parse().ok()).with_context(|| format!("/proc/{pid}/status has no {kind}"))
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("read {path}"))
}
