//! Finds the first byte of a JSON string that ends it or needs an escape: a quote, a backslash or a
//! control character. Compares eight bytes at a time.

/// The value 1 in each byte.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each byte.
const HIGHS: u64 = ONES << 7;
/// The number of 8-byte words that are checked before the check by blocks begins.
const SHORT: usize = 4;

/// Returns the number of bytes before the first quote, backslash or control character.
pub(crate) fn plain_len(text: &[u8]) -> usize {
    let head = text.get(..SHORT * 8).unwrap_or(text);
    let mut plain = by_words(head);
    if plain < head.len() || head.len() == text.len() {
        return plain;
    }
    // Whole blocks, which the compiler compares sixteen bytes at a time.
    let (blocks, _) = text.get(plain..).unwrap_or_default().as_chunks::<64>();
    plain += 64
        * blocks.iter().take_while(|block| block.iter().fold(true, |plain, byte| plain & is_plain_byte(*byte))).count();
    plain + by_words(text.get(plain..).unwrap_or_default())
}

/// Reports whether a text needs no escapes between the quotes of a JSON string.
pub(crate) fn is_plain(text: &str) -> bool {
    plain_len(text.as_bytes()) == text.len()
}

/// Reports whether a byte needs no escape in a JSON string.
const fn is_plain_byte(byte: u8) -> bool {
    (byte >= 0x20) & (byte != b'"') & (byte != b'\\')
}

/// Does what [`plain_len`] does, eight bytes at a time.
fn by_words(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        let stops = mark_special_bytes(u64::from_le_bytes(*word));
        if stops != 0 {
            return n * 8 + stops.trailing_zeros() as usize / 8;
        }
    }
    rest.iter().position(|byte| !is_plain_byte(*byte)).map_or(text.len(), |at| words.len() * 8 + at)
}

/// Marks the highest bit of each byte that is a quote, a backslash or a control character. Bytes
/// above the lowest marked one may be marked wrongly.
const fn mark_special_bytes(word: u64) -> u64 {
    let (quote, backslash) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
    // A subtraction borrows in each byte that is smaller than the subtrahend. Bytes with their own
    // highest bit set are never special.
    let borrows = quote.wrapping_sub(ONES) | backslash.wrapping_sub(ONES) | word.wrapping_sub(ONES * 0x20);
    borrows & !word & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_at_every_place_is_told_apart() {
        for length in 0..200 {
            let mut text = vec![b'a'; length];
            assert_eq!(plain_len(&text), length);
            for at in 0..length {
                for byte in [b'"', b'\\', 0, 0x1f, b'\n'] {
                    text[at] = byte;
                    assert_eq!(plain_len(&text), at, "{byte} in {length}");
                }
                for byte in [0x20, 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']', 0x21, 0xa2, 0xdc] {
                    text[at] = byte;
                    assert_eq!(plain_len(&text), length, "{byte} in {length}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_what_one_byte_after_the_other_says(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let want = text.iter().position(|byte| !is_plain_byte(*byte)).unwrap_or(text.len());
            prop_assert_eq!(plain_len(&text), want);
        }
    }
}
