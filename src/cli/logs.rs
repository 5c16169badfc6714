//! `headend logs NAME`.

use clap::Args;

use super::daemon;
use super::ends::end_when_unread;
use super::exit::OK;
use super::options::Common;
use super::output::{Failure, follow};
use super::screen::{Colour, Screen};
use super::status::unknown;
use crate::daemon::local_time::local_of;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

#[derive(Clone, Debug, Args)]
pub(super) struct LogsArgs {
    /// The upstream, as `headend status` lists it.
    name: String,
    /// Number of lines.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
    lines: u32,
    /// Print new lines as they come, until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
    /// Print JSON, one object for each line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(common: &Common, args: &LogsArgs) -> Result<u8, Failure> {
    let mut daemon = daemon::connect(common, "admin", None)?;
    let screen = Screen::of_stdout();
    if args.follow {
        end_when_unread();
    }
    let (mut log, mut last) = (None::<RawJson>, None::<RawJson>);
    loop {
        let mut params = RawObject::of_strings(&[("name", &args.name)]);
        for (name, value) in [("log", &log), ("after", &last)] {
            if let Some(value) = value {
                params.set(name, value.clone());
            }
        }
        match last {
            Some(_) => params.set("wait", RawJson::boolean(true)),
            None => params.set("most", RawJson::number(args.lines)),
        }
        let answer = daemon.ask("logs", Some(&params.encode().text()));
        let answer = answer.map_err(|failure| unknown(&mut daemon, &args.name, failure))?;
        let lines = answer.list("lines").unwrap_or_default();
        let text: String = lines.iter().map(|line| shown(screen, line, args.json)).collect();
        let is_read = text.is_empty() || follow(&text)?;
        if !args.follow || !is_read {
            return Ok(OK);
        }
        (log, last) = (answer.get("log").cloned(), answer.get("last").cloned());
    }
}

/// A line: its time, its text, and a mark where it is headend's own.
fn shown(screen: Screen, line: &RawJson, json: bool) -> String {
    if json {
        return foreign::json(&line.text()) + "\n";
    }
    let line = RawObject::parse(line).unwrap_or_default();
    let [time, from, text] = ["time", "from", "text"].map(|name| line.string(name).unwrap_or_default());
    let (time, text) =
        (screen.paint(Colour::Pale, &foreign::line(&local_of(&time))), foreign::line(&text).into_owned());
    // A program cannot write the mark: all of its lines stand behind a bar.
    if from == "stderr" {
        format!("{time} | {text}\n")
    } else {
        format!("{time} {}\n", screen.paint(Colour::Busy, &format!("* {text}")))
    }
}
