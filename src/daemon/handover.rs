//! Hands the daemon over to a new process of the same user and state directory, which
//! `headend serve --take-over` starts. At every moment one of the two serves.
//!
//! Both talk over a connection to the admin socket, which only our own user may ask for it:
//!
//! 1. *Ask*: the new process has checked its configuration and the store. The old one passes its
//!    listening sockets, the lock of the state directory, and the lifelines of its upstreams
//!    ([`crate::upstream::process::lifeline`]).
//! 2. *Ready*: the new process has received them. The old one leaves the chain `main`
//!    of the audit log to it and answers *yours*.
//! 3. *Built*: the new process has built its gateway, which accepts and starts nothing yet. The old
//!    one passes its open approvals for which no call waits, and answers *go*.
//! 4. *Serving*: the new process accepts connections. The old one stops to do so and ends as at a
//!    stop: its calls in flight have `drain-timeout`. Its other open approvals follow as soon as
//!    their calls have ended. It ends each upstream once no call needs it, and the new process
//!    starts that one's program after the last process of the old one has ended. Clients send
//!    answers to questions of the old one, and cancellations, to the new one, which passes them on.
//!
//! Until *serving* every failure, and every end of the new process, leaves the old one as it was.
//! The connection ends with the old process.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::policy::consent::PassedApproval;
use crate::serve::sessions::PriorMessage;

mod channel;
pub(super) mod giving;
pub(crate) mod late;
pub(crate) mod taking;

/// The `want` in the hello of a process that takes the daemon over.
pub(crate) const TAKE_OVER: &str = "take-over";

/// A message of the daemon that is taken over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GiverMessage {
    /// A listening TCP socket comes along.
    Listener {
        key: String,
        wanted: SocketAddr,
    },
    /// The listening admin socket at this path comes along.
    AdminSocket {
        path: PathBuf,
        /// True if the service manager keeps it open.
        is_kept: bool,
    },
    /// The two files of the state directory's lock come along.
    Lock,
    /// The read end of an upstream's lifeline comes along.
    Upstream {
        name: String,
    },
    /// Everything has been passed.
    Complete {
        pid: u32,
        version: String,
    },
    /// The chain `main` of the audit log is free.
    Yours,
    Approval(Box<PassedApproval>),
    /// The new process may accept connections.
    Go,
    Refused {
        why: String,
    },
}

/// A message of the new process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TakerMessage {
    /// The new process has read the hello, and receives files from here on.
    Ask,
    Ready {
        pid: u32,
        version: String,
    },
    /// `has_socket`: the new process serves the admin socket that was passed.
    Built {
        has_socket: bool,
    },
    Serving,
    /// A client has sent a message that may be about a call or a question of the old process.
    OfClient(PriorMessage),
}
