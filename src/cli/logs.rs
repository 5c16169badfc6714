//! The command `headend logs NAME`: prints the recent output of an upstream.

use clap::Args;

use super::exit::OK;
use super::status::suggest_upstream;
use crate::cli::reach::daemon;
use crate::cli::service::ends::end_when_unread;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, follow, json_line};
use crate::cli::words::screen::{Colour, Screen};
use crate::daemon::local_time::local_of;
use crate::operator::logs::{LogLineView, LogView};
use crate::operator::request::{LogsParams, Request};
use crate::wire::foreign;

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

pub(super) fn run(common: &CommonOptions, args: &LogsArgs) -> Result<u8, CommandFailure> {
    let mut daemon = daemon::connect(common, "admin", None)?;
    let screen = Screen::of_stdout();
    if args.follow {
        end_when_unread();
    }
    let mut params = LogsParams { name: args.name.clone(), ..LogsParams::default() };
    params.most = usize::try_from(args.lines).ok();
    loop {
        let answer = daemon.ask(&Request::Logs(params.clone()));
        let LogView { log, last, lines } =
            answer.map_err(|failure| suggest_upstream(&mut daemon, &args.name, failure))?;
        let mut text = String::new();
        for line in &lines {
            text.push_str(&format_line(screen, line, args.json)?);
        }
        let is_read = text.is_empty() || follow(&text)?;
        if !args.follow || !is_read {
            return Ok(OK);
        }
        params = LogsParams { log: Some(log), after: Some(last), wait: true, most: None, ..params };
    }
}

/// Formats a line of the log: its time, its text, and a mark if headend wrote it.
fn format_line(screen: Screen, line: &LogLineView, json: bool) -> Result<String, CommandFailure> {
    if json {
        return json_line(line);
    }
    let time = screen.paint(Colour::Pale, &foreign::line(&local_of(&line.time)));
    let text = foreign::line(&line.text);
    // A program cannot forge the mark, since each of its lines follows a bar.
    Ok(if line.from == "stderr" {
        format!("{time} | {text}\n")
    } else {
        format!("{time} {}\n", screen.paint(Colour::Busy, &format!("* {text}")))
    })
}
