//! A daemon's knowledge of the daemon before it and of the daemon after it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::daemon::inherited::InheritedListener;
use crate::serve::late::Successor;
use crate::store::disk::lock::StateLock;
use crate::upstream::process::prior::PriorPrograms;

/// The part of a daemon's state that a hand-over needs: what it passes on, and how far it is.
#[derive(Debug, Default)]
pub(crate) struct HandoverState {
    /// Duplicates of the listening sockets, closed when the daemon ends.
    pub(super) sockets: Mutex<Vec<InheritedListener>>,
    /// A duplicate of the listening admin socket, and its path.
    pub(super) admin: Mutex<Option<(PathBuf, OwnedFd)>>,
    /// The lock of the state directory, once the daemon has it.
    pub(crate) lock: OnceLock<&'static StateLock>,
    /// Held by the hand-over that is under way.
    pub(super) one: tokio::sync::Mutex<()>,
    /// The process to which requests are passed that arrive after the hand-over.
    pub(super) late: Arc<OnceLock<Successor>>,
    /// Fires once another process serves in place of this one.
    pub(crate) given: CancellationToken,
    /// True if that process serves the admin socket of this one.
    pub(super) socket_is_taken: AtomicBool,
    /// True if the service manager keeps the admin socket open.
    pub(crate) is_socket_kept: AtomicBool,
    /// The connection to that process, which ends with this process.
    pub(super) successor: Mutex<Option<UnixStream>>,
}

/// The daemon that this process takes over from, as its gateway sees it.
#[derive(Clone, Debug)]
pub(crate) struct PriorDaemon {
    pub(crate) programs: PriorPrograms,
    /// Process id and version, for the audit log.
    pub(crate) name: String,
    /// Fires once this process serves.
    pub(crate) begun: CancellationToken,
}
