//! Loads the configuration: from a file, from upstreams on the command line, or the embedded
//! default.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::exit::{CONFIG, USAGE};
use super::options::Common;
use super::output::Failure;
use crate::config::{self, Admin, Config, HostCommand, Loading, Located, Target, Template, Warning, guard};
use crate::daemon::gateway::ConfigSource;
use crate::operator::alone::{self, Store};

/// Text of the embedded default.
const EMBEDDED: &str = include_str!("../../config/embedded.toml");

/// A loaded configuration, its warnings, and the source to read it again.
pub(super) struct Loaded {
    pub(super) config: Config,
    pub(super) warnings: Vec<Warning>,
    pub(super) source: ConfigSource,
    pub(super) embedded: bool,
}

/// Returns an environment variable; `None` if it is unset or empty.
pub(super) fn environment(name: &str) -> Option<String> {
    config::environment(name).filter(|value| !value.is_empty())
}

/// Loads the configuration that the command line and the environment name.
///
/// # Errors
/// 78 with all problems of the configuration; 64 for an invalid `--upstream`.
pub(super) fn load(common: &Common, upstreams: &[String]) -> Result<Loaded, Failure> {
    let located = config::locate(common.config.as_deref(), &environment);
    if !upstreams.is_empty() {
        let path = common.config.clone();
        let added = upstreams.iter().map(|text| inline(text)).collect::<Result<Vec<_>, _>>()?.concat();
        let mut loaded = loaded(path.clone(), path.is_none(), false, move || with_upstreams(path.as_deref(), &added))?;
        loaded.source.remembers = false;
        return Ok(loaded);
    }
    match located {
        Located::File(path) => loaded(Some(path.clone()), false, false, move || config::load(&path)),
        Located::Embedded => loaded(None, false, true, || of_text(embedded())),
    }
}

/// Loads a configuration with `load` and keeps `load` to read it again.
fn loaded(
    path: Option<PathBuf>,
    inline_only: bool,
    embedded: bool,
    load: impl Fn() -> Loading + Send + Sync + 'static,
) -> Result<Loaded, Failure> {
    let Loading { outcome, files } = load();
    let (config, warnings) = outcome.map_err(|text| Failure::new(CONFIG, text))?;
    // Symbolic links are not resolved, since they may lead elsewhere at the next reload.
    let path = path.filter(|_| !inline_only).map(|path| std::path::absolute(&path).unwrap_or(path));
    let warned = Mutex::new(warnings.iter().map(ToString::to_string).collect());
    let source = ConfigSource { path, load: Box::new(load), remembers: true, files: Mutex::new(files), warned };
    Ok(Loaded { config, warnings, source, embedded })
}

/// Wraps a configuration that comes from no file.
fn of_text(outcome: Result<(Config, Vec<Warning>), String>) -> Loading {
    Loading { outcome, files: Vec::new() }
}

fn parse(text: &str, origin: &str) -> Result<(Config, Vec<Warning>), String> {
    config::parse(text, origin, &environment, &guard::read).map_err(|problems| problems.to_string())
}

/// Parses the embedded default and lets its demo servers start this program.
fn embedded() -> Result<(Config, Vec<Warning>), String> {
    let (mut config, warnings) = parse(EMBEDDED, "the embedded default")?;
    let program = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    for upstream in &mut config.upstreams {
        if let Target::Stdio { command, .. } = &mut upstream.target
            && let Some(first) = command.first_mut().filter(|first| first.written() == "headend")
        {
            *first = Template::plain(program.display().to_string());
        }
    }
    Ok((config, warnings))
}

/// Loads a file's configuration with upstreams of the command line added, or these upstreams alone
/// with `default = "allow"`.
fn with_upstreams(path: Option<&Path>, added: &str) -> Loading {
    match path {
        Some(path) => config::load_with(path, Some(("the command line", added))),
        // The user who typed the server's command is its only client.
        None => of_text(parse(&format!("[policy]\ndefault = \"allow\"\n{added}"), "the command line")),
    }
}

/// Converts `NAME=TARGET` of `--upstream` to a table of the configuration.
fn inline(text: &str) -> Result<String, Failure> {
    let usage = |why: String| Failure::new(USAGE, format!("--upstream {text:?}: {why}"));
    let (name, target) = text.split_once('=').ok_or_else(|| usage("write NAME=URL or NAME=COMMAND".to_owned()))?;
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let line = if target.starts_with("http://") || target.starts_with("https://") {
        format!("url = {}", quoted(target))
    } else {
        let words = shlex::split(target).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| usage("the command line is empty or a quote does not close".to_owned()))?;
        format!("command = [{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
    };
    Ok(format!("[upstreams.{}]\n{line}\n", quoted(name)))
}

/// Loads the configuration file without reporting problems, for commands that need one key; `None`
/// without a file or with an invalid one.
pub(super) fn quiet(common: &Common) -> Option<Config> {
    match config::locate(common.config.as_deref(), &environment) {
        Located::File(path) => config::load(&path).outcome.ok().map(|(config, _)| config),
        Located::Embedded => None,
    }
}

/// Loads the configuration in force with further rules added. `text` contains a policy alone;
/// `origin` names it in messages.
///
/// # Errors
/// 78 with all problems.
pub(super) fn with_rules(common: &Common, origin: &str, text: &str) -> Result<Config, Failure> {
    let outcome = match config::locate(common.config.as_deref(), &environment) {
        Located::File(path) => config::load_with(&path, Some((origin, text))).outcome,
        Located::Embedded => config::parse_both(("the embedded default", EMBEDDED), (origin, text), &environment)
            .map_err(|problems| problems.to_string()),
    };
    outcome.map(|(config, _)| config).map_err(|text| Failure::new(CONFIG, text))
}

/// Loads a configuration file that is not in force.
///
/// # Errors
/// 78 with all problems.
pub(super) fn other(path: &Path) -> Result<Config, Failure> {
    config::load(path).outcome.map(|(config, _)| config).map_err(|text| Failure::new(CONFIG, text))
}

/// Returns the path of this user's configuration file, which need not exist.
pub(super) fn user_file(common: &Common) -> Option<PathBuf> {
    common.config.clone().or_else(|| config::user_file(&environment))
}

/// Returns the file that a command adds to: the configuration in force, or else the user's own
/// file, which need not exist.
///
/// # Errors
/// 78 if the environment names no place for the file.
pub(super) fn writable(common: &Common) -> Result<PathBuf, Failure> {
    match config::locate(common.config.as_deref(), &environment) {
        Located::File(path) => Ok(path),
        Located::Embedded => config::user_file(&environment).ok_or_else(|| {
            Failure::new(CONFIG, "no configuration file: set $XDG_CONFIG_HOME or $HOME, or write --config PATH")
        }),
    }
}

/// Returns the settings of the audit log for commands without a daemon; the defaults if the
/// configuration cannot be loaded.
pub(super) fn audit(common: &Common) -> config::Audit {
    quiet(common).map_or_else(config::Audit::default, |config| config.audit)
}

/// Opens the state directory, and creates it if missing.
///
/// # Errors
/// 75 if it cannot be created or other users can write to it; 78 if the environment names none.
pub(super) fn store(config: &Config) -> Result<Store, Failure> {
    let dir = config::state_dir(&environment)
        .ok_or_else(|| Failure::new(CONFIG, "no state directory: set $XDG_STATE_HOME or $HOME"))?;
    alone::open_state(dir, config.secrets.key.clone(), true).map_err(Failure::from)
}

/// Opens the state directory if it exists, for commands without a daemon. Creates no key, since the
/// daemon may have one that this command cannot see.
///
/// # Errors
/// 75 if other users can write to it.
pub(super) fn existing_store(common: &Common) -> Result<Option<Store>, Failure> {
    let Some(dir) = config::state_dir(&environment).filter(|dir| dir.is_dir()) else { return Ok(None) };
    let key = quiet(common).and_then(|config| config.secrets.key);
    alone::open_state(dir, key, false).map(Some).map_err(Failure::from)
}

/// Returns the command by which hosts reach a daemon that is started with this command line and
/// configuration file.
pub(super) fn host_command(common: &Common, admin: &Admin, file: Option<&Path>) -> HostCommand {
    let places = config::state_dir(&environment).zip(own_socket(common, admin));
    let uid = rustix::process::getuid().as_raw();
    places
        .map_or_else(HostCommand::default, |(state, socket)| HostCommand::of(file, &state, &socket, &environment, uid))
}

/// Returns the path of the socket that a daemon with this command line and configuration binds.
pub(super) fn own_socket(common: &Common, admin: &Admin) -> Option<PathBuf> {
    let named = common.socket.clone().or_else(|| admin.socket.clone());
    let runtime = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(environment).map(PathBuf::from);
    let mut directories = runtime.chain(config::state_dir(&environment));
    named.or_else(|| directories.next().map(|directory| directory.join("headend.sock")))
}
