//! What every layer of the shell stands on: time, tasks, queues, the byte budget.

pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod queue;
pub(crate) mod repoll;
pub(crate) mod tally;
pub(crate) mod task_group;
