//! The side of the daemon that is taken over.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::channel::HandoverChannel;
use super::{GiverMessage, TakerMessage, late};
use crate::daemon::gateway::{MAIN, RunningGateway, new_chain_name};
use crate::daemon::inherited::InheritedListener;
use crate::daemon::systemd;
use crate::policy::AuditEntry;
use crate::policy::consent::PassedApproval;
use crate::store::directory::StateDir;
use crate::upstream::session::handle::UpstreamHandle;

/// Longest time that the new process may take for each step before it serves.
const STEP: Duration = Duration::from_secs(60);
/// Most approvals that wait to be passed on: as many as may be open.
const WAITING: usize = 1024;
/// Attempts to continue the audit log after a failure, each of which waits about a second.
const TRIES: u32 = 10;
/// Longest wait for requests that are arriving, before upstreams that no call needs are ended: a
/// relay has two seconds to leave.
const ARRIVAL: Duration = Duration::from_secs(3);
/// Time between two looks for upstreams that no call needs.
const LOOK: Duration = Duration::from_millis(20);

/// Hands the daemon over to the process at the other end of `stream`, which belongs to our own
/// user. If that process serves in the end, this one is told to end; in all other cases it is as
/// before.
///
/// # Errors
/// The connection failed before anything changed.
pub(in crate::daemon) async fn give(gateway: &Arc<RunningGateway>, stream: UnixStream) -> io::Result<()> {
    let mut channel = HandoverChannel::new(stream);
    // An earlier answer could be read together with the hello.
    if next(&mut channel).await? != Some(TakerMessage::Ask) {
        return Ok(());
    }
    let refuse = |why: &str| GiverMessage::Refused { why: why.to_owned() };
    let Ok(_one) = gateway.handover.one.try_lock() else {
        return channel.send(&refuse("the daemon is being taken over by another process"), &[]).await;
    };
    if gateway.service.draining.is_cancelled() {
        return channel.send(&refuse("the daemon is ending; try again"), &[]).await;
    }
    if gateway.store.as_ref().is_some_and(StateDir::is_in_cluster) {
        return channel.send(&refuse("a replica of a [cluster] is not handed over"), &[]).await;
    }
    if let Err(error) = pass_files(gateway, &channel).await {
        return channel.send(&refuse(&format!("the daemon cannot be taken over: {error}")), &[]).await;
    }
    let Some(TakerMessage::Ready { pid, version }) = next(&mut channel).await? else { return Ok(()) };
    let taker = format!("pid {pid}, headend {version}");
    let audit = &gateway.service.audit;
    let recorded = audit.record(AuditEntry::gateway("handed over", taker.clone()), true).written().await;
    let left = match recorded {
        Ok(()) => audit.switch(&new_chain_name()).await,
        Err(error) => Err(io::Error::other(error)),
    };
    if let Err(error) = left {
        audit.record_done(AuditEntry::gateway("kept", "the audit log could not be handed over"));
        return channel.send(&refuse(&format!("the audit log cannot be handed over: {error}")), &[]).await;
    }
    let (later, waiting) = mpsc::channel(WAITING);
    let mut passed = Vec::new();
    match agree(gateway, &mut channel, later, &mut passed).await {
        Ok(has_socket) => {
            tracing::info!(to = %taker, "another process serves now; this one ends");
            systemd::notify_main_process(pid);
            gateway.handover.socket_is_taken.store(has_socket, Ordering::Relaxed);
            let (ending, stop) = (Arc::clone(gateway), gateway.supervised.stop.clone());
            gateway.supervised.tasks.spawn("successor", pass_approvals(ending, channel, waiting, stop.clone()));
            gateway.supervised.tasks.spawn("unneeded", end_unneeded(Arc::clone(gateway), stop));
            gateway.handover.late.get_or_init(|| late::connect_to_successor(gateway));
            gateway.handover.given.cancel();
        }
        Err(error) => {
            drop(channel);
            tracing::warn!(to = %taker, error = %error, "the process that takes over has failed; this one goes on");
            gateway.service.approvals.take_back(passed, waiting);
            take_log_back(gateway, &error).await;
        }
    }
    Ok(())
}

/// Takes the next message of the new process, within [`STEP`]; `None` at the end of the connection.
async fn next(channel: &mut HandoverChannel) -> io::Result<Option<TakerMessage>> {
    tokio::time::timeout(STEP, channel.receive()).await?
}

/// Passes the sockets, the lock and the lifelines.
///
/// # Errors
/// One of them is missing, or the connection fails.
async fn pass_files(gateway: &RunningGateway, channel: &HandoverChannel) -> io::Result<()> {
    let sockets = {
        let held = gateway.handover.sockets.lock();
        let one = |held: &InheritedListener| {
            let message = GiverMessage::Listener { key: held.key.clone(), wanted: held.wanted };
            Ok((message, held.socket.as_fd().try_clone_to_owned()?))
        };
        held.iter().map(one).collect::<io::Result<Vec<_>>>()?
    };
    let admin = {
        let held = gateway.handover.admin.lock();
        let one = held.as_ref().map(|(path, socket)| {
            let message = GiverMessage::AdminSocket {
                path: path.clone(),
                is_kept: gateway.handover.is_socket_kept.load(Ordering::Relaxed),
            };
            Ok::<_, io::Error>((message, socket.as_fd().try_clone_to_owned()?))
        });
        one.transpose()?
    };
    for (message, socket) in sockets.into_iter().chain(admin) {
        channel.send(&message, &[socket.as_fd()]).await?;
    }
    let lock = gateway.handover.lock.get().ok_or_else(|| io::Error::other("it has no state directory"))?.pass()?;
    let files: Vec<BorrowedFd<'_>> = lock.iter().map(|file| file.as_fd()).collect();
    channel.send(&GiverMessage::Lock, &files).await?;
    let handles = gateway.service.snapshots.load().handles.clone();
    for handle in handles.iter().filter(|handle| handle.is_program()) {
        let name = handle.name.to_string();
        let lifeline = handle.lifeline().ok_or_else(|| io::Error::other(format!("{name} has no lifeline")))?;
        channel.send(&GiverMessage::Upstream { name }, &[lifeline.pass()?.as_fd()]).await?;
    }
    let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
    channel.send(&GiverMessage::Complete { pid, version }, &[]).await
}

/// Lets the new process build its gateway, passes the open approvals and lets it serve. Returns
/// whether it has taken the admin socket. `passed` are the approvals that were passed, also after a
/// failure.
///
/// # Errors
/// The new process failed before it served.
async fn agree(
    gateway: &RunningGateway,
    channel: &mut HandoverChannel,
    later: mpsc::Sender<PassedApproval>,
    passed: &mut Vec<PassedApproval>,
) -> io::Result<bool> {
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it served");
    channel.send(&GiverMessage::Yours, &[]).await?;
    let Some(TakerMessage::Built { has_socket }) = next(channel).await? else { return Err(ended()) };
    gateway.sessions.settled().await;
    passed.extend(gateway.service.approvals.pass_on(later));
    if let Some(Ok(db)) = gateway.store.as_ref().map(StateDir::db) {
        // A row of this process that is written late would replace that of the new owner.
        drop(db.all_so_far().run().await);
    }
    for approval in passed.iter() {
        channel.send(&GiverMessage::Approval(Box::new(approval.clone())), &[]).await?;
    }
    channel.send(&GiverMessage::Go, &[]).await?;
    // Without a time limit: from here on the new process may serve at any moment, and both do until
    // it says so.
    match channel.receive().await? {
        Some(TakerMessage::Serving) => Ok(has_socket),
        Some(
            TakerMessage::Ask | TakerMessage::Ready { .. } | TakerMessage::Built { .. } | TakerMessage::OfClient(_),
        )
        | None => Err(ended()),
    }
}

/// Continues the chain `main` of the audit log after a hand-over that failed for the reason
/// `error`. The other process may still be ending.
async fn take_log_back(gateway: &RunningGateway, error: &io::Error) {
    let audit = &gateway.service.audit;
    let mut tries = 1;
    while let Err(error) = audit.switch(MAIN).await {
        if tries == TRIES {
            tracing::error!(error = %error, "the audit log goes on in a chain of its own until headend is started again");
            break;
        }
        tries += 1;
    }
    audit.record_done(AuditEntry::gateway("kept", format!("the hand-over failed: {error}")));
}

/// Passes each open approval on once its call has ended, and takes messages of clients about calls
/// of this process, until `stop` fires. Then keeps the connection for as long as the process lives.
async fn pass_approvals(
    gateway: Arc<RunningGateway>,
    mut channel: HandoverChannel,
    mut waiting: mpsc::Receiver<PassedApproval>,
    stop: CancellationToken,
) {
    let (mut may_pass, mut may_hear) = (true, true);
    loop {
        let passed = tokio::select! {
            biased;
            passed = waiting.recv(), if may_pass => passed,
            heard = channel.receive(), if may_hear => {
                match heard {
                    Ok(Some(TakerMessage::OfClient(late))) => gateway.sessions.handle_late_message(late),
                    _ => may_hear = false,
                }
                continue;
            }
            () = stop.cancelled() => break,
        };
        let Some(passed) = passed else {
            may_pass = false;
            continue;
        };
        if let Err(error) = channel.send(&GiverMessage::Approval(Box::new(passed)), &[]).await {
            tracing::warn!(error = %error, "an open approval is lost; its call is asked about again");
        }
    }
    *gateway.handover.successor.lock() = Some(channel.into_stream());
}

/// Ends each upstream that starts programs once no call needs it, until `stop` fires.
async fn end_unneeded(gateway: Arc<RunningGateway>, stop: CancellationToken) {
    let mut left: Vec<Arc<UpstreamHandle>> = gateway.service.snapshots.load().handles.clone();
    left.retain(|handle| handle.is_program());
    let arrived = async {
        while Arc::strong_count(&gateway.service.arriving) > 1 {
            tokio::time::sleep(LOOK).await;
        }
    };
    let _in_time = stop.run_until_cancelled(tokio::time::timeout(ARRIVAL, arrived)).await;
    while !left.is_empty() && stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        left.retain(|handle| {
            let is_needed = handle.is_in_use() || gateway.service.approvals.is_awaited(handle.name.as_str());
            if !is_needed {
                handle.end();
            }
            is_needed
        });
    }
}
