//! The client side of the admin socket: finds the daemon, exchanges hellos, and sends requests.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, User};
use serde::de::DeserializeOwned;

use super::source::{self, environment};
use crate::cli::exit::{NO, TEMPFAIL, UNAVAILABLE};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::cli::words::terminal;
use crate::config::state_dir;
use crate::daemon::admin::UNUSABLE;
use crate::daemon::hello::{HelloLine, encode_hello, published_socket};
use crate::operator::request::{ChallengeParams, ProveParams, Request};
use crate::operator::views::ChallengeView;
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};

/// Longest wait for an answer. A daemon that is silent for longer hangs: a call takes 600 s at most
/// by default.
const PATIENCE: Duration = Duration::from_secs(700);

/// Runtime directory of the system service.
const SYSTEM: &str = "/run/headend";

/// The reason why no daemon can be used.
#[derive(Debug)]
pub(in crate::cli) enum DaemonUnavailable {
    /// No daemon answers, or the connection fails.
    Silent(CommandFailure),
    /// A program answers that cannot be used, or refuses.
    Refused(CommandFailure),
}

impl From<DaemonUnavailable> for CommandFailure {
    fn from((DaemonUnavailable::Silent(failure) | DaemonUnavailable::Refused(failure)): DaemonUnavailable) -> Self {
        failure
    }
}

/// Lists the sockets to try, in order: only the one that `--socket` names, or else each path at
/// which a daemon of this user or of the system may listen.
pub(in crate::cli) fn socket_candidates(common: &CommonOptions) -> Vec<PathBuf> {
    if let Some(path) = &common.socket {
        return vec![path.clone()];
    }
    let configured = source::load_quietly(common).and_then(|config| config.admin.socket);
    let state = state_dir(&environment);
    let published = state.as_ref().and_then(|dir| published_socket(dir));
    let own = rustix::process::getuid().as_raw();
    places(configured, published, &environment, own, state)
}

/// Lists the sockets to try without `--socket`, in order.
fn places(
    configured: Option<PathBuf>,
    published: Option<PathBuf>,
    env: &dyn Fn(&str) -> Option<String>,
    uid: u32,
    state: Option<PathBuf>,
) -> Vec<PathBuf> {
    let variable = |name| env(name).map(PathBuf::from);
    // Hosts often drop this variable; the fallback is its usual value in a session.
    let session = variable("XDG_RUNTIME_DIR").unwrap_or_else(|| PathBuf::from(format!("/run/user/{uid}")));
    let directories = variable("RUNTIME_DIRECTORY").into_iter().chain([session]).chain(state).chain([SYSTEM.into()]);
    let sockets = directories.map(|directory| directory.join("headend.sock"));
    let mut places: Vec<PathBuf> = Vec::new();
    for place in configured.into_iter().chain(published).chain(sockets) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// A connection to the daemon after the exchange of hellos.
pub(in crate::cli) struct DaemonConnection {
    pub(in crate::cli) stream: UnixStream,
    pub(in crate::cli) reader: BufReader<UnixStream>,
    pub(in crate::cli) hello: HelloLine,
    /// Path of the daemon's socket.
    pub(in crate::cli) socket: PathBuf,
    /// True once the daemon has accepted a code from the terminal, or has said that it needs none.
    is_proven: bool,
}

/// Connects to the first socket that accepts a connection, and exchanges hellos.
///
/// # Errors
/// [`DaemonUnavailable`], each with exit code 69.
pub(in crate::cli) fn connect(
    common: &CommonOptions,
    want: &str,
    profile: Option<&str>,
) -> Result<DaemonConnection, DaemonUnavailable> {
    let paths = socket_candidates(common);
    let mut denied = None;
    for path in &paths {
        match UnixStream::connect(path) {
            Ok(stream) => return greet(stream, path, want, profile),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = denied.or(Some(path)),
            Err(_) => {}
        }
    }
    if let Some(path) = denied {
        return Err(DaemonUnavailable::Silent(CommandFailure::new(UNAVAILABLE, no_permission(path))));
    }
    let tried: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let next = if common.socket.is_some() {
        "start that daemon, or leave --socket and $HEADEND_SOCKET out to look for one"
    } else {
        "start one with `headend serve`"
    };
    let text = format!("no daemon answers (tried {}); {next}", tried.join(", "));
    Err(DaemonUnavailable::Silent(CommandFailure::new(UNAVAILABLE, text)))
}

/// Connects to the socket at that path, and exchanges hellos.
///
/// # Errors
/// [`DaemonUnavailable`], each with exit code 69.
pub(in crate::cli) fn connect_at(path: &Path, want: &str) -> Result<DaemonConnection, DaemonUnavailable> {
    let told = |error: std::io::Error| CommandFailure::new(UNAVAILABLE, format!("{}: {error}", path.display()));
    let stream = UnixStream::connect(path).map_err(|error| DaemonUnavailable::Silent(told(error)))?;
    greet(stream, path, want, None)
}

/// Returns true if a daemon of the user `peer` may receive the client's data: our own user, root,
/// or the user that owns the runtime directory of the system service.
fn is_trusted(peer: u32, own: u32, system: Option<u32>) -> bool {
    peer == own || peer == 0 || Some(peer) == system
}

/// Returns the id of the user whose process listens on the socket; outside Linux, the owner of the
/// socket's file.
fn peer_of(stream: &UnixStream, path: &Path) -> std::io::Result<u32> {
    #[cfg(target_os = "linux")]
    let uid = {
        let _ = path;
        rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw()
    };
    #[cfg(not(target_os = "linux"))]
    let uid = {
        let _ = stream;
        std::fs::symlink_metadata(path)?.uid()
    };
    Ok(uid)
}

/// Describes why this user may not connect to a socket: its owner, and how to get access. If a
/// directory hides the socket, the text is about the directory.
pub(in crate::cli) fn no_permission(path: &Path) -> String {
    let found = path.ancestors().find_map(|place| Some((place, std::fs::symlink_metadata(place).ok()?)));
    let (own, socket) = (user_name(rustix::process::getuid().as_raw()), path.display());
    let Some((place, data)) = found else { return format!("{socket}: permission denied for user {own}") };
    let owner = user_name(data.uid());
    let mode = data.permissions().mode() & 0o7777;
    let at = if place == path { String::new() } else { format!("{} ", place.display()) };
    format!(
        "{socket}: permission denied: {at}belongs to user {owner} (mode {mode:04o}), and you are user {own}; run the command as {owner}, \
         or let that daemon admit you: `[admin] users = [{own:?}]` and `group`"
    )
}

/// Returns the name of a user, or the number if the system knows no name.
fn user_name(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Checks that the daemon's user is trusted, then exchanges hellos.
fn greet(
    stream: UnixStream,
    path: &Path,
    want: &str,
    profile: Option<&str>,
) -> Result<DaemonConnection, DaemonUnavailable> {
    let told = |text: &dyn std::fmt::Display| CommandFailure::new(UNAVAILABLE, format!("{}: {text}", path.display()));
    let silent = |error: std::io::Error| DaemonUnavailable::Silent(told(&error));
    let peer = peer_of(&stream, path).map_err(silent)?;
    let own = rustix::process::getuid().as_raw();
    let system = std::fs::metadata(SYSTEM).ok().map(|data| data.uid());
    if !is_trusted(peer, own, system) {
        let text = format!(
            "the program that answers there runs as {}, who is neither you, nor root, nor the user of the system service; \
             end it, or name another socket by --socket",
            user_name(peer)
        );
        return Err(DaemonUnavailable::Refused(told(&text)));
    }
    let mut writer = stream.try_clone().map_err(silent)?;
    writer.write_all(encode_hello(want, None, profile, None).as_bytes()).map_err(silent)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(silent)?;
    let mut reader = BufReader::new(stream.try_clone().map_err(silent)?);
    let mut line = String::new();
    if reader.read_line(&mut line).map_err(silent)? == 0 {
        return Err(DaemonUnavailable::Silent(told(&"the daemon closed the connection; it may be ending")));
    }
    let strange = |_| DaemonUnavailable::Refused(told(&"no headend daemon answers there"));
    let hello: HelloLine = serde_json::from_str(&line).map_err(strange)?;
    if let Some(error) = &hello.error {
        return Err(DaemonUnavailable::Refused(told(error)));
    }
    stream.set_read_timeout(None).map_err(silent)?;
    Ok(DaemonConnection { stream, reader, hello, socket: path.to_owned(), is_proven: false })
}

impl DaemonConnection {
    /// Sends a request and reads the answer. If the request needs a proof, first asks for the code
    /// that the daemon shows on the terminal.
    ///
    /// # Errors
    /// 1 if the daemon refuses or the code is wrong; 69 if the connection breaks; 75 if the daemon
    /// cannot use its store.
    pub(in crate::cli) fn ask<V: DeserializeOwned>(&mut self, request: &Request) -> Result<V, CommandFailure> {
        let no = |(code, text): (i64, String)| CommandFailure::new(if code == UNUSABLE { TEMPFAIL } else { NO }, text);
        if request.is_guarded() && !self.is_proven {
            let method = request.written().map_err(unreadable_answer)?.0.to_owned();
            let is_needed = match self.exchange(&Request::Challenge(ChallengeParams { method }))? {
                Ok(answer) => answer.parse::<ChallengeView>().map_err(unreadable_answer)?.needed,
                // An older daemon knows no codes.
                Err((code::METHOD_NOT_FOUND, _)) => false,
                Err(refused) => return Err(no(refused)),
            };
            if is_needed {
                let typed = ProveParams { code: terminal::code("code: ")? };
                self.exchange(&Request::Prove(typed))?.map_err(no)?;
            }
            self.is_proven = true;
        }
        serde_json::from_slice(self.exchange(request)?.map_err(no)?.bytes()).map_err(unreadable_answer)
    }

    /// Sends one request and returns the daemon's answer: a result, or the code and text of an
    /// error.
    fn exchange(&mut self, request: &Request) -> Result<Result<RawJson, (i64, String)>, CommandFailure> {
        let gone = |error: std::io::Error| {
            CommandFailure::new(
                UNAVAILABLE,
                format!("the connection to the daemon broke: {error}; see the daemon's log"),
            )
        };
        let (method, params) = request.written().map_err(unreadable_answer)?;
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#) + "\n";
        self.stream.set_read_timeout(Some(PATIENCE)).map_err(gone)?;
        self.stream.write_all(line.as_bytes()).map_err(gone)?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer).map_err(gone)? == 0 {
            return Err(CommandFailure::new(UNAVAILABLE, "the daemon closed the connection; see its log"));
        }
        let answer = RawJson::checked(answer.trim().to_owned()).map_err(unreadable_answer)?;
        let answer = RawObject::parse(&answer).map_err(unreadable_answer)?;
        if let Some(error) = answer.get("error") {
            let error = RawObject::parse(error).map_err(unreadable_answer)?;
            let code = error.get("code").and_then(|code| code.parse().ok()).unwrap_or_default();
            return Ok(Err((code, error.string("message").unwrap_or_default())));
        }
        answer.get("result").cloned().map(Ok).ok_or_else(|| unreadable_answer("no result"))
    }
}

/// Returns the failure for an answer that cannot be parsed.
pub(in crate::cli) fn unreadable_answer(_: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::new(UNAVAILABLE, "the daemon's answer is malformed; its version may differ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn shown(places: &[PathBuf]) -> Vec<&str> {
        places.iter().map(|place| place.to_str().unwrap()).collect()
    }

    #[test]
    fn a_named_socket_is_the_only_place() {
        let common = CommonOptions { socket: Some("/x/y.sock".into()), ..CommonOptions::default() };
        assert_eq!(shown(&socket_candidates(&common)), ["/x/y.sock"]);
    }

    #[test]
    fn the_search_goes_from_what_is_named_to_the_system_service() {
        let all = |name: &str| Some(format!("/{name}"));
        let found = places(Some("/a.sock".into()), Some("/b.sock".into()), &all, 7, Some("/state".into()));
        let wanted = [
            "/a.sock",
            "/b.sock",
            "/RUNTIME_DIRECTORY/headend.sock",
            "/XDG_RUNTIME_DIR/headend.sock",
            "/state/headend.sock",
            "/run/headend/headend.sock",
        ];
        assert_eq!(shown(&found), wanted);
        let found = places(None, Some("/b.sock".into()), &|_| None, 7, Some("/state".into()));
        let wanted = ["/b.sock", "/run/user/7/headend.sock", "/state/headend.sock", "/run/headend/headend.sock"];
        assert_eq!(shown(&found), wanted, "what a host leaves of the environment");
        let found = places(Some("/run/headend/headend.sock".into()), None, &|_| None, 7, None);
        assert_eq!(shown(&found), ["/run/headend/headend.sock", "/run/user/7/headend.sock"], "none twice");
    }

    #[test]
    fn daemons_of_our_own_user_of_root_and_of_the_system_service_are_trusted() {
        for (peer, system, trusted) in [
            (1000, None, true),
            (0, None, true),
            (1001, None, false),
            (997, Some(997), true),
            (1001, Some(997), false),
            (65534, Some(0), false),
        ] {
            assert_eq!(is_trusted(peer, 1000, system), trusted, "{peer} {system:?}");
        }
    }

    #[test]
    fn the_peer_is_the_user_who_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        assert_eq!(peer_of(&stream, &path).unwrap(), rustix::process::getuid().as_raw());
    }
}
