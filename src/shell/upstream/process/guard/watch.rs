//! The code of the guard itself: one thread that starts the program; waits for it, for orders and
//! for the end of headend; and ends all processes below it. It reads no configuration and starts no
//! runtime.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal as mask;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, wait};

use crate::base::clock;
use crate::upstream::process::cgroup::Cgroup;
use crate::upstream::process::guard::containers::ContainerEngine;
use crate::upstream::process::guard::order::{END, GUARD, GuardReport, KILL, LEASE, StartOrder, TERM};
use crate::upstream::process::mark::ProcessOwner;
use crate::upstream::process::procfs::ProcessEntry;

/// Time from SIGTERM to SIGKILL after the end of headend, when children have lost their stdin too.
const ALONE: Duration = Duration::from_millis(800);
/// Time from SIGTERM to SIGKILL for processes that a program left behind.
const LEFT: Duration = Duration::from_millis(300);
/// Time after which the guard gives up: processes left by then belong to another user, or are stuck
/// in the system.
const LIMIT: Duration = Duration::from_millis(1800);
/// Time that a container engine may take to list and end containers.
const ENGINE: Duration = Duration::from_secs(2);
/// Interval at which the end of a lease is looked at. The system does not count the time in which
/// the machine sleeps as part of a wait.
const LOOK: Duration = Duration::from_millis(500);
/// Interval at which remaining processes are killed again: they may have started others meanwhile.
const AGAIN: Duration = Duration::from_millis(20);

/// Runs the guard if the command line asks for one; `None` otherwise. Returns the reason if it
/// fails, for people who try it by hand.
pub fn run_if_asked(words: impl Iterator<Item = OsString>) -> Option<Result<(), String>> {
    let mut words = words.skip(1);
    words.next().filter(|word| word == GUARD)?;
    Some(run().map_err(|error| format!("`{GUARD}` is for headend's own use: {error}")))
}

/// Reads the order from stdin, starts the program, and follows headend's signals. At headend's
/// order, or once headend is gone, ends all processes below the guard and the program's containers.
fn run() -> io::Result<()> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (stdin, _lifeline) = receive(&control)?;
    let order = StartOrder::read(&control)?;
    // The name that `ps` and `top` show.
    let _only_a_name = rustix::thread::set_name(c"headend-guard");
    rustix::process::set_child_subreaper(Some(getpid()))?;
    if order.no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
    }
    if let Some(umask) = order.umask {
        rustix::process::umask(Mode::from_raw_mode(umask));
    }
    let containers = LaunchedContainers::of(&order);
    containers.iter().for_each(LaunchedContainers::end_left);
    // Everything that can fail comes before the start: a guard that ended afterwards would leave
    // its child behind.
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    let (heeded, signals) = signals()?;
    if order.until.is_some_and(is_over) {
        return Err(io::Error::other("the lease has run out"));
    }
    let group = order.mark().and_then(Cgroup::enter);
    let started = start(&order, stdin);
    // The guard must not be killed with its child.
    let group = group.filter(|group| group.leave().is_ok());
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            group.iter().for_each(Cgroup::remove);
            return (&control).write_all(GuardReport::Failed(error.raw_os_error().unwrap_or(0)).line().as_bytes());
        }
    };
    // Blocked only now, because the child would have inherited the mask.
    let _blocked = heeded.thread_block();
    // Only the child must have the ends of the pipes.
    let _closed = rustix::stdio::dup2_stdin(&nothing)
        .and_then(|()| rustix::stdio::dup2_stdout(&nothing))
        .and_then(|()| rustix::stdio::dup2_stderr(&nothing));
    drop(nothing);
    let until = order.until;
    let mut watch = GuardState { control, signals, child, group, until, child_is_over: false, headend_is_there: true };
    watch.say(GuardReport::Started);
    watch.run();
    let _unblocked = heeded.thread_unblock();
    containers.iter().for_each(LaunchedContainers::end_own);
    Ok(())
}

/// Receives the descriptors that came with the first byte: the program's stdin, and the write end
/// of the upstream's lifeline, which the guard only holds.
fn receive(control: &UnixStream) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let mut space = [const { std::mem::MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(2))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut passed, RecvFlags::CMSG_CLOEXEC)?;
    let fds = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => Some((fds.next()?, fds.next())),
        RecvAncillaryMessage::ScmCredentials(_) => None,
        _ => None,
    });
    fds.last().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Starts the program in a process group of its own.
fn start(order: &StartOrder, stdin: OwnedFd) -> io::Result<Pid> {
    let mut command = Command::new(&order.file);
    command.arg0(&order.name).args(&order.arguments).env_clear();
    command.envs(order.environment.iter().map(|(key, value)| (key, value)));
    if let Some(cwd) = &order.cwd {
        command.current_dir(cwd);
    }
    command.stdin(stdin).stdout(Stdio::inherit()).stderr(Stdio::inherit()).process_group(0);
    Ok(Pid::from_child(&command.spawn()?))
}

/// Returns the signals to block, and the descriptor from which they are read then. Signals that ask
/// a process to end do nothing: a service manager may send them to all processes at once, while
/// headend still uses this guard's child.
fn signals() -> io::Result<(mask::SigSet, SignalFd)> {
    let mut set = mask::SigSet::empty();
    for signal in [mask::Signal::SIGCHLD, mask::Signal::SIGTERM, mask::Signal::SIGINT, mask::Signal::SIGHUP] {
        set.add(signal);
    }
    let read = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    Ok((set, read))
}

/// Returns whether a time, in milliseconds since the start of the machine, has passed.
fn is_over(until: u64) -> bool {
    clock::millis(clock::since_boot()) >= until
}

/// The containers of a program that runs one.
struct LaunchedContainers<'a> {
    engine: ContainerEngine<'a>,
    /// The mark of this start.
    mark: &'a str,
}

impl<'a> LaunchedContainers<'a> {
    fn of(order: &'a StartOrder) -> Option<Self> {
        let global = order.arguments.get(..order.container?)?;
        let mark = order.mark()?;
        let (file, environment, cwd) = (&order.file, &order.environment, order.cwd.as_deref());
        Some(Self { engine: ContainerEngine { file, global, environment, cwd }, mark })
    }

    /// Ends the containers that headend processes of the same state directory left when they died.
    fn end_left(&self) {
        if let Some(own) = ProcessOwner::parse(self.mark) {
            self.engine.end_all(|mark| ProcessOwner::parse(mark).is_some_and(|other| own.may_clean(&other)), ENGINE);
        }
    }

    fn end_own(&self) {
        self.engine.end(self.mark, ENGINE);
    }
}

/// The state of the guard while its program runs.
struct GuardState {
    control: UnixStream,
    signals: SignalFd,
    child: Pid,
    group: Option<Cgroup>,
    /// Time at which the program ends, in milliseconds since the start of the machine; `None` for a
    /// program without a lease.
    until: Option<u64>,
    /// True once the child was waited for: another group may have its number by now.
    child_is_over: bool,
    headend_is_there: bool,
}

impl GuardState {
    /// Follows orders, and reports the program's end, until headend orders the end or is gone. Then
    /// ends all processes below the guard.
    fn run(&mut self) {
        self.reap();
        loop {
            if self.until.is_some_and(is_over) {
                return self.end(Duration::ZERO);
            }
            let left = self.until.map(|until| Duration::from_millis(until).saturating_sub(clock::since_boot()));
            match self.next(left.map(|left| left.min(LOOK))) {
                Some(LEASE) => self.renew(),
                Some(TERM) if !self.child_is_over => drop(kill_process_group(self.child, Signal::TERM)),
                Some(END) => return self.end(LEFT),
                Some(KILL) => return self.end(Duration::ZERO),
                Some(_) | None if self.headend_is_there => {}
                Some(_) | None => return self.end(ALONE),
            }
        }
    }

    /// Reads the end of a renewed lease, which follows its order. The end never moves back.
    fn renew(&mut self) {
        let mut until = [0; 8];
        match self.control.read_exact(&mut until) {
            Ok(()) => self.until = self.until.max(Some(u64::from_le_bytes(until))),
            Err(_) => self.headend_is_there = false,
        }
    }

    /// Waits for a signal or an order, for `patience` at most. Reports a program that has ended,
    /// and returns the order, if there is one.
    fn next(&mut self, patience: Option<Duration>) -> Option<u8> {
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let (control, signals) = (PollFd::new(&self.control, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN));
        let mut watched = [signals, control];
        // After the end of headend its socket is always ready.
        let watched = if self.headend_is_there { &mut watched[..] } else { &mut watched[..1] };
        let polled = poll(watched, patience.as_ref());
        let ordered = watched.get(1).is_some_and(|control| !control.revents().is_empty());
        if polled.is_err_and(|error| error != Errno::INTR) {
            // Avoids a busy loop.
            std::thread::sleep(AGAIN);
        }
        while matches!(self.signals.read_signal(), Ok(Some(_))) {}
        self.reap();
        if !ordered {
            return None;
        }
        let mut order = [0];
        match self.control.read(&mut order) {
            Ok(1) => order.first().copied(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Ok(_) | Err(_) => {
                self.headend_is_there = false;
                None
            }
        }
    }

    /// Collects all children that have ended, without waiting, and reports the program's end.
    /// Returns true if others are left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.child => {
                    self.child_is_over = true;
                    self.say(GuardReport::Ended(status.as_raw()));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn say(&mut self, report: GuardReport) {
        // If headend is gone, there is no one to report to.
        drop(self.control.write_all(report.line().as_bytes()));
    }

    /// Ends all processes below the guard: with SIGTERM, after `grace` with SIGKILL. Gives up after
    /// [`LIMIT`]. As every orphan is adopted, none are left when there is no child.
    fn end(&mut self, grace: Duration) {
        let begun = clock::now();
        let mut kill_at = begun + grace;
        self.signal_all(Signal::TERM);
        while self.reap() && clock::now() < begun + LIMIT {
            let left = kill_at.saturating_duration_since(clock::now());
            if left.is_zero() {
                self.group.iter().for_each(Cgroup::kill);
                self.signal_all(Signal::KILL);
            }
            let pause = if left.is_zero() { AGAIN } else { left };
            if self.next(Some(pause)) == Some(KILL) {
                kill_at = begun;
            }
        }
        self.group.iter().for_each(Cgroup::remove);
    }

    fn signal_all(&self, signal: Signal) {
        for seen in ProcessEntry::below(getpid()) {
            seen.signal(signal);
        }
    }
}
