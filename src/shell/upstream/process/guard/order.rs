//! The messages between headend and a guard: the order to start a program, then single letters;
//! reports as lines.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::base::clock::millis;
use crate::config::ContainerRun;
use crate::upstream::process::guard::containers::label;
use crate::upstream::process::launch::{Launch, MARK, SpawnError};

/// The word that makes this program a guard; the upstream's name follows, for people. It is checked
/// before all other arguments.
pub(super) const GUARD: &str = "guard";

/// Send SIGTERM to the program's group.
pub(super) const TERM: u8 = b'T';
/// The program has ended: end the processes that it left behind.
pub(super) const END: u8 = b'E';
/// The program may run for longer: eight bytes follow, the milliseconds since the start of the
/// machine after which it ends, with the lowest byte first.
pub(super) const LEASE: u8 = b'L';
/// Send SIGKILL to all processes.
pub(super) const KILL: u8 = b'K';

/// Longest order in bytes: the system starts no program with such a long environment.
const MAX_BYTES: u32 = 64 << 20;

/// A program to start. Its environment contains secrets.
#[derive(PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct StartOrder {
    pub(super) file: OsString,
    pub(super) name: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) umask: Option<u32>,
    pub(super) no_new_privileges: bool,
    /// Set if it runs a container: the number of arguments that are options of every engine
    /// command.
    pub(super) container: Option<usize>,
    /// Time at which the guard ends the program by itself, in milliseconds since the start of the
    /// machine.
    pub(super) until: Option<u64>,
}

impl StartOrder {
    /// Creates the order for a launch, and labels the container if it runs one.
    pub(super) fn of(launch: &Launch) -> Result<Self, SpawnError> {
        let (name, arguments) = launch.words()?;
        let words: Vec<String> = std::iter::once(name).chain(arguments.iter().copied()).map(str::to_owned).collect();
        let mut arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let container = ContainerRun::of(&words);
        if let (Some(run), Some(mark)) = (container, &launch.mark) {
            let at = run.global.len() + run.command.len();
            arguments.splice(at..at, label(mark));
        }
        Ok(Self {
            file: launch.file().as_os_str().to_owned(),
            name: name.into(),
            arguments,
            environment: launch.environment().collect(),
            cwd: launch.directory().map(PathBuf::from),
            umask: launch.confinement.umask,
            no_new_privileges: launch.confinement.no_new_privileges,
            container: container.map(|run| run.global.len()),
            until: launch.lease.as_ref().map(|lease| millis(*lease.until().borrow())),
        })
    }

    /// Returns the mark of this start.
    pub(super) fn mark(&self) -> Option<&str> {
        self.environment.iter().rfind(|(key, _)| key == MARK)?.1.to_str()
    }

    /// Encodes the order: a length and that many bytes, which are texts with their lengths before
    /// them.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut texts: Vec<&OsStr> = Vec::new();
        let umask = self.umask.map(|umask| format!("{umask:o}")).unwrap_or_default();
        let (arguments, cwd) = (self.arguments.len().to_string(), self.cwd.as_deref());
        let confined = if self.no_new_privileges { "1" } else { "" };
        texts.extend([self.file.as_os_str(), &self.name, cwd.map_or(OsStr::new(""), |cwd| cwd.as_os_str())]);
        let container = self.container.map(|global| global.to_string()).unwrap_or_default();
        let until = self.until.map(|until| until.to_string()).unwrap_or_default();
        texts.extend([&umask, confined, &container, &until, &arguments].map(OsStr::new));
        texts.extend(self.arguments.iter().map(OsString::as_os_str));
        texts.extend(self.environment.iter().flat_map(|(key, value)| [key.as_os_str(), value.as_os_str()]));
        let mut body = Vec::new();
        for text in texts {
            body.extend_from_slice(&length(text.len()));
            body.extend_from_slice(text.as_bytes());
        }
        [&length(body.len())[..], &body].concat()
    }

    /// Reads the output of [`Self::encode`]. Blocks.
    pub(super) fn read(mut from: impl Read) -> io::Result<Self> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let bytes = u32::from_le_bytes(head);
        if bytes > MAX_BYTES {
            return Err(malformed());
        }
        let mut body = Vec::new();
        from.take(u64::from(bytes)).read_to_end(&mut body)?;
        let whole = usize::try_from(bytes) == Ok(body.len());
        whole.then(|| Self::decode(&body)).flatten().ok_or_else(malformed)
    }

    fn decode(mut body: &[u8]) -> Option<Self> {
        let mut text = || -> Option<OsString> {
            let (head, rest) = body.split_first_chunk::<4>()?;
            let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*head)).ok()?)?;
            body = rest;
            Some(OsString::from_vec(text.to_vec()))
        };
        let (file, name, cwd) = (text()?, text()?, text()?);
        let umask = text()?;
        let umask = if umask.is_empty() { None } else { Some(u32::from_str_radix(umask.to_str()?, 8).ok()?) };
        let no_new_privileges = !text()?.is_empty();
        let container = text()?;
        let container = if container.is_empty() { None } else { Some(container.to_str()?.parse().ok()?) };
        let until = text()?;
        let until = if until.is_empty() { None } else { Some(until.to_str()?.parse().ok()?) };
        let arguments = text()?.to_str()?.parse::<u32>().ok()?;
        let arguments = (0..arguments).map(|_| text()).collect::<Option<_>>()?;
        let mut environment = Vec::new();
        while let Some(key) = text() {
            environment.push((key, text()?));
        }
        let cwd = Some(PathBuf::from(cwd)).filter(|cwd| !cwd.as_os_str().is_empty());
        Some(Self { file, name, arguments, environment, cwd, umask, no_new_privileges, container, until })
    }
}

fn length(bytes: usize) -> [u8; 4] {
    // A length that does not fit is refused by the reader.
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

/// A message of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuardReport {
    Started,
    /// The program could not be started, with the system's error number.
    Failed(i32),
    /// The program has ended, with the status as the system reports it.
    Ended(i32),
}

impl GuardReport {
    pub(super) fn line(self) -> String {
        match self {
            Self::Started => "started\n".to_owned(),
            Self::Failed(errno) => format!("failed {errno}\n"),
            Self::Ended(raw) => format!("ended {raw}\n"),
        }
    }

    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        match line.split_once(' ') {
            None => (line == "started").then_some(Self::Started),
            Some(("failed", errno)) => errno.parse().ok().map(Self::Failed),
            Some(("ended", raw)) => raw.parse().ok().map(Self::Ended),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_reads_back_and_a_cut_one_does_not() {
        let order = StartOrder {
            file: OsString::from_vec(b"/bin/\xff".to_vec()),
            name: "x".into(),
            arguments: vec!["".into(), "a\nb".into()],
            environment: vec![("A".into(), "".into()), ("B".into(), "2".into())],
            cwd: Some("/srv".into()),
            umask: Some(0o27),
            no_new_privileges: true,
            container: Some(2),
            until: Some(4711),
        };
        let bytes = order.encode();
        assert_eq!(StartOrder::read(&bytes[..]).unwrap(), order);
        // Cut within the fields that each order has, or within a text.
        for end in (0..60).chain([bytes.len() - 1]) {
            assert!(StartOrder::read(&bytes[..end]).is_err(), "{end}");
        }
        let bare = StartOrder { arguments: Vec::new(), environment: Vec::new(), cwd: None, umask: None, ..order };
        let bare = StartOrder { no_new_privileges: false, container: None, until: None, ..bare };
        assert_eq!(StartOrder::read(&bare.encode()[..]).unwrap(), bare);
        assert!(StartOrder::read(&u32::MAX.to_le_bytes()[..]).is_err());
    }

    #[test]
    fn reports_read_back() {
        for report in [GuardReport::Started, GuardReport::Failed(2), GuardReport::Ended(0x300), GuardReport::Ended(9)] {
            assert_eq!(GuardReport::parse(report.line().as_bytes()), Some(report));
        }
        for line in ["", "x", "ended", "ended x", "started 1"] {
            assert_eq!(GuardReport::parse(line.as_bytes()), None, "{line}");
        }
    }
}
