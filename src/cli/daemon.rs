//! The command line's side of the admin socket.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, User};

use super::exit::{NO, UNAVAILABLE};
use super::options::Common;
use super::output::Failure;
use super::{source, terminal};
use crate::daemon::admin::{Hello, hello_line};
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

/// A daemon that is silent for so long hangs: by default a call takes 600 s at most.
const PATIENCE: Duration = Duration::from_secs(700);

/// The sockets to try, most specific first.
pub(super) fn candidates(common: &Common) -> Vec<PathBuf> {
    if let Some(path) = &common.socket {
        return vec![path.clone()];
    }
    let configured = source::quiet(common).and_then(|config| config.admin.socket);
    let mut paths: Vec<PathBuf> = configured.into_iter().collect();
    paths.extend(source::default_sockets());
    paths.push(PathBuf::from("/run/headend/headend.sock"));
    paths
}

/// A connection that has said hello.
pub(super) struct Daemon {
    pub(super) stream: UnixStream,
    pub(super) reader: BufReader<UnixStream>,
    pub(super) hello: Hello,
    /// The daemon has been shown that a person is here, or wants no proof.
    is_proven: bool,
}

/// Connects to the first daemon that answers.
///
/// # Errors
/// 69 when none does, or when it refuses.
pub(super) fn connect(common: &Common, want: &str, profile: Option<&str>) -> Result<Daemon, Failure> {
    let paths = candidates(common);
    let mut denied = None;
    for path in &paths {
        match UnixStream::connect(path) {
            Ok(stream) => {
                return greet(stream, want, profile)
                    .map_err(|text| Failure::new(UNAVAILABLE, format!("{}: {text}", path.display())));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = denied.or(Some(path)),
            Err(_) => {}
        }
    }
    if let Some(path) = denied {
        return Err(Failure::new(UNAVAILABLE, no_permission(path)));
    }
    let tried: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let text = format!("no daemon answers (tried {}); start one with `headend serve`", tried.join(", "));
    Err(Failure::new(UNAVAILABLE, text))
}

/// The owner of a socket that this user may not connect to, and the ways in. A folder that this user may not enter hides its socket.
pub(super) fn no_permission(path: &Path) -> String {
    let found = path.ancestors().find_map(|place| Some((place, std::fs::symlink_metadata(place).ok()?)));
    let user = |uid: u32| {
        let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        known.map_or_else(|| uid.to_string(), |user| user.name)
    };
    let (own, socket) = (user(rustix::process::getuid().as_raw()), path.display());
    let Some((place, data)) = found else { return format!("{socket}: permission denied for user {own}") };
    let owner = user(data.uid());
    let mode = data.permissions().mode() & 0o7777;
    let at = if place == path { String::new() } else { format!("{} ", place.display()) };
    format!(
        "{socket}: permission denied: {at}belongs to user {owner} (mode {mode:04o}), and you are user {own}; run the command as {owner}, \
         or let that daemon admit you: `[admin] users = [{own:?}]` and `group`"
    )
}

fn greet(stream: UnixStream, want: &str, profile: Option<&str>) -> Result<Daemon, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut writer = stream.try_clone().map_err(text)?;
    writer.write_all(hello_line(want, None, profile, None).as_bytes()).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(text)?;
    let mut reader = BufReader::new(stream.try_clone().map_err(text)?);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(text)?;
    let hello: Hello = serde_json::from_str(&line).map_err(|_| "no headend daemon answers there".to_owned())?;
    if let Some(error) = hello.error {
        return Err(error);
    }
    stream.set_read_timeout(None).map_err(text)?;
    Ok(Daemon { stream, reader, hello, is_proven: false })
}

impl Daemon {
    /// One admin request.
    ///
    /// # Errors
    /// 1 when the daemon says no, 69 when it goes away.
    pub(super) fn ask(&mut self, method: &str, params: Option<&str>) -> Result<RawObject, Failure> {
        self.exchange(method, params)?.map_err(|(_, text)| Failure::new(NO, text))
    }

    /// One admin request that answers or approves something: the daemon may want a code first that it shows on the terminal.
    ///
    /// # Errors
    /// 1 when the daemon says no, or the code is wrong; 69 when it goes away.
    pub(super) fn ask_as_operator(&mut self, method: &str, params: Option<&str>) -> Result<RawObject, Failure> {
        if !self.is_proven {
            let about = RawObject::of_strings(&[("for", method)]).encode();
            let is_needed = match self.exchange("operator.challenge", Some(&about.text()))? {
                Ok(answer) => answer.is_true("needed"),
                // An older daemon wants no proof.
                Err((code::METHOD_NOT_FOUND, _)) => false,
                Err((_, text)) => return Err(Failure::new(NO, text)),
            };
            if is_needed {
                let typed = RawObject::of_strings(&[("code", &terminal::code("code: ")?)]).encode();
                self.ask("operator.prove", Some(&typed.text()))?;
            }
            self.is_proven = true;
        }
        self.ask(method, params)
    }

    /// The daemon's answer: a result, or an error's code and text.
    fn exchange(&mut self, method: &str, params: Option<&str>) -> Result<Result<RawObject, (i64, String)>, Failure> {
        let gone = |error: std::io::Error| {
            Failure::new(UNAVAILABLE, format!("the connection to the daemon broke: {error}; see the daemon's log"))
        };
        let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#) + "\n";
        self.stream.set_read_timeout(Some(PATIENCE)).map_err(gone)?;
        self.stream.write_all(line.as_bytes()).map_err(gone)?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer).map_err(gone)? == 0 {
            return Err(Failure::new(UNAVAILABLE, "the daemon closed the connection; see its log"));
        }
        let strange = || Failure::new(UNAVAILABLE, "the daemon's answer is malformed; its version may differ");
        let answer = serde_json::from_str::<&serde_json::value::RawValue>(answer.trim()).map_err(|_| strange())?;
        let answer = RawObject::parse(&RawJson::trusted(answer.get().to_owned())).map_err(|_| strange())?;
        if let Some(error) = answer.get("error") {
            let error = RawObject::parse(error).map_err(|_| strange())?;
            let code = error.get("code").and_then(|code| code.parse().ok()).unwrap_or_default();
            return Ok(Err((code, error.string("message").unwrap_or_default())));
        }
        RawObject::parse(answer.get("result").ok_or_else(strange)?).map(Ok).map_err(|_| strange())
    }
}
