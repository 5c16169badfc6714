//! Sends the operator's requests of a command to the running daemon, or performs them on the store
//! if no daemon answers.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;

use super::daemon::{self, DaemonConnection, DaemonUnavailable, unreadable_answer};
use super::source;
use crate::cli::exit::{NO, SOFTWARE};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain};
use crate::cli::words::terminal;
use crate::config::OperatorAccess;
use crate::daemon::admin::generate_code;
use crate::operator::NO_COMMAND;
use crate::operator::alone::OfflineOperator;
use crate::operator::request::Request;

/// The daemon, or the store if no daemon answers.
pub(in crate::cli) struct OperatorClient {
    common: CommonOptions,
    to: OperatorTransport,
}

enum OperatorTransport {
    Daemon(Box<DaemonConnection>),
    Store {
        alone: Box<OfflineOperator>,
        /// True once a person has proved to be at the terminal, or if the setting needs no proof.
        is_permitted: bool,
        /// The reason why no daemon is used.
        why: DaemonUnavailable,
    },
}

impl OperatorClient {
    /// Connects to the daemon, or opens the state directory if no daemon can be used.
    ///
    /// # Errors
    /// 69 if `--socket` names a daemon that cannot be used, 75 for a store that cannot be used.
    pub(in crate::cli) fn find(common: &CommonOptions) -> Result<Self, CommandFailure> {
        let to = match daemon::connect(common, "admin", None) {
            Ok(daemon) => OperatorTransport::Daemon(Box::new(daemon)),
            Err(failure) if common.socket.is_some() => return Err(failure.into()),
            Err(why) => OperatorTransport::Store { alone: Box::new(open_store(common)?), is_permitted: false, why },
        };
        Ok(Self { common: common.clone(), to })
    }

    /// Finds a daemon or a store as [`Self::find`] does, and fails if there is no store either.
    ///
    /// # Errors
    /// As [`Self::find`], and 69 if there is neither a daemon nor a store.
    pub(in crate::cli) fn find_something(common: &CommonOptions) -> Result<Self, CommandFailure> {
        let found = Self::find(common)?;
        match found.to {
            OperatorTransport::Store { alone, why, .. } if !alone.has_store() => Err(why.into()),
            to @ (OperatorTransport::Daemon(_) | OperatorTransport::Store { .. }) => Ok(Self { to, ..found }),
        }
    }

    /// Returns true if requests are performed on the store.
    pub(in crate::cli) const fn is_without_daemon(&self) -> bool {
        matches!(self.to, OperatorTransport::Store { .. })
    }

    /// Performs a request and returns the answer. On the store, a guarded request first asks for a
    /// code if the setting needs one.
    ///
    /// # Errors
    /// 1 if the request is refused, 69 if the connection to the daemon breaks, 75 if the store
    /// cannot be used.
    pub(in crate::cli) fn ask<V: DeserializeOwned>(&mut self, request: &Request) -> Result<V, CommandFailure> {
        let (alone, is_permitted) = match &mut self.to {
            OperatorTransport::Daemon(daemon) => return daemon.ask(request),
            OperatorTransport::Store { alone, is_permitted, .. } => (alone, is_permitted),
        };
        if request.is_guarded() && !*is_permitted {
            check_permission(&self.common, alone)?;
            *is_permitted = true;
        }
        let view = alone.perform(request).map_err(CommandFailure::from)?;
        static TOLD: AtomicBool = AtomicBool::new(false);
        if alone.has_lost() && !TOLD.swap(true, Ordering::Relaxed) {
            complain(
                "some open approvals are left out: the key that seals them ([secrets] key) is missing; set it \
                 as the daemon has it",
            );
        }
        let json = view.json().map_err(|error| CommandFailure::new(SOFTWARE, error))?;
        serde_json::from_slice(json.bytes()).map_err(unreadable_answer)
    }
}

/// Opens the state directory for a command without a daemon.
///
/// # Errors
/// 75 if the state directory cannot be used.
pub(in crate::cli) fn open_store(common: &CommonOptions) -> Result<OfflineOperator, CommandFailure> {
    let store = source::open_existing_store(common)?;
    OfflineOperator::open(store.as_ref(), source::audit(common)).map_err(CommandFailure::from)
}

/// Checks whether this command may answer approvals and decide pins, by `[policy.consent]
/// operator`. May ask for a code on the terminal.
///
/// # Errors
/// 1 if no command may, or the code was wrong; 75 if the store cannot be read.
fn check_permission(common: &CommonOptions, alone: &OfflineOperator) -> Result<(), CommandFailure> {
    let own = source::load_quietly(common).map_or(OperatorAccess::Any, |config| config.consent.operator);
    match alone.setting(own).map_err(CommandFailure::from)? {
        OperatorAccess::Any => Ok(()),
        OperatorAccess::Terminal => {
            let code = generate_code();
            let typed = terminal::code(&format!("type {code} to answer: "))?;
            if typed.eq_ignore_ascii_case(&code) {
                return Ok(());
            }
            Err(CommandFailure::new(NO, "that is not the code that the terminal shows"))
        }
        OperatorAccess::None => Err(CommandFailure::new(NO, NO_COMMAND)),
    }
}
