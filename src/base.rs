//! Time, tasks, queues, the byte budget and the steps of the end, for every layer of the shell.

pub(crate) mod access;
pub(crate) mod aside;
pub(crate) mod budget;
pub(crate) mod callers;
pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod fair_slots;
pub(crate) mod local_time;
pub(crate) mod never;
pub(crate) mod repoll;
pub(crate) mod slots;
pub(crate) mod stop;
pub(crate) mod tally;
pub(crate) mod task_group;
