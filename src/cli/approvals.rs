//! `headend approvals`, `headend approve`, `headend deny`: open approvals and the operator's answers.

use std::sync::Arc;

use clap::{Args, Subcommand};

use self::group::Group;
use self::list::{MIN_PREFIX, number};
use super::daemon;
use super::exit::{NO, OK, USAGE};
use super::options::Common;
use super::output::{Failure, date, print};
use super::screen::Screen;
use crate::policy::consent::view::Paint;
use crate::store::approvals::Wish;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

mod asker;
mod group;
mod list;
mod place;
mod shown;
mod watch;

pub(super) use self::asker::{Asked, Offer, ask};
pub(super) use self::place::Place;
pub(super) use self::shown::field;

use self::shown::TRY_AGAIN;

#[derive(Clone, Debug, Default, Args)]
pub(super) struct ApprovalsArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Follow the approvals as they come, until Ctrl-C: on a terminal each is shown and asked about, elsewhere it is a line.
    #[arg(long)]
    watch: bool,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// List open approvals. The default.
    List,
    /// Show one with all of its arguments.
    Show(ShowArgs),
    /// Allow the call.
    Approve(ApproveArgs),
    /// Deny the call.
    Deny(DenyArgs),
    /// End a block, so that its calls are asked about again.
    Unblock(UnblockArgs),
    /// Send a test notice as `[policy.consent] notify` says, and print what came of it.
    Notify,
}

#[derive(Clone, Debug, Args)]
struct ShowArgs {
    /// The approval's id, or the start of it (4 characters or more).
    id: String,
}

#[derive(Clone, Debug, Args)]
struct UnblockArgs {
    /// The block's id, or the start of it (4 characters or more).
    id: String,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ApproveArgs {
    /// The approval's id, or the start of it (4 characters or more). Several of one caller about one item are shown, and allowed once
    /// after a question.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// How long: `once` with exactly the arguments shown, `session`, a time such as 8h or 30d, or `always`, until the
    /// tool changes.
    #[arg(long = "for", value_name = "HOW-LONG", default_value = "once")]
    how_long: String,
    /// With `--for always`: only calls whose paths lie below this folder, or whose URLs are of
    /// this site, such as `https://host/`.
    #[arg(long, value_name = "PATH")]
    below: Option<String>,
    /// Allow several without a question; without a terminal this is the only way.
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct DenyArgs {
    /// The approval's id, or the start of it (4 characters or more). Several of one caller about one item are shown, and denied after
    /// a question.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Deny several without a question; without a terminal this is the only way.
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(common: &Common, args: ApprovalsArgs) -> Result<u8, Failure> {
    if args.watch {
        if args.what.is_some_and(|what| !matches!(what, What::List)) {
            return Err(Failure::new(USAGE, "--watch goes with the list alone: `headend approvals --watch`"));
        }
        return watch::run(common, args.json);
    }
    match args.what.unwrap_or(What::List) {
        What::List => list(common, args.json),
        What::Notify => notify(common, args.json),
        What::Show(show_args) => show(common, &show_args.id, args.json),
        What::Approve(approve_args) => approve(common, &approve_args, args.json),
        What::Deny(deny_args) => deny(common, &deny_args, args.json),
        What::Unblock(unblock_args) => unblock(common, &unblock_args.id, args.json),
    }
}

pub(super) fn approve(common: &Common, args: &ApproveArgs, json: bool) -> Result<u8, Failure> {
    let wish = Wish::parse(&args.how_long).filter(|wish| *wish != Wish::Deny);
    let wish = wish.ok_or_else(|| {
        let text = format!("--for {:?}: write once, session, always, or a time such as 8h or 30d", args.how_long);
        Failure::new(USAGE, text)
    })?;
    let wish = match (&args.below, wish) {
        (None, wish) => wish,
        (Some(base), Wish::Always) => Wish::Below(Arc::from(base.as_str())),
        (Some(_), _) => return Err(Failure::new(USAGE, "--below goes with --for always")),
    };
    answer(common, &Chosen { ids: &args.ids, wish, yes: args.yes, json })
}

pub(super) fn deny(common: &Common, args: &DenyArgs, json: bool) -> Result<u8, Failure> {
    answer(common, &Chosen { ids: &args.ids, wish: Wish::Deny, yes: args.yes, json })
}

/// The one object whose id is this text or starts with it.
pub(super) fn one<'r>(rows: &'r [RawObject], start: &str, what: &str) -> Result<&'r RawObject, Failure> {
    let start = start.to_ascii_lowercase();
    if start.len() < MIN_PREFIX {
        return Err(Failure::new(USAGE, format!("write at least {MIN_PREFIX} characters of the {what}'s id")));
    }
    let fits = |row: &&RawObject| row.string("id").is_some_and(|id| id.starts_with(&start));
    let mut found = rows.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => {
            Err(Failure::new(NO, format!("more than one {what} starts with {start:?}; write more of its id")))
        }
        (None, _) => Err(Failure::new(NO, format!("no {what} with an id starting with {start:?}; it may have ended"))),
    }
}

/// Returns the id of the object whose id begins with `start`. A whole id is returned as it is, also
/// if its object is not in the list: the daemon knows whether it has just ended.
fn id_of(rows: &[RawObject], start: &str, what: &str) -> Result<String, Failure> {
    const WHOLE: usize = 26;
    match one(rows, start, what) {
        Ok(row) => Ok(row.string("id").unwrap_or_default()),
        Err(_) if start.len() == WHOLE => Ok(start.to_ascii_lowercase()),
        Err(failure) => Err(failure),
    }
}

fn unblock(common: &Common, start: &str, json: bool) -> Result<u8, Failure> {
    let mut place = Place::find(common)?;
    let id = id_of(&place.list("approvals.list", "blocks")?, start, "block")?;
    let ended = place.unblock(&id)?;
    if json {
        return print(&format!("{}\n", foreign::json(&ended.encode().text())));
    }
    let (item, caller) = (field(&ended, "item"), field(&ended, "caller"));
    print(&format!("the block has ended: calls of {item} by caller {caller} are asked about again\n"))
}

fn list(common: &Common, json: bool) -> Result<u8, Failure> {
    let mut place = Place::find(common)?;
    let mut rows = place.list("approvals.list", "approvals")?;
    rows.sort_by_key(|row| number(row, "opened-at"));
    let blocks = place.list("approvals.list", "blocks")?;
    if json {
        let lists = [("approvals", &rows), ("blocks", &blocks)];
        let lists = lists.map(|(name, rows)| (name, RawJson::list(rows.iter().map(RawObject::encode))));
        return print(&format!("{}\n", RawObject::of(lists).encode().text()));
    }
    // Denials are listed by `headend grants`.
    let blocked: String = blocks.iter().filter(|row| row.get("denied-at").is_none()).map(blocked).collect();
    if rows.is_empty() {
        return print(&format!("no approval is open\n{blocked}"));
    }
    let screen = Screen::of_stdout();
    let ways = "`headend approvals show ID` shows the whole call; answer with `headend approve ID [--for once|session|8h|always] [--below PATH]` \
                or `headend deny ID`, several at once with their ids";
    print(&format!("{}{blocked}\n{}", list::table(screen, &rows), screen.paragraph(ways)))
}

fn show(common: &Common, start: &str, json: bool) -> Result<u8, Failure> {
    let mut place = Place::find(common)?;
    let rows = place.list("approvals.list", "approvals")?;
    let id = one(&rows, start, "open approval")?.string("id").unwrap_or_default();
    let approval = place.show(&id)?;
    if json {
        return print(&format!("{}\n", foreign::json(&approval.encode().text())));
    }
    let paint = if Screen::of_stdout().has_colours() { Paint::TERMINAL } else { Paint::NONE };
    print(&(shown::told(&approval, &paint) + &shown::commands(&approval)))
}

fn notify(common: &Common, json: bool) -> Result<u8, Failure> {
    let sent = daemon::connect(common, "admin", None)?.ask("approvals.notify", None)?;
    if json {
        return print(&format!("{}\n", foreign::json(&sent.encode().text())));
    }
    print(&format!("sent: {} took a test notice\n", field(&sent, "to")))
}

/// An approval as it is listed.
fn listed(row: &RawObject) -> String {
    let mut text = format!("{}  (needs {})\n", field(row, "id"), field(row, "min-evidence"));
    let screen = Screen::of_stdout();
    for line in foreign::block(&row.string("message").unwrap_or_default()).lines() {
        // Deeper than any line of the message begins, so that what goes on is not taken for one.
        text.push_str(&screen.folded(&format!("    {line}"), 15));
    }
    text.push('\n');
    text
}

/// A block as it is listed.
fn blocked(row: &RawObject) -> String {
    let client = row.string("client").filter(|client| !client.is_empty());
    let by = client.map_or(String::new(), |client| format!(", client {}", foreign::quoted(&client, 64)));
    let until = row.get("until").map(|until| date(&until.text())).unwrap_or_default();
    let (id, item, caller) = (field(row, "id"), field(row, "item"), field(row, "caller"));
    Screen::of_stdout().paragraph(&format!(
        "blocked until {until}: calls of {item} by caller {caller}{by}, since approvals were not answered; \
         `headend approvals unblock {id}` ends this"
    ))
}

/// An answer of the command line.
struct Chosen<'a> {
    /// Ids or their starts.
    ids: &'a [String],
    wish: Wish,
    yes: bool,
    json: bool,
}

fn answer(common: &Common, chosen: &Chosen<'_>) -> Result<u8, Failure> {
    let Chosen { ids, ref wish, json, .. } = *chosen;
    let mut place = Place::find(common)?;
    let rows = place.list("approvals.list", "approvals")?;
    let [start] = ids else {
        let rows = ids.iter().map(|start| one(&rows, start, "open approval")).collect::<Result<Vec<_>, Failure>>()?;
        let group = Group { rows, show: listed, wish: wish.clone(), yes: chosen.yes, json };
        let mut is_permitted = false;
        return group.answer(|id, digest| {
            if !std::mem::replace(&mut is_permitted, true) {
                place.permit(common)?;
            }
            place.answer(common, id, Some(digest), wish)
        });
    };
    let blocks = if *wish == Wish::Deny { Vec::new() } else { place.list("approvals.list", "blocks")? };
    let denied: Vec<RawObject> = blocks.into_iter().filter(|row| row.get("denied-at").is_some()).collect();
    let row = match one(&rows, start, "open approval") {
        Err(failure) if failure.code == NO => one(&denied, start, "open approval")?,
        found => found?,
    };
    if row.get("denied-at").is_some() && !json {
        let (by, until) = (field(row, "by"), row.get("until").map(|until| date(&until.text())).unwrap_or_default());
        print(&format!("it was denied by {by}, until {until}; this yes takes that back\n"))?;
    }
    place.permit(common)?;
    let outcome = place.answer(common, &row.string("id").unwrap_or_default(), None, wish)?;
    let granted = outcome.word == "granted";
    if json {
        let mut out = RawObject::default();
        out.set("outcome", RawJson::string(&outcome.word));
        if outcome.is_late {
            out.set("late", RawJson::boolean(true));
        }
        if granted {
            out.set("for", RawJson::string(&wish.to_string()));
        }
        for name in ["id", "caller", "upstream", "kind", "item", "rule"] {
            out.set(name, RawJson::string(&row.string(name).unwrap_or_default()));
        }
        print(&format!("{}\n", out.encode().text()))?;
    } else {
        let how_long = match wish {
            Wish::Deny => "; the same call stays refused for 10 minutes, which `headend grants` lists".to_owned(),
            Wish::Once => ", once, with these arguments".to_owned(),
            Wish::Session => ", for its session, any arguments".to_owned(),
            Wish::For(_) => format!(", for {wish}, any arguments"),
            Wish::Always => ", until it or its server changes, any arguments".to_owned(),
            Wish::Below(base) => format!(", until it or its server changes, below {}", foreign::line(base)),
        };
        let (kind, item, caller) = (field(row, "kind"), field(row, "item"), field(row, "caller"));
        let after = if outcome.is_late { format!("{TRY_AGAIN}\n") } else { String::new() };
        print(&format!("{}: {kind} {item} for caller {caller}{how_long}\n{after}", foreign::line(&outcome.word)))?;
    }
    let done = granted || *wish == Wish::Deny;
    Ok(if done { OK } else { NO })
}
