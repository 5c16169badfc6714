//! Programs that are started for upstreams: the launch, the guard, the mark, and the processes'
//! end.

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg_attr(not(target_os = "linux"), path = "process/unguarded.rs")]
pub mod guard;
pub mod launch;
pub mod lifeline;
#[cfg_attr(not(target_os = "linux"), path = "process/unmarked.rs")]
pub mod mark;
pub mod prior;
#[cfg(target_os = "linux")]
mod procfs;
pub(super) mod stderr;
pub mod usage;
