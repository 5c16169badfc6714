//! Time, tasks, queues and the byte budget, for every layer of the shell.

pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod queue;
pub(crate) mod repoll;
pub(crate) mod tally;
pub(crate) mod task_group;
