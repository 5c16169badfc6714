//! Programs of a stage: the fake upstream as a task, in place of a process.

use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use clap::Parser as _;
use headend_shell::stage::program::{Pipes, Played, Program, Reader};
use rustix::process::Signal;
use tokio::io::duplex;
use tokio::sync::watch;

use super::fake::{Args, Exit, start, stdio};
use super::listening::FAKE;
use crate::upstream::process::launch::{Launch, SpawnError};

/// Capacity of a pipe in bytes, as of the system's.
const PIPE: usize = 64 * 1024;

thread_local! {
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
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
    program: Program,
}

/// Ends all programs of that upstream on this stage, as `kill` with that signal does. Returns their
/// number.
pub(super) fn kill(upstream: &str, signal: Signal) -> usize {
    RUNNING.with_borrow(|running| {
        let alive = running.iter().filter(|one| one.upstream == upstream && one.program.is_alive());
        alive.map(|one| one.program.end(ExitStatus::from_raw(signal.as_raw()))).count()
    })
}

/// Whether the program of that number runs on this stage.
pub(super) fn is_alive(number: u32) -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|one| one.number == number && one.program.is_alive()))
}

/// Plays the programs that this thread starts.
pub(super) fn enter() {
    headend_shell::stage::program::play(Some(play));
}

/// Forgets all programs.
pub(super) fn leave() {
    headend_shell::stage::program::play(None);
    RUNNING.take();
}

/// Number of programs of that upstream that run.
pub(super) fn number(upstream: &str) -> usize {
    RUNNING
        .with_borrow(|running| running.iter().filter(|one| one.upstream == upstream && one.program.is_alive()).count())
}

/// Starts the fake upstream as a task, and no other program.
fn play(upstream: &str, launch: &Launch) -> Result<Option<(Played, Pipes)>, SpawnError> {
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
    let program = Program::new(report, task.abort_handle());
    let running = Running { upstream: upstream.to_owned(), number, program: program.clone() };
    RUNNING.with_borrow_mut(|all| all.push(running));
    let stderr: Reader = Box::new(tokio::io::empty());
    Ok(Some((Played::new(program, ignores_term), (Box::new(stdin), Box::new(stdout), stderr))))
}
