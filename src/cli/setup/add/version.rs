//! Finds the version of a package that has none, by the tool that fetches it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cli::reach::source::environment;
use crate::cli::setup::doctor::versions::{running, version};
use crate::cli::words::output::complain;
use crate::config::{fetched_package, split_package};
use crate::wire::foreign;

/// Most polls until a tool is given up, a minute in all.
const LOOKS: u32 = 1200;
const LOOK: Duration = Duration::from_millis(50);

/// The version of a package, and where it is known from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackageVersion {
    pub(super) version: String,
    pub(super) source: String,
}

/// Asks the package tool for the newest version of a package that a command names without one;
/// `program` is the file of the runner. If the tool gives no version, takes the one that was
/// fetched last.
///
/// # Errors
/// The reason why no version is known.
pub(super) fn find_newest(command: &[String], program: Option<&Path>, package: &str) -> Result<PackageVersion, String> {
    let tool = fetched_package(command).map_or("npm", |(tool, _)| tool);
    complain(&format!("asking {tool} for the newest version of {package}"));
    let why = match ask_tool(tool, program.and_then(Path::parent), package) {
        Ok(version) => {
            return Ok(PackageVersion { version, source: format!("the newest that {tool} finds") });
        }
        Err(why) => why,
    };
    let source = format!("the one that was fetched last, since {why}");
    running(command, package).map(|version| PackageVersion { version, source }).ok_or(why)
}

/// Asks a package tool, which is looked for beside its runner first.
fn ask_tool(tool: &str, folder: Option<&Path>, package: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '/' | '-' | '_' | '.' | '[' | ']' | ',');
    if !package.chars().all(is_plain) {
        return Err("its name has unusual characters".to_owned());
    }
    let (arguments, typed): (&[&str], &str) = match tool {
        "uv" => {
            (&["pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate", "-"], split_package(package).0)
        }
        "bun" => (&["pm", "view", package, "version"], ""),
        _ => (&["view", package, "version"], ""),
    };
    let beside = folder.map(|folder| folder.join(tool)).filter(|path| path.is_file());
    let mut command = Command::new(beside.as_deref().unwrap_or(Path::new(tool)));
    let path = environment("PATH").unwrap_or_default();
    if let Some(folder) = folder {
        command.env("PATH", format!("{}:{path}", folder.display()));
    }
    let failed = |error: std::io::Error| format!("{tool}: {error}");
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A tool that reads nothing may have closed its input.
        drop(input.write_all(typed.as_bytes()));
    }
    let mut looks = 0;
    while child.try_wait().map_err(failed)?.is_none() {
        if looks == LOOKS {
            // The program may have ended meanwhile.
            drop(child.kill());
            drop(child.wait());
            return Err(format!("{tool} did not answer within a minute"));
        }
        looks += 1;
        std::thread::sleep(LOOK);
    }
    let output = child.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = said.lines().last().unwrap_or_default();
    let found = version(last.rsplit("==").next().unwrap_or_default().trim().to_owned());
    found.filter(|_| output.status.success()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it names no version");
        format!("{tool} gave no version ({})", foreign::line(why))
    })
}
