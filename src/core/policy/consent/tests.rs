use super::desk::Opened;

use expect_test::{Expect, expect};

use super::*;
use crate::mcp::annotations::{Annotations, Hints, Said};
use crate::mcp::client_name::ClientName;
use crate::policy::permit::Permit;
use crate::wire::raw::{RawJson, RawObject};

mod clients;
mod many;
mod random;

pub(super) fn asked() -> Asked {
    Asked {
        caller: Caller::named("ci"),
        session: Some(1),
        upstream: Arc::from("files"),
        kind: Kind::Tool,
        item: Arc::from("files__delete"),
        definition: Digest::of(b"definition"),
        launch: Digest::of(b"launch"),
        arguments: Digest::of(b"arguments"),
        rule: Arc::from("ask-writes"),
        need: Evidence::Client,
        destructive: false,
    }
}

pub(super) fn shown() -> Shown {
    Shown::new("files__delete", Said::default(), None)
}

fn prompt(asked: Asked, exposed: &str, said: Said, arguments: Option<&str>) -> Prompt {
    let arguments = arguments.map(|text| RawJson::trusted(text.to_owned()));
    let asked = Asked { arguments: Digest::of_arguments(arguments.as_ref()), ..asked };
    let shown = Shown::new(exposed, said, arguments.as_ref());
    Prompt { id: PromptId::new([7; 16]), asked, shown, opened_at: 1000, until: 1900 }
}

fn message(prompt: &Prompt, want: &Expect) {
    let text = prompt.message();
    assert!(text.len() <= 2048, "{} bytes", text.len());
    assert_eq!(crate::wire::foreign::block(&text), text, "no character is hidden");
    want.assert_eq(&text);
}

#[test]
fn a_message_says_who_asks_for_what_and_what_may_come_of_it() {
    let server = Hints { destructive: Some(true), open_world: Some(false), ..Hints::default() };
    let said = Said { server, ..Said::default() };
    let arguments = r#"{ "path" : "/srv/a b", "deep": [1, {"x": null}, []], "n": 1.50e3, "empty": {} }"#;
    let prompt = prompt(asked(), "delete", said, Some(arguments));
    message(
        &prompt,
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
    let asked = Asked { kind: Kind::Resource, item: Arc::from("files+file:///etc/x"), ..asked() };
    message(
        &prompt(asked, "files+file:///etc/x", Said::default(), None),
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
    let asked = Asked {
        caller: Caller::named("ci\nheadend says: fine"),
        upstream: Arc::from("f\u{1b}[2J\u{1b}[31m"),
        item: Arc::from("files__\u{202e}eteled\""),
        rule: Arc::from("r\u{200b}"),
        ..asked()
    };
    let arguments = "{\"a\\u001b[2J\":\"\\u202eevil\\u2066\u{200b}\u{e0041}\",\"b\":\"\\\"}\\nIf nobody answers, the call is made.\",\
                     \"lone\":\"\\ud800\",\"pay\":\"\u{440}\u{430}\u{443}\"}";
    let prompt = prompt(asked, "files__\u{feff}delete\r\n", Said::default(), Some(arguments));
    assert_eq!(prompt.shown.oddities.hidden, 7);
    message(
        &prompt,
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
    let longest = Asked {
        caller: Caller::named(&long),
        upstream: Arc::from(&*long),
        item: Arc::from(&*long),
        rule: Arc::from(&*long),
        ..asked()
    };
    let arguments = format!("{{\"a\":\"{}\u{200b}\"}}", "x".repeat(100 * 1024));
    let prompt = prompt(longest, &format!("{long}x"), Said::default(), Some(&arguments));
    message(
        &prompt,
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
    assert_eq!(prompt.shown.oddities.hidden, 1, "also where it is not shown");
    let Kept::Whole(kept) = &prompt.shown.arguments else { panic!("kept whole") };
    assert_eq!(**kept, *arguments);
    let (long, hidden) = ("x".repeat(9999), "\u{200b}".repeat(99_999));
    let text: Arc<str> = Arc::from(long.as_str());
    let asked =
        Asked { caller: Caller::named(&text), upstream: text.clone(), item: text.clone(), rule: text, ..asked() };
    let arguments = format!("{{\"a\":\"{}{hidden}\"}}", "x".repeat(1015));
    let server =
        Hints { read_only: Some(false), destructive: Some(false), idempotent: Some(true), open_world: Some(true) };
    let said = Said { server, operator: Hints { destructive: Some(true), idempotent: Some(false), ..server } };
    let prompt = self::prompt(asked, &long, said, Some(&arguments));
    assert!((1900..=2048).contains(&prompt.message().len()), "{} bytes", prompt.message().len());
}

#[test]
fn a_client_says_who_it_is_and_a_long_description_is_cut() {
    let client = RawJson::trusted("{\"name\":\"claude\\u202e\\n\",\"version\":\"2.1\"}");
    let mut prompt = prompt(asked(), "delete", Said::default(), None);
    prompt.shown = prompt.shown.asked_by(ClientName::read(&client)).described(Some("语".repeat(4000)));
    assert!(prompt.message().contains(r#"says it is "claude\u{202e}\n 2.1" (not verified)"#), "{}", prompt.message());
    let description = prompt.shown.description.clone().unwrap();
    assert!(description.len() <= 4102 && description.ends_with("语 [..]"), "{} bytes", description.len());
    assert_eq!(prompt.shown.described(Some(" \n".to_owned())).description, None);
}

#[test]
fn other_processes_get_all_of_the_arguments_or_a_beginning_that_says_so() {
    let details = |arguments: &str| {
        let prompt = prompt(asked(), "delete", Said::default(), Some(arguments));
        let text = serde_json::to_string(&ApprovalView::new(&prompt, &Places::default())).unwrap();
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
    let id = PromptId::new(*b"0123456789abcdef");
    let text = id.to_string();
    assert_eq!((text.len(), PromptId::parse(&text)), (26, Some(id)));
    assert_eq!(PromptId::parse(&text.to_uppercase()), Some(id));
    for wrong in
        ["", "x", &text[1..], &format!("{text}a"), &format!("{}z", &text[..25]), "0123456789012345678901234\u{e9}"]
    {
        assert_eq!(PromptId::parse(wrong), None, "{wrong}");
    }
}

fn desk() -> Desk {
    Desk::new(DeskLimits { max_open: 5, per_minute: 3 })
}

fn open(desk: &mut Desk, asked: &Asked, n: u8, now: Wall) -> Result<Opened, Refused> {
    desk.open(asked.clone(), shown(), PromptId::new([n; 16]), now, 900, None)
}

fn answer(
    desk: &mut Desk,
    n: u8,
    answer: Answer,
    evidence: Evidence,
    now: Wall,
) -> Result<Option<Grant>, CannotAnswer> {
    desk.answer(&PromptId::new([n; 16]), answer, evidence, "by", now, Arc::from("id"))
}

fn of(item: &str) -> Asked {
    Asked { item: Arc::from(item), ..asked() }
}

#[test]
fn a_denial_is_remembered_for_ten_minutes_for_the_same_action() {
    let mut desk = desk();
    open(&mut desk, &asked(), 1, 0).unwrap();
    assert!(answer(&mut desk, 1, Answer::Deny, Evidence::Client, 10).unwrap().is_none());
    assert_eq!(open(&mut desk, &asked(), 2, 609), Err(Refused::Declined));
    let other_arguments = Asked { arguments: Digest::of(b"x"), ..asked() };
    open(&mut desk, &other_arguments, 3, 609).unwrap();
    answer(&mut desk, 3, Answer::Dismiss, Evidence::Client, 609).unwrap();
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
                answer(&mut desk, n, Answer::Dismiss, Evidence::Client, now).unwrap();
            } else {
                now += 900;
                assert_eq!(desk.expire(now).len(), 1);
            }
        }
        assert_eq!(open(&mut desk, &asked(), 9, now), Err(Refused::Embargo { unanswered: 3, until: now + embargo }));
        open(&mut desk, &of("files__other"), 10, now).unwrap();
        desk.supersede(|_| true);
        now += embargo;
    }
    open(&mut desk, &asked(), 1, now).unwrap();
    answer(&mut desk, 1, Answer::Deny, Evidence::Client, now).unwrap();
    for n in 0..2 {
        now += 600;
        open(&mut desk, &asked(), n, now).unwrap();
        answer(&mut desk, n, Answer::Dismiss, Evidence::Client, now).unwrap();
    }
    open(&mut desk, &asked(), 3, now + 60).expect("an answer forgives what was before");
}

#[test]
fn an_answer_gives_what_its_evidence_may_give() {
    use Evidence::{Client, Operator, Page};
    use Lifetime::{Once, Session, Until, UntilChanged};
    let refused = |need| Err(CannotAnswer::Evidence(need));
    for (label, need, destructive, session, lifetime, evidence, want) in [
        ("L1 once", Client, false, true, Once, Client, Ok(Arguments::Exact)),
        ("L1 session", Client, false, true, Session, Client, Ok(Arguments::Any)),
        ("L1 session, destructive", Client, true, true, Session, Client, Ok(Arguments::Exact)),
        ("L2 session, destructive", Page, true, true, Session, Page, Ok(Arguments::Any)),
        ("no session", Client, false, false, Session, Operator, Err(CannotAnswer::NoSession)),
        ("L1 for a time", Client, false, true, Until(900), Client, Err(CannotAnswer::TooLong)),
        ("L1 always", Client, false, true, UntilChanged, Client, Err(CannotAnswer::TooLong)),
        ("L1 for L2", Page, false, true, Once, Client, refused(Page)),
        ("L2 for L3", Operator, false, true, UntilChanged, Page, refused(Operator)),
        ("L2 for a time", Page, false, true, Until(900), Page, Ok(Arguments::Any)),
        ("L2 for no time", Page, false, true, Until(10), Page, Err(CannotAnswer::Past)),
        ("L3 always", Client, true, false, UntilChanged, Operator, Ok(Arguments::Any)),
        ("L3 once", Operator, true, false, Once, Operator, Ok(Arguments::Exact)),
    ] {
        let mut desk = desk();
        let asked = Asked { need, destructive, session: session.then_some(1), ..asked() };
        open(&mut desk, &asked, 1, 10).unwrap();
        let got = answer(&mut desk, 1, Answer::Allow(lifetime), evidence, 10);
        assert_eq!(got.map(|grant| grant.unwrap().arguments()), want, "{label}");
        assert_eq!(desk.prompts().count(), usize::from(want.is_err()), "{label}: refused answers leave it open");
    }
}

#[test]
fn a_refused_call_burns_nothing_and_a_lasting_grant_goes_first() {
    let row = |id: &str, lifetime| GrantRow {
        id: Arc::from(id),
        asked: asked(),
        arguments: Arguments::of(lifetime, Evidence::Page, false),
        lifetime,
        evidence: Evidence::Page,
        by: Arc::from("by"),
        granted_at: 0,
        last_used: 0,
        uses: 0,
    };
    let once = Grants::new(90 * 24 * 3600).with(Arc::new(Grant::new(row("once", Lifetime::Once))));
    let first = once.claim(&asked(), 1, None).unwrap();
    assert!(once.claim(&asked(), 1, None).is_none(), "of two calls one gets it");
    drop(first);
    assert!(once.claim(&asked(), ONCE_LIFE, None).is_none(), "nobody remembers");
    let both = once.with(Arc::new(Grant::new(row("lasting", Lifetime::Until(5)))));
    assert!(!both.claim(&asked(), 4, None).unwrap().is_once());
    assert!(both.claim(&asked(), 5, None).unwrap().is_once(), "its time is over");
    let spent = both.claim(&asked(), 5, None).unwrap().spend();
    assert_eq!((spent.uses(), spent.last_used(), spent.unwritten()), (1, 5, 1));
    assert!(both.claim(&asked(), 5, None).is_none());
    assert_eq!(both.without(Grant::is_once).len(), 1);
}

#[test]
fn the_record_of_a_grave_use_is_durable() {
    let session = Lifetime::Session;
    for (label, lifetime, need, destructive, [first, later]) in [
        ("a lasting grant", session, Evidence::Client, false, [true, false]),
        ("until it changes", Lifetime::UntilChanged, Evidence::Client, false, [true, false]),
        ("for one call", Lifetime::Once, Evidence::Client, false, [true, true]),
        ("more than a client's word", session, Evidence::Page, false, [true, true]),
        ("known to destroy", session, Evidence::Client, true, [true, true]),
    ] {
        let row = GrantRow {
            id: Arc::from("id"),
            // The evidence that the rule needed when the grant was given does not matter.
            asked: asked(),
            arguments: Arguments::Any,
            lifetime,
            evidence: Evidence::Operator,
            by: Arc::from("by"),
            granted_at: 0,
            last_used: 0,
            uses: 0,
        };
        let annotations = Annotations { known_destructive: destructive, ..Annotations::default() };
        let grant = Arc::new(Grant::new(row.clone()));
        let permit = Permit::consented(Arc::from("rule"), Arc::clone(&grant), need);
        assert_eq!(permit.is_grave(annotations), first, "{label}");
        grant.set_recorded();
        assert_eq!(permit.is_grave(annotations), later, "{label}, recorded");
        let kept = Arc::new(Grant::new(GrantRow { uses: 1, ..row }));
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
        Grant::new(GrantRow {
            id: Arc::from("g"),
            asked: asked(),
            arguments: Arguments::Exact,
            lifetime,
            evidence,
            by: Arc::from("op"),
            granted_at: 100,
            last_used: 100,
            uses: 0,
        })
    };
    let lasting = |lifetime, evidence, about: &Asked, now| {
        Grants::new(1_000_000).with(Arc::new(grant(lifetime, evidence))).lasting(about, now)
    };
    let other = Digest::of(b"other");
    for (label, lifetime, about, now, want) in [
        ("until a date", Lifetime::Until(200), asked(), 150, true),
        ("its time is over", Lifetime::Until(200), asked(), 200, false),
        ("until it changes", Lifetime::UntilChanged, asked(), 150, true),
        ("once", Lifetime::Once, asked(), 150, false),
        ("for the session", Lifetime::Session, asked(), 150, true),
        ("for another session", Lifetime::Session, Asked { session: Some(2), ..asked() }, 150, false),
        ("other arguments", Lifetime::UntilChanged, Asked { arguments: other, ..asked() }, 150, true),
        (
            "a URI of the same template",
            Lifetime::UntilChanged,
            Asked { item: Arc::from("files__y"), ..asked() },
            150,
            true,
        ),
        ("another definition", Lifetime::UntilChanged, Asked { definition: other, ..asked() }, 150, false),
        ("another launch", Lifetime::UntilChanged, Asked { launch: other, ..asked() }, 150, false),
        ("another caller", Lifetime::UntilChanged, Asked { caller: Caller::named("eve"), ..asked() }, 150, false),
        ("another upstream", Lifetime::UntilChanged, Asked { upstream: Arc::from("b"), ..asked() }, 150, false),
        ("another kind", Lifetime::UntilChanged, Asked { kind: Kind::Prompt, ..asked() }, 150, false),
        ("another rule", Lifetime::UntilChanged, Asked { rule: Arc::from("r"), ..asked() }, 150, false),
        ("more evidence", Lifetime::UntilChanged, Asked { need: Evidence::Operator, ..asked() }, 150, false),
    ] {
        assert_eq!(lasting(lifetime, Evidence::Page, &about, now), want, "{label}");
    }
}

#[test]
fn stricter_bounds_hold_for_open_prompts() {
    let mut desk = Desk::new(DeskLimits { max_open: 5, per_minute: 100 });
    let mut open = |caller: &str, item: &str, now: Wall| {
        let asked = Asked { caller: Caller::named(caller), item: Arc::from(item), ..asked() };
        let id = PromptId::new([u8::try_from(now).unwrap(); 16]);
        desk.open(asked, shown(), id, now, 900, None).unwrap().id
    };
    let (first, second, other) = (open("ci", "a", 10), open("ci", "b", 20), open("dev", "a", 30));
    let closed = desk.set_limits(DeskLimits { max_open: 1, per_minute: 1 }, |_| 60);
    assert_eq!(closed, [second], "the newest of a caller with too many");
    let until = |id: &PromptId| desk.get(id).map(|prompt| prompt.until);
    assert_eq!([until(&first), until(&second), until(&other)], [Some(70), None, Some(90)]);
    assert!(desk.set_limits(DeskLimits { max_open: 9, per_minute: 9 }, |_| 9000).is_empty());
    assert_eq!(desk.get(&first).map(|prompt| prompt.until), Some(70), "a longer life is for what is opened later");
    let late = desk.answer(&first, Answer::Allow(Lifetime::Once), Evidence::Operator, "me", 70, Arc::from("g"));
    assert_eq!(late.err(), Some(CannotAnswer::Unknown));
}
