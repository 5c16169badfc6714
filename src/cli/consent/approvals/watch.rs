//! The command `headend approvals --watch`: follows open approvals, and on a terminal asks about
//! each.

use std::collections::HashSet;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::asker::{AskOutcome, OfferedAnswers, ask};
use super::shown::TRY_AGAIN;
use crate::cli::exit::{NO, OK, SOFTWARE, UNAVAILABLE};
use crate::cli::reach::daemon;
use crate::cli::reach::operator::OperatorClient;
use crate::cli::service::ends::end_when_unread;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, follow, json_line, print};
use crate::cli::words::screen::Screen;
use crate::cli::words::terminal;
use crate::daemon::local_time::local;
use crate::operator::request::{NoParams, OperatorAnswer, Request};
use crate::operator::views::ApprovalsView;
use crate::policy::consent::ApprovalView;
use crate::wire::foreign;

/// Pause between two requests for the list: no signal tells of approvals of other processes on the
/// same store.
const LOOK: Duration = Duration::from_secs(1);

/// Follows approvals until Ctrl-C, the end of the input, or, if it only prints, until stdout has no
/// reader.
pub(super) fn run(common: &CommonOptions, json: bool) -> Result<u8, CommandFailure> {
    let asks = !json && terminal::is_here();
    end_at_ctrl_c(asks)?;
    if !asks {
        end_when_unread();
    }
    // Fails at once if neither a daemon nor a store can be used; later failures are waited out.
    let mut client = Some(OperatorClient::find(common)?);
    if asks {
        print(&Screen::of_stdout().paragraph(
            "y allows a call once, 8 any arguments for 8 hours, a any arguments until the tool or its server changes, b those below a \
             folder; n denies it, Enter leaves it open; Ctrl-C ends",
        ))?;
    }
    let mut seen: HashSet<String> = HashSet::new();
    loop {
        let Some(rows) = fetch_open(common, &mut client)? else {
            std::thread::sleep(LOOK);
            continue;
        };
        seen.retain(|known| rows.iter().any(|row| row.id == *known));
        let fresh: Vec<&ApprovalView> = rows.iter().filter(|row| !seen.contains(&row.id)).collect();
        if let (Some(client), Some(row), true) = (&mut client, fresh.first(), asks) {
            seen.insert(row.id.clone());
            if !ask_about(client, &row.id, fresh.len() - 1)? {
                return Ok(OK);
            }
            // Further approvals may have been answered while the person thought.
            continue;
        }
        for row in fresh {
            seen.insert(row.id.clone());
            if !follow(&line(row, json)?)? {
                return Ok(OK);
            }
        }
        std::thread::sleep(LOOK);
        let is_alone = client.as_ref().is_some_and(OperatorClient::is_without_daemon);
        if is_alone && daemon::connect(common, "admin", None).is_ok() {
            client = None;
        }
    }
}

/// Fetches the open approvals, reconnecting if necessary; `None` while the daemon is unreachable.
fn fetch_open(
    common: &CommonOptions,
    client: &mut Option<OperatorClient>,
) -> Result<Option<Vec<ApprovalView>>, CommandFailure> {
    let found = match client.take() {
        Some(found) => Ok(found),
        None => OperatorClient::find(common),
    };
    let listed = found.and_then(|mut found| {
        let list: ApprovalsView = found.ask(&Request::Approvals(NoParams {}))?;
        *client = Some(found);
        Ok(list.approvals)
    });
    match listed {
        Ok(rows) => Ok(Some(rows)),
        Err(failure) if failure.code == UNAVAILABLE => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Asks about one approval and prints the outcome; `others` is the number of further new approvals.
/// Returns false at the end of the input.
fn ask_about(client: &mut OperatorClient, id: &str, others: usize) -> Result<bool, CommandFailure> {
    let waiting = if others == 0 { String::new() } else { format!("{others} more behind this one\n") };
    print(&format!("\n{waiting}"))?;
    let text = match ask(client, id, OfferedAnswers::Longer) {
        Ok(AskOutcome::Over) => return Ok(false),
        Ok(AskOutcome::Allowed { wish, is_late }) => {
            format!(
                "allowed {}{}",
                describe_duration(&wish),
                if is_late { format!(". {TRY_AGAIN}") } else { String::new() }
            )
        }
        Ok(AskOutcome::Denied) => "denied; the same call stays refused for 10 minutes".to_owned(),
        Ok(AskOutcome::Left) => format!("left open; `headend approve {id}` and `headend deny {id}` answer it"),
        Ok(AskOutcome::Gone) => "it was answered elsewhere or has expired".to_owned(),
        Err(failure) if matches!(failure.code, NO | UNAVAILABLE) => {
            complain(&failure.text);
            return Ok(true);
        }
        Err(failure) => return Err(failure),
    };
    print(&format!("{}\n", foreign::line(&text)))?;
    Ok(true)
}

/// Describes how long a permission lasts, and where it can be revoked.
fn describe_duration(wish: &OperatorAnswer) -> String {
    match wish {
        OperatorAnswer::For(_) | OperatorAnswer::Session => {
            format!("for {wish}, any arguments; `headend grants` lists it")
        }
        OperatorAnswer::Always => {
            "until the tool or its server changes, any arguments; `headend grants` lists it".to_owned()
        }
        OperatorAnswer::Below(_) => format!("{wish}; `headend grants` lists it"),
        OperatorAnswer::Once | OperatorAnswer::Deny => wish.to_string(),
    }
}

/// Formats an approval as one line, of JSON if asked for.
fn line(row: &ApprovalView, json: bool) -> Result<String, CommandFailure> {
    if json {
        return json_line(row);
    }
    let time = local(row.opened_at);
    let ApprovalView { id, caller, kind, item, min_evidence, .. } = row;
    let [id, caller, kind, item, need] = [id.as_str(), caller.name(), kind, item, min_evidence].map(foreign::line);
    Ok(format!("{time} {id} {caller} {kind} {item} (needs {need})\n"))
}

/// Spawns a thread that ends the process with success on Ctrl-C, the normal way to end the command.
fn end_at_ctrl_c(asks: bool) -> Result<(), CommandFailure> {
    let failed = |error: std::io::Error| CommandFailure::new(SOFTWARE, format!("the signal of Ctrl-C: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let mut interrupted = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt()).map_err(failed)?
    };
    std::thread::spawn(move || {
        runtime.block_on(interrupted.recv());
        if asks {
            // Moves the shell's prompt to a new line. Bypasses the lock of stdout, which another
            // thread may hold.
            let _written = rustix::io::write(std::io::stdout(), b"\n");
        }
        std::process::exit(i32::from(OK));
    });
    Ok(())
}
