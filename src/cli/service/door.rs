//! Connects `headend stdio` to its daemon: decides which daemon fits, how long to wait for it, and
//! what serves the host if there is none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::cli::exit::{SOFTWARE, UNAVAILABLE};
use crate::cli::reach::daemon;
use crate::cli::reach::daemon::{DaemonConnection, DaemonUnavailable};
use crate::cli::reach::source::environment;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config::{ConfigLocation, locate};

/// Time between two attempts to find a daemon that went away.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Time between two attempts while a stand-in serves: each attempt reads the configuration.
const SELDOM: Duration = Duration::from_secs(1);
/// Longest wait for a daemon that starts or ends, at the start of `headend stdio`. Hosts give a
/// server ten seconds to start.
const START_WAIT: Duration = Duration::from_secs(8);

/// The address of the daemon, and the configuration that it must have.
#[derive(Clone, Debug)]
pub(in crate::cli) struct DaemonTarget {
    pub(in crate::cli) common: CommonOptions,
    pub(in crate::cli) profile: Option<String>,
    /// The configuration file that the daemon must serve; `None` if any will do.
    pub(in crate::cli) config: Option<PathBuf>,
}

/// The reason why no daemon is attached.
#[derive(Debug)]
pub(in crate::cli) enum AttachError {
    Away(DaemonUnavailable),
    /// A daemon answers, but runs with another configuration file than this command; `text` says
    /// so.
    Other {
        text: String,
    },
}

/// The server that answers the lines of a host on stdin.
#[derive(Debug)]
pub(in crate::cli) enum LineServer<D> {
    /// The daemon, with the connection to it.
    Attach(D),
    /// A gateway in this process that starts no upstreams, until the daemon answers.
    StandIn,
    /// The whole gateway in this process. `told` is a message about a daemon that cannot be used.
    Alone { told: Option<String> },
}

impl DaemonTarget {
    /// Returns the target that a command line names. Any daemon fits if no configuration was named
    /// and the default file does not exist, or if a socket was named and no configuration.
    pub(in crate::cli) fn of(common: &CommonOptions, profile: Option<String>) -> Self {
        let named = common.config.is_some() || common.socket.is_none();
        let config = match locate(common.config.as_deref(), &environment) {
            ConfigLocation::File(path) if named => Some(path),
            ConfigLocation::File(_) | ConfigLocation::Embedded => None,
        };
        Self { common: common.clone(), profile, config }
    }

    /// Tries once to connect to the daemon, and compares its configuration with the one that it
    /// must have. Blocks.
    ///
    /// # Errors
    /// [`AttachError`].
    pub(in crate::cli) fn knock(&self) -> Result<DaemonConnection, AttachError> {
        let daemon = daemon::connect(&self.common, "mcp", self.profile.as_deref()).map_err(AttachError::Away)?;
        let theirs = daemon.hello.config.as_ref().map(PathBuf::from);
        match &self.config {
            Some(ours) if !theirs.as_ref().is_some_and(|theirs| is_same(theirs, ours)) => {
                Err(AttachError::Other { text: difference(&daemon, ours) })
            }
            Some(_) | None => Ok(daemon),
        }
    }

    /// Decides which server the host gets. Blocks for as long as it waits: the shorter of
    /// [`START_WAIT`] and `patience` at most, and one attempt more.
    ///
    /// A daemon that answers is attached. If none answers although `is_held` says that a daemon has
    /// the state directory, attempts are repeated until the end of the wait. Without a daemon, a
    /// stand-in serves if the socket was named or the directory is still held, else the whole
    /// gateway in this process. That gateway also serves if the daemon has another configuration
    /// and no socket was named.
    ///
    /// # Errors
    /// 69 if the daemon at a named socket, or the daemon that has the state directory, refuses, and
    /// if the daemon at a named socket has another configuration.
    pub(in crate::cli) fn choose(
        &self,
        is_held: impl Fn() -> bool,
        patience: Duration,
    ) -> Result<LineServer<DaemonConnection>, CommandFailure> {
        // The wait includes the time of a daemon that accepts the connection and stays silent.
        let until = Instant::now() + START_WAIT.min(patience);
        let is_over = || Instant::now() >= until;
        let pause = || std::thread::sleep(LOOK_AGAIN);
        choose(self.common.socket.is_some(), is_over, || self.knock(), is_held, pause)
    }

    /// Tries to connect until the daemon answers, for as long as `patience`; without one, for ever.
    ///
    /// # Errors
    /// 69 when the time is over; 70 when no attempt can be made.
    pub(in crate::cli) async fn wait(self, patience: Option<Duration>) -> Result<DaemonConnection, CommandFailure> {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            tokio::time::sleep(if until.is_some() { LOOK_AGAIN } else { SELDOM }).await;
            let door = self.clone();
            let knocked = tokio::task::spawn_blocking(move || door.knock()).await;
            let failure = match knocked {
                Ok(Ok(daemon)) => return Ok(daemon),
                Ok(Err(AttachError::Away(failure))) => failure.into(),
                Ok(Err(AttachError::Other { .. })) => {
                    let text = "the daemon that answers now serves another configuration file";
                    CommandFailure::new(UNAVAILABLE, text)
                }
                Err(error) => CommandFailure::new(SOFTWARE, format!("look for the daemon: {error}")),
            };
            if until.is_some_and(|until| Instant::now() >= until) {
                let text = format!("the daemon went away and did not come back in time: {}", failure.text);
                return Err(CommandFailure::new(failure.code, text));
            }
        }
    }
}

/// Decides as [`DaemonTarget::choose`] does. `knock` tries to connect, `pause` waits for the next
/// attempt, `is_over` tells the end of the wait, `is_named` whether the socket was named.
fn choose<D>(
    is_named: bool,
    is_over: impl Fn() -> bool,
    mut knock: impl FnMut() -> Result<D, AttachError>,
    is_held: impl Fn() -> bool,
    mut pause: impl FnMut(),
) -> Result<LineServer<D>, CommandFailure> {
    let mut has_waited = false;
    loop {
        let closed = match knock() {
            Ok(daemon) => return Ok(LineServer::Attach(daemon)),
            Err(AttachError::Other { text }) if is_named => return Err(CommandFailure::new(UNAVAILABLE, text)),
            Err(AttachError::Other { text }) => return Ok(LineServer::Alone { told: Some(text) }),
            Err(AttachError::Away(closed)) => closed,
        };
        // A daemon that restarts has the lock again by the end of the wait.
        if !is_over() && (has_waited || is_held()) {
            has_waited = true;
            pause();
            continue;
        }
        let is_free = !is_named && !is_held();
        return match closed {
            DaemonUnavailable::Silent(_) if is_free => Ok(LineServer::Alone { told: None }),
            DaemonUnavailable::Refused(failure) if is_free => Ok(LineServer::Alone { told: Some(failure.text) }),
            DaemonUnavailable::Silent(_) => Ok(LineServer::StandIn),
            DaemonUnavailable::Refused(failure) => Err(failure),
        };
    }
}

/// Returns true if two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Builds the message that the daemon has another configuration, and how a host reaches that
/// daemon.
fn difference(daemon: &DaemonConnection, ours: &Path) -> String {
    let theirs = daemon.hello.config.as_deref();
    let socket = daemon.socket.display();
    let state =
        daemon.hello.state.as_ref().map(|state| format!(" and the state directory {state}")).unwrap_or_default();
    let option = theirs.map(|theirs| format!("--config {theirs} ")).unwrap_or_default();
    format!(
        "the daemon at {socket} runs with {}{state}, and this command with {}; to use that daemon, write \
         `headend stdio {option}--socket {socket}`",
        theirs.unwrap_or("no configuration file"),
        ours.display()
    )
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn silent() -> Result<(), AttachError> {
        Err(AttachError::Away(DaemonUnavailable::Silent(CommandFailure::new(UNAVAILABLE, "silent"))))
    }

    fn refused() -> Result<(), AttachError> {
        Err(AttachError::Away(DaemonUnavailable::Refused(CommandFailure::new(UNAVAILABLE, "refused"))))
    }

    fn other() -> Result<(), AttachError> {
        Err(AttachError::Other { text: "other".to_owned() })
    }

    /// Chooses with these answers, the last of which repeats, while the lock is held for `held`
    /// pauses. Returns the choice and the number of pauses.
    fn chosen(
        is_named: bool,
        answers: &[fn() -> Result<(), AttachError>],
        held: usize,
    ) -> (Result<LineServer<()>, CommandFailure>, usize) {
        let (pauses, answers) = (Cell::new(0), RefCell::new(answers.iter().peekable()));
        let knock = || {
            let mut answers = answers.borrow_mut();
            let answer = answers.next().unwrap();
            if answers.peek().is_none() {
                *answers = std::slice::from_ref(answer).iter().peekable();
            }
            answer()
        };
        let chosen =
            choose(is_named, || pauses.get() == 4, knock, || pauses.get() < held, || pauses.set(pauses.get() + 1));
        (chosen, pauses.get())
    }

    #[test]
    fn a_daemon_that_answers_is_attached_to_at_once() {
        for named in [false, true] {
            assert!(matches!(chosen(named, &[|| Ok(())], 9), (Ok(LineServer::Attach(())), 0)), "{named}");
        }
    }

    #[test]
    fn a_free_state_directory_is_served_alone_at_once() {
        assert!(matches!(chosen(false, &[silent], 0), (Ok(LineServer::Alone { told: None }), 0)));
        assert!(matches!(chosen(false, &[refused], 0), (Ok(LineServer::Alone { told: Some(_) }), 0)));
    }

    #[test]
    fn a_daemon_that_restarts_is_waited_for_also_while_the_lock_is_free_in_between() {
        let answers: &[fn() -> Result<(), AttachError>] = &[silent, silent, silent, || Ok(())];
        assert!(matches!(chosen(false, answers, 99), (Ok(LineServer::Attach(())), 3)));
        assert!(matches!(chosen(false, answers, 1), (Ok(LineServer::Attach(())), 3)));
    }

    #[test]
    fn a_daemon_that_has_the_lock_and_stays_silent_gets_a_stand_in_and_one_that_refuses_an_error() {
        assert!(matches!(chosen(false, &[silent], 99), (Ok(LineServer::StandIn), 4)));
        assert!(matches!(chosen(false, &[refused], 99), (Err(failure), 4) if failure.text == "refused"));
        assert!(
            matches!(chosen(false, &[silent], 2), (Ok(LineServer::Alone { told: None }), 4)),
            "it has ended for good"
        );
    }

    #[test]
    fn a_socket_that_is_named_never_starts_servers() {
        assert!(matches!(chosen(true, &[silent], 0), (Ok(LineServer::StandIn), 0)), "nothing to wait for");
        assert!(matches!(chosen(true, &[silent], 99), (Ok(LineServer::StandIn), 4)));
        assert!(matches!(chosen(true, &[refused], 0), (Err(failure), 0) if failure.text == "refused"));
        assert!(matches!(chosen(true, &[other], 0), (Err(failure), 0) if failure.text == "other"));
    }

    #[test]
    fn a_daemon_with_another_configuration_is_told_about() {
        assert!(
            matches!(chosen(false, &[other], 99), (Ok(LineServer::Alone { told: Some(text) }), 0) if text == "other")
        );
    }

    #[test]
    fn any_daemon_will_do_where_nobody_named_a_configuration() {
        let common = CommonOptions { socket: Some("/x.sock".into()), ..CommonOptions::default() };
        assert_eq!(DaemonTarget::of(&common, None).config, None);
        let common = CommonOptions { config: Some("/x.toml".into()), ..common };
        assert_eq!(DaemonTarget::of(&common, None).config, Some("/x.toml".into()));
    }
}
