//! Starts upstreams and opens sessions with them.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::stop::StopTimes;
use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::config::{Instance, Target, Upstream};
use crate::engine::ask::Declared;
use crate::mcp::input::Kinds;
use crate::mcp::voice::Ear;
use crate::store::pins::LaunchGate;
use crate::upstream::client::HttpClient;
use crate::upstream::owner::Marks;
use crate::wire::frame::Bounds;

/// How much is taken from upstreams.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub(crate) budget: Arc<Budget>,
    /// Longest line of a child and longest body or event of an HTTP answer.
    pub(crate) max_message_bytes: usize,
    /// Depth and number of values of each message.
    pub(crate) bounds: Bounds,
}

impl Intake {
    /// Hears the upstream of that name.
    pub(crate) fn ear(&self, upstream: &UpstreamName) -> Ear {
        let budget = Arc::clone(&self.budget);
        Ear::new(upstream.as_str(), self.bounds, move |bytes| budget.count(bytes))
    }
}

/// The parts needed to open a session.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    /// Ends with the upstream.
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskGroup,
    pub(crate) http: HttpClient,
    pub(crate) intake: Intake,
    /// Whether others than the local user can call.
    pub(crate) many_callers: bool,
    /// How long the end of a process may take.
    pub(crate) times: StopTimes,
    /// Who starts processes.
    pub(crate) marks: Marks,
    /// Stands before each start.
    pub(crate) gate: Arc<LaunchGate>,
    /// Places for programs that start.
    pub(crate) starts: Arc<Semaphore>,
}

impl Spawner {
    /// The client capabilities of the main session. A shared process may only ask if there can be only one caller.
    pub(crate) fn declared(&self, spec: &Upstream) -> Declared {
        let shared = matches!(spec.target, Target::Stdio { .. })
            && matches!(spec.instance, Instance::Auto | Instance::Shared)
            && !self.many_callers;
        if shared {
            Declared::new(Kinds { form: true, sampling: true, roots: true, ..Kinds::default() }, &spec.roots)
        } else {
            Declared::default()
        }
    }
}
