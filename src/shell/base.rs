//! Tools without any knowledge of MCP that every layer of the shell uses: clocks, task groups,
//! slots and queues, the byte budget, and the time limits of a shutdown.

pub mod access;
pub(crate) mod aside;
pub mod budget;
pub mod callers;
pub mod clock;
pub mod current_run;
pub(crate) mod descriptors;
pub mod fair_slots;
pub mod local_time;
pub mod never;
pub(crate) mod repoll;
pub(crate) mod slots;
pub mod stop;
pub mod tally;
pub mod task_group;
