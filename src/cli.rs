//! Defines the command line and dispatches to the commands, each of which has its own file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod audit;
mod backup;
mod call;
mod consent;
mod console;
mod exit;
mod login;
mod logs;
mod reach;
mod secrets;
pub(crate) mod service;
pub(crate) mod setup;
mod status;
mod tokens;
mod tools;
mod words;

use self::exit::{OK, USAGE};
use crate::cli::service::serve::ServeArgs;
use crate::cli::service::stdio::StdioArgs;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};

use crate::daemon::gateway::StopTimes;
use crate::operator::alone::wait_until_closed;
#[cfg(target_os = "linux")]
use crate::upstream::process::guard;

/// One MCP server in front of many.
///
/// headend is a client of many Model Context Protocol servers and serves them as one, over HTTP and
/// stdio, in every published revision of the protocol on both sides. Names never collide, a policy
/// decides every call and a log records it, and Prometheus can scrape the daemon.
///
/// Without a configuration file it serves three small built-in demo servers.
#[derive(Debug, Parser)]
#[command(name = "headend", version, max_term_width = 100, after_help = AFTER)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<CliCommand>,
    #[command(flatten)]
    common: CommonOptions,
}

const AFTER: &str = "\
Configuration is looked up in this order: --config, $HEADEND_CONFIG, $XDG_CONFIG_HOME/headend/headend.toml
(~/.config/headend/headend.toml), /etc/headend/headend.toml. State (the tokens, what upstreams offered last, grants) lives in
$STATE_DIRECTORY, else $XDG_STATE_HOME/headend (~/.local/state/headend). The daemon is looked for at --socket or $HEADEND_SOCKET;
without them at [admin] socket, at the address in the state directory, then in the runtime directories.

Exit codes: 0 done, 1 the answer is no, 64 wrong usage, 69 no daemon, 70 internal error,
75 something that passes is in the way, such as a store that cannot be read; 78 wrong configuration.";

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the daemon: MCP over HTTP, metrics, the admin socket. The default command.
    Serve(ServeArgs),
    /// Be one stdio MCP server for a host: attached to the running daemon, or the whole gateway in
    /// this process.
    ///
    /// A daemon that starts or ends is waited for, 8 s at most. Where one has the state directory
    /// and does not answer, or nothing answers at a socket that is named, the lists that were kept
    /// are shown, calls are refused and no server is started until the daemon answers.
    Stdio(StdioArgs),
    /// Write a first configuration file with comments; never over one that exists.
    ///
    /// The file is the one that --config names, else `$XDG_CONFIG_HOME/headend/headend.toml`
    /// (`~/.config/headend/headend.toml`). Its rule lets tools that claim to only read pass, and
    /// every other call needs an approval.
    Init,
    /// Add a server: show it, ask, start it on trial and show its tools, then write its table.
    ///
    /// A package gets its newest version, so that what runs changes only when you say so. A server
    /// that answers with 401 is added too, and needs `headend login`. Where anything fails, or at
    /// Ctrl-C, the configuration is as before.
    Add(setup::add::AddArgs),
    /// Remove a server from the configuration, with the comment above its table.
    Remove(setup::remove::RemoveArgs),
    /// Validate the configuration as `serve` does: every problem and warning at once, then one
    /// line.
    Check(setup::check::CheckArgs),
    /// Explain what the policy decides, find rules that save questions, and try rules; all without
    /// a daemon.
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Show upstreams, clients and calls of the running daemon; with a name, everything about one
    /// upstream.
    Status {
        /// An upstream, to see the last lines of its program too.
        name: Option<String>,
        #[command(flatten)]
        json: JsonArgs,
    },
    /// Print a link that signs in to the console of the running daemon; it works once and within 15
    /// minutes.
    Console(JsonArgs),
    /// List the merged catalog as a client sees it, or show one tool; `--all` adds what is
    /// withheld, and why.
    Tools(tools::ToolsArgs),
    /// Call one tool through the running daemon and print the text of its result; exit 1 when the
    /// result is an error.
    Call(call::CallArgs),
    /// Show the approved definitions and launches of upstreams and what changed since; approve or
    /// reject a change.
    Pins(consent::pins::PinsArgs),
    /// List open approvals, a line each; `approvals approve ID` and `approvals deny ID` answer one.
    ///
    /// Asks the daemon. Without a daemon it works on the state directory, and the process whose
    /// call waits takes the answer from there.
    Approvals(consent::approvals::ApprovalsArgs),
    /// Allow the call of an open approval, once or for longer with `--for`; also `approvals
    /// approve`.
    Approve {
        #[command(flatten)]
        args: consent::approvals::ApproveArgs,
        #[command(flatten)]
        json: JsonArgs,
    },
    /// Refuse the call of an open approval, and the same call for 10 minutes; also `approvals
    /// deny`.
    Deny {
        #[command(flatten)]
        args: consent::approvals::DenyArgs,
        #[command(flatten)]
        json: JsonArgs,
    },
    /// List grants; `grants revoke ID` or `grants revoke --all` takes them back.
    Grants(consent::grants::GrantsArgs),
    /// Add, list and revoke tokens of clients; the configuration's tokens are not among them.
    Tokens(tokens::TokensArgs),
    /// Seal the values of the store anew, after `[secrets] key` was changed.
    Secrets {
        #[command(subcommand)]
        command: secrets::SecretsCommand,
    },
    /// Ask the running daemon to read its configuration again; prints what changed, exit 1 when
    /// refused.
    Reload {
        /// Print what would change, and what it would open, of the file that --config names; change
        /// nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Switch an upstream on that is off: `enabled` in its file, then a reload.
    Enable {
        /// The upstream, as its table in the configuration is called.
        name: String,
    },
    /// Switch an upstream off: it is neither started nor listed, and its approvals and grants are
    /// kept.
    ///
    /// Writes `enabled = false` into its table, with the comments around it, and reloads. What the
    /// daemon refuses is taken back.
    Disable {
        /// The upstream, as `headend status` lists it.
        name: String,
    },
    /// Start an upstream anew, whatever its state, and wait for what comes of it; exit 1 when it
    /// does not start.
    ///
    /// A rest after failures ends at once. The calls of a running one may end on it while the new
    /// one starts.
    Restart {
        /// The upstream, as `headend status` lists it.
        name: String,
    },
    /// Log in to an upstream that wants it, in a browser.
    ///
    /// The command prints a link to a page of headend's console, which opens once and leads to the
    /// upstream's authorization server. It waits until you have logged in there. No program is
    /// started.
    Login {
        /// The upstream, as `headend status` lists it.
        name: String,
        /// For a browser on another machine: print the authorization server's own address, and ask
        /// for the address at which the browser ends.
        #[arg(long)]
        paste: bool,
    },
    /// End the login at an upstream: revoke its tokens where the server can, and forget them.
    Logout {
        /// The upstream, as `headend status` lists it.
        name: String,
    },
    /// Print what an upstream wrote to stderr and how its state changed, since its last start by
    /// headend.
    ///
    /// The daemon keeps the last thousand lines in memory. Lines behind a bar are the program's,
    /// those with a star are headend's.
    Logs(logs::LogsArgs),
    /// Look for what commonly goes wrong, and say the next step for each finding; exit 1 when there
    /// is a problem.
    ///
    /// On a terminal it fits the screen: the two gravest findings are told in full, the others in a
    /// line each.
    ///
    /// Looks at the daemon, the configuration, the state directory, ports, programs, certificates,
    /// proxies, the clock, hosts that still start a server themselves, and at each upstream with
    /// what it wrote last. Where no daemon runs, the upstreams are started for up to 20 seconds.
    Doctor(setup::doctor::DoctorArgs),
    /// Verify and read the audit log, without a daemon.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Write a copy of the state directory into a new folder, with a running daemon or without one.
    ///
    /// The copy has grants, pins, limits, logins, the token of clients and the catalogs of
    /// upstreams. Left out are once-grants, open approvals, sessions, the console's token, the
    /// audit log, the configuration and, unless `--with-key` is given, the key that opens the
    /// logins.
    ///
    /// To restore it, stop headend, put the folder in the place of the state directory and start
    /// headend: `headend status` then names what to review.
    Backup(backup::BackupArgs),
    /// Turn the servers of other hosts into a configuration, on stdout or in the configuration file
    /// (`--write`).
    ///
    /// Finds the files of this user's hosts, or reads those that are named: Claude Desktop, Claude
    /// Code, Cursor, VS Code, Cline, Roo Code, Kilo Code, Windsurf, Zed, Codex, Gemini, Qwen,
    /// opencode, Copilot, LM Studio, Continue, Goose, Kiro, Amazon Q, a registry's server.json and
    /// a bundle's manifest.json. Secrets are not copied: variables take their place, and stderr
    /// says which to set. A server that is off in its host is off here.
    #[command(
        after_help = "Examples:\n  headend import --write              add the servers of all hosts to the configuration\n  headend import .mcp.json            print the servers of one file\n  headend import --write ~/.claude.json && headend check"
    )]
    Import(setup::import::ImportArgs),
    /// Give a host one entry for headend in its own file; with `--move`, take its servers over.
    ///
    /// Shows the change, and asks before it is made. The file is edited in place, and a copy that
    /// only you can read is kept in the state directory. Without HOST, lists the hosts on this
    /// machine, which are connected, and which servers they still start themselves.
    Connect(setup::connect::ConnectArgs),
    /// Take headend out of a host's file again, and put servers back that `connect --move` took.
    ///
    /// If nothing else has changed since, the file is what it was, byte for byte; what the host or
    /// you changed stays. Moved servers are disabled in headend's file.
    Disconnect(setup::connect::DisconnectArgs),
    /// Run one of the small built-in MCP servers on stdin and stdout.
    Demo { name: String },
    /// Print the completion script of a shell.
    Completions { shell: clap_complete::Shell },
    /// Write the manual pages into a folder.
    #[command(hide = true)]
    Man { folder: PathBuf },
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Explain what would happen to a call (dry run): print the decision, the rule and why; exit 1
    /// when it is not allowed.
    ///
    /// The annotations of a tool are known if an earlier run has seen it. For all other tools the
    /// protocol's defaults and the configuration apply.
    Test(consent::policy::PolicyTestArgs),
    /// Print rules that would have saved questions, made of what people always allow. Nothing is
    /// put in force.
    ///
    /// Reads the audit log. A rule is for a caller and an item that was approved at least 5 times,
    /// that was never denied, and that neither its server nor the configuration calls destructive.
    /// Where the log has the arguments (`[audit] capture-arguments = "full"`), a rule takes those
    /// that were approved; else it takes any. Above each rule stands how many questions it would
    /// have saved, and what it takes beside what was approved.
    Suggest(consent::policy::suggest::SuggestArgs),
    /// Play the audit log under other rules, and show what they would have decided. Nothing is put
    /// in force.
    ///
    /// FILE is a whole configuration, or has nothing but rules, which are added to the
    /// configuration in force. What cannot be decided again counts as asked: a record of an earlier
    /// release, or one without its arguments where a rule looks at them. Limits are not played, and
    /// grants hold as they did. Exit 1: the rules allow calls of an item that is destructive, that
    /// was denied, or that was never called.
    Replay(consent::policy::replay::ReplayArgs),
}

#[derive(Clone, Copy, Debug, Default, Args)]
struct JsonArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command that the arguments of the process name, and returns its exit code. On Linux,
/// runs the guard of an upstream's program instead if the arguments ask for one.
pub(crate) fn run() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(done) = guard::watch::run_if_asked(std::env::args_os()) {
        return done.map_or_else(
            |why| {
                words::output::complain(&why);
                ExitCode::from(USAGE)
            },
            |()| ExitCode::SUCCESS,
        );
    }
    run_as(std::env::args_os())
}

/// Parses these words, of which the first is the program's name, runs the command, and prints its
/// error. Returns after the databases of the process are closed, or their time is over.
pub(crate) fn run_as(words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut command = words::help::command(CommandLine::command());
    let parsed = command.try_get_matches_from_mut(words);
    let parsed = parsed.and_then(|mut found| {
        CommandLine::from_arg_matches_mut(&mut found).map_err(|error| error.format(&mut command))
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are normal output; any other error is wrong usage.
            let code = if error.use_stderr() { USAGE } else { OK };
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    let times = if matches!(cli.command, Some(CliCommand::Stdio(_))) { StopTimes::PIPE } else { StopTimes::DAEMON };
    let code = dispatch(cli).unwrap_or_else(|failure| {
        words::output::complain(&failure.text);
        failure.code
    });
    wait_until_closed(times.store);
    ExitCode::from(code)
}

fn dispatch(cli: CommandLine) -> Result<u8, CommandFailure> {
    let common = cli.common;
    match cli.command.unwrap_or_else(|| CliCommand::Serve(ServeArgs::default())) {
        CliCommand::Serve(args) => service::serve::run(&common, &args),
        CliCommand::Stdio(args) => service::stdio::run(&common, &args),
        CliCommand::Init => setup::init::run(&common),
        CliCommand::Add(args) => setup::add::run(&common, &args),
        CliCommand::Remove(args) => setup::remove::run(&common, &args),
        CliCommand::Check(args) => setup::check::run(&common, args),
        CliCommand::Policy { command: PolicyCommand::Test(args) } => consent::policy::test(&common, &args),
        CliCommand::Policy { command: PolicyCommand::Suggest(args) } => consent::policy::suggest::run(&common, &args),
        CliCommand::Policy { command: PolicyCommand::Replay(args) } => consent::policy::replay::run(&common, &args),
        CliCommand::Status { name, json } => status::run(&common, name.as_deref(), json.json),
        CliCommand::Console(args) => console::run(&common, args.json),
        CliCommand::Tools(args) => tools::run(&common, &args),
        CliCommand::Call(args) => call::run(&common, &args),
        CliCommand::Pins(args) => consent::pins::run(&common, &args),
        CliCommand::Approvals(args) => consent::approvals::run(&common, args),
        CliCommand::Approve { args, json } => consent::approvals::approve(&common, &args, json.json),
        CliCommand::Deny { args, json } => consent::approvals::deny(&common, &args, json.json),
        CliCommand::Grants(args) => consent::grants::run(&common, args),
        CliCommand::Tokens(args) => tokens::run(&common, args),
        CliCommand::Secrets { command } => secrets::run(&common, command),
        CliCommand::Reload { dry_run } => service::reload::run(&common, dry_run),
        CliCommand::Enable { name } => setup::switch::run(&common, &name, true),
        CliCommand::Disable { name } => setup::switch::run(&common, &name, false),
        CliCommand::Restart { name } => service::restart::run(&common, &name),
        CliCommand::Login { name, paste } => login::run(&common, &name, paste),
        CliCommand::Logout { name } => login::out(&common, &name),
        CliCommand::Logs(args) => logs::run(&common, &args),
        CliCommand::Doctor(args) => setup::doctor::run(&common, args),
        CliCommand::Audit(command) => audit::run(&common, command),
        CliCommand::Backup(args) => backup::run(&common, &args),
        CliCommand::Connect(args) => setup::connect::run(&common, &args),
        CliCommand::Disconnect(args) => setup::connect::disconnect(&common, &args),
        CliCommand::Import(args) => setup::import::run(&common, &args),
        CliCommand::Demo { name } => demo(&name),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "headend", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        CliCommand::Man { folder } => words::manual::write(CommandLine::command(), &folder),
    }
}

fn demo(name: &str) -> Result<u8, CommandFailure> {
    crate::demo::run(name).map(|()| OK).map_err(|error| CommandFailure { code: USAGE, text: error.to_string() })
}
