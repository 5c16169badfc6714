//! The waker of a connection that is polled by the request on it.
//!
//! hyper wakes the task of a connection whenever the request's half does something: it hands over a
//! request, or wants a body. If one task polls both halves, each such wake-up would schedule that
//! task once more for nothing. This waker notes them instead, and the poll checks for one before it
//! ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// No poll is under way: a wake-up wakes the task.
const QUIET: u8 = 0;
/// A poll is under way, which checks for a wake-up before it ends.
const POLLING: u8 = 1;
/// A wake-up came during the poll.
const RUNG: u8 = 2;

/// Rounds of one poll before it yields to other tasks.
const TURNS: usize = 16;

/// The wake-ups of one connection, and the task that polls it.
#[derive(Debug, Default)]
pub(super) struct ConnectionWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

impl ConnectionWaker {
    /// Polls the connection with `turn`, and again as long as a wake-up came during the poll. After
    /// 16 rounds it yields: the task of `cx` is woken to go on. A wake-up after the last poll, from
    /// any thread, wakes that task too.
    pub(super) fn poll<T>(&self, cx: &Context<'_>, mut turn: impl FnMut() -> Poll<T>) -> Poll<T> {
        self.task.register(cx.waker());
        for _ in 0..TURNS {
            self.state.store(POLLING, Ordering::SeqCst);
            let done = turn();
            if done.is_ready() {
                self.state.store(QUIET, Ordering::SeqCst);
                return done;
            }
            if self.state.compare_exchange(POLLING, QUIET, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return Poll::Pending;
            }
        }
        self.state.store(QUIET, Ordering::SeqCst);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Calls `turn` once on behalf of no task: later wake-ups wake none until the next
    /// [`Self::poll`].
    pub(super) fn turn<T>(&self, turn: impl FnOnce() -> T) -> T {
        drop(self.task.take());
        turn()
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.compare_exchange(POLLING, RUNG, Ordering::SeqCst, Ordering::SeqCst) == Err(QUIET) {
            self.task.wake();
        }
    }
}

/// Creates a bell and the waker that rings it.
pub(super) fn bell() -> (Arc<ConnectionWaker>, Waker) {
    let bell = Arc::<ConnectionWaker>::default();
    (Arc::clone(&bell), Waker::from(bell))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn rung_during_a_poll_it_is_one_more_turn_and_after_it_a_wake() {
        let (count, (bell, ring)) = (Arc::<Count>::default(), bell());
        let task = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&task);
        let mut turns = 0;
        let polled = bell.poll(&cx, || {
            turns += 1;
            if turns < 3 {
                ring.wake_by_ref();
            }
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((turns, count.0.load(Ordering::SeqCst)), (3, 0));
        ring.wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "nobody polls");
        bell.turn(|| ring.wake_by_ref());
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "nobody is to know");
    }

    #[test]
    fn a_bell_that_never_stops_lets_others_run_and_is_polled_again() {
        let (count, (bell, ring)) = (Arc::<Count>::default(), bell());
        let task = Waker::from(Arc::clone(&count));
        let mut turns = 0;
        let polled = bell.poll(&Context::from_waker(&task), || {
            turns += 1;
            ring.wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((turns, count.0.load(Ordering::SeqCst)), (TURNS, 1));
    }

    #[test]
    fn no_ring_of_another_thread_is_lost() {
        const RINGS: usize = 20_000;
        let (bell, ring) = bell();
        let rung = Arc::<AtomicUsize>::default();
        let ringer = {
            let rung = Arc::clone(&rung);
            std::thread::spawn(move || {
                for _ in 0..RINGS {
                    rung.fetch_add(1, Ordering::SeqCst);
                    ring.wake_by_ref();
                }
            })
        };
        // A waiter that sleeps until it is woken sees the last wake-up.
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let task = Waker::from(Arc::new(Unpark(std::thread::current())));
        let cx = Context::from_waker(&task);
        while bell
            .poll(&cx, || if rung.load(Ordering::SeqCst) == RINGS { Poll::Ready(()) } else { Poll::Pending })
            .is_pending()
        {
            std::thread::park();
        }
        ringer.join().unwrap();
    }
}
