//! Property tests of the argument readers: JSON, matchers and pointers.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a property fails by panicking")]

use serde_json::Value;
use strum::VariantArray as _;

use super::json::{LosslessJson, exact_number};
use super::matcher::{ArgumentMatcher, JsonType, MatcherSpec, ScalarSpec};
use super::pointer::{ArgumentPointer, Quantifier};
use super::{RawJson, Truth};

/// Compares the reading of arguments with that of `serde_json`, and applies every kind of matcher
/// to the values that `pointer` leads to.
pub(in crate::policy) fn look_at(pointer: &str, arguments: &RawJson) {
    let read = LosslessJson::read(arguments.bytes());
    let Ok(reference) = arguments.parse::<Value>() else { return };
    let read = read.unwrap();
    same(&read, &reference);
    let Ok(place) = ArgumentPointer::parse(pointer) else { return };
    for spec in specs(pointer) {
        let Ok(matcher) = ArgumentMatcher::compile(&spec) else { continue };
        let test = |value: Option<&LosslessJson<'_>>| value.map_or(Truth::No, |value| matcher.matches(value));
        let [any, all, ask] = [Quantifier::Any, Quantifier::All, Quantifier::AllOrUnknown]
            .map(|quantifier| place.evaluate(&read, quantifier, &test));
        assert!(any != Truth::No || ask != Truth::Yes || all == Truth::Yes, "{pointer:?}");
    }
    // A pointer without `*` leads to the value that `serde_json` finds, or is in doubt.
    if !pointer.split('/').any(|step| step == "*") {
        let found = reference.pointer(pointer).is_some();
        let present = ArgumentMatcher::compile(&MatcherSpec::Present).unwrap();
        let test = |value: Option<&LosslessJson<'_>>| value.map_or(Truth::No, |value| present.matches(value));
        let truth = place.evaluate(&read, Quantifier::Any, &test);
        assert!(truth == Truth::Unknown || (truth == Truth::Yes) == found, "{pointer:?}: {truth:?}");
    }
}

fn specs(text: &str) -> Vec<MatcherSpec> {
    let own = || text.to_owned();
    let mut specs = vec![
        MatcherSpec::Eq(ScalarSpec::Text(own())),
        MatcherSpec::Ne(ScalarSpec::Number(1.0)),
        MatcherSpec::In(vec![ScalarSpec::Boolean(true), ScalarSpec::Text(own())]),
        MatcherSpec::Prefix(own()),
        MatcherSpec::Suffix(own()),
        MatcherSpec::Glob(own()),
        MatcherSpec::PathUnder(own()),
        MatcherSpec::UrlHostIn(vec!["*.example.org".to_owned(), "127.0.0.1".to_owned()]),
        MatcherSpec::EmailDomainIn(vec!["example.org".to_owned()]),
        MatcherSpec::CidrIn(vec!["10.0.0.0/8".to_owned(), "::1".to_owned()]),
        MatcherSpec::Range { min: Some(-1.5), max: Some(1e9) },
        MatcherSpec::MaxLen(3),
        MatcherSpec::MaxItems(2),
        MatcherSpec::Absent,
        MatcherSpec::Present,
    ];
    specs.extend(JsonType::VARIANTS.iter().copied().map(MatcherSpec::Type));
    specs
}

fn same(read: &LosslessJson<'_>, reference: &Value) {
    match (read, reference) {
        (LosslessJson::Null, Value::Null) => {}
        (LosslessJson::Boolean(a), Value::Bool(b)) => assert_eq!(a, b),
        (LosslessJson::Text(a), Value::String(b)) => assert_eq!(a, b),
        (LosslessJson::Number(text), Value::Number(number)) => {
            if let (Some(exact), Some(integer)) = (exact_number(text), number.as_i64()) {
                assert!((exact - integer as f64).abs() < 1e-9, "{text}");
            }
        }
        (LosslessJson::List(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len());
            a.iter().zip(b).for_each(|(a, b)| same(a, b));
        }
        (LosslessJson::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                // If two keys are equal, `serde_json` keeps the last one.
                if a.iter().filter(|(other, _)| other == key).count() == 1 {
                    same(value, b.get(&**key).unwrap());
                }
            }
        }
        _ => panic!("{read:?} is not {reference}"),
    }
}
