//! Numbers of approvals and grants, and the count of answers.

use super::super::*;
use super::{asked, limits, shown};
use crate::base::clock::played::TestMachine;
use crate::telemetry::metrics::{ApprovalNumbers, Metrics};

fn lines(metrics: &Metrics, family: &str) -> Vec<String> {
    let page = metrics.render();
    let counted = page.lines().filter(|line| line.starts_with(family) && !line.ends_with(" 0"));
    counted.map(|line| line.trim_start_matches(family).to_owned()).collect()
}

#[tokio::test]
async fn each_end_is_counted_once_by_result_and_channel_and_what_it_leaves_is_a_number() {
    let metrics = Metrics::new().unwrap();
    let approvals = Approvals::memory(&limits());
    approvals.count_in(metrics.approvals().clone());
    let ask = |item: &str| approvals.ask(asked("ci", item, "{}"), shown()).unwrap();
    let ids = ["once", "always", "denied", "dismissed", "unanswered", "gone", "open"].map(ask);
    assert_eq!(approvals.numbers().open, ids.len());
    let answer = async |id, answer, evidence| approvals.answer(id, answer, evidence, "uid:1").await.unwrap();
    let [once, always, denied, dismissed, unanswered, gone, _] = &ids;
    answer(once, PersonAnswer::Allow(GrantLifetime::Once), ApprovalEvidence::Client).await;
    answer(always, PersonAnswer::Allow(GrantLifetime::UntilChanged), ApprovalEvidence::Page).await;
    answer(denied, PersonAnswer::Deny, ApprovalEvidence::Operator).await;
    answer(dismissed, PersonAnswer::Dismiss, ApprovalEvidence::Client).await;
    approvals.unanswered(unanswered);
    approvals.invalidate(|asked| &*asked.item == "gone");
    assert_eq!(approvals.settled(gone).await, ApprovalEnd::Superseded);
    assert_eq!(
        lines(&metrics, "headend_approval_answers_total"),
        [
            r#"{channel="client",result="dismissed"} 1"#,
            r#"{channel="client",result="granted"} 1"#,
            r#"{channel="console",result="granted"} 1"#,
            r#"{channel="none",result="superseded"} 1"#,
            r#"{channel="none",result="timed-out"} 1"#,
            r#"{channel="operator",result="denied"} 1"#,
        ]
    );
    let timed = lines(&metrics, "headend_approval_answer_duration_seconds_count");
    assert_eq!(timed, [r#"{channel="client"} 2"#, r#"{channel="console"} 1"#, r#"{channel="operator"} 1"#]);
    let ApprovalNumbers { open, denials, grants, .. } = approvals.numbers();
    assert_eq!((open, denials), (1, 1));
    assert_eq!(grants, [("once", 1), ("session", 0), ("until", 0), ("until-changed", 1)]);
}

#[tokio::test]
async fn the_oldest_open_approval_has_its_age_and_a_denial_is_in_force_for_its_time() {
    let machine = TestMachine::new();
    machine.start();
    let approvals = Approvals::memory(&limits());
    assert_eq!(approvals.numbers().oldest, Duration::ZERO);
    let denied = approvals.ask(asked("ci", "denied", "{}"), shown()).unwrap();
    approvals.answer(&denied, PersonAnswer::Deny, ApprovalEvidence::Page, "console").await.unwrap();
    approvals.ask(asked("ci", "old", "{}"), shown()).unwrap();
    machine.pass(40);
    approvals.ask(asked("ci", "new", "{}"), shown()).unwrap();
    machine.pass(2);
    let ApprovalNumbers { open, oldest, denials, .. } = approvals.numbers();
    assert_eq!((open, oldest, denials), (2, Duration::from_secs(42), 1));
    machine.pass(3600);
    let ApprovalNumbers { open, oldest, denials, .. } = approvals.numbers();
    assert_eq!((open, oldest, denials), (0, Duration::ZERO, 0), "their time is over");
}
