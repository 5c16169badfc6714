//! Programs that are started for upstreams: the launch, the guard, the mark, and the processes'
//! end.

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg_attr(not(target_os = "linux"), path = "process/unguarded.rs")]
pub mod guard;
pub mod launch;
pub(super) mod leased;
pub mod lifeline;
#[cfg_attr(not(target_os = "linux"), path = "process/unmarked.rs")]
pub mod mark;
pub mod prior;
#[cfg(target_os = "linux")]
mod procfs;
pub(super) mod stderr;
/// The substitutes of other systems are compiled with the tests here too, so that they keep to what
/// their callers use.
#[cfg(all(test, target_os = "linux"))]
#[expect(dead_code, unreachable_pub, reason = "nothing here starts a child without a guard")]
mod unguarded;
#[cfg(all(test, target_os = "linux"))]
#[expect(dead_code, unreachable_pub, reason = "children have marks here")]
mod unmarked;
pub mod usage;
