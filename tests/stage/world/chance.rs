//! Random choices of a world, which its seed repeats.

use bytes::{Bytes, BytesMut};

pub(super) struct WorldChance(fastrand::Rng);

impl WorldChance {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.0.u32(..n) == 0
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Bytes that arrive in pieces, which are cut anywhere.
#[derive(Debug, Default)]
pub(super) struct CutBytes(BytesMut);

impl CutBytes {
    pub(super) fn line(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
        self.0.extend_from_slice(b"\n");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next piece, mostly all bytes.
    pub(super) fn piece(&mut self, chance: &mut WorldChance) -> Bytes {
        let all = self.0.len();
        let length = if all > 1 && chance.one_in(5) { 1 + chance.below(all - 1) } else { all };
        self.0.split_to(length).freeze()
    }
}
