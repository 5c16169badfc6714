//! The content of a replica's row: its addresses, version and load.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::engine::sealed::peer::PeerKey;
use crate::engine::sealed::run_id::RunId;
use crate::store::port::{KeptReplica, ReplicaRow};

/// The content of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaFacts {
    /// `[cluster] name`.
    pub name: String,
    /// Where the other replicas reach it; `None` if they cannot.
    pub url: Option<Url>,
    /// Digest of the public key by which it proves itself, in hexadecimal; `None` for plain HTTP.
    pub key: Option<String>,
    pub version: String,
    /// Time of its start, in seconds since 1970.
    pub started: u64,
    /// Number of calls in flight.
    pub load: u64,
    /// Digests of the policy and of the upstreams in force.
    pub policy: String,
    pub upstreams: String,
}

/// A replica as its row describes it.
#[derive(Clone, Debug)]
pub struct Replica {
    pub run: RunId,
    pub facts: ReplicaFacts,
    /// Time of its last heartbeat, on the clock of this process.
    pub beat: Instant,
}

impl ReplicaFacts {
    /// Makes the row of a run; `None` if the facts are too long. `nonce` must never be used twice.
    pub fn seal(&self, key: &PeerKey, run: RunId, nonce: [u8; 12]) -> Option<ReplicaRow> {
        let sealed = key.seal_row(run, &serde_json::to_vec(self).ok()?, nonce)?;
        Some(ReplicaRow { run, sealed })
    }
}

impl Replica {
    /// Reads a row at `now`; `None` if it was not made with the key of this cluster.
    pub fn open(key: &PeerKey, kept: &KeptReplica, now: Instant) -> Option<Self> {
        let run = kept.row.run;
        let facts = key.open_row(run, &kept.row.sealed, |row| serde_json::from_slice(row).ok())?;
        Some(Self { run, facts, beat: now.checked_sub(kept.age).unwrap_or(now) })
    }

    /// Returns the time since the last heartbeat.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.beat)
    }
}
