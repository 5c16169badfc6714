//! Shows foreign text to people: this module knows which characters a reader does not see, and
//! spells them out.
//!
//! Letters, digits, marks and signs of every script stay as they are. A character that is
//! invisible, that changes how others are seen, or that has no agreed look is spelled out:
//! `\u{202e}`. The properties come from the Unicode database (`icu_properties`, whose data the
//! build has anyway for international host names), so a new version of Unicode needs no edit here.

use std::borrow::Cow;
use std::fmt::Write as _;

use icu_properties::props::{
    BidiClass, BidiControl, DefaultIgnorableCodePoint, Emoji, EmojiModifier, ExtendedPictographic, GeneralCategory,
    GeneralCategoryGroup, PrependedConcatenationMark,
};
use icu_properties::{CodePointMapData, CodePointSetData};

pub mod changes;
pub mod marked;
pub mod oddities;

/// Reports whether a reader would not see this character, or would see others in its place:
/// controls, format characters, marks of direction, zero-width and default-ignorable characters,
/// tags, variation selectors, blanks that are not the plain or the ideographic space, line
/// separators, private use, and code points without a character. A line feed and a tab are layout
/// and not hidden; a carriage return is hidden.
pub fn is_hidden(c: char) -> bool {
    match c {
        ' '..='~' | '\n' | '\t' | '\u{3000}' => false,
        // Signs and letters by category, but without any ink: braille without a dot, a note without
        // a head, blanks of hieroglyphs, the filler of the Khitan small script.
        '\u{2800}' | '\u{1d159}' | '\u{13441}' | '\u{13442}' | '\u{16fe4}' => true,
        // Format characters with a shape, which surround numbers or stand below them.
        c if CodePointSetData::new::<PrependedConcatenationMark>().contains(c) => false,
        _ => {
            let category = CodePointMapData::<GeneralCategory>::new().get(c);
            GeneralCategoryGroup::Other.contains(category)
                || GeneralCategoryGroup::Separator.contains(category)
                || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
        }
    }
}

/// Reports whether this character changes the direction of the text after it, so that a reader sees
/// other words than the text holds.
pub fn turns_direction(c: char) -> bool {
    // Marks are characters with a direction of their own and turn nothing.
    !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}') && CodePointSetData::new::<BidiControl>().contains(c)
}

/// Removes the characters that are cleaned out of titles and descriptions before a definition is
/// pinned; `None` if the text has none of them.
pub(crate) fn strip_hidden(text: &str) -> Option<String> {
    if text.is_ascii() && !text.contains(is_stripped) {
        return None;
    }
    let kept: String = retained_characters(text).collect();
    (kept.len() < text.len()).then_some(kept)
}

/// Returns the characters that stay. A joiner or a variation selector stays only where it has an
/// effect, one at a time: joiners between non-ASCII characters, as some languages and emoji need
/// them. Elsewhere, and in rows, they could carry hidden bits.
fn retained_characters(text: &str) -> impl Iterator<Item = char> + '_ {
    let is_invisible = |c: char| matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}') || is_stripped(c);
    let mut before = ' ';
    let mut rest = text.chars().filter(|c| !is_stripped(*c)).peekable();
    std::iter::from_fn(move || {
        loop {
            let c = rest.next()?;
            let stays = match c {
                '\u{200c}' | '\u{200d}' => {
                    let joins = |c: char| !c.is_ascii() && !is_invisible(c);
                    // An emoji may have its variation selector before the joiner.
                    (joins(before) || before == '\u{fe0f}') && rest.peek().is_some_and(|next| joins(*next))
                }
                '\u{fe00}'..='\u{fe0f}' => !before.is_whitespace() && !is_invisible(before),
                _ => true,
            };
            if stays {
                before = c;
                return Some(c);
            }
        }
    })
}

/// Reports whether a character is removed before a definition is pinned.
///
/// A pin is the digest of the cleaned definition, so this set must never change: it is a part of
/// the pins on disk. [`is_hidden`] covers more characters; those that only it covers stay in a
/// definition, and are spelled out when a person looks at it.
fn is_stripped(c: char) -> bool {
    match c {
        '\n' | '\r' | '\t' => false,
        // Marks, overrides and isolates of direction.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // Zero-width text, and line separators that only some readers break at.
        '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{2028}' | '\u{2029}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' => true,
        // Letters without a shape.
        '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        // Tag characters, an invisible copy of ASCII, and variation selectors beyond those of
        // emoji, which can carry bytes.
        '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// Returns each character of a text and whether it is hidden in its position. The variation
/// selector and the joiner of an emoji are a part of its picture; anywhere else they are hidden.
pub fn characters(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    std::iter::from_fn(move || {
        let c = rest.next()?;
        let hidden = is_hidden(c) && !is_part_of_emoji(before, c, rest.peek().copied());
        // A spelled-out character joins nothing to the next one.
        before = if hidden { ' ' } else { c };
        Some((c, hidden))
    })
}

/// Reports whether a joiner or variation selector belongs to the emoji before it.
fn is_part_of_emoji(before: char, c: char, next: Option<char>) -> bool {
    let pictures = CodePointSetData::new::<ExtendedPictographic>();
    match c {
        '\u{200d}' => {
            let joins = before == '\u{fe0f}'
                || pictures.contains(before)
                || CodePointSetData::new::<EmojiModifier>().contains(before);
            joins && next.is_some_and(|next| pictures.contains(next) && !is_hidden(next))
        }
        // Digits are emoji too, but only as a keycap.
        '\u{fe0f}' if before.is_ascii() => next == Some('\u{20e3}'),
        '\u{fe0f}' => CodePointSetData::new::<Emoji>().contains(before),
        _ => false,
    }
}

/// Counts the hidden characters of a text.
pub fn count_hidden(text: &str) -> usize {
    if text.is_ascii() {
        return text.chars().filter(|c| is_hidden(*c)).count();
    }
    characters(text).filter(|(_, hidden)| *hidden).count()
}

/// Spells a foreign text out so that it fits in one line of ours, line feeds and tabs too.
pub fn line(text: &str) -> Cow<'_, str> {
    spell_out(text, |c, hidden| hidden || matches!(c, '\n' | '\t'))
}

/// Returns one word of a shell command, in quotes if it needs them, so that a command that we
/// suggest can be copied as it is.
pub fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./@%".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Returns the first `chars` characters of a foreign text, spelled out for one line of ours.
pub fn short(text: &str, chars: usize) -> String {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    line(text.get(..end).unwrap_or_default()).into_owned()
}

/// Spells a foreign text out in lines of its own: line feeds and tabs stay.
pub fn block(text: &str) -> Cow<'_, str> {
    spell_out(text, |_, hidden| hidden)
}

/// Spells out a line for a terminal, but keeps the escape character, since our own escape sequences
/// set colours in it.
pub fn coloured_line(text: &str) -> Cow<'_, str> {
    spell_out(text, |c, hidden| c != '\u{1b}' && (hidden || matches!(c, '\n' | '\t')))
}

/// Writes a JSON text on one line, with hidden characters as JSON escapes. Its value stays equal.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) || matches!(c, '\n' | '\t') {
            // Writing to a string cannot fail.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _written = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Spells out the characters for which `escapes` says so; it gets each character and whether it is
/// hidden.
fn spell_out(text: &str, escapes: impl Fn(char, bool) -> bool) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (c, hidden) in characters(text) {
        if escapes(c, hidden) { out.push_str(&spell_character(c)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Puts a foreign text between quotes, in one line of ours; the text cannot close the quotes. At
/// most `most` bytes of it are kept; a cut text is followed by its full length.
pub fn quoted(text: &str, most: usize) -> String {
    let mut out = String::from("\"");
    for (c, hidden) in characters(text) {
        let before = out.len();
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if hidden || matches!(c, '\n' | '\t') => out.push_str(&spell_character(c)),
            c => out.push(c),
        }
        if out.len() > most {
            out.truncate(before);
            return format!("{out}..\" ({} bytes)", text.len());
        }
    }
    out + "\""
}

/// The end of a line of a foreign text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// The end of the text: the last line has no line end.
    Text,
    Feed,
    /// A carriage return and a line feed, as in files of Windows.
    ReturnFeed,
}

impl LineEnd {
    /// Returns the length of the line end in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Text => 0,
            Self::Feed => 1,
            Self::ReturnFeed => 2,
        }
    }

    /// Returns the mark that is shown, pale, at the end of the line.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Feed => "\u{21b5}",
            Self::ReturnFeed => "\\r\u{21b5}",
        }
    }
}

/// Returns the lines of a text and how each ends. A text that ends in a line feed has an empty last
/// line, so that it differs from one that does not.
pub fn lines(text: &str) -> impl Iterator<Item = (&str, LineEnd)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some((line, after)) = text.split_once('\n') else {
            rest = None;
            return Some((text, LineEnd::Text));
        };
        rest = Some(after);
        let unreturned = line.strip_suffix('\r').map(|line| (line, LineEnd::ReturnFeed));
        Some(unreturned.unwrap_or((line, LineEnd::Feed)))
    })
}

/// Reports whether a text has letters that are written from right to left, beside which other text
/// may change its place.
pub fn has_right_to_left(text: &str) -> bool {
    let classes = CodePointMapData::<BidiClass>::new();
    !text.is_ascii() && text.chars().any(|c| matches!(classes.get(c), BidiClass::RightToLeft | BidiClass::ArabicLetter))
}

/// Returns the spelling of a hidden character, such as `\n` or `\u{202e}`.
pub fn spell_character(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c => c.escape_unicode().to_string(),
    }
}

#[cfg(test)]
mod tests;
