//! Programs of a stage: the fake upstream as a task, in place of a process.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;

use clap::Parser as _;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use headend_shell::stage::program::{PlayedProgram, ProgramPipes, ProgramReader, StageProgram};
use rustix::process::Signal;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::watch;

use super::fake::{Args, FakeExit, start, stdio};
use super::listening::FAKE;
use crate::upstream::process::launch::{Launch, SpawnError};

/// Capacity of a pipe in bytes, as of the system's.
const PIPE: usize = 64 * 1024;

/// Plays a program in place of the fake upstream: gets its number, its input and its output.
pub(super) type Actor = Rc<dyn Fn(u32, DuplexStream, DuplexStream) -> BoxFuture<'static, ()>>;

thread_local! {
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
    static ACTORS: RefCell<HashMap<String, Actor>> = RefCell::default();
    static NUMBERS: Cell<u32> = const { Cell::new(1000) };
}

/// A number that no program of this stage has had.
pub(super) fn fresh_number() -> u32 {
    NUMBERS.set(NUMBERS.get() + 1);
    NUMBERS.get()
}

/// A program that runs as a task.
#[derive(Debug)]
struct Running {
    upstream: String,
    number: u32,
    program: StageProgram,
}

/// Ends all programs of that upstream on this stage, as `kill` with that signal does. Returns their
/// number.
pub(super) fn kill(upstream: &str, signal: Signal) -> usize {
    RUNNING.with_borrow(|running| {
        let alive = running.iter().filter(|one| one.upstream == upstream && one.program.is_alive());
        alive.map(|one| one.program.end(ExitStatus::from_raw(signal.as_raw()))).count()
    })
}

/// Ends the program of that number, as `kill` with that signal does.
pub(super) fn kill_number(number: u32, signal: Signal) {
    RUNNING.with_borrow(|running| {
        let hit = running.iter().filter(|one| one.number == number);
        hit.for_each(|one| one.program.end(ExitStatus::from_raw(signal.as_raw())));
    });
}

/// Makes an actor play the programs of that upstream that start from now on.
pub(super) fn cast(upstream: &str, actor: Actor) {
    ACTORS.with_borrow_mut(|actors| actors.insert(upstream.to_owned(), actor));
}

/// Whether the program of that number runs on this stage.
pub(super) fn is_alive(number: u32) -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|one| one.number == number && one.program.is_alive()))
}

/// Plays the programs that this thread starts.
pub(super) fn enter() {
    headend_shell::stage::program::install_player(Some(play));
}

/// Forgets all programs.
pub(super) fn leave() {
    headend_shell::stage::program::install_player(None);
    RUNNING.take();
    ACTORS.take();
}

/// Number of programs of that upstream that run.
pub(super) fn number(upstream: &str) -> usize {
    RUNNING
        .with_borrow(|running| running.iter().filter(|one| one.upstream == upstream && one.program.is_alive()).count())
}

/// Starts the fake upstream as a task, and no other program.
fn play(upstream: &str, launch: &Launch) -> Result<Option<(PlayedProgram, ProgramPipes)>, SpawnError> {
    if !launch.file().ends_with(FAKE) {
        return Ok(None);
    }
    launch.look()?;
    let (_, words) = launch.words().unwrap();
    let ignores_term = words.contains(&"ignore-eof");
    let args = Args::parse_from(std::iter::once(FAKE).chain(words));
    let ((stdin, input), (output, stdout)) = (duplex(PIPE), duplex(PIPE));
    let (report, _) = watch::channel(None);
    let number = fresh_number();
    let (exits, done) = (report.clone(), report.clone());
    let actor = ACTORS.with_borrow(|actors| actors.get(upstream).map(Rc::clone));
    let (played, fake) = match actor {
        Some(actor) => (Some(actor(number, input, output)), None),
        None => (None, Some((args, input, output))),
    };
    let task = tokio::spawn(async move {
        let ending = exits.clone();
        let exit = FakeExit::new(number, move |code| {
            ending.send_replace(Some(ExitStatus::from_raw(code << 8)));
        });
        let mut over = exits.subscribe();
        let serve = match (played, fake) {
            (Some(played), _) => played,
            (None, fake) => serve_fake(fake, exit).boxed(),
        };
        tokio::select! {
            biased;
            _ = over.wait_for(Option::is_some) => {}
            () = serve => {
                done.send_replace(Some(ExitStatus::default()));
            }
        }
    });
    let program = StageProgram::new(report, task.abort_handle());
    let running = Running { upstream: upstream.to_owned(), number, program: program.clone() };
    RUNNING.with_borrow_mut(|all| all.push(running));
    let stderr: ProgramReader = Box::new(tokio::io::empty());
    Ok(Some((PlayedProgram::new(program, ignores_term), (Box::new(stdin), Box::new(stdout), stderr))))
}

async fn serve_fake(fake: Option<(Args, DuplexStream, DuplexStream)>, exit: FakeExit) {
    if let Some((args, input, output)) = fake {
        let server = start(args, exit).await;
        stdio::serve(server, input, output).await;
    }
}
