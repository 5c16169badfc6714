//! The command `headend add`: shows one server, starts it on trial, and adds it to the
//! configuration.
//!
//! The configuration is written after the server has answered or has asked for a login, so every
//! failure leaves it as it was.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use self::secret_files::SecretFiles;
use self::trial::{TrialOutcome, TrialTool};
use self::version::{PackageVersion, find_newest};
use crate::cli::exit::{CONFIG, NO, TEMPFAIL, USAGE};
use crate::cli::reach::daemon::DaemonConnection;
use crate::cli::reach::source::{self, environment};
use crate::cli::setup::edit::{FileEdit, find_daemon};
use crate::cli::setup::import::{ImportTarget, ServerTable, SingleServer};
use crate::cli::setup::init::FIRST;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print};
use crate::cli::words::screen::{Column, Screen, shortened};
use crate::cli::words::terminal;
use crate::config::source::guard;
use crate::config::{self, Config, UpstreamSettings, UpstreamTarget, VariableText};
use crate::operator::request::ReloadParams;
use crate::operator::upstreams::program_of;
use crate::policy::RuleEffect;
use crate::wire::foreign;

pub(super) mod secret_files;
mod trial;
mod version;

/// Name of the new table in problems of the configuration.
const ORIGIN: &str = "the new table";

#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct AddArgs {
    /// The name of the upstream, which begins the names of its tools; or a server.json, which has a
    /// name.
    #[arg(value_name = "NAME")]
    name: String,
    /// The address of a server, or a server.json of the registry.
    #[arg(value_name = "URL|FILE")]
    target: Option<String>,
    /// The program of a server and its arguments, behind `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Set a variable of the program, or an input of a server.json; NAME alone takes the value from
    /// this shell. What looks like a secret goes to a file of mode 0600 in the state directory.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Let headend read a variable of the program at each start: from its own variable of that
    /// name, or from a file.
    #[arg(long, value_name = "NAME[=FILE]")]
    env_from: Vec<String>,
    /// Send a header to the server. `${VAR}` is read from headend's environment at each start.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Run the program in this directory.
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// How far headend trusts what the server says of its tools. [default: standard]
    #[arg(long, value_enum)]
    trust: Option<TrustOption>,
    /// Add it without a question.
    #[arg(long)]
    yes: bool,
    /// Print what would be added; start and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Values of `trust`.
#[derive(Clone, Copy, Debug, ValueEnum, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
enum TrustOption {
    /// New definitions wait for your approval.
    Untrusted,
    /// Hints of tools can only tighten rules.
    Standard,
    /// Hints of tools can loosen rules too.
    Trusted,
}

/// A server that is about to be added.
struct Addition<'a> {
    name: String,
    server: SingleServer,
    target: &'a ImportTarget,
    trust: Option<TrustOption>,
}

/// Runs the command.
pub(in crate::cli) fn run(common: &CommonOptions, args: &AddArgs) -> Result<u8, CommandFailure> {
    let server = describe(args)?;
    let target = ImportTarget::read(source::find_writable_file(common)?);
    let target = target.map_err(|why| CommandFailure::new(CONFIG, why))?;
    let name = if args.is_file() { server.name.clone() } else { None };
    let name = name.unwrap_or_else(|| args.name.clone());
    if target.upstreams.contains(&name) {
        let text = format!(
            "an upstream `{name}` is in the configuration already; take another name, or take it out first: \
             `headend remove {name}`"
        );
        return Err(CommandFailure::new(NO, text));
    }
    let daemon = find_daemon(common, &target.path)?;
    let mut addition = Addition { name, server, target: &target, trust: args.trust };
    let mut secrets = addition.take_values(args)?;
    let version = addition.pin()?;
    let (table, config) = addition.table()?;
    let spec = addition.settings(&config)?;
    print(&addition.preview(spec, &table, version.as_ref()))?;
    check_needs(&table)?;
    if args.dry_run {
        return print(&format!("\n{}", addition.text(&table)));
    }
    confirm(args.yes, &format!("\nStart {} and add it?", addition.name))?;
    secrets.write().map_err(|error| CommandFailure::new(TEMPFAIL, error))?;
    // Read again, now that the files of its secrets are there.
    let (table, config) = addition.table()?;
    let default = config.policy.default;
    let outcome = trial::start(config, &addition.name).map_err(|failure| {
        let text = format!("{}\nnothing was added; the configuration is as it was", failure.text);
        CommandFailure { text, ..failure }
    })?;
    let plan = addition.write(daemon, &table)?;
    secrets.keep();
    print(&addition.summary(&outcome, &plan, default))
}

impl AddArgs {
    /// Returns true if the only argument is the file that describes the server.
    fn is_file(&self) -> bool {
        self.target.is_none() && self.command.is_empty()
    }
}

/// Reads what the command line says about the server.
fn describe(args: &AddArgs) -> Result<SingleServer, CommandFailure> {
    let usage = |text: String| CommandFailure::new(USAGE, text);
    let of_file = |path: &str| SingleServer::of_file(Path::new(path)).map_err(usage);
    let shown = foreign::line(&args.name).into_owned();
    match &args.target {
        Some(_) if !args.command.is_empty() => Err(usage("write either an address or a command, not both".to_owned())),
        Some(url) if url.contains("://") => Ok(SingleServer::of_url(url)),
        Some(path) if Path::new(path).is_file() => of_file(path),
        Some(other) => {
            let other = foreign::line(other);
            Err(usage(format!(
                "`{other}` is neither an address nor a file; a command stands behind `--`: headend add {shown} -- {other}"
            )))
        }
        None if !args.command.is_empty() => Ok(SingleServer::of_words(args.command.clone())),
        None if Path::new(&args.name).is_file() => of_file(&args.name),
        None => Err(usage(format!(
            "what is `{shown}`? Write headend add {shown} URL, or headend add {shown} -- COMMAND; there is no file of that name"
        ))),
    }
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

/// Checks that the variables that the table reads are set here.
fn check_needs(table: &ServerTable) -> Result<(), CommandFailure> {
    let missing = table.needs.iter().filter(|(name, _)| environment(name).is_none());
    let lines: String = missing.map(|(name, about)| format!("\n  {name}\n      {about}")).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let text = format!(
        "these values are missing. Give each by --env NAME (from this shell), by --env-from NAME=FILE, or set \
         the variable where headend runs and here:{lines}"
    );
    Err(CommandFailure::new(NO, text))
}

impl Addition<'_> {
    /// Takes the variables and headers of the command line; returns those that are secrets.
    fn take_values(&mut self, args: &AddArgs) -> Result<SecretFiles, CommandFailure> {
        let usage = |text: String| CommandFailure::new(USAGE, text);
        let mut secrets = SecretFiles::new(&self.name)?;
        for given in &args.env {
            let (name, value) = match given.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let unset = || usage(format!("--env {given}: the variable is not set in this shell"));
                    (given.as_str(), environment(given).ok_or_else(unset)?)
                }
            };
            secrets.extend(self.server.set_variable(name, &value, secrets.path(name)));
        }
        for given in &args.env_from {
            let (name, file) = given.split_once('=').map_or((given.as_str(), None), |(name, file)| (name, Some(file)));
            let file = file.map(|file| std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file)));
            self.server.read_variable(name, file.as_deref());
        }
        if let Some(folder) = &args.cwd {
            self.server.set_folder(&std::path::absolute(folder).unwrap_or_else(|_| folder.clone()));
        }
        for given in &args.headers {
            let (name, value) =
                given.split_once(':').ok_or_else(|| usage("--header: write 'NAME: VALUE'".to_owned()))?;
            secrets.extend(self.server.set_header(name.trim(), value.trim(), secrets.path(name.trim())));
        }
        Ok(secrets)
    }

    /// Gives the package of the command its newest version if it has none.
    fn pin(&mut self) -> Result<Option<PackageVersion>, CommandFailure> {
        let command = self.server.words().to_vec();
        let Some(package) = config::unversioned_package(&command) else { return Ok(None) };
        let (_, config) = self.table()?;
        let program = program_of(self.settings(&config)?);
        let found = find_newest(&command, program.as_deref(), package).map_err(|why| {
            let write = config::with_version(&command, package, "VERSION");
            CommandFailure::new(NO, format!("no version of {package} is known: {why}; write one yourself: {write}"))
        })?;
        self.server.pin(&found.version);
        Ok(Some(found))
    }

    /// Builds the new table, and the configuration with it.
    fn table(&self) -> Result<(ServerTable, Config), CommandFailure> {
        let wrong = |why: String| CommandFailure::new(USAGE, why);
        let mut table = self.server.table(&self.name, self.target).map_err(wrong)?;
        if let Some(trust) = self.trust {
            table.text.push_str(&format!("trust = \"{}\"\n", trust.into_str()));
        }
        let outcome = if self.target.is_there() {
            config::load_with(&self.target.path, Some((ORIGIN, &table.text))).outcome
        } else {
            config::parse(&self.text(&table), ORIGIN, &environment, &guard::read)
                .map_err(|problems| problems.to_string())
        };
        outcome.map(|(config, _)| (table, config)).map_err(wrong)
    }

    /// Returns the settings of the new upstream.
    fn settings<'c>(&self, config: &'c Config) -> Result<&'c UpstreamSettings, CommandFailure> {
        let found = config.upstreams.iter().find(|upstream| upstream.name.as_str() == self.name);
        found.ok_or_else(|| CommandFailure::new(CONFIG, format!("the configuration does not take `{}`", self.name)))
    }

    /// Returns the text that is added to the file: the table, in a new file behind what
    /// `headend init` writes.
    fn text(&self, table: &ServerTable) -> String {
        let first = if self.target.is_there() { "" } else { FIRST };
        format!("{first}\n{}", table.text)
    }

    /// Formats what would be started and where it comes from.
    fn preview(&self, spec: &UpstreamSettings, table: &ServerTable, version: Option<&PackageVersion>) -> String {
        let mut pairs = vec![("upstream", self.name.clone())];
        match &spec.target {
            UpstreamTarget::Stdio { command, cwd, .. } => {
                let words: Vec<&str> = command.iter().map(VariableText::written).collect();
                let quoted = words.iter().map(|word| shlex::try_quote(word).unwrap_or_default());
                pairs.push(("command", quoted.collect::<Vec<_>>().join(" ")));
                pairs.extend(cwd.as_ref().map(|cwd| ("directory", cwd.written().to_owned())));
                let program = program_of(spec).map(|path| path.display().to_string());
                pairs.push(("program", program.unwrap_or_else(|| "not found".to_owned())));
                let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
                if let Some((tool, package)) = config::fetched_package(&words) {
                    let source = version.map_or(String::new(), |version| format!(", {}", version.source));
                    pairs.push(("package", format!("{package}, fetched by {tool}{source}")));
                }
            }
            UpstreamTarget::Http { .. } => pairs.push(("url", spec.target.shown_url().unwrap_or_default())),
        }
        let written = table.text.parse::<toml::Table>().unwrap_or_default();
        let written = written.get("upstreams").and_then(|upstreams| upstreams.get(&self.name));
        for (key, label) in [("env", "environment"), ("headers", "headers")] {
            let values = written.and_then(|table| table.get(key)?.as_table());
            let names = values.map(|values| values.iter().map(describe_value).collect::<Vec<_>>().join(", "));
            pairs.extend(names.map(|names| (label, names)));
        }
        pairs.push(("from", self.server.origin.clone()));
        pairs.push(("file", self.target.path.display().to_string()));
        pairs.extend(table.notes.iter().map(|note| ("note", note.clone())));
        let pairs: Vec<(String, String)> = pairs.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        Screen::of_stdout().pairs(&pairs)
    }

    /// Adds the table to the file and puts it in force.
    fn write(&self, daemon: Option<DaemonConnection>, table: &ServerTable) -> Result<String, CommandFailure> {
        let failed = |why: String| CommandFailure::new(TEMPFAIL, why);
        let after = self.target.with_addition(&self.text(table)).map_err(failed)?;
        let path = self.target.make_folder().map_err(failed)?;
        let before = self.target.text.as_deref();
        let edit = FileEdit { main: &self.target.path, path: &path, before, after: &after };
        edit.put_in_force(daemon, ReloadParams::default(), |_| {})
    }

    /// Formats the outcome: the tools of the server, and the next step.
    fn summary(&self, outcome: &TrialOutcome, plan: &str, default: RuleEffect) -> String {
        let (name, screen) = (&self.name, Screen::of_stdout());
        let mut out = match outcome {
            TrialOutcome::NeedsLogin => screen.paragraph(&format!("{name} needs a login")),
            TrialOutcome::Ready(tools) => {
                format!("\n{name} has {}\n{}", count(tools.len(), "tool"), table_of(screen, tools))
            }
        };
        let plan = if plan.is_empty() { String::new() } else { format!("; {plan}") };
        out.push_str(&format!(
            "\n{}",
            screen.paragraph(&format!("added {name} to {}{plan}", self.target.path.display()))
        ));
        let next = match (outcome, default) {
            (TrialOutcome::NeedsLogin, _) => format!("once headend runs, `headend login {name}` logs in"),
            (_, RuleEffect::Allow) => {
                "calls that no rule denies run without a question (default = \"allow\")".to_owned()
            }
            (_, RuleEffect::Deny) => "calls that no rule allows are denied (default = \"deny\")".to_owned(),
            (_, RuleEffect::Ask) => "calls that no rule allows wait for your approval: `headend approvals`".to_owned(),
        };
        out + &screen.paragraph(&next)
    }
}

/// Formats the tools of a server, with the beginning of each description.
fn table_of(screen: Screen, tools: &[TrialTool]) -> String {
    let columns = ["TOOL", "EFFECT", "DESCRIPTION"].map(|head| Column { head, rank: 0 });
    let width =
        |text: &dyn Fn(&TrialTool) -> usize, head: usize| tools.iter().map(text).max().unwrap_or(0).max(head) + 2;
    let taken = width(&|tool| tool.name.len(), 4) + width(&|tool| tool.effect.len(), 6);
    let room = screen.room(taken).clamp(20, 200);
    let row = |tool: &TrialTool| vec![tool.name.clone(), tool.effect.clone(), shortened(tool.description.trim(), room)];
    screen.plain(&columns, &tools.iter().map(row).collect::<Vec<_>>())
}

/// Describes a variable or header by its name and the place of its value.
fn describe_value((name, value): (&String, &toml::Value)) -> String {
    let from = |key: &str| value.get(key).and_then(toml::Value::as_str);
    match (from("env"), from("file")) {
        (Some(variable), _) => format!("{name} (headend's ${variable})"),
        (_, Some(file)) => format!("{name} (in {file})"),
        (None, None) => name.clone(),
    }
}
