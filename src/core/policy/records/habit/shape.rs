//! Shapes: approved arguments as conditions of a suggested rule.
//!
//! Approvals are grouped by the names of their arguments, since a rule cannot say "this value or
//! none". For each such shape a rule requires the approved values, or paths below one directory;
//! arguments that only other shapes have must be absent.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use serde_json::{Map, Value};

use super::answers::ApprovalCounts;
use crate::policy::evidence::ApprovalEvidence;
use crate::policy::rules::arguments::is_plain_path;
use crate::policy::rules::arguments::outline::ArgumentOutline;
use crate::policy::rules::arguments::{ArgumentSpec, MatcherSpec, ScalarSpec};

/// Most shapes of one habit. Further ones are not suggested.
const MAX_SHAPES: usize = 8;
/// Most arguments of one shape.
const MAX_KEYS: usize = 16;
/// Most conditions of one rule.
const MAX_CONDITIONS: usize = 48;
/// Most values that a rule lists.
const MAX_VALUES: usize = 8;
/// Longest value that a rule lists, in bytes.
const MAX_VALUE: usize = 200;
/// Most values that are told apart, to say how many were approved.
const MAX_COUNTED: usize = 1000;
/// Number of different paths from which on a rule names their directory instead of them.
const MANY_PATHS: usize = 3;
/// Fewest names in the path of a suggested directory: `/srv` says little about its contents.
const DEPTH: usize = 2;
/// Largest integer that every JSON reader reads alike.
const MAX_EXACT: i64 = 1 << 53;

/// Approved calls of one item by one caller, grouped by the names of their arguments.
#[derive(Debug, Default)]
pub(super) struct ArgumentShapes {
    shapes: Vec<ArgumentShape>,
    /// Names of arguments of all approved calls.
    names: BTreeSet<String>,
    /// True if some names are not known, so that no rule can exclude them.
    is_unknown: bool,
    /// Number of approvals that are in no shape.
    left_out: u64,
}

/// Approved calls whose arguments have the same names.
#[derive(Debug)]
struct ArgumentShape {
    arguments: BTreeMap<String, ApprovedValues>,
    yes: ApprovalCounts,
    /// Pointers to texts that name a place, of all calls.
    places: BTreeSet<String>,
    /// True if a call had a command, a query or code, or arguments that two readers may read
    /// differently.
    is_odd: bool,
}

/// The approved values of one argument.
#[derive(Debug)]
/// The distinct values, while they can be listed.
struct ApprovedValues {
    few: Vec<ScalarSpec>,
    /// True if there are too many values to list, or some that no condition can name.
    is_open: bool,
    /// The directory that contains all values, while all are plain paths.
    directory: Option<String>,
    /// Hashes of the distinct values.
    counted: HashSet<u64>,
    hasher: RandomState,
}

/// The conditions of one suggested rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShapeConditions {
    pub(super) conditions: Vec<ArgumentSpec>,
    /// Clauses about calls that the rule covers beside the approved ones.
    pub(super) also: Vec<String>,
    pub(super) yes: ApprovalCounts,
    /// True if a condition judges each place that a call names, at least one of them by a folder,
    /// and all arguments of the item are known.
    pub(super) is_below: bool,
}

impl ArgumentShapes {
    /// Counts an approved call. `text` is a JSON object. Returns the bytes of memory that this
    /// takes.
    pub(super) fn add(&mut self, text: Option<&str>, evidence: ApprovalEvidence, has_room: bool) -> usize {
        let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(text.unwrap_or("{}")) else {
            self.left_out += 1;
            return 0;
        };
        let same = |shape: &&mut ArgumentShape| {
            shape.arguments.len() == arguments.len() && shape.arguments.keys().all(|name| arguments.contains_key(name))
        };
        if let Some(shape) = self.shapes.iter_mut().find(same) {
            shape.yes.add(evidence);
            shape.look_at(text);
            return shape.arguments.iter_mut().map(|(name, values)| values.add(arguments.get(name), has_room)).sum();
        }
        let is_odd = |name: &String| name == "*" || name.len() > MAX_VALUE;
        if self.shapes.len() >= MAX_SHAPES || arguments.len() > MAX_KEYS || !has_room || arguments.keys().any(is_odd) {
            self.left_out += 1;
            // A rule of another shape must not cover arguments that only this one has.
            self.is_unknown |= self.names.len() + arguments.len() > MAX_CONDITIONS || arguments.keys().any(is_odd);
            if !self.is_unknown {
                self.names.extend(arguments.keys().cloned());
            }
            return 0;
        }
        self.names.extend(arguments.keys().cloned());
        let mut bytes = 0;
        let values = arguments.iter().map(|(name, value)| {
            let mut values = ApprovedValues::new();
            bytes += name.len() + 256 + values.add(Some(value), true);
            (name.clone(), values)
        });
        let (yes, places) = (ApprovalCounts::default(), BTreeSet::new());
        let mut shape = ArgumentShape { arguments: values.collect(), yes, places, is_odd: false };
        shape.yes.add(evidence);
        shape.look_at(text);
        self.shapes.push(shape);
        bytes
    }

    /// Whether no call was counted with its arguments.
    pub(super) fn is_empty(&self) -> bool {
        self.shapes.is_empty() && self.left_out == 0
    }

    /// Returns the conditions for each shape with at least `enough` approvals. `schema` has the
    /// arguments that the item's definition names, if all are known.
    pub(super) fn taken(&self, enough: u64, schema: Option<&[String]>) -> Vec<ShapeConditions> {
        let shapes = self.shapes.iter().filter(|shape| shape.yes.all() >= enough && !self.is_unknown);
        shapes.filter_map(|shape| self.one(shape, schema)).collect()
    }

    /// Returns the conditions for a shape; `None` if they would be too many.
    fn one(&self, shape: &ArgumentShape, schema: Option<&[String]>) -> Option<ShapeConditions> {
        let mut taken = ShapeConditions { yes: shape.yes, ..ShapeConditions::default() };
        for (name, values) in &shape.arguments {
            let (matcher, also) = values.condition(name);
            taken.also.extend(also);
            taken.conditions.extend(matcher.map(|matcher| ArgumentSpec { pointer: pointer(name), matcher }));
        }
        let known: BTreeSet<&String> = self.names.iter().chain(schema.into_iter().flatten()).collect();
        for name in known.into_iter().filter(|name| !shape.arguments.contains_key(*name) && *name != "*") {
            taken.conditions.push(ArgumentSpec { pointer: pointer(name), matcher: MatcherSpec::Absent });
        }
        if schema.is_none() {
            taken.also.push("any further argument: what this tool takes is not known here".to_owned());
        }
        taken.is_below = schema.is_some() && shape.is_below(&taken.conditions);
        (taken.conditions.len() <= MAX_CONDITIONS).then_some(taken)
    }
}

impl ArgumentShape {
    /// Adds the places that a call's arguments name, or marks the shape as odd.
    fn look_at(&mut self, text: Option<&str>) {
        match text.and_then(ArgumentOutline::of) {
            Some(outline) if outline.command.is_none() => self.places.extend(outline.places),
            Some(_) | None => self.is_odd = true,
        }
    }

    /// Whether the conditions judge each place that a call names, at least one of them by a folder.
    fn is_below(&self, conditions: &[ArgumentSpec]) -> bool {
        let is_judged = |place: &String| conditions.iter().any(|spec| spec.pointer == *place);
        let is_folder = |spec: &ArgumentSpec| matches!(spec.matcher, MatcherSpec::PathUnder(_));
        !self.is_odd && self.places.iter().all(is_judged) && conditions.iter().any(is_folder)
    }
}

/// Returns the pointer to an argument.
fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

impl ApprovedValues {
    fn new() -> Self {
        Self { few: Vec::new(), is_open: false, directory: None, counted: HashSet::new(), hasher: RandomState::new() }
    }

    /// Counts a value; returns the bytes of memory that this takes.
    fn add(&mut self, value: Option<&Value>, has_room: bool) -> usize {
        let Some(value) = value else { return 0 };
        let is_first = self.counted.is_empty();
        let path = value.as_str().filter(|text| text.len() > 1 && is_plain_path(text) && !text.ends_with('/'));
        self.directory = match (path.and_then(parent), self.directory.take()) {
            (Some(parent), None) if is_first => Some(parent.to_owned()),
            (Some(parent), Some(directory)) => common(&directory, parent),
            _ => None,
        };
        let fresh = self.counted.len() < MAX_COUNTED && self.counted.insert(self.hasher.hash_one(value.to_string()));
        let scalar = match value {
            Value::String(text) if text.len() <= MAX_VALUE && !text.contains('\0') => {
                Some(ScalarSpec::Text(text.clone()))
            }
            Value::Bool(value) => Some(ScalarSpec::Boolean(*value)),
            Value::Number(number) => {
                let exact = number.as_i64().filter(|number| (-MAX_EXACT..=MAX_EXACT).contains(number));
                // An exact integer and its double have the same digits.
                exact.and_then(|number| number.to_string().parse().ok()).map(ScalarSpec::Number)
            }
            Value::Null | Value::Array(_) | Value::Object(_) | Value::String(_) => None,
        };
        match scalar {
            _ if self.is_open => {}
            Some(scalar) if self.few.contains(&scalar) => {}
            Some(scalar) if self.few.len() < MAX_VALUES && has_room => self.few.push(scalar),
            Some(_) | None => (self.is_open, self.few) = (true, Vec::new()),
        }
        if fresh { value.as_str().map_or(64, |text| text.len().min(MAX_VALUE) + 64) } else { 0 }
    }

    /// Returns the condition for the argument, and a clause about what it covers beside the
    /// approved values.
    fn condition(&self, name: &str) -> (Option<MatcherSpec>, Option<String>) {
        let count = self.counted.len();
        let approved = if count < MAX_COUNTED {
            format!("{count} different {} approved", if count == 1 { "one was" } else { "ones were" })
        } else {
            format!("{MAX_COUNTED} and more different ones were approved")
        };
        if let Some(directory) = self.directory.as_ref().filter(|_| count >= MANY_PATHS)
            && directory.split('/').skip(1).count() >= DEPTH
        {
            let also = format!("any `{name}` below {directory}: {approved}");
            return (Some(MatcherSpec::PathUnder(directory.clone())), Some(also));
        }
        if self.is_open {
            return (None, Some(format!("any `{name}`: {approved}")));
        }
        let mut few = self.few.clone();
        few.sort_by_key(|value| format!("{value:?}"));
        match <[ScalarSpec; 1]>::try_from(few) {
            Ok([one]) => (Some(MatcherSpec::Eq(one)), None),
            Err(several) => (Some(MatcherSpec::In(several)), None),
        }
    }
}

/// Returns the directory of a plain path.
fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// Returns the deepest directory that contains both or is one of them.
fn common(one: &str, other: &str) -> Option<String> {
    let same = one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other);
    let parts: Vec<&str> = same.map(|(part, _)| part).collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the conditions and clauses of each rule after these approvals.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other matchers are never suggested")]
    fn taken(approved: &[&str], schema: Option<&[&str]>) -> Vec<(String, Vec<String>)> {
        let mut shapes = ArgumentShapes::default();
        for text in approved {
            let _shape = shapes.add(Some(text), ApprovalEvidence::Page, true);
        }
        let schema: Option<Vec<String>> = schema.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let told = |spec: &ArgumentSpec| match &spec.matcher {
            MatcherSpec::Eq(value) => format!("{}={value:?}", spec.pointer),
            MatcherSpec::In(values) => format!("{} of {}", spec.pointer, values.len()),
            MatcherSpec::PathUnder(path) => format!("{} under {path}", spec.pointer),
            MatcherSpec::Absent => format!("no {}", spec.pointer),
            other => panic!("{other:?}"),
        };
        let taken = shapes.taken(2, schema.as_deref());
        taken
            .iter()
            .map(|one| (one.conditions.iter().map(told).collect::<Vec<_>>().join(", "), one.also.clone()))
            .collect()
    }

    fn only(approved: &[&str]) -> String {
        let all = taken(approved, Some(&[]));
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].0.clone()
    }

    #[test]
    fn a_rule_takes_what_was_approved() {
        let one = r#"{"mode":"fast","n":3,"on":true}"#;
        assert_eq!(only(&[one, one]), r#"/mode=Text("fast"), /n=Number(3.0), /on=Boolean(true)"#);
        assert_eq!(only(&[r#"{"to":"a"}"#, r#"{"to":"b"}"#]), "/to of 2");
        let nine: Vec<String> = (0..9).map(|n| format!(r#"{{"to":"{n}"}}"#)).collect();
        let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
        assert_eq!(only(&nine), "", "nine are any");
        assert_eq!(taken(&nine, Some(&[]))[0].1, ["any `to`: 9 different ones were approved"]);
        for open in ["[1]", "{}", "null", "1.5", "9007199254740993", "\"a\\u0000b\""] {
            let text = format!(r#"{{"x":{open}}}"#);
            assert_eq!(only(&[&text, &text]), "", "{open}");
        }
        assert_eq!(only(&[r#"{"a/b~":1}"#, r#"{"a/b~":1}"#]), "/a~1b~0=Number(1.0)");
        assert_eq!(taken(&[r#"{"*":1}"#, r#"{"*":1}"#], None), [], "no pointer names it");
    }

    #[test]
    fn a_directory_holds_all_that_was_approved_and_is_not_the_whole_disk() {
        let paths = |paths: &[&str]| {
            let texts: Vec<String> = paths.iter().map(|path| serde_json::json!({ "path": path }).to_string()).collect();
            only(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(paths(&["/srv/work/a", "/srv/work/b", "/srv/work/c/d"]), "/path under /srv/work");
        assert_eq!(paths(&["/srv/work/a", "/srv/work/b"]), "/path of 2", "two are two");
        assert_eq!(paths(&["/srv/a", "/srv/b", "/srv/c"]), "/path of 3", "too near the root");
        assert_eq!(paths(&["/srv/work/a", "/srv/work/b", "/etc/shadow"]), "/path of 3");
        assert_eq!(paths(&["/srv/work/a", "/srv/work/b", "/srv/workshop/c"]), "/path of 3");
        for odd in ["/srv/work/../x", "/srv/work//x", "/srv/work/%2e%2e/x", "x", "/srv/work/", "/srv/work/\\x", ""] {
            assert_eq!(paths(&["/srv/work/a", "/srv/work/b", odd]), "/path of 3", "{odd}");
            assert_eq!(paths(&[odd, "/srv/work/b", "/srv/work/a"]), "/path of 3", "{odd} first");
        }
    }

    #[test]
    fn arguments_that_no_approved_call_had_must_be_absent() {
        let (plain, forced) = (r#"{"branch":"x"}"#, r#"{"branch":"x","force":true}"#);
        assert_eq!(taken(&[plain, plain, forced], Some(&[]))[0].0, r#"/branch=Text("x"), no /force"#);
        assert_eq!(taken(&[plain, plain], Some(&["branch", "force"]))[0].0, r#"/branch=Text("x"), no /force"#);
        let (conditions, also) = taken(&[plain, plain], None)[0].clone();
        assert_eq!(conditions, r#"/branch=Text("x")"#);
        assert!(also[0].starts_with("any further argument"), "{also:?}");
        let many: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(taken(&[plain, plain], Some(&many)), [], "too many to be said");
    }
}
