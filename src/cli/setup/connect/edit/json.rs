//! Edits JSON with comments by the spans of its parser: every byte outside of the edited members
//! stays.

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, parse_to_ast};
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::text::{EntryMembers, EntryText, end_of_line};

/// A parsed text, with the positions of its commas and comments.
struct JsonText<'t> {
    text: &'t str,
    root: Object<'t>,
    commas: Vec<usize>,
    comments: Vec<(usize, usize)>,
}

impl<'t> JsonText<'t> {
    fn parse(text: &'t str) -> Result<Self, String> {
        let (mut commas, mut comments) = (Vec::new(), Vec::new());
        let mut scanner = Scanner::new(text);
        while let Ok(Some(token)) = scanner.scan() {
            let (start, end) = (scanner.token_start(), scanner.token_end());
            if token == Token::Comma {
                commas.push(start);
            } else if matches!(token, Token::CommentLine(_) | Token::CommentBlock(_)) {
                let own = text.get(start..end).map_or(end, |own| start + own.trim_end_matches('\r').len());
                comments.push((start, own));
            }
        }
        let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
        match parsed.map_err(|error| format!("line {}: {}", error.line_display(), error.kind()))?.value {
            Some(Value::Object(root)) => Ok(Self { text, root, commas, comments }),
            _ => Err("is not a JSON object".to_owned()),
        }
    }

    /// Returns the object at the end of a path of keys; `None` if a key is missing.
    fn object(&self, keys: &[&str]) -> Result<Option<&Object<'t>>, String> {
        let mut object = &self.root;
        for key in keys {
            match find(object, key)? {
                None => return Ok(None),
                Some((_, ObjectProp { value: Value::Object(inner), .. })) => object = inner,
                Some(_) => return Err(format!("`{key}` in it is not an object")),
            }
        }
        Ok(Some(object))
    }

    fn slice(&self, start: usize, end: usize) -> &'t str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Returns the position of the line break before a position, if there are only blanks between.
    fn break_before(&self, at: usize) -> Option<usize> {
        let before = self.slice(0, at).trim_end_matches([' ', '\t']);
        let line = before.strip_suffix('\n')?;
        Some(line.strip_suffix('\r').unwrap_or(line).len())
    }

    /// Returns the blanks at the beginning of the line of a position.
    fn indent(&self, at: usize) -> &'t str {
        let line = self.slice(0, at).rsplit('\n').next().unwrap_or_default();
        line.get(..line.len() - line.trim_start_matches([' ', '\t']).len()).unwrap_or_default()
    }

    fn comma_between(&self, start: usize, end: usize) -> Option<usize> {
        self.commas.iter().copied().find(|comma| (start..end).contains(comma))
    }

    /// Returns the end of the comments behind a position, if they end its line; else the position.
    fn comments_end(&self, at: usize) -> usize {
        let mut end = at;
        for (start, own) in self.comments.iter().filter(|(start, _)| *start >= at) {
            if self.slice(end, *start).trim_matches([' ', '\t']).is_empty() {
                end = *own;
            }
        }
        let rest = self.text.get(end..).unwrap_or_default().split('\n').next().unwrap_or_default();
        if rest.trim().is_empty() { end } else { at }
    }

    /// Returns the end of the space behind a member: the start of the next one, or the brace.
    fn space_end(&self, object: &Object<'t>, index: usize) -> usize {
        object.properties.get(index + 1).map_or(object.end() - 1, |next| next.start())
    }

    /// Returns true if the members of an object stand in one line.
    fn is_compact(&self, object: &Object<'t>) -> bool {
        match object.properties.first() {
            Some(first) => self.break_before(first.start()).is_none(),
            None => object.start() != self.root.start() && self.is_compact(&self.root),
        }
    }

    /// Returns the text with a member inserted before the member of that index.
    fn insert(&self, object: &Object<'t>, index: usize, entry: &EntryText) -> String {
        let eol = end_of_line(self.text);
        let EntryText { text, tail } = entry;
        let (start, end) = (object.start() + 1, object.end() - 1);
        let Some(first) = object.properties.first() else {
            let (outer, unit) = (self.indent(object.start()), self.unit());
            return match (self.is_compact(object), self.slice(start, end).contains('\n')) {
                (true, _) => self.splice(start, start, text),
                (false, true) => self.splice(start, start, &format!("{eol}{outer}{unit}{text}{tail}")),
                (false, false) => self.splice(start, start, &format!("{eol}{outer}{unit}{text}{tail}{eol}{outer}")),
            };
        };
        let is_compact = self.is_compact(object);
        let Some((at, before)) = index.checked_sub(1).and_then(|at| Some((at, object.properties.get(at)?))) else {
            let indent = self.indent(first.start());
            let own =
                if is_compact { format!("{text},{}", self.space()) } else { format!("{text},{tail}{eol}{indent}") };
            return self.splice(first.start(), first.start(), &own);
        };
        let gap = if is_compact { self.space().to_owned() } else { format!("{eol}{}", self.indent(first.start())) };
        let tail = if is_compact { "" } else { tail };
        match self.comma_between(before.end(), self.space_end(object, at)) {
            Some(comma) => {
                let behind = if is_compact { comma + 1 } else { self.comments_end(comma + 1) };
                self.splice(behind, behind, &format!("{gap}{text},{tail}"))
            }
            None => {
                let behind = if is_compact { before.end() } else { self.comments_end(before.end()) };
                let whole = self.splice(behind, behind, &format!("{gap}{text}{tail}"));
                format!("{},{}", self.slice(0, before.end()), whole.get(before.end()..).unwrap_or_default())
            }
        }
    }

    /// Returns the text without a member, and the member.
    fn remove(&self, object: &Object<'t>, index: usize, member: &ObjectProp<'t>) -> (String, EntryText) {
        let comma = self.comma_between(member.end(), self.space_end(object, index));
        let body = comma.map_or(member.end(), |comma| comma + 1);
        // The line break before a member stays unless the member ends its line: a comment may need
        // it.
        let behind = self.text.get(self.comments_end(body)..).unwrap_or_default().trim_start_matches([' ', '\t']);
        let own_line = self.break_before(member.start()).filter(|_| behind.starts_with(['\r', '\n']));
        let rest = self.text.get(body..).unwrap_or_default();
        let end = match own_line {
            Some(_) => self.comments_end(body),
            None if index == 0 => body + rest.len() - rest.trim_start_matches(' ').len(),
            None => body,
        };
        let start = own_line.unwrap_or_else(|| self.slice(0, member.start()).trim_end_matches([' ', '\t']).len());
        let tail = self.slice(body, end).to_owned();
        let entry = EntryText { text: self.slice(member.start(), member.end()).to_owned(), tail };
        let (mut head, mut rest) = (self.slice(0, start).to_owned(), self.text.get(end..).unwrap_or_default());
        if let Some(before) = index.checked_sub(1).and_then(|at| object.properties.get(at)).filter(|_| comma.is_none())
            && let Some(comma) = self.comma_between(before.end(), member.start())
        {
            head.remove(comma);
        }
        let inside = [self.slice(object.start() + 1, start), self.slice(end, object.end() - 1)];
        if object.properties.len() == 1 && inside.iter().all(|text| text.trim().is_empty()) {
            head.truncate(object.start() + 1);
            rest = self.text.get(object.end() - 1..).unwrap_or_default();
        }
        (head + rest, entry)
    }

    fn splice(&self, start: usize, end: usize, with: &str) -> String {
        format!("{}{with}{}", self.slice(0, start), self.text.get(end..).unwrap_or_default())
    }

    /// Returns the space behind commas in a line of members.
    fn space(&self) -> &'static str {
        if self.commas.last().is_some_and(|comma| self.slice(comma + 1, comma + 2) == " ") { " " } else { "" }
    }

    /// Returns the blanks by which the file indents one level.
    fn unit(&self) -> &'t str {
        let first = self.root.properties.first().map(|first| self.indent(first.start()));
        first.filter(|indent| !indent.is_empty()).unwrap_or("  ")
    }
}

/// Finds a member; a name that occurs twice is an error, since readers differ on which one counts.
fn find<'o, 't>(object: &'o Object<'t>, name: &str) -> Result<Option<(usize, &'o ObjectProp<'t>)>, String> {
    let mut found = object.properties.iter().enumerate().filter(|(_, member)| member.name.as_str() == name);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(format!("`{name}` is in it twice")),
        (found, None) => Ok(found),
    }
}

/// Inserts an empty list at the end of a path of keys, where it is missing.
pub(super) fn with_list(text: &str, keys: &[&str]) -> Result<String, String> {
    let mut text = if text.trim().is_empty() { format!("{{}}{}", end_of_line(text)) } else { text.to_owned() };
    for depth in 0..keys.len() {
        let parsed = JsonText::parse(&text)?;
        let (outer, key) = (keys.get(..depth).unwrap_or_default(), keys.get(depth).copied().unwrap_or_default());
        if parsed.object(keys.get(..=depth).unwrap_or_default())?.is_none()
            && let Some(object) = parsed.object(outer)?
        {
            let empty = EntryText { text: format!("{key:?}: {{}}"), tail: String::new() };
            text = parsed.insert(object, object.properties.len(), &empty);
        }
    }
    Ok(text)
}

/// Inserts a member behind the member `after`, at the beginning without one.
pub(super) fn insert(text: &str, keys: &[&str], after: Option<&str>, entry: &EntryText) -> Result<String, String> {
    let parsed = JsonText::parse(text)?;
    let Some(object) = parsed.object(keys)? else { return Err("the list of servers is missing".to_owned()) };
    let index = match after {
        None => 0,
        // Behind a member that has gone, the end is the best place.
        Some(after) => find(object, after)?.map_or(object.properties.len(), |(at, _)| at + 1),
    };
    Ok(parsed.insert(object, index, entry))
}

/// Removes a member; `None` if there is none of that name.
pub(super) fn remove(text: &str, keys: &[&str], name: &str) -> Result<Option<(String, EntryText)>, String> {
    let parsed = JsonText::parse(text)?;
    let Some(object) = parsed.object(keys)? else { return Ok(None) };
    Ok(find(object, name)?.map(|(at, member)| parsed.remove(object, at, member)))
}

/// Lists the names in a list, in order; empty if it is missing.
pub(super) fn names(text: &str, keys: &[&str]) -> Result<Vec<String>, String> {
    let parsed = JsonText::parse(text)?;
    let object = parsed.object(keys)?;
    let members = object.map(|object| object.properties.iter()).into_iter().flatten();
    Ok(members.map(|member| member.name.as_str().to_owned()).collect())
}

/// Formats a member for the list, as the file indents and breaks its lines.
pub(super) fn member(text: &str, keys: &[&str], name: &str, value: &EntryMembers) -> Result<EntryText, String> {
    let parsed = JsonText::parse(text)?;
    let object = parsed.object(keys)?.unwrap_or(&parsed.root);
    let name = serde_json::Value::from(name);
    if parsed.is_compact(object) {
        let value = serde_json::to_string(value).map_err(|error| error.to_string())?;
        return Ok(EntryText { text: format!("{name}: {value}"), tail: String::new() });
    }
    let mut out = Vec::new();
    let mut pretty = Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(parsed.unit().as_bytes()));
    value.serialize(&mut pretty).map_err(|error| error.to_string())?;
    let own = object.properties.first().map(|first| parsed.indent(first.start()).to_owned());
    let indent = own.unwrap_or_else(|| format!("{}{}", parsed.indent(object.start()), parsed.unit()));
    let lines = String::from_utf8_lossy(&out).replace('\n', &format!("{}{indent}", end_of_line(text)));
    Ok(EntryText { text: format!("{name}: {lines}"), tail: String::new() })
}
