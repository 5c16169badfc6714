//! Everything that is needed to start upstreams and to open sessions with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use crate::base::budget::ByteBudget;
use crate::base::slots::SlotPool;
use crate::base::stop::StopTimes;
use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::cluster::membership::Cluster;
use crate::config::{Limits, Placement, UpstreamSettings};
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::voice::UpstreamReader;
use crate::store::pins::LaunchGate;
use crate::upstream::login::parts::LoginServices;
use crate::upstream::net::client::HttpClient;
use crate::upstream::process::lifeline::Lifeline;
use crate::upstream::process::mark::OwnerMarks;
use crate::upstream::process::prior::PriorPrograms;
use crate::wire::frame::JsonBounds;

/// How much is taken from upstreams. Clones share the bound of bytes, which a reload may change: it
/// holds for the next answer over HTTP, and otherwise from an upstream's next start on.
#[derive(Clone, Debug)]
pub struct IntakeLimits {
    pub budget: Arc<ByteBudget>,
    max_message_bytes: Arc<AtomicUsize>,
}

impl IntakeLimits {
    pub fn new(budget: Arc<ByteBudget>, limits: &Limits) -> Self {
        let intake = Self { budget, max_message_bytes: Arc::default() };
        intake.set_limits(limits);
        intake
    }

    pub fn set_limits(&self, limits: &Limits) {
        self.max_message_bytes.store(limits.upstream_result_bytes, Ordering::Relaxed);
    }

    /// Returns the most bytes of a child's line, or of a body or event in an HTTP answer.
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_bytes.load(Ordering::Relaxed)
    }

    /// Creates the parser for messages of the upstream with this name.
    pub fn ear(&self, upstream: &UpstreamName) -> UpstreamReader {
        let budget = Arc::clone(&self.budget);
        UpstreamReader::new(upstream.as_str(), JsonBounds::UPSTREAM, move |bytes| budget.count(bytes))
    }
}

/// The relation of this process to a cluster.
#[derive(Clone, Debug, Default)]
pub enum ClusterMembership {
    /// The configuration names no cluster.
    #[default]
    Alone,
    /// A replica of the cluster.
    Replica(Arc<Cluster>),
    /// The configuration names a cluster, and this process is none of its replicas.
    Outside,
}

/// The parts needed to open a session.
#[derive(Clone, Debug)]
pub struct Spawner {
    /// Fires when the upstream is stopped.
    pub stop: CancellationToken,
    pub tasks: TaskGroup,
    pub http: HttpClient,
    pub intake: IntakeLimits,
    pub logins: LoginServices,
    /// True if callers other than the local user are possible.
    pub many_callers: bool,
    /// Time limits for the end of a process.
    pub times: StopTimes,
    /// Creates the marks of processes.
    pub marks: OwnerMarks,
    /// Decides before each start whether the launch is allowed.
    pub gate: Arc<LaunchGate>,
    /// Slots for programs that are starting.
    pub starts: SlotPool,
    /// The pipe that the guards of the upstream's programs hold; `None` without programs.
    pub lifeline: Option<Arc<Lifeline>>,
    /// Programs of the daemon before this one, whose end is awaited before a start.
    pub prior: PriorPrograms,
    pub membership: ClusterMembership,
}

impl Spawner {
    /// Returns the client capabilities of the main session, with Apps if the upstream may have
    /// them. A shared process may ask questions only if there can be only one caller, on this
    /// replica alone.
    pub fn declared(&self, spec: &UpstreamSettings) -> DeclaredCapabilities {
        let serves_replicas = spec.placement == Placement::One && !matches!(self.membership, ClusterMembership::Alone);
        let declared = if spec.is_shared_process() && !self.many_callers && !serves_replicas {
            DeclaredCapabilities::new(
                InputKinds { form: true, url: true, sampling: true, roots: true, ..InputKinds::default() },
                &spec.roots,
            )
        } else {
            DeclaredCapabilities::default()
        };
        declared.with_apps(spec.own_apps())
    }
}
