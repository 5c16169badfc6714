//! The configuration: TOML text to a validated [`Config`]. Pure except [`load`], [`locate`] and
//! [`preflight`].
//!
//! [`parse`] walks the TOML tree with the cursor of `file`, so it reports every problem at once,
//! each with its line, its key path and what to write. The daemon and `headend check` share this
//! path.

#![allow(
    clippy::missing_errors_doc,
    clippy::len_without_is_empty,
    clippy::new_without_default,
    unnameable_types,
    reason = "one program is all that uses it, so what is public here is internal to that program"
)]

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

// The pure layers, so that the files here name them like layers of this crate.
use headend_core::{catalog, mcp, policy, wire};

mod address;
mod arguments;
mod audit;
mod auth;
mod build;
mod canonical;
mod command;
mod consent;
mod container;
mod doubts;
mod expand;
mod file;
mod filter;
mod fixed;
mod folder;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod guard;
mod hints;
mod home;
mod host_command;
mod keys;
mod limits;
mod managers;
mod merge;
mod model;
mod notify;
mod observed;
mod places;
pub mod plan;
#[cfg(any(test, feature = "testing"))]
pub mod played;
mod problem;
mod profile;
mod proxy;
mod remote;
mod rules;
pub mod secret;
mod seen;
pub mod show;
mod surroundings;
mod units;
mod upstream;
mod words;

pub use self::address::is_public;
pub use self::audit::{Audit, OnFailure};
pub use self::auth::{AuthKind, Resource, UpstreamAuth};
pub use self::command::{UNPINNED, pinned, unpinned};
pub use self::consent::{Consent, Operator};
#[cfg(target_os = "linux")]
pub use self::container::ContainerRun;
pub use self::doubts::{doubts, unasked};
pub use self::expand::Template;
pub use self::fixed::{MAX_HEAD, MAX_HEADER_FIELD, MAX_HEADER_FIELDS};
pub use self::folder::NAME as CONF_D;
pub use self::host_command::HostCommand;
pub use self::limits::Limits;
pub use self::managers::{is_same_place, known_directories, version_folders};
pub use self::model::{
    Admin, Auth, Completions, Config, Confinement, EraChoice, Filter, Instance, Log, LogFormat, Profile, Server,
    ShownHints, Start, Target, Transport, Upstream, Uris,
};
pub use self::notify::{Hook, Notified, Notify};
pub use self::places::{Located, SYSTEM, environment, is_program, locate, preflight, state_dir, user_file};
pub use self::problem::{Problem, Problems, Warning};
pub use self::proxy::{Proxy, ProxySettings};
pub use self::seen::Seen;
pub use self::surroundings::{inherited, search_path};
pub use self::units::{duration as duration_text, parse_duration};

use self::file::Text;

/// The result of reading a configuration: the configuration or its problems, and the files
/// involved.
#[derive(Debug)]
pub struct Loading {
    /// The configuration with its warnings, or every problem at once, as text.
    pub outcome: Result<(Config, Vec<Warning>), String>,
    /// The files that were read, or should have been: the configuration first, `conf.d` and its
    /// files, the secrets that they name.
    pub files: Vec<Seen>,
}

/// Reads and checks a configuration file with the files of `conf.d` beside it, in the order of
/// their names. Secrets come from the environment and from files, which pass the same ownership
/// checks as the configuration itself. A file that another user owns or may write is a problem.
pub fn load(path: &Path) -> Loading {
    load_with(path, None)
}

/// Does what [`load`] does with one more text, which comes last; `more` is its name in problems,
/// and the text.
pub fn load_with(path: &Path, more: Option<(&str, &str)>) -> Loading {
    let files = RefCell::new(Vec::new());
    let read = |path: &Path| {
        let read = guard::read(path);
        files.borrow_mut().push(Seen::file(path, &read));
        read
    };
    let folder = folder::beside(path);
    let listed = folder::names(&folder);
    let mut problems = Vec::new();
    let also = folder::parts(&folder, &listed).unwrap_or_else(|why| {
        problems.push(Problem::of_file(&folder.display().to_string(), why));
        Vec::new()
    });
    let mut texts = Vec::new();
    for file in std::iter::once(path).chain(also.iter().map(PathBuf::as_path)) {
        let origin = file.display().to_string();
        match read(file) {
            Ok(text) => texts.push((origin, text)),
            Err(error) => problems.push(Problem::of_file(&origin, places::unread(&error))),
        }
    }
    files.borrow_mut().push(Seen::folder(&folder, &listed));
    texts.extend(more.map(|(origin, more)| (origin.to_owned(), more.to_owned())));
    let texts: Vec<Text<'_>> = texts.iter().map(|(origin, text)| Text { origin, text }).collect();
    let outcome = if problems.is_empty() { parse_all(&texts, &environment, &read) } else { Err(Problems(problems)) };
    let outcome = outcome.map_err(|problems| problems.to_string()).map(|(mut config, warnings)| {
        config.path = Some(path.to_owned());
        config.also = also;
        (config, warnings)
    });
    Loading { outcome, files: files.into_inner() }
}

/// Checks a configuration text. `origin` is the prefix of each problem; `env` and `read` supply the
/// secrets.
///
/// # Errors
/// Every problem at once.
pub fn parse(
    text: &str,
    origin: &str,
    env: &dyn Fn(&str) -> Option<String>,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(Config, Vec<Warning>), Problems> {
    parse_all(&[Text { origin, text }], env, read)
}

/// Checks a configuration of two texts, each with its name in problems. Files of secrets are read.
///
/// # Errors
/// Every problem at once.
pub fn parse_both(
    first: (&str, &str),
    second: (&str, &str),
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Config, Vec<Warning>), Problems> {
    let texts = [first, second].map(|(origin, text)| Text { origin, text });
    parse_all(&texts, env, &guard::read)
}

/// Checks a configuration of several texts.
fn parse_all(
    texts: &[Text<'_>],
    env: &dyn Fn(&str) -> Option<String>,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(Config, Vec<Warning>), Problems> {
    let source = file::Source::new(texts, env, read);
    let config = file::with_root(&source, build::config);
    let (problems, warnings) = source.into_findings();
    match config {
        Some(config) if problems.is_empty() => Ok((config, warnings)),
        Some(_) | None => Err(Problems(problems)),
    }
}

#[cfg(test)]
mod tests;
