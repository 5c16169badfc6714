//! Pointers into arguments: JSON pointers (RFC 6901) in which `*` stands for every element of an
//! array.

use super::json::LosslessJson;
use crate::policy::rules::truth::Truth;

/// Longest pointer, in bytes.
const MAX_LENGTH: usize = 1024;

/// A parsed pointer.
#[derive(Debug)]
pub(super) struct ArgumentPointer(Box<[PointerStep]>);

/// One step of a pointer.
#[derive(Debug)]
enum PointerStep {
    /// `*`: every element of an array.
    Each,
    /// A key of an object, and an index of an array if it is a number.
    Key { name: Box<str>, index: Option<usize> },
}

/// The rule by which the answers for several elements become one answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quantifier {
    /// One matching element is enough.
    Any,
    /// Each element must match. No elements at all is a match.
    All,
    /// Like `All`, but unknown instead of no if some elements match or are in doubt.
    AllOrUnknown,
}

/// The value that a step leads to.
enum PointerChild<'j, 'a> {
    Here(&'j LosslessJson<'a>),
    Absent,
    /// Servers may find different values here.
    Doubt,
}

impl ArgumentPointer {
    /// Parses a pointer; the error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("must not be longer than {MAX_LENGTH} bytes"));
        }
        let Some(rest) = text.strip_prefix('/') else {
            let better = text.replace('.', "/");
            return Err(format!("is no JSON pointer: it begins with `/`, such as \"/{better}\""));
        };
        rest.split('/').map(parse_step).collect::<Result<_, _>>().map(Self)
    }

    /// Applies `test` to each value that the pointer leads to, and joins the answers. `test` gets
    /// `None` for an absent value.
    pub(super) fn evaluate(
        &self,
        root: &LosslessJson<'_>,
        quantifier: Quantifier,
        test: &dyn Fn(Option<&LosslessJson<'_>>) -> Truth,
    ) -> Truth {
        let mut seen = JoinedTruth { any: Truth::No, all: Truth::Yes };
        add_answers(&self.0, root, &mut seen, test);
        match quantifier {
            Quantifier::Any => seen.any,
            Quantifier::All => seen.all,
            // No element matched or was in doubt: the answer is no, or yes if there is no element.
            Quantifier::AllOrUnknown if seen.any == Truth::No => seen.all,
            Quantifier::AllOrUnknown => seen.all.max(Truth::Unknown),
        }
    }
}

/// Parses one step of a pointer, without its `/`.
fn parse_step(token: &str) -> Result<PointerStep, String> {
    if token == "*" {
        return Ok(PointerStep::Each);
    }
    let name = token.replace("~1", "/").replace("~0", "~");
    if token.split('~').skip(1).any(|after| !after.starts_with(['0', '1'])) {
        return Err("is no JSON pointer: write `~0` for `~` and `~1` for `/`".to_owned());
    }
    let is_index = name == "0" || (!name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit()));
    let index = if is_index { name.parse().ok() } else { None };
    Ok(PointerStep::Key { name: Box::from(name), index })
}

/// The joined answers for the elements so far, by "or" and by "and".
struct JoinedTruth {
    any: Truth,
    all: Truth,
}

impl JoinedTruth {
    fn add(&mut self, truth: Truth) {
        self.any = self.any.max(truth);
        self.all = self.all.min(truth);
    }
}

/// Follows the remaining steps from `value` and adds an answer for each value at their end.
fn add_answers(
    steps: &[PointerStep],
    value: &LosslessJson<'_>,
    seen: &mut JoinedTruth,
    test: &dyn Fn(Option<&LosslessJson<'_>>) -> Truth,
) {
    let Some((first, rest)) = steps.split_first() else {
        return seen.add(test(Some(value)));
    };
    match (first, value) {
        (PointerStep::Each, LosslessJson::List(items)) => {
            items.iter().for_each(|item| add_answers(rest, item, seen, test))
        }
        (PointerStep::Each, _) => seen.add(Truth::Unknown),
        (PointerStep::Key { name, index }, value) => match find_child(value, name, *index) {
            PointerChild::Here(child) => add_answers(rest, child, seen, test),
            PointerChild::Absent => seen.add(test(None)),
            PointerChild::Doubt => seen.add(Truth::Unknown),
        },
    }
}

/// Finds the value that a key or index of `value` leads to.
fn find_child<'j, 'a>(value: &'j LosslessJson<'a>, name: &str, index: Option<usize>) -> PointerChild<'j, 'a> {
    match value {
        LosslessJson::Object(members) => {
            let mut found = PointerChild::Absent;
            for (key, value) in members {
                if **key == *name && matches!(found, PointerChild::Absent) {
                    found = PointerChild::Here(value);
                } else if is_alike(key, name) {
                    return PointerChild::Doubt;
                }
            }
            found
        }
        LosslessJson::List(items) => match index {
            Some(index) => items.get(index).map_or(PointerChild::Absent, PointerChild::Here),
            None => PointerChild::Doubt,
        },
        LosslessJson::Null | LosslessJson::Boolean(_) | LosslessJson::Number(_) | LosslessJson::Text(_) => {
            PointerChild::Doubt
        }
    }
}

/// Whether a reader that ignores case would take one key for the other.
pub(super) fn is_alike(one: &str, other: &str) -> bool {
    if one.is_ascii() && other.is_ascii() {
        return one.eq_ignore_ascii_case(other);
    }
    // Via upper case, which also maps the long s and the Kelvin sign to their letters.
    let fold = |text: &str| text.to_uppercase().to_lowercase();
    fold(one) == fold(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_lead_to_their_places() {
        let text = r#"{"a":{"b":1},"l":[1,2,3],"n":null,"x/y":1,"t~":1,"":1,"Case":1,"dup":1,"DUP":2,"0":1,"deep":[{"k":1},{"k":2},{}]}"#;
        let root = LosslessJson::read(text.as_bytes()).unwrap();
        let rows = [
            ("/a/b", "1"),
            ("/a/c", "absent"),
            ("/a/b/c", "doubt"),
            ("/n", "null"),
            ("/n/x", "doubt"),
            ("/l/0", "1"),
            ("/l/3", "absent"),
            ("/l/00", "doubt"),
            ("/l/x", "doubt"),
            ("/l/*", "1 2 3"),
            ("/a/*", "doubt"),
            ("/zzz/*", "absent"),
            ("/x~1y", "1"),
            ("/t~0", "1"),
            ("/", "1"),
            ("/case", "doubt"),
            ("/Case", "1"),
            ("/dup", "doubt"),
            ("/0", "1"),
            ("/deep/*/k", "1 2 absent"),
        ];
        for (pointer, want) in rows {
            let found = std::cell::RefCell::new(Vec::new());
            let pointer = ArgumentPointer::parse(pointer).unwrap();
            let truth = pointer.evaluate(&root, Quantifier::Any, &|value| {
                found.borrow_mut().push(match value {
                    Some(LosslessJson::Number(text)) => (*text).to_owned(),
                    Some(_) => "null".to_owned(),
                    None => "absent".to_owned(),
                });
                Truth::No
            });
            let found = if truth == Truth::Unknown { "doubt".to_owned() } else { found.into_inner().join(" ") };
            assert_eq!(found, want, "{pointer:?}");
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for text in ["", "path", "a.b", "/a~", "/a~2"] {
            assert!(ArgumentPointer::parse(text).is_err(), "{text}");
        }
        assert!(ArgumentPointer::parse(&"/a".repeat(600)).is_err());
        assert_eq!(
            ArgumentPointer::parse("a.b").unwrap_err(),
            "is no JSON pointer: it begins with `/`, such as \"/a/b\""
        );
    }

    #[test]
    fn keys_that_some_readers_take_for_one_are_alike() {
        for (one, other, want) in [
            ("path", "PATH", true),
            ("path", "paths", false),
            ("\u{212a}ey", "key", true),
            ("\u{17f}rc", "src", true),
            ("é", "É", true),
        ] {
            assert_eq!(is_alike(one, other), want, "{one} {other}");
        }
    }

    #[test]
    fn quantifiers_join_the_elements() {
        use Truth::{No, Unknown, Yes};
        let root =
            LosslessJson::read(br#"{"l":["y","n"],"e":[],"u":["y","u"],"n":["n"],"y":["y"],"d":["n","u"]}"#).unwrap();
        for (pointer, any, all, ask) in [
            ("/l/*", Yes, No, Unknown),
            ("/e/*", No, Yes, Yes),
            ("/u/*", Yes, Unknown, Unknown),
            ("/n/*", No, No, No),
            ("/y/*", Yes, Yes, Yes),
            ("/d/*", Unknown, No, Unknown),
        ] {
            let pointer = ArgumentPointer::parse(pointer).unwrap();
            let test = |value: Option<&LosslessJson<'_>>| match value {
                Some(LosslessJson::Text(text)) if text == "y" => Yes,
                Some(LosslessJson::Text(text)) if text == "u" => Unknown,
                _ => No,
            };
            let found = [Quantifier::Any, Quantifier::All, Quantifier::AllOrUnknown]
                .map(|quantifier| pointer.evaluate(&root, quantifier, &test));
            assert_eq!(found, [any, all, ask], "{pointer:?}");
        }
    }
}
