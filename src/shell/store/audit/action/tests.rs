use super::super::tests::Place;
use super::*;
use crate::policy::AuditEntry;

/// Reads the members `action`, `by`, `name`, `count`, `result` and `why` of all actions in the log.
fn actions(place: &Place) -> Vec<[String; 6]> {
    let text = place.text();
    let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let shown = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let members = |record: serde_json::Value| {
        ["action", "by", "name", "count", "result", "why"].map(|member| shown(&record[member]))
    };
    records.filter(|record| record["event"] == "action").map(members).collect()
}

#[tokio::test]
async fn an_action_is_one_record_with_its_outcome_and_one_without_an_outcome_says_so() {
    let place = Place::new();
    let audit = place.open(place.options());
    let begin = async |action| audit.begin(action, "uid:1", Some("fx")).await.unwrap();
    begin(OperatorAction::Restart).await.end(Ok("state: ready"));
    let mut counted = begin(OperatorAction::PinsApprove).await;
    counted.set_count(3);
    counted.end(Err("the first line\nand another"));
    drop(begin(OperatorAction::Disable).await);
    begin(OperatorAction::SignIn).await.forget();
    let mut later = begin(OperatorAction::Revoke).await;
    later.set_by("console:12ab");
    later.set_name(&"n".repeat(1000));
    later.end(Ok(""));
    audit.flush().await;
    let cut = format!("{}…", "n".repeat(400));
    let unfinished = "headend ended, or the request did, before the outcome was known";
    assert_eq!(
        actions(&place),
        [
            ["restart", "uid:1", "fx", "null", "done", "state: ready"],
            ["pins-approve", "uid:1", "fx", "3", "refused", "the first line…"],
            ["disable", "uid:1", "fx", "null", "unfinished", unfinished],
            ["revoke", "console:12ab", &cut, "null", "done", "null"],
        ]
    );
}

#[tokio::test]
async fn an_action_waits_for_the_place_of_its_record_and_what_takes_back_does_not() {
    let place = Place::new();
    let audit = place.open(place.options());
    let writer = audit.hold().await;
    while audit.loss().is_none() {
        drop(audit.record(AuditEntry::new(AuditEvent::Action), false));
    }
    for action in <OperatorAction as strum::VariantArray>::VARIANTS {
        let mut begun = Box::pin(audit.begin(*action, "uid:1", None));
        assert_eq!(futures_util::poll!(&mut begun).is_ready(), action.is_immediate(), "{action:?}");
        if action.is_immediate() {
            audit.begin(*action, "uid:1", None).await.unwrap().forget();
        }
    }
    drop(writer);
    audit.begin(OperatorAction::Approve, "uid:1", None).await.unwrap().end(Ok(""));
    audit.flush().await;
}

#[tokio::test]
async fn what_opens_something_is_refused_while_the_log_takes_no_records() {
    let place = Place::new();
    std::fs::write(place.folder().path(), "a file in the way").unwrap();
    let audit = place.open(place.options());
    assert!(audit.trouble().is_some());
    for action in <OperatorAction as strum::VariantArray>::VARIANTS {
        match audit.begin(*action, "uid:1", None).await {
            Ok(record) => record.forget(),
            Err(error) => assert!(action.opens(), "{action:?}: {error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_attempts_are_a_record_a_minute_and_each_is_counted() {
    let place = Place::new();
    let audit = place.open(place.options());
    let (tasks, stop) = (TaskGroup::default(), CancellationToken::new());
    let wrong = WrongAttempts::new(OperatorAction::WrongSignIn, audit.clone(), tasks.clone(), stop.clone());
    for _ in 0..1000 {
        wrong.count();
    }
    tokio::time::sleep(PAUSE + Duration::from_secs(1)).await;
    tokio::time::sleep(PAUSE).await;
    wrong.count();
    wrong.count();
    stop.cancel();
    tasks.join().await;
    audit.flush().await;
    let counts: Vec<String> = actions(&place).into_iter().map(|[.., count, _, _]| count).collect();
    assert_eq!(counts, ["1", "999", "1", "1"]);
    assert!(actions(&place).iter().all(|[action, by, ..]| action == "wrong-sign-in" && by == "unknown"));
}

#[test]
fn the_reference_names_each_action() {
    let reference = include_str!("../../../../../config/README.md");
    for action in <OperatorAction as strum::VariantArray>::VARIANTS {
        let word = format!("`{}`", action.into_str());
        assert!(reference.contains(&word), "config/README.md lacks {word}");
    }
}
