//! The command `headend add`: shows one server, starts it on trial, and adds it to the
//! configuration.
//!
//! The configuration is written after the server has answered or has asked for a login, so every
//! failure leaves it as it was.

use std::path::Path;

use clap::Args;

use crate::cli::exit::{CONFIG, NO, TEMPFAIL, USAGE};
use crate::cli::reach::source::{self, CommandConfig};
use crate::cli::setup::edit::{FileEdit, MOST_SHOWN, find_daemon};
use crate::cli::setup::import::{ImportTarget, SingleServer, SingleTable};
use crate::cli::setup::init::FIRST;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print};
use crate::cli::words::screen::{Screen, shortened};
use crate::cli::words::terminal;
use crate::config::{ConfigWarning, UpstreamSettings, preflight};
use crate::operator::upstreams::program_of;
use crate::wire::foreign;

mod trial;
mod version;

use self::trial::TriedServer;

/// Most tools that are shown, and most columns of a name.
const MOST_TOOLS: usize = 100;
const MOST_NAME: usize = 40;

#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct AddArgs {
    /// The name of the upstream, which begins the names of its tools; a server.json has one.
    #[arg(value_name = "NAME")]
    name: String,
    /// The address of a server, or a server.json of the registry.
    #[arg(value_name = "URL|FILE")]
    target: Option<String>,
    /// The program of a server and its arguments, behind `--`.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "target")]
    command: Vec<String>,
    /// Set a variable of the program, or an input of a server.json; `${VAR}` is read from headend's
    /// environment at each start.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Let headend read a variable of the program at each start: from its own variable of that
    /// name, or from a file. For secrets.
    #[arg(long, value_name = "NAME[=FILE]")]
    env_from: Vec<String>,
    /// Send a header to the server; `${VAR}` and `${file:PATH}` are read at each start.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// How far headend trusts what the server says of its tools. [default: standard]
    #[arg(long, value_parser = ["untrusted", "standard", "trusted"])]
    trust: Option<String>,
    /// Add it without a question.
    #[arg(long)]
    yes: bool,
    /// Print what would be added; start and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(in crate::cli) fn run(common: &CommonOptions, args: &AddArgs) -> Result<u8, CommandFailure> {
    let mut server = describe(args)?;
    set_values(args, &mut server).map_err(usage)?;
    let target = ImportTarget::read(source::find_writable_file(common)?);
    let target = target.map_err(|why| CommandFailure::new(CONFIG, why))?;
    let is_named = args.target.is_some() || !args.command.is_empty();
    let name = server.name.clone().filter(|_| !is_named).unwrap_or_else(|| args.name.clone());
    if target.upstreams.contains(&name) {
        let text = format!("an upstream `{name}` is there already; take another name, or `headend remove {name}`");
        return Err(CommandFailure::new(NO, text));
    }
    let daemon = find_daemon(common, &target.path)?;
    let mut addition = Addition::build(args, &server, &name, &target)?;
    addition.check_program()?;
    if let Some(version) = version::find_newest(&addition.upstream, server.words())? {
        server.pin(&version);
        addition = Addition::build(args, &server, &name, &target)?;
    }
    print(&addition.preview(&target))?;
    if args.dry_run {
        return print("");
    }
    addition.check_values()?;
    let failed = |why: String| CommandFailure::new(TEMPFAIL, why);
    let after = target.with_addition(&addition.text).map_err(failed)?;
    confirm(args.yes, &format!("Start {name} and add it?"))?;
    let tried = trial::start(addition.loaded, &name)?;
    print(&describe_trial(&name, &tried))?;
    let path = target.make_folder().map_err(failed)?;
    let edit = FileEdit { main: &target.path, path: &path, before: target.text.as_deref(), after: &after };
    let plan = edit.put_in_force(daemon, None, |_| {})?;
    let screen = Screen::of_stdout();
    let mut out = screen.paragraph(&format!("added {name} to {}{plan}", path.display()));
    if !addition.table.variables.is_empty() {
        let names: Vec<&str> = addition.table.variables.iter().map(|(name, _)| name.as_str()).collect();
        let where_to = "read from the environment at each start of the server: set it where headend runs, too";
        out += &screen.paragraph(&format!("{}: {where_to}", names.join(", ")));
    }
    if matches!(tried, TriedServer::Closed) {
        out += &screen.paragraph(&format!("{name} needs a login: `headend login {name}`, once headend runs"));
    }
    print(&out)
}

/// The table of a server with the configuration that it is a part of.
struct Addition {
    table: SingleTable,
    /// Text to add to the file. In a new file the table stands behind what `headend init` writes.
    text: String,
    loaded: CommandConfig,
    upstream: UpstreamSettings,
}

impl Addition {
    fn build(args: &AddArgs, server: &SingleServer, name: &str, target: &ImportTarget) -> Result<Self, CommandFailure> {
        let mut table = server.table(name, target).map_err(usage)?;
        table.text.extend(args.trust.as_ref().map(|trust| format!("trust = \"{trust}\"\n")));
        let text = format!("{}\n{}", if target.is_there() { "" } else { FIRST }, table.text);
        let loaded = source::load_trial(target.is_there().then(|| target.path.clone()), text.clone())?;
        let upstream = loaded.config.upstreams.iter().find(|upstream| upstream.name.as_str() == name);
        let upstream = upstream.cloned().ok_or_else(|| usage("the table names no upstream"))?;
        Ok(Self { table, text, loaded, upstream })
    }

    /// Checks that the program and the directory of the server exist.
    ///
    /// # Errors
    /// 1 with the missing ones.
    fn check_program(&self) -> Result<(), CommandFailure> {
        let mut alone = self.loaded.config.clone();
        alone.upstreams = vec![self.upstream.clone()];
        let missing = preflight(&alone);
        if missing.is_empty() { Ok(()) } else { Err(CommandFailure::new(NO, missing.join("\n"))) }
    }

    /// Checks that all variables of the server have values.
    ///
    /// # Errors
    /// 1 with the missing ones.
    fn check_values(&self) -> Result<(), CommandFailure> {
        if self.upstream.lacks.is_empty() {
            return Ok(());
        }
        let is_missing = |(name, _): &&(String, String)| source::environment(name).is_none();
        let missing: Vec<String> =
            self.table.variables.iter().filter(is_missing).map(|(name, about)| format!("{name}: {about}")).collect();
        let missing = if missing.is_empty() { &self.upstream.lacks } else { &missing };
        let next = "Give each by `--env NAME=VALUE`. What looks like a secret is not written to the configuration: \
             `export NAME=...` here and where headend runs, or keep it in a file and write `--env-from NAME=FILE`.";
        Err(CommandFailure::new(NO, format!("these values are missing:\n  {}\n{next}", missing.join("\n  "))))
    }

    /// Formats the table exactly as it would be written, the program that it leads to, and warnings
    /// about it.
    fn preview(&self, target: &ImportTarget) -> String {
        let screen = Screen::of_stdout();
        let mut out = screen.paragraph(&format!("for {}:", target.path.display()));
        for line in self.table.text.lines() {
            out.push_str(&screen.folded(&format!("  {}", foreign::line(line)), 4));
        }
        let program = program_of(&self.upstream).map(|path| format!("program: {}", path.display()));
        let own = format!("upstreams.{}.", self.upstream.name);
        let is_new = |warning: &&ConfigWarning| {
            let is_told = |lack: &String| lack.ends_with(&warning.message);
            warning.path.starts_with(&own) && !self.upstream.lacks.iter().any(is_told)
        };
        let warnings =
            self.loaded.warnings.iter().filter(is_new).map(|warning| format!("warning: {}", warning.message));
        out + &program.into_iter().chain(warnings).map(|line| screen.paragraph(&line)).collect::<String>()
    }
}

/// Converts a text to the failure of a wrong command line.
fn usage(why: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::new(USAGE, why)
}

/// Reads what the command line says about the server.
fn describe(args: &AddArgs) -> Result<SingleServer, CommandFailure> {
    let last = args.target.as_ref().unwrap_or(&args.name);
    let described = match &args.target {
        None if !args.command.is_empty() => Ok(SingleServer::new(args.command.clone(), None)),
        // The text may hold a secret, so it is not repeated.
        Some(url) if has_credential(url) => {
            Err("an address has no user, password or `#`; write a credential as --header 'NAME: VALUE'".to_owned())
        }
        Some(url) if url.contains("://") => Ok(SingleServer::new(Vec::new(), Some(url))),
        _ if Path::new(last).is_file() => SingleServer::of_file(Path::new(last)),
        _ => Err(format!(
            "`{}` is neither an address nor a file. Write `headend add NAME URL`, `headend add NAME -- COMMAND` or \
             `headend add server.json`",
            foreign::short(last, MOST_SHOWN)
        )),
    };
    described.map_err(usage)
}

/// Returns true for an address with a user, a password or a fragment.
fn has_credential(address: &str) -> bool {
    let authority = address.split_once("://").map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or(rest));
    authority.is_some_and(|authority| authority.contains('@')) || (authority.is_some() && address.contains('#'))
}

/// Adds the variables and headers of the command line.
fn set_values(args: &AddArgs, server: &mut SingleServer) -> Result<(), String> {
    for given in &args.env {
        let (name, value) = given.split_once('=').ok_or("--env: write NAME=VALUE, or --env-from NAME")?;
        server.set_variable(name, value)?;
    }
    for given in &args.env_from {
        let (name, value) = match given.split_once('=') {
            Some((_, file)) if file.contains('}') => {
                return Err("--env-from: the path of the file must not contain `}`".to_owned());
            }
            // Few shells replace a `~` behind a `=`.
            Some((name, file)) if file.starts_with("~/") => (name, format!("${{file:{file}}}")),
            Some((name, file)) => {
                let file = std::path::absolute(file).unwrap_or_else(|_| file.into());
                (name, format!("${{file:{}}}", file.display()))
            }
            None => (given.as_str(), format!("${{{given}}}")),
        };
        server.set_variable(name, &value)?;
    }
    for given in &args.headers {
        let (name, value) = given.split_once(':').ok_or("--header: write 'NAME: VALUE'")?;
        server.set_header(name.trim(), value.trim())?;
    }
    Ok(())
}

/// Formats what the trial has shown: the tools of a server, with the beginning of each description.
fn describe_trial(name: &str, tried: &TriedServer) -> String {
    let tools = match tried {
        TriedServer::Closed => return String::new(),
        TriedServer::Unlisted => return format!("{name} answers, but has not listed its tools yet\n"),
        TriedServer::Listed(tools) => tools,
    };
    let names = tools.iter().map(|[tool, ..]| tool.len().min(MOST_NAME));
    let width = names.max().unwrap_or_default();
    let line = |[tool, effect, about]: &[String; 3]| {
        let tool = shortened(tool, MOST_NAME);
        shortened(&format!("  {tool:width$}  {effect:5}  {about}"), Screen::of_stdout().room(0)) + "\n"
    };
    let more = tools.len().saturating_sub(MOST_TOOLS);
    let more = if more > 0 { format!("  and {more} more\n") } else { String::new() };
    let lines: String = tools.iter().take(MOST_TOOLS).map(line).collect();
    format!("{name} has {}\n{lines}{more}", count(tools.len(), "tool"))
}

/// Asks whether to go on, unless the command line says yes.
///
/// # Errors
/// 1 if the answer is no, 64 without a terminal.
pub(super) fn confirm(yes: bool, question: &str) -> Result<(), CommandFailure> {
    if !yes && !terminal::is_here() {
        return Err(CommandFailure::new(USAGE, "there is no terminal to ask on; --yes answers the question"));
    }
    if yes || terminal::ask(question)? { Ok(()) } else { Err(CommandFailure::new(NO, "nothing was changed")) }
}
