//! Polls a future again at once if it wakes itself during its poll, without going through the
//! scheduler.
//!
//! A hyper connection wakes itself with every request: its service asks the connection for the
//! body, and both run in one task. To the runtime that is a yield: the task goes to the end of the
//! queue, and another thread wakes up that may move it to another core. The detour took longer than
//! the call.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Polls in a row before the task yields to others.
const ROUNDS: usize = 4;

/// Bit: the future is being polled. While it is clear, waking the future wakes the task.
const POLLED: u8 = 1;
/// Bit: the future was woken since its poll began.
const WOKEN: u8 = 2;

/// The waker that the future sees: it remembers wake-ups during a poll and passes all others to the
/// task.
#[derive(Debug, Default)]
struct RepollState {
    phase: AtomicU8,
    task: AtomicWaker,
}

impl Wake for RepollState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Both sides swap or set bits in one atomic step, so the later one of a wake-up and the
        // next poll sees the other.
        if self.phase.fetch_or(WOKEN, Ordering::AcqRel) & POLLED == 0 {
            self.task.wake();
        }
    }
}

/// Wraps a future so that it is polled again at once when it woke itself. The future is boxed: an
/// async block would hold it twice.
pub(crate) fn repolled<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    let state = Arc::new(RepollState::default());
    let waker = Waker::from(Arc::clone(&state));
    poll_fn(move |cx| {
        state.task.register(cx.waker());
        for _ in 0..ROUNDS {
            state.phase.swap(POLLED, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            if state.phase.compare_exchange(POLLED, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        // Yields to other tasks; a wake-up from here on wakes the task.
        state.phase.swap(0, Ordering::AcqRel);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use std::pin::pin;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a future that wakes itself in its first `times` polls and is ready after `ready`
    /// polls.
    fn restless(times: usize, ready: usize) -> (Arc<AtomicUsize>, impl Future<Output = ()>) {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let future = poll_fn(move |cx: &mut Context<'_>| {
            let poll = counted.fetch_add(1, Ordering::Relaxed) + 1;
            if poll <= times {
                cx.waker().wake_by_ref();
            }
            if poll > ready { Poll::Ready(()) } else { Poll::Pending }
        });
        (polls, future)
    }

    #[test]
    fn what_wakes_itself_is_polled_again_and_its_task_is_not_woken() {
        for (label, times, ready, polls, wakes, is_ready) in [
            ("rests", 0, 9, 1, 0, false),
            ("twice", 2, 9, 3, 0, false),
            ("until it is ready", 9, 2, 3, 0, true),
            ("without end", 9, 9, ROUNDS, 1, false),
        ] {
            let (polled, future) = restless(times, ready);
            let task = Arc::new(Count::default());
            let waker = Waker::from(Arc::clone(&task));
            let mut future = pin!(repolled(future));
            let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
            assert_eq!(poll.is_ready(), is_ready, "{label}");
            let got = (polled.load(Ordering::Relaxed), task.0.load(Ordering::Relaxed));
            assert_eq!(got, (polls, wakes), "{label}");
        }
    }

    #[test]
    fn a_wake_between_polls_wakes_the_task() {
        let (kept, mut first) = (Arc::new(AtomicWaker::new()), true);
        let of_future = Arc::clone(&kept);
        let future = poll_fn(move |cx: &mut Context<'_>| {
            of_future.register(cx.waker());
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        });
        let task = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut future = pin!(repolled(future));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        kept.wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let kept = Arc::new(AtomicWaker::new());
        let of_future = Arc::clone(&kept);
        let future = poll_fn(move |cx: &mut Context<'_>| {
            of_future.register(cx.waker());
            Poll::<()>::Pending
        });
        let mut future = pin!(repolled(future));
        let tasks = [Arc::new(Count::default()), Arc::new(Count::default())];
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        kept.wake();
        assert_eq!(tasks.map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_wake_is_lost() {
        const MESSAGES: u32 = 100_000;
        let (there, mut comes) = tokio::sync::mpsc::channel::<tokio::sync::oneshot::Sender<u32>>(1);
        let tasks = crate::base::task_group::TaskGroup::default();
        let answering = async move {
            let mut number = 0;
            while let Some(reply) = comes.recv().await {
                if reply.send(number).is_err() {
                    return;
                }
                number += 1;
            }
        };
        let (done, ended) = tokio::sync::oneshot::channel();
        let asking = async move {
            let mut got = 0;
            for number in 0..MESSAGES {
                let (reply, answer) = tokio::sync::oneshot::channel();
                if there.send(reply).await.is_err() || answer.await != Ok(number) {
                    break;
                }
                got = number + 1;
            }
            done.send(got).unwrap_or_default();
        };
        tasks.spawn("answering", repolled(answering));
        tasks.spawn("asking", repolled(asking));
        let got = tokio::time::timeout(std::time::Duration::from_secs(60), ended).await;
        assert_eq!(got.expect("a wake was lost"), Ok(MESSAGES));
        tasks.join().await;
    }
}
