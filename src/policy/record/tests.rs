use super::super::{Evidence, Permit};
use super::*;

const FACTS: Facts<'static> =
    Facts { upstream: "github", canonical: "github__delete_repo", ..super::super::tests::FACTS };

#[test]
fn each_decision_says_who_what_and_why() {
    let deny = |rule: &str| Decision::Deny { rule: Arc::from(rule), hidden: true };
    let wait = Duration::from_secs(2);
    for (decision, want) in [
        (Decision::Allow(Permit::mint(Arc::from("reads"), None)), ("allow", "reads", "rule matches", None)),
        (Decision::Allow(Permit::mint(Arc::from(DEFAULT_RULE), None)), ("allow", "default", "no rule matches", None)),
        (Decision::Ask { rule: Arc::from("writes"), need: Evidence::Client }, ("ask", "writes", "rule matches", None)),
        (deny("no-deletes"), ("deny", "no-deletes", "rule matches", None)),
        (deny(DOUBT_RULE), ("deny", "doubt", "facts do not fit together", None)),
        (
            Decision::Limit { limit: Arc::from("slow"), retry_after: wait },
            ("limit", "slow", "limit used up", Some(wait)),
        ),
    ] {
        let record = Record::new(&FACTS, FACTS.canonical, &decision);
        assert_eq!((record.decision(), &**record.rule(), record.why(), record.retry_after()), want);
        assert_eq!((record.caller(), record.upstream(), record.kind()), ("local", "github", Kind::Tool));
    }
}

#[test]
fn a_uri_of_the_client_is_not_recorded() {
    let facts = Facts { kind: Kind::Resource, canonical: "github+file:///from-the-client", ..FACTS };
    let decision = Decision::Deny { rule: Arc::from("r"), hidden: true };
    let record = Record::new(&facts, "github+file:///{path}", &decision);
    assert_eq!(record.item(), "github+file:///{path}");
}
