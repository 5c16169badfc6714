//! Finds the newest version of a package, by the tool that fetches it.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::cli::exit::NO;
use crate::cli::service::serve::block_on;
use crate::cli::words::output::{CommandFailure, complain};
use crate::config::{UpstreamSettings, fetched_package, split_package, unversioned_package, with_version};
use crate::daemon::gateway::StopTimes;
use crate::upstream::process::guard::GuardedChild;
use crate::upstream::process::launch::Launch;

/// Time limit of the tool.
const LIMIT: Duration = Duration::from_secs(30);
/// Output of the tool that is read, in bytes.
const OUTPUT: u64 = 1 << 20;

/// Asks the package tool for the newest version of the package that a command leaves open. The tool
/// runs in the surroundings of the upstream's program, and fetches and starts nothing of the
/// package.
///
/// # Errors
/// 1 if no version is known.
pub(super) fn find_newest(upstream: &UpstreamSettings, command: &[String]) -> Result<Option<String>, CommandFailure> {
    let found = unversioned_package(command).zip(fetched_package(command));
    let Some((package, (tool, _))) = found else { return Ok(None) };
    complain(&format!("asking {tool} for the newest version of {package}"));
    let asked = block_on(StopTimes::PIPE, async { Ok(ask(upstream, tool, package).await) })?;
    asked.map(Some).map_err(|why| {
        let write = with_version(command, package, "VERSION");
        CommandFailure::new(
            NO,
            format!("no version of {package} is known; write one yourself, as in {write}\n{tool}: {why}"),
        )
    })
}

/// Runs a package tool and returns the version that it prints last.
async fn ask(upstream: &UpstreamSettings, tool: &str, package: &str) -> Result<String, String> {
    // Without the option, uv would build a package that has no wheel, and so run its code.
    let words: &[&str] = match tool {
        "uv" => &[tool, "pip", "compile", "--quiet", "--no-build", "--no-deps", "--no-header", "--no-annotate", "-"],
        "bun" => &[tool, "pm", "view", package, "version"],
        _ => &[tool, "view", package, "version"],
    };
    let launch = Launch::beside(upstream, words).ok_or("it is not in PATH")?;
    let started = GuardedChild::start(tool, &launch).await.map_err(|error| error.to_string())?;
    let (mut keeper, (mut stdin, stdout, stderr)) = started;
    let (name, tag) = split_package(package);
    let wanted = if tag.starts_with('@') { name } else { package };
    let answer = async {
        // A tool that does not read has ended, and says why on stderr.
        drop(stdin.write_all(wanted.as_bytes()).await);
        drop(stdin);
        (tokio::join!(read(stdout), read(stderr)), keeper.exited().await)
    };
    let answer = tokio::time::timeout(LIMIT, answer).await;
    keeper.stop(&StopTimes::PIPE).await;
    let late = |_| format!("no answer within {} seconds", LIMIT.as_secs());
    let ((said, wrong), status) = answer.map_err(late)?;
    // For a range, npm prints all versions in their order, as in `name@1.2.0 '1.2.0'`.
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let word = last.rsplit([' ', '=']).next().unwrap_or_default().trim_matches('\'').to_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '!');
    let is_version = word.starts_with(|c: char| c.is_ascii_digit()) && word.len() <= 64 && word.chars().all(is_plain);
    if status.is_some_and(|status| status.success()) && is_version {
        return Ok(word);
    }
    Err(wrong.lines().find(|line| !line.trim().is_empty()).unwrap_or("it names no version").to_owned())
}

/// Reads an output to its end or its limit.
async fn read(output: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    // The output before an error is the answer.
    drop(output.take(OUTPUT).read_to_end(&mut bytes).await);
    String::from_utf8_lossy(&bytes).into_owned()
}
