//! Pins: each step is taken from the record that is in the store, even if another process wrote it.

use super::*;
use crate::catalog::name::UpstreamName;
use crate::policy::UpstreamTrust;
use crate::store::pin_record::{PinKey, PinRecord, PinStep, PinText};

/// Returns a launch; its URL may hold a secret.
fn launch(n: u8) -> PinText {
    let text = format!(r#"{{"transport":"http","url":"https://a.example/?key={n}"}}"#);
    PinText { digest: Digest::of(text.as_bytes()), text: Arc::from(text) }
}

fn step(what: u8, n: u8) -> PinStep {
    let (text, by) = (launch(n), Arc::from("uid:1"));
    match what {
        0 => PinStep::Approve { shown: text.digest, by },
        1 => PinStep::Reject { shown: text.digest, by },
        _ => PinStep::Started {
            words: text.text.to_string(),
            text,
            trust: UpstreamTrust::Untrusted,
            folders: Vec::new(),
        },
    }
}

/// Returns all of a record that is compared.
fn shown(record: &PinRecord) -> impl PartialEq + Debug + use<> {
    let PinRecord { pin, approved, waiting, by, at, .. } = record.clone();
    (pin, approved, waiting, by, at)
}

#[test]
fn a_step_is_taken_from_the_record_in_the_store_and_every_change_is_counted() {
    play((0..2_usize, 0..5_u8, 0..3_u8, 0..2_u8, 0..9_u8), |dbs, events| {
        let (mut model, mut epoch) = (BTreeMap::<PinKey, PinRecord>::new(), 0);
        for (at, (process, what, n, upstream, forgets)) in (1..).zip(events) {
            let key = PinKey::launch(&UpstreamName::parse(["a", "b"][usize::from(*upstream)]).unwrap());
            let (forget, step) = ((*forgets == 0).then(|| key.clone()), step(*what, *n));
            if forget.is_some() {
                model.remove(&key);
            }
            let before = model.get(&key);
            let after = PinRecord::step(before, None, &step, at);
            let is_changed = after.as_ref().is_ok_and(|after| before.is_none_or(|before| before.differs(after)));
            let steps = vec![(key.clone(), step)];
            let taken = dbs[*process].take_steps(steps, forget.iter().cloned().collect(), at).run_now().unwrap();
            let known = epoch;
            epoch += u64::from(is_changed || forget.is_some());
            assert_eq!((taken.before, taken.after), (known, epoch));
            let [(_, stepped)] = &taken.stepped[..] else { panic!("{taken:?}") };
            assert_eq!(stepped.as_ref().map(shown), after.as_ref().map(shown));
            if let Ok(after) = after
                && is_changed
            {
                model.insert(key, after);
            }
            let other = &dbs[1 - *process];
            assert!(other.pins_changed(epoch).run_now().unwrap().is_none());
            let (counted, mut table) = other.pins_changed(epoch + 1).run_now().unwrap().unwrap();
            table.sort_by(|(one, _), (other, _)| one.cmp(other));
            let seen: Vec<_> = table.iter().map(|(key, record)| (key, shown(record))).collect();
            let expected: Vec<_> = model.iter().map(|(key, record)| (key, shown(record))).collect();
            assert_eq!((counted, seen), (epoch, expected));
        }
    });
}
