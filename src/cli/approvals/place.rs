//! Where the commands find approvals and grants: in the running daemon, else in the store.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::exit::{NO, SOFTWARE, TEMPFAIL, UNAVAILABLE};
use crate::cli::options::Common;
use crate::cli::output::{Failure, complain};
use crate::cli::{daemon, operator, source};
use crate::policy::OperatorAction;
use crate::store::approvals::{AnswerOutcome, Wish, beside, json};
use crate::store::audit::Journal;
use crate::store::db::Db;
use crate::store::directory::Store;
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// Place of approvals and grants: the daemon or the store.
pub(in crate::cli) enum Place {
    Daemon(daemon::Daemon),
    Store {
        db: Db,
        /// Opened for the first answer.
        journal: Option<Journal>,
    },
    /// There is no store yet, so there are no approvals.
    Nowhere,
}

impl Place {
    /// Connects to the daemon, or opens the state directory without one.
    ///
    /// # Errors
    /// 69 when `--socket` names a daemon that does not answer, 75 for a store that cannot be used.
    pub(in crate::cli) fn find(common: &Common) -> Result<Self, Failure> {
        match daemon::connect(common, "admin", None) {
            Ok(daemon) => return Ok(Self::Daemon(daemon)),
            Err(failure) if common.socket.is_some() => return Err(failure.into()),
            Err(_) => {}
        }
        let store = source::existing_store(common)?.filter(Store::has_db);
        let Some(store) = store else { return Ok(Self::Nowhere) };
        let db = store.db().map_err(|error| Failure::new(TEMPFAIL, error))?;
        Ok(Self::Store { db, journal: None })
    }

    /// Reads a list of objects.
    pub(in crate::cli) fn list(&mut self, method: &str, name: &str) -> Result<Vec<RawObject>, Failure> {
        let failed = |error| Failure::new(TEMPFAIL, error);
        let answer = match self {
            Self::Daemon(daemon) => daemon.ask(method, None)?,
            Self::Nowhere => return Ok(Vec::new()),
            Self::Store { db, .. } => {
                let answer = match name {
                    // Blocks are in the memory of a gateway.
                    "blocks" | "denials" => json::list(name, std::iter::empty()),
                    // Grants have no sealed columns.
                    "grants" => json::list(name, db.grants().run_now().map_err(failed)?.iter().map(json::grant)),
                    _ => beside::listed(db, name).map_err(failed)?,
                };
                static TOLD: AtomicBool = AtomicBool::new(false);
                if db.has_lost() && !TOLD.swap(true, Ordering::Relaxed) {
                    complain(
                        "some open approvals are left out: the key that seals them ([secrets] key) is missing; set it \
                         as the daemon has it",
                    );
                }
                RawObject::parse(&answer).map_err(|error| Failure::new(UNAVAILABLE, error))?
            }
        };
        Ok(answer.objects(name))
    }

    /// Ends a block of the daemon.
    pub(in crate::cli) fn unblock(&mut self, id: &str) -> Result<RawObject, Failure> {
        let Self::Daemon(daemon) = self else {
            return Err(Failure::new(
                NO,
                "no daemon answers; a block of a `headend stdio` without one ends with it, or by itself",
            ));
        };
        let params = RawObject::of_strings(&[("id", id)]);
        daemon.ask_as_operator("approvals.unblock", Some(&params.encode().text()))
    }

    /// An open approval with everything that a person is shown.
    pub(in crate::cli) fn show(&mut self, id: &str) -> Result<RawObject, Failure> {
        let found = match self {
            Self::Daemon(daemon) => {
                let params = RawObject::of_strings(&[("id", id)]);
                return daemon.ask("approvals.show", Some(&params.encode().text()));
            }
            Self::Store { db, .. } => beside::show(db, id).map_err(|error| Failure::new(TEMPFAIL, error))?,
            Self::Nowhere => None,
        };
        let found =
            found.ok_or_else(|| Failure::new(NO, "no open approval with that id; it was answered or has expired"))?;
        RawObject::parse(&found).map_err(|error| Failure::new(UNAVAILABLE, error))
    }

    /// Whether a command may answer here; a daemon judges that itself.
    pub(super) fn permit(&self, common: &Common) -> Result<(), Failure> {
        match self {
            Self::Store { db, .. } => operator::permit(common, db),
            Self::Daemon(_) | Self::Nowhere => Ok(()),
        }
    }

    /// Answers an approval; with a digest only as it was shown.
    pub(super) fn answer(
        &mut self,
        common: &Common,
        id: &str,
        shown: Option<Digest>,
        wish: &Wish,
    ) -> Result<AnswerOutcome, Failure> {
        match self {
            Self::Daemon(daemon) => {
                let mut params = RawObject::default();
                params.set("id", RawJson::string(id));
                params.set("answer", RawJson::string(&wish.to_string()));
                if let Some(shown) = shown {
                    params.set("digest", RawJson::string(&shown.hex()));
                }
                let answer = daemon.ask_as_operator("approvals.answer", Some(&params.encode().text()))?;
                Ok(AnswerOutcome {
                    word: answer.string("outcome").unwrap_or_default(),
                    is_late: answer.is_true("late"),
                })
            }
            Self::Store { db, journal } => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let runtime = runtime.map_err(|error| Failure::new(SOFTWARE, error))?;
                let unrecorded = |why| Failure::new(TEMPFAIL, format!("not recorded: {why}"));
                let opened = match journal.take() {
                    Some(journal) => Ok(journal),
                    None => Journal::open(db, &source::audit(common)).map_err(unrecorded),
                };
                // A denial takes effect whatever becomes of its record.
                let (action, opened) = match wish {
                    Wish::Deny => (OperatorAction::Deny, opened),
                    Wish::Once | Wish::Session | Wish::For(_) | Wish::Always | Wish::Below(_) => {
                        (OperatorAction::Approve, Ok(opened?))
                    }
                };
                let answered = runtime.block_on(beside::answer(db, id, shown, wish.clone(), &operator::user()));
                let outcome = answered.as_ref().map(|outcome| &*outcome.word).map_err(String::as_str);
                let record = operator::record(action, Some(id), outcome);
                let written = opened.and_then(|open| journal.insert(open).write([record]).map_err(unrecorded));
                let outcome = answered.map_err(|why| Failure::new(NO, foreign::line(&why)))?;
                written.map(|()| outcome)
            }
            Self::Nowhere => Err(Failure::new(NO, "no approval is open")),
        }
    }
}
