//! Prepares text for the operator: spells hidden characters out, marks changed words, and writes
//! times in words.

use std::fmt::Write as _;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::policy::consent::SteadySeconds;
use crate::wire::foreign::changes::{TextChange, changes};
use crate::wire::foreign::marked::MarkedText;
use crate::wire::foreign::{self, is_hidden};
use crate::wire::json::tokens::{JsonTokens, TokenKind};

/// Unchanged lines shown on each side of a change.
const CONTEXT: usize = 2;
/// Most bytes between two changes that are shown as one.
const MAX_BRIDGE: usize = 4;

/// A piece of text of one kind, which a template renders as one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignPiece {
    pub(crate) kind: ForeignPieceKind,
    pub(crate) text: String,
}

impl ForeignPiece {
    /// Makes a piece of headend's own words.
    pub(crate) fn plain(text: &str) -> Self {
        Self { kind: ForeignPieceKind::Plain, text: text.to_owned() }
    }
}

/// The kind of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignPieceKind {
    Plain,
    /// A character that is invisible or changes how other text looks; written as an escape.
    Hidden,
    /// The name of an object's member.
    Key,
    Added,
    Removed,
    /// A note in place of unchanged lines that are left out.
    Gap,
}

/// Returns the text with its first letter in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Spells out the hidden characters of foreign text, for use within one line of headend's own text.
pub(crate) fn visible(text: &str) -> String {
    foreign::line(text).into_owned()
}

/// Spells out the hidden characters of foreign text, for a block of its own that keeps its lines.
pub(crate) fn block(text: &str) -> Vec<ForeignPiece> {
    let mut pieces = ForeignPieces::default();
    pieces.foreign(ForeignPieceKind::Plain, text);
    pieces.0
}

/// Converts text whose hidden characters were spelled out already.
pub(crate) fn marked(text: &MarkedText) -> Vec<ForeignPiece> {
    let piece = |(hidden, text): (bool, &str)| {
        let kind = if hidden { ForeignPieceKind::Hidden } else { ForeignPieceKind::Plain };
        ForeignPiece { kind, text: text.to_owned() }
    };
    text.parts().map(piece).collect()
}

/// Splits indented JSON into pieces in which members' names and escapes of hidden characters are
/// marked.
pub(crate) fn json(text: &str) -> Vec<ForeignPiece> {
    let mut pieces = ForeignPieces::default();
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        let (blank, rest) = line.split_at(indent);
        let (key, rest) = key_of(rest).unwrap_or(("", rest));
        pieces.push(ForeignPieceKind::Plain, blank.chars());
        mark(&mut pieces, ForeignPieceKind::Key, key);
        mark(&mut pieces, ForeignPieceKind::Plain, rest);
    }
    pieces.0
}

/// Splits a line after the name of a member, if it begins with one.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let first = JsonTokens::of(line.as_bytes()).next().filter(|first| first.kind == TokenKind::Key)?;
    line.split_at_checked(first.end)
}

/// Adds JSON text. Hidden characters, plain or escaped, become pieces of their own.
fn mark(pieces: &mut ForeignPieces, kind: ForeignPieceKind, text: &str) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(length) = escape_of_hidden(rest) {
            let (escape, after) = rest.split_at(length);
            pieces.push(ForeignPieceKind::Hidden, escape.chars());
            rest = after;
            continue;
        }
        if is_hidden(c) {
            pieces.push(ForeignPieceKind::Hidden, foreign::spell_character(c).chars());
        } else {
            pieces.push(kind, [c]);
        }
        // An escaped backslash begins no other escape.
        let step = if rest.starts_with("\\\\") { 2 } else { c.len_utf8() };
        if step == 2 && c == '\\' {
            pieces.push(kind, ['\\']);
        }
        rest = rest.get(step..).unwrap_or_default();
    }
}

/// Returns the length of the escape at the beginning of the text, such as `\u202e` or `\u{202e}`,
/// if it stands for a hidden character.
fn escape_of_hidden(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\\u")?;
    let (digits, length) = match rest.strip_prefix('{') {
        Some(braced) => {
            let end = braced.find('}').filter(|end| *end <= 6)?;
            (braced.get(..end)?, end + 4)
        }
        None => (rest.get(..4)?, 6),
    };
    let code = u32::from_str_radix(digits, 16).ok()?;
    // Half of a surrogate pair counts as hidden: pairs stand for characters beyond U+FFFF, among
    // them an invisible copy of ASCII.
    let hidden = char::from_u32(code).is_none_or(|c| is_hidden(c) || matches!(c, '\n' | '\t'));
    hidden.then_some(length)
}

/// Pieces under construction; neighbours of one kind are merged.
#[derive(Debug, Default)]
struct ForeignPieces(Vec<ForeignPiece>);

impl ForeignPieces {
    /// Adds foreign text. Hidden characters become pieces of their own.
    fn foreign(&mut self, kind: ForeignPieceKind, text: &str) {
        for (c, hidden) in foreign::characters(text) {
            if hidden {
                self.push(ForeignPieceKind::Hidden, foreign::spell_character(c).chars());
            } else {
                self.push(kind, [c]);
            }
        }
    }

    /// Adds characters, to the last piece if it is of the same kind.
    fn push(&mut self, kind: ForeignPieceKind, chars: impl IntoIterator<Item = char>) {
        let mut chars = chars.into_iter().peekable();
        if chars.peek().is_none() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.kind == kind => last.text.extend(chars),
            _ => self.0.push(ForeignPiece { kind, text: chars.collect() }),
        }
    }
}

/// Compares two texts word by word. Unchanged lines far from any change are left out.
pub(crate) fn diff(old: &str, new: &str) -> Vec<ForeignPiece> {
    let piece = |(change, text)| {
        let kind = match change {
            TextChange::Kept => ForeignPieceKind::Plain,
            TextChange::Removed => ForeignPieceKind::Removed,
            TextChange::Added => ForeignPieceKind::Added,
        };
        ForeignPiece { kind, text }
    };
    fold(join_changes(changes(old, new).into_iter().map(piece).collect()))
}

/// Merges changes with little more than a blank between them, so that a changed sentence is not
/// split into single words.
fn join_changes(pieces: Vec<ForeignPiece>) -> Vec<ForeignPiece> {
    let mut out: Vec<ForeignPiece> = Vec::with_capacity(pieces.len());
    let (mut removed, mut added) = (String::new(), String::new());
    let mut pieces = pieces.into_iter().peekable();
    while let Some(piece) = pieces.next() {
        match piece.kind {
            ForeignPieceKind::Removed => removed.push_str(&piece.text),
            ForeignPieceKind::Added => added.push_str(&piece.text),
            ForeignPieceKind::Plain | ForeignPieceKind::Hidden | ForeignPieceKind::Key | ForeignPieceKind::Gap => {
                let in_change = !removed.is_empty() || !added.is_empty();
                let little = piece.text.trim().len() <= MAX_BRIDGE && !piece.text.contains('\n');
                let bridges = in_change && little && pieces.peek().is_some();
                if bridges {
                    removed.push_str(&piece.text);
                    added.push_str(&piece.text);
                    continue;
                }
                flush(&mut out, &mut removed, &mut added);
                out.push(piece);
            }
        }
    }
    flush(&mut out, &mut removed, &mut added);
    out
}

/// Adds the pending removed and added texts as pieces, and empties them.
fn flush(out: &mut Vec<ForeignPiece>, removed: &mut String, added: &mut String) {
    // Blanks alone come from between two changes of the other side, so they are no change here.
    let pure = |text: &String| text.chars().all(|c| c == ' ') && !text.is_empty();
    if pure(removed) && !added.is_empty() {
        removed.clear();
    }
    if pure(added) && !removed.is_empty() {
        added.clear();
    }
    for (kind, text) in
        [(ForeignPieceKind::Removed, std::mem::take(removed)), (ForeignPieceKind::Added, std::mem::take(added))]
    {
        if !text.is_empty() {
            out.push(ForeignPiece { kind, text });
        }
    }
}

/// Shortens unchanged stretches to the lines beside a change.
fn fold(pieces: Vec<ForeignPiece>) -> Vec<ForeignPiece> {
    let count = pieces.len();
    let mut out = Vec::with_capacity(count);
    for (at, piece) in pieces.into_iter().enumerate() {
        let lines: Vec<&str> = piece.text.split_inclusive('\n').collect();
        let head = if at == 0 { 0 } else { CONTEXT + 1 };
        let tail = if at + 1 == count { 0 } else { CONTEXT + 1 };
        let hidden = lines.len().saturating_sub(head + tail);
        if piece.kind != ForeignPieceKind::Plain || hidden < 3 || count == 1 {
            out.push(piece);
            continue;
        }
        let plain = |lines: &[&str]| ForeignPiece { kind: ForeignPieceKind::Plain, text: lines.concat() };
        out.push(plain(lines.get(..head).unwrap_or_default()));
        out.push(ForeignPiece { kind: ForeignPieceKind::Gap, text: format!("{hidden} unchanged lines") });
        out.push(plain(lines.get(head + hidden..).unwrap_or_default()));
    }
    out.retain(|piece| !piece.text.is_empty());
    out
}

/// A time for people (`words`) and for machines (`moment`).
#[derive(Debug)]
pub(crate) struct DisplayTime {
    pub(crate) words: String,
    pub(crate) moment: String,
}

impl DisplayTime {
    pub(crate) fn past(now: SteadySeconds, at: SteadySeconds) -> Self {
        Self { words: ago(now, at), moment: moment(at) }
    }
}

/// Writes a duration in one unit: `12 s`, `3 min`, `2 h`, `5 days`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..90 => format!("{seconds} s"),
        90..5400 => format!("{} min", (seconds + 30) / 60),
        5400..129_600 => format!("{} h", (seconds + 1800) / 3600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// Writes how long ago `then` was.
pub(crate) fn ago(now: SteadySeconds, then: SteadySeconds) -> String {
    match now.saturating_sub(then) {
        0..2 => "just now".to_owned(),
        seconds => format!("{} ago", span(seconds)),
    }
}

/// Writes a time as RFC 3339 in UTC; empty if it is out of range.
pub(crate) fn moment(at: SteadySeconds) -> String {
    let time = i64::try_from(at).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

/// Writes a number with its noun: `1 tool`, `2 tools`.
pub(crate) fn counted(count: usize, one: &str) -> String {
    let mut text = format!("{count} {one}");
    if count != 1 && write!(text, "s").is_err() {
        text.clear();
    }
    text
}

#[cfg(test)]
mod tests;
