//! The wait of an upstream between two starts, and the events that end it early.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::Notify;

use crate::base::clock;
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::store::pins::program_of;
use crate::upstream::actor::context::ActorContext;
use crate::upstream::state::standing::CredentialStanding;

/// Least time between two starts requested by calls: a call that crashes its server each time costs
/// the others one start.
const APART: Duration = Duration::from_secs(2);
/// How often missing files are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How often a login by another process is looked for.
const LOGIN_LOOK: Duration = Duration::from_secs(2);
/// Most words of a command that are checked as files.
const MAX_FILES: usize = 32;

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestEnd {
    /// The time is over, or a call needs the upstream.
    Due,
    /// The operator or a file has changed something, so earlier failures no longer count.
    Mended,
    Stopped,
}

/// Waits after a start that began at `began`. Calls do not end the wait for a server that rejects
/// the gateway's credentials: they would be refused.
pub(super) async fn pause(context: &ActorContext, began: Instant, wait: Duration) -> RestEnd {
    let called = async {
        if context.handle.health.standing() != CredentialStanding::Admitted {
            std::future::pending::<()>().await;
        }
        context.lane.wanted.notified().await;
        clock::sleep_until(Some(began + APART)).await;
    };
    tokio::select! {
        () = tokio::time::sleep(wait) => RestEnd::Due,
        () = called => RestEnd::Due,
        () = logged_in(context) => RestEnd::Mended,
        () = context.spawner.gate.reviewed.notified() => RestEnd::Mended,
        () = context.handle.again.notified() => RestEnd::Mended,
        () = appeared(context) => RestEnd::Mended,
        () = context.spawner.stop.cancelled() => RestEnd::Stopped,
    }
}

/// Waits until another process with the same store has logged in; forever if no login is awaited.
async fn logged_in(context: &ActorContext) {
    let Some(keeper) = context.handle.keeper.as_ref().filter(|_| context.handle.health.standing().awaits_login())
    else {
        return std::future::pending().await;
    };
    // The login stored before this wait is known, and was refused.
    loop {
        tokio::time::sleep(LOGIN_LOOK).await;
        if keeper.has_login().await {
            return;
        }
    }
}

/// Forgets an event that came before anything waited for it.
pub(super) fn forget(event: &Notify) {
    let _earlier = event.notified().now_or_never();
}

/// Waits until a file exists that is missing now; forever if none is missing.
async fn appeared(context: &ActorContext) {
    let missing = missing(&context.handle.spec.load());
    if missing.is_empty() {
        return std::future::pending().await;
    }
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        if missing.iter().any(MissingFile::has_appeared) {
            return;
        }
    }
}

/// A file that a command needs and that does not exist.
#[derive(Debug)]
enum MissingFile {
    /// A program that is in no folder of the search path.
    Program(Box<UpstreamSettings>),
    File(PathBuf),
}

impl MissingFile {
    fn has_appeared(&self) -> bool {
        match self {
            Self::Program(spec) => program_of(spec).is_some(),
            Self::File(path) => path.exists(),
        }
    }
}

/// Lists the missing files of a command: its program, its working directory, and every argument
/// that is an absolute path, such as the script for an interpreter.
fn missing(spec: &UpstreamSettings) -> Vec<MissingFile> {
    let UpstreamTarget::Stdio { command, cwd, .. } = &spec.target else { return Vec::new() };
    let program = program_of(spec);
    let arguments = command.iter().skip(1).map(|word| Path::new(word.expose())).filter(|path| path.is_absolute());
    let cwd = cwd.as_ref().map(|cwd| Path::new(cwd.expose()));
    let files = program.as_deref().into_iter().chain(cwd).chain(arguments).take(MAX_FILES);
    let mut missing: Vec<MissingFile> =
        files.filter(|path| !path.exists()).map(|path| MissingFile::File(path.to_owned())).collect();
    if program.is_none() {
        missing.push(MissingFile::Program(Box::new(spec.clone())));
    }
    missing
}

#[cfg(test)]
mod tests;
