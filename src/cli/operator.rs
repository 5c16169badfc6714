//! Sends the operator's requests of a command to the running daemon, or performs them on the store
//! if no daemon answers.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;

use super::daemon::{self, Daemon, NoDaemon, strange};
use super::exit::{NO, SOFTWARE};
use super::options::Common;
use super::output::{Failure, complain};
use super::{source, terminal};
use crate::config::Operator;
use crate::daemon::admin::fresh_code;
use crate::operator::NO_COMMAND;
use crate::operator::alone::Alone;
use crate::operator::request::Request;

/// The daemon, or the store if no daemon answers.
pub(super) struct OperatorClient {
    common: Common,
    to: Answering,
}

enum Answering {
    Daemon(Box<Daemon>),
    Store {
        alone: Box<Alone>,
        /// True once a person has proved to be at the terminal, or if the setting needs no proof.
        is_permitted: bool,
        /// The reason why no daemon is used.
        why: NoDaemon,
    },
}

impl OperatorClient {
    /// Connects to the daemon, or opens the state directory if no daemon can be used.
    ///
    /// # Errors
    /// 69 if `--socket` names a daemon that cannot be used, 75 for a store that cannot be used.
    pub(super) fn find(common: &Common) -> Result<Self, Failure> {
        let to = match daemon::connect(common, "admin", None) {
            Ok(daemon) => Answering::Daemon(Box::new(daemon)),
            Err(failure) if common.socket.is_some() => return Err(failure.into()),
            Err(why) => Answering::Store { alone: Box::new(alone(common)?), is_permitted: false, why },
        };
        Ok(Self { common: common.clone(), to })
    }

    /// Finds a daemon or a store as [`Self::find`] does, and fails if there is no store either.
    ///
    /// # Errors
    /// As [`Self::find`], and 69 if there is neither a daemon nor a store.
    pub(super) fn find_something(common: &Common) -> Result<Self, Failure> {
        let found = Self::find(common)?;
        match found.to {
            Answering::Store { alone, why, .. } if !alone.has_store() => Err(why.into()),
            to @ (Answering::Daemon(_) | Answering::Store { .. }) => Ok(Self { to, ..found }),
        }
    }

    /// Returns true if requests are performed on the store.
    pub(super) const fn is_without_daemon(&self) -> bool {
        matches!(self.to, Answering::Store { .. })
    }

    /// Performs a request and returns the answer. On the store, a guarded request first asks for a
    /// code if the setting needs one.
    ///
    /// # Errors
    /// 1 if the request is refused, 69 if the connection to the daemon breaks, 75 if the store
    /// cannot be used.
    pub(super) fn ask<V: DeserializeOwned>(&mut self, request: &Request) -> Result<V, Failure> {
        let (alone, is_permitted) = match &mut self.to {
            Answering::Daemon(daemon) => return daemon.ask(request),
            Answering::Store { alone, is_permitted, .. } => (alone, is_permitted),
        };
        if request.is_guarded() && !*is_permitted {
            permit(&self.common, alone)?;
            *is_permitted = true;
        }
        let view = alone.perform(request).map_err(Failure::from)?;
        static TOLD: AtomicBool = AtomicBool::new(false);
        if alone.has_lost() && !TOLD.swap(true, Ordering::Relaxed) {
            complain(
                "some open approvals are left out: the key that seals them ([secrets] key) is missing; set it \
                 as the daemon has it",
            );
        }
        let json = view.json().map_err(|error| Failure::new(SOFTWARE, error))?;
        serde_json::from_slice(json.bytes()).map_err(strange)
    }
}

/// Opens the state directory for a command without a daemon.
///
/// # Errors
/// 75 if the state directory cannot be used.
pub(super) fn alone(common: &Common) -> Result<Alone, Failure> {
    let store = source::existing_store(common)?;
    Alone::open(store.as_ref(), source::audit(common)).map_err(Failure::from)
}

/// Checks whether this command may answer approvals and decide pins, by `[policy.consent]
/// operator`. May ask for a code on the terminal.
///
/// # Errors
/// 1 if no command may, or the code was wrong; 75 if the store cannot be read.
fn permit(common: &Common, alone: &Alone) -> Result<(), Failure> {
    let own = source::quiet(common).map_or(Operator::Any, |config| config.consent.operator);
    match alone.setting(own).map_err(Failure::from)? {
        Operator::Any => Ok(()),
        Operator::Terminal => {
            let code = fresh_code();
            let typed = terminal::code(&format!("type {code} to answer: "))?;
            if typed.eq_ignore_ascii_case(&code) {
                return Ok(());
            }
            Err(Failure::new(NO, "that is not the code that the terminal shows"))
        }
        Operator::None => Err(Failure::new(NO, NO_COMMAND)),
    }
}
