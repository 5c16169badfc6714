//! Seeded damage: the same seed damages the same bytes in the same way.
//!
//! Shared by the properties of `src/fuzz`, which replay their corpus with it, and by the mutating
//! peers of `tests/it/fuzz`.

use fastrand::Rng;

/// Texts that tend to break readers of JSON, headers and streams.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b",",
    b":",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\x1b[8m",
    b"\xe2\x80\xae",
    b"\xf3\xa0\x81\xa1",
    b"null",
    b"true",
    b"-0",
    b"1e400",
    b"1e-400",
    b"9007199254740993",
    b"18446744073709551616",
    b"0.1",
    b"\"\"",
    b"{}",
    b"[]",
    b"\\u0000",
    b"\\ud800",
    b"\\u202e",
    b"\"id\":1,\"id\":2,",
    b"\"jsonrpc\":\"2.0\"",
    b"\"result\":{}",
    b"\"error\":{\"code\":-32042,\"message\":\"\"}",
    b"\"_meta\":{}",
    b"%2e%2e",
    b"../",
    b"*",
    b"{a,b}",
    b"=?base64?",
    b"?=",
    b"data: ",
    b"id: ",
    b"retry: 99999999999999999999\n",
];

/// Damages some bytes: flips, cuts, repeats, words from the list, parts of `other`.
pub(crate) fn mutate(rng: &mut Rng, data: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(0..=out.len());
        let end = (at + rng.usize(0..=16)).min(out.len());
        match rng.u8(0..9) {
            0 => {
                if let Some(byte) = out.get_mut(at) {
                    *byte ^= 1 << rng.u8(0..8);
                }
            }
            1 => {
                if let Some(byte) = out.get_mut(at) {
                    *byte = rng.u8(..);
                }
            }
            2 => out.truncate(at),
            3 => drop(out.drain(at..end)),
            4 => {
                let part = out.get(at..end).unwrap_or_default().repeat(rng.usize(1..8));
                out.splice(at..at, part);
            }
            5 | 6 => {
                let word = WORDS.get(rng.usize(..WORDS.len())).copied().unwrap_or_default();
                let end = if rng.bool() { at } else { end };
                out.splice(at..end, word.iter().copied());
            }
            7 => {
                let from = rng.usize(0..=other.len());
                let to = (from + rng.usize(0..=64)).min(other.len());
                out.splice(at..end, other.get(from..to).unwrap_or_default().iter().copied());
            }
            _ => {
                // Nests a value in some arrays or objects.
                let depth = rng.usize(1..24);
                out.splice(at..at, b"[".repeat(depth));
                let end = rng.usize(at + depth..=out.len());
                out.splice(end..end, b"]".repeat(depth));
            }
        }
    }
    out
}
