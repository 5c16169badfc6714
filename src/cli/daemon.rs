//! The command line's side of the admin socket.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, User};
use serde::de::DeserializeOwned;

use super::exit::{NO, UNAVAILABLE};
use super::options::Common;
use super::output::Failure;
use super::source::{self, environment};
use super::terminal;
use crate::config::state_dir;
use crate::daemon::admin::{Hello, hello_line, published_socket};
use crate::operator::request::{ChallengeParams, ProveParams, Request};
use crate::operator::views::Challenged;
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

/// A daemon that is silent for so long hangs: by default a call takes 600 s at most.
const PATIENCE: Duration = Duration::from_secs(700);

/// The runtime directory of the system service.
const SYSTEM: &str = "/run/headend";

/// Why no daemon can be talked to.
#[derive(Debug)]
pub(super) enum NoDaemon {
    /// None answers.
    Silent(Failure),
    /// One answers, and cannot be used.
    Refused(Failure),
}

impl From<NoDaemon> for Failure {
    fn from((NoDaemon::Silent(failure) | NoDaemon::Refused(failure)): NoDaemon) -> Self {
        failure
    }
}

/// The sockets to try, most specific first: the one that is named, or else every place at which a
/// daemon of this user or of the system may have one.
pub(super) fn candidates(common: &Common) -> Vec<PathBuf> {
    if let Some(path) = &common.socket {
        return vec![path.clone()];
    }
    let configured = source::quiet(common).and_then(|config| config.admin.socket);
    let state = state_dir(&environment);
    let published = state.as_ref().and_then(|dir| published_socket(dir));
    let own = rustix::process::getuid().as_raw();
    places(configured, published, &environment, own, state)
}

/// The order of the search without `--socket`.
fn places(
    configured: Option<PathBuf>,
    published: Option<PathBuf>,
    env: &dyn Fn(&str) -> Option<String>,
    uid: u32,
    state: Option<PathBuf>,
) -> Vec<PathBuf> {
    let variable = |name| env(name).map(PathBuf::from);
    // The value that the variable has in a session; hosts drop it.
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

/// A connection that has said hello.
pub(super) struct Daemon {
    pub(super) stream: UnixStream,
    pub(super) reader: BufReader<UnixStream>,
    pub(super) hello: Hello,
    /// The socket that it answers on.
    pub(super) socket: PathBuf,
    /// The daemon has been shown that a person is here, or wants no proof.
    is_proven: bool,
}

/// Connects to the first daemon that answers.
///
/// # Errors
/// 69 when none does, or when it refuses.
pub(super) fn connect(common: &Common, want: &str, profile: Option<&str>) -> Result<Daemon, NoDaemon> {
    let paths = candidates(common);
    let mut denied = None;
    for path in &paths {
        match UnixStream::connect(path) {
            Ok(stream) => return greet(stream, path, want, profile),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = denied.or(Some(path)),
            Err(_) => {}
        }
    }
    if let Some(path) = denied {
        return Err(NoDaemon::Silent(Failure::new(UNAVAILABLE, no_permission(path))));
    }
    let tried: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let next = if common.socket.is_some() {
        "start that daemon, or leave --socket and $HEADEND_SOCKET out to look for one"
    } else {
        "start one with `headend serve`"
    };
    let text = format!("no daemon answers (tried {}); {next}", tried.join(", "));
    Err(NoDaemon::Silent(Failure::new(UNAVAILABLE, text)))
}

/// Whether a daemon of that user is trusted with what a client says: our own user's, root's, and
/// that of the system service, whose runtime directory belongs to its user.
fn is_trusted(peer: u32, own: u32, system: Option<u32>) -> bool {
    peer == own || peer == 0 || Some(peer) == system
}

/// The user whose process listens on the socket.
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

/// The owner of a socket that this user may not connect to, and the ways in. A folder that this user may not enter hides its socket.
pub(super) fn no_permission(path: &Path) -> String {
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

/// The name of a user, or the number of one that the system does not know.
fn user_name(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Exchanges hellos, if the daemon's user is trusted.
fn greet(stream: UnixStream, path: &Path, want: &str, profile: Option<&str>) -> Result<Daemon, NoDaemon> {
    let told = |text: &dyn std::fmt::Display| Failure::new(UNAVAILABLE, format!("{}: {text}", path.display()));
    let silent = |error: std::io::Error| NoDaemon::Silent(told(&error));
    let peer = peer_of(&stream, path).map_err(silent)?;
    let own = rustix::process::getuid().as_raw();
    let system = std::fs::metadata(SYSTEM).ok().map(|data| data.uid());
    if !is_trusted(peer, own, system) {
        let text = format!(
            "the program that answers there runs as {}, who is neither you, nor root, nor the user of the system service; \
             end it, or name another socket by --socket",
            user_name(peer)
        );
        return Err(NoDaemon::Refused(told(&text)));
    }
    let mut writer = stream.try_clone().map_err(silent)?;
    writer.write_all(hello_line(want, None, profile, None).as_bytes()).map_err(silent)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(silent)?;
    let mut reader = BufReader::new(stream.try_clone().map_err(silent)?);
    let mut line = String::new();
    if reader.read_line(&mut line).map_err(silent)? == 0 {
        return Err(NoDaemon::Silent(told(&"the daemon closed the connection; it may be ending")));
    }
    let strange = |_| NoDaemon::Refused(told(&"no headend daemon answers there"));
    let hello: Hello = serde_json::from_str(&line).map_err(strange)?;
    if let Some(error) = &hello.error {
        return Err(NoDaemon::Refused(told(error)));
    }
    stream.set_read_timeout(None).map_err(silent)?;
    Ok(Daemon { stream, reader, hello, socket: path.to_owned(), is_proven: false })
}

impl Daemon {
    /// Sends a request and reads the answer. The daemon may want a code first that it shows on the
    /// terminal.
    ///
    /// # Errors
    /// 1 when the daemon says no, or the code is wrong; 69 when it goes away.
    pub(super) fn ask<V: DeserializeOwned>(&mut self, request: &Request) -> Result<V, Failure> {
        let no = |(_, text): (i64, String)| Failure::new(NO, text);
        if request.is_guarded() && !self.is_proven {
            let method = request.written().map_err(strange)?.0.to_owned();
            let is_needed = match self.exchange(&Request::Challenge(ChallengeParams { method }))? {
                Ok(answer) => answer.parse::<Challenged>().map_err(strange)?.needed,
                // An older daemon wants no proof.
                Err((code::METHOD_NOT_FOUND, _)) => false,
                Err(refused) => return Err(no(refused)),
            };
            if is_needed {
                let typed = ProveParams { code: terminal::code("code: ")? };
                self.exchange(&Request::Prove(typed))?.map_err(no)?;
            }
            self.is_proven = true;
        }
        serde_json::from_slice(self.exchange(request)?.map_err(no)?.bytes()).map_err(strange)
    }

    /// The daemon's answer: a result, or an error's code and text.
    fn exchange(&mut self, request: &Request) -> Result<Result<RawJson, (i64, String)>, Failure> {
        let gone = |error: std::io::Error| {
            Failure::new(UNAVAILABLE, format!("the connection to the daemon broke: {error}; see the daemon's log"))
        };
        let (method, params) = request.written().map_err(strange)?;
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#) + "\n";
        self.stream.set_read_timeout(Some(PATIENCE)).map_err(gone)?;
        self.stream.write_all(line.as_bytes()).map_err(gone)?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer).map_err(gone)? == 0 {
            return Err(Failure::new(UNAVAILABLE, "the daemon closed the connection; see its log"));
        }
        let answer = RawJson::checked(answer.trim().to_owned()).map_err(strange)?;
        let answer = RawObject::parse(&answer).map_err(strange)?;
        if let Some(error) = answer.get("error") {
            let error = RawObject::parse(error).map_err(strange)?;
            let code = error.get("code").and_then(|code| code.parse().ok()).unwrap_or_default();
            return Ok(Err((code, error.string("message").unwrap_or_default())));
        }
        answer.get("result").cloned().map(Ok).ok_or_else(|| strange("no result"))
    }
}

/// The failure of an answer that cannot be read.
pub(super) fn strange(_: impl std::fmt::Display) -> Failure {
    Failure::new(UNAVAILABLE, "the daemon's answer is malformed; its version may differ")
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
        let common = Common { socket: Some("/x/y.sock".into()), ..Common::default() };
        assert_eq!(shown(&candidates(&common)), ["/x/y.sock"]);
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
