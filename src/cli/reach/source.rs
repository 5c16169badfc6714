//! Loads the configuration: from a file, from upstreams on the command line, or the embedded
//! default.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use crate::cli::exit::{CONFIG, USAGE};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config;
use crate::config::source::guard;
use crate::config::{
    AdminSettings, ClusterSettings, Config, ConfigLocation, ConfigWarning, HostCommand, LoadedConfig, UpstreamTarget,
    VariableText,
};
use crate::daemon::gateway::ConfigSource;
use crate::daemon::listen::check_certificates;
use crate::operator::alone::{self, StateDir};

/// Text of the embedded default.
const EMBEDDED: &str = include_str!("../../../config/embedded.toml");

/// A loaded configuration, its warnings, and the source to read it again.
pub(in crate::cli) struct CommandConfig {
    pub(in crate::cli) config: Config,
    pub(in crate::cli) warnings: Vec<ConfigWarning>,
    pub(in crate::cli) source: ConfigSource,
    pub(in crate::cli) embedded: bool,
}

/// Returns an environment variable; `None` if it is unset or empty.
pub(in crate::cli) fn environment(name: &str) -> Option<String> {
    config::environment(name).filter(|value| !value.is_empty())
}

/// Loads the configuration that the command line and the environment name.
///
/// # Errors
/// 78 with all problems of the configuration; 64 for an invalid `--upstream`.
pub(in crate::cli) fn load(common: &CommonOptions, upstreams: &[String]) -> Result<CommandConfig, CommandFailure> {
    let located = config::locate(common.config.as_deref(), &environment);
    if !upstreams.is_empty() {
        let path = common.config.clone();
        let added = upstreams.iter().map(|text| inline(text)).collect::<Result<Vec<_>, _>>()?.concat();
        let mut loaded = loaded(path.clone(), path.is_none(), false, move || with_upstreams(path.as_deref(), &added))?;
        loaded.source.remembers = false;
        return Ok(loaded);
    }
    match located {
        ConfigLocation::File(path) => loaded(Some(path.clone()), false, false, move || config::load(&path)),
        ConfigLocation::Embedded => loaded(None, false, true, || of_text(embedded())),
    }
}

/// Loads a configuration with `load` and keeps `load` to read it again.
fn loaded(
    path: Option<PathBuf>,
    inline_only: bool,
    embedded: bool,
    load: impl Fn() -> LoadedConfig + Send + Sync + 'static,
) -> Result<CommandConfig, CommandFailure> {
    let LoadedConfig { outcome, files } = load();
    let (config, warnings) = outcome.map_err(|text| CommandFailure::new(CONFIG, text))?;
    // Only a running gateway has other certificates to go on with.
    check_certificates(&config).map_err(|text| CommandFailure::new(CONFIG, text))?;
    // Symbolic links are not resolved, since they may lead elsewhere at the next reload.
    let path = path.filter(|_| !inline_only).map(|path| std::path::absolute(&path).unwrap_or(path));
    let warned = Mutex::new(warnings.iter().map(ToString::to_string).collect());
    let source = ConfigSource { path, load: Box::new(load), remembers: true, files: Mutex::new(files), warned };
    Ok(CommandConfig { config, warnings, source, embedded })
}

/// Loads the configuration of a file with a text added, or of the text alone, for a trial that
/// keeps nothing.
///
/// # Errors
/// 78 with all problems.
pub(in crate::cli) fn load_trial(path: Option<PathBuf>, text: String) -> Result<CommandConfig, CommandFailure> {
    const ORIGIN: &str = "the new table";
    let mut loaded = loaded(None, true, false, move || match &path {
        Some(path) => config::load_with(path, Some((ORIGIN, &text))),
        None => of_text(parse(&text, ORIGIN)),
    })?;
    loaded.source.remembers = false;
    Ok(loaded)
}

/// Wraps a configuration that comes from no file.
fn of_text(outcome: Result<(Config, Vec<ConfigWarning>), String>) -> LoadedConfig {
    LoadedConfig { outcome, files: Vec::new() }
}

fn parse(text: &str, origin: &str) -> Result<(Config, Vec<ConfigWarning>), String> {
    config::parse(text, origin, &environment, &guard::read).map_err(|problems| problems.to_string())
}

/// Parses the embedded default and lets its demo servers start this program.
fn embedded() -> Result<(Config, Vec<ConfigWarning>), String> {
    let (mut config, warnings) = parse(EMBEDDED, "the embedded default")?;
    let program = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    for upstream in &mut config.upstreams {
        if let UpstreamTarget::Stdio { command, .. } = &mut upstream.target
            && let Some(first) = command.first_mut().filter(|first| first.written() == "headend")
        {
            *first = VariableText::plain(program.display().to_string());
        }
    }
    Ok((config, warnings))
}

/// Loads a file's configuration with upstreams of the command line added, or these upstreams alone
/// with `default = "allow"`.
fn with_upstreams(path: Option<&Path>, added: &str) -> LoadedConfig {
    match path {
        Some(path) => config::load_with(path, Some(("the command line", added))),
        // The user who typed the server's command is its only client.
        None => of_text(parse(&format!("[policy]\ndefault = \"allow\"\n{added}"), "the command line")),
    }
}

/// Converts `NAME=TARGET` of `--upstream` to a table of the configuration.
fn inline(text: &str) -> Result<String, CommandFailure> {
    let usage = |why: String| CommandFailure::new(USAGE, format!("--upstream {text:?}: {why}"));
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
pub(in crate::cli) fn load_quietly(common: &CommonOptions) -> Option<Config> {
    match config::locate(common.config.as_deref(), &environment) {
        ConfigLocation::File(path) => config::load(&path).outcome.ok().map(|(config, _)| config),
        ConfigLocation::Embedded => None,
    }
}

/// Loads the configuration in force with further rules added. `text` contains a policy alone;
/// `origin` names it in messages.
///
/// # Errors
/// 78 with all problems.
pub(in crate::cli) fn load_with_rules(
    common: &CommonOptions,
    origin: &str,
    text: &str,
) -> Result<Config, CommandFailure> {
    let outcome = match config::locate(common.config.as_deref(), &environment) {
        ConfigLocation::File(path) => config::load_with(&path, Some((origin, text))).outcome,
        ConfigLocation::Embedded => {
            config::parse_both(("the embedded default", EMBEDDED), (origin, text), &environment)
                .map_err(|problems| problems.to_string())
        }
    };
    outcome.map(|(config, _)| config).map_err(|text| CommandFailure::new(CONFIG, text))
}

/// Loads a configuration file that is not in force.
///
/// # Errors
/// 78 with all problems.
pub(in crate::cli) fn load_file(path: &Path) -> Result<Config, CommandFailure> {
    config::load(path).outcome.map(|(config, _)| config).map_err(|text| CommandFailure::new(CONFIG, text))
}

/// Returns the path of this user's configuration file, which need not exist.
pub(in crate::cli) fn user_file(common: &CommonOptions) -> Option<PathBuf> {
    common.config.clone().or_else(|| config::user_file(&environment))
}

/// Returns the file that a command adds to: the configuration in force, or else the user's own
/// file, which need not exist.
///
/// # Errors
/// 78 if the environment names no place for the file.
pub(in crate::cli) fn find_writable_file(common: &CommonOptions) -> Result<PathBuf, CommandFailure> {
    match config::locate(common.config.as_deref(), &environment) {
        ConfigLocation::File(path) => Ok(path),
        ConfigLocation::Embedded => config::user_file(&environment).ok_or_else(|| {
            CommandFailure::new(CONFIG, "no configuration file: set $XDG_CONFIG_HOME or $HOME, or write --config PATH")
        }),
    }
}

/// Returns the settings of the audit log for commands without a daemon; the defaults if the
/// configuration cannot be loaded.
pub(in crate::cli) fn audit(common: &CommonOptions) -> config::AuditSettings {
    load_quietly(common).map_or_else(config::AuditSettings::default, |config| config.audit)
}

/// Opens the state directory, and creates it if missing.
///
/// # Errors
/// 75 if it cannot be created or other users can write to it; 78 if the environment names none.
pub(in crate::cli) fn open_store(config: &Config) -> Result<StateDir, CommandFailure> {
    let dir = config::state_dir(&environment)
        .ok_or_else(|| CommandFailure::new(CONFIG, "no state directory: set $XDG_STATE_HOME or $HOME"))?;
    let store = alone::open_state(dir, config.secrets.clone(), true).map_err(CommandFailure::from)?;
    Ok(store.in_cluster(config.cluster.clone()))
}

/// Opens the state directory if it exists, for commands without a daemon. Creates no key, since the
/// daemon may have one that this command cannot see.
///
/// # Errors
/// 75 if other users can write to it.
pub(in crate::cli) fn open_existing_store(common: &CommonOptions) -> Result<Option<StateDir>, CommandFailure> {
    let Some(dir) = config::state_dir(&environment).filter(|dir| dir.is_dir()) else { return Ok(None) };
    let (keys, cluster) = load_quietly(common).map(|config| (config.secrets, config.cluster)).unwrap_or_default();
    let store = alone::open_state(dir, keys, false).map_err(CommandFailure::from)?;
    // A person waits for the command, and repeats it when the store is back.
    let cluster = cluster.map(|cluster| ClusterSettings { store_wait: Duration::ZERO, ..cluster });
    Ok(Some(store.in_cluster(cluster)))
}

/// Returns the command by which hosts reach a daemon that is started with this command line and
/// configuration file.
pub(in crate::cli) fn host_command(common: &CommonOptions, admin: &AdminSettings, file: Option<&Path>) -> HostCommand {
    let places = config::state_dir(&environment).zip(own_socket(common, admin));
    let uid = rustix::process::getuid().as_raw();
    places
        .map_or_else(HostCommand::default, |(state, socket)| HostCommand::of(file, &state, &socket, &environment, uid))
}

/// Returns the path of the socket that a daemon with this command line and configuration binds.
pub(in crate::cli) fn own_socket(common: &CommonOptions, admin: &AdminSettings) -> Option<PathBuf> {
    let named = common.socket.clone().or_else(|| admin.socket.clone());
    let runtime = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(environment).map(PathBuf::from);
    let mut directories = runtime.chain(config::state_dir(&environment));
    named.or_else(|| directories.next().map(|directory| directory.join("headend.sock")))
}
