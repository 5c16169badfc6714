//! `headend grants`: remembered approvals.

use clap::{Args, Subcommand};

use super::approvals::{Place, field, one};
use super::exit::{NO, OK, TEMPFAIL};
use super::options::Common;
use super::output::{Failure, date, print};
use super::screen::{Column, Screen};
use super::{operator, source};
use crate::daemon::local_time::local_minute;
use crate::policy::OperatorAction;
use crate::store::approvals::beside;
use crate::store::audit::Journal;
use crate::store::restored::NOTHING_DUE;
use crate::wire::raw::{RawJson, RawObject};

/// Digits of a grant's id.
const ID_LEN: usize = 16;

#[derive(Clone, Debug, Default, Args)]
pub(super) struct GrantsArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// List grants. The default.
    List,
    /// Take grants back; the calls that they allowed need an approval again. A denial can be taken
    /// back too.
    Revoke {
        /// The id of the grant or denial, or the start of it (4 characters or more).
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// Revoke every grant; denials stay.
        #[arg(long)]
        all: bool,
    },
    /// Say that you have reviewed grants and tokens after the restore of a backup; `headend status`
    /// asks for it until then.
    Reviewed,
}

pub(super) fn run(common: &Common, args: GrantsArgs) -> Result<u8, Failure> {
    let mut place = Place::find(common)?;
    if matches!(args.what, Some(What::Reviewed)) {
        let outcome = reviewed(common, &mut place)?;
        let object = || RawObject::of_strings(&[("outcome", &outcome)]).encode().text().into_owned();
        return print(&if args.json { format!("{}\n", object()) } else { format!("{outcome}\n") });
    }
    let rows = place.list("grants.list", "grants")?;
    let denials = place.list("grants.list", "denials")?;
    match args.what.unwrap_or(What::List) {
        What::List if args.json => {
            let lists = [("grants", &rows), ("denials", &denials)];
            let lists = lists.map(|(name, rows)| (name, RawJson::list(rows.iter().map(RawObject::encode))));
            print(&format!("{}\n", RawObject::of(lists).encode().text()))
        }
        What::List | What::Reviewed => list(&rows, &denials),
        What::Revoke { id, all } => {
            let listed = [rows, denials].concat();
            let id = id.map(|start| named(&listed, &start)).transpose()?;
            if let Some(id) = id.as_deref().filter(|id| id.len() > ID_LEN) {
                // A denial is named by the approval that was denied.
                let ended = place.unblock(id)?;
                let told = "the denial is taken back: the same call is asked about again\n";
                return print(&if args.json { format!("{}\n", ended.encode().text()) } else { told.to_owned() });
            }
            let count = revoke(common, &mut place, id.as_deref())?;
            if args.json {
                print(&format!("{{\"revoked\":{count}}}\n"))?;
            } else {
                print(&format!("revoked {count} grant{}\n", if count == 1 { "" } else { "s" }))?;
            }
            Ok(if count == 0 && !all { NO } else { OK })
        }
    }
}

/// The id of the grant with that id or start of one. A whole id may be of a grant that cannot be read, and so is not listed.
fn named(rows: &[RawObject], start: &str) -> Result<String, Failure> {
    let is_whole = start.len() == ID_LEN && start.bytes().all(|byte| byte.is_ascii_hexdigit());
    match one(rows, start, "grant") {
        Ok(row) => Ok(row.string("id").unwrap_or_default()),
        Err(_) if is_whole => Ok(start.to_ascii_lowercase()),
        Err(failure) => Err(failure),
    }
}

fn list(rows: &[RawObject], denials: &[RawObject]) -> Result<u8, Failure> {
    if rows.is_empty() && denials.is_empty() {
        return print("there are no grants\n");
    }
    let columns = [
        ("ID", 0),
        ("CALLER", 1),
        ("ITEM", 0),
        ("FOR", 0),
        ("ARGUMENTS", 6),
        ("EVIDENCE", 5),
        ("BY", 4),
        ("USES", 2),
        ("RULE", 3),
    ];
    let columns = columns.map(|(head, rank)| Column { head, rank });
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let names = ["id", "caller", "item", "lifetime", "arguments", "evidence", "by", "uses", "rule"];
        lines.push(
            names
                .map(|name| match (name, row.get("until")) {
                    ("lifetime", Some(until)) => format!("until {}", date(&until.text())),
                    ("arguments", _) if row.get("below").is_some() => format!("below {}", field(row, "below")),
                    _ => field(row, name),
                })
                .to_vec(),
        );
    }
    for row in denials {
        let until = row.get("until").map(|until| date(&until.text())).unwrap_or_default();
        let [id, caller, item, evidence, by, rule] =
            ["id", "caller", "item", "evidence", "by", "rule"].map(|name| field(row, name));
        let (until, exact, uses) = (format!("denied until {until}"), "exact".to_owned(), "-".to_owned());
        lines.push(vec![id, caller, item, until, exact, evidence, by, uses, rule]);
    }
    print(&Screen::of_stdout().plain(&columns, &lines))
}

/// Ends the review of a restored store, and says of which backup.
fn reviewed(common: &Common, place: &mut Place) -> Result<String, Failure> {
    let db = match place {
        Place::Daemon(daemon) => {
            let answer = daemon.ask("grants.reviewed", None)?;
            return Ok(answer.string("outcome").unwrap_or_default());
        }
        Place::Nowhere => return Err(Failure::new(NO, NOTHING_DUE)),
        Place::Store { db, .. } => db,
    };
    let unrecorded = |why| Failure::new(TEMPFAIL, format!("not recorded: {why}"));
    let journal = Journal::open(db, &source::audit(common)).map_err(unrecorded)?;
    let ended = db.end_restore_review().run_now().map_err(|error| Failure::new(TEMPFAIL, error))?;
    let outcome = ended.map(|time| format!("reviewed the backup of {}", local_minute(time))).ok_or(NOTHING_DUE);
    let told = outcome.as_ref().map(String::as_str).map_err(|why| *why);
    let record = operator::record(OperatorAction::Review, None, told);
    journal.write([record]).map_err(unrecorded)?;
    outcome.map_err(|why| Failure::new(NO, why))
}

fn revoke(common: &Common, place: &mut Place, id: Option<&str>) -> Result<usize, Failure> {
    match place {
        Place::Nowhere => Ok(0),
        Place::Store { db, .. } => {
            let ended = beside::revoke(db, id, &operator::user()).map_err(|error| Failure::new(TEMPFAIL, error))?;
            let count = ended.len();
            let outcome = format!("revoked: {count}");
            let action = operator::record(OperatorAction::Revoke, id.or(Some("all")), Ok(&outcome));
            // A full disk must not keep a grant alive: revoke first, then record.
            let journal = Journal::open(db, &source::audit(common));
            let written = journal.and_then(|journal| journal.write(ended.into_iter().chain([action])));
            written.map_err(|why| Failure::new(TEMPFAIL, format!("revoked {count}, but not recorded: {why}")))?;
            Ok(count)
        }
        Place::Daemon(daemon) => {
            let mut params = RawObject::default();
            match id {
                Some(id) => params.set("id", RawJson::string(id)),
                None => params.set("all", RawJson::trusted("true")),
            }
            let answer = daemon.ask("grants.revoke", Some(&params.encode().text()))?;
            Ok(answer.get("revoked").and_then(|count| count.parse().ok()).unwrap_or(0))
        }
    }
}
