//! Finds the newest version of a package, by the tool that fetches it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::cli::exit::NO;
use crate::cli::words::output::{CommandFailure, complain};
use crate::config::{fetched_package, split_package, unversioned_package, with_version};

/// Asks the package tool for the newest version of the package that a command names without one.
///
/// # Errors
/// 1 if no version is known.
pub(super) fn find_newest(command: &[String]) -> Result<Option<String>, CommandFailure> {
    let found = unversioned_package(command).zip(fetched_package(command));
    let Some((package, (tool, _))) = found else { return Ok(None) };
    complain(&format!("asking {tool} for the newest version of {package}"));
    ask(tool, package).map(Some).map_err(|why| {
        let write = with_version(command, package, "VERSION");
        CommandFailure::new(
            NO,
            format!("no version of {package} is known; write one yourself, as in {write}\n{tool}: {why}"),
        )
    })
}

/// Runs a package tool and returns the version that it prints.
fn ask(tool: &str, package: &str) -> Result<String, String> {
    let arguments: &[&str] = match tool {
        "uv" => &["pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate", "-"],
        "bun" => &["pm", "view", package, "version"],
        _ => &["view", package, "version"],
    };
    let failed = |error: std::io::Error| error.to_string();
    let mut command = Command::new(tool);
    let pipes = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take().filter(|_| tool == "uv") {
        // A tool that has ended already says why on stderr.
        drop(input.write_all(split_package(package).0.as_bytes()));
    }
    let output = child.wait_with_output().map_err(failed)?;
    let [said, wrong] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let version = said.lines().last().unwrap_or_default().rsplit("==").next().unwrap_or_default().trim().to_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '!');
    if output.status.success() && (1..=64).contains(&version.len()) && version.chars().all(is_plain) {
        return Ok(version);
    }
    Err(wrong.lines().find(|line| !line.trim().is_empty()).unwrap_or("it names no version").to_owned())
}
