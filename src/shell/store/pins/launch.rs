//! Approved launches of upstreams, and the gate before each start of an upstream.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::PinRegistry;
use crate::catalog::name::UpstreamName;
use crate::config::{UpstreamSettings, UpstreamTarget, VariableText, is_program, search_path, version_folders};
use crate::policy::{Digest, PinState};
use crate::store::db::DbError;
use crate::store::pin_record::{PinKey, PinKind, PinRecord, PinStep, PinText, configured_part, describe_launch};
use crate::wire::foreign;

/// Length limit of a search path in an error, in characters.
const MAX_PATH: usize = 1000;

/// Finds the program for the first word of a command. The path is absolute; symbolic links are not
/// resolved, since package managers move their targets. `None` if no folder of the search path has
/// the program.
fn resolve(word: &str, path: Option<&str>, base: &Path) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(base.join(word));
    }
    path?.split(':').map(|folder| base.join(folder).join(word)).find(|file| is_program(file))
}

/// A program, and the `PATH` in which it was found and with which it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchProgram {
    pub program: PathBuf,
    pub path: Option<OsString>,
}

/// Finds the program of an upstream; `managers` adds the folders of version managers to the search
/// path.
pub fn find_program(spec: &UpstreamSettings, managers: bool) -> Option<LaunchProgram> {
    let UpstreamTarget::Stdio { command, cwd, .. } = &spec.target else { return None };
    let base = cwd.as_ref().map(|cwd| PathBuf::from(cwd.expose())).or_else(|| std::env::current_dir().ok());
    let base = base.unwrap_or_else(|| PathBuf::from("/"));
    let path = search_path_of(spec, managers);
    let program = resolve(command.first()?.expose(), path.as_deref().and_then(OsStr::to_str), &base)?;
    Some(LaunchProgram { program, path })
}

fn search_path_of(spec: &UpstreamSettings, managers: bool) -> Option<OsString> {
    search_path(spec, managers, &|name| std::env::var_os(name))
}

/// Returns the file that the command of an upstream leads to; `None` if there is no such file or no
/// command.
pub fn program_of(spec: &UpstreamSettings) -> Option<PathBuf> {
    find_program(spec, true).map(|found| found.program)
}

/// Returns true if the command names the program by a path, so that the search path is not used.
fn is_path(spec: &UpstreamSettings) -> bool {
    matches!(&spec.target, UpstreamTarget::Stdio { command, .. } if command.first().is_some_and(|word| word.expose().contains('/')))
}

/// Lists the folders in which the program of an upstream is looked for; empty if its command names
/// the file by a path. Values of variables are replaced by their names.
pub fn searched_folders(spec: &UpstreamSettings) -> Vec<String> {
    if !matches!(spec.target, UpstreamTarget::Stdio { .. }) || is_path(spec) {
        return Vec::new();
    }
    let path = search_path_of(spec, true).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    // The PATH may contain expanded variables, which may be secret.
    let hidden = spec.expanded.iter().filter(|(_, value)| value.expose().len() > 3);
    let path = hidden.fold(path, |path, (name, value)| path.replace(value.expose(), &format!("${name}")));
    path.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned).collect()
}

/// Builds the error that no folder of the search path has the program.
fn not_found_error(word: &str, path: Option<&str>) -> String {
    path.map_or_else(
        || format!("command `{word}` not found: there is no PATH"),
        |path| format!("command `{word}` not found in PATH ({})", foreign::short(path, MAX_PATH)),
    )
}

/// The result of the last attempt to start.
#[derive(Clone, Debug)]
enum LaunchVerdict {
    /// The launch was not judged yet, or its program did not exist.
    Unknown,
    Open {
        found: Option<LaunchProgram>,
    },
    Shut {
        why: String,
    },
}

/// The gate before every start of one upstream: only approved launches pass.
#[derive(Debug)]
pub struct LaunchGate {
    pins: PinRegistry,
    door: ArcSwap<LaunchVerdict>,
    digest: ArcSwap<Digest>,
    /// The reason why the policy forbids every start.
    denied: Option<String>,
    /// Signals an operator's decision, after which a start is tried again at once.
    pub reviewed: Notify,
}

impl LaunchGate {
    /// Creates the gate of an upstream. `denied` is the reason why the policy allows no start at
    /// all.
    pub fn new(pins: PinRegistry, spec: &UpstreamSettings, denied: Option<String>) -> Self {
        let digest = Digest::of(describe_launch(spec, None).as_bytes());
        let door = ArcSwap::from_pointee(LaunchVerdict::Unknown);
        Self { pins, door, digest: ArcSwap::from_pointee(digest), denied, reviewed: Notify::new() }
    }

    /// Judges the launch of an upstream, storing a new one, and returns the approved program;
    /// `None` for a server behind HTTP. An approved program is not looked up again while it exists.
    /// Blocks if there is a store.
    ///
    /// # Errors
    /// The reason why the upstream must not start, for the operator.
    pub fn pass(&self, spec: &UpstreamSettings) -> Result<Option<LaunchProgram>, String> {
        if let LaunchVerdict::Open { found } = &**self.door.load()
            && found.as_ref().is_none_or(|found| is_path(spec) || found.program.exists())
        {
            return Ok(found.clone());
        }
        if let Some(why) = &self.denied {
            self.door.store(Arc::new(LaunchVerdict::Shut { why: why.clone() }));
            return Err(why.clone());
        }
        let found = self.pins.program_for(spec);
        if let (UpstreamTarget::Stdio { command, .. }, None) = (&spec.target, &found) {
            let word = command.first().map(VariableText::written).unwrap_or_default();
            return Err(not_found_error(
                word,
                search_path_of(spec, true).as_deref().map(OsStr::to_string_lossy).as_deref(),
            ));
        }
        let launch = launch_text(spec, found.as_ref());
        let outcome = self.pins.start(spec, &launch);
        let digest = outcome.as_ref().ok().and_then(|judged| judged.as_ref().ok());
        self.digest.store(Arc::new(digest.copied().unwrap_or(launch.digest)));
        let door = match outcome {
            Ok(Ok(_)) => LaunchVerdict::Open { found: found.clone() },
            Ok(Err(why)) => LaunchVerdict::Shut { why },
            Err(error) => LaunchVerdict::Shut { why: format!("its launch cannot be pinned: {error}") },
        };
        let passed = match &door {
            LaunchVerdict::Shut { why } => Err(why.clone()),
            LaunchVerdict::Open { .. } | LaunchVerdict::Unknown => Ok(found),
        };
        self.door.store(Arc::new(door));
        passed
    }

    /// Returns true if the launch was approved and has been rejected since. A launch that another
    /// configuration of the same store names revokes nothing.
    pub fn is_revoked(&self, upstream: &UpstreamName) -> bool {
        matches!(&**self.door.load(), LaunchVerdict::Open { .. }) && self.pins.rejects(upstream, self.digest())
    }

    /// Returns why the launch must not be started, if that is so.
    pub fn shut(&self) -> Option<String> {
        match &**self.door.load() {
            LaunchVerdict::Shut { why } => Some(why.clone()),
            LaunchVerdict::Open { .. } | LaunchVerdict::Unknown => None,
        }
    }

    /// Returns the digest of the launch, as it was judged last.
    pub fn digest(&self) -> Digest {
        **self.digest.load()
    }
}

impl PinRegistry {
    /// Returns true if that launch is approved.
    fn allows(&self, upstream: &UpstreamName, launch: Digest) -> bool {
        self.book().get(upstream, PinKind::Launch, "").is_some_and(|record| record.pin.shows(launch))
    }

    /// Returns true if that launch was rejected.
    fn rejects(&self, upstream: &UpstreamName, launch: Digest) -> bool {
        let book = self.book();
        let pin = book.launch(upstream).map(|record| record.pin);
        pin.is_some_and(|pin| pin.state() == PinState::Rejected && pin.waiting() == Some(launch))
    }

    /// Finds the program of an upstream. If the folders of version managers lead to another program
    /// than the plain search path does, and the latter is approved, that one is kept: it was
    /// approved before these folders were searched.
    fn program_for(&self, spec: &UpstreamSettings) -> Option<LaunchProgram> {
        let found = find_program(spec, true);
        let other =
            find_program(spec, false).filter(|other| found.as_ref().is_none_or(|found| found.program != other.program));
        let is_approved = |other: &LaunchProgram| self.allows(&spec.name, launch_text(spec, Some(other)).digest);
        other.filter(is_approved).or(found)
    }

    /// Judges and stores all launches that are not approved yet with one write, so that their gates
    /// have nothing left to write. Blocks if there is a store.
    pub fn pin_new_launches<'a>(&self, specs: impl Iterator<Item = &'a UpstreamSettings>) {
        let folders = own_version_folders();
        let unknown = |spec: &'a UpstreamSettings| {
            let found = self.program_for(spec);
            let is_there = found.is_some() || matches!(spec.target, UpstreamTarget::Http { .. });
            let launch = is_there.then(|| launch_text(spec, found.as_ref()))?;
            (!self.allows(&spec.name, launch.digest)).then(|| start_step(spec, launch, folders.clone()))
        };
        let steps: Vec<_> = specs.filter_map(unknown).collect();
        if !steps.is_empty() {
            // A launch that cannot be stored is judged again at its gate, which reports the reason.
            drop(self.take_now(steps));
        }
    }

    /// Judges and stores the launch of an upstream. Returns the approved digest, which may be that
    /// of an equivalent launch, or the reason why it must not start. Blocks if there is a store.
    ///
    /// # Errors
    /// When the launch cannot be stored.
    fn start(&self, spec: &UpstreamSettings, launch: &PinText) -> Result<Result<Digest, String>, DbError> {
        let folders = own_version_folders();
        let stepped = self.take_now(vec![start_step(spec, launch.clone(), folders.clone())])?;
        let record = stepped.into_iter().next().and_then(|(_, after)| after.ok());
        let approved =
            |record: &PinRecord| record.approved_as(launch, &folders).filter(|approved| record.pin.shows(*approved));
        Ok(match record {
            Some(record) => approved(&record).ok_or_else(|| refusal_text(&spec.name, record.pin.state(), &record.by)),
            None => Err("its launch cannot be judged".to_owned()),
        })
    }
}

fn own_version_folders() -> Vec<PathBuf> {
    version_folders(&|name| std::env::var(name).ok())
}

/// Builds the text of a launch, and its digest.
fn launch_text(spec: &UpstreamSettings, found: Option<&LaunchProgram>) -> PinText {
    let text = describe_launch(spec, found.map(|found| found.program.as_path()));
    PinText { digest: Digest::of(text.as_bytes()), text: Arc::from(text) }
}

/// Builds the step for a launch that is about to start.
fn start_step(spec: &UpstreamSettings, text: PinText, folders: Vec<PathBuf>) -> (PinKey, PinStep) {
    let words = configured_part(&text.text);
    (PinKey::launch(&spec.name), PinStep::Started { text, words, trust: spec.trust, folders })
}

/// Builds the reason why a launch in this state must not start.
fn refusal_text(upstream: &UpstreamName, state: PinState, why: &str) -> String {
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
    use std::os::unix::fs::PermissionsExt as _;

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
