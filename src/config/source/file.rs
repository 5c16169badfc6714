//! A typed cursor over the TOML tree that collects problems instead of stopping at the first.
//!
//! A [`ConfigTable`] remembers which keys were asked for; [`ConfigTable::finish`] reports the
//! others as unknown. A [`ConfigNode`] is a value with its key path and line.
//!
//! Long, and one file on purpose: context, nodes and tables work on each other's private parts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::policy::ScalarSpec;

use super::fixed::{FixedBound, RemovedKey, find_removed};
use super::home;
use super::merge::{join, merge, shift_table};
use super::observed::SchemaRecorder;
use super::problem::{ConfigFinding, ConfigProblem, ConfigWarning};
use super::units;
use super::words::did_you_mean;

/// A closed set of values, each of which has a word.
pub(crate) trait WordChoice: Copy + Into<&'static str> + strum::VariantArray {}

impl<T: Copy + Into<&'static str> + strum::VariantArray> WordChoice for T {}

/// The text of one file.
#[derive(Clone, Copy)]
pub(crate) struct SourceText<'a> {
    /// The file name, or a description of the text.
    pub(crate) origin: &'a str,
    pub(crate) text: &'a str,
}

/// The texts, the sources of secrets, and the findings so far.
pub(crate) struct ParseContext<'a> {
    /// Each text with its position in bytes in all texts joined.
    texts: Vec<(usize, SourceText<'a>)>,
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) read: &'a dyn Fn(&Path) -> io::Result<String>,
    found: RefCell<SourceFindings>,
    pub(crate) observed: SchemaRecorder,
}

#[derive(Default)]
struct SourceFindings {
    problems: Vec<(SourcePosition, ConfigProblem)>,
    warnings: Vec<(SourcePosition, ConfigWarning)>,
    places: HashMap<String, SourcePosition>,
}

/// A file, by its index, and a line in it; `None` for a finding about the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SourcePosition {
    file: usize,
    line: Option<usize>,
}

impl<'a> ParseContext<'a> {
    pub(crate) fn new(
        texts: &[SourceText<'a>],
        env: &'a dyn Fn(&str) -> Option<String>,
        read: &'a dyn Fn(&Path) -> io::Result<String>,
    ) -> Self {
        let mut base = 0;
        let texts = texts.iter().map(|text| {
            let begin = base;
            let text = SourceText { text: text.text.strip_prefix('\u{feff}').unwrap_or(text.text), ..*text };
            base += text.text.len() + 1;
            (begin, text)
        });
        Self { texts: texts.collect(), env, read, found: RefCell::default(), observed: SchemaRecorder::default() }
    }

    /// Reports a problem at a key path, with the line of the nearest visited parent.
    pub(crate) fn problem_at(&self, path: &str, message: impl Into<String>) {
        let finding = self.finding(path, message.into());
        self.found.borrow_mut().problems.push(finding);
    }

    pub(crate) fn warning_at(&self, path: &str, message: impl Into<String>) {
        let finding = self.finding(path, message.into());
        self.found.borrow_mut().warnings.push(finding);
    }

    /// Reports a key that is set in two files, at these two positions.
    fn stands_twice(&self, path: &str, first: usize, again: usize) {
        let first = self.place(first);
        let line = first.line.unwrap_or_default();
        let message = format!("stands in {}:{line} too; keep one of the two", self.origin(first));
        let finding = self.placed(self.place(again), path, message);
        self.found.borrow_mut().problems.push(finding);
    }

    fn finding(&self, path: &str, message: String) -> (SourcePosition, ConfigFinding) {
        let mut prefix = path;
        let place = loop {
            if let Some(place) = self.found.borrow().places.get(prefix) {
                break *place;
            }
            match prefix.rfind(['.', '[']).and_then(|end| prefix.get(..end)) {
                Some(parent) => prefix = parent,
                None => break SourcePosition::default(),
            }
        };
        self.placed(place, path, message)
    }

    fn placed(&self, place: SourcePosition, path: &str, message: String) -> (SourcePosition, ConfigFinding) {
        let origin = self.origin(place).to_owned();
        (place, ConfigFinding { origin, line: place.line, path: path.to_owned(), message })
    }

    fn origin(&self, place: SourcePosition) -> &'a str {
        self.texts.get(place.file).map_or("", |(_, text)| text.origin)
    }

    fn place(&self, at: usize) -> SourcePosition {
        let file = self.texts.partition_point(|(base, _)| *base <= at).saturating_sub(1);
        let Some((base, text)) = self.texts.get(file) else { return SourcePosition::default() };
        let before = text.text.as_bytes().get(..at.saturating_sub(*base)).unwrap_or_default();
        SourcePosition { file, line: Some(before.iter().filter(|byte| **byte == b'\n').count() + 1) }
    }

    pub(crate) fn into_findings(self) -> (Vec<ConfigProblem>, Vec<ConfigWarning>) {
        let SourceFindings { problems, warnings, .. } = self.found.into_inner();
        let in_order = |mut findings: Vec<(SourcePosition, ConfigFinding)>| {
            findings.sort_by_key(|(place, _)| *place);
            findings.into_iter().map(|(_, finding)| finding).collect()
        };
        (in_order(problems), in_order(warnings))
    }
}

/// Parses the texts and passes their merged root table to `build`. Each TOML error is a problem;
/// `None` if the tree cannot be trusted.
pub(crate) fn with_root<T>(source: &ParseContext<'_>, build: impl FnOnce(ConfigTable<'_>) -> T) -> Option<T> {
    let mut all = DeTable::new();
    let mut readable = true;
    for (file, (base, text)) in source.texts.iter().enumerate() {
        let (root, errors) = DeTable::parse_recoverable(text.text);
        for error in errors {
            // A repeated key leaves the rest of the tree intact; after any other error the tree is
            // a guess.
            readable &= error.message().starts_with("duplicate key");
            let place = match error.span() {
                Some(span) => source.place(base + span.start),
                None => SourcePosition { file, line: None },
            };
            // The parser continues after an error; only the first error of a line is worth mending.
            if source.found.borrow().problems.iter().any(|(other, _)| *other == place) {
                continue;
            }
            let finding = source.placed(place, "", format!("not TOML: {}", error.message().trim_end()));
            source.found.borrow_mut().problems.push(finding);
        }
        let table = shift_table(root.into_inner(), *base);
        merge(&mut all, table, "", &|path, first, again| source.stands_twice(path, first, again));
    }
    readable.then(|| {
        build(ConfigTable { source, path: String::new(), entries: &all, known: Vec::new(), refused: Vec::new() })
    })
}

/// A value with its key path and line. Reading it as another type than its own reports a problem.
#[derive(Clone)]
pub(crate) struct ConfigNode<'s> {
    pub(crate) source: &'s ParseContext<'s>,
    pub(crate) path: String,
    value: &'s DeValue<'s>,
}

impl<'s> ConfigNode<'s> {
    fn new(source: &'s ParseContext<'s>, path: String, span: &Range<usize>, value: &'s DeValue<'s>) -> Self {
        let place = source.place(span.start);
        source.found.borrow_mut().places.insert(path.clone(), place);
        Self { source, path, value }
    }

    pub(crate) fn problem(&self, message: impl Into<String>) {
        self.source.problem_at(&self.path, message);
    }

    pub(crate) fn warning(&self, message: impl Into<String>) {
        self.source.warning_at(&self.path, message);
    }

    fn wrong<T>(&self, wanted: &str) -> Option<T> {
        let article = if matches!(self.value, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
        self.problem(format!("must be {wanted}, not {article} {}", self.value.type_str()));
        None
    }

    /// Records the JSON Schema of the value, for the test that generates the schema file.
    fn is(&self, shape: impl FnOnce() -> Value) {
        self.source.observed.shape(&self.path, shape);
    }

    /// Reports the value of a key whose bound is fixed now: a problem if the value is stricter than
    /// the bound, a warning if it is not.
    fn judge_removed(&self, removed: &RemovedKey) {
        let any = 0..=usize::MAX;
        let value = match removed.bound {
            FixedBound::Count(_) => self.count(&any),
            FixedBound::Bytes(_) => self.size(&any),
        };
        match value.map(|value| removed.judge(value)) {
            Some(Ok(warning)) => self.warning(warning),
            Some(Err(problem)) => self.problem(problem),
            None => {}
        }
    }

    pub(crate) fn as_str(&self) -> Option<&'s str> {
        self.value.as_str().inspect(|_| self.is(|| json!({ "type": "string" })))
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        self.value.as_bool().inspect(|_| self.is(|| json!({ "type": "boolean" })))
    }

    pub(crate) fn is_array(&self) -> bool {
        self.value.as_array().is_some()
    }

    pub(crate) fn string(&self) -> Option<String> {
        self.is(|| json!({ "type": "string" }));
        self.value.as_str().map(str::to_owned).or_else(|| self.wrong("a string"))
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        self.is(|| json!({ "type": "boolean" }));
        self.value.as_bool().or_else(|| self.wrong("true or false"))
    }

    /// Reads an absolute path, or one that begins with `~`.
    pub(crate) fn home_path(&self) -> Option<PathBuf> {
        let home = (self.source.env)("HOME");
        home::absolute(&self.string()?, home.as_deref()).map_err(|why| self.problem(why)).ok()
    }

    /// Reads a number that every reader of JSON understands equally.
    pub(crate) fn number(&self) -> Option<f64> {
        const SAFE: RangeInclusive<i64> = -(1 << 53)..=1 << 53;
        self.is(|| json!({ "type": "number" }));
        match self.value {
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix()).ok();
                let number = number.filter(|number| SAFE.contains(number));
                if number.is_none() {
                    self.problem("must not be beyond 2^53, where numbers are not the same to every reader of JSON");
                }
                number?.to_string().parse().ok()
            }
            DeValue::Float(number) => {
                let number = number.as_str().replace('_', "").parse().ok().filter(|number: &f64| number.is_finite());
                if number.is_none() {
                    self.problem("must be a finite number");
                }
                number
            }
            DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                self.wrong("a number")
            }
        }
    }

    pub(crate) fn scalar(&self) -> Option<ScalarSpec> {
        self.is(|| json!({ "type": ["string", "number", "boolean"] }));
        match self.value {
            DeValue::String(text) => Some(ScalarSpec::Text(text.to_string())),
            DeValue::Boolean(value) => Some(ScalarSpec::Boolean(*value)),
            DeValue::Integer(_) | DeValue::Float(_) => self.number().map(ScalarSpec::Number),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                self.wrong("a string, a number, true or false")
            }
        }
    }

    pub(crate) fn count(&self, range: &RangeInclusive<usize>) -> Option<usize> {
        self.is(|| json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() }));
        let Some(number) = self.value.as_integer() else {
            return self.wrong("a whole number");
        };
        let number = i64::from_str_radix(number.as_str(), number.radix()).ok();
        let number = number.and_then(|number| usize::try_from(number).ok()).filter(|number| range.contains(number));
        if number.is_none() {
            self.problem(format!("must be from {} to {}", range.start(), range.end()));
        }
        number
    }

    /// Reads a number of bytes, written as an integer or as in `"4MiB"`.
    pub(crate) fn size(&self, range: &RangeInclusive<usize>) -> Option<usize> {
        self.is(|| json!({ "type": ["string", "integer"], "pattern": units::SIZE, "minimum": range.start() }));
        let bytes = match self.value {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(text) => units::parse_size(text),
            DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                return self.wrong("a size such as \"4MiB\" or a number of bytes");
            }
        };
        let bytes = bytes.filter(|bytes| range.contains(bytes));
        if bytes.is_none() {
            let (least, most) = (units::size(*range.start()), units::size(*range.end()));
            self.problem(format!(
                "must be a size from {least} to {most}, written \"64KiB\", \"4MiB\" or as a number of bytes"
            ));
        }
        bytes
    }

    pub(crate) fn duration(&self, range: &RangeInclusive<Duration>) -> Option<Duration> {
        self.is(|| json!({ "type": "string", "pattern": units::DURATION }));
        let Some(text) = self.value.as_str() else {
            return self.wrong("a duration such as \"30s\", \"5m\" or \"500ms\"");
        };
        let time = units::parse_duration(text).filter(|time| range.contains(time));
        if time.is_none() {
            let (least, most) = (units::duration(*range.start()), units::duration(*range.end()));
            self.problem(format!(
                "must be a duration from {least} to {most}, written \"500ms\", \"30s\", \"5m\" or \"1h\""
            ));
        }
        time
    }

    pub(crate) fn choice<T: WordChoice>(&self) -> Option<T> {
        let words: Vec<(&str, T)> = T::VARIANTS.iter().map(|value| ((*value).into(), *value)).collect();
        self.choice_of(&words)
    }

    pub(crate) fn choice_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.is(|| json!({ "enum": names }));
        let list = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let Some(text) = self.value.as_str() else {
            return self.wrong(&format!("one of {list}"));
        };
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            self.problem(format!("must be one of {list}{}", did_you_mean(text, names.into_iter())));
        }
        found.map(|(_, value)| *value)
    }

    pub(crate) fn items(&self, wanted: &str) -> Option<Vec<Self>> {
        self.is(|| json!({ "type": "array" }));
        let Some(array) = self.value.as_array() else {
            return self.wrong(wanted);
        };
        let item = |(index, value): (usize, &'s Spanned<DeValue<'s>>)| {
            Self::new(self.source, format!("{}[{index}]", self.path), &value.span(), value.get_ref())
        };
        Some(array.iter().enumerate().map(item).collect())
    }

    pub(crate) fn strings(&self) -> Option<Vec<String>> {
        let items = self.items("an array of strings")?;
        Some(items.iter().filter_map(Self::string).collect())
    }

    pub(crate) fn table(&self) -> Option<ConfigTable<'s>> {
        let Some(entries) = self.value.as_table() else {
            return self.wrong("a table");
        };
        self.is(|| json!({ "type": "object" }));
        Some(ConfigTable {
            source: self.source,
            path: self.path.clone(),
            entries,
            known: Vec::new(),
            refused: Vec::new(),
        })
    }
}

/// A table and the keys that were asked for.
#[must_use = "`finish` reports unknown keys"]
pub(crate) struct ConfigTable<'s> {
    pub(crate) source: &'s ParseContext<'s>,
    pub(crate) path: String,
    entries: &'s DeTable<'s>,
    known: Vec<&'static str>,
    refused: Vec<&'static str>,
}

impl<'s> ConfigTable<'s> {
    /// Returns the value of a key, and notes the key as known, so that [`Self::finish`] does not
    /// report it.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<ConfigNode<'s>> {
        self.known.push(key);
        let (name, value) = self.entries.get_key_value(key)?;
        Some(ConfigNode::new(self.source, join(&self.path, key), &name.span(), value.get_ref()))
    }

    /// Returns the value of a key under its former name, with a warning that names the present one.
    /// A file that sets both is refused.
    pub(crate) fn take_renamed(&mut self, former: &'static str, present: &str) -> Option<ConfigNode<'s>> {
        let (name, value) = self.entries.get_key_value(former)?;
        self.known.push(former);
        let node = ConfigNode::new(self.source, join(&self.path, former), &name.span(), value.get_ref());
        if self.entries.contains_key(present) {
            node.problem(format!("is the former name of `{present}`, which stands here too; remove this one"));
        } else {
            node.warning(format!("is called `{present}` now; the former name still works"));
        }
        Some(node)
    }

    /// Returns all entries in the order of the file, for tables whose keys are names.
    pub(crate) fn named(self) -> Vec<(String, ConfigNode<'s>)> {
        self.source.observed.names(&self.path);
        self.entries()
    }

    fn entries(self) -> Vec<(String, ConfigNode<'s>)> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let node = |(name, value): (&'s Spanned<_>, &'s Spanned<DeValue<'s>>)| {
            let key: &str = AsRef::<std::borrow::Cow<'s, str>>::as_ref(name);
            (key.to_owned(), ConfigNode::new(self.source, join(&self.path, key), &name.span(), value.get_ref()))
        };
        entries.into_iter().map(node).collect()
    }

    pub(crate) fn problem(&self, message: impl Into<String>) {
        self.source.problem_at(&self.path, message);
    }

    pub(crate) fn warning(&self, message: impl Into<String>) {
        self.source.warning_at(&self.path, message);
    }

    pub(crate) fn string(&mut self, key: &'static str) -> Option<String> {
        self.take(key)?.string()
    }

    pub(crate) fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        self.take(key)?.strings()
    }

    pub(crate) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        self.take(key)?.boolean()
    }

    pub(crate) fn count(&mut self, key: &'static str, range: &RangeInclusive<usize>) -> Option<usize> {
        self.take(key)?.count(range)
    }

    pub(crate) fn duration(&mut self, key: &'static str, range: &RangeInclusive<Duration>) -> Option<Duration> {
        self.take(key)?.duration(range)
    }

    pub(crate) fn choice<T: WordChoice>(&mut self, key: &'static str) -> Option<T> {
        self.take(key)?.choice()
    }

    pub(crate) fn table(&mut self, key: &'static str) -> Option<Self> {
        self.take(key)?.table()
    }

    pub(crate) fn tables(&mut self, key: &'static str) -> Vec<Self> {
        let items = self.take(key).and_then(|node| node.items("an array of tables"));
        items.into_iter().flatten().filter_map(|node| node.table()).collect()
    }

    pub(crate) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let node = self.take(key)?;
        let path = PathBuf::from(node.string()?);
        if !path.is_absolute() {
            node.problem("must be an absolute path; `~` and variables mean nothing here");
            return None;
        }
        Some(path)
    }

    /// Reports a problem if a key that people expect in this table is set. `message` says what to
    /// write instead.
    pub(crate) fn refuse(&mut self, key: &'static str, message: &str) {
        if let Some(node) = self.take(key) {
            node.problem(message);
        }
        // A refused key is reported once, here, and `did_you_mean` never suggests it.
        self.known.retain(|known| *known != key);
        self.refused.push(key);
    }

    pub(crate) fn finish(self) {
        let (known, refused, path) = (self.known.clone(), self.refused.clone(), self.path.clone());
        self.source.observed.keys(&path, &known);
        for (key, node) in self.entries() {
            if !known.contains(&key.as_str()) && !refused.contains(&key.as_str()) {
                match find_removed(&path, &key) {
                    Some(removed) => node.judge_removed(removed),
                    None => node.problem(format!("unknown key{}", did_you_mean(&key, known.iter().copied()))),
                }
            }
        }
    }
}

/// Reads a list of patterns. An empty list is a problem: it reads as "nothing" and would mean
/// "everything".
pub(crate) fn patterns(table: &mut ConfigTable<'_>, key: &'static str) -> Vec<String> {
    let Some(node) = table.take(key) else { return Vec::new() };
    let patterns = node.strings();
    if patterns.as_ref().is_some_and(Vec::is_empty) {
        node.problem("must not be empty; without this key everything is meant");
    }
    patterns.unwrap_or_default()
}
