//! Programs of a stage: the fake upstream as a task, in place of a process.

use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;

use clap::Parser as _;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWrite, duplex};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::fake::{Args, Exit, start, stdio};
use super::listening::FAKE;
use crate::base::stop::StopTimes;
use crate::upstream::guard;
use crate::upstream::launch::{Launch, SpawnError};

/// Capacity of a pipe in bytes, as of the system's.
const PIPE: usize = 64 * 1024;

type Writer = Box<dyn AsyncWrite + Unpin + Send>;
type Reader = Box<dyn AsyncRead + Unpin + Send>;

/// The pipes of a program.
pub(crate) type Pipes = (Writer, Reader, Reader);

thread_local! {
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
    static NUMBERS: Cell<u32> = const { Cell::new(1000) };
}

/// A number that no program of this stage has had.
pub(super) fn fresh_number() -> u32 {
    NUMBERS.set(NUMBERS.get() + 1);
    NUMBERS.get()
}

/// The keeper of a program: a guarded process, or a task of the stage.
#[derive(Debug)]
pub(crate) enum Keeper {
    Guarded(Box<guard::Keeper>),
    Played(Played),
}

/// A program that runs as a task.
#[derive(Clone, Debug)]
struct Running {
    upstream: String,
    number: u32,
    ended: watch::Sender<Option<ExitStatus>>,
    task: AbortHandle,
}

impl Running {
    fn end(&self, status: ExitStatus) {
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(status);
            is_first
        });
        self.task.abort();
    }
}

#[derive(Debug)]
pub(crate) struct Played {
    running: Running,
    ended: watch::Receiver<Option<ExitStatus>>,
    ignores_term: bool,
}

/// Ends all programs of that upstream on this stage, as `kill` with that signal does. Returns their
/// number.
pub(super) fn kill(upstream: &str, signal: Signal) -> usize {
    RUNNING.with_borrow(|running| {
        let alive = running.iter().filter(|one| one.upstream == upstream && one.ended.borrow().is_none());
        alive.map(|one| one.end(ExitStatus::from_raw(signal.as_raw()))).count()
    })
}

/// Whether the program of that number runs on this stage.
pub(super) fn is_alive(number: u32) -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|one| one.number == number && one.ended.borrow().is_none()))
}

/// Forgets all programs.
pub(super) fn forget() {
    RUNNING.take();
}

/// Number of programs of that upstream that run.
pub(super) fn number(upstream: &str) -> usize {
    RUNNING.with_borrow(|running| {
        running.iter().filter(|one| one.upstream == upstream && one.ended.borrow().is_none()).count()
    })
}

impl Keeper {
    /// Starts a program: on a stage the fake upstream as a task, every other as a process.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub(crate) async fn start(upstream: &str, launch: &Launch) -> Result<(Self, Pipes), SpawnError> {
        if super::is_set() && launch.file().ends_with(FAKE) {
            launch.look()?;
            return Ok(play(upstream, launch));
        }
        let (keeper, (stdin, stdout, stderr)) = guard::Keeper::start(upstream, launch).await?;
        Ok((Self::Guarded(Box::new(keeper)), (Box::new(stdin), Box::new(stdout), Box::new(stderr))))
    }

    pub(crate) fn number(&self) -> Option<u32> {
        match self {
            Self::Guarded(keeper) => keeper.number(),
            Self::Played(_) => None,
        }
    }

    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Guarded(keeper) => keeper.exited().await,
            Self::Played(played) => played.exited().await,
        }
    }

    pub(crate) async fn lost(&mut self) {
        match self {
            Self::Guarded(keeper) => keeper.lost().await,
            Self::Played(_) => std::future::pending().await,
        }
    }

    pub(crate) async fn stop(self, times: &StopTimes) -> Option<ExitStatus> {
        match self {
            Self::Guarded(keeper) => keeper.stop(times).await,
            Self::Played(mut played) => {
                if tokio::time::timeout(times.polite, played.exited()).await.is_err() {
                    if played.ignores_term {
                        tokio::time::sleep(times.firm).await;
                    }
                    let signal = if played.ignores_term { Signal::KILL } else { Signal::TERM };
                    played.running.end(ExitStatus::from_raw(signal.as_raw()));
                }
                played.exited().await
            }
        }
    }
}

impl Played {
    async fn exited(&mut self) -> Option<ExitStatus> {
        self.ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.running.end(ExitStatus::from_raw(Signal::KILL.as_raw()));
    }
}

fn play(upstream: &str, launch: &Launch) -> (Keeper, Pipes) {
    let (_, words) = launch.words().unwrap();
    let ignores_term = words.contains(&"ignore-eof");
    let args = Args::parse_from(std::iter::once(FAKE).chain(words));
    let ((stdin, input), (output, stdout)) = (duplex(PIPE), duplex(PIPE));
    let (report, ended) = watch::channel(None);
    let number = fresh_number();
    let (exits, done) = (report.clone(), report.clone());
    let task = tokio::spawn(async move {
        let ending = exits.clone();
        let exit = Exit::new(number, move |code| {
            ending.send_replace(Some(ExitStatus::from_raw(code << 8)));
        });
        let mut over = exits.subscribe();
        let serve = async {
            let server = start(args, exit).await;
            stdio::serve(server, input, output).await;
        };
        tokio::select! {
            biased;
            _ = over.wait_for(Option::is_some) => {}
            () = serve => {
                done.send_replace(Some(ExitStatus::default()));
            }
        }
    });
    let running = Running { upstream: upstream.to_owned(), number, ended: report, task: task.abort_handle() };
    RUNNING.with_borrow_mut(|all| all.push(running.clone()));
    let stderr: Reader = Box::new(tokio::io::empty());
    (Keeper::Played(Played { running, ended, ignores_term }), (Box::new(stdin), Box::new(stdout), stderr))
}
