//! `headend import`: converts the server lists of known MCP hosts, found on this machine or named,
//! to a configuration that headend loads.
//!
//! Values that look like secrets are not copied: the configuration names variables instead. A
//! server that is off in its host is off here, and an entry that headend would refuse becomes a
//! comment with the reason.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::exit::{CONFIG, NO, TEMPFAIL, USAGE};
use crate::cli::reach::source;
use crate::cli::setup::hosts::{HostFolders, of_project};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, print};
use crate::cli::words::screen::Screen;
use crate::cli::words::terminal;
use crate::config;
use crate::config::source::guard;
use crate::wire::foreign;

mod bridge;
mod entry;
mod find;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod host;
mod moved;
mod names;
mod parts;
mod policy;
mod secrets;
mod single;
mod started;
mod stated;
mod template;
pub(in crate::cli::setup) mod value;
mod write;

use self::entry::{BlockSource, UpstreamBlock, names_of};
use self::host::{HostFile, McpHost};
pub(super) use self::moved::{HostServers, MovableServers};
use self::names::ImportNames;
use self::parts::{GivenValue, LaunchParts};
use self::policy::{ExistingPolicy, SilentDefault};
use self::secrets::KnownSecrets;
pub(in crate::cli) use self::single::{SingleServer, SingleTable};
pub(in crate::cli) use self::started::{HostServerEntry, in_one_form, started};
use self::stated::{HostServerSettings, HostSettings};
use self::value::ImportError;
pub(super) use self::value::{FileValue, read as read_value};
pub(in crate::cli) use self::write::ImportTarget;

/// Size limit of a host's file, in bytes; some hosts keep their history beside the servers.
pub(super) const MAX_FILE: u64 = 64 << 20;

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct ImportArgs {
    /// Files of hosts; without any, those of the hosts of this user.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Add to the configuration file what is not in it yet; make it if it is missing.
    #[arg(long)]
    write: bool,
    /// Allow every call of servers whose host file does not say which tools may run unasked.
    #[arg(long)]
    allow_all: bool,
}

/// A file of a host, with the files beside it that have further settings of its servers.
#[derive(Debug)]
struct HostText {
    path: PathBuf,
    text: String,
    beside: Vec<(PathBuf, String)>,
}

/// A server of a host that is not in the configuration yet.
#[derive(Debug)]
struct ServerDraft {
    name: String,
    /// Comments that say which file and list it comes from.
    sources: Vec<String>,
    parts: LaunchParts,
    stated: HostServerSettings,
    /// Index of the file in the import.
    file: usize,
    /// Directory of the project that the file belongs to.
    folder: Option<PathBuf>,
}

/// The servers to be written, and remarks about them.
#[derive(Debug, Default)]
struct ImportedServers {
    /// Origin comments of each block.
    sources: Vec<Vec<String>>,
    blocks: Vec<UpstreamBlock>,
    known: KnownSecrets,
    /// Remarks for the user.
    told: Vec<String>,
}

/// Runs `headend import`: prints the configuration, or writes it with `--write`, and then prints
/// remarks and the next steps.
pub(in crate::cli) fn run(common: &CommonOptions, args: &ImportArgs) -> Result<u8, CommandFailure> {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
    let files = if args.files.is_empty() { found(home.as_deref())? } else { named(&args.files, home.as_deref())? };
    let target = if args.write {
        ImportTarget::read(source::find_writable_file(common)?).map_err(|why| CommandFailure::new(CONFIG, why))?
    } else {
        ImportTarget::default()
    };
    let imported = imported(&files, home.as_deref(), &target).map_err(|error| CommandFailure::new(CONFIG, error))?;
    let silent = silent(args, &imported, &target.present)?;
    let (text, told) = composed(&imported, silent, &target.present, &heading(args, &files, &target));
    let done = if args.write { added(&imported, &target, &text) } else { print(&text) };
    done.inspect(|_| {
        told.iter().for_each(|text| complain(text));
        provide(&imported);
        log_in(&imported);
    })
}

/// Returns the comment above the servers: where they are from if the configuration is printed, or a
/// hint for a new file. Empty if servers are added to an existing file.
fn heading(args: &ImportArgs, files: &[HostText], target: &ImportTarget) -> String {
    let from: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
    match (args.write, target.is_there()) {
        (false, _) => comment(&format!("Imported from {}.", from.join(", "))) + "\n",
        (true, false) => "# Made by `headend import`. `headend check` reports mistakes.\n\n".to_owned(),
        (true, true) => String::new(),
    }
}

/// Adds the text to the configuration file, which it makes if missing, and prints what was added
/// and what to do next. Writes no file if there is no server to add.
fn added(imported: &ImportedServers, target: &ImportTarget, text: &str) -> Result<u8, CommandFailure> {
    let path = target.path.display();
    if imported.blocks.is_empty() {
        return print(&format!("Nothing to add: {path} has every server of these files.\n"));
    }
    target.add(text).map_err(|why| CommandFailure::new(TEMPFAIL, why))?;
    let names = |these: &dyn Fn(&UpstreamBlock) -> bool| names_of(imported.blocks.iter().filter(|block| these(block)));
    let screen = Screen::of_stdout();
    let mut out = format!("{} {path}\n", if target.is_there() { "Added to" } else { "Made" });
    for (label, names) in [
        ("on", names(&|block| block.off.is_none() && block.reasons.is_empty())),
        ("off, as in the host", names(&|block| block.off.is_some() && block.reasons.is_empty())),
        ("left as comments, with the reason", names(&|block| !block.reasons.is_empty())),
    ] {
        if !names.is_empty() {
            // Further lines of names are indented deeper than their label.
            let line = screen.indented("    ", &format!("{label}: {names}"));
            out.push_str(line.get(2..).unwrap_or_default());
        }
    }
    out.push_str(&screen.paragraph("Next: `headend check`, then start `headend`, or `headend reload` if it runs."));
    let hosts = "Then `headend connect HOST --move` gives each host this one server in the place of its own.";
    out.push_str(&screen.paragraph(hosts));
    print(&out)
}

/// Prints which secrets were not copied, and how headend gets them.
fn provide(imported: &ImportedServers) {
    let mut seen: Vec<&str> = Vec::new();
    let mut lines = String::new();
    for (name, about) in imported.blocks.iter().flat_map(|block| &block.exports) {
        if !seen.contains(&name.as_str()) {
            seen.push(name);
            lines.push_str(&format!("\n  {name}\n      {}", imported.known.redacted(about)));
        }
    }
    if !seen.is_empty() {
        complain(&format!(
            "these values were not copied. Set the variables where headend runs (`export NAME=...`,\n\
             or EnvironmentFile= in a unit), or write {{ file = \"/path\" }} in their place:{lines}"
        ));
    }
}

/// Prints the servers that may want a login, with the command for each.
fn log_in(imported: &ImportedServers) {
    let wanting =
        imported.blocks.iter().filter(|block| block.may_want_login && block.off.is_none() && block.reasons.is_empty());
    let lines: Vec<String> = wanting.map(|block| format!("\n  headend login {}", block.name)).collect();
    if !lines.is_empty() {
        complain(&format!(
            "no credential came with these servers. For each that `headend status` shows as needs-login, once headend runs:{}",
            lines.concat()
        ));
    }
}

/// Decides the default for servers whose host has no rule for approvals: allowed with
/// `--allow-all`, else asks on the terminal. Without a terminal, or if the configuration has a
/// default already, their calls need approval.
fn silent(
    args: &ImportArgs,
    imported: &ImportedServers,
    present: &ExistingPolicy,
) -> Result<SilentDefault, CommandFailure> {
    if args.allow_all {
        return Ok(SilentDefault::Allow);
    }
    let names: Vec<&str> =
        imported.blocks.iter().filter(|block| policy::is_silent(block)).map(|block| block.name.as_str()).collect();
    if names.is_empty() || present.default.is_some() || !terminal::is_here() {
        return Ok(SilentDefault::Ask);
    }
    let question = format!(
        "Your hosts' files do not say which tools of these servers may run unasked:\n  {}\n\
         If you answer no, calls that change something need your approval.\nAllow every call of them?",
        names.join(", ")
    );
    Ok(if terminal::ask(&question)? { SilentDefault::Allow } else { SilentDefault::Ask })
}

/// Reads the files of this user's hosts that have servers. Prints which are read, which cannot be
/// read, and which files of the working directory's project are left out.
fn found(home: Option<&str>) -> Result<Vec<HostText>, CommandFailure> {
    let home = home.map(Path::new).ok_or_else(|| CommandFailure::new(USAGE, "$HOME is not set; name the files"))?;
    let mut files = Vec::new();
    for path in HostFolders::from_environment().map(|folders| folders.present()).unwrap_or_default() {
        match HostText::read(&path, Some(home)) {
            Ok(file) => match host::read(&file.path, &file.text) {
                Ok(read) if read.servers.is_empty() => {}
                Ok(_) => {
                    complain(&format!("reading {}", path.display()));
                    files.push(file);
                }
                Err(ImportError::NoServers { .. }) => {}
                Err(error) => complain(&format!("left out: {error}")),
            },
            Err(why) => complain(&format!("left out: {why}")),
        }
    }
    let here = std::env::current_dir().ok().filter(|here| here != home);
    for path in here.map(|here| of_project(&here)).unwrap_or_default() {
        complain(&format!(
            "not read, since a project's file may come from others; name it to import it: {}",
            path.display()
        ));
    }
    if files.is_empty() {
        return Err(CommandFailure::new(NO, "no file of a known host has servers; name one: headend import FILE"));
    }
    Ok(files)
}

/// Reads the files that were named on the command line.
fn named(files: &[PathBuf], home: Option<&str>) -> Result<Vec<HostText>, CommandFailure> {
    let read = |path: &PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if path.extension().is_some_and(|ending| ending == "mcpb" || ending == "dxt") {
            let why = format!("{}: a bundle is an archive; unpack it and import its manifest.json", path.display());
            return Err(CommandFailure::new(USAGE, why));
        }
        HostText::read(&path, home.map(Path::new)).map_err(|why| CommandFailure::new(USAGE, why))
    };
    files.iter().map(read).collect()
}

impl HostText {
    /// Reads the text of a host's file and of the files beside it, without parsing them.
    fn read(path: &Path, home: Option<&Path>) -> Result<Self, String> {
        let read = |path: &Path| {
            let at = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
            guard::read_regular(path, MAX_FILE).map_err(|error| at(&error))
        };
        let beside = find::beside(path, home).into_iter().map(|path| Ok((path.clone(), read(&path)?)));
        Ok(Self { path: path.to_owned(), text: read(path)?, beside: beside.collect::<Result<_, String>>()? })
    }
}

/// Parses the files and converts their servers, without the ones that are in the configuration
/// already.
fn imported(files: &[HostText], home: Option<&str>, target: &ImportTarget) -> Result<ImportedServers, ImportError> {
    let mut out = ImportedServers::default();
    let mut names = target.names();
    let read = files.iter().map(|file| host::read(&file.path, &file.text)).collect::<Result<Vec<HostFile>, _>>()?;
    let mut all: Vec<ServerDraft> = Vec::new();
    for (at, (given, file)) in files.iter().zip(&read).enumerate() {
        for draft in drafts(given, file, at, home)? {
            let place = template::TemplateContext { folder: draft.folder.as_deref(), home, syntax: file.host.syntax() };
            learn(&draft.parts, &place, &mut out.known, &mut names);
            all.push(draft);
        }
    }
    out.known.finish();
    for draft in fresh(all, target, &mut out) {
        let Some(file) = read.get(draft.file) else { continue };
        let place = template::TemplateContext { folder: draft.folder.as_deref(), home, syntax: file.host.syntax() };
        let from = BlockSource {
            parts: &draft.parts,
            stated: &draft.stated,
            place,
            inputs: &file.inputs,
            known: &out.known,
            secrets: None,
        };
        out.blocks.push(checked(UpstreamBlock::new(&draft.name, from, &mut names), &out.known));
        out.sources.push(draft.sources);
    }
    for (host, program) in
        [(McpHost::Cursor, "Cursor"), (McpHost::VsCode, "VS Code"), (McpHost::ClaudeDesktop, "Claude Desktop")]
    {
        let is_new = |file: &HostFile| file.host == host && !file.servers.is_empty() && !out.blocks.is_empty();
        if read.iter().any(is_new) {
            out.told.push(format!(
                "{program} keeps servers and tools that are switched off in its window in a store of its own, which is not read"
            ));
        }
    }
    Ok(out)
}

/// Makes drafts of the servers in one parsed file, each with the settings that its host has for it.
/// `at` is the index of the file.
///
/// # Errors
/// A file beside it cannot be parsed.
fn drafts(given: &HostText, file: &HostFile, at: usize, home: Option<&str>) -> Result<Vec<ServerDraft>, ImportError> {
    let beside =
        given.beside.iter().map(|(path, text)| value::read(path, text)).collect::<Result<Vec<FileValue>, _>>()?;
    let draft = |server: &host::HostEntry| {
        let own = server.project.as_ref().map(PathBuf::from).filter(|folder| folder.is_absolute());
        let folder = own.or_else(|| find::folder(&given.path, home));
        let project = server.project.clone().or_else(|| Some(folder.as_ref()?.display().to_string()));
        let settings = HostSettings::of(file.host, &file.root, &beside, project.as_deref());
        let stated = HostServerSettings::of(file.host, server, &settings);
        let from = format!("{:?} of {}{}", server.name, given.path.display(), server.scope);
        ServerDraft {
            name: server.name.clone(),
            sources: vec![from],
            parts: LaunchParts::of(server),
            stated,
            file: at,
            folder,
        }
    };
    Ok(file.servers.iter().map(draft).collect())
}

/// Drops servers that are in the configuration already or are headend itself, and merges servers
/// that two hosts start alike.
fn fresh(all: Vec<ServerDraft>, target: &ImportTarget, out: &mut ImportedServers) -> Vec<ServerDraft> {
    let mut fresh: Vec<ServerDraft> = Vec::new();
    for mut draft in all {
        let Some(from) = draft.sources.first().map(|from| out.known.redacted(from)) else { continue };
        if target.lines.contains(comment(&from).trim_end()) {
            continue;
        }
        if is_headend(&draft.parts) {
            out.told.push(format!("left out: {} is headend itself", foreign::line(&from)));
            continue;
        }
        let same = |other: &&mut ServerDraft| other.parts == draft.parts && other.stated == draft.stated;
        if let Some(same) = fresh.iter_mut().find(same) {
            same.sources.push(from);
        } else {
            draft.sources = vec![from];
            fresh.push(draft);
        }
    }
    fresh
}

/// Returns true if a server is headend: its program, or its usual address.
fn is_headend(parts: &LaunchParts) -> bool {
    let program = parts.words.first().and_then(|word| word.rsplit('/').next());
    let address = parts.url.as_deref().and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
    let own = ["127.0.0.1:8627", "localhost:8627", "[::1]:8627"];
    let is_renamed = program.is_some_and(|program| program.starts_with("headend-"));
    let is_program = program == Some("headend") || is_renamed && parts.words.get(1).is_some_and(|word| word == "stdio");
    is_program || address.is_some_and(|address| own.iter().any(|own| address.starts_with(own)))
}

/// Adds the secrets in a server's texts to `known`, and the variables that they name to `names`, so
/// that no new variable gets such a name.
fn learn(
    parts: &LaunchParts,
    place: &template::TemplateContext<'_>,
    known: &mut KnownSecrets,
    names: &mut ImportNames,
) {
    let mut text = |text: &str, spans: Vec<secrets::SecretSpan>| {
        for span in spans {
            known.learn(text.get(span.range).unwrap_or_default());
        }
        for (_, piece) in template::variables(text, place) {
            if let template::TemplatePiece::Variable { name, .. } = piece {
                names.keep(&name);
            }
        }
    };
    for (word, spans) in parts.words.iter().zip(secrets::in_words(&parts.words)) {
        text(word, spans);
    }
    for plain in parts.url.iter().chain(&parts.cwd) {
        text(plain, secrets::in_text(plain));
    }
    let values = parts.env.iter().map(|value| (value, false)).chain(parts.headers.iter().map(|value| (value, true)));
    for ((name, given), header) in values {
        let GivenValue::Text(value) = given else { continue };
        let secret = if header { secrets::is_secret_header(name, value) } else { secrets::is_secret(name, value) };
        // If a value contains a variable, the rest of it is mostly the name of a scheme, so the
        // value itself is no secret.
        let whole = secret && template::variables(value, place).is_empty();
        let after = value.split_once(' ').filter(|(scheme, _)| scheme.chars().all(char::is_alphabetic));
        let at = after.map_or(0, |(scheme, _)| scheme.len() + 1);
        let spans = whole.then(|| secrets::SecretSpan { range: at..value.len(), name: name.clone() });
        text(value, secrets::in_text(value).into_iter().chain(spans).collect());
    }
}

/// Builds the text of the configuration, and the remarks for the user.
fn composed(
    imported: &ImportedServers,
    silent: SilentDefault,
    present: &ExistingPolicy,
    heading: &str,
) -> (String, Vec<String>) {
    let policy = policy::added(&imported.blocks, silent, present);
    let mut out = heading.to_owned() + &policy.head;
    for (block, sources) in imported.blocks.iter().zip(&imported.sources) {
        out.push('\n');
        out.extend(sources.iter().map(|from| comment(from)));
        out.push_str(&shown(block, &imported.known));
    }
    out.push_str(&policy.rules);
    let told = imported.told.iter().chain(&policy.told).map(|told| imported.known.redacted(told)).collect();
    (out, told)
}

/// Adds the reasons why headend would refuse a block, and removes the text of a block that contains
/// a secret.
fn checked(mut block: UpstreamBlock, known: &KnownSecrets) -> UpstreamBlock {
    let parsed = |text: &str| {
        let text = format!("[policy]\ndefault = \"deny\"\n{text}");
        // All variables and files count as present: `check` reports those that the user has not
        // set.
        config::parse(&text, "", &|_| Some("x".to_owned()), &|_| Ok("x".to_owned())).map(drop)
    };
    if let Err(problems) = parsed(&block.text) {
        block.reasons.extend(problems.0.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)));
    } else if !known.spans(&block.text).is_empty() {
        block.reasons.push("a secret stands where headend reads none from a variable".to_owned());
        block.text.clear();
    } else if !block.unasked.is_empty() {
        let tools = config::show::array(&block.unasked);
        let rule = format!("[[policy.rules]]\nid = \"import\"\neffect = \"allow\"\ntools = {tools}\n");
        if parsed(&(block.text.clone() + &rule)).is_err() {
            block.unasked.clear();
            block.notes.push("Tools that the host lets run need a question: no rule here can name them.".to_owned());
        }
    }
    if !known.spans(&block.text).is_empty() {
        block.text.clear();
    }
    block
}

/// Formats a block with its remarks; a block that headend would refuse becomes a comment.
fn shown(block: &UpstreamBlock, known: &KnownSecrets) -> String {
    let about = |text: &str| comment(&known.redacted(text));
    let mut out: String = block.notes.iter().map(|note| about(note)).collect();
    let off = block.reasons.iter().chain(&block.off).map(|reason| about(&format!("Off: {reason}")));
    out.extend(off);
    out.extend(block.exports.iter().map(|(name, what)| about(&format!("Set {name}: {what}"))));
    if block.reasons.is_empty() {
        return out + &block.text;
    }
    out.extend(block.text.lines().map(comment));
    out
}

/// Formats one comment line. No text of a host's file can end it.
fn comment(text: &str) -> String {
    format!("# {}\n", foreign::line(text).trim_end())
}

/// Builds the text of a new configuration, for tests.
#[cfg(any(test, fuzzing))]
fn converted(files: &[(PathBuf, String)], home: Option<&str>, silent: SilentDefault) -> Result<String, ImportError> {
    let file =
        |(path, text): &(PathBuf, String)| HostText { path: path.clone(), text: text.clone(), beside: Vec::new() };
    let files: Vec<HostText> = files.iter().map(file).collect();
    let imported = imported(&files, home, &ImportTarget::default())?;
    let args = ImportArgs::default();
    let heading = heading(&args, &files, &ImportTarget::default());
    Ok(composed(&imported, silent, &ExistingPolicy::default(), &heading).0)
}

#[cfg(test)]
mod tests;
