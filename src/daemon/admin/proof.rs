//! Proves that a person is at the terminal of an admin connection: the daemon writes a code to that
//! terminal, and the person types it into the command.
//!
//! The daemon looks up the terminal of the connected process, so a program without a terminal gets
//! no code, and a program that cannot read the terminal's screen does not learn it. The proof does
//! not stop a program that creates a terminal of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use data_encoding::BASE32_NOPAD;
use rustix::fs::{Mode, OFlags, fstat, major, minor};

use crate::base::clock;
use crate::config::OperatorAccess;
use crate::operator::request::Request;
use crate::operator::views::{ChallengeView, OperatorView};
use crate::operator::{NO_COMMAND, OperatorRefusal};
use crate::wire::foreign;

/// The only guarded method that is allowed under `operator = "none"`, with a code: a person must be
/// able to open the console.
const LINK: &str = "console.link";
/// Wrong codes after which the connection is shown no further code.
const MAX_WRONG: u8 = 3;
/// Longest part of the peer's command line that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// The proof of one connection: the code that was shown last, and whether it was typed.
#[derive(Debug)]
pub(crate) struct PeerProof {
    /// Process id of the peer.
    peer: Option<i32>,
    code: Option<String>,
    wrong: u8,
    is_given: bool,
}

impl PeerProof {
    pub(crate) const fn new(peer: Option<i32>) -> Self {
        Self { peer, code: None, wrong: 0, is_given: false }
    }

    /// Returns whether the method needs a code, and if so writes a fresh code to the peer's
    /// terminal.
    pub(super) fn challenge(
        &mut self,
        operator: OperatorAccess,
        method: &str,
    ) -> Result<OperatorView, OperatorRefusal> {
        let is_needed = !self.is_given && operator != OperatorAccess::Any;
        if operator == OperatorAccess::None && method != LINK {
            return Err(OperatorRefusal::refused(NO_COMMAND));
        }
        if is_needed {
            if self.wrong >= MAX_WRONG {
                return Err(OperatorRefusal::refused("too many wrong codes; run the command again"));
            }
            let code = generate_code();
            self.code = None;
            show_code(self.peer, &code).map_err(|why| {
                let text = format!(
                    "[policy.consent] operator = \"{}\" needs a terminal that the daemon can write to: {why}",
                    operator.into_str()
                );
                OperatorRefusal::Refused(text)
            })?;
            self.code = Some(code);
        }
        Ok(OperatorView::Challenged(ChallengeView { needed: is_needed }))
    }

    /// Checks the code that the person typed. Every attempt consumes the code, right or wrong.
    pub(super) fn prove(&mut self, typed: &str) -> Result<OperatorView, OperatorRefusal> {
        let code = self.code.take().ok_or_else(|| OperatorRefusal::refused("no code was shown"))?;
        let typed: String = typed.chars().filter(char::is_ascii_alphanumeric).collect();
        if !typed.eq_ignore_ascii_case(&code) {
            self.wrong = self.wrong.saturating_add(1);
            return Err(OperatorRefusal::refused("that is not the code that the terminal shows"));
        }
        self.is_given = true;
        Ok(OperatorView::Empty {})
    }

    /// Refuses a guarded request if the setting forbids it to all commands, or if it needs a proof
    /// that the connection does not have.
    pub(super) fn check(&self, operator: OperatorAccess, request: &Request) -> Result<(), OperatorRefusal> {
        if !request.is_guarded() {
            return Ok(());
        }
        if operator == OperatorAccess::None && !matches!(request, Request::LinkConsole(_)) {
            return Err(OperatorRefusal::refused(NO_COMMAND));
        }
        if operator == OperatorAccess::Any || self.is_given {
            return Ok(());
        }
        Err(OperatorRefusal::refused(
            "this needs a code that the daemon shows on the terminal; run headend's own command there",
        ))
    }
}

/// Returns a random code of eight letters and digits, with 40 bits of entropy.
pub(crate) fn generate_code() -> String {
    BASE32_NOPAD.encode(&clock::random::<5>()).to_ascii_lowercase()
}

/// Writes the code, with the peer's command line, to the controlling terminal of the process.
fn show_code(peer: Option<i32>, code: &str) -> Result<(), String> {
    let peer = peer.filter(|pid| *pid > 0).ok_or("the process that asks is not known")?;
    let device = terminal_of(peer).ok_or("the process that asks has no controlling terminal")?;
    let path = path_of(device).ok_or("its controlling terminal is of no known kind")?;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}; run it as the daemon's user", path.display());
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| failed(&error))?;
    let found = fstat(&opened).map_err(|error| failed(&error))?.st_rdev;
    if (major(found), minor(found)) != device {
        return Err(failed(&"another device"));
    }
    let (first, second) = code.split_at(code.len() / 2);
    let text = format!(
        "\r\nheadend: this command wants to answer for you: {}\r\nIf it is yours, type {first}-{second} below. If not, type \
         nothing and stop it.\r\n",
        command_of(peer)
    );
    File::from(opened).write_all(text.as_bytes()).map_err(|error| failed(&error))
}

/// Returns the major and minor device number of a process's controlling terminal.
fn terminal_of(pid: i32) -> Option<(u32, u32)> {
    let stat = read(&PathBuf::from(format!("/proc/{pid}/stat")))?;
    // The program's name is in parentheses and may contain some itself. Source: proc_pid_stat(5).
    let (_, fields) = stat.rsplit_once(')')?;
    let number: u32 = fields.split_whitespace().nth(4)?.parse::<i32>().ok()?.cast_unsigned();
    (number != 0).then_some(((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xfff00)))
}

/// Returns the path of a terminal by its device number. Source: Linux,
/// Documentation/admin-guide/devices.txt.
fn path_of((major, minor): (u32, u32)) -> Option<PathBuf> {
    match (major, minor) {
        (136..=143, _) => Some(PathBuf::from(format!("/dev/pts/{}", (major - 136) * 256 + minor))),
        (4, 0..64) => Some(PathBuf::from(format!("/dev/tty{minor}"))),
        (4, 64..) => Some(PathBuf::from(format!("/dev/ttyS{}", minor - 64))),
        _ => None,
    }
}

/// Returns the command line of a process, shortened and with hidden characters escaped; empty if it
/// cannot be read.
fn command_of(pid: i32) -> String {
    let words = read(&PathBuf::from(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
    let line = words.trim_end_matches('\0').replace('\0', " ");
    foreign::line(&line.chars().take(MAX_SHOWN).collect::<String>()).into_owned()
}

/// Reads the first 4096 bytes of a file as text; `None` if it cannot be read.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(4096).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::raw::RawJson;

    #[test]
    fn what_answers_or_approves_needs_the_proof() {
        let mut proof = PeerProof::new(None);
        let read = |method: &str| {
            let params = RawJson::trusted(r#"{"id":"a","answer":"once"}"#);
            Request::parse(method, &params).unwrap().unwrap()
        };
        for method in ["approvals.answer", "approvals.unblock", "pins.approve", "pins.reject", LINK] {
            assert!(proof.check(OperatorAccess::Any, &read(method)).is_ok(), "{method}");
            assert!(proof.check(OperatorAccess::Terminal, &read(method)).is_err(), "{method}");
            assert!(proof.check(OperatorAccess::None, &read(method)).is_err(), "{method}");
        }
        assert!(proof.check(OperatorAccess::None, &read("approvals.list")).is_ok(), "looking needs none");
        assert!(proof.challenge(OperatorAccess::Terminal, "pins.approve").is_err(), "nobody knows whose terminal");
        let needed = proof.challenge(OperatorAccess::Any, "pins.approve");
        assert!(matches!(needed, Ok(OperatorView::Challenged(ChallengeView { needed: false }))));
        assert!(proof.prove("").is_err(), "no code was shown");
        proof.code = Some("abcdefgh".to_owned());
        assert!(proof.prove("abcdefgx").is_err() && proof.prove("abcdefgh").is_err(), "a code counts once");
        proof.code = Some("abcdefgh".to_owned());
        assert!(proof.prove(" ABCD-efgh\n").is_ok());
        assert!(proof.check(OperatorAccess::Terminal, &read("pins.approve")).is_ok());
        assert!(proof.check(OperatorAccess::None, &read(LINK)).is_ok());
        assert!(proof.check(OperatorAccess::None, &read("pins.approve")).is_err());
    }

    #[test]
    fn terminals_are_known_by_their_numbers() {
        for (device, want) in [
            ((136, 3), Some("/dev/pts/3")),
            ((137, 1), Some("/dev/pts/257")),
            ((136, 70_000), Some("/dev/pts/70000")),
            ((4, 1), Some("/dev/tty1")),
            ((4, 65), Some("/dev/ttyS1")),
            ((5, 0), None),
        ] {
            assert_eq!(path_of(device).as_deref(), want.map(Path::new), "{device:?}");
        }
        assert_eq!(terminal_of(i32::MAX), None);
    }
}
