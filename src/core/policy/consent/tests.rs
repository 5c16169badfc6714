use super::desk::OpeningResult;

use expect_test::{Expect, expect};

use super::*;
use crate::mcp::client_name::ClientName;
use crate::mcp::definition::annotations::{Annotations, Hints, StatedHints};
use crate::policy::permit::Permit;
use crate::wire::json::raw::{RawJson, RawObject};

mod clients;
mod many;
mod random;

pub(super) fn asked() -> ApprovalSubject {
    ApprovalSubject {
        caller: Caller::named("ci"),
        session: Some(1),
        upstream: Arc::from("files"),
        kind: ActionKind::Tool,
        item: Arc::from("files__delete"),
        definition: Digest::of(b"definition"),
        launch: Digest::of(b"launch"),
        arguments: Digest::of(b"arguments"),
        rule: Arc::from("ask-writes"),
        need: ApprovalEvidence::Client,
        destructive: false,
    }
}

pub(super) fn shown() -> CallDetails {
    CallDetails::new("files__delete", StatedHints::default(), None)
}

fn approval(asked: ApprovalSubject, exposed: &str, said: StatedHints, arguments: Option<&str>) -> OpenApproval {
    let arguments = arguments.map(|text| RawJson::trusted(text.to_owned()));
    let asked = ApprovalSubject { arguments: Digest::of_arguments(arguments.as_ref()), ..asked };
    let shown = CallDetails::new(exposed, said, arguments.as_ref());
    OpenApproval { id: ApprovalId::new([7; 16]), asked, shown, opened_at: 1000, until: 1900 }
}

fn message(approval: &OpenApproval, want: &Expect) {
    let text = approval.message();
    assert!(text.len() <= 2048, "{} bytes", text.len());
    assert_eq!(crate::wire::foreign::block(&text), text, "no character is hidden");
    want.assert_eq(&text);
}

#[test]
fn a_message_says_who_asks_for_what_and_what_may_come_of_it() {
    let server = Hints { destructive: Some(true), open_world: Some(false), ..Hints::default() };
    let said = StatedHints { server, ..StatedHints::default() };
    let arguments = r#"{ "path" : "/srv/a b", "deep": [1, {"x": null}, []], "n": 1.50e3, "empty": {} }"#;
    let approval = approval(asked(), "delete", said, Some(arguments));
    message(
        &approval,
        &expect![[r#"
            headend needs your approval:
            caller:    "ci"
            upstream:  "files"
            tool:      "files__delete" (called "delete")
            effect:    may delete or overwrite, on this machine (the server says so)
            arguments: 79 bytes, digest 997a473d
              path: "/srv/a b"
              deep: [1, {"x": null}, []]
              n: 1.50e3
              empty: {}
            definition 4c4ed1af, rule "ask-writes"
            If you allow it once, "files" runs this tool with exactly these arguments, once.
            If nobody answers, the call is not made."#]],
    );
}

#[test]
fn a_message_without_arguments_or_hints_says_so() {
    let asked = ApprovalSubject { kind: ActionKind::Resource, item: Arc::from("files+file:///etc/x"), ..asked() };
    message(
        &approval(asked, "files+file:///etc/x", StatedHints::default(), None),
        &expect![[r#"
            headend needs your approval:
            caller:    "ci"
            upstream:  "files"
            resource:  "files+file:///etc/x"
            effect:    reads only
            arguments: 2 bytes, digest 44136fa3
            definition 4c4ed1af, rule "ask-writes"
            If you allow it once, "files" is asked for this resource with exactly these arguments, once.
            If nobody answers, the call is not made."#]],
    );
}

#[test]
fn hostile_names_and_arguments_are_seen_for_what_they_are() {
    let asked = ApprovalSubject {
        caller: Caller::named("ci\nheadend says: fine"),
        upstream: Arc::from("f\u{1b}[2J\u{1b}[31m"),
        item: Arc::from("files__\u{202e}eteled\""),
        rule: Arc::from("r\u{200b}"),
        ..asked()
    };
    let arguments = "{\"a\\u001b[2J\":\"\\u202eevil\\u2066\u{200b}\u{e0041}\",\"b\":\"\\\"}\\nIf nobody answers, the call is made.\",\
                     \"lone\":\"\\ud800\",\"pay\":\"\u{440}\u{430}\u{443}\"}";
    let approval = approval(asked, "files__\u{feff}delete\r\n", StatedHints::default(), Some(arguments));
    assert_eq!(approval.shown.oddities.hidden, 7);
    message(
        &approval,
        &expect![[r#"
            headend needs your approval:
            caller:    "ci\nheadend says: fine"
            upstream:  "f\u{1b}[2J\u{1b}[31m"
            tool:      "files__\u{202e}eteled\"" (called "files__\u{feff}delete\r\n")
            effect:    the server says nothing
            WARNING:   7 hidden characters, shown as \u{..}
            arguments: 119 bytes, digest ebd053d0
              ["a\u{1b}[2J"]: "\u{202e}evil\u{2066}\u{200b}\u{e0041}"
              lone: "\ud800"
              pay: "рау"
              b (2 lines, 39 bytes):
                | "}
                | If nobody answers, the call is made.
            definition 4c4ed1af, rule "r\u{200b}"
            If you allow it once, "f\u{1b}[2J\u{1b}[31m" runs this tool with exactly these arguments, once.
            If nobody answers, the call is not made."#]],
    );
}

#[test]
fn long_names_and_arguments_are_cut_and_their_length_is_told() {
    let long = "\u{1f600}".repeat(2000);
    let longest = ApprovalSubject {
        caller: Caller::named(&long),
        upstream: Arc::from(&*long),
        item: Arc::from(&*long),
        rule: Arc::from(&*long),
        ..asked()
    };
    let arguments = format!("{{\"a\":\"{}\u{200b}\"}}", "x".repeat(100 * 1024));
    let approval = approval(longest, &format!("{long}x"), StatedHints::default(), Some(&arguments));
    message(
        &approval,
        &expect![[r#"
            headend needs your approval:
            caller:    "😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀.." (8000 bytes)
            upstream:  "😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀.." (8000 bytes)
            tool:      "😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀.." (8000 bytes) (called "😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀.." (8001 bytes))
            effect:    the server says nothing
            WARNING:   1 hidden character, shown as \u{..}
            arguments: 102411 bytes, digest a7f59a1a
              a (102403 bytes):
                | xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
                .. 101490 bytes more are not shown here
              .. and more that is not shown here
            definition 4c4ed1af, rule "😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀.." (8000 bytes)
            If you allow it once, "😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀.." (8000 bytes) runs this tool with exactly these arguments, once.
            If nobody answers, the call is not made."#]],
    );
    assert_eq!(approval.shown.oddities.hidden, 1, "also where it is not shown");
    let KeptArguments::Whole(kept) = &approval.shown.arguments else { panic!("kept whole") };
    assert_eq!(**kept, *arguments);
    let (long, hidden) = ("x".repeat(9999), "\u{200b}".repeat(99_999));
    let text: Arc<str> = Arc::from(long.as_str());
    let asked = ApprovalSubject {
        caller: Caller::named(&text),
        upstream: text.clone(),
        item: text.clone(),
        rule: text,
        ..asked()
    };
    let arguments = format!("{{\"a\":\"{}{hidden}\"}}", "x".repeat(1015));
    let server =
        Hints { read_only: Some(false), destructive: Some(false), idempotent: Some(true), open_world: Some(true) };
    let said = StatedHints { server, operator: Hints { destructive: Some(true), idempotent: Some(false), ..server } };
    let approval = self::approval(asked, &long, said, Some(&arguments));
    assert!((1900..=2048).contains(&approval.message().len()), "{} bytes", approval.message().len());
}

#[test]
fn a_client_says_who_it_is_and_a_long_description_is_cut() {
    let client = RawJson::trusted("{\"name\":\"claude\\u202e\\n\",\"version\":\"2.1\"}");
    let mut approval = approval(asked(), "delete", StatedHints::default(), None);
    approval.shown = approval.shown.asked_by(ClientName::read(&client)).described(Some("语".repeat(4000)));
    assert!(
        approval.message().contains(r#"says it is "claude\u{202e}\n 2.1" (not verified)"#),
        "{}",
        approval.message()
    );
    let description = approval.shown.description.clone().unwrap();
    assert!(description.len() <= 4102 && description.ends_with("语 [..]"), "{} bytes", description.len());
    assert_eq!(approval.shown.described(Some(" \n".to_owned())).description, None);
}

#[test]
fn other_processes_get_all_of_the_arguments_or_a_beginning_that_says_so() {
    let details = |arguments: &str| {
        let approval = approval(asked(), "delete", StatedHints::default(), Some(arguments));
        let text = serde_json::to_string(&ApprovalView::new(&approval, &ReservedFolders::default())).unwrap();
        RawObject::parse(&RawJson::trusted(text)).unwrap()
    };
    let whole = details("{ \"a\" : [1.50, \"\\u202e\"]\n}");
    assert_eq!(whole.get("arguments").unwrap().text(), r#"{"a":[1.50,"\u202e"]}"#);
    assert_eq!(
        whole.string("outcome").unwrap(),
        "If you allow it once, \"files\" runs this tool with exactly these arguments, once."
    );
    assert_eq!(whole.list("warnings").unwrap().len(), 1);
    let long = details(&format!(r#"{{"text":"{}","path":"/x"}}"#, "word ".repeat(60_000)));
    let beginning = long.string("arguments-beginning").unwrap();
    assert!(
        long.get("arguments").is_none() && beginning.starts_with("path: \"/x\"\ntext (300000 bytes):"),
        "{beginning:.99}"
    );
    assert!(beginning.ends_with("bytes more are not shown here\n") && beginning.len() < 80_000);
}

#[test]
fn ids_read_back_as_written_and_nothing_else_does() {
    let id = ApprovalId::new(*b"0123456789abcdef");
    let text = id.to_string();
    assert_eq!((text.len(), ApprovalId::parse(&text)), (26, Some(id)));
    assert_eq!(ApprovalId::parse(&text.to_uppercase()), Some(id));
    for wrong in
        ["", "x", &text[1..], &format!("{text}a"), &format!("{}z", &text[..25]), "0123456789012345678901234\u{e9}"]
    {
        assert_eq!(ApprovalId::parse(wrong), None, "{wrong}");
    }
}

fn desk() -> ApprovalDesk {
    ApprovalDesk::new(DeskLimits { max_open: 5, per_minute: 3 })
}

fn open(
    desk: &mut ApprovalDesk,
    asked: &ApprovalSubject,
    n: u8,
    now: SteadySeconds,
) -> Result<OpeningResult, ApprovalRefusal> {
    desk.open(asked.clone(), shown(), ApprovalId::new([n; 16]), now, 900, None)
}

fn answer(
    desk: &mut ApprovalDesk,
    n: u8,
    answer: PersonAnswer,
    evidence: ApprovalEvidence,
    now: SteadySeconds,
) -> Result<Option<ApprovalGrant>, AnswerError> {
    desk.answer(&ApprovalId::new([n; 16]), answer, evidence, "by", now, Arc::from("id"))
}

fn of(item: &str) -> ApprovalSubject {
    ApprovalSubject { item: Arc::from(item), ..asked() }
}

#[test]
fn a_denial_is_remembered_for_ten_minutes_for_the_same_action() {
    let mut desk = desk();
    open(&mut desk, &asked(), 1, 0).unwrap();
    assert!(answer(&mut desk, 1, PersonAnswer::Deny, ApprovalEvidence::Client, 10).unwrap().is_none());
    assert_eq!(open(&mut desk, &asked(), 2, 609), Err(ApprovalRefusal::Declined));
    let other_arguments = ApprovalSubject { arguments: Digest::of(b"x"), ..asked() };
    open(&mut desk, &other_arguments, 3, 609).unwrap();
    answer(&mut desk, 3, PersonAnswer::Dismiss, ApprovalEvidence::Client, 609).unwrap();
    open(&mut desk, &asked(), 4, 610).unwrap();
}

#[test]
fn what_nobody_answers_is_not_asked_for_longer_and_longer() {
    let mut desk = desk();
    let mut now = 0;
    for (round, embargo) in [600, 3600, 24 * 3600, 24 * 3600].into_iter().enumerate() {
        for n in 0..3 {
            now += 60;
            open(&mut desk, &asked(), n, now).unwrap_or_else(|why| panic!("round {round}: {why}"));
            if n == 1 {
                answer(&mut desk, n, PersonAnswer::Dismiss, ApprovalEvidence::Client, now).unwrap();
            } else {
                now += 900;
                assert_eq!(desk.expire(now).len(), 1);
            }
        }
        assert_eq!(
            open(&mut desk, &asked(), 9, now),
            Err(ApprovalRefusal::Embargo { unanswered: 3, until: now + embargo })
        );
        open(&mut desk, &of("files__other"), 10, now).unwrap();
        desk.supersede(|_| true);
        now += embargo;
    }
    open(&mut desk, &asked(), 1, now).unwrap();
    answer(&mut desk, 1, PersonAnswer::Deny, ApprovalEvidence::Client, now).unwrap();
    for n in 0..2 {
        now += 600;
        open(&mut desk, &asked(), n, now).unwrap();
        answer(&mut desk, n, PersonAnswer::Dismiss, ApprovalEvidence::Client, now).unwrap();
    }
    open(&mut desk, &asked(), 3, now + 60).expect("an answer forgives what was before");
}

#[test]
fn an_answer_gives_what_its_evidence_may_give() {
    use ApprovalEvidence::{Client, Operator, Page};
    use GrantLifetime::{Once, Session, Until, UntilChanged};
    let refused = |need| Err(AnswerError::Evidence(need));
    for (label, need, destructive, session, lifetime, evidence, want) in [
        ("L1 once", Client, false, true, Once, Client, Ok(GrantArguments::Exact)),
        ("L1 session", Client, false, true, Session, Client, Ok(GrantArguments::Any)),
        ("L1 session, destructive", Client, true, true, Session, Client, Ok(GrantArguments::Exact)),
        ("L2 session, destructive", Page, true, true, Session, Page, Ok(GrantArguments::Any)),
        ("no session", Client, false, false, Session, Operator, Err(AnswerError::NoSession)),
        ("L1 for a time", Client, false, true, Until(900), Client, Err(AnswerError::TooLong)),
        ("L1 always", Client, false, true, UntilChanged, Client, Err(AnswerError::TooLong)),
        ("L1 for L2", Page, false, true, Once, Client, refused(Page)),
        ("L2 for L3", Operator, false, true, UntilChanged, Page, refused(Operator)),
        ("L2 for a time", Page, false, true, Until(900), Page, Ok(GrantArguments::Any)),
        ("L2 for no time", Page, false, true, Until(10), Page, Err(AnswerError::Past)),
        ("L3 always", Client, true, false, UntilChanged, Operator, Ok(GrantArguments::Any)),
        ("L3 once", Operator, true, false, Once, Operator, Ok(GrantArguments::Exact)),
    ] {
        let mut desk = desk();
        let asked = ApprovalSubject { need, destructive, session: session.then_some(1), ..asked() };
        open(&mut desk, &asked, 1, 10).unwrap();
        let got = answer(&mut desk, 1, PersonAnswer::Allow(lifetime), evidence, 10);
        assert_eq!(got.map(|grant| grant.unwrap().arguments()), want, "{label}");
        assert_eq!(desk.open_approvals().count(), usize::from(want.is_err()), "{label}: refused answers leave it open");
    }
}

#[test]
fn a_refused_call_burns_nothing_and_a_lasting_grant_goes_first() {
    let row = |id: &str, lifetime| GrantRow {
        id: Arc::from(id),
        asked: asked(),
        arguments: GrantArguments::of(lifetime, ApprovalEvidence::Page, false),
        lifetime,
        evidence: ApprovalEvidence::Page,
        by: Arc::from("by"),
        granted_at: 0,
        last_used: 0,
        uses: 0,
    };
    let once = LiveGrants::new(90 * 24 * 3600).with(Arc::new(ApprovalGrant::new(row("once", GrantLifetime::Once))));
    let first = once.claim(&asked(), 1, None).unwrap();
    assert!(once.claim(&asked(), 1, None).is_none(), "of two calls one gets it");
    drop(first);
    assert!(once.claim(&asked(), ONCE_LIFE, None).is_none(), "nobody remembers");
    let both = once.with(Arc::new(ApprovalGrant::new(row("lasting", GrantLifetime::Until(5)))));
    assert!(!both.claim(&asked(), 4, None).unwrap().is_once());
    assert!(both.claim(&asked(), 5, None).unwrap().is_once(), "its time is over");
    let spent = both.claim(&asked(), 5, None).unwrap().spend();
    assert_eq!((spent.uses(), spent.last_used(), spent.unwritten()), (1, 5, 1));
    assert!(both.claim(&asked(), 5, None).is_none());
    assert_eq!(both.without(ApprovalGrant::is_once).len(), 1);
}

#[test]
fn the_record_of_a_grave_use_is_durable() {
    let session = GrantLifetime::Session;
    for (label, lifetime, need, destructive, [first, later]) in [
        ("a lasting grant", session, ApprovalEvidence::Client, false, [true, false]),
        ("until it changes", GrantLifetime::UntilChanged, ApprovalEvidence::Client, false, [true, false]),
        ("for one call", GrantLifetime::Once, ApprovalEvidence::Client, false, [true, true]),
        ("more than a client's word", session, ApprovalEvidence::Page, false, [true, true]),
        ("known to destroy", session, ApprovalEvidence::Client, true, [true, true]),
    ] {
        let row = GrantRow {
            id: Arc::from("id"),
            // The evidence that the rule needed when the grant was given does not matter.
            asked: asked(),
            arguments: GrantArguments::Any,
            lifetime,
            evidence: ApprovalEvidence::Operator,
            by: Arc::from("by"),
            granted_at: 0,
            last_used: 0,
            uses: 0,
        };
        let annotations = Annotations { known_destructive: destructive, ..Annotations::default() };
        let grant = Arc::new(ApprovalGrant::new(row.clone()));
        let permit = Permit::consented(Arc::from("rule"), Arc::clone(&grant), need);
        assert_eq!(permit.is_grave(annotations), first, "{label}");
        grant.set_recorded();
        assert_eq!(permit.is_grave(annotations), later, "{label}, recorded");
        let kept = Arc::new(ApprovalGrant::new(GrantRow { uses: 1, ..row }));
        assert_eq!(
            Permit::consented(Arc::from("rule"), kept, need).is_grave(annotations),
            later,
            "{label}, used before"
        );
    }
}

#[test]
fn a_lasting_grant_is_about_all_calls_of_one_item() {
    let grant = |lifetime, evidence| {
        ApprovalGrant::new(GrantRow {
            id: Arc::from("g"),
            asked: asked(),
            arguments: GrantArguments::Exact,
            lifetime,
            evidence,
            by: Arc::from("op"),
            granted_at: 100,
            last_used: 100,
            uses: 0,
        })
    };
    let lasting = |lifetime, evidence, about: &ApprovalSubject, now| {
        LiveGrants::new(1_000_000).with(Arc::new(grant(lifetime, evidence))).lasting(about, now)
    };
    let other = Digest::of(b"other");
    for (label, lifetime, about, now, want) in [
        ("until a date", GrantLifetime::Until(200), asked(), 150, true),
        ("its time is over", GrantLifetime::Until(200), asked(), 200, false),
        ("until it changes", GrantLifetime::UntilChanged, asked(), 150, true),
        ("once", GrantLifetime::Once, asked(), 150, false),
        ("for the session", GrantLifetime::Session, asked(), 150, true),
        ("for another session", GrantLifetime::Session, ApprovalSubject { session: Some(2), ..asked() }, 150, false),
        ("other arguments", GrantLifetime::UntilChanged, ApprovalSubject { arguments: other, ..asked() }, 150, true),
        (
            "a URI of the same template",
            GrantLifetime::UntilChanged,
            ApprovalSubject { item: Arc::from("files__y"), ..asked() },
            150,
            true,
        ),
        (
            "another definition",
            GrantLifetime::UntilChanged,
            ApprovalSubject { definition: other, ..asked() },
            150,
            false,
        ),
        ("another launch", GrantLifetime::UntilChanged, ApprovalSubject { launch: other, ..asked() }, 150, false),
        (
            "another caller",
            GrantLifetime::UntilChanged,
            ApprovalSubject { caller: Caller::named("eve"), ..asked() },
            150,
            false,
        ),
        (
            "another upstream",
            GrantLifetime::UntilChanged,
            ApprovalSubject { upstream: Arc::from("b"), ..asked() },
            150,
            false,
        ),
        (
            "another kind",
            GrantLifetime::UntilChanged,
            ApprovalSubject { kind: ActionKind::Prompt, ..asked() },
            150,
            false,
        ),
        ("another rule", GrantLifetime::UntilChanged, ApprovalSubject { rule: Arc::from("r"), ..asked() }, 150, false),
        (
            "more evidence",
            GrantLifetime::UntilChanged,
            ApprovalSubject { need: ApprovalEvidence::Operator, ..asked() },
            150,
            false,
        ),
    ] {
        assert_eq!(lasting(lifetime, ApprovalEvidence::Page, &about, now), want, "{label}");
    }
}

#[test]
fn stricter_bounds_hold_for_open_approvals() {
    let mut desk = ApprovalDesk::new(DeskLimits { max_open: 5, per_minute: 100 });
    let mut open = |caller: &str, item: &str, now: SteadySeconds| {
        let asked = ApprovalSubject { caller: Caller::named(caller), item: Arc::from(item), ..asked() };
        let id = ApprovalId::new([u8::try_from(now).unwrap(); 16]);
        desk.open(asked, shown(), id, now, 900, None).unwrap().id
    };
    let (first, second, other) = (open("ci", "a", 10), open("ci", "b", 20), open("dev", "a", 30));
    let closed = desk.set_limits(DeskLimits { max_open: 1, per_minute: 1 }, |_| 60);
    assert_eq!(closed, [second], "the newest of a caller with too many");
    let until = |id: &ApprovalId| desk.get(id).map(|approval| approval.until);
    assert_eq!([until(&first), until(&second), until(&other)], [Some(70), None, Some(90)]);
    assert!(desk.set_limits(DeskLimits { max_open: 9, per_minute: 9 }, |_| 9000).is_empty());
    assert_eq!(desk.get(&first).map(|approval| approval.until), Some(70), "a longer life is for what is opened later");
    let late = desk.answer(
        &first,
        PersonAnswer::Allow(GrantLifetime::Once),
        ApprovalEvidence::Operator,
        "me",
        70,
        Arc::from("g"),
    );
    assert_eq!(late.err(), Some(AnswerError::Unknown));
}
