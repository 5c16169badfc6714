use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::engine::sim::epoch;
use crate::mcp::asking::elicitation::ElicitationTerms;
use crate::mcp::asking::input::read_input_required;
use crate::mcp::asking::kinds::InputKinds;

const SECOND: Duration = Duration::from_secs(1);

fn question(key: u64) -> ClientQuestion {
    let request = InputRequest { method: "elicitation/create".to_owned(), params: None };
    ClientQuestion { key: RawJson::string(&key.to_string()), request }
}

#[test]
fn a_question_on_the_stream_has_a_time_of_its_own() {
    let start = epoch();
    let mut open = StreamQuestions::default();
    assert_eq!((open.due(), open.settled(start)), (None, None));
    open.shown(question(1), 1, start);
    open.shown(question(2), 2, start + SECOND);
    assert_eq!(open.due(), Some(start + PATIENCE));
    assert!(open.late(start + PATIENCE - SECOND).is_none(), "not yet");
    assert_eq!(open.late(start + PATIENCE).map(|late| late.wait), Some(1));
    assert!(open.withdraw(&question(1).key).is_none(), "it has ended");
    assert_eq!(open.settled(start + PATIENCE), None, "the other one is open");
    assert_eq!(open.withdraw(&question(2).key).map(|shown| shown.wait), Some(2));
    assert_eq!(open.settled(start + PATIENCE), Some(PATIENCE), "as long as one of them was open");
    assert_eq!(open.settled(start + PATIENCE), None, "told once");
}

#[test]
fn no_question_stays_open_for_a_client_that_is_gone() {
    let start = epoch();
    let mut open = StreamQuestions::default();
    open.shown(question(1), 1, start);
    open.shown(question(2), 2, start);
    open.hurry(start + SECOND);
    assert_eq!(open.due(), Some(start + SECOND));
    let late = [open.late(start + SECOND), open.late(start + SECOND), open.late(start + SECOND)];
    assert_eq!(late.map(|late| late.map(|late| late.wait)), [Some(1), Some(2), None]);
    assert_eq!(open.settled(start + SECOND), Some(SECOND));
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    Answer(usize),
    Withdraw(u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Ask),
        2 => (0..MAX_OPEN).prop_map(Step::Answer),
        1 => (0..40_u64).prop_map(Step::Withdraw),
        2 => (0..400_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_question_ends_once_and_none_is_open_for_longer_than_a_person_may_take(steps in steps()) {
        let (mut now, mut asked, mut open) = (epoch(), 0, StreamQuestions::default());
        let (mut ends, mut since) = (BTreeMap::<u64, u32>::new(), BTreeMap::new());
        for step in steps {
            let ended = match step {
                Step::Ask if open.has_room() => {
                    asked += 1;
                    since.insert(asked, now);
                    open.shown(question(asked), asked, now);
                    None
                }
                Step::Ask => None,
                Step::Answer(at) => open.end(at),
                Step::Withdraw(key) => open.withdraw(&question(key).key),
                Step::Pass(seconds) => {
                    now += SECOND * u32::try_from(seconds).unwrap();
                    while let Some(late) = open.late(now) {
                        *ends.entry(late.wait).or_default() += 1;
                    }
                    None
                }
            };
            if let Some(shown) = ended {
                *ends.entry(shown.wait).or_default() += 1;
            }
            prop_assert!(open.iter_mut().count() <= MAX_OPEN);
            prop_assert!(open.iter_mut().all(|shown| now < since[&shown.wait] + PATIENCE));
            prop_assert_eq!(open.due().is_none(), open.is_empty());
        }
        for shown in open.close() {
            *ends.entry(shown.wait).or_default() += 1;
        }
        prop_assert!(ends.values().all(|count| *count == 1) && ends.len() == since.len(), "{:?}", ends);
    }
}

/// Returns what a server asks for in these requests by key.
fn wanted(asked: &[(&str, &str)]) -> WantedInput {
    let asked: Vec<String> = asked.iter().map(|(key, request)| format!(r#""{key}":{request}"#)).collect();
    let asked = asked.join(",");
    let result = format!(r#"{{"resultType":"input_required","inputRequests":{{{asked}}},"requestState":"theirs"}}"#);
    let all = InputKinds { form: true, url: true, sampling: true, sampling_tools: true, roots: true };
    read_input_required(&RawJson::trusted(result), &ElicitationTerms::for_tests(all)).unwrap()
}

const FORM: &str = r#"{"method":"elicitation/create","params":{"message":"Which?"}}"#;
const SECRET: &str = r#"{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"password":{"type":"string"}}}}}"#;
const SEVERAL: &str = r#"{"method":"elicitation/create","params":{"message":"Which?","requestedSchema":{"type":"object","properties":{"c":{"type":"array","items":{"type":"string","enum":["x"]}}}}}}"#;
const SAMPLE: &str = r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9}}"#;
const ROOTS: &str = r#"{"method":"roots/list"}"#;

#[test]
fn a_round_asks_one_after_the_other_and_takes_an_answer_for_each() {
    let asked = [("a", FORM), ("b", SECRET), ("c", SEVERAL), ("d", ROOTS), ("e", FORM)];
    let mut round = QuestionRound::new(wanted(&asked), Revision::V2025_06_18, String::new);
    let answers = [
        ("\"a\"", Ok(r#"{"action":"accept","content":{}}"#)),
        // Neither a secret nor a form that this client cannot show is asked.
        ("\"d\"", Err("no")),
        ("\"e\"", Ok("5")),
    ];
    for (key, answer) in answers {
        let question = round.next_question().unwrap();
        assert_eq!(question.key.text(), key);
        let answer = answer.map(RawJson::trusted).map_err(RawJson::trusted);
        round.answered(&question, Some(answer)).unwrap();
    }
    assert!(round.next_question().is_none());
    let (answers, state) = round.into_answers();
    assert_eq!(
        answers.text(),
        r#"{"b":{"action":"decline"},"c":{"action":"cancel"},"a":{"action":"accept","content":{}},"d":{"roots":[]},"e":{"action":"cancel"}}"#
    );
    assert_eq!(state.as_deref(), Some("theirs"));
}

#[test]
fn a_round_ends_without_an_answer_in_time_and_with_a_client_that_does_not_sample() {
    for (label, answer) in [("late", None), ("refused", Some(Err(RawJson::EMPTY_OBJECT)))] {
        let mut round = QuestionRound::new(wanted(&[("a", SAMPLE)]), Revision::V2025_11_25, String::new);
        let question = round.next_question().unwrap();
        assert!(round.answered(&question, answer).is_err(), "{label}");
    }
}

#[test]
fn questions_of_one_moment_are_asked_by_one_result() {
    let now = epoch();
    let mut gathered = GatheredQuestions::default();
    assert_eq!(gathered.due(), None);
    gathered.add(question(1), now);
    gathered.add(question(2), now + GATHER / 2);
    assert_eq!(gathered.due(), Some(now + GATHER), "the first one waits no longer");
    gathered.withdraw(&question(1).key);
    assert_eq!(gathered.due(), Some(now + GATHER));
    assert_eq!(
        gathered.result("ours").text(),
        r#"{"resultType":"input_required","inputRequests":{"2":{"method":"elicitation/create"}},"requestState":"ours"}"#
    );
    gathered.withdraw(&question(2).key);
    assert_eq!(gathered.due(), None, "nothing is left to ask");
}
