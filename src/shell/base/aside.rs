//! Work that would hold a thread of the runtime for longer than other tasks should wait.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

/// Items from which on work on all of them is done aside.
pub(crate) const MANY_ITEMS: usize = 1000;
/// Bytes of a text from which on reading all of it is done aside.
pub(crate) const LONG_TEXT: usize = 256 << 10;

/// Does work aside if it `is_long`, see [`run_aside`].
pub(crate) fn run_aside_if<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    if is_long { run_aside(work) } else { work() }
}

/// Does work on this thread, while another thread takes over the tasks that wait for this one. On a
/// runtime of a single thread, and outside of one, nothing else runs meanwhile.
pub(crate) fn run_aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) | Err(_) => work(),
    }
}

/// Begins work on a thread that may block; on a stage, on the one thread that there is.
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
