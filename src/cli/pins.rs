//! `headend pins`: approved definitions and launches, their changes, and the operator's decisions.

use std::io::IsTerminal as _;
use std::sync::Arc;

use clap::{Args, Subcommand};
use parking_lot::Mutex;

use super::exit::{NO, OK, SOFTWARE, TEMPFAIL, UNAVAILABLE};
use super::options::Common;
use super::output::{Failure, print, table};
use super::{daemon, source};
use crate::store::audit::Journal;
use crate::store::db::Db;
use crate::store::directory::Store;
use crate::store::pins::{PinChange, PinKind, PinView, Pins};
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::foreign::changes::{Change, changes};
use crate::wire::layout::indented;
use crate::wire::raw::{RawJson, RawObject};

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct PinsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List every pin and its state.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compare the waiting text with the approved one, word by word.
    Diff(Named),
    /// Approve the text that `diff` shows: clients see and can call the item from then on.
    Approve(Decided),
    /// Reject the text: the item stays hidden until it changes once more.
    Reject(Decided),
}

#[derive(Clone, Debug, Args)]
struct Named {
    /// A canonical name as `headend pins` lists it, or an upstream's name for its launch.
    name: String,
    /// Kind, if several items have that name: tool, prompt, resource, template or launch.
    #[arg(long)]
    kind: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct Decided {
    /// Canonical names as `headend pins` lists them, or an upstream's name for its launch.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Kind, if several items have that name: tool, prompt, resource, template or launch.
    #[arg(long)]
    kind: Option<String>,
    /// Decide only if the text still has this digest, as `diff` printed it, or its beginning.
    #[arg(long)]
    digest: Option<String>,
}

pub(super) fn run(common: &Common, args: &PinsArgs) -> Result<u8, Failure> {
    let mut book = Book::open(common)?;
    match &args.action {
        None => list(&mut book, args.json),
        Some(Action::List { json }) => list(&mut book, *json),
        Some(Action::Diff(named)) => {
            let shown = book.find(&named.name, named.kind.as_deref())?;
            print(&shown.text(std::io::stdout().is_terminal()))
        }
        Some(Action::Approve(decided)) => decide(&mut book, decided, true),
        Some(Action::Reject(decided)) => decide(&mut book, decided, false),
    }
}

fn list(book: &mut Book, json: bool) -> Result<u8, Failure> {
    let answer = book.list()?;
    if json {
        return print(&format!("{}\n", answer.encode().text()));
    }
    let mut rows: Vec<Vec<String>> = vec![["NAME", "KIND", "STATE", "DIGEST", "WHY"].map(String::from).to_vec()];
    for pin in answer.list("pins").unwrap_or_default() {
        let Some(shown) = RawObject::parse(&pin).ok().map(|object| Shown::read(&object)) else { continue };
        let digest: String = shown.digest.chars().take(8).collect();
        rows.push([shown.name, shown.kind, shown.state, digest, shown.why].to_vec());
    }
    print(&table(&rows))
}

fn decide(book: &mut Book, decided: &Decided, approve: bool) -> Result<u8, Failure> {
    let (word, done) = if approve { ("pins.approve", "approved") } else { ("pins.reject", "rejected") };
    let colour = std::io::stdout().is_terminal();
    for name in &decided.names {
        let shown = book.find(name, decided.kind.as_deref())?;
        if let Some(wanted) = &decided.digest
            && (wanted.len() < 8 || !shown.digest.starts_with(wanted.as_str()))
        {
            let name = foreign::line(name);
            let text = format!("{name}: it changed, its digest is {} now; see `headend pins diff` again", shown.digest);
            return Err(Failure::new(NO, text));
        }
        // The decision is about the text printed here: its digest goes along.
        print(&shown.text(colour))?;
        book.decide(word, &shown)?;
        print(&format!("{done}: {}\n", foreign::line(name)))?;
    }
    Ok(OK)
}

/// A pin for display.
struct Shown {
    name: String,
    kind: String,
    state: String,
    why: String,
    approved: Option<String>,
    waiting: Option<String>,
    /// Of the waiting text, else of the approved one.
    digest: String,
}

impl Shown {
    fn read(object: &RawObject) -> Self {
        let text = |name: &str| object.string(name).unwrap_or_default();
        Self {
            name: text("name"),
            kind: text("kind"),
            state: text("state"),
            why: text("why"),
            approved: object.string("approved"),
            waiting: object.string("waiting"),
            digest: object.string("waiting-digest").unwrap_or_else(|| text("approved-digest")),
        }
    }

    /// For people: foreign characters that could steer a terminal are visible.
    fn text(&self, colour: bool) -> String {
        let lines = |text: &Option<String>| text.as_deref().map(indented);
        let [name, kind, state, why] = [&self.name, &self.kind, &self.state, &self.why].map(|text| foreign::line(text));
        let mut out = format!("{name} ({kind}): {state}, {why}\n");
        match (lines(&self.approved), lines(&self.waiting)) {
            (Some(old), Some(new)) => out.push_str(&words(&old, &new, colour)),
            (old, new) => out.push_str(&foreign::block(&new.or(old).unwrap_or_default())),
        }
        out.push_str(&format!("\ndigest {}\n", foreign::line(&self.digest)));
        out
    }
}

/// A difference by words: `-[old]-` and `+[new]+`, coloured on a terminal.
fn words(old: &str, new: &str, colour: bool) -> String {
    let mark = |colours: &str, open: &str, text: &str, close: &str| {
        let (on, off) = if colour { (colours, "\u{1b}[0m") } else { ("", "") };
        format!("{on}{open}{text}{close}{off}")
    };
    let told = changes(old, new).into_iter().map(|(change, text)| match change {
        Change::Kept => text,
        Change::Removed => mark("\u{1b}[31m", "-[", &text, "]-"),
        Change::Added => mark("\u{1b}[32m", "+[", &text, "]+"),
    });
    told.collect()
}

/// The pins of the running daemon, else those on disk.
enum Book {
    Daemon(daemon::Daemon),
    Disk(Disk),
}

/// The pins of a store without a daemon.
struct Disk {
    common: Common,
    db: Db,
    pins: Pins,
    runtime: tokio::runtime::Runtime,
    /// Changes that are not recorded yet.
    news: Arc<Mutex<Vec<PinChange>>>,
}

impl Book {
    fn open(common: &Common) -> Result<Self, Failure> {
        match daemon::connect(common, "admin", None) {
            Ok(daemon) => Ok(Self::Daemon(daemon)),
            Err(failure) => {
                let store = source::existing_store(common)?.filter(Store::has_db);
                let Some(store) = store else { return Err(failure) };
                let fault = |error: &dyn std::fmt::Display| Failure::new(SOFTWARE, error);
                let unusable = |error| Failure::new(TEMPFAIL, error);
                let db = store.db().map_err(unusable)?;
                let pins = Pins::open(db.clone()).map_err(unusable)?;
                let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| fault(&error))?;
                let news = Arc::new(Mutex::new(Vec::new()));
                let told = Arc::clone(&news);
                pins.on_change(Box::new(move |change| {
                    told.lock().push(change.clone());
                }));
                Ok(Self::Disk(Disk { common: common.clone(), db, pins, runtime, news }))
            }
        }
    }

    fn list(&mut self) -> Result<RawObject, Failure> {
        match self {
            Self::Daemon(daemon) => daemon.ask("pins.list", None),
            Self::Disk(disk) => parsed(&crate::daemon::admin::listed(&disk.pins.list())),
        }
    }

    fn find(&mut self, name: &str, kind: Option<&str>) -> Result<Shown, Failure> {
        let object = match self {
            Self::Daemon(daemon) => daemon.ask("pins.diff", Some(&params(name, kind, None)))?,
            Self::Disk(disk) => {
                let view = disk.pins.find(name, parse(kind)?).map_err(|error| Failure::new(NO, error))?;
                parsed(&view.to_json(true))?
            }
        };
        Ok(Shown::read(&object))
    }

    fn decide(&mut self, method: &str, shown: &Shown) -> Result<(), Failure> {
        match self {
            Self::Daemon(daemon) => {
                let params = params(&shown.name, Some(&shown.kind), Some(&shown.digest));
                daemon.ask(method, Some(&params)).map(drop)
            }
            Self::Disk(disk) => disk.decide(method, shown),
        }
    }
}

impl Disk {
    fn decide(&self, method: &str, shown: &Shown) -> Result<(), Failure> {
        let kind = parse(Some(&shown.kind))?;
        let digest =
            Digest::from_hex(&shown.digest).ok_or_else(|| Failure::new(UNAVAILABLE, "the pin has no digest"))?;
        let unrecorded = |why| Failure::new(TEMPFAIL, format!("not decided, since the log cannot record it: {why}"));
        // Before the decision: a change that cannot be recorded is not approved.
        let journal = Journal::open(&self.db, &source::audit(&self.common)).map_err(unrecorded)?;
        let decided = self.runtime.block_on(async {
            if method == "pins.approve" {
                self.pins.approve(&shown.name, kind, digest, "local").await
            } else {
                self.pins.reject(&shown.name, kind, digest, "local").await
            }
        });
        let news = std::mem::take(&mut *self.news.lock());
        journal.write(news.iter().map(PinChange::entry)).map_err(unrecorded)?;
        decided.map(|_: PinView| ()).map_err(|error| Failure::new(NO, error))
    }
}

fn parse(kind: Option<&str>) -> Result<Option<PinKind>, Failure> {
    let Some(word) = kind else { return Ok(None) };
    PinKind::parse(word).map(Some).ok_or_else(|| Failure::new(NO, format!("there is no kind {word:?}")))
}

fn parsed(json: &RawJson) -> Result<RawObject, Failure> {
    RawObject::parse(json).map_err(|error| Failure::new(SOFTWARE, error))
}

fn params(name: &str, kind: Option<&str>, digest: Option<&str>) -> String {
    let mut object = RawObject::default();
    for (member, value) in [("name", Some(name)), ("kind", kind), ("digest", digest)] {
        if let Some(value) = value {
            object.set(member, RawJson::string(value));
        }
    }
    object.encode().text().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_reads_word_by_word_and_steers_no_terminal() {
        let shown = |approved: Option<&str>, waiting: Option<&str>| Shown {
            name: "fx__a\u{1b}[2J".to_owned(),
            kind: "tool".to_owned(),
            state: "changed".to_owned(),
            why: "the upstream changed it".to_owned(),
            approved: approved.map(str::to_owned),
            waiting: waiting.map(str::to_owned),
            digest: "d1".to_owned(),
        };
        let (old, new) =
            (r#"{"description":"Reads a file."}"#, r#"{"description":"Sends a file.\u001b[31m\u202e\u3164\n\u2028x"}"#);
        let text = shown(Some(old), Some(new)).text(false);
        assert!(text.contains(r#""description": -["Reads]-+["Sends]+ a "#), "{text}");
        for hidden in ['\u{1b}', '\u{202e}', '\u{3164}', '\u{2028}'] {
            assert!(!text.contains(hidden), "{text:?}");
        }
        assert!(shown(Some(old), Some(new)).text(true).contains("\u{1b}[32m"), "colours of our own");
        assert!(shown(None, Some(new)).text(false).contains("Sends"));
        assert!(!shown(Some(old), None).text(false).contains("-["));
        let of = |maximum: &str| format!(r#"{{"maximum":{maximum}}}"#);
        let text = shown(Some(&of("12345678901234567890123")), Some(&of("12345678901234567890124"))).text(false);
        assert!(text.contains("-[12345678901234567890123]-+[12345678901234567890124]+"), "digits are kept: {text}");
    }
}
