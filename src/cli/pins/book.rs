//! Where the commands find the pins: in the running daemon, else on disk.

use std::sync::Arc;

use parking_lot::Mutex;

use super::shown::Shown;
use crate::cli::exit::{NO, SOFTWARE, TEMPFAIL, UNAVAILABLE};
use crate::cli::options::Common;
use crate::cli::output::Failure;
use crate::cli::{daemon, operator, source};
use crate::policy::{Entry, OperatorAction};
use crate::store::audit::Journal;
use crate::store::db::Db;
use crate::store::directory::Store;
use crate::store::pins::{Decision, PinKind, PinView, Pins};
use crate::wire::digest::Digest;
use crate::wire::raw::{RawJson, RawObject};

/// Pins that one request shows.
const SHOWN_AT_ONCE: usize = 20;
/// Pins that one request decides.
const DECIDED_AT_ONCE: usize = 500;

/// The pins of the running daemon, else those on disk.
pub(super) enum Book {
    Daemon(daemon::Daemon),
    Disk(Disk),
}

/// The pins of a store without a daemon.
pub(super) struct Disk {
    common: Common,
    db: Db,
    pins: Pins,
    runtime: tokio::runtime::Runtime,
    /// Audit records of changes that are not written yet.
    news: Arc<Mutex<Vec<Entry>>>,
    is_permitted: bool,
}

/// The outcome of a decision about many.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) decided: usize,
    /// The items that were left as they are, and why.
    pub(super) left: Vec<String>,
}

impl Book {
    pub(super) fn open(common: &Common) -> Result<Self, Failure> {
        match daemon::connect(common, "admin", None) {
            Ok(daemon) => Ok(Self::Daemon(daemon)),
            Err(failure) if common.socket.is_some() => Err(failure.into()),
            Err(failure) => {
                let store = source::existing_store(common)?.filter(Store::has_db);
                let Some(store) = store else { return Err(failure.into()) };
                let fault = |error: &dyn std::fmt::Display| Failure::new(SOFTWARE, error);
                let unusable = |error| Failure::new(TEMPFAIL, error);
                let db = store.db().map_err(unusable)?;
                let pins = Pins::open(db.clone()).map_err(unusable)?;
                let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| fault(&error))?;
                let news = Arc::new(Mutex::new(Vec::new()));
                let told = Arc::clone(&news);
                pins.on_change(Box::new(move |news| told.lock().extend(news.entries())));
                Ok(Self::Disk(Disk { common: common.clone(), db, pins, runtime, news, is_permitted: false }))
            }
        }
    }

    /// All pins without their texts, as JSON.
    pub(super) fn list(&mut self) -> Result<Vec<RawObject>, Failure> {
        let answer = match self {
            Self::Daemon(daemon) => daemon.ask("pins.list", None)?,
            Self::Disk(disk) => parsed(&crate::operator::pins::listed(&disk.pins.list(), false))?,
        };
        Ok(answer.objects("pins"))
    }

    pub(super) fn find(&mut self, name: &str, kind: Option<&str>) -> Result<Shown, Failure> {
        let object = match self {
            Self::Daemon(daemon) => daemon.ask("pins.diff", Some(&params(name, kind, None).encode().text()))?,
            Self::Disk(disk) => {
                let view = disk.pins.find(name, parse(kind)?).map_err(|error| Failure::new(NO, error))?;
                parsed(&view.to_json(true))?
            }
        };
        Ok(Shown::read(&object))
    }

    /// The same pins with their texts, those that there still are.
    pub(super) fn show(&mut self, pins: &[Shown]) -> Result<Vec<Shown>, Failure> {
        let mut out = Vec::with_capacity(pins.len());
        for some in pins.chunks(SHOWN_AT_ONCE) {
            let answer = match self {
                Self::Daemon(daemon) => {
                    let items = some.iter().map(|pin| params(&pin.name, Some(&pin.kind), None));
                    daemon.ask("pins.show", Some(&all(items)))?
                }
                Self::Disk(disk) => {
                    let names = some.iter().map(|pin| Ok((pin.name.clone(), whole(&pin.kind)?)));
                    let names = names.collect::<Result<Vec<_>, Failure>>()?;
                    parsed(&crate::operator::pins::listed(&disk.pins.views(&names), true))?
                }
            };
            out.extend(answer.objects("pins").iter().map(Shown::read));
        }
        Ok(out)
    }

    /// Decides about the shown text.
    pub(super) fn decide(&mut self, method: &str, shown: &Shown) -> Result<(), Failure> {
        match self {
            Self::Daemon(daemon) => {
                let params = params(&shown.name, Some(&shown.kind), Some(&shown.digest));
                daemon.ask_as_operator(method, Some(&params.encode().text())).map(drop)
            }
            Self::Disk(disk) => disk.decide(method, shown),
        }
    }

    /// Decides about all shown texts; one that has changed meanwhile is left.
    pub(super) fn decide_all(&mut self, method: &str, pins: &[Shown]) -> Result<Outcome, Failure> {
        let mut out = Outcome::default();
        for some in pins.chunks(DECIDED_AT_ONCE) {
            let answer = match self {
                Self::Daemon(daemon) => {
                    let items = some.iter().map(|pin| params(&pin.name, Some(&pin.kind), Some(&pin.digest)));
                    daemon.ask_as_operator(method, Some(&all(items)))?
                }
                Self::Disk(disk) => disk.decide_all(method, some)?,
            };
            out.decided += answer.get("decided").and_then(|count| count.parse::<usize>().ok()).unwrap_or_default();
            for left in answer.objects("left") {
                let [name, kind, why] = ["name", "kind", "why"].map(|member| left.string(member).unwrap_or_default());
                out.left.push(format!("{name} ({kind}): {why}"));
            }
        }
        Ok(out)
    }
}

impl Disk {
    /// Whether a command may decide; asks for a code once.
    fn permit(&mut self) -> Result<(), Failure> {
        if !self.is_permitted {
            operator::permit(&self.common, &self.db)?;
            self.is_permitted = true;
        }
        Ok(())
    }

    /// Takes a decision about the pin of that name, or about many, and records it. A decision that
    /// cannot be recorded is not made.
    fn recorded<T>(
        &self,
        method: &str,
        name: Option<&str>,
        decide: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let unrecorded = |why| Failure::new(TEMPFAIL, format!("not decided, since the log cannot record it: {why}"));
        let journal = Journal::open(&self.db, &source::audit(&self.common)).map_err(unrecorded)?;
        let decided = self.runtime.block_on(decide);
        let news = std::mem::take(&mut *self.news.lock());
        let is_approval = method == "pins.approve";
        let action = if is_approval { OperatorAction::PinsApprove } else { OperatorAction::PinsReject };
        let outcome = format!("decided: {}", news.len());
        let told = decided.as_ref().map(|_| outcome.as_str()).map_err(|failure| failure.text.as_str());
        let record = operator::record(action, name, told);
        journal.write(news.into_iter().chain([record])).map_err(unrecorded)?;
        decided
    }

    fn decide(&mut self, method: &str, shown: &Shown) -> Result<(), Failure> {
        self.permit()?;
        let (kind, digest) = (parse(Some(&shown.kind))?, digest(shown)?);
        let by = operator::user();
        self.recorded(method, Some(&shown.name), async {
            let decided = if method == "pins.approve" {
                self.pins.approve(&shown.name, kind, digest, &by).await
            } else {
                self.pins.reject(&shown.name, kind, digest, &by).await
            };
            decided.map(|_: PinView| ()).map_err(|error| Failure::new(NO, error))
        })
    }

    fn decide_all(&mut self, method: &str, pins: &[Shown]) -> Result<RawObject, Failure> {
        self.permit()?;
        let decisions = pins.iter().map(|pin| {
            let (kind, shown) = (whole(&pin.kind)?, digest(pin)?);
            Ok(Decision { name: pin.name.clone(), kind, shown })
        });
        let decisions = decisions.collect::<Result<Vec<_>, Failure>>()?;
        let by = operator::user();
        let decided = self.recorded(method, None, async {
            let decided = self.pins.decide_all(&decisions, method == "pins.approve", &by).await;
            decided.map_err(|error| Failure::new(TEMPFAIL, error))
        })?;
        parsed(&crate::operator::pins::outcome(&decisions, &decided))
    }
}

fn digest(shown: &Shown) -> Result<Digest, Failure> {
    Digest::from_hex(&shown.digest).ok_or_else(|| Failure::new(UNAVAILABLE, "the pin has no digest"))
}

fn parse(kind: Option<&str>) -> Result<Option<PinKind>, Failure> {
    kind.map(whole).transpose()
}

fn whole(word: &str) -> Result<PinKind, Failure> {
    word.parse().map_err(|_| Failure::new(NO, format!("there is no kind {word:?}")))
}

fn parsed(json: &RawJson) -> Result<RawObject, Failure> {
    RawObject::parse(json).map_err(|error| Failure::new(SOFTWARE, error))
}

fn params(name: &str, kind: Option<&str>, digest: Option<&str>) -> RawObject {
    let mut object = RawObject::default();
    for (member, value) in [("name", Some(name)), ("kind", kind), ("digest", digest)] {
        if let Some(value) = value {
            object.set(member, RawJson::string(value));
        }
    }
    object
}

/// Params about many pins.
fn all(items: impl Iterator<Item = RawObject>) -> String {
    let mut object = RawObject::default();
    object.set("items", RawJson::list(items.map(|item| item.encode())));
    object.encode().text().into_owned()
}
