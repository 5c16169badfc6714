//! Sends a notice to a program, on its standard input. The program gets no environment of ours, and
//! ends with everything it started.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::failed::{NoticeError, TIME};
use crate::base::clock;
use crate::base::stop::StopTimes;
#[cfg(any(test, feature = "testing"))]
use crate::stage::program::ProgramHandle;
#[cfg(not(any(test, feature = "testing")))]
use crate::upstream::process::guard::GuardedChild as ProgramHandle;
use crate::upstream::process::launch::Launch;

/// Output that is discarded from each pipe, in bytes. A program that writes more blocks until its
/// end.
const OUTPUT: u64 = 1 << 20;
/// Stop times of the program and what it left behind: SIGTERM at once, then SIGKILL.
const END: StopTimes = StopTimes { polite: Duration::ZERO, firm: Duration::from_millis(500), ..StopTimes::DAEMON };

/// Runs the program with the notice on its standard input, for [`TIME`] at most.
pub(super) async fn run(command: &[String], notice: Bytes, stop: &CancellationToken) -> Result<(), NoticeError> {
    let begun = clock::now();
    let launch = Launch::bare(command);
    // An abandoned start is ended by its guard.
    let started =
        tokio::time::timeout(TIME, ProgramHandle::start("notify", &launch)).await.map_err(|_| NoticeError::Late)?;
    let (mut keeper, (mut stdin, mut stdout, mut stderr)) =
        started.map_err(|error| NoticeError::Start(error.to_string()))?;
    let served = async {
        let told = async {
            // The program may end without reading the notice.
            drop(stdin.write_all(&notice).await);
            drop(stdin);
        };
        tokio::join!(told, discard(&mut stdout), discard(&mut stderr));
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        status = keeper.exited() => Ok(status),
        () = served => Ok(None),
        () = clock::sleep_until(Some(begun + TIME)) => Err(NoticeError::Late),
        () = stop.cancelled() => Err(NoticeError::Stopped),
    };
    keeper.stop(&END).await;
    match ended? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(NoticeError::Status(status)),
        None => Err(NoticeError::Start("the program was lost".to_owned())),
    }
}

/// Reads output and keeps none of it, since it may contain the notice.
async fn discard(output: &mut (impl AsyncRead + Unpin)) {
    drop(tokio::io::copy(&mut output.take(OUTPUT), &mut tokio::io::sink()).await);
}
