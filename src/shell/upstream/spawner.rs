//! Everything that is needed to start upstreams and to open sessions with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::slots::Slots;
use crate::base::stop::StopTimes;
use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::config::{Limits, Upstream};
use crate::engine::ask::Declared;
use crate::mcp::input::Kinds;
use crate::mcp::voice::Ear;
use crate::store::pins::LaunchGate;
use crate::upstream::client::HttpClient;
use crate::upstream::login_parts::LoginParts;
use crate::upstream::owner::Marks;
use crate::wire::frame::Bounds;

/// The limits for messages from upstreams. Clones share the limits, which a reload may change:
/// limits in bytes apply to the next answer over HTTP, and all limits apply from an upstream's next
/// start on.
#[derive(Clone, Debug)]
pub struct Intake {
    pub budget: Arc<Budget>,
    measure: Arc<Measure>,
}

/// The limits that a reload may change.
#[derive(Debug, Default)]
struct Measure {
    bytes: AtomicUsize,
    depth: AtomicUsize,
    nodes: AtomicUsize,
}

impl Intake {
    pub fn new(budget: Arc<Budget>, limits: &Limits) -> Self {
        let intake = Self { budget, measure: Arc::default() };
        intake.set_limits(limits);
        intake
    }

    pub fn set_limits(&self, limits: &Limits) {
        let Measure { bytes, depth, nodes } = &*self.measure;
        bytes.store(limits.upstream_result_bytes, Ordering::Relaxed);
        depth.store(limits.upstream_depth, Ordering::Relaxed);
        nodes.store(limits.upstream_nodes, Ordering::Relaxed);
    }

    /// Returns the most bytes of a child's line, or of a body or event in an HTTP answer.
    pub fn max_message_bytes(&self) -> usize {
        self.measure.bytes.load(Ordering::Relaxed)
    }

    /// Returns the limits for depth and number of values of each message.
    fn bounds(&self) -> Bounds {
        let Measure { depth, nodes, .. } = &*self.measure;
        Bounds { depth: depth.load(Ordering::Relaxed), nodes: nodes.load(Ordering::Relaxed) }
    }

    /// Creates the parser for messages of the upstream with this name.
    pub fn ear(&self, upstream: &UpstreamName) -> Ear {
        let budget = Arc::clone(&self.budget);
        Ear::new(upstream.as_str(), self.bounds(), move |bytes| budget.count(bytes))
    }
}

/// The parts needed to open a session.
#[derive(Clone, Debug)]
pub struct Spawner {
    /// Fires when the upstream is stopped.
    pub stop: CancellationToken,
    pub tasks: TaskGroup,
    pub http: HttpClient,
    pub intake: Intake,
    pub logins: LoginParts,
    /// True if callers other than the local user are possible.
    pub many_callers: bool,
    /// Time limits for the end of a process.
    pub times: StopTimes,
    /// Creates the marks of processes.
    pub marks: Marks,
    /// Decides before each start whether the launch is allowed.
    pub gate: Arc<LaunchGate>,
    /// Slots for programs that are starting.
    pub starts: Slots,
}

impl Spawner {
    /// Returns the client capabilities of the main session. A shared process may ask questions only
    /// if there can be only one caller.
    pub fn declared(&self, spec: &Upstream) -> Declared {
        if spec.is_shared_process() && !self.many_callers {
            Declared::new(Kinds { form: true, url: true, sampling: true, roots: true, ..Kinds::default() }, &spec.roots)
        } else {
            Declared::default()
        }
    }
}
