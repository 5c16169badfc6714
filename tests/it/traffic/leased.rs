//! Tests of the guard of a program that runs under a lease: it ends the program by itself.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::{ClockId, clock_gettime};

use crate::tools::harness::headend;

/// Returns the time since the start of the machine.
fn since_boot() -> Duration {
    let read = clock_gettime(ClockId::Boottime);
    Duration::new(read.tv_sec.try_into().unwrap(), read.tv_nsec.try_into().unwrap())
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap()
}

/// Encodes the order for a program with a lease until this time.
fn order(words: &[&str], until: u64) -> Vec<u8> {
    let (until, arguments) = (until.to_string(), (words.len() - 1).to_string());
    // The file, the name, no directory, no umask, privileges as they are, and no container.
    let mut texts = vec!["/bin/sh", words[0], "", "", "", "", &until, &arguments];
    texts.extend(&words[1..]);
    texts.extend(["PATH", "/usr/bin:/bin"]);
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
    let body: Vec<u8> = texts.iter().flat_map(|text| [&length(text.len())[..], text.as_bytes()].concat()).collect();
    [&length(body.len())[..], &body].concat()
}

/// A guard that this test has started in place of headend.
struct TestGuard {
    guard: Child,
    control: UnixStream,
    /// The input of the program, which stays open.
    _stdin: OwnedFd,
}

impl TestGuard {
    /// Starts a guard whose program sleeps, with a lease until this time.
    fn start(until: Duration) -> Self {
        let (control, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        let fds = [reader.as_fd()];
        passed.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&control, &[IoSlice::new(b"0")], &mut passed, SendFlags::NOSIGNAL).unwrap();
        let mut command = Command::new(OsStr::new(headend()));
        command.args(["guard", "fx"]).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let guard = command.stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        (&control).write_all(&order(&["sh", "-c", "sleep 600"], millis(until))).unwrap();
        Self { guard, control, _stdin: writer.into() }
    }

    /// Renews the lease until this time.
    fn renew(&mut self, until: Duration) {
        let order = [b"L".as_slice(), &millis(until).to_le_bytes()].concat();
        self.control.write_all(&order).unwrap();
    }

    /// Returns the reports until the guard has ended. A program that was killed got SIGTERM too,
    /// and either may have ended it.
    fn reports(mut self) -> Vec<String> {
        let lines = BufReader::new(&self.control).lines().map_while(Result::ok);
        let reports = lines.map(|line| if line == "ended 15" { "ended 9".to_owned() } else { line }).collect();
        self.guard.wait().unwrap();
        reports
    }
}

#[test]
fn a_guard_ends_its_program_with_the_lease_although_headend_does_nothing() {
    let begun = since_boot();
    let guard = TestGuard::start(begun + Duration::from_secs(1));
    assert_eq!(guard.reports(), ["started", "ended 9"]);
    assert!(since_boot() >= begun + Duration::from_secs(1));
}

#[test]
fn a_renewed_lease_lasts_and_never_gets_shorter() {
    let begun = since_boot();
    let mut guard = TestGuard::start(begun + Duration::from_secs(2));
    let until = begun + Duration::from_secs(4);
    guard.renew(until);
    guard.renew(begun);
    let mut first = [0; 8];
    guard.control.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"started\n");
    assert_eq!(guard.reports(), ["ended 9"]);
    assert!(since_boot() >= until);
}

#[test]
fn a_program_whose_lease_is_over_is_not_started() {
    let guard = TestGuard::start(since_boot().saturating_sub(Duration::from_secs(1)));
    assert_eq!(guard.reports(), Vec::<String>::new());
}
