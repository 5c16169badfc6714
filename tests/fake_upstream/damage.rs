//! Damages correct answers: `--damage SEED`, for stdio.

use fastrand::Rng;

#[path = "../fuzz/mutation.rs"]
mod mutation;

/// Number of lines to keep for repetition.
const KEPT: usize = 16;

/// Damage to the lines of one process.
#[derive(Debug)]
pub(crate) struct Damage {
    rng: Rng,
    said: Vec<Vec<u8>>,
    /// Lines that pass undamaged at first: some processes complete their handshake.
    pass: usize,
    late: Option<Vec<u8>>,
}

impl Damage {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let pass = rng.usize(0..16);
        Self { rng, said: Vec::new(), pass, late: None }
    }

    /// Returns the bytes to write in place of a line, its end included.
    pub(crate) fn of(&mut self, line: &str) -> Vec<u8> {
        let whole = [line.as_bytes(), b"\n"].concat();
        self.said.push(whole.clone());
        if self.said.len() > KEPT {
            self.said.remove(0);
        }
        if self.pass > 0 {
            self.pass -= 1;
            return whole;
        }
        let Self { rng, said, late, .. } = self;
        let other = &said[rng.usize(..said.len())];
        let mut out = match rng.u8(0..12) {
            0..5 => whole,
            5..8 => [mutation::mutate(rng, line.as_bytes(), other), b"\n".to_vec()].concat(),
            // The damage may reach the line's end.
            8 => mutation::mutate(rng, &whole, other),
            // The line twice, and an earlier line.
            9 => [whole.clone(), whole, other.clone()].concat(),
            // An earlier line, which answers another request, before this one.
            10 => [other.clone(), whole].concat(),
            // The line is held back, and a line held back before is sent.
            _ => late.replace(whole).unwrap_or_default(),
        };
        if rng.u8(0..4) == 0 {
            out.extend(late.take().unwrap_or_default());
        }
        out
    }
}
