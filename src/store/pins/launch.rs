//! Approved launches of upstreams, and the gate before each start.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::Pins;
use super::book::{PinKey, PinKind, Step, Text};
use super::launch_text::{describe, words};
use crate::catalog::name::UpstreamName;
use crate::config::{Target, Upstream};
use crate::policy::{Digest, PinState};
use crate::store::db::DbError;
use crate::wire::foreign;

/// Characters of a search path in an error.
const MAX_PATH: usize = 1000;

/// The program for a command's first word, absolute and without following symbolic links, since package managers move
/// their targets. `None` when no directory of the search path has it.
fn resolve(word: &str, path: Option<&str>, base: &Path) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(base.join(word));
    }
    let runs = |file: &Path| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    path?.split(':').map(|folder| base.join(folder).join(word)).find(|file| runs(file))
}

/// The file that the command of an upstream leads to; `None` where there is none, or no command.
pub(crate) fn program_of(spec: &Upstream) -> Option<PathBuf> {
    let Target::Stdio { command, cwd, .. } = &spec.target else { return None };
    let base = cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| PathBuf::from("/"));
    resolve(command.first()?, search_path(spec).as_deref(), &base)
}

/// The `PATH` of an upstream's own environment, else ours.
fn search_path(spec: &Upstream) -> Option<String> {
    let Target::Stdio { env, .. } = &spec.target else { return None };
    let given = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.expose().to_owned());
    given.or_else(|| std::env::var("PATH").ok())
}

/// Says that no folder of the search path has the program, and which folders they are.
fn not_found(word: &str, path: Option<&str>) -> String {
    path.map_or_else(
        || format!("command `{word}` not found: there is no PATH"),
        |path| format!("command `{word}` not found in PATH ({})", foreign::short(path, MAX_PATH)),
    )
}

/// The finding of the last start.
#[derive(Clone, Debug)]
enum Door {
    /// Not looked up yet, or the program does not exist.
    Unknown,
    Open {
        program: Option<PathBuf>,
    },
    Shut {
        why: String,
    },
}

/// Stands before every start of one upstream: only approved launches start.
#[derive(Debug)]
pub(crate) struct LaunchGate {
    pins: Pins,
    door: ArcSwap<Door>,
    digest: ArcSwap<Digest>,
    /// Why a rule forbids every start.
    denied: Option<String>,
    /// The operator has decided; try again at once.
    pub(crate) reviewed: Notify,
}

impl LaunchGate {
    /// `denied` says why the policy allows no start at all.
    pub(crate) fn new(pins: Pins, spec: &Upstream, denied: Option<String>) -> Self {
        let digest = Digest::of(describe(spec, None).as_bytes());
        let door = ArcSwap::from_pointee(Door::Unknown);
        Self { pins, door, digest: ArcSwap::from_pointee(digest), denied, reviewed: Notify::new() }
    }

    /// The approved program to start; `None` for a server behind HTTP. An approved program is not looked up again while
    /// this gate stands.
    ///
    /// # Errors
    /// Why the upstream is not started, for the operator.
    pub(crate) fn pass(&self, spec: &Upstream) -> Result<Option<PathBuf>, String> {
        if let Door::Open { program } = &**self.door.load() {
            return Ok(program.clone());
        }
        if let Some(why) = &self.denied {
            self.door.store(Arc::new(Door::Shut { why: why.clone() }));
            return Err(why.clone());
        }
        let program = program_of(spec);
        if let (Target::Stdio { command, .. }, None) = (&spec.target, &program) {
            let word = command.first().map(String::as_str).unwrap_or_default();
            return Err(not_found(word, search_path(spec).as_deref()));
        }
        let launch = describe(spec, program.as_deref());
        let outcome = self.pins.start(spec, &launch);
        self.digest.store(Arc::new(Digest::of(launch.as_bytes())));
        let door = match outcome {
            Ok(None) => Door::Open { program: program.clone() },
            Ok(Some(why)) => Door::Shut { why },
            Err(error) => Door::Shut { why: format!("its launch cannot be pinned: {error}") },
        };
        let passed = match &door {
            Door::Shut { why } => Err(why.clone()),
            Door::Open { .. } | Door::Unknown => Ok(program),
        };
        self.door.store(Arc::new(door));
        passed
    }

    /// Whether a running upstream's launch was rejected since. Another configuration of the same store that names another launch
    /// takes nothing back.
    pub(crate) fn is_revoked(&self, upstream: &UpstreamName) -> bool {
        matches!(&**self.door.load(), Door::Open { .. }) && self.pins.rejects(upstream, self.digest())
    }

    /// Why nothing is started and listed, if that is so.
    pub(crate) fn shut(&self) -> Option<String> {
        match &**self.door.load() {
            Door::Shut { why } => Some(why.clone()),
            Door::Open { .. } | Door::Unknown => None,
        }
    }

    /// Digest of the launch.
    pub(crate) fn digest(&self) -> Digest {
        **self.digest.load()
    }
}

impl Pins {
    /// Whether that launch is still approved.
    fn allows(&self, upstream: &UpstreamName, launch: Digest) -> bool {
        self.book().get(upstream, PinKind::Launch, "").is_some_and(|record| record.pin.shows(launch))
    }

    /// Whether that launch was rejected.
    fn rejects(&self, upstream: &UpstreamName, launch: Digest) -> bool {
        let book = self.book();
        let pin = book.launch(upstream).map(|record| record.pin);
        pin.is_some_and(|pin| pin.state() == PinState::Rejected && pin.waiting() == Some(launch))
    }

    /// Judges all new launches with one wait for the disk, so that their gates have nothing left to write. Blocks if
    /// there is a disk.
    pub(crate) fn pin_new_launches<'a>(&self, specs: impl Iterator<Item = &'a Upstream>) {
        let unknown = |spec: &'a Upstream| {
            let program = program_of(spec);
            let is_there = program.is_some() || matches!(spec.target, Target::Http { .. });
            let launch = is_there.then(|| describe(spec, program.as_deref()))?;
            (!self.allows(&spec.name, Digest::of(launch.as_bytes()))).then(|| started(spec, &launch))
        };
        let steps: Vec<_> = specs.filter_map(unknown).collect();
        if !steps.is_empty() {
            // A launch that cannot be stored is judged again at its gate, which gives the reason.
            drop(self.take_now(steps, &[]));
        }
    }

    /// Judges the launch of an upstream; the reason when it must not start. Blocks if there is a disk.
    fn start(&self, spec: &Upstream, launch: &str) -> Result<Option<String>, DbError> {
        let digest = Digest::of(launch.as_bytes());
        let stepped = self.take_now(vec![started(spec, launch)], &[])?;
        let record = stepped.into_iter().next().and_then(|(_, after)| after.ok());
        Ok(match record {
            Some(record) if record.pin.shows(digest) => None,
            Some(record) => Some(blocked(&spec.name, record.pin.state(), &record.by)),
            None => Some("its launch cannot be judged".to_owned()),
        })
    }
}

fn started(spec: &Upstream, launch: &str) -> (PinKey, Step) {
    let text = Text { digest: Digest::of(launch.as_bytes()), text: Arc::from(launch) };
    (PinKey::launch(&spec.name), Step::Started { text, words: words(launch), trust: spec.trust })
}

fn blocked(upstream: &UpstreamName, state: PinState, why: &str) -> String {
    match state {
        PinState::Rejected => "launch rejected: not started".to_owned(),
        PinState::Pinned | PinState::Quarantined | PinState::Changed => format!(
            "launch changed ({why}): not started; look at it with `headend pins diff {upstream}`, then `headend pins \
             approve {upstream} --launch`"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_along_the_path_and_not_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        for folder in [&one, &two] {
            std::fs::create_dir(folder).unwrap();
        }
        let file = |path: &Path, mode: u32| {
            std::fs::write(path, "").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        file(&one.join("server"), 0o644);
        file(&two.join("real"), 0o755);
        std::os::unix::fs::symlink(two.join("real"), two.join("server")).unwrap();
        let path = format!("{}:{}", one.display(), two.display());
        let base = dir.path();
        for (label, word, path, want) in [
            ("the first that can run, as it is linked", "server", path.as_str(), Some(two.join("server"))),
            ("nowhere", "nobody", path.as_str(), None),
            ("relative folders", "server", "one:two", Some(base.join("two/server"))),
            ("a path", "two/real", "", Some(base.join("two/real"))),
            ("an absolute path", "/bin/x", "", Some(PathBuf::from("/bin/x"))),
        ] {
            assert_eq!(resolve(word, Some(path), base), want, "{label}");
        }
    }
}
