//! A child process: cleared environment, own process group, no new privileges, stopped by SIGTERM and then SIGKILL,
//! always as a whole group.
//!
//! That no program gives it more privileges than it has is a property of the thread that starts it, so each child is started by a
//! thread of its own. The umask is one of the whole process: a child that is to have another one is started through this very
//! program, which sets it and becomes the child ([`become_asked`]).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::base::clock;
use crate::base::stop::StopTimes;
use crate::config::Confinement;
use crate::config::secret::Secret;
use crate::upstream::last_words::LastWords;
use crate::wire::lines::{Line, LineDecoder};

/// Variables that a child inherits from us; every other must be named in the configuration.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Folders of package caches, which a child inherits too unless its upstream is untrusted: `npx`, `uvx` and their like keep
/// there what they fetch, and in a hardened service nothing else may be writable.
const CACHES: [&str; 11] = [
    "XDG_CACHE_HOME",
    "npm_config_cache",
    "NPM_CONFIG_CACHE",
    "UV_CACHE_DIR",
    "PIP_CACHE_DIR",
    "YARN_CACHE_FOLDER",
    "BUN_INSTALL_CACHE_DIR",
    "DENO_DIR",
    "COREPACK_HOME",
    "GOCACHE",
    "GOMODCACHE",
];
const STDERR_LINE_BYTES: usize = 4096;
/// Log lines of one child in a second; further lines are counted.
const STDERR_LINES_PER_SECOND: u32 = 50;

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("the command is empty")]
    Empty,
    #[error("`{}` is not there", .path.display())]
    NotThere { path: PathBuf },
    #[error("the working directory `{}` is not there", .path.display())]
    NoDirectory { path: PathBuf },
    #[error("start `{program}`: the interpreter that its first line names is not there")]
    NoInterpreter { program: String },
    #[error("start `{program}`: {source}")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("the pipes of `{program}` are missing")]
    Pipes { program: String },
}

impl SpawnError {
    /// How to mend it; `None` for what may pass by itself, such as a machine with too many processes.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Empty => Some("write the program and its arguments in `command`"),
            Self::NotThere { .. } => Some("install the program, or correct `command`"),
            Self::NoDirectory { .. } => Some("create the directory, or correct `cwd`"),
            Self::NoInterpreter { .. } => Some("install the interpreter, or correct the program's first line"),
            Self::Start { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("make the program executable for the user that runs headend")
            }
            Self::Start { source, .. } if source.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                Some("name a program of this machine, or the interpreter of the script, in `command`")
            }
            Self::Start { .. } | Self::Pipes { .. } => None,
        }
    }
}

/// A running child and its pipes.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// Ends a child whose pipes are in other hands.
#[derive(Debug)]
pub(crate) struct Reaper {
    child: Child,
    group: Option<Pid>,
}

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) command: Vec<String>,
    /// The file that the first word leads to, where that is settled.
    pub(crate) program: Option<PathBuf>,
    pub(crate) env: Vec<(String, Secret)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) confinement: Confinement,
    /// Whether it may use our package caches.
    pub(crate) caches: bool,
}

impl Launch {
    /// Looks for the files without which no start succeeds, since the system's error names none of them.
    fn look(&self) -> Result<(), SpawnError> {
        match (&self.program, &self.cwd) {
            (Some(path), _) if !path.exists() => Err(SpawnError::NotThere { path: path.clone() }),
            (_, Some(path)) if !path.is_dir() => Err(SpawnError::NoDirectory { path: path.clone() }),
            _ => Ok(()),
        }
    }
}

/// The word by which this program is told to set a umask and become another one: `UMASK PROGRAM NAME [ARGUMENT..]` follow. It is
/// looked for before anything else, so that neither the child's arguments nor its environment are taken for ours.
const BECOME: &str = "become-child";

impl Process {
    /// Starts the child.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub(crate) fn start(launch: &Launch) -> Result<Self, SpawnError> {
        let (program, arguments) = launch.command.split_first().ok_or(SpawnError::Empty)?;
        launch.look()?;
        let mut command = match launch.confinement.umask {
            None => {
                let mut command = launch.program.as_ref().map_or_else(|| Command::new(program), Command::new);
                command.arg0(program);
                command
            }
            Some(umask) => {
                // Also where the file has been replaced by a newer one since the start.
                let mut command = Command::new("/proc/self/exe");
                command.arg(BECOME).arg(format!("{umask:03o}"));
                command.arg(launch.program.as_deref().unwrap_or(Path::new(program))).arg(program);
                command
            }
        };
        command.args(arguments).env_clear();
        let caches = CACHES.iter().filter(|_| launch.caches);
        command.envs(INHERITED.iter().chain(caches).filter_map(|key| Some((*key, std::env::var_os(key)?))));
        command.envs(launch.env.iter().map(|(key, value)| (key, value.expose())));
        if let Some(cwd) = &launch.cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        if !launch.confinement.no_new_privileges && rustix::thread::no_new_privs() == Ok(true) {
            tracing::warn!(
                program,
                "this process may gain no privileges, so neither may its children; systemd has NoNewPrivileges=no"
            );
        }
        let spawned = match launch.confinement.no_new_privileges {
            true => without_new_privileges(&mut command),
            false => command.spawn(),
        };
        let mut child = spawned.map_err(|source| {
            // The program itself was there. With a umask, our own file is started first.
            if source.kind() == io::ErrorKind::NotFound && launch.confinement.umask.is_none() {
                SpawnError::NoInterpreter { program: program.clone() }
            } else {
                SpawnError::Start { program: program.clone(), source }
            }
        })?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok(Self { child, group, stdin, stdout, stderr }),
            _ => Err(SpawnError::Pipes { program: program.clone() }),
        }
    }

    pub(crate) fn split(self) -> (ChildStdin, ChildStdout, ChildStderr, Reaper) {
        (self.stdin, self.stdout, self.stderr, Reaper { child: self.child, group: self.group })
    }
}

/// Starts a child from a thread that has given up to gain privileges, which its children and theirs inherit.
fn without_new_privileges(command: &mut Command) -> io::Result<Child> {
    // Tasks may run on any thread, and a thread cannot take it back.
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("start".to_owned()).spawn_scoped(scope, || {
            let _entered = runtime.enter();
            rustix::thread::set_no_new_privs(true)?;
            command.spawn()
        });
        thread?.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it ended")))
    })
}

/// Becomes a child where the command line asks for it with [`BECOME`]; returns only where nothing is asked, or with the reason why
/// it failed, which is to be the last line on the child's stderr.
pub(crate) fn become_asked(words: impl Iterator<Item = OsString>) -> Option<String> {
    let mut words = words.skip(1);
    words.next().filter(|word| word == BECOME)?;
    let (umask, program, name) = (words.next()?, words.next()?, words.next()?);
    let Some(bits) = umask.to_str().and_then(|umask| u32::from_str_radix(umask, 8).ok()) else {
        return Some(format!("{umask:?} is no umask"));
    };
    rustix::process::umask(Mode::from_raw_mode(bits));
    let error = std::process::Command::new(program).arg0(&name).args(words).exec();
    Some(format!("start `{}`: {error}", name.display()))
}

impl Reaper {
    /// Waits for the child to end by itself.
    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Ends the whole group: the caller has closed stdin, then SIGTERM, then SIGKILL. Bounded by the sum of the waits.
    pub(crate) async fn stop(mut self, times: &StopTimes) -> Option<ExitStatus> {
        let mut status = tokio::time::timeout(times.polite, self.child.wait()).await.ok().and_then(Result::ok);
        if status.is_none() {
            self.signal(Signal::TERM);
            status = tokio::time::timeout(times.firm, self.child.wait()).await.ok().and_then(Result::ok);
        }
        // Also after a polite exit: a wrapper may have left the real server behind in the group.
        self.signal(Signal::KILL);
        if status.is_none() {
            status = tokio::time::timeout(times.killed, self.child.wait()).await.ok().and_then(Result::ok);
        }
        self.group = None;
        status
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The group may be empty already.
            let _gone = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // Reached without `stop` or `kill` only when the program ends in a hurry; no child may outlive it.
        self.signal(Signal::KILL);
    }
}

/// Reads a child's stderr to its end, so that the child never blocks on it; logs what fits the rate.
pub(crate) async fn drain_stderr(upstream: String, stderr: impl AsyncRead + Unpin, words: LastWords) {
    let mut stderr = stderr;
    let mut decoder = LineDecoder::new(STDERR_LINE_BYTES);
    let (mut window, mut logged, mut suppressed) = (clock::now(), 0_u32, 0_u64);
    loop {
        let buffer: &mut BytesMut = decoder.buffer();
        if !matches!(stderr.read_buf(buffer).await, Ok(n) if n > 0) {
            break;
        }
        while let Some(line) = decoder.next_line() {
            let (bytes, is_cut) = match line {
                Line::Full(bytes) => (bytes, false),
                Line::Oversize { prefix, .. } => (prefix, true),
            };
            let text = words.shown(&String::from_utf8_lossy(&bytes), is_cut);
            if window.elapsed() > Duration::from_secs(1) {
                if suppressed > 0 {
                    tracing::info!(upstream.name = %upstream, suppressed, "lines of stderr left out");
                }
                (window, logged, suppressed) = (clock::now(), 0, 0);
            }
            logged += 1;
            if logged <= STDERR_LINES_PER_SECOND {
                tracing::debug!(upstream.name = %upstream, line = %text, "stderr");
            } else {
                suppressed += 1;
            }
            words.push(text);
        }
    }
}
