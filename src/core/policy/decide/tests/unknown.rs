//! Decisions about calls whose arguments are not known.

use proptest::prelude::*;

use super::any::{any_case, any_spec};
use super::*;

proptest! {
    #[test]
    fn a_decision_that_needs_no_arguments_is_the_same_with_any(spec in any_spec(), action in any_case()) {
        let mut problems = PolicyProblems::default();
        let policy = Policy::compile(&spec, &mut problems);
        let rules = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let unknown = PolicyAction { arguments: Some(RawJson::trusted("")), ..action.clone() };
        if action.kind.can_ask() && !needs_arguments(&policy, &rules, &unknown) {
            let limiter = Limiter::new(&policy);
            let decided = |action| decide(&policy, &rules, action, &|_, _| None, &limiter, Duration::ZERO).into_str();
            prop_assert_eq!(decided(&action), decided(&unknown));
        }
    }
}
