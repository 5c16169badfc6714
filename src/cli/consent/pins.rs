//! The command `headend pins`: lists approved definitions and launches, shows their changes, and
//! sends the operator's decisions.

use clap::{Args, Subcommand};

use self::selection::{PinSelection, PinSelectionArgs, describe_counts};
use crate::cli::exit::{NO, OK, UNAVAILABLE, USAGE};
use crate::cli::reach::operator::OperatorClient;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print, print_json};
use crate::cli::words::screen::{Colour, Column, Screen};
use crate::cli::words::terminal;
use crate::operator::pins::{DecidedPinsView, PinDecision, PinKind, PinView, PinsView};
use crate::operator::request::{NoParams, PinItem, PinItems, PinName, PinsParams, Request};
use crate::policy::Digest;
use crate::wire::foreign;

mod selection;
mod shown;

/// Pins whose texts one request fetches.
const SHOWN_AT_ONCE: usize = 20;
/// Pins that one request decides.
const DECIDED_AT_ONCE: usize = 500;
/// Pins that an error lists by name; it counts the rest.
const NAMED: usize = 20;

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct PinsArgs {
    #[command(subcommand)]
    action: Option<PinsAction>,
    #[command(flatten)]
    list: PinsListArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum PinsAction {
    /// List every pin and its state. The default.
    List(PinsListArgs),
    /// Compare the waiting text with the approved one, word by word.
    Diff(PinSelectionArgs),
    /// Approve the waiting texts: clients see and can call the items from then on.
    ///
    /// One item is approved by its name, on a terminal after a question; a tool that is pinned and
    /// new is confirmed by its name. An upstream's name, a pattern or --all approves everything of
    /// it that waits: headend shows all changes and then asks once. What changes between the
    /// question and the answer is left and goes on waiting.
    Approve {
        #[command(flatten)]
        decided: PinDecisionArgs,
        /// Approve without a question; without a terminal this is the only way to approve many at
        /// once. One item needs no question there.
        #[arg(long)]
        yes: bool,
    },
    /// Reject the waiting texts: the items stay hidden until they change once more.
    Reject(PinDecisionArgs),
}

#[derive(Clone, Copy, Debug, Args)]
struct PinsListArgs {
    /// List only what waits for approval.
    #[arg(long)]
    waiting: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct PinDecisionArgs {
    #[command(flatten)]
    chosen: PinSelectionArgs,
    /// Decide about one item only if its text still has this digest, as `diff` printed it, or its
    /// beginning.
    #[arg(long)]
    digest: Option<String>,
}

pub(in crate::cli) fn run(common: &CommonOptions, args: &PinsArgs) -> Result<u8, CommandFailure> {
    let mut client = OperatorClient::find_something(common)?;
    match &args.action {
        None => list(&mut client, args.list),
        Some(PinsAction::List(args)) => list(&mut client, *args),
        Some(PinsAction::Diff(chosen)) => diff(&mut client, chosen),
        Some(PinsAction::Approve { decided, yes }) => decide(&mut client, decided, PinVerdict::Approve { yes: *yes }),
        Some(PinsAction::Reject(decided)) => decide(&mut client, decided, PinVerdict::Reject),
    }
}

fn list(client: &mut OperatorClient, args: PinsListArgs) -> Result<u8, CommandFailure> {
    let mut pins = fetch_pins(client)?;
    pins.retain(|pin| !args.waiting || pin.waits());
    if args.json {
        return print_json(&PinsView { pins });
    }
    if args.waiting && pins.is_empty() {
        return print("nothing waits for approval\n");
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for pin in pins {
        let digest = pin.shown().map(|digest| digest.short()).unwrap_or_default();
        let state = format!("{}{}", pin.state.into_str(), if pin.is_new { ", new" } else { "" });
        rows.push([pin.name, pin.kind.into_str().to_owned(), state, digest, pin.by].to_vec());
    }
    let screen = Screen::of_stdout();
    let columns = [("NAME", 0), ("KIND", 0), ("STATE", 0), ("DIGEST", 2), ("WHY", 9)];
    let columns = columns.map(|(head, rank)| Column { head, rank });
    let is_beside = screen.fitting(&columns, &rows).contains(&4);
    // If the table has no room for the reasons, only unusual states get a note.
    let note = |at: usize| {
        rows.get(at).filter(|row| !is_beside && row.get(2).is_some_and(|state| state != "pinned"))?.get(4).cloned()
    };
    let coloured = |head: &str, cell: &str| match (head, cell) {
        ("STATE", "pinned") => Some(Colour::Pale),
        ("STATE", "pinned, new") => Some(Colour::Busy),
        ("STATE", _) => Some(Colour::Bad),
        _ => None,
    };
    let hint = if args.waiting {
        "\nlook at a change with `headend pins diff NAME`, then `headend pins approve NAME` or `reject NAME`;\n\
         an upstream's name is all of its items that wait, --launch its launch\n"
    } else {
        ""
    };
    print(&format!("{}{hint}", screen.table(&columns, &rows, coloured, note)))
}

/// Prints the selected pins with their texts, the waiting ones compared with the approved ones.
fn diff(client: &mut OperatorClient, chosen: &PinSelectionArgs) -> Result<u8, CommandFailure> {
    let colour = Screen::of_stdout().has_colours();
    let pins = fetch_pins(client)?;
    // The name of an upstream without waiting items means its launch.
    let is_launch = |name: &String| {
        let of_it = || pins.iter().filter(|pin| pin.upstream == *name);
        let launch = |pin: &PinView| pin.kind == PinKind::Launch;
        of_it().any(launch) && !of_it().any(|pin| pin.waits() && !launch(pin))
    };
    let launch = chosen.launch || chosen.kind.is_none() && !chosen.all && chosen.names.iter().all(is_launch);
    match PinSelection::of(&pins, &PinSelectionArgs { launch, ..chosen.clone() })? {
        PinSelection::Each(names) => {
            for name in names {
                print(&shown::text(&client.ask(&Request::Pin(name))?, colour))?;
            }
            Ok(OK)
        }
        PinSelection::Many(pins) if pins.is_empty() => print("nothing waits for approval\n"),
        PinSelection::Many(pins) => {
            for shown in fetch_texts(client, &pins)? {
                print(&format!("{}\n", shown::text(&shown, colour)))?;
            }
            Ok(OK)
        }
    }
}

#[derive(Clone, Copy)]
enum PinVerdict {
    Approve { yes: bool },
    Reject,
}

impl PinVerdict {
    fn request(self, params: PinsParams) -> Request {
        match self {
            Self::Approve { .. } => Request::ApprovePins(params),
            Self::Reject => Request::RejectPins(params),
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Approve { .. } => "approved",
            Self::Reject => "rejected",
        }
    }
}

/// Approves or rejects the selected pins: named ones each alone, waiting ones all at once.
fn decide(client: &mut OperatorClient, decided: &PinDecisionArgs, verdict: PinVerdict) -> Result<u8, CommandFailure> {
    let pins = fetch_pins(client)?;
    match PinSelection::of(&pins, &decided.chosen)? {
        PinSelection::Each(names) => decide_each(client, names, decided.digest.as_deref(), verdict),
        PinSelection::Many(_) if decided.digest.is_some() => {
            Err(CommandFailure::new(USAGE, "--digest is about one item; name that item"))
        }
        PinSelection::Many(pins) if pins.is_empty() => print("nothing waits for approval\n"),
        PinSelection::Many(pins) => decide_together(client, &pins, verdict),
    }
}

/// Fetches all pins without their texts.
fn fetch_pins(client: &mut OperatorClient) -> Result<Vec<PinView>, CommandFailure> {
    client.ask(&Request::Pins(NoParams {})).map(|PinsView { pins }| pins)
}

/// Fetches these pins with their texts. Pins that no longer exist are missing in the result.
fn fetch_texts(client: &mut OperatorClient, pins: &[PinView]) -> Result<Vec<PinView>, CommandFailure> {
    let mut out = Vec::with_capacity(pins.len());
    for some in pins.chunks(SHOWN_AT_ONCE) {
        let items = some.iter().map(|pin| PinItem { name: pin.name.clone(), kind: pin.kind }).collect();
        out.extend(client.ask::<PinsView>(&Request::PinTexts(PinItems { items }))?.pins);
    }
    Ok(out)
}

/// Returns the digest of the shown text. Fails with 69 if the pin has none.
fn digest(pin: &PinView) -> Result<Digest, CommandFailure> {
    pin.shown().ok_or_else(|| CommandFailure::new(UNAVAILABLE, "the pin has no digest"))
}

/// Shows each pin, asks about it if necessary, and sends the decision. `wanted` is the digest of
/// `--digest`.
fn decide_each(
    client: &mut OperatorClient,
    names: Vec<PinName>,
    wanted: Option<&str>,
    verdict: PinVerdict,
) -> Result<u8, CommandFailure> {
    let colour = Screen::of_stdout().has_colours();
    for name in names {
        let shown: PinView = client.ask(&Request::Pin(name))?;
        let (name, kind, is_launch) = (foreign::line(&shown.name), shown.kind, shown.kind == PinKind::Launch);
        if let Some(wanted) = wanted
            && (wanted.len() < 8 || !shown::digest(&shown).starts_with(wanted))
        {
            let text = format!(
                "{name}: it changed, its digest is {} now; see `headend pins diff` again",
                shown::digest(&shown)
            );
            return Err(CommandFailure::new(NO, text));
        }
        // The decision is about the text printed here, so its digest is sent with it.
        print(&shown::text(&shown, colour))?;
        // `--digest` states that the text was read before.
        let is_asked = matches!(verdict, PinVerdict::Approve { yes: false }) && (wanted.is_none() || is_launch);
        let question = match (is_launch, shown.waits()) {
            (true, _) => format!("\nStart {name} like this?"),
            (false, true) => format!("\nApprove this {} as shown?", kind.into_str()),
            (false, false) => format!("\nConfirm this {} as shown?", kind.into_str()),
        };
        if is_asked && terminal::is_here() && !terminal::ask(&question)? {
            return Err(CommandFailure::new(NO, format!("not approved: {name}")));
        }
        let decided = Some(digest(&shown)?);
        let params = PinsParams { items: None, name: Some(shown.name.clone()), kind: Some(kind), digest: decided };
        client.ask::<PinView>(&verdict.request(params))?;
        print(&format!("{}: {name}\n", verdict.done()))?;
    }
    Ok(OK)
}

/// Shows all waiting texts, asks once, and sends the decisions about the shown texts.
fn decide_together(client: &mut OperatorClient, pins: &[PinView], verdict: PinVerdict) -> Result<u8, CommandFailure> {
    let colour = Screen::of_stdout().has_colours();
    let (mut decided, mut left) = (Vec::with_capacity(pins.len()), Vec::new());
    for shown in fetch_texts(client, pins)?.into_iter().filter(PinView::waits) {
        match shown::brief(&shown, colour) {
            Some(text) => {
                print(&format!("{text}\n"))?;
                decided.push(shown);
            }
            None => left.push(format!(
                "{} ({}): its text cannot be shown among others; name it alone to decide it",
                shown.name,
                shown.kind.into_str()
            )),
        }
    }
    if let (PinVerdict::Approve { yes: false }, false) = (verdict, decided.is_empty()) {
        let what = describe_counts(&decided);
        if !terminal::is_here() {
            let text = format!(
                "not approved: {what} wait, and there is no terminal to ask on; look at the changes above and repeat the \
                 command with --yes"
            );
            return Err(CommandFailure::new(USAGE, text));
        }
        let these = if decided.len() == 1 { "this" } else { "these" };
        if !terminal::ask(&format!("Approve {these} {what}?"))? {
            return Err(CommandFailure::new(NO, "nothing was approved"));
        }
    }
    let mut count = 0;
    for some in decided.chunks(DECIDED_AT_ONCE) {
        let item = |pin: &PinView| Ok(PinDecision { name: pin.name.clone(), kind: pin.kind, shown: digest(pin)? });
        let items = some.iter().map(item).collect::<Result<Vec<_>, CommandFailure>>()?;
        let params = PinsParams { items: Some(items), ..PinsParams::default() };
        let outcome: DecidedPinsView = client.ask(&verdict.request(params))?;
        count += outcome.decided;
        left.extend(outcome.left.iter().map(|pin| format!("{} ({}): {}", pin.name, pin.kind.into_str(), pin.why)));
    }
    if count == decided.len() && !decided.is_empty() {
        print(&format!("{}: {}\n", verdict.done(), describe_counts(&decided)))?;
    } else if count > 0 {
        print(&format!("{}: {} of {}\n", verdict.done(), count, describe_counts(&decided)))?;
    }
    if left.is_empty() {
        return Ok(OK);
    }
    let more = left.len().saturating_sub(NAMED);
    let mut text = format!("not {}:", verdict.done());
    left.iter().take(NAMED).for_each(|line| text.push_str(&format!("\n  {}", foreign::line(line))));
    if more > 0 {
        text.push_str(&format!("\n  and {more} more"));
    }
    Err(CommandFailure::new(NO, text))
}
