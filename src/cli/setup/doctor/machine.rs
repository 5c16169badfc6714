//! Checks the daemon, the configuration, the state directory and the ports.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};

use super::finding::{DoctorFindings, FindingLevel};
use super::versions;
use crate::cli::reach::daemon;
use crate::cli::reach::source;
use crate::cli::reach::source::CommandConfig;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::count;
use crate::config::{Config, state_dir};
use crate::daemon::gateway::{bind_error_advice, describe_bind_error};
use crate::daemon::listen::{CONSOLE, METRICS, SERVER};
use crate::operator::request::{ReloadParams, Request};
use crate::operator::views::ReloadView;

/// Free space below which a disk counts as full, in bytes.
const LEAST_ROOM: u64 = 64 << 20;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Connects to the daemon and adds a finding about it; `None` if no usable daemon answers.
pub(super) fn check_daemon(common: &CommonOptions, found: &mut DoctorFindings) -> Option<daemon::DaemonConnection> {
    match daemon::connect(common, "admin", None) {
        Ok(daemon) => {
            match daemon.hello.version.as_deref() {
                Some(version) if version != VERSION => found.add(
                    FindingLevel::Warning,
                    "daemon",
                    format!("it is headend {version}, and this command is headend {VERSION}"),
                    "restart the daemon: `systemctl --user restart headend`, or end `headend serve` and start it again",
                ),
                _ => found.ok("daemon", format!("headend {VERSION} answers")),
            }
            Some(daemon)
        }
        Err(daemon::DaemonUnavailable::Silent(failure)) if is_denied(common) => {
            found.problem("daemon", failure.text, "run this command as that user; what follows is seen by yours");
            None
        }
        Err(daemon::DaemonUnavailable::Silent(failure)) if common.socket.is_some() => {
            let next = "start that daemon, or leave --socket and $HEADEND_SOCKET out to look for one";
            found.problem("daemon", failure.text, next);
            None
        }
        Err(daemon::DaemonUnavailable::Silent(failure)) if failure.text.starts_with("no daemon answers") => {
            found.add(
                FindingLevel::Note,
                "daemon",
                "none runs",
                "start one with `headend serve`; hosts that run `headend stdio` need none",
            );
            None
        }
        Err(daemon::DaemonUnavailable::Silent(failure) | daemon::DaemonUnavailable::Refused(failure)) => {
            found.problem(
                "daemon",
                failure.text,
                "end that process, or name another socket by --socket or `[admin] socket`",
            );
            None
        }
    }
}

/// Returns true if a socket exists to which this user may not connect.
pub(super) fn is_denied(common: &CommonOptions) -> bool {
    let is_denied = |path: &PathBuf| {
        std::os::unix::net::UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    daemon::socket_candidates(common).iter().any(is_denied)
}

/// Adds a warning if the daemon's state directory differs from that of this command.
pub(super) fn compare_state(daemon: &daemon::DaemonConnection, own: &Path, found: &mut DoctorFindings) {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(theirs) = daemon.hello.state.as_deref().filter(|theirs| canonical(Path::new(theirs)) != canonical(own))
    {
        let what = format!("the daemon's is {theirs}, and this command's is {}", own.display());
        let next =
            format!("set $XDG_STATE_HOME as the daemon has it, or give hosts `--socket {}`", daemon.socket.display());
        found.add(FindingLevel::Warning, "state", what, next);
    }
}

/// Loads the configuration and adds findings about it, its warnings, and its differences from the
/// daemon's; `None` if it has errors.
pub(super) fn check_configuration(
    common: &CommonOptions,
    daemon: Option<&mut daemon::DaemonConnection>,
    found: &mut DoctorFindings,
) -> Option<CommandConfig> {
    let loaded = match source::load(common, &[]) {
        Ok(loaded) => loaded,
        Err(failure) => {
            for line in failure.text.lines() {
                let next = if line.contains("is not set") {
                    "export that variable where headend runs: in the shell, or as `Environment=` or `EnvironmentFile=` of the unit; then `headend check`"
                } else {
                    "mend that line, then `headend check`"
                };
                found.problem("configuration", line, next);
            }
            return None;
        }
    };
    let place = loaded.config.path.as_ref().map_or_else(
        || "no file, the built-in default with its demo servers".to_owned(),
        |path| path.display().to_string(),
    );
    let upstreams = count(loaded.config.upstreams.len(), "upstream");
    found.ok("configuration", format!("{place}: {upstreams}, {}", count(loaded.config.policy.rules.len(), "rule")));
    if loaded.config.path.is_none() {
        found.add(
            FindingLevel::Note,
            "configuration",
            "your own servers are not in it",
            "`headend import` takes them over from a host's file",
        );
    }
    warnings(&loaded, found);
    if let Some(daemon) = daemon {
        compare(&loaded, daemon, found);
    }
    Some(loaded)
}

/// Adds findings about the warnings of the configuration. Warnings of one kind in the same file are
/// one finding.
fn warnings(loaded: &CommandConfig, found: &mut DoctorFindings) {
    let mut groups: Vec<((&str, String), Vec<&crate::config::ConfigWarning>)> = Vec::new();
    for warning in loaded.warnings.iter().filter(|warning| !warning.message.contains(crate::config::UNPINNED)) {
        // Names and values are in backquotes; the text between them is the kind.
        let kind = warning.message.split('`').step_by(2).collect::<String>();
        let key = (warning.origin.as_str(), kind);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(warning),
            None => groups.push((key, vec![warning])),
        }
    }
    for (_, group) in groups {
        let Some((first, others)) = group.split_first() else { continue };
        let mut what = first.to_string();
        if !others.is_empty() {
            let places = others.iter().map(|warning| format!("`{}`", warning.path)).collect::<Vec<_>>().join(", ");
            what.push_str(&format!("; the same of {places}"));
        }
        found.add(FindingLevel::Warning, "configuration", what, "`headend check` lists all warnings");
    }
    versions::look(&loaded.config, loaded.source.path.as_deref(), found);
}

/// Adds findings if the daemon runs with another configuration file, or if the file has changes
/// that are not in force or would be refused.
fn compare(loaded: &CommandConfig, daemon: &mut daemon::DaemonConnection, found: &mut DoctorFindings) {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let theirs = daemon.hello.config.as_ref().map(|path| canonical(Path::new(path)));
    let ours = loaded.source.path.as_ref().map(|path| canonical(path));
    if theirs != ours {
        let theirs = theirs.map_or_else(|| "no file".to_owned(), |path| path.display().to_string());
        let what = format!(
            "the daemon runs with another one: {theirs}; a host that starts `headend stdio` as this command is started runs \
             upstreams of its own"
        );
        let next = format!(
            "name the same by --config, and give hosts `--socket {}` too; or restart the daemon with this one",
            daemon.socket.display()
        );
        found.add(FindingLevel::Warning, "configuration", what, next);
        return;
    }
    let rehearsal = Request::Reload(ReloadParams { dry_run: true, ..ReloadParams::default() });
    match daemon.ask(&rehearsal).map(|ReloadView { plan }| plan) {
        Ok(plan) if plan == "nothing changed" => {}
        Ok(plan) => {
            let what = format!("the file has changes that are not in force: {plan}");
            found.add(FindingLevel::Warning, "configuration", what, "`headend reload` puts them in force");
        }
        Err(failure) => found.problem("configuration", failure.text, "mend it, then `headend reload`"),
    }
}

/// Checks the state directory and adds findings; `None` if it cannot be used.
pub(super) fn check_state(common: &CommonOptions, found: &mut DoctorFindings) -> Option<PathBuf> {
    let about = "state";
    let Some(dir) = state_dir(&source::environment) else {
        found.problem(about, "no state directory: neither $XDG_STATE_HOME nor $HOME is set", "set one of them");
        return None;
    };
    // The nearest existing ancestor; the first start creates the rest.
    let place = dir.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    let shown = dir.display();
    if !place.is_dir() {
        let what = format!("{} is not a directory, and the state directory is {shown}", place.display());
        found.problem(about, what, format!("move {} away, or set $XDG_STATE_HOME", place.display()));
        return None;
    }
    if let Ok(room) = statvfs(place) {
        if room.f_flag.contains(StatVfsMountFlags::RDONLY) {
            let what = format!("{shown} is on a file system that is mounted read-only");
            found.problem(about, what, "mount it writable, or set $XDG_STATE_HOME to a place that is");
            return None;
        }
        if room.f_bavail.saturating_mul(room.f_frsize) < LEAST_ROOM || room.f_files > 0 && room.f_favail == 0 {
            let what = format!("the disk of {shown} is full: {} KiB are left", room.f_bavail * room.f_frsize / 1024);
            found.problem(about, what, format!("make room on it (`df -h {}`)", place.display()));
        }
    }
    if access(place, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let what = format!("{} may not be written by this user", place.display());
        let next =
            format!("`chmod u+w {0}`, or `chown` it to the user that runs headend: `ls -ld {0}`", place.display());
        found.problem(about, what, next);
        return None;
    }
    match source::open_existing_store(common) {
        Ok(store) => {
            found.ok(about, shown.to_string());
            for other in store.iter().flat_map(|store| store.other_gateways()) {
                let what = format!("{other} runs on this state directory, with upstreams of its own");
                let next = "where a daemon runs, restart that host: it then uses the daemon's upstreams";
                found.add(FindingLevel::Note, "gateways", what, next);
            }
            for doubt in store.iter().flat_map(|store| store.doubt_keys()) {
                let (what, next) = doubt.split_once("; ").unwrap_or((&doubt, ""));
                found.add(FindingLevel::Warning, "keys", what, next);
            }
            Some(dir)
        }
        Err(failure) => {
            found.problem(about, failure.text, "do as it says, then `headend doctor` again");
            None
        }
    }
}

/// Adds findings about the addresses on which `serve` would listen.
pub(super) fn check_ports(config: &Config, found: &mut DoctorFindings) {
    let own = config.server.listen.iter().map(|address| (SERVER, *address));
    let metrics = config.metrics.listen.map(|address| (METRICS, address));
    // If the console's address is not configured, another port is chosen when it is taken.
    let console = config.console.listen.filter(|_| config.console.chosen).map(|address| (CONSOLE, address));
    for (key, address) in own.chain(metrics).chain(console).filter(|(_, address)| address.port() != 0) {
        match TcpListener::bind(address) {
            Ok(_) => found.ok("port", format!("{address} is free ({key})")),
            Err(error) => {
                let what = format!("{key}: {}", describe_bind_error(address, &error));
                found.problem("port", what, bind_error_advice(key, address, &error));
            }
        }
    }
}
