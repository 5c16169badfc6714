//! The commands `headend approvals`, `headend approve` and `headend deny`: list open approvals and
//! send the operator's answers.

use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;

use self::group::NamedApprovals;
use self::list::MIN_PREFIX;
use crate::cli::exit::{NO, OK, USAGE};
use crate::cli::reach::daemon;
use crate::cli::reach::operator::OperatorClient;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print, print_json};
use crate::cli::words::screen::Screen;
use crate::daemon::local_time::local_minute;
use crate::operator::request::{AnswerParams, IdParams, NoParams, OperatorAnswer, Request};
use crate::operator::views::{AnswerOutcome, ApprovalsView, EndedBlockView, SentNoticeView};
use crate::policy::Caller;
use crate::policy::consent::view::ViewColours;
use crate::policy::consent::{ApprovalView, BlockView};
use crate::wire::foreign;

mod asker;
mod group;
mod list;
mod shown;
mod watch;

pub(in crate::cli) use self::asker::{AskOutcome, OfferedAnswers, ask};

use self::shown::TRY_AGAIN;

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct ApprovalsArgs {
    #[command(subcommand)]
    what: Option<ApprovalsAction>,
    /// Follow the approvals as they come, until Ctrl-C: on a terminal each is shown and asked
    /// about, elsewhere it is a line.
    #[arg(long)]
    watch: bool,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum ApprovalsAction {
    /// List open approvals. The default.
    List,
    /// Show one with all of its arguments.
    Show(ApprovalsShowArgs),
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
struct ApprovalsShowArgs {
    /// The approval's id, or the start of it (4 characters or more).
    id: String,
}

#[derive(Clone, Debug, Args)]
struct UnblockArgs {
    /// The block's id, or the start of it (4 characters or more).
    id: String,
}

#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct ApproveArgs {
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
pub(in crate::cli) struct DenyArgs {
    /// The approval's id, or the start of it (4 characters or more). Several of one caller about
    /// one item are shown, and denied after a question.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Deny several without a question; without a terminal this is the only way.
    #[arg(long)]
    yes: bool,
}

pub(in crate::cli) fn run(common: &CommonOptions, args: ApprovalsArgs) -> Result<u8, CommandFailure> {
    if args.watch {
        if args.what.is_some_and(|what| !matches!(what, ApprovalsAction::List)) {
            return Err(CommandFailure::new(USAGE, "--watch goes with the list alone: `headend approvals --watch`"));
        }
        return watch::run(common, args.json);
    }
    match args.what.unwrap_or(ApprovalsAction::List) {
        ApprovalsAction::List => list(common, args.json),
        ApprovalsAction::Notify => notify(common, args.json),
        ApprovalsAction::Show(show_args) => show(common, &show_args.id, args.json),
        ApprovalsAction::Approve(approve_args) => approve(common, &approve_args, args.json),
        ApprovalsAction::Deny(deny_args) => deny(common, &deny_args, args.json),
        ApprovalsAction::Unblock(unblock_args) => unblock(common, &unblock_args.id, args.json),
    }
}

pub(in crate::cli) fn approve(common: &CommonOptions, args: &ApproveArgs, json: bool) -> Result<u8, CommandFailure> {
    let wish = OperatorAnswer::parse(&args.how_long).filter(|wish| *wish != OperatorAnswer::Deny);
    let wish = wish.ok_or_else(|| {
        let text = format!("--for {:?}: write once, session, always, or a time such as 8h or 30d", args.how_long);
        CommandFailure::new(USAGE, text)
    })?;
    let wish = match (&args.below, wish) {
        (None, wish) => wish,
        (Some(base), OperatorAnswer::Always) => OperatorAnswer::Below(Arc::from(base.as_str())),
        (Some(_), _) => return Err(CommandFailure::new(USAGE, "--below goes with --for always")),
    };
    answer(common, &AnswerCommand { ids: &args.ids, wish, yes: args.yes, json })
}

pub(in crate::cli) fn deny(common: &CommonOptions, args: &DenyArgs, json: bool) -> Result<u8, CommandFailure> {
    answer(common, &AnswerCommand { ids: &args.ids, wish: OperatorAnswer::Deny, yes: args.yes, json })
}

/// A record that the user names by the beginning of its id.
pub(in crate::cli) trait HasId {
    fn id(&self) -> &str;
}

impl HasId for ApprovalView {
    fn id(&self) -> &str {
        &self.id
    }
}

impl HasId for BlockView {
    fn id(&self) -> &str {
        &self.id
    }
}

/// Returns the only row whose id is `start` or begins with it. Fails with 64 for a start that is
/// too short, with 1 if no row or several match. `what` is the noun for messages.
pub(in crate::cli) fn find_by_id_start<'r, N: HasId + ?Sized>(
    rows: impl IntoIterator<Item = &'r N>,
    start: &str,
    what: &str,
) -> Result<&'r N, CommandFailure> {
    let start = start.to_ascii_lowercase();
    if start.len() < MIN_PREFIX {
        return Err(CommandFailure::new(USAGE, format!("write at least {MIN_PREFIX} characters of the {what}'s id")));
    }
    let mut found = rows.into_iter().filter(|row| row.id().starts_with(&start));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => {
            Err(CommandFailure::new(NO, format!("more than one {what} starts with {start:?}; write more of its id")))
        }
        (None, _) => {
            Err(CommandFailure::new(NO, format!("no {what} with an id starting with {start:?}; it may have ended")))
        }
    }
}

/// Returns the id of the block whose id begins with `start`. A whole id is returned even if no
/// block in the list has it: the daemon knows whether the block has just ended.
fn id_of(rows: &[BlockView], start: &str) -> Result<String, CommandFailure> {
    const WHOLE: usize = 26;
    match find_by_id_start(rows, start, "block") {
        Ok(row) => Ok(row.id.clone()),
        Err(_) if start.len() == WHOLE => Ok(start.to_ascii_lowercase()),
        Err(failure) => Err(failure),
    }
}

/// Fetches the open approvals, oldest first, and the blocks.
fn fetch_approvals(client: &mut OperatorClient) -> Result<ApprovalsView, CommandFailure> {
    let mut list: ApprovalsView = client.ask(&Request::Approvals(NoParams {}))?;
    list.approvals.sort_by_key(|row| row.opened_at);
    Ok(list)
}

fn unblock(common: &CommonOptions, start: &str, json: bool) -> Result<u8, CommandFailure> {
    let mut client = OperatorClient::find(common)?;
    let id = id_of(&fetch_approvals(&mut client)?.blocks, start)?;
    let ended: EndedBlockView = client.ask(&Request::Unblock(IdParams { id }))?;
    if json {
        return print_json(&ended);
    }
    let (item, caller) = (foreign::line(&ended.item), foreign::line(&ended.caller));
    print(&format!("the block has ended: calls of {item} by caller {caller} are asked about again\n"))
}

fn list(common: &CommonOptions, json: bool) -> Result<u8, CommandFailure> {
    let list = fetch_approvals(&mut OperatorClient::find(common)?)?;
    if json {
        return print_json(&list);
    }
    // `headend grants` lists the denials.
    let blocked: String = list.blocks.iter().filter(|block| !block.is_denial()).map(format_block).collect();
    if list.approvals.is_empty() {
        return print(&format!("no approval is open\n{blocked}"));
    }
    let screen = Screen::of_stdout();
    let ways = "`headend approvals show ID` shows the whole call; answer with `headend approve ID [--for once|session|8h|always] [--below PATH]` \
                or `headend deny ID`, several at once with their ids";
    print(&format!("{}{blocked}\n{}", list::table(screen, &list.approvals), screen.paragraph(ways)))
}

fn show(common: &CommonOptions, start: &str, json: bool) -> Result<u8, CommandFailure> {
    let mut client = OperatorClient::find(common)?;
    let id = find_by_id_start(&fetch_approvals(&mut client)?.approvals, start, "open approval")?.id.clone();
    let approval: ApprovalView = client.ask(&Request::Approval(IdParams { id }))?;
    if json {
        return print_json(&approval);
    }
    let paint = if Screen::of_stdout().has_colours() { ViewColours::TERMINAL } else { ViewColours::NONE };
    print(&(shown::format_approval(&approval, &paint) + &shown::commands(&approval)))
}

fn notify(common: &CommonOptions, json: bool) -> Result<u8, CommandFailure> {
    let sent: SentNoticeView = daemon::connect(common, "admin", None)?.ask(&Request::TryNotice(NoParams {}))?;
    if json {
        return print_json(&sent);
    }
    print(&format!("sent: {} took a test notice\n", foreign::line(&sent.to)))
}

/// Formats an approval for the list that is shown before an answer to several.
fn format_approval(row: &ApprovalView) -> String {
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
fn format_block(block: &BlockView) -> String {
    let by = block.client_name().map_or(String::new(), |client| format!(", client {}", foreign::quoted(client, 64)));
    let [id, item, caller] = [&block.id, &block.item, &block.caller].map(|text| foreign::line(text));
    Screen::of_stdout().paragraph(&format!(
        "blocked until {}: calls of {item} by caller {caller}{by}, since approvals were not answered; \
         `headend approvals unblock {id}` ends this",
        local_minute(block.until)
    ))
}

/// An answer from the command line, with the approvals that it is for.
struct AnswerCommand<'a> {
    /// Ids of approvals, or beginnings of ids.
    ids: &'a [String],
    wish: OperatorAnswer,
    yes: bool,
    json: bool,
}

/// The outcome of answering one approval, as JSON.
#[derive(Serialize)]
struct AnswerReport<'a> {
    #[serde(flatten)]
    outcome: &'a AnswerOutcome,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    how_long: Option<&'a OperatorAnswer>,
    id: &'a str,
    caller: &'a str,
    upstream: &'a str,
    kind: &'a str,
    item: &'a str,
    rule: &'a str,
}

fn answer(common: &CommonOptions, chosen: &AnswerCommand<'_>) -> Result<u8, CommandFailure> {
    let AnswerCommand { ids, ref wish, json, .. } = *chosen;
    let mut client = OperatorClient::find(common)?;
    let ApprovalsView { approvals, blocks } = fetch_approvals(&mut client)?;
    let [start] = ids else {
        let rows = ids.iter().map(|start| find_by_id_start(&approvals, start, "open approval"));
        let rows = rows.collect::<Result<Vec<_>, CommandFailure>>()?;
        return NamedApprovals { rows, show: format_approval, wish: wish.clone(), yes: chosen.yes, json }
            .answer(&mut client);
    };
    let denials = || blocks.iter().filter(|block| block.is_denial() && *wish != OperatorAnswer::Deny);
    let (row, denial) = match find_by_id_start(&approvals, start, "open approval") {
        Err(failure) if failure.code == NO => {
            let denial = find_by_id_start(denials(), start, "open approval")?;
            (view_of_denial(denial), Some(denial))
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
            OperatorAnswer::Deny => {
                "; the same call stays refused for 10 minutes, which `headend grants` lists".to_owned()
            }
            OperatorAnswer::Once => ", once, with these arguments".to_owned(),
            OperatorAnswer::Session => ", for its session, any arguments".to_owned(),
            OperatorAnswer::For(_) => format!(", for {wish}, any arguments"),
            OperatorAnswer::Always => ", until it or its server changes, any arguments".to_owned(),
            OperatorAnswer::Below(base) => format!(", until it or its server changes, below {}", foreign::line(base)),
        };
        let [caller, kind, item] = [row.caller.name(), &row.kind, &row.item].map(foreign::line);
        let after = if outcome.is_late { format!("{TRY_AGAIN}\n") } else { String::new() };
        print(&format!("{}: {kind} {item} for caller {caller}{how_long}\n{after}", foreign::line(&outcome.word)))?;
    }
    let done = granted || *wish == OperatorAnswer::Deny;
    Ok(if done { OK } else { NO })
}

/// Builds the view of the approval that was denied from its block.
fn view_of_denial(denial: &BlockView) -> ApprovalView {
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
