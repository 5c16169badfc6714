//! The arguments of a call as a person reads them: short values first, then texts in their lines, edits as a comparison, and what
//! looks binary by size and digest.
//!
//! The view is made for reading and is bounded; nothing is decided by it. It names each value by its whole place, says of each value
//! how much of it is not shown, and counts the values that are not there at all.

use std::borrow::Cow;

use crate::wire::foreign::changes::{Change, MAX_LINES, by_lines};
use crate::wire::foreign::marked::Marked;
use crate::wire::foreign::oddities::Oddities;
use crate::wire::foreign::{self, LineEnd};
use crate::wire::tokens::{Kind, Token, Tokens, unescaped};

mod binary;
mod pair;
mod place;
mod told;

pub use self::binary::Binary;
pub use self::told::Paint;

use self::pair::partner;
use self::place::{Step, name, place};

/// A longer string is a text, in bytes.
const MAX_SHORT: usize = 120;
/// A list or an object that is no longer stands on one line, in bytes of its JSON.
const MAX_INLINE: usize = 160;
/// Texts and edits that are shown; others are counted.
const MAX_LONG: usize = 256;
/// Unchanged lines on each side of a change that stay where there is no room for all.
const CONTEXT: usize = 2;
/// Bytes that a line costs beside its text.
const GUTTER: usize = 10;
/// Bytes that a heading costs beside the place that it names.
const HEADING: usize = 100;
/// Bytes of the summary of a text that looks binary.
const BINARY: usize = 200;

/// The arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Short values, then texts and edits; each in the order of the arguments.
    pub blocks: Vec<Block>,
    /// Values that are not there at all, and the bytes of their JSON.
    pub left_out: LeftOut,
    /// In all of the arguments, whether they are shown or not.
    pub oddities: Oddities,
}

/// Values that are left out of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub values: usize,
    pub bytes: usize,
}

impl LeftOut {
    const fn add(&mut self, bytes: usize) {
        self.values += 1;
        self.bytes += bytes;
    }
}

/// One value, or a pair of old and new text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its place: `path`, `edits[0].oldText`. Empty for arguments that are no object.
    pub place: Marked,
    pub content: Content,
}

/// A value as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON on one line.
    Value(Marked),
    Text {
        lines: Vec<TextLine>,
        /// The whole text.
        size: Size,
        /// Bytes at its end that are not shown.
        cut: usize,
    },
    Edit {
        /// The name of the new text beside that of the old one.
        new: Marked,
        lines: Vec<EditLine>,
        /// Bytes of the lines at the end that are not shown.
        cut: usize,
    },
    Binary(Binary),
}

/// How much a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub lines: usize,
    pub bytes: usize,
}

/// A line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextLine {
    pub text: Marked,
    pub end: LineEnd,
}

/// A line of both texts of an edit, or of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditLine {
    Line(Change, TextLine),
    /// So many lines that did not change and gave way to those that did.
    Same(usize),
}

impl View {
    /// Reads arguments, which are JSON. The view takes about `bound` bytes.
    pub fn of(json: &str, bound: usize) -> Self {
        let mut reader = Reader {
            json,
            tokens: Tokens::of(json.as_bytes()),
            path: Vec::new(),
            half: None,
            long: Vec::new(),
            view: Self::default(),
            room: bound / 2,
        };
        reader.read();
        let Reader { mut view, long, room, .. } = reader;
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
            view.blocks.push(Block { place, content });
        }
        view
    }

    /// Whether nothing is left out and no text is cut. What looks binary counts as cut.
    pub fn is_whole(&self) -> bool {
        let is_whole = |block: &Block| match &block.content {
            Content::Value(_) => true,
            Content::Text { cut, .. } | Content::Edit { cut, .. } => *cut == 0,
            Content::Binary(_) => false,
        };
        self.left_out.values == 0 && self.blocks.iter().all(is_whole)
    }
}

/// A value that takes lines of its own.
enum Long<'t> {
    Text(Cow<'t, str>),
    Edit { new_name: Cow<'t, str>, old: Cow<'t, str>, new: Cow<'t, str> },
}

impl Long<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Edit { old, new, .. } => old.len() + new.len(),
        }
    }

    /// At most so many bytes of it, and how many they are. `compared`: how many lines of edits may still be compared.
    fn shown(&self, most: usize, compared: &mut usize) -> (Content, usize) {
        match self {
            Self::Text(text) => {
                if let Some(binary) = Binary::of(text) {
                    return (Content::Binary(binary), most.min(BINARY));
                }
                let size = Size { lines: text.lines().count(), bytes: text.len() };
                let mut lines = Lines::new(most);
                for line in foreign::lines(text) {
                    if !lines.add((), line) {
                        break;
                    }
                }
                let taken = most - lines.room;
                let cut = text.len() - lines.bytes;
                (Content::Text { lines: lines.lines.into_iter().map(|((), line)| line).collect(), size, cut }, taken)
            }
            Self::Edit { new_name, old, new } => {
                let all = by_lines(old, new, compared);
                let bytes: usize = all.iter().map(|(_, line)| line.len()).sum();
                let folds = bytes + all.len() * GUTTER > most;
                let mut lines = Lines::new(most);
                let mut same = 0;
                let mut shown = Vec::new();
                for (at, (change, line)) in all.iter().enumerate() {
                    let near =
                        all.get(at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(all.len())).unwrap_or_default();
                    if folds && near.iter().all(|(change, _)| *change == Change::Kept) {
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
                (Content::Edit { new: name(new_name), lines: shown, cut }, taken)
            }
        }
    }
}

/// Lines as far as there is room.
struct Lines<T> {
    lines: Vec<(T, TextLine)>,
    room: usize,
    /// Bytes of the text that they are.
    bytes: usize,
}

impl<T> Lines<T> {
    const fn new(room: usize) -> Self {
        Self { lines: Vec::new(), room, bytes: 0 }
    }

    /// Adds a line, or the beginning of it; false where no other one has room.
    fn add(&mut self, of: T, (text, end): (&str, LineEnd)) -> bool {
        let Some(room) = self.room.checked_sub(GUTTER) else { return false };
        let (marked, at) = Marked::beginning(text, room);
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

/// The old or new text of an edit whose other half may follow.
struct Half<'t> {
    depth: usize,
    name: Cow<'t, str>,
    text: Cow<'t, str>,
}

/// The way through the arguments.
struct Reader<'t> {
    json: &'t str,
    tokens: Tokens<'t>,
    path: Vec<Step<'t>>,
    half: Option<Half<'t>>,
    long: Vec<(Marked, Long<'t>)>,
    view: View,
    /// Bytes that short values may still take.
    room: usize,
}

impl<'t> Reader<'t> {
    fn read(&mut self) {
        while let Some(token) = self.tokens.next() {
            match token.kind {
                Kind::Key => {
                    let key = self.text(token);
                    self.view.oddities.look_at(&key);
                    if let Some(step) = self.path.last_mut() {
                        *step = Step::Member(key);
                    }
                }
                Kind::Comma => {
                    if let Some(Step::Element(at)) = self.path.last_mut() {
                        *at += 1;
                    }
                }
                Kind::Object | Kind::Array => self.opened(token),
                Kind::ObjectEnd | Kind::ArrayEnd => {
                    self.settle();
                    self.path.pop();
                }
                Kind::String => self.string(token),
                Kind::Scalar => {
                    self.settle();
                    let text = self.literal(token);
                    self.value(text, Marked::of(text));
                }
            }
        }
        self.settle();
    }

    fn literal(&self, token: Token) -> &'t str {
        self.json.get(token.start..token.end).unwrap_or_default()
    }

    /// A string as it reads; one that is no text as it was received.
    fn text(&self, token: Token) -> Cow<'t, str> {
        let literal = self.literal(token);
        unescaped(literal.as_bytes()).unwrap_or(Cow::Borrowed(literal))
    }

    /// Puts a small object or list on one line, and goes into any other.
    fn opened(&mut self, token: Token) {
        self.settle();
        let is_inside = !self.path.is_empty() || token.kind == Kind::Array;
        if is_inside && let Some((end, line)) = self.inline(token) {
            let literal = self.json.get(token.start..end).unwrap_or_default();
            self.view.oddities.look_at_json(literal);
            while self.tokens.at() < end && self.tokens.next().is_some() {}
            return self.value(literal, line);
        }
        self.path.push(if token.kind == Kind::Object { Step::Nothing } else { Step::Element(0) });
    }

    /// The end of what this token opens, and it on one line; `None` where it is long or has texts with lines of their own.
    fn inline(&self, token: Token) -> Option<(usize, Marked)> {
        let mut ahead = self.tokens.clone();
        let depth = ahead.depth() - 1;
        let mut line = Marked::own(self.literal(token));
        loop {
            let next = ahead.next()?;
            if next.end > token.start + MAX_INLINE {
                return None;
            }
            match next.kind {
                Kind::Key | Kind::String => {
                    let text = unescaped(ahead.literal(next))?;
                    if text.contains('\n') || foreign::has_right_to_left(&text) || partner(&text).is_some() {
                        return None;
                    }
                    line.push_quoted(&text);
                    line.push_own(if next.kind == Kind::Key { ": " } else { "" });
                }
                Kind::Comma => line.push_own(", "),
                Kind::Object | Kind::Array | Kind::ObjectEnd | Kind::ArrayEnd | Kind::Scalar => {
                    line.push(self.literal(next));
                }
            }
            if ahead.depth() == depth {
                return Some((next.end, line));
            }
        }
    }

    fn string(&mut self, token: Token) {
        let literal = self.literal(token);
        let Some(text) = unescaped(literal.as_bytes()) else {
            // Half of a surrogate pair is no character.
            self.settle();
            self.view.oddities.look_at(literal);
            self.view.oddities.hidden += 1;
            return self.value(literal, Marked::of(literal));
        };
        self.view.oddities.look_at(&text);
        if let Some(Step::Member(name)) = self.path.last()
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
            self.half = Some(Half { depth, name, text });
            return;
        }
        self.settle();
        self.plain(text);
    }

    /// A string that is no half of an edit.
    fn plain(&mut self, text: Cow<'t, str>) {
        if text.len() > MAX_SHORT || text.contains('\n') || foreign::has_right_to_left(&text) {
            let place = self.place();
            return self.long(place, Long::Text(text));
        }
        let quoted = Marked::quoted(&text);
        self.put(text.len(), quoted);
    }

    fn edit(&mut self, half: Half<'t>, name: Cow<'t, str>, text: Cow<'t, str>) {
        let is_old_first = pair::is_old(&half.name);
        let (old_name, new_name) = if is_old_first { (half.name, name) } else { (name, half.name) };
        let (old, new) = if is_old_first { (half.text, text) } else { (text, half.text) };
        if let Some(step) = self.path.last_mut() {
            *step = Step::Member(old_name);
        }
        let place = self.place();
        self.long(place, Long::Edit { new_name, old, new });
    }

    /// Takes a half without its other half for the string that it is.
    fn settle(&mut self) {
        let Some(half) = self.half.take() else { return };
        // Its object is the innermost one still, but its key may have given way to the next one.
        let Some(step) = self.path.last_mut() else { return };
        let next = std::mem::replace(step, Step::Member(half.name));
        self.plain(half.text);
        if let Some(step) = self.path.last_mut() {
            *step = next;
        }
    }

    /// A value on one line, or a text where it is long.
    fn value(&mut self, literal: &'t str, line: Marked) {
        if literal.len() > MAX_INLINE {
            let place = self.place();
            return self.long(place, Long::Text(Cow::Borrowed(literal)));
        }
        self.put(literal.len(), line);
    }

    fn put(&mut self, bytes: usize, line: Marked) {
        let place = if self.room == 0 { Marked::default() } else { self.place() };
        let takes = place.len() + line.len() + 3;
        if self.room < takes {
            // No later one takes its place, so that those shown are the first ones.
            self.room = 0;
            return self.leave_out(bytes);
        }
        self.room -= takes;
        self.view.blocks.push(Block { place, content: Content::Value(line) });
    }

    fn long(&mut self, place: Marked, value: Long<'t>) {
        if self.long.len() >= MAX_LONG {
            return self.leave_out(value.bytes());
        }
        self.long.push((place, value));
    }

    fn leave_out(&mut self, bytes: usize) {
        self.view.left_out.add(bytes);
    }

    fn place(&self) -> Marked {
        place(&self.path)
    }
}

#[cfg(test)]
mod tests;
