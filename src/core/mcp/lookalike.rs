//! Reduces text to its look: characters that look like a Latin letter count as that letter.

use unicode_normalization::char::decompose_compatible;
use unicode_security::skeleton;

use crate::wire::foreign;

/// Small capitals that the Unicode data does not equate with a letter, from A to Z. A blank stands
/// for a letter without a small capital.
const SMALL_CAPITALS: [char; 26] = [
    'ᴀ', 'ʙ', 'ᴄ', 'ᴅ', 'ᴇ', 'ꜰ', 'ɢ', 'ʜ', 'ɪ', 'ᴊ', 'ᴋ', 'ʟ', 'ᴍ', 'ɴ', 'ᴏ', 'ᴘ', 'ꞯ', 'ʀ', 'ꜱ', 'ᴛ', 'ᴜ', 'ᴠ', 'ᴡ',
    ' ', 'ʏ', 'ᴢ',
];
/// The first letters of three alphabets: white on a disc, white on a square, and letters of flags.
const BOXED: [char; 3] = ['\u{1f150}', '\u{1f170}', '\u{1f1e6}'];

/// Returns a text in lower case, without accents, and with look-alikes replaced by the letters they
/// look like. Letters that look alike become one: `0` is `o`; `1`, `l` and `i` are `i`; `m` is
/// `rn`.
///
/// A capital counts by its own look: the Cyrillic letter that looks like H has a lower case that
/// does not. Source: Unicode Technical Standard 39, "Confusable Detection".
pub(crate) fn fold_lookalikes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            push_latin(&mut out, c.to_ascii_lowercase());
            continue;
        }
        let mut plain = String::new();
        match boxed(c) {
            Some(letter) => plain.push(letter),
            None => decompose_compatible(c, |c| plain.push(c)),
        }
        let own = look_of(&plain);
        let look = if own.is_ascii() { own } else { look_of(&plain.to_lowercase()) };
        look.chars().for_each(|c| push_latin(&mut out, c));
    }
    out
}

/// Reports whether the letters and digits of a text look like those of another: "Allow-once" reads
/// as "allow once".
pub(super) fn reads_as(text: &str, other: &str) -> bool {
    let other = letters(other);
    letters(text) == other || letters(&fold_lookalikes(text)) == other
}

/// Returns the letters and digits of a text as [`fold_lookalikes`] gives them.
pub(super) fn letters(text: &str) -> String {
    let letters: String = text.chars().filter(|c| is_letter(*c)).collect();
    fold_lookalikes(&letters)
}

/// Splits a name into words: at signs, at a change of case as in `apiKey` and `APIKey`, and at a
/// change between letters and digits.
pub(super) fn split_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = ' ';
    let letters: Vec<char> = text.chars().filter(|c| !foreign::is_hidden(*c)).collect();
    for (at, c) in letters.iter().copied().enumerate() {
        let next_is_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = !is_letter(c)
            || (c.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && next_is_lower)))
            || (c.is_numeric() != before.is_numeric());
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| is_letter(c) || is_mark(c)) {
            word.push(c);
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Reports whether a character is a combining accent.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}')
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || boxed(c).is_some()
}

/// Returns the letter in a box or a disc.
fn boxed(c: char) -> Option<char> {
    let place = BOXED.into_iter().find_map(|first| {
        let place = u32::from(c).checked_sub(u32::from(first))?;
        (place < 26).then_some(place)
    })?;
    Some(char::from(b'A' + u8::try_from(place).ok()?))
}

/// Returns the text that a text looks like, in lower case.
fn look_of(text: &str) -> String {
    let lower = skeleton(text).filter(|c| !is_mark(*c)).flat_map(char::to_lowercase);
    lower.map(|c| small_capital(c).unwrap_or(c)).collect()
}

/// Returns the Latin letter of a small capital.
fn small_capital(c: char) -> Option<char> {
    let place = SMALL_CAPITALS.iter().position(|small| *small == c && !c.is_ascii())?;
    Some(char::from(b'a' + u8::try_from(place).ok()?))
}

/// Appends a character; Latin letters that look alike are appended as one of them.
fn push_latin(out: &mut String, c: char) {
    match c {
        'm' => out.push_str("rn"),
        '0' => out.push('o'),
        '1' | 'l' => out.push('i'),
        _ => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_counts_by_its_look() {
        for (text, want) in [
            ("Head End", "head end"),
            ("\u{41d}\u{415}\u{410}D", "head"),
            ("\u{397}\u{395}\u{391}D", "head"),
            ("\u{39d}\u{3bd}", "nv"),
            ("TH\u{399}S", "this"),
            ("p1LI", "piii"),
            ("m0", "rno"),
            ("\u{fb01}", "fi"),
            ("\u{1f17f}\u{1f150}", "pa"),
            ("\u{274}\u{c9}\u{142}", "nei"),
            ("密码", "密码"),
        ] {
            assert_eq!(fold_lookalikes(text), want, "{text}");
        }
    }

    #[test]
    fn a_name_is_parted_at_signs_case_and_digits() {
        for (text, want) in [
            ("headend2", &["headend", "2"][..]),
            ("HeadendGateway", &["Headend", "Gateway"]),
            ("APIKey_of-x", &["API", "Key", "of", "x"]),
            ("--", &[]),
        ] {
            assert_eq!(split_words(text), want, "{text}");
        }
    }
}
