//! Foreign text in front of people. This is the one place that knows which characters a reader does not see.
//!
//! Letters, digits, marks and signs of every script stay as they are. A character that no reader sees, that changes how others
//! are seen, or that has no agreed look is spelled out: `\u{202e}`. The properties come from the Unicode database
//! (`icu_properties`, whose data the build has anyway for international host names), so a new version of Unicode needs no edit here.

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

/// Whether a reader would not see this character, or would see others in its stead: controls, format characters, marks of
/// direction, zero-width and default-ignorable characters, tags, variation selectors, blanks that are not the plain or the
/// ideographic space, line separators, private use and code points without a character. A line feed and a tab are layout and not
/// hidden; a carriage return is.
pub fn is_hidden(c: char) -> bool {
    match c {
        ' '..='~' | '\n' | '\t' | '\u{3000}' => false,
        // Signs and letters by their category, without any ink: braille without a dot, a note without a head, blanks of hieroglyphs,
        // the filler of the Khitan small script.
        '\u{2800}' | '\u{1d159}' | '\u{13441}' | '\u{13442}' | '\u{16fe4}' => true,
        // Format characters with a shape, which stand around or below numbers.
        c if CodePointSetData::new::<PrependedConcatenationMark>().contains(c) => false,
        _ => {
            let category = CodePointMapData::<GeneralCategory>::new().get(c);
            GeneralCategoryGroup::Other.contains(category)
                || GeneralCategoryGroup::Separator.contains(category)
                || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
        }
    }
}

/// Whether this character shows the text after it in another direction, so that it reads as other words than it holds.
pub fn turns_direction(c: char) -> bool {
    // Marks are characters of their own direction and turn nothing.
    !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}') && CodePointSetData::new::<BidiControl>().contains(c)
}

/// A text without the characters that are taken out of titles and descriptions before a definition is pinned; `None` where it
/// has none.
pub(crate) fn stripped(text: &str) -> Option<String> {
    if text.is_ascii() && !text.contains(is_stripped) {
        return None;
    }
    let kept: String = kept(text).collect();
    (kept.len() < text.len()).then_some(kept)
}

/// The characters that are not taken out. Joiners stay between letters of languages that need them and in emoji, one at a time:
/// elsewhere, and in rows, they can carry bits.
fn kept(text: &str) -> impl Iterator<Item = char> + '_ {
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

/// A pin is the digest of the cleaned definition. This set therefore stays as it is, byte for byte: it is a part of the pins on
/// disk. [`is_hidden`] is wider; what only that set has makes nothing disappear from a definition, but is spelled out when a
/// person looks at it.
fn is_stripped(c: char) -> bool {
    match c {
        '\n' | '\r' | '\t' => false,
        // Marks, overrides and isolates of direction.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // Zero-width text, and lines that only some readers break.
        '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{2028}' | '\u{2029}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' => true,
        // Letters without a shape.
        '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        // The tag characters, an invisible copy of ASCII, and variation selectors beyond those of emoji, which carry bytes.
        '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// Each character of a text, and whether it is hidden where it stands. The selector and the joiner of an emoji are a part of
/// its picture; anywhere else they are hidden.
pub fn characters(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    std::iter::from_fn(move || {
        let c = rest.next()?;
        let hidden = is_hidden(c) && !is_part_of_emoji(before, c, rest.peek().copied());
        // What is spelled out stands before nothing any more.
        before = if hidden { ' ' } else { c };
        Some((c, hidden))
    })
}

fn is_part_of_emoji(before: char, c: char, next: Option<char>) -> bool {
    let pictures = CodePointSetData::new::<ExtendedPictographic>();
    match c {
        '\u{200d}' => {
            let joins = before == '\u{fe0f}'
                || pictures.contains(before)
                || CodePointSetData::new::<EmojiModifier>().contains(before);
            joins && next.is_some_and(|next| pictures.contains(next) && !is_hidden(next))
        }
        // Digits are emoji too, but only on a key.
        '\u{fe0f}' if before.is_ascii() => next == Some('\u{20e3}'),
        '\u{fe0f}' => CodePointSetData::new::<Emoji>().contains(before),
        _ => false,
    }
}

/// How many hidden characters a text has.
pub fn hidden_in(text: &str) -> usize {
    if text.is_ascii() {
        return text.chars().filter(|c| is_hidden(*c)).count();
    }
    characters(text).filter(|(_, hidden)| *hidden).count()
}

/// Foreign text in one line of ours: line feeds and tabs are spelled out too.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, |c, hidden| hidden || matches!(c, '\n' | '\t'))
}

/// One word of a command for a shell, in quotes where it needs them, so that a command that we suggest can be copied as it is.
pub fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./@%".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// The beginning of a foreign text in one line of ours.
pub fn short(text: &str, chars: usize) -> String {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    line(text.get(..end).unwrap_or_default()).into_owned()
}

/// Foreign text in lines of its own: line feeds and tabs stay.
pub fn block(text: &str) -> Cow<'_, str> {
    shown(text, |_, hidden| hidden)
}

/// A line for a terminal on which our own escape sequences set colours.
pub fn coloured_line(text: &str) -> Cow<'_, str> {
    shown(text, |c, hidden| c != '\u{1b}' && (hidden || matches!(c, '\n' | '\t')))
}

/// A JSON text on one line, with hidden characters as JSON escapes: it is the same value.
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

fn shown(text: &str, escapes: impl Fn(char, bool) -> bool) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (c, hidden) in characters(text) {
        if escapes(c, hidden) { out.push_str(&spelled(c)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Foreign text between quotes in one line of ours, which it cannot close; at most so many bytes of it, with its length where it is
/// cut.
pub fn quoted(text: &str, most: usize) -> String {
    let mut out = String::from("\"");
    for (c, hidden) in characters(text) {
        let before = out.len();
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if hidden || matches!(c, '\n' | '\t') => out.push_str(&spelled(c)),
            c => out.push(c),
        }
        if out.len() > most {
            out.truncate(before);
            return format!("{out}..\" ({} bytes)", text.len());
        }
    }
    out + "\""
}

/// How a line of a foreign text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// It is the last one.
    Text,
    Feed,
    /// As files of Windows end theirs.
    ReturnFeed,
}

impl LineEnd {
    /// Bytes of the end itself.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Text => 0,
            Self::Feed => 1,
            Self::ReturnFeed => 2,
        }
    }

    /// The pale mark where the line ends.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Feed => "\u{21b5}",
            Self::ReturnFeed => "\\r\u{21b5}",
        }
    }
}

/// The lines of a text without their ends. A text that ends in a line feed has an empty last line, so that it differs from one that
/// does not.
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

/// Whether a text has letters that are written from right to left, so that what stands beside it may change places with it.
pub fn has_right_to_left(text: &str) -> bool {
    let classes = CodePointMapData::<BidiClass>::new();
    !text.is_ascii() && text.chars().any(|c| matches!(classes.get(c), BidiClass::RightToLeft | BidiClass::ArabicLetter))
}

/// A hidden character as it is spelled out.
pub fn spelled(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c => c.escape_unicode().to_string(),
    }
}

#[cfg(test)]
mod tests;
