use super::*;
use crate::policy::caller::Caller;
use crate::policy::{ActionKind, ApprovalEvidence, Permit};
use crate::wire::json::raw::RawJson;

fn delete() -> PolicyAction {
    PolicyAction::stand_in("local", "github", "github__delete_repo")
}

#[test]
fn each_decision_says_who_what_and_why() {
    let deny = |rule: &str| Decision::Deny { rule: Arc::from(rule), hidden: true };
    let wait = Duration::from_secs(2);
    for (decision, want) in [
        (Decision::Allow(Permit::mint(Arc::from("reads"), None)), ("allow", "reads", "rule matches", None)),
        (Decision::Allow(Permit::mint(Arc::from(DEFAULT_RULE), None)), ("allow", "default", "no rule matches", None)),
        (
            Decision::Ask { rule: Arc::from("writes"), need: ApprovalEvidence::Client },
            ("ask", "writes", "rule matches", None),
        ),
        (deny("no-deletes"), ("deny", "no-deletes", "rule matches", None)),
        (deny(DOUBT_RULE), ("deny", "doubt", "facts do not fit together", None)),
        (
            Decision::Limit { limit: Arc::from("slow"), retry_after: wait },
            ("limit", "slow", "limit used up", Some(wait)),
        ),
    ] {
        let action = PolicyAction { session: 7, arguments: Some(RawJson::EMPTY_OBJECT), ..delete() };
        let record = DecisionRecord::new(&action, &decision);
        let entry = record.entry(Some(3));
        let (rule, item) = (entry.rule.unwrap(), entry.item.unwrap());
        assert_eq!((entry.result, &*rule, &*entry.why, record.retry_after()), want);
        assert_eq!(
            (entry.caller.as_ref().map(Caller::name), entry.upstream.as_deref()),
            (Some("local"), Some("github"))
        );
        assert_eq!(
            (entry.call, entry.session, entry.kind, &*item),
            (Some(3), Some(7), Some(ActionKind::Tool), "github__delete_repo")
        );
        assert_eq!((entry.definition, entry.arguments), (Some(action.definition), Some(RawJson::EMPTY_OBJECT)));
        assert_eq!(entry.evidence, (want.0 == "ask").then_some(ApprovalEvidence::Client));
    }
}

#[test]
fn a_uri_of_the_client_is_not_recorded() {
    let (canonical, listed) = ("github+file:///from-the-client".into(), Arc::from("github+file:///{path}"));
    let action = PolicyAction { kind: ActionKind::Resource, canonical, listed, ..delete() };
    let decision = Decision::Deny { rule: Arc::from("r"), hidden: true };
    assert_eq!(DecisionRecord::new(&action, &decision).entry(None).item.as_deref(), Some("github+file:///{path}"));
}
