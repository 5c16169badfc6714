//! Checks variables for certificates and proxies, and the programs that upstreams need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::finding::{DoctorFindings, FindingLevel};
use crate::cli::reach::source::environment;
use crate::config::{
    Config, NotifyReceiver, NotifySettings, UpstreamTarget, VariableText, is_program, known_directories,
};
use crate::operator::upstreams::program_of;

/// Variables that name files or folders of certificates.
const CERTIFICATES: [&str; 5] =
    ["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// The next step if a server behind a URL needs a proxy.
const PROXY_LINE: &str = "write `proxy = \"http://proxy.example.com:3128\"` with your proxy in [upstreams.NAME], or set HTTPS_PROXY where the daemon is started";
/// Most polls of `PROGRAM --version` until the wait is given up, five seconds in all.
const LOOKS: u32 = 500;
const LOOK: Duration = Duration::from_millis(10);
/// Oldest major version of Node that the official servers run with.
const NODE: u32 = 18;
/// Oldest minor version of Python 3 that the official servers run with.
const PYTHON: u32 = 10;

pub(super) fn variables(config: &Config, found: &mut DoctorFindings) {
    for name in CERTIFICATES {
        let Some(value) = environment(name) else { continue };
        if !Path::new(&value).exists() {
            let next = format!("correct it or take it away: `unset {name}`");
            found.problem("certificates", format!("${name} names `{value}`, which is not there"), next);
        }
    }
    proxies(config, found);
}

/// Adds a finding about the proxy of the first upstream that uses one, about a proxy that cannot be
/// used, and about proxy variables that headend does not read.
fn proxies(config: &Config, found: &mut DoctorFindings) {
    let remote = config.upstreams.iter().filter_map(|spec| match &spec.target {
        UpstreamTarget::Http { url, .. } => Some((spec, url)),
        UpstreamTarget::Stdio { .. } => None,
    });
    let mut is_told = false;
    for (spec, url) in remote {
        match spec.proxy.route(url) {
            Err(why) => return found.problem("proxy", why, PROXY_LINE.replace("NAME", spec.name.as_str())),
            Ok(Some(proxy)) if !is_told => {
                found.ok("proxy", format!("`{}` is reached through {proxy}", spec.name));
                is_told = true;
            }
            Ok(_) => {}
        }
    }
    let other = ["ALL_PROXY", "all_proxy"].into_iter().find(|name| environment(name).is_some());
    let direct = config.upstreams.iter().find(|spec| !spec.target.is_here());
    if let (Some(name), Some(spec), false) = (other, direct, is_told) {
        let what = format!("${name} is set, which headend does not read: `{}` is reached directly", spec.name);
        found.add(FindingLevel::Note, "proxy", what, PROXY_LINE.replace("NAME", spec.name.as_str()));
    }
}

/// Adds findings about the versions of interpreters that upstreams need, about the notification
/// program, and about programs that are not in PATH.
pub(super) fn programs(config: &Config, found: &mut DoctorFindings) {
    let words: Vec<&str> = config.upstreams.iter().filter_map(|spec| word(&spec.target)).collect();
    let needs = |names: &[&str]| words.iter().any(|word| names.contains(word));
    if needs(&["npx", "node", "npm", "pnpm", "yarn"]) {
        check_version(found, "node", |text| text.trim().strip_prefix('v')?.split('.').next()?.parse().ok(), NODE, "");
    }
    if needs(&["python", "python3"]) {
        check_version(
            found,
            "python3",
            |text| text.trim().strip_prefix("Python 3.")?.split('.').next()?.parse().ok(),
            PYTHON,
            "3.",
        );
    }
    notifier(config, found);
    for spec in &config.upstreams {
        let Some(word) = word(&spec.target).filter(|word| !word.contains('/')) else { continue };
        if program_of(spec).is_some() {
            continue;
        }
        let name = spec.name.as_str();
        found.problem(name, format!("`{word}` is in no folder of PATH"), describe_remedy(name, word));
    }
}

/// Adds a finding about the program of `[policy.consent] notify`.
fn notifier(config: &Config, found: &mut DoctorFindings) {
    let Some(NotifySettings { to: NotifyReceiver::Program(command), .. }) = &config.consent.notify else { return };
    let Some(program) = command.first().map(Path::new) else { return };
    let shown = program.display();
    match std::fs::metadata(program) {
        Ok(_) if is_program(program) => {
            found.ok("notify", format!("{shown}; `headend approvals notify` tries it"));
        }
        Ok(_) => {
            let next = format!("make it executable: `chmod +x {shown}`, or correct `notify` in [policy.consent]");
            found.problem("notify", format!("`{shown}` is no program"), next);
        }
        Err(error) => {
            let next = "install the program, or correct `notify` in [policy.consent]";
            found.problem("notify", format!("`{shown}`: {error}"), next);
        }
    }
}

/// Returns the next step if the program `word` of the upstream `name` is not found.
pub(super) fn describe_remedy(name: &str, word: &str) -> String {
    let Some(folder) = find_program_folder(word) else {
        return format!("{}, or correct `command` of [upstreams.{name}]", installation(word));
    };
    let folder = folder.display().to_string();
    format!("it is in {folder}: write `path = [{folder:?}]` in [upstreams.{name}], then `headend reload`")
}

fn word(target: &UpstreamTarget) -> Option<&str> {
    match target {
        // A word with variables could contain a secret, so it is not shown.
        UpstreamTarget::Stdio { command, .. } => {
            command.first().filter(|word| !word.is_expanded()).map(VariableText::expose)
        }
        UpstreamTarget::Http { .. } => None,
    }
}

/// Describes how to install a program.
fn installation(word: &str) -> String {
    match word {
        "npx" | "node" | "npm" => "install Node.js 18 or later (https://nodejs.org)".to_owned(),
        "uvx" | "uv" => "install uv (https://docs.astral.sh/uv)".to_owned(),
        "docker" => "install Docker (https://docs.docker.com/engine/install)".to_owned(),
        "python" | "python3" => "install Python 3.10 or later".to_owned(),
        "bunx" | "bun" => "install Bun (https://bun.sh)".to_owned(),
        "deno" => "install Deno (https://deno.com)".to_owned(),
        other => format!("install `{other}`"),
    }
}

/// Finds a folder that contains the program: in the PATH of this command, which may differ from the
/// daemon's, or among the usual folders of installers.
fn find_program_folder(word: &str) -> Option<PathBuf> {
    let own = environment("PATH").unwrap_or_default();
    let own = own.split(':').filter(|folder| folder.starts_with('/')).map(PathBuf::from);
    own.chain(known_directories(&environment)).find(|folder| is_program(&folder.join(word)))
}

/// Adds a finding about the version that a program prints; `least` is the oldest good one, with
/// `before` in front of it in messages.
fn check_version(
    found: &mut DoctorFindings,
    program: &str,
    read: impl Fn(&str) -> Option<u32>,
    least: u32,
    before: &str,
) {
    // If the program is missing, there is a finding about the upstream that needs it.
    let Some(text) = run_version(program) else { return };
    match read(&text) {
        Some(number) if number < least => {
            let what = format!("{} is older than {before}{least}, which current servers need", text.trim());
            found.problem(program, what, installation(program));
        }
        _ => found.ok(program, text.trim()),
    }
}

/// Returns the first 80 characters that `PROGRAM --version` prints; `None` if it fails to start or
/// takes too long.
fn run_version(program: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut looks = 0;
    while child.try_wait().ok()?.is_none() {
        if looks == LOOKS {
            // The program may have ended meanwhile.
            drop(child.kill());
            drop(child.wait());
            return None;
        }
        looks += 1;
        std::thread::sleep(LOOK);
    }
    let output = child.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).chars().take(80).collect())
        .filter(|text: &String| !text.trim().is_empty())
}
