//! The command `headend add`: shows one server, starts it on trial, and adds it to the
//! configuration.
//!
//! The configuration is written after the server has answered or has asked for a login, so every
//! failure leaves it as it was.

use std::path::Path;

use clap::Args;

use crate::cli::exit::{CONFIG, NO, TEMPFAIL, USAGE};
use crate::cli::reach::source::{self, CommandConfig};
use crate::cli::setup::edit::{FileEdit, find_daemon};
use crate::cli::setup::import::{ImportTarget, SingleServer};
use crate::cli::setup::init::FIRST;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print};
use crate::cli::words::screen::{Screen, shortened};
use crate::cli::words::terminal;
use crate::operator::upstreams::program_of;
use crate::wire::foreign;

mod trial;
mod version;

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
    set_values(args, &mut server)?;
    let target = ImportTarget::read(source::find_writable_file(common)?);
    let target = target.map_err(|why| CommandFailure::new(CONFIG, why))?;
    let is_named = args.target.is_some() || !args.command.is_empty();
    let name = server.name.clone().filter(|_| !is_named).unwrap_or_else(|| args.name.clone());
    if target.upstreams.contains(&name) {
        let text = format!("an upstream `{name}` is there already; take another name, or `headend remove {name}`");
        return Err(CommandFailure::new(NO, text));
    }
    let daemon = find_daemon(common, &target.path)?;
    // In a new file the table stands behind what `headend init` writes.
    let addition = |table: &str| format!("{}\n{table}", if target.is_there() { "" } else { FIRST });
    let mut table = server.table(&name, &target).map_err(usage)?;
    if let Some(version) = version::find_newest(server.words())? {
        server.pin(&version);
        table = server.table(&name, &target).map_err(usage)?;
    }
    table.extend(args.trust.as_ref().map(|trust| format!("trust = \"{trust}\"\n")));
    let loaded = source::load_trial(target.is_there().then(|| target.path.clone()), addition(&table))?;
    print(&preview(&target, &table, &loaded, &name))?;
    if args.dry_run {
        return print("");
    }
    confirm(args.yes, &format!("Start {name} and add it?"))?;
    let tools = trial::start(loaded, &name)?;
    print(&tools.as_ref().map_or_else(String::new, |tools| list(&name, tools)))?;
    let failed = |why: String| CommandFailure::new(TEMPFAIL, why);
    let after = target.with_addition(&addition(&table)).map_err(failed)?;
    let path = target.make_folder().map_err(failed)?;
    let edit = FileEdit { main: &target.path, path: &path, before: target.text.as_deref(), after: &after };
    let plan = edit.put_in_force(daemon, None, |_| {})?;
    let login = tools.is_none().then(|| format!("{name} needs a login: `headend login {name}`, once headend runs\n"));
    let added = Screen::of_stdout().paragraph(&format!("added {name} to {}{plan}", path.display()));
    print(&(added + &login.unwrap_or_default()))
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
        Some(url) if url.contains("://") => Ok(SingleServer::new(Vec::new(), Some(url))),
        _ if Path::new(last).is_file() => SingleServer::of_file(Path::new(last)),
        _ => Err(format!(
            "`{last}` is neither an address nor a file. Write headend add NAME URL, headend add NAME -- COMMAND or headend add server.json"
        )),
    };
    described.map_err(usage)
}

/// Adds the variables and headers of the command line.
fn set_values(args: &AddArgs, server: &mut SingleServer) -> Result<(), CommandFailure> {
    for given in &args.env {
        let (name, value) =
            given.split_once('=').ok_or_else(|| usage("--env: write NAME=VALUE, or --env-from NAME"))?;
        server.set_variable(name, value);
    }
    for given in &args.env_from {
        let (name, value) = match given.split_once('=') {
            Some((name, file)) => {
                let file = std::path::absolute(file).unwrap_or_else(|_| file.into());
                (name, format!("${{file:{}}}", file.display()))
            }
            None => (given.as_str(), format!("${{{given}}}")),
        };
        server.set_variable(name, &value);
    }
    for given in &args.headers {
        let (name, value) = given.split_once(':').ok_or_else(|| usage("--header: write 'NAME: VALUE'"))?;
        server.set_header(name.trim(), value.trim());
    }
    Ok(())
}

/// Formats the table exactly as it would be written, and the program that it leads to.
fn preview(target: &ImportTarget, table: &str, loaded: &CommandConfig, name: &str) -> String {
    let screen = Screen::of_stdout();
    let mut out = screen.paragraph(&format!("for {}:", target.path.display()));
    for line in table.lines() {
        out.push_str(&screen.folded(&format!("  {}", foreign::line(line)), 4));
    }
    let program = loaded.config.upstreams.iter().find(|upstream| upstream.name.as_str() == name).and_then(program_of);
    out + &program.map_or_else(String::new, |path| screen.paragraph(&format!("program: {}", path.display())))
}

/// Formats the tools of a server, with the beginning of each description.
fn list(name: &str, tools: &[[String; 3]]) -> String {
    let width = tools.iter().map(|[tool, ..]| tool.len()).max().unwrap_or_default();
    let line = |[tool, effect, about]: &[String; 3]| {
        shortened(&format!("  {tool:width$}  {effect:5}  {about}"), Screen::of_stdout().room(0)) + "\n"
    };
    format!("{name} has {}\n{}", count(tools.len(), "tool"), tools.iter().map(line).collect::<String>())
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
