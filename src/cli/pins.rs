//! `headend pins`: approved definitions and launches, their changes, and the operator's decisions.

use clap::{Args, Subcommand};

use self::book::{Book, Outcome};
use self::selection::{Chosen, Selection, counted};
use self::shown::Shown;
use super::exit::{NO, OK, USAGE};
use super::options::Common;
use super::output::{Failure, print};
use super::screen::{Colour, Column, Screen};
use super::terminal;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

mod book;
mod selection;
mod shown;

/// Pins that an error names; it counts the others.
const NAMED: usize = 20;

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct PinsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List every pin and its state. The default.
    List(ListArgs),
    /// Compare the waiting text with the approved one, word by word.
    Diff(Chosen),
    /// Approve the waiting texts: clients see and can call the items from then on.
    ///
    /// One item is approved by its name, on a terminal after a question; a tool that is pinned and new is confirmed by its name. An upstream's name, a pattern or --all
    /// approves everything of it that waits: headend shows all changes and then asks once. What changes between the question and the
    /// answer is left and goes on waiting.
    Approve {
        #[command(flatten)]
        decided: Decided,
        /// Approve without a question; without a terminal this is the only way to approve many at once. One item needs no question
        /// there.
        #[arg(long)]
        yes: bool,
    },
    /// Reject the waiting texts: the items stay hidden until they change once more.
    Reject(Decided),
}

#[derive(Clone, Copy, Debug, Args)]
struct ListArgs {
    /// List only what waits for approval.
    #[arg(long)]
    waiting: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct Decided {
    #[command(flatten)]
    chosen: Chosen,
    /// Decide about one item only if its text still has this digest, as `diff` printed it, or its beginning.
    #[arg(long)]
    digest: Option<String>,
}

pub(super) fn run(common: &Common, args: &PinsArgs) -> Result<u8, Failure> {
    let mut book = Book::open(common)?;
    match &args.action {
        None => list(&mut book, args.list),
        Some(Action::List(args)) => list(&mut book, *args),
        Some(Action::Diff(chosen)) => diff(&mut book, chosen),
        Some(Action::Approve { decided, yes }) => decide(&mut book, decided, Verdict::Approve { yes: *yes }),
        Some(Action::Reject(decided)) => decide(&mut book, decided, Verdict::Reject),
    }
}

fn list(book: &mut Book, args: ListArgs) -> Result<u8, Failure> {
    let mut pins = book.list()?;
    pins.retain(|pin| !args.waiting || Shown::read(pin).waits());
    if args.json {
        let mut out = RawObject::default();
        out.set("pins", RawJson::list(pins.iter().map(RawObject::encode)));
        return print(&format!("{}\n", out.encode().text()));
    }
    if args.waiting && pins.is_empty() {
        return print("nothing waits for approval\n");
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for shown in pins.iter().map(Shown::read) {
        let digest: String = shown.digest.chars().take(8).collect();
        let state = if shown.is_new { format!("{}, new", shown.state) } else { shown.state };
        rows.push([shown.name, shown.kind, state, digest, shown.why].to_vec());
    }
    let screen = Screen::of_stdout();
    let columns = [("NAME", 0), ("KIND", 0), ("STATE", 0), ("DIGEST", 2), ("WHY", 9)];
    let columns = columns.map(|(head, rank)| Column { head, rank });
    let is_beside = screen.fitting(&columns, &rows).contains(&4);
    // Where there is no room, only what is not as usual is told.
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

fn diff(book: &mut Book, chosen: &Chosen) -> Result<u8, Failure> {
    let colour = Screen::of_stdout().has_colours();
    let pins = summaries(book)?;
    // An upstream of which no item waits stands for its launch.
    let is_launch = |name: &String| {
        let of_it = || pins.iter().filter(|pin| pin.upstream == *name);
        of_it().any(Shown::is_launch) && !of_it().any(|pin| pin.waits() && !pin.is_launch())
    };
    let launch = chosen.launch || chosen.kind.is_none() && !chosen.all && chosen.names.iter().all(is_launch);
    match Selection::of(&pins, &Chosen { launch, ..chosen.clone() })? {
        Selection::Each(names) => {
            for (name, kind) in names {
                print(&book.find(&name, kind.as_deref())?.text(colour))?;
            }
            Ok(OK)
        }
        Selection::Many(pins) if pins.is_empty() => print("nothing waits for approval\n"),
        Selection::Many(pins) => {
            for shown in book.show(&pins)? {
                print(&format!("{}\n", shown.text(colour)))?;
            }
            Ok(OK)
        }
    }
}

#[derive(Clone, Copy)]
enum Verdict {
    Approve { yes: bool },
    Reject,
}

impl Verdict {
    fn method(self) -> &'static str {
        match self {
            Self::Approve { .. } => "pins.approve",
            Self::Reject => "pins.reject",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Approve { .. } => "approved",
            Self::Reject => "rejected",
        }
    }
}

fn decide(book: &mut Book, decided: &Decided, verdict: Verdict) -> Result<u8, Failure> {
    let pins = summaries(book)?;
    match Selection::of(&pins, &decided.chosen)? {
        Selection::Each(names) => each(book, &names, decided.digest.as_deref(), verdict),
        Selection::Many(_) if decided.digest.is_some() => {
            Err(Failure::new(USAGE, "--digest is about one item; name that item"))
        }
        Selection::Many(pins) if pins.is_empty() => print("nothing waits for approval\n"),
        Selection::Many(pins) => many(book, &pins, verdict),
    }
}

/// All pins without their texts.
fn summaries(book: &mut Book) -> Result<Vec<Shown>, Failure> {
    Ok(book.list()?.iter().map(Shown::read).collect())
}

/// Decides one after the other.
fn each(
    book: &mut Book,
    names: &[(String, Option<String>)],
    digest: Option<&str>,
    verdict: Verdict,
) -> Result<u8, Failure> {
    let colour = Screen::of_stdout().has_colours();
    for (name, kind) in names {
        let shown = book.find(name, kind.as_deref())?;
        let name = foreign::line(name);
        if let Some(wanted) = digest
            && (wanted.len() < 8 || !shown.digest.starts_with(wanted))
        {
            let text = format!("{name}: it changed, its digest is {} now; see `headend pins diff` again", shown.digest);
            return Err(Failure::new(NO, text));
        }
        // The decision is about the text printed here: its digest goes along.
        print(&shown.text(colour))?;
        // A digest says that its text was looked at before.
        let is_asked = matches!(verdict, Verdict::Approve { yes: false }) && (digest.is_none() || shown.is_launch());
        let question = match (shown.is_launch(), shown.waits()) {
            (true, _) => format!("\nStart {name} like this?"),
            (false, true) => format!("\nApprove this {} as shown?", foreign::line(&shown.kind)),
            (false, false) => format!("\nConfirm this {} as shown?", foreign::line(&shown.kind)),
        };
        if is_asked && terminal::is_here() && !terminal::ask(&question)? {
            return Err(Failure::new(NO, format!("not approved: {name}")));
        }
        book.decide(verdict.method(), &shown)?;
        print(&format!("{}: {name}\n", verdict.done()))?;
    }
    Ok(OK)
}

/// Shows all of them, asks once, and decides about the texts that were shown.
fn many(book: &mut Book, pins: &[Shown], verdict: Verdict) -> Result<u8, Failure> {
    let colour = Screen::of_stdout().has_colours();
    let (mut decided, mut left) = (Vec::with_capacity(pins.len()), Vec::new());
    for shown in book.show(pins)?.into_iter().filter(Shown::waits) {
        match shown.brief(colour) {
            Some(text) => {
                print(&format!("{text}\n"))?;
                decided.push(shown);
            }
            None => left.push(format!(
                "{} ({}): its text cannot be shown among others; name it alone to decide it",
                shown.name, shown.kind
            )),
        }
    }
    if let (Verdict::Approve { yes: false }, false) = (verdict, decided.is_empty()) {
        let what = counted(&decided);
        if !terminal::is_here() {
            let text = format!(
                "not approved: {what} wait, and there is no terminal to ask on; look at the changes above and repeat the \
                 command with --yes"
            );
            return Err(Failure::new(USAGE, text));
        }
        let these = if decided.len() == 1 { "this" } else { "these" };
        if !terminal::ask(&format!("Approve {these} {what}?"))? {
            return Err(Failure::new(NO, "nothing was approved"));
        }
    }
    let outcome = if decided.is_empty() { Outcome::default() } else { book.decide_all(verdict.method(), &decided)? };
    left.extend(outcome.left);
    if outcome.decided == decided.len() && !decided.is_empty() {
        print(&format!("{}: {}\n", verdict.done(), counted(&decided)))?;
    } else if outcome.decided > 0 {
        print(&format!("{}: {} of {}\n", verdict.done(), outcome.decided, counted(&decided)))?;
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
    Err(Failure::new(NO, text))
}
