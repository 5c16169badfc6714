//! Tests of held calls with random orders of calls, answers and clients that give up: one yes is
//! one execution, of a call that was there for it.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;

const STEPS: u64 = 40;

/// A call that is held, as far as its client knows.
struct HeldCallView {
    call: OpenCall,
    client: Mcp,
    is_legacy: bool,
    text: String,
}

/// Counts of what happened to calls of one text.
#[derive(Debug, Default)]
struct TextCounts {
    /// Approvals given when no call was there; equal calls find them later.
    kept: usize,
    /// Calls that may have run: an approval was given while a call was there, or a call came after
    /// one.
    possible: usize,
    gave_up: usize,
    answered: usize,
}

/// Returns the id of a random open approval, and the text of its call.
fn open(world: &TestHome, rng: &mut Rng) -> Option<(String, String)> {
    let output = world.run(&["approvals", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = listed["approvals"].as_array().unwrap();
    let one = listed.get(rng.usize(0..listed.len().max(1)))?;
    let text = one["message"].as_str().unwrap().split("text: \"").nth(1).unwrap().split('"').next().unwrap();
    Some((one["id"].as_str().unwrap().to_owned(), text.to_owned()))
}

fn play(seed: u64) {
    let stage = ConsentGateway::with(LONG, "");
    let world = &stage.gateway.world;
    let mut rng = Rng::with_seed(seed);
    let (mut waiting, mut told) = (Vec::<HeldCallView>::new(), BTreeMap::<String, TextCounts>::new());
    for step in 0..STEPS {
        match rng.u8(0..10) {
            0..4 => {
                let text = format!("{seed}-{}-{}", step / 10, rng.u8(0..2));
                let era = rng.choice(ClientEra::BOTH).unwrap();
                // A name of its own, since clients of one name share their patience.
                let (address, token) = (stage.gateway.address, stage.gateway.token());
                let mut client = Mcp::http_named(address, token, era, &format!("it {step}"));
                let call = client.open("tools/call", echo(&text));
                pass(Duration::from_millis(30));
                let told = told.entry(text.clone()).or_default();
                if told.kept > 0 {
                    (told.kept, told.possible) = (told.kept - 1, told.possible + 1);
                }
                waiting.push(HeldCallView { call, client, is_legacy: era != ClientEra::Modern, text });
            }
            4..6 if !waiting.is_empty() => {
                let HeldCallView { call, mut client, is_legacy, text } =
                    waiting.swap_remove(rng.usize(0..waiting.len()));
                if is_legacy {
                    client.notify("notifications/cancelled", json!({"requestId": call.id}));
                }
                drop(call);
                told.get_mut(&text).unwrap().gave_up += 1;
                pass(Duration::from_millis(30));
            }
            6..9 => {
                let Some((id, text)) = open(world, &mut rng) else { continue };
                if world.run(&["approve", &id]).status.success() {
                    let told = told.get_mut(&text).unwrap();
                    let is_there = waiting.iter().any(|waiting| waiting.text == text);
                    *(if is_there { &mut told.possible } else { &mut told.kept }) += 1;
                }
            }
            _ => {
                if let Some((id, _)) = open(world, &mut rng) {
                    world.run(&["deny", &id]);
                }
            }
        }
    }
    for HeldCallView { mut call, text, .. } in waiting {
        let response = loop {
            match call.next_within(Duration::from_millis(50)) {
                Ok(response) => break response.unwrap(),
                Err(_) => clear(world),
            }
        };
        told.get_mut(&text).unwrap().answered += usize::from(is_echo(&response, &text));
    }
    let called = stage.called();
    eprintln!("seed {seed}: {} calls of {} texts were made", called.len(), told.len());
    for (text, told) in told {
        let ran = called.iter().filter(|call| **call == json!({"text": text})).count();
        assert!(ran <= told.possible, "seed {seed}, {text}: it ran {ran} times, {told:?}");
        assert!(told.answered <= ran && ran <= told.answered + told.gave_up, "seed {seed}, {text}: {ran}, {told:?}");
    }
}

#[test]
fn in_any_order_of_calls_answers_and_ends_one_yes_is_one_execution() {
    let seed = std::env::var("HEADEND_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    play(seed);
}
