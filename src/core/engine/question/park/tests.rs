use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::engine::failure::CallFailure;
use crate::engine::sim::epoch;

const SECOND: Duration = Duration::from_secs(1);

fn request(id: u64) -> ServerRequest {
    let method = ["elicitation/create", "sampling/createMessage"][usize::from(id.is_multiple_of(2))];
    ServerRequest { id: RawJson::trusted(id.to_string()), method: method.to_owned(), params: None }
}

fn answers(keys: impl IntoIterator<Item = RawJson>) -> RawObject {
    let mut answers = RawObject::default();
    for key in keys {
        answers.set(&key.parse::<String>().unwrap(), RawJson::EMPTY_OBJECT);
    }
    answers
}

#[test]
fn a_question_waits_ten_minutes_and_an_outcome_one() {
    let start = epoch();
    let mut park = ParkedCall::new(start);
    park.hear(CallEvent::Ask(request(1)), start);
    assert_eq!(park.due(), None, "the request that began it is attached");
    park.leave(start);
    assert_eq!(park.due(), Some(start + PATIENCE));
    park.hear(CallEvent::Alive, start + SECOND);
    assert_eq!(park.due(), Some(start + PATIENCE), "a server that works on buys no time");
    let told: Vec<ParkAction> =
        park.attach(&answers([RawJson::string("sampling-1"), RawJson::string("elicitation-1")]));
    assert!(matches!(&told[..], [ParkAction::Reply(id, Ok(_))] if id.text() == "1"), "{told:?}");
    park.leave(start + SECOND);
    assert_eq!(park.due(), Some(start + SECOND + GRACE), "nothing is open");
    park.hear(CallEvent::Done(CallOutcome::Failed(CallFailure::down())), start + 2 * SECOND);
    assert_eq!(park.due(), Some(start + 2 * SECOND + GRACE));
    for _ in 0..2 {
        let told = park.attach(&RawObject::default());
        assert!(matches!(&told[..], [ParkAction::Show(CallEvent::Done(_))]), "each request learns of it: {told:?}");
    }
    assert_eq!(park.end().count(), 0);
}

#[test]
fn what_is_no_object_answers_nothing() {
    let mut park = ParkedCall::new(epoch());
    park.hear(CallEvent::Ask(request(1)), epoch());
    let mut answers = RawObject::default();
    answers.set("elicitation-1", RawJson::string("yes"));
    let told = park.attach(&answers);
    assert!(matches!(&told[..], [ParkAction::Show(CallEvent::Ask(_))]), "{told:?}");
    assert!(matches!(park.end().next(), Some(ParkAction::Reply(_, Ok(_)))), "a person who does not answer");
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    Withdraw(u64),
    Works,
    Done,
    Attach(Vec<usize>),
    Answer(usize),
    Leave,
    Pass(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => Just(Step::Ask),
        2 => (1..20_u64).prop_map(Step::Withdraw),
        1 => Just(Step::Works),
        1 => Just(Step::Done),
        3 => prop::collection::vec(0..MAX_OPEN, 0..4).prop_map(Step::Attach),
        2 => (0..MAX_OPEN).prop_map(Step::Answer),
        2 => Just(Step::Leave),
        2 => (0..700_u32).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

/// The knowledge of the server and of the client about a parked call.
#[derive(Debug, Default)]
struct Known {
    /// Questions that the server waits for.
    waits: BTreeSet<u64>,
    /// Number of answers that each question got.
    answered: BTreeMap<u64, u32>,
    /// Keys of the questions that the attached request has before it.
    shown: Vec<RawJson>,
    /// The question of each key that there ever was.
    keys: BTreeMap<String, u64>,
    outcomes: u32,
}

impl Known {
    fn learn(&mut self, acts: impl IntoIterator<Item = ParkAction>, asks: Option<u64>) {
        for act in acts {
            match act {
                ParkAction::Reply(id, _) => {
                    let id = id.parse::<u64>().unwrap();
                    assert!(self.waits.remove(&id), "{id} is not waited for");
                    *self.answered.entry(id).or_default() += 1;
                }
                ParkAction::Show(CallEvent::Ask(request)) => {
                    if let Some(id) = asks {
                        let known = self.keys.insert(request.id.text().into_owned(), id);
                        assert!(known.is_none(), "a key is used twice");
                    }
                    self.shown.push(request.id);
                }
                ParkAction::Show(CallEvent::Withdrawn(key)) => self.shown.retain(|shown| *shown != key),
                ParkAction::Show(CallEvent::Done(_)) => self.outcomes += 1,
                ParkAction::Show(_) => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_happens_an_answer_goes_up_once_and_each_request_sees_what_is_open(steps in steps()) {
        let mut now = epoch();
        let mut park = ParkedCall::new(now);
        let (mut known, mut asked, mut is_attached, mut is_done) = (Known::default(), 0, true, false);
        for step in steps {
            match step {
                Step::Ask if !is_done => {
                    asked += 1;
                    known.waits.insert(asked);
                    let act = park.hear(CallEvent::Ask(request(asked)), now);
                    known.learn(act, Some(asked));
                }
                Step::Withdraw(id) if !is_done => {
                    let act = park.hear(CallEvent::Withdrawn(request(id).id), now);
                    prop_assert_eq!(act.is_some(), known.waits.remove(&id));
                    known.learn(act, None);
                }
                Step::Works if !is_done => {
                    let due = park.due();
                    known.learn(park.hear(CallEvent::Alive, now), None);
                    prop_assert_eq!(park.due(), due);
                }
                Step::Done if !is_done => {
                    is_done = true;
                    known.waits.clear();
                    known.learn(park.hear(CallEvent::Done(CallOutcome::Failed(CallFailure::down())), now), None);
                }
                Step::Ask | Step::Withdraw(_) | Step::Works | Step::Done => {}
                Step::Attach(given) => {
                    is_attached = true;
                    let given: BTreeSet<usize> = given.into_iter().filter(|at| *at < known.shown.len()).collect();
                    let given = given.into_iter().map(|at| known.shown[at].clone());
                    let given = answers(given);
                    (known.shown, known.outcomes) = (Vec::new(), 0);
                    known.learn(park.attach(&given), None);
                    prop_assert_eq!(known.shown.len(), known.waits.len(), "all that is open, and nothing else");
                    prop_assert_eq!(known.outcomes, u32::from(is_done));
                }
                Step::Answer(at) => if let Some(key) = known.shown.get(at).cloned() {
                    known.shown.remove(at);
                    known.learn(park.answer(&key, Ok(RawJson::EMPTY_OBJECT)), None);
                },
                Step::Leave => {
                    is_attached = false;
                    park.leave(now);
                }
                Step::Pass(seconds) => {
                    now += SECOND * seconds;
                    if park.due().is_some_and(|due| due <= now) {
                        break;
                    }
                }
            }
            prop_assert_eq!(park.due().is_none(), is_attached);
            prop_assert!(known.waits.len() <= MAX_OPEN);
        }
        known.learn(park.end(), None);
        prop_assert!(known.waits.is_empty(), "no server waits for ever: {:?}", known);
        prop_assert!(known.answered.values().all(|count| *count == 1));
    }
}

#[test]
fn calls_that_have_ended_give_way_the_oldest_first_and_each_caller_has_a_share() {
    let start = epoch();
    let id = |n: usize| -> ParkId {
        [u8::try_from(n / 200).unwrap(), u8::try_from(n % 200).unwrap()].repeat(8).try_into().unwrap()
    };
    let [ci, dev, local] = ["ci", "dev", "local"].map(Caller::named);
    let mut table = ParkTable::default();
    for n in 0..MAX_PER_CALLER {
        assert!(table.enter(id(n), &ci, n));
    }
    assert!(!table.enter(id(100), &ci, 100), "its share is used up");
    assert_eq!((table.find(&ci, &id(3)), table.find(&dev, &id(3))), (Some(&3), None));
    table.ended(&id(5), start + SECOND);
    table.ended(&id(7), start);
    table.ended(&id(7), start + 2 * SECOND);
    assert!(table.enter(id(100), &ci, 100));
    assert_eq!((table.find(&ci, &id(7)), table.find(&ci, &id(5))), (None, Some(&5)), "the oldest end");
    for n in 200..200 + MAX_PARKED - MAX_PER_CALLER {
        assert!(table.enter(id(n), &local, n), "its number is bounded by all alone");
    }
    assert!(table.enter(id(101), &dev, 101), "another caller's outcome gives way");
    assert!(!table.enter(id(102), &dev, 102) && table.find(&ci, &id(5)).is_none(), "no other has ended");
}
