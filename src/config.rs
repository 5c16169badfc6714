//! Configuration: TOML text to a validated [`Config`]. Pure except [`load`], [`locate`] and
//! [`preflight`].
//!
//! [`parse`] walks the TOML tree with the cursor of `file`, so it reports every problem at once, each with its line,
//! its key path and what to write. The daemon and `headend check` share this path.

use std::io;
use std::path::Path;

mod arguments;
mod audit;
mod build;
mod canonical;
mod consent;
mod container;
mod doubts;
mod file;
mod filter;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod guard;
mod hints;
mod limits;
mod model;
mod places;
pub(crate) mod plan;
mod problem;
mod profile;
mod repeated;
mod rules;
pub(crate) mod secret;
pub(crate) mod show;
mod units;
mod upstream;

pub(crate) use self::audit::{Audit, OnFailure};
pub(crate) use self::consent::Consent;
pub(crate) use self::container::ContainerRun;
pub(crate) use self::doubts::doubts;
pub(crate) use self::limits::Limits;
pub(crate) use self::model::{
    Admin, Auth, Completions, Config, Confinement, EraChoice, Filter, Instance, Log, LogFormat, Profile, Start, Target,
    Transport, Upstream, Uris,
};
pub(crate) use self::places::{Located, locate, preflight, state_dir};
pub(crate) use self::problem::{Problem, Problems, Warning};
pub(crate) use self::units::{duration_text, parse_duration};

/// Reads and checks a configuration file. Secrets come from the environment and from files, which pass the same
/// ownership checks as the configuration itself.
///
/// # Errors
/// Every problem at once. A file that another user owns or may write is a problem too.
pub(crate) fn load(path: &Path) -> Result<(Config, Vec<Warning>), Problems> {
    let origin = path.display().to_string();
    let refused = |message: String| Problems(vec![Problem::of_file(&origin, message)]);
    let text = places::read_guarded(path).map_err(refused)?;
    let (mut config, warnings) = parse(&text, &origin, &places::environment, &guard::read)?;
    config.path = Some(path.to_owned());
    Ok((config, warnings))
}

/// Checks a configuration text. `origin` is the prefix of each problem; `env` and `read` supply the secrets.
///
/// # Errors
/// Every problem at once.
pub(crate) fn parse(
    text: &str,
    origin: &str,
    env: &dyn Fn(&str) -> Option<String>,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(Config, Vec<Warning>), Problems> {
    let source = file::Source::new(text, origin, env, read);
    let config = file::with_root(&source, build::config);
    let (problems, warnings) = source.into_findings();
    match config {
        Some(config) if problems.is_empty() => Ok((config, warnings)),
        Some(_) | None => Err(Problems(problems)),
    }
}

#[cfg(test)]
mod tests;
