//! The commands `headend approvals`, `headend approve` and `headend deny`: list open approvals and
//! send the operator's answers.

use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;

use self::group::Group;
use self::list::MIN_PREFIX;
use super::daemon;
use super::exit::{NO, OK, USAGE};
use super::operator::OperatorClient;
use super::options::Common;
use super::output::{Failure, print, print_json};
use super::screen::Screen;
use crate::daemon::local_time::local_minute;
use crate::operator::request::{AnswerParams, ById, NoParams, Request, Wish};
use crate::operator::views::{AnswerOutcome, ApprovalsView, NoticeSent, Unblocked};
use crate::policy::Caller;
use crate::policy::consent::view::Paint;
use crate::policy::consent::{ApprovalView, BlockView};
use crate::wire::foreign;

mod asker;
mod group;
mod list;
mod shown;
mod watch;

pub(super) use self::asker::{Asked, Offer, ask};

use self::shown::TRY_AGAIN;

#[derive(Clone, Debug, Default, Args)]
pub(super) struct ApprovalsArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Follow the approvals as they come, until Ctrl-C: on a terminal each is shown and asked
    /// about, elsewhere it is a line.
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
    /// The approval's id, or the start of it (4 characters or more). Several of one caller about
    /// one item are shown, and allowed once after a question.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// How long: `once` with exactly the arguments shown, `session`, a time such as 8h or 30d, or
    /// `always`, until the tool changes.
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
    /// The approval's id, or the start of it (4 characters or more). Several of one caller about
    /// one item are shown, and denied after a question.
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

/// A record that the user names by the beginning of its id.
pub(super) trait Named {
    fn id(&self) -> &str;
}

impl Named for ApprovalView {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Named for BlockView {
    fn id(&self) -> &str {
        &self.id
    }
}

/// Returns the only row whose id is `start` or begins with it. Fails with 64 for a start that is
/// too short, with 1 if no row or several match. `what` is the noun for messages.
pub(super) fn one<'r, N: Named + ?Sized>(
    rows: impl IntoIterator<Item = &'r N>,
    start: &str,
    what: &str,
) -> Result<&'r N, Failure> {
    let start = start.to_ascii_lowercase();
    if start.len() < MIN_PREFIX {
        return Err(Failure::new(USAGE, format!("write at least {MIN_PREFIX} characters of the {what}'s id")));
    }
    let mut found = rows.into_iter().filter(|row| row.id().starts_with(&start));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => {
            Err(Failure::new(NO, format!("more than one {what} starts with {start:?}; write more of its id")))
        }
        (None, _) => Err(Failure::new(NO, format!("no {what} with an id starting with {start:?}; it may have ended"))),
    }
}

/// Returns the id of the block whose id begins with `start`. A whole id is returned even if no
/// block in the list has it: the daemon knows whether the block has just ended.
fn id_of(rows: &[BlockView], start: &str) -> Result<String, Failure> {
    const WHOLE: usize = 26;
    match one(rows, start, "block") {
        Ok(row) => Ok(row.id.clone()),
        Err(_) if start.len() == WHOLE => Ok(start.to_ascii_lowercase()),
        Err(failure) => Err(failure),
    }
}

/// Fetches the open approvals, oldest first, and the blocks.
fn listed(client: &mut OperatorClient) -> Result<ApprovalsView, Failure> {
    let mut list: ApprovalsView = client.ask(&Request::Approvals(NoParams {}))?;
    list.approvals.sort_by_key(|row| row.opened_at);
    Ok(list)
}

fn unblock(common: &Common, start: &str, json: bool) -> Result<u8, Failure> {
    let mut client = OperatorClient::find(common)?;
    let id = id_of(&listed(&mut client)?.blocks, start)?;
    let ended: Unblocked = client.ask(&Request::Unblock(ById { id }))?;
    if json {
        return print_json(&ended);
    }
    let (item, caller) = (foreign::line(&ended.item), foreign::line(&ended.caller));
    print(&format!("the block has ended: calls of {item} by caller {caller} are asked about again\n"))
}

fn list(common: &Common, json: bool) -> Result<u8, Failure> {
    let list = listed(&mut OperatorClient::find(common)?)?;
    if json {
        return print_json(&list);
    }
    // `headend grants` lists the denials.
    let blocked: String = list.blocks.iter().filter(|block| !block.is_denial()).map(blocked).collect();
    if list.approvals.is_empty() {
        return print(&format!("no approval is open\n{blocked}"));
    }
    let screen = Screen::of_stdout();
    let ways = "`headend approvals show ID` shows the whole call; answer with `headend approve ID [--for once|session|8h|always] [--below PATH]` \
                or `headend deny ID`, several at once with their ids";
    print(&format!("{}{blocked}\n{}", list::table(screen, &list.approvals), screen.paragraph(ways)))
}

fn show(common: &Common, start: &str, json: bool) -> Result<u8, Failure> {
    let mut client = OperatorClient::find(common)?;
    let id = one(&listed(&mut client)?.approvals, start, "open approval")?.id.clone();
    let approval: ApprovalView = client.ask(&Request::Approval(ById { id }))?;
    if json {
        return print_json(&approval);
    }
    let paint = if Screen::of_stdout().has_colours() { Paint::TERMINAL } else { Paint::NONE };
    print(&(shown::told(&approval, &paint) + &shown::commands(&approval)))
}

fn notify(common: &Common, json: bool) -> Result<u8, Failure> {
    let sent: NoticeSent = daemon::connect(common, "admin", None)?.ask(&Request::TryNotice(NoParams {}))?;
    if json {
        return print_json(&sent);
    }
    print(&format!("sent: {} took a test notice\n", foreign::line(&sent.to)))
}

/// Formats an approval for the list that is shown before an answer to several.
fn entry(row: &ApprovalView) -> String {
    let mut text = format!("{}  (needs {})\n", foreign::line(&row.id), foreign::line(&row.min_evidence));
    let screen = Screen::of_stdout();
    for line in foreign::block(&row.message).lines() {
        // Indented deeper than any line of the message, so that a folded line is not taken for a
        // new one.
        text.push_str(&screen.folded(&format!("    {line}"), 15));
    }
    text.push('\n');
    text
}

/// Formats a block for the list.
fn blocked(block: &BlockView) -> String {
    let by = block.client_name().map_or(String::new(), |client| format!(", client {}", foreign::quoted(client, 64)));
    let [id, item, caller] = [&block.id, &block.item, &block.caller].map(|text| foreign::line(text));
    Screen::of_stdout().paragraph(&format!(
        "blocked until {}: calls of {item} by caller {caller}{by}, since approvals were not answered; \
         `headend approvals unblock {id}` ends this",
        local_minute(block.until)
    ))
}

/// An answer from the command line, with the approvals that it is for.
struct Chosen<'a> {
    /// Ids of approvals, or beginnings of ids.
    ids: &'a [String],
    wish: Wish,
    yes: bool,
    json: bool,
}

/// The outcome of answering one approval, as JSON.
#[derive(Serialize)]
struct AnswerReport<'a> {
    #[serde(flatten)]
    outcome: &'a AnswerOutcome,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    how_long: Option<&'a Wish>,
    id: &'a str,
    caller: &'a str,
    upstream: &'a str,
    kind: &'a str,
    item: &'a str,
    rule: &'a str,
}

fn answer(common: &Common, chosen: &Chosen<'_>) -> Result<u8, Failure> {
    let Chosen { ids, ref wish, json, .. } = *chosen;
    let mut client = OperatorClient::find(common)?;
    let ApprovalsView { approvals, blocks } = listed(&mut client)?;
    let [start] = ids else {
        let rows = ids.iter().map(|start| one(&approvals, start, "open approval"));
        let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
        return Group { rows, show: entry, wish: wish.clone(), yes: chosen.yes, json }.answer(&mut client);
    };
    let denials = || blocks.iter().filter(|block| block.is_denial() && *wish != Wish::Deny);
    let (row, denial) = match one(&approvals, start, "open approval") {
        Err(failure) if failure.code == NO => {
            let denial = one(denials(), start, "open approval")?;
            (denied(denial), Some(denial))
        }
        found => (found?.clone(), None),
    };
    if let Some(denial) = denial.filter(|_| !json) {
        let (by, until) = (foreign::line(denial.by.as_deref().unwrap_or_default()), local_minute(denial.until));
        print(&format!("it was denied by {by}, until {until}; this yes takes that back\n"))?;
    }
    let request = Request::Answer(AnswerParams { id: row.id.clone(), answer: wish.clone(), digest: None });
    let outcome: AnswerOutcome = client.ask(&request)?;
    let granted = outcome.word == "granted";
    if json {
        let ApprovalView { id, caller, upstream, kind, item, rule, .. } = &row;
        let how_long = Some(wish).filter(|_| granted);
        print_json(&AnswerReport {
            outcome: &outcome,
            how_long,
            id,
            caller: caller.name(),
            upstream,
            kind,
            item,
            rule,
        })?;
    } else {
        let how_long = match wish {
            Wish::Deny => "; the same call stays refused for 10 minutes, which `headend grants` lists".to_owned(),
            Wish::Once => ", once, with these arguments".to_owned(),
            Wish::Session => ", for its session, any arguments".to_owned(),
            Wish::For(_) => format!(", for {wish}, any arguments"),
            Wish::Always => ", until it or its server changes, any arguments".to_owned(),
            Wish::Below(base) => format!(", until it or its server changes, below {}", foreign::line(base)),
        };
        let [caller, kind, item] = [row.caller.name(), &row.kind, &row.item].map(foreign::line);
        let after = if outcome.is_late { format!("{TRY_AGAIN}\n") } else { String::new() };
        print(&format!("{}: {kind} {item} for caller {caller}{how_long}\n{after}", foreign::line(&outcome.word)))?;
    }
    let done = granted || *wish == Wish::Deny;
    Ok(if done { OK } else { NO })
}

/// Builds the view of the approval that was denied from its block.
fn denied(denial: &BlockView) -> ApprovalView {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    ApprovalView {
        id: denial.id.clone(),
        caller: Caller::named(&denial.caller),
        kind: text(&denial.kind),
        item: denial.item.clone(),
        rule: text(&denial.rule),
        ..ApprovalView::default()
    }
}
