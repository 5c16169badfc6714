//! A notifier that is a program: the notice on its standard input, nothing of our environment, and its end with all that it started.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::failed::{Failed, TIME};
use crate::base::clock;
use crate::base::stop::StopTimes;
#[cfg(any(test, feature = "testing"))]
use crate::stage::program::Keeper;
#[cfg(not(any(test, feature = "testing")))]
use crate::upstream::process::guard::Keeper;
use crate::upstream::process::launch::Launch;

/// Output that is read and thrown away, from each pipe. A program that writes more waits for its end.
const OUTPUT: u64 = 1 << 20;
/// A program that is late gets SIGTERM at once, then SIGKILL; so does what it left behind.
const END: StopTimes = StopTimes { polite: Duration::ZERO, firm: Duration::from_millis(500), ..StopTimes::DAEMON };

/// Runs the program to its end.
pub(super) async fn run(command: &[String], notice: Bytes, stop: &CancellationToken) -> Result<(), Failed> {
    let begun = clock::now();
    let launch = Launch::bare(command);
    // A start that is given up ends by its guard.
    let started = tokio::time::timeout(TIME, Keeper::start("notify", &launch)).await.map_err(|_| Failed::Late)?;
    let (mut keeper, (mut stdin, mut stdout, mut stderr)) =
        started.map_err(|error| Failed::Start(error.to_string()))?;
    let served = async {
        let told = async {
            // A program may end without reading it.
            drop(stdin.write_all(&notice).await);
            drop(stdin);
        };
        tokio::join!(told, discard(&mut stdout), discard(&mut stderr));
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        status = keeper.exited() => Ok(status),
        () = served => Ok(None),
        () = clock::sleep_until(Some(begun + TIME)) => Err(Failed::Late),
        () = stop.cancelled() => Err(Failed::Stopped),
    };
    keeper.stop(&END).await;
    match ended? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Failed::Status(status)),
        None => Err(Failed::Start("the program was lost".to_owned())),
    }
}

/// Output may hold the notice, so nothing is kept of it.
async fn discard(output: &mut (impl AsyncRead + Unpin)) {
    drop(tokio::io::copy(&mut output.take(OUTPUT), &mut tokio::io::sink()).await);
}
