//! The view of a call's arguments for a person: short values first, then texts in their lines,
//! edits as a comparison, and binary-looking strings by size and digest.
//!
//! A view is for reading and is bounded; no decision depends on it. It names each value by its full
//! place, says how much of each value is not shown, and counts the values that are left out.

use std::borrow::Cow;

use crate::wire::foreign::changes::{MAX_LINES, TextChange, by_lines};
use crate::wire::foreign::marked::MarkedText;
use crate::wire::foreign::oddities::TextOddities;
use crate::wire::foreign::{self, LineEnd};
use crate::wire::json::tokens::{JsonToken, JsonTokens, TokenKind, unescaped};

mod binary;
mod pair;
mod place;
mod told;

pub use self::binary::BinaryText;
pub use self::told::ViewColours;

use self::pair::partner;
use self::place::{PlaceStep, name, place};

/// Longest string that is shown on one line, in bytes. A longer one is shown as a text.
const MAX_SHORT: usize = 120;
/// Longest list or object that is shown on one line, in bytes of its JSON.
const MAX_INLINE: usize = 160;
/// Most texts and edits that are shown; further ones are counted.
const MAX_LONG: usize = 256;
/// Unchanged lines on each side of a change that stay if there is no room for all.
const CONTEXT: usize = 2;
/// Bytes that a line is charged besides its text.
const GUTTER: usize = 10;
/// Bytes that a heading is charged besides the place that it names.
const HEADING: usize = 100;
/// Bytes that the summary of a binary-looking text is charged.
const BINARY: usize = 200;

/// The arguments of a call, laid out for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgumentView {
    /// The shown values: short values, then texts and edits, each in the order of the arguments.
    pub blocks: Vec<ViewBlock>,
    /// Number and size of the values that are not shown at all.
    pub left_out: OmittedValues,
    /// Oddities in all of the arguments, whether they are shown or not.
    pub oddities: TextOddities,
}

/// The number of values that are left out of a view, and the bytes of their JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedValues {
    pub values: usize,
    pub bytes: usize,
}

impl OmittedValues {
    const fn add(&mut self, bytes: usize) {
        self.values += 1;
        self.bytes += bytes;
    }
}

/// One shown value, or a pair of old and new text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewBlock {
    /// The value's place: `path`, `edits[0].oldText`. Empty for arguments that are no object.
    pub place: MarkedText,
    pub content: BlockContent,
}

/// The content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// A value as JSON on one line.
    Value(MarkedText),
    Text {
        lines: Vec<TextLine>,
        /// Size of the whole text.
        size: TextSize,
        /// Bytes at the end of the text that are not shown.
        cut: usize,
    },
    Edit {
        /// The name of the new text; the block's place names the old one.
        new: MarkedText,
        lines: Vec<EditLine>,
        /// Bytes of the lines at the end that are not shown.
        cut: usize,
    },
    Binary(BinaryText),
}

/// The size of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSize {
    pub lines: usize,
    pub bytes: usize,
}

/// A shown line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextLine {
    pub text: MarkedText,
    pub end: LineEnd,
}

/// A line of the comparison of two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditLine {
    Line(TextChange, TextLine),
    /// A number of unchanged lines that were folded to make room.
    Same(usize),
}

impl ArgumentView {
    /// Lays out arguments, given as JSON, in about `bound` bytes.
    pub fn of(json: &str, bound: usize) -> Self {
        let mut reader = ViewReader {
            json,
            tokens: JsonTokens::of(json.as_bytes()),
            path: Vec::new(),
            half: None,
            long: Vec::new(),
            view: Self::default(),
            room: bound / 2,
        };
        reader.read();
        let ViewReader { mut view, long, room, .. } = reader;
        let mut room = room + bound / 2;
        let (mut waiting, mut compared) = (long.len(), MAX_LINES);
        for (place, value) in long {
            let heading = place.len() + HEADING;
            let share = (room / waiting.max(1)).saturating_sub(heading);
            waiting -= 1;
            if room < heading {
                view.left_out.add(value.bytes());
                continue;
            }
            let (content, taken) = value.shown(share, &mut compared);
            room = room.saturating_sub(heading + taken);
            view.blocks.push(ViewBlock { place, content });
        }
        view
    }

    /// Whether nothing is left out and no text is cut. A binary-looking text counts as cut.
    pub fn is_whole(&self) -> bool {
        let is_whole = |block: &ViewBlock| match &block.content {
            BlockContent::Value(_) => true,
            BlockContent::Text { cut, .. } | BlockContent::Edit { cut, .. } => *cut == 0,
            BlockContent::Binary(_) => false,
        };
        self.left_out.values == 0 && self.blocks.iter().all(is_whole)
    }
}

/// A value that takes several lines.
enum LongValue<'t> {
    Text(Cow<'t, str>),
    Edit { new_name: Cow<'t, str>, old: Cow<'t, str>, new: Cow<'t, str> },
}

impl LongValue<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Edit { old, new, .. } => old.len() + new.len(),
        }
    }

    /// Renders at most `most` bytes of the value; returns the content and the bytes taken.
    /// `compared` is the number of lines of edits that may still be compared, and is reduced.
    fn shown(&self, most: usize, compared: &mut usize) -> (BlockContent, usize) {
        match self {
            Self::Text(text) => {
                if let Some(binary) = BinaryText::of(text) {
                    return (BlockContent::Binary(binary), most.min(BINARY));
                }
                let size = TextSize { lines: text.lines().count(), bytes: text.len() };
                let mut lines = BoundedLines::new(most);
                for line in foreign::lines(text) {
                    if !lines.add((), line) {
                        break;
                    }
                }
                let taken = most - lines.room;
                let cut = text.len() - lines.bytes;
                (
                    BlockContent::Text { lines: lines.lines.into_iter().map(|((), line)| line).collect(), size, cut },
                    taken,
                )
            }
            Self::Edit { new_name, old, new } => {
                let all = by_lines(old, new, compared);
                let bytes: usize = all.iter().map(|(_, line)| line.len()).sum();
                let folds = bytes + all.len() * GUTTER > most;
                let mut lines = BoundedLines::new(most);
                let mut same = 0;
                let mut shown = Vec::new();
                for (at, (change, line)) in all.iter().enumerate() {
                    let near =
                        all.get(at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(all.len())).unwrap_or_default();
                    if folds && near.iter().all(|(change, _)| *change == TextChange::Kept) {
                        same += 1;
                        lines.bytes += line.len();
                        continue;
                    }
                    if same > 0 {
                        shown.push(EditLine::Same(std::mem::take(&mut same)));
                    }
                    let line = foreign::lines(line).next().unwrap_or(("", LineEnd::Text));
                    let has_room = lines.add(*change, line);
                    shown.extend(lines.lines.pop().map(|(change, line)| EditLine::Line(change, line)));
                    if !has_room {
                        break;
                    }
                }
                if same > 0 {
                    shown.push(EditLine::Same(same));
                }
                let (taken, cut) = (most - lines.room, bytes - lines.bytes);
                (BlockContent::Edit { new: name(new_name), lines: shown, cut }, taken)
            }
        }
    }
}

/// Lines collected as long as there is room, in bytes.
struct BoundedLines<T> {
    lines: Vec<(T, TextLine)>,
    room: usize,
    /// Bytes of the text that the lines show.
    bytes: usize,
}

impl<T> BoundedLines<T> {
    const fn new(room: usize) -> Self {
        Self { lines: Vec::new(), room, bytes: 0 }
    }

    /// Adds a line, or the beginning of it. Returns false if there is no room for another one.
    fn add(&mut self, of: T, (text, end): (&str, LineEnd)) -> bool {
        let Some(room) = self.room.checked_sub(GUTTER) else { return false };
        let (marked, at) = MarkedText::beginning(text, room);
        if at == 0 && !text.is_empty() {
            return false;
        }
        self.room = room - marked.len();
        let is_whole = at == text.len();
        self.bytes += if is_whole { at + end.bytes() } else { at };
        let end = if is_whole { end } else { LineEnd::Text };
        self.lines.push((of, TextLine { text: marked, end }));
        is_whole
    }
}

/// The old or new text of an edit, kept until its other half is found.
struct EditHalf<'t> {
    depth: usize,
    name: Cow<'t, str>,
    text: Cow<'t, str>,
}

/// The state of one pass through the arguments.
struct ViewReader<'t> {
    json: &'t str,
    tokens: JsonTokens<'t>,
    path: Vec<PlaceStep<'t>>,
    half: Option<EditHalf<'t>>,
    long: Vec<(MarkedText, LongValue<'t>)>,
    view: ArgumentView,
    /// Bytes that short values may still take.
    room: usize,
}

impl<'t> ViewReader<'t> {
    /// Passes through the arguments once and fills the view and the list of long values.
    fn read(&mut self) {
        while let Some(token) = self.tokens.next() {
            match token.kind {
                TokenKind::Key => {
                    let key = self.text(token);
                    self.view.oddities.look_at(&key);
                    if let Some(step) = self.path.last_mut() {
                        *step = PlaceStep::Member(key);
                    }
                }
                TokenKind::Comma => {
                    if let Some(PlaceStep::Element(at)) = self.path.last_mut() {
                        *at += 1;
                    }
                }
                TokenKind::Object | TokenKind::Array => self.opened(token),
                TokenKind::ObjectEnd | TokenKind::ArrayEnd => {
                    self.settle();
                    self.path.pop();
                }
                TokenKind::String => self.string(token),
                TokenKind::Scalar => {
                    self.settle();
                    let text = self.literal(token);
                    self.value(text, MarkedText::of(text));
                }
            }
        }
        self.settle();
    }

    fn literal(&self, token: JsonToken) -> &'t str {
        self.json.get(token.start..token.end).unwrap_or_default()
    }

    /// Returns the decoded string; a string that is not valid text is returned as received.
    fn text(&self, token: JsonToken) -> Cow<'t, str> {
        let literal = self.literal(token);
        unescaped(literal.as_bytes()).unwrap_or(Cow::Borrowed(literal))
    }

    /// Adds a small object or list as one line, or descends into a larger one.
    fn opened(&mut self, token: JsonToken) {
        self.settle();
        let is_inside = !self.path.is_empty() || token.kind == TokenKind::Array;
        if is_inside && let Some((end, line)) = self.inline(token) {
            let literal = self.json.get(token.start..end).unwrap_or_default();
            self.view.oddities.look_at_json(literal);
            while self.tokens.at() < end && self.tokens.next().is_some() {}
            return self.value(literal, line);
        }
        self.path.push(if token.kind == TokenKind::Object { PlaceStep::Nothing } else { PlaceStep::Element(0) });
    }

    /// Returns the end of the object or list that the token opens, and its text on one line.
    /// Returns `None` if it is long or has strings that need lines of their own.
    fn inline(&self, token: JsonToken) -> Option<(usize, MarkedText)> {
        let mut ahead = self.tokens.clone();
        let depth = ahead.depth() - 1;
        let mut line = MarkedText::own(self.literal(token));
        loop {
            let next = ahead.next()?;
            if next.end > token.start + MAX_INLINE {
                return None;
            }
            match next.kind {
                TokenKind::Key | TokenKind::String => {
                    let text = unescaped(ahead.literal(next))?;
                    if text.contains('\n') || foreign::has_right_to_left(&text) || partner(&text).is_some() {
                        return None;
                    }
                    line.push_quoted(&text);
                    line.push_own(if next.kind == TokenKind::Key { ": " } else { "" });
                }
                TokenKind::Comma => line.push_own(", "),
                TokenKind::Object
                | TokenKind::Array
                | TokenKind::ObjectEnd
                | TokenKind::ArrayEnd
                | TokenKind::Scalar => {
                    line.push(self.literal(next));
                }
            }
            if ahead.depth() == depth {
                return Some((next.end, line));
            }
        }
    }

    /// Adds a string; if its key is that of half an edit, keeps it, or adds the edit if the other
    /// half is kept.
    fn string(&mut self, token: JsonToken) {
        let literal = self.literal(token);
        let Some(text) = unescaped(literal.as_bytes()) else {
            // Half of a surrogate pair is no character.
            self.settle();
            self.view.oddities.look_at(literal);
            self.view.oddities.hidden += 1;
            return self.value(literal, MarkedText::of(literal));
        };
        self.view.oddities.look_at(&text);
        if let Some(PlaceStep::Member(name)) = self.path.last()
            && let Some(other) = partner(name)
        {
            let (name, depth) = (name.clone(), self.path.len());
            match self.half.take() {
                Some(half) if half.depth == depth && half.name == other => {
                    return self.edit(half, name, text);
                }
                half => self.half = half,
            }
            self.settle();
            self.half = Some(EditHalf { depth, name, text });
            return;
        }
        self.settle();
        self.plain(text);
    }

    /// Adds a string that is no half of an edit: on one line if it is short, else as a text.
    fn plain(&mut self, text: Cow<'t, str>) {
        if text.len() > MAX_SHORT || text.contains('\n') || foreign::has_right_to_left(&text) {
            let place = self.place();
            return self.long(place, LongValue::Text(text));
        }
        let quoted = MarkedText::quoted(&text);
        self.put(text.len(), quoted);
    }

    /// Adds an edit to the long values, made of the half kept before and of the name and text of
    /// the other half; either may be the old text.
    fn edit(&mut self, half: EditHalf<'t>, name: Cow<'t, str>, text: Cow<'t, str>) {
        let is_old_first = pair::is_old(&half.name);
        let (old_name, new_name) = if is_old_first { (half.name, name) } else { (name, half.name) };
        let (old, new) = if is_old_first { (half.text, text) } else { (text, half.text) };
        if let Some(step) = self.path.last_mut() {
            *step = PlaceStep::Member(old_name);
        }
        let place = self.place();
        self.long(place, LongValue::Edit { new_name, old, new });
    }

    /// Adds the kept half of an edit, if there is one, as a plain string, because its other half
    /// did not follow.
    fn settle(&mut self) {
        let Some(half) = self.half.take() else { return };
        // The half's object is still the innermost one, but its key may have been replaced by the
        // next one.
        let Some(step) = self.path.last_mut() else { return };
        let next = std::mem::replace(step, PlaceStep::Member(half.name));
        self.plain(half.text);
        if let Some(step) = self.path.last_mut() {
            *step = next;
        }
    }

    /// Adds a value on one line, or as a text if it is long.
    fn value(&mut self, literal: &'t str, line: MarkedText) {
        if literal.len() > MAX_INLINE {
            let place = self.place();
            return self.long(place, LongValue::Text(Cow::Borrowed(literal)));
        }
        self.put(literal.len(), line);
    }

    /// Adds a short value if there is room, else counts it and all later short values as left out.
    fn put(&mut self, bytes: usize, line: MarkedText) {
        let place = if self.room == 0 { MarkedText::default() } else { self.place() };
        let takes = place.len() + line.len() + 3;
        if self.room < takes {
            // No later value is shown, so that the shown values are the first ones.
            self.room = 0;
            return self.leave_out(bytes);
        }
        self.room -= takes;
        self.view.blocks.push(ViewBlock { place, content: BlockContent::Value(line) });
    }

    /// Adds a long value to those that are shown after the short ones; counts it as left out if
    /// there are [`MAX_LONG`] already.
    fn long(&mut self, place: MarkedText, value: LongValue<'t>) {
        if self.long.len() >= MAX_LONG {
            return self.leave_out(value.bytes());
        }
        self.long.push((place, value));
    }

    /// Counts a value that is not shown.
    fn leave_out(&mut self, bytes: usize) {
        self.view.left_out.add(bytes);
    }

    fn place(&self) -> MarkedText {
        place(&self.path)
    }
}

#[cfg(test)]
mod tests;
