//! Reasons to end a command whose input goes on: a signal, or a reader that has closed the other
//! end of stdout.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::cli::exit::{OK, SOFTWARE};
use crate::cli::words::output::CommandFailure;

/// The watched reasons to end a command.
pub(in crate::cli) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    unread: oneshot::Receiver<()>,
}

impl EndSignals {
    /// Starts to watch. The signals no longer end the process by themselves.
    ///
    /// # Errors
    /// 70 when the system refuses it.
    pub(in crate::cli) fn watch() -> Result<Self, CommandFailure> {
        let on = |kind| signal(kind).map_err(|error| CommandFailure::new(SOFTWARE, format!("signals: {error}")));
        let (tell, unread) = oneshot::channel();
        let watching = std::thread::Builder::new().name("stdout".to_owned()).spawn(move || {
            if until_unread() {
                // The process may be ending anyway.
                let _ended = tell.send(());
            }
        });
        if let Err(error) = watching {
            tracing::warn!(error = %error, "stdout is not watched: a host that closes it is noticed at the next answer");
        }
        Ok(Self { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())?, unread })
    }

    /// Waits for the first of the reasons, and logs it.
    pub(in crate::cli) async fn wait(&mut self) {
        let unread = async {
            if (&mut self.unread).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("SIGTERM: shutting down"),
            _ = self.interrupt.recv() => tracing::info!("SIGINT: shutting down"),
            () = unread => tracing::info!("the host has closed stdout: shutting down"),
        }
    }
}

/// Ends the process once stdout has no reader, even while the command waits. For commands that only
/// print.
pub(in crate::cli) fn end_when_unread() {
    let watching = std::thread::Builder::new().name("stdout".to_owned()).spawn(|| {
        if until_unread() {
            std::process::exit(i32::from(OK));
        }
    });
    // Without the thread the next write finds out.
    drop(watching);
}

/// Blocks until stdout has no reader any more, which never happens to a file or `/dev/null`.
/// Returns false if the system cannot watch it.
fn until_unread() -> bool {
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    loop {
        match poll(&mut watched, None) {
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
