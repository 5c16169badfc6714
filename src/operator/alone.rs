//! Carries out an operator's requests on a state directory without a daemon, for the command line,
//! and writes the audit records. Everything here blocks the thread.
#![expect(clippy::wildcard_enum_match_arm, reason = "all other requests need a daemon")]

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::request::{AnswerParams, Request, RequestEffect, RevokeParams};
use super::tokens::TokensView;
use super::views::{ApprovalsView, EndedReviewView, GrantsView, OperatorView, RevokedGrants};
use super::{OperatorRefusal, Person, pins, rekey, tokens};
use crate::base::local_time::local_minute;
use crate::config::source::secret::Secret;
use crate::config::{self, OperatorAccess, SecretSettings};
use crate::policy::consent::GrantView;
use crate::policy::{AuditEntry, OperatorAction};
use crate::store::approvals::beside;
use crate::store::audit::{CommandChain, action};
use crate::store::db::{Db, DbError};
use crate::store::pins::PinRegistry;
use crate::store::restored::NOTHING_DUE;
use crate::store::seal::{KeySource, key_id};

pub(crate) use crate::store::db::wait_until_closed;
pub(crate) use crate::store::directory::StateDir;
pub(crate) use crate::store::disk::lock::StateLock;

/// Opens a state directory, or creates it. `keys` are the configured keys of sealed values; with
/// `make`, a missing key is generated.
///
/// # Errors
/// If the directory or the key cannot be used.
pub(crate) fn open_state(dir: PathBuf, keys: SecretSettings, make: bool) -> Result<StateDir, OperatorRefusal> {
    let SecretSettings { key, previous_key } = keys;
    StateDir::open(dir, KeySource { given: key, previous: previous_key, make }).map_err(OperatorRefusal::unusable)
}

/// Returns the id that sealed values of this key have.
pub(crate) fn id_of_key(key: &Secret) -> Option<String> {
    key_id(key)
}

/// The operator's service for a state directory without a daemon. If the directory has no database
/// yet, lists are empty and most actions are refused.
pub(crate) struct OfflineOperator {
    store: Option<OfflineStore>,
    person: Person,
}

/// An opened database, with everything that its requests need.
struct OfflineStore {
    db: Db,
    runtime: tokio::runtime::Runtime,
    /// The settings of the audit log, from the command's configuration.
    audit: config::AuditSettings,
    /// The audit log; opened by the first action.
    journal: Option<CommandChain>,
    /// The pins; opened by the first request that needs them.
    pins: Option<PinRegistry>,
    /// Audit records of pin changes, not yet written to the log.
    news: Arc<Mutex<Vec<AuditEntry>>>,
}

impl OfflineOperator {
    /// Opens the database of the state directory, if it has one.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub(crate) fn open(store: Option<&StateDir>, audit: config::AuditSettings) -> Result<Self, OperatorRefusal> {
        let open = |store: &StateDir| {
            let db = store.db().map_err(|error| OperatorRefusal::of_ended(&error))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = runtime.map_err(OperatorRefusal::unusable)?;
            Ok(OfflineStore { db, runtime, audit, journal: None, pins: None, news: Arc::default() })
        };
        let store = store.filter(|store| store.has_db()).map(open).transpose()?;
        Ok(Self { store, person: Person::of_command() })
    }

    /// Returns true if the state directory has a database.
    pub(crate) const fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Returns true if open approvals are left out of the list because the key that seals them is
    /// missing.
    pub(crate) fn has_lost(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.db.has_lost())
    }

    /// Returns the stricter of the command's own setting and the setting that the gateways which
    /// ran last left in the store, which no `--config` changes. Without a store, any operator is
    /// accepted.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn setting(&self, own: OperatorAccess) -> Result<OperatorAccess, OperatorRefusal> {
        let Some(store) = &self.store else { return Ok(OperatorAccess::Any) };
        let kept = store.db.operator().run_now().map_err(OperatorRefusal::unusable)?;
        Ok(own.max(OperatorAccess::of_number(kept)))
    }

    /// Carries out a request, and records its outcome if the request is an action.
    ///
    /// # Errors
    /// If the request is refused or fails, also because it cannot be recorded; or if the action
    /// took effect but its record could not be written.
    pub(crate) fn perform(&mut self, request: &Request) -> Result<OperatorView, OperatorRefusal> {
        let by = &self.person;
        let Some(store) = &mut self.store else { return answer_without_store(request) };
        match request.effect() {
            RequestEffect::Act(_) if !is_possible(request) => Err(without_daemon()),
            RequestEffect::Act(action) => store.recorded(request, action, by),
            RequestEffect::Look | RequestEffect::Elsewhere => store.look(request),
        }
    }

    /// Records an action that was carried out elsewhere. Without a store, does nothing.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub(crate) fn record(
        &mut self,
        action: OperatorAction,
        name: &str,
        outcome: Result<&str, &str>,
    ) -> Result<(), String> {
        let record = action::ended_entry(action, &self.person.recorded_as, Some(name), outcome);
        self.store.as_mut().map_or(Ok(()), |store| store.journal()?.write([record]))
    }
}

/// Answers a request to a state directory without a database.
fn answer_without_store(request: &Request) -> Result<OperatorView, OperatorRefusal> {
    match request {
        Request::Approvals(_) => Ok(OperatorView::Approvals(ApprovalsView::default())),
        Request::Grants(_) => Ok(OperatorView::Grants(GrantsView::default())),
        Request::Revoke(_) => Ok(OperatorView::Revoked(RevokedGrants { revoked: 0 })),
        Request::Review(_) => Err(OperatorRefusal::refused(NOTHING_DUE)),
        Request::Tokens(_) => Ok(OperatorView::Tokens(TokensView::default())),
        Request::AddToken(_) => Err(OperatorRefusal::refused("there is no store yet; start the daemon first")),
        Request::RevokeToken(params) => Err(tokens::no_such_token(&params.name)),
        Request::Approval(_) => Err(unknown()),
        Request::Answer(_) => Err(OperatorRefusal::refused("no approval is open")),
        Request::Rekey(_) => Err(OperatorRefusal::refused("there is no store yet, so nothing is sealed")),
        _ => Err(without_daemon()),
    }
}

/// Returns true for an action that needs no daemon.
const fn is_possible(request: &Request) -> bool {
    matches!(
        request,
        Request::AddToken(_)
            | Request::Answer(_)
            | Request::ApprovePins(_)
            | Request::RejectPins(_)
            | Request::Rekey(_)
            | Request::Review(_)
            | Request::Revoke(_)
            | Request::RevokeToken(_)
    )
}

/// Returns the refusal of a request that only a daemon can carry out.
fn without_daemon() -> OperatorRefusal {
    OperatorRefusal::refused("no daemon answers; a block of a `headend stdio` without one ends with it, or by itself")
}

/// Returns the refusal for an approval that is not open.
fn unknown() -> OperatorRefusal {
    OperatorRefusal::refused("no open approval with that id; it was answered or has expired")
}

impl OfflineStore {
    /// Answers a request that changes nothing.
    fn look(&mut self, request: &Request) -> Result<OperatorView, OperatorRefusal> {
        match request {
            // Blocks are in the memory of a gateway.
            Request::Approvals(_) => {
                let approvals = beside::stored_approvals(&self.db).map_err(OperatorRefusal::unusable)?;
                Ok(OperatorView::Approvals(ApprovalsView { approvals, blocks: Vec::new() }))
            }
            Request::Approval(by_id) => {
                let found = beside::details_of(&self.db, &by_id.id).map_err(OperatorRefusal::unusable)?;
                Ok(OperatorView::Approval(Box::new(found.ok_or_else(unknown)?)))
            }
            // Grants have no sealed columns.
            Request::Grants(_) => {
                let rows = self.db.grants().run_now().map_err(OperatorRefusal::unusable)?;
                let grants = rows.iter().map(GrantView::from).collect();
                Ok(OperatorView::Grants(GrantsView { grants, denials: Vec::new() }))
            }
            Request::Tokens(_) => self.runtime.block_on(tokens::list(&self.db)).map(OperatorView::Tokens),
            Request::Pins(_) => Ok(OperatorView::Pins(pins::list(self.pins()?))),
            Request::Pin(name) => pins::show(self.pins()?, name).map(Box::new).map(OperatorView::Pin),
            Request::PinTexts(items) => Ok(OperatorView::Pins(pins::texts(self.pins()?, items))),
            _ => Err(without_daemon()),
        }
    }

    /// Carries out an action, then writes the audit records of its changes and of the action
    /// itself. If the log cannot be opened, nothing is done, unless the action takes something
    /// back: such an action takes effect even if it cannot be recorded.
    fn recorded(
        &mut self,
        request: &Request,
        action: OperatorAction,
        by: &Person,
    ) -> Result<OperatorView, OperatorRefusal> {
        let opened = self.journal().map(drop);
        if let (Err(why), false) = (&opened, action.is_immediate()) {
            return Err(OperatorRefusal::Unusable(format!("nothing was done: it could not be recorded: {why}")));
        }
        let mut news = Vec::new();
        let outcome = self.act(request, by, &mut news);
        news.append(&mut self.news.lock());
        let told = outcome.as_ref().map_err(ToString::to_string).and_then(|view| view.outcome());
        let told = told.as_deref().map_err(String::as_str);
        news.push(action::ended_entry(action, &by.recorded_as, request.about().as_deref(), told));
        let written = self.journal().and_then(|journal| journal.write(news));
        match (outcome, written) {
            (Ok(_), Err(why)) => {
                let told = told.map(|told| format!("{told}, but ")).unwrap_or_default();
                Err(OperatorRefusal::Unusable(format!("{told}not recorded: {why}")))
            }
            (outcome, _) => outcome,
        }
    }

    /// Carries out an action. Adds the audit records of its changes to `news`, except those of
    /// pins, which the pins report themselves.
    fn act(
        &mut self,
        request: &Request,
        by: &Person,
        news: &mut Vec<AuditEntry>,
    ) -> Result<OperatorView, OperatorRefusal> {
        match request {
            Request::Answer(AnswerParams { id, answer, digest }) => {
                let answered = beside::leave_answer(&self.db, id, *digest, answer.clone(), &by.name);
                self.runtime.block_on(answered).map(OperatorView::Answered).map_err(OperatorRefusal::Refused)
            }
            Request::Revoke(params) => self.revoke(params, by, news),
            // The command compares the name with its own configuration.
            Request::AddToken(params) => {
                self.runtime.block_on(tokens::add(&self.db, params, false)).map(OperatorView::TokenAdded)
            }
            Request::RevokeToken(params) => {
                self.runtime.block_on(tokens::revoke(&self.db, params)).map(OperatorView::TokenRevoked)
            }
            Request::Rekey(params) => self.runtime.block_on(rekey::rekey(&self.db, params)).map(OperatorView::Rekeyed),
            Request::Review(_) => {
                let ended = self.db.end_restore_review().run_now().map_err(OperatorRefusal::unusable)?;
                let time = ended.ok_or_else(|| OperatorRefusal::refused(NOTHING_DUE))?;
                Ok(OperatorView::Reviewed(EndedReviewView {
                    outcome: format!("reviewed the backup of {}", local_minute(time)),
                }))
            }
            Request::ApprovePins(params) | Request::RejectPins(params) => {
                let approve = matches!(request, Request::ApprovePins(_));
                let pins = self.pins()?.clone();
                self.runtime.block_on(pins::decide(&pins, approve, params, by)).map(OperatorView::from)
            }
            _ => Err(without_daemon()),
        }
    }

    /// Revokes grants and adds their records to `news`. Other processes notice within two seconds.
    fn revoke(
        &self,
        params: &RevokeParams,
        by: &Person,
        news: &mut Vec<AuditEntry>,
    ) -> Result<OperatorView, OperatorRefusal> {
        let ended = beside::revoke_stored(&self.db, params.checked()?, &by.name).map_err(OperatorRefusal::unusable)?;
        let revoked = ended.len();
        news.extend(ended);
        Ok(OperatorView::Revoked(RevokedGrants { revoked }))
    }

    /// Returns the audit log, which the first call opens.
    fn journal(&mut self) -> Result<&CommandChain, String> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => CommandChain::open(&self.db, &self.audit)?,
        };
        Ok(self.journal.insert(journal))
    }

    /// Returns the pins, which the first call loads.
    fn pins(&mut self) -> Result<&PinRegistry, OperatorRefusal> {
        let pins = match self.pins.take() {
            Some(pins) => pins,
            None => self.open_pins().map_err(OperatorRefusal::unusable)?,
        };
        Ok(self.pins.insert(pins))
    }

    /// Loads the pins and collects the audit records of their changes in `news`.
    fn open_pins(&self) -> Result<PinRegistry, DbError> {
        let pins = PinRegistry::open(self.db.clone())?;
        let told = Arc::clone(&self.news);
        pins.on_change(Box::new(move |news| told.lock().extend(news.entries())));
        Ok(pins)
    }
}
