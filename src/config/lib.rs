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
use headend_core::{catalog, identity, mcp, policy, wire};

mod audit;
mod build;
mod consent;
mod doubts;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
mod keys;
mod limits;
mod listeners;
pub mod machine;
mod model;
mod notify;
pub mod plan;
mod profile;
mod rule_tables;
pub mod show;
pub mod source;
mod upstream;
mod values;

pub use self::audit::{AuditSettings, OnFailure};
pub use self::build::is_caller_name;
pub use self::consent::{ApprovalSettings, OperatorAccess};
pub use self::doubts::{find_doubts, warn_of_silent_programs};
pub use self::limits::Limits;
pub use self::listeners::MIN_TOKEN_LENGTH;
pub use self::model::cluster::ClusterSettings;
pub use self::model::instructions::warn_of_dropped_instructions;
pub use self::model::{
    AdminSettings, AppsChoice, ClientAuth, CompletionScope, Config, Confinement, EraChoice, FilterSettings,
    HttpTransport, InstanceScope, LogFormatSetting, LoggingSettings, Placement, Profile, SecretSettings,
    ServerSettings, ShownHints, StartMode, UpstreamSettings, UpstreamTarget, UriExposure,
};
pub use self::notify::{NotifyHook, NotifyReceiver, NotifySettings};
pub use self::values::instructions::InstructionSetting;
pub use self::values::store_url::{StoreTls, StoreUrl};
pub use crate::machine::host_command::HostCommand;
pub use crate::machine::managers::{is_same_place, known_directories, version_folders};
pub use crate::machine::places::{
    ConfigLocation, SYSTEM, environment, is_program, locate, preflight, state_dir, user_file,
};
pub use crate::machine::surroundings::{inherited_variables, search_path};
pub use crate::source::expand::VariableText;
pub use crate::source::fixed::{MAX_HEAD, MAX_HEADER_FIELD, MAX_HEADER_FIELDS};
pub use crate::source::folder::NAME as CONF_D;
pub use crate::source::problem::{ConfigProblem, ConfigProblems, ConfigWarning};
pub use crate::source::seen::FileFingerprint;
pub use crate::source::units::{duration as duration_text, parse_duration};
pub use crate::values::address::is_public;
pub use crate::values::auth::{AuthKind, ResourceParameter, UpstreamAuth, UpstreamCertificates};
pub use crate::values::certificates::CertificateFiles;
pub use crate::values::command::{UNPINNED, fetched_package, split_package, unversioned_package, with_version};
#[cfg(target_os = "linux")]
pub use crate::values::container::ContainerRun;
pub use crate::values::issuers::{IssuerSettings, JwtSettings};
pub use crate::values::network::PeerNetwork;
pub use crate::values::proxy::{Proxy, ProxySettings};

use crate::source::file::SourceText;

/// The result of reading a configuration: the configuration or its problems, and the files
/// involved.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The configuration with its warnings, or every problem at once, as text.
    pub outcome: Result<(Config, Vec<ConfigWarning>), String>,
    /// The files that were read, or should have been: the configuration first, `conf.d` and its
    /// files, the secrets that they name.
    pub files: Vec<FileFingerprint>,
}

/// Reads and checks a configuration file with the files of `conf.d` beside it, in the order of
/// their names. Secrets come from the environment and from files, which pass the same ownership
/// checks as the configuration itself. A file that another user owns or may write is a problem.
pub fn load(path: &Path) -> LoadedConfig {
    load_with(path, None)
}

/// Does what [`load`] does with one more text, which comes last; `more` is its name in problems,
/// and the text.
pub fn load_with(path: &Path, more: Option<(&str, &str)>) -> LoadedConfig {
    let files = RefCell::new(Vec::new());
    let read = |path: &Path| {
        let read = source::guard::read(path);
        files.borrow_mut().push(FileFingerprint::file(path, &read));
        read
    };
    let folder = source::folder::conf_d_path(path);
    let listed = source::folder::names(&folder);
    let mut problems = Vec::new();
    let also = source::folder::conf_d_files(&folder, &listed).unwrap_or_else(|why| {
        problems.push(ConfigProblem::of_file(&folder.display().to_string(), why));
        Vec::new()
    });
    let mut texts = Vec::new();
    for file in std::iter::once(path).chain(also.iter().map(PathBuf::as_path)) {
        let origin = file.display().to_string();
        match read(file) {
            Ok(text) => texts.push((origin, text)),
            Err(error) => problems.push(ConfigProblem::of_file(&origin, machine::places::describe_read_error(&error))),
        }
    }
    files.borrow_mut().push(FileFingerprint::folder(&folder, &listed));
    texts.extend(more.map(|(origin, more)| (origin.to_owned(), more.to_owned())));
    let texts: Vec<SourceText<'_>> = texts.iter().map(|(origin, text)| SourceText { origin, text }).collect();
    let outcome =
        if problems.is_empty() { parse_all(&texts, &environment, &read) } else { Err(ConfigProblems(problems)) };
    let outcome = outcome.map_err(|problems| problems.to_string()).map(|(mut config, warnings)| {
        config.path = Some(path.to_owned());
        config.also = also;
        (config, warnings)
    });
    LoadedConfig { outcome, files: files.into_inner() }
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
) -> Result<(Config, Vec<ConfigWarning>), ConfigProblems> {
    parse_all(&[SourceText { origin, text }], env, read)
}

/// Checks a configuration of two texts, each with its name in problems. Files of secrets are read.
///
/// # Errors
/// Every problem at once.
pub fn parse_both(
    first: (&str, &str),
    second: (&str, &str),
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Config, Vec<ConfigWarning>), ConfigProblems> {
    let texts = [first, second].map(|(origin, text)| SourceText { origin, text });
    parse_all(&texts, env, &source::guard::read)
}

/// Checks a configuration of several texts.
fn parse_all(
    texts: &[SourceText<'_>],
    env: &dyn Fn(&str) -> Option<String>,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(Config, Vec<ConfigWarning>), ConfigProblems> {
    let source = source::file::ParseContext::new(texts, env, read);
    let config = source::file::with_root(&source, build::config);
    let (problems, warnings) = source.into_findings();
    match config {
        Some(config) if problems.is_empty() => Ok((config, warnings)),
        Some(_) | None => Err(ConfigProblems(problems)),
    }
}

#[cfg(test)]
mod tests;
