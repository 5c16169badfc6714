//! Tests of which question follows which reply, and of what it says about the server's era.

use super::*;

fn ok(text: &'static str) -> Result<RawJson, RawJson> {
    Ok(RawJson::trusted(text))
}

fn err(text: &'static str) -> Result<RawJson, RawJson> {
    Err(RawJson::trusted(text))
}

#[test]
fn the_era_is_judged_by_the_whole_answer_not_by_one_code() {
    for (label, answer, want) in [
        ("no versions", ok("{}"), DiscoverVerdict::Legacy),
        ("only legacy listed", ok(r#"{"supportedVersions":["2025-11-25"]}"#), DiscoverVerdict::Legacy),
        ("only unknown listed", ok(r#"{"supportedVersions":["2031-01-01"]}"#), DiscoverVerdict::Unspeakable),
        ("method not found", err(r#"{"code":-32601}"#), DiscoverVerdict::Legacy),
        ("bad params", err(r#"{"code":-32602}"#), DiscoverVerdict::Legacy),
        ("code zero", err(r#"{"code":0}"#), DiscoverVerdict::Legacy),
        (
            "refused with our version",
            err(r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#),
            DiscoverVerdict::Again(Revision::V2026_07_28),
        ),
        (
            "refused with a later version",
            err(r#"{"code":-32022,"data":{"supported":["2025-11-25","2099-12-31"]}}"#),
            DiscoverVerdict::Again(Revision::Later),
        ),
        ("refused with legacy", err(r#"{"code":-32022,"data":{"supported":["2025-06-18"]}}"#), DiscoverVerdict::Legacy),
        (
            "refused, disjoint",
            err(r#"{"code":-32022,"data":{"supported":["2031-01-01"]}}"#),
            DiscoverVerdict::Unspeakable,
        ),
        ("refused without data", err(r#"{"code":-32022}"#), DiscoverVerdict::Legacy),
    ] {
        assert_eq!(judge_discover(&answer), want, "{label}");
    }
    let modern =
        ok(r#"{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}"#);
    let DiscoverVerdict::Modern(agreed) = judge_discover(&modern) else { panic!() };
    assert_eq!(agreed.revision, Revision::V2026_07_28);
    assert!(agreed.offers.changes && !agreed.offers.resources && !agreed.offers.extensions.has(&TASKS));
}

#[test]
fn the_questions_follow_from_what_came_of_the_one_before() {
    const OFFERS: &str = r#"{"supportedVersions":["2026-07-28"],"protocolVersion":"2025-11-25","capabilities":{}}"#;
    const OTHER: &str = r#"{"code":-32022,"data":{"supported":["2099-12-31"]}}"#;
    const UNKNOWN: &str = r#"{"code":-32022,"data":{"supported":["2031-01-01"]}}"#;
    let (lines, http) = (HandshakeTransport::Lines, HandshakeTransport::Http { may_be_older: true });
    let (probe, legacy, modern) = (EraHint::Probe, EraHint::Legacy, EraHint::Modern);
    let answer = |text| HandshakeReply::Answer(ok(text));
    let refusal = |text| HandshakeReply::Answer(err(text));
    let no_answer = || HandshakeReply::NoAnswer("HTML".to_owned());
    let lost = || HandshakeReply::Lost("gone".to_owned());
    for (label, carrier, hint, replies, want) in [
        ("modern", lines, probe, vec![(None, answer(OFFERS))], "2026-07-28"),
        ("legacy", lines, legacy, vec![(None, answer(OFFERS))], "2025-11-25"),
        ("asked again", http, modern, vec![(None, refusal(OTHER)), (None, refusal(OTHER))], "Modern"),
        ("another modern one", http, probe, vec![(Some(200), refusal(UNKNOWN))], "Probe"),
        ("not modern", http, probe, vec![(Some(200), refusal("{}")), (Some(200), answer(OFFERS))], "2025-11-25"),
        ("not as known", lines, modern, vec![(None, refusal("{}"))], "Probe"),
        ("silent and known as legacy", lines, legacy, vec![(None, HandshakeReply::Silence)], "Probe"),
        ("over its time limit", http, probe, vec![(Some(408), no_answer())], "Probe"),
        ("no answer", http, probe, vec![(Some(404), no_answer()), (Some(200), answer(OFFERS))], "2025-11-25"),
        ("overloaded, in JSON", http, probe, vec![(Some(429), refusal("{}"))], "Probe"),
        ("failing", http, probe, vec![(Some(502), no_answer())], "Probe"),
        ("failing, in JSON", http, probe, vec![(Some(503), refusal("{}"))], "Probe"),
        ("failing without JSON", http, probe, vec![(Some(500), no_answer())], "Probe"),
        (
            "a 500 that is an answer",
            http,
            probe,
            vec![(Some(500), refusal("{}")), (Some(200), answer(OFFERS))],
            "2025-11-25",
        ),
        ("no connection", http, probe, vec![(None, lost())], "Probe"),
        (
            "silence of a process",
            lines,
            probe,
            vec![(None, HandshakeReply::Silence), (None, HandshakeReply::Silence)],
            "Legacy",
        ),
        ("silence of a modern process", lines, modern, vec![(None, HandshakeReply::Silence)], "Modern"),
        ("silence over HTTP", http, probe, vec![(None, HandshakeReply::Silence)], "Probe"),
        ("the process ended", lines, probe, vec![(None, lost())], "Legacy"),
        ("a refused initialize", lines, probe, vec![(None, refusal("{}")), (None, refusal("{}"))], "Legacy"),
        ("no POST there", http, probe, vec![(Some(405), no_answer()), (Some(405), no_answer())], "Probe, older"),
        ("an unknown session", http, legacy, vec![(Some(404), refusal("{}"))], "Legacy, older"),
        ("refused, and known as legacy", lines, legacy, vec![(None, refusal("{}"))], "Probe"),
        ("the process ended, and is known as legacy", lines, legacy, vec![(None, lost())], "Legacy"),
    ] {
        let mut handshake = Handshake::new(hint, carrier);
        let mut next = HandshakeAction::Ask(handshake.question());
        for (status, reply) in replies {
            assert_eq!(next, HandshakeAction::Ask(handshake.question()), "{label}");
            next = handshake.heard(status, reply);
        }
        let got = match next {
            HandshakeAction::Agreed(agreed) => agreed.revision.to_string(),
            HandshakeAction::Failed { hint, older, .. } => format!("{hint:?}{}", if older { ", older" } else { "" }),
            HandshakeAction::Ask(question) => format!("{question:?}"),
            HandshakeAction::Wait(_) => "waits".to_owned(),
        };
        assert_eq!(got, want, "{label}");
    }
}

#[test]
fn a_failure_or_silence_at_the_question_for_the_era_names_the_way_out_of_a_server_of_unknown_era() {
    let silence = || (None, HandshakeReply::Silence);
    let failure = || (Some(500), HandshakeReply::NoAnswer("oops".to_owned()));
    for (hint, is_named) in [(EraHint::Probe, true), (EraHint::Modern, false)] {
        for (status, reply) in [silence(), failure()] {
            let mut handshake = Handshake::new(hint, HandshakeTransport::Http { may_be_older: false });
            let HandshakeAction::Failed { why, .. } = handshake.heard(status, reply) else { panic!("{hint:?}") };
            assert_eq!(why.contains("write `era = \"legacy\"`"), is_named, "{hint:?}: {why}");
        }
    }
}

#[test]
fn each_era_offers_tasks_in_its_own_words_alone() {
    const CORE: &str = r#""tasks":{"requests":{"tools":{"call":{}}}}"#;
    const EXTENSION: &str = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
    for (words, modern, legacy) in [(CORE, false, true), (EXTENSION, true, false)] {
        let text = format!(r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{{words}}}}}"#);
        let DiscoverVerdict::Modern(agreed) = judge_discover(&Ok(RawJson::trusted(text))) else { panic!() };
        assert_eq!(agreed.offers.extensions.has(&TASKS), modern, "{words}");
        let text = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{{words}}}}}"#);
        assert_eq!(
            judge_initialize(&Ok(RawJson::trusted(text))).unwrap().offers.extensions.has(&TASKS),
            legacy,
            "{words}"
        );
    }
}

#[test]
fn initialize_must_end_in_a_known_legacy_revision() {
    for (text, ok_) in [
        (r#"{"protocolVersion":"2024-11-05","capabilities":{}}"#, true),
        (r#"{"protocolVersion":"2026-07-28"}"#, false),
        (r#"{"protocolVersion":"1.0"}"#, false),
        ("{}", false),
    ] {
        assert_eq!(judge_initialize(&ok(text)).is_ok(), ok_, "{text}");
    }
}

/// A message after the silence of a process of unknown era.
enum Then {
    /// The answer to `server/discover`.
    Late(Result<RawJson, RawJson>),
    /// The reply to `initialize`.
    Reply(HandshakeReply),
}

#[test]
fn a_slow_server_is_not_taken_for_a_legacy_one() {
    const OFFERS: &str = r#"{"supportedVersions":["2026-07-28"],"protocolVersion":"2025-11-25","capabilities":{}}"#;
    const OTHER: &str = r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#;
    let late = |answer| Then::Late(answer);
    let reply = |answer| Then::Reply(HandshakeReply::Answer(answer));
    let silence = || Then::Reply(HandshakeReply::Silence);
    for (label, then, want) in [
        ("modern alone", vec![late(ok(OFFERS)), reply(err("{}"))], "2026-07-28"),
        ("modern alone, in the other order", vec![reply(err("{}")), late(ok(OFFERS))], "2026-07-28"),
        ("modern, and silent at what it does not know", vec![late(ok(OFFERS)), silence()], "2026-07-28"),
        ("of both eras", vec![late(ok(OFFERS)), reply(ok(OFFERS))], "Modern"),
        ("modern in another revision", vec![late(err(OTHER))], "Modern"),
        (
            "modern, and ends at what it does not know",
            vec![late(ok(OFFERS)), Then::Reply(HandshakeReply::Lost(String::new()))],
            "Modern",
        ),
        ("of both eras, in the other order", vec![reply(ok(OFFERS)), late(ok(OFFERS))], "Modern"),
        ("legacy, silent before", vec![reply(ok(OFFERS)), silence()], "2025-11-25"),
        ("legacy, slow, in the other order", vec![reply(ok(OFFERS)), late(err("{}"))], "2025-11-25"),
        ("legacy, slow", vec![late(err("{}")), reply(ok(OFFERS))], "2025-11-25"),
        ("legacy, and disturbed by the first question", vec![late(err("{}")), reply(err("{}"))], "Legacy"),
        ("the same without an answer to it", vec![reply(err("{}")), silence()], "Legacy"),
        ("the same with a late one", vec![reply(err("{}")), late(err("{}"))], "Legacy"),
    ] {
        let mut handshake = Handshake::new(EraHint::Probe, HandshakeTransport::Lines);
        assert_eq!(
            handshake.heard(None, HandshakeReply::Silence),
            HandshakeAction::Ask(HandshakeQuestion::Initialize),
            "{label}"
        );
        let mut next = HandshakeAction::Wait(None);
        for then in then {
            assert!(matches!(next, HandshakeAction::Wait(_)), "{label}: {next:?}");
            next = match then {
                Then::Late(answer) => handshake.heard_late(&answer),
                Then::Reply(reply) => handshake.heard(None, reply),
            };
        }
        let got = match next {
            HandshakeAction::Agreed(agreed) => agreed.revision.to_string(),
            HandshakeAction::Failed { hint, .. } => format!("{hint:?}"),
            HandshakeAction::Ask(_) | HandshakeAction::Wait(_) => format!("{next:?}"),
        };
        assert_eq!(got, want, "{label}");
    }
}
