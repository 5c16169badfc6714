//! Runs long computations without blocking the runtime's other tasks.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

/// Number of items from which on work on all of them counts as long.
pub(crate) const MANY_ITEMS: usize = 1000;
/// Length of a text in bytes from which on parsing it counts as long.
pub(crate) const LONG_TEXT: usize = 256 << 10;

/// Runs the work, with [`run_aside`] if it `is_long`.
pub(crate) fn run_aside_if<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    if is_long { run_aside(work) } else { work() }
}

/// Runs the work on this thread while another thread takes over the tasks that wait for it. On a
/// runtime with a single thread, and outside of a runtime, nothing else runs meanwhile.
pub(crate) fn run_aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) | Err(_) => work(),
    }
}

/// Starts the work on a thread of the blocking pool; in a staged test, as a task on the only
/// thread.
pub(crate) fn begin_aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[cfg(any(test, feature = "testing"))]
    if super::clock::played::is_staged() {
        return Handle::current().spawn(async move { work() });
    }
    tokio::task::spawn_blocking(work)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::base::task_group::TaskGroup;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_beside_work_on_the_only_thread() {
        let (done, is_done) = mpsc::channel();
        let tasks = TaskGroup::default();
        tasks.spawn("other", async move { done.send(7).unwrap() });
        let work = tasks.carry_out("work", async move { run_aside(|| is_done.recv().unwrap()) });
        assert_eq!(work.await, Some(7), "the work waits for the other task");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_the_work_itself() {
        assert_eq!(run_aside(|| 7), 7);
    }
}
