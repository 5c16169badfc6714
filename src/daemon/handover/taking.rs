//! The side of the process that takes a daemon over.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::channel::HandoverChannel;
use super::{GiverMessage, TakerMessage};
use crate::base::task_group::TaskGroup;
use crate::daemon::gateway::RunningGateway;
use crate::daemon::inherited::{InheritedListener, InheritedSockets};
use crate::daemon::succession::PriorDaemon;
use crate::policy::consent::PassedApproval;
use crate::serve::sessions::PriorMessage;
use crate::store::disk::lock::StateLock;
use crate::upstream::process::prior::PriorPrograms;

/// Most sockets and upstreams that a daemon may pass.
const MAX_PASSED: usize = 4096;
/// Most messages of clients that wait to be passed to the daemon before.
const MAX_PRIOR_MESSAGES: usize = 64;

/// The daemon that is taken over, and what it has passed.
#[derive(Debug)]
pub(crate) struct Predecessor {
    channel: HandoverChannel,
    pub(crate) sockets: InheritedSockets,
    lock: StateLock,
    pub(crate) prior: PriorDaemon,
    tasks: TaskGroup,
}

impl Predecessor {
    /// Receives what the daemon passes over a connection that it has accepted for a hand-over.
    /// `dir` is the state directory of this process.
    ///
    /// # Errors
    /// A sentence: the daemon refuses, or has another state directory, or the connection fails.
    pub(crate) async fn meet(stream: StdStream, dir: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("the daemon cannot be taken over: {error}");
        stream.set_nonblocking(true).map_err(failed)?;
        let mut channel = HandoverChannel::new(UnixStream::from_std(stream).map_err(failed)?);
        channel.send(&TakerMessage::Ask, &[]).await.map_err(failed)?;
        let (mut sockets, mut lock, mut lifelines) = (InheritedSockets::default(), None, Vec::new());
        let (pid, version) = loop {
            match next(&mut channel).await? {
                GiverMessage::Listener { key, wanted } => {
                    let socket = channel.take_file().map_err(failed)?;
                    sockets.listeners.push(InheritedListener { key, wanted, socket });
                }
                GiverMessage::AdminSocket { path, is_kept } => {
                    sockets.is_admin_kept = is_kept;
                    sockets.admin = Some((path, channel.take_file().map_err(failed)?));
                }
                GiverMessage::Lock => {
                    let files = [channel.take_file().map_err(failed)?, channel.take_file().map_err(failed)?];
                    lock = Some(StateLock::adopt(dir, files).map_err(failed)?);
                }
                GiverMessage::Upstream { name } => lifelines.push((name, channel.take_file().map_err(failed)?)),
                GiverMessage::Complete { pid, version } => break (pid, version),
                GiverMessage::Yours | GiverMessage::Approval(_) | GiverMessage::Go | GiverMessage::Refused { .. } => {
                    return Err(strange());
                }
            }
            if sockets.listeners.len() + lifelines.len() > MAX_PASSED {
                return Err(strange());
            }
        };
        let lock = lock.ok_or_else(strange)?;
        let tasks = TaskGroup::default();
        let prior = prior_daemon(format!("pid {pid}, headend {version}"), lifelines, &tasks);
        Ok(Self { channel, sockets, lock, prior, tasks })
    }

    /// Says that this process can serve, and waits until the daemon has left it the audit log.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) async fn wait_for_log(&mut self) -> Result<(), String> {
        let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
        self.say(&TakerMessage::Ready { pid, version }).await?;
        let answer = next(&mut self.channel).await?;
        if matches!(answer, GiverMessage::Yours) { Ok(()) } else { Err(strange()) }
    }

    /// Says that the gateway is built, adopts the open approvals of the daemon, and waits until
    /// this process may serve. Then reads what the daemon has changed in the store since the
    /// gateway was built.
    ///
    /// # Errors
    /// A sentence; the daemon then goes on.
    pub(crate) async fn wait_for_go(&mut self, gateway: &RunningGateway, has_socket: bool) -> Result<(), String> {
        self.say(&TakerMessage::Built { has_socket }).await?;
        let mut approvals: Vec<PassedApproval> = Vec::new();
        loop {
            let message = next(&mut self.channel).await?;
            if matches!(message, GiverMessage::Go) {
                break;
            }
            let GiverMessage::Approval(approval) = message else { return Err(strange()) };
            if approvals.len() == MAX_PASSED {
                return Err(strange());
            }
            approvals.push(*approval);
        }
        gateway.service.approvals.set_predecessor(true);
        gateway.service.approvals.follow().await;
        approvals.into_iter().for_each(|approval| gateway.service.approvals.adopt(approval));
        gateway.read_changes().await;
        Ok(())
    }

    /// Lets the gateway accept connections, tells the daemon, and follows it in the background to
    /// its end. Returns the lock of the state directory.
    pub(crate) async fn serve(self, gateway: &Arc<RunningGateway>) -> StateLock {
        let Self { channel, lock, prior, tasks, .. } = self;
        lock.name_holder();
        prior.begun.cancel();
        tracing::info!(from = %prior.name, "took the daemon over");
        let (prior, heard) = mpsc::channel(MAX_PRIOR_MESSAGES);
        gateway.sessions.set_prior(Some(prior));
        // A daemon that is gone is one that has ended.
        drop(channel.send(&TakerMessage::Serving, &[]).await);
        let following = follow(Arc::clone(gateway), channel, heard, tasks);
        gateway.supervised.tasks.spawn("predecessor", following);
        lock
    }

    async fn say(&self, message: &TakerMessage) -> Result<(), String> {
        self.channel.send(message, &[]).await.map_err(|error| format!("the daemon went away: {error}"))
    }
}

fn prior_daemon(name: String, lifelines: Vec<(String, OwnedFd)>, tasks: &TaskGroup) -> PriorDaemon {
    let begun = CancellationToken::new();
    PriorDaemon { programs: PriorPrograms::watch(lifelines, begun.clone(), tasks), name, begun }
}

/// Receives the daemon's next message.
///
/// # Errors
/// A sentence: the daemon refuses or goes away.
async fn next(channel: &mut HandoverChannel) -> Result<GiverMessage, String> {
    match channel.receive().await {
        Ok(Some(GiverMessage::Refused { why })) => Err(why),
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err("the daemon ended the hand-over".to_owned()),
        Err(error) => Err(format!("the daemon went away: {error}")),
    }
}

fn strange() -> String {
    "the daemon that answers is of another version and cannot be taken over; stop it and start headend".to_owned()
}

/// Adopts approvals of the daemon before and passes it messages of clients until it has ended, then
/// ends the approvals that it has left.
async fn follow(
    gateway: Arc<RunningGateway>,
    mut channel: HandoverChannel,
    mut heard: mpsc::Receiver<PriorMessage>,
    tasks: TaskGroup,
) {
    let approvals = &gateway.service.approvals;
    let stop = &gateway.supervised.stop;
    loop {
        tokio::select! {
            message = channel.receive() => match message {
                Ok(Some(GiverMessage::Approval(approval))) => approvals.adopt(*approval),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            },
            // A daemon that hears nothing more is one that has ended.
            Some(late) = heard.recv() => drop(channel.send(&TakerMessage::OfClient(late), &[]).await),
            () = stop.cancelled() => break,
        }
    }
    gateway.sessions.set_prior(None);
    if stop.is_cancelled() {
        return tasks.stop();
    }
    tracing::info!("the daemon before has ended");
    approvals.set_predecessor(false);
    approvals.end_approvals_of_earlier_daemons();
    gateway.read_changes().await;
}
