use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::catalog::name::UpstreamName;
use crate::mcp::asking::kinds::Audience;
use crate::mcp::method::ItemList;
use crate::policy::ToolListing;
use crate::policy::{AskerListing, PinDecisionError};
use crate::store::pin_record::PinText;
use crate::wire::json::raw::RawJson;

mod many_changes;

const MOST: usize = 200;
const TIER: PinTier = PinTier { trust: UpstreamTrust::Standard, on_change: ChangePolicy::Quarantine, most: MOST };
const UNTRUSTED: PinTier = PinTier { trust: UpstreamTrust::Untrusted, ..TIER };

fn name() -> UpstreamName {
    UpstreamName::parse("fx").unwrap()
}

fn tool(key: &str, description: &str) -> Definition {
    let text = format!(r#"{{"name":"{key}","description":"{description}"}}"#);
    Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
}

fn resource(n: usize) -> Definition {
    let text = format!(r#"{{"uri":"fx://{n}","name":"n"}}"#);
    Definition::read(ItemList::Resources, &RawJson::trusted(text)).unwrap()
}

fn of_items<'i>(items: &'i [&'i Definition]) -> ListedItems<'i> {
    ListedItems { items, is_recalled: false, removed: 0, reading: None }
}

/// Judges the items; returns for each whether it is shown.
fn shown(pins: &PinRegistry, tier: PinTier, items: &[Definition]) -> Vec<bool> {
    let items: Vec<&Definition> = items.iter().collect();
    pins.judge(&name(), tier, of_items(&items), &|_| None)
        .iter()
        .map(|judged| !matches!(judged, ItemVerdict::Away(_)))
        .collect()
}

#[tokio::test]
async fn a_hint_that_loosens_waits_even_where_changes_are_accepted() {
    let accept = PinTier { on_change: ChangePolicy::Accept, ..TIER };
    let hinted = |description: &str, hints: &str| {
        let text = format!(r#"{{"name":"a","description":"{description}","annotations":{{{hints}}}}}"#);
        Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
    };
    for tier in [accept, PinTier { trust: UpstreamTrust::Trusted, ..accept }] {
        let pins = PinRegistry::memory();
        let sees = |item: &Definition| shown(&pins, tier, std::slice::from_ref(item)) == [true];
        assert!(sees(&hinted("one", r#""readOnlyHint":false"#)));
        assert!(sees(&hinted("two", r#""readOnlyHint":false,"destructiveHint":true"#)), "it tightens");
        let loose = hinted("two", r#""readOnlyHint":true"#);
        assert!(!sees(&loose) && !sees(&loose), "it stays away");
        assert!(!sees(&hinted("two", r#""readOnlyHint":false"#)), "a warning that is taken back is a promise");
        let warns = r#""readOnlyHint":false,"destructiveHint":true"#;
        assert!(sees(&hinted("three", warns)), "a later text that promises nothing is accepted");
        assert!(!sees(&loose));
        pins.approve("fx__a", None, loose.digest, "local").await.unwrap();
        assert!(sees(&loose));
        assert!(sees(&hinted("four", r#""readOnlyHint":true"#)), "a promise that was approved is no news");
    }
}

#[tokio::test]
async fn a_change_waits_until_what_was_shown_is_approved() {
    let pins = PinRegistry::memory();
    let (calls, persons) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counted, named) = (Arc::clone(&calls), Arc::clone(&persons));
    pins.on_change(Box::new(move |news| {
        counted.fetch_add(news.over().len(), Ordering::SeqCst);
        named.lock().extend(news.entries().into_iter().map(|entry| entry.by));
    }));
    let (one, two, three) = (tool("a", "one"), tool("a", "two"), tool("a", "three"));
    assert_eq!(shown(&pins, TIER, &[one.clone(), tool("b", "x")]), [true, true]);
    assert_eq!(calls.load(Ordering::SeqCst), 0, "first sight ends no consent");
    assert_eq!(shown(&pins, TIER, &[two.clone(), tool("b", "x")]), [false, true]);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(shown(&pins, TIER, &[]), [] as [bool; 0]);
    assert_eq!(shown(&pins, TIER, std::slice::from_ref(&two)), [false], "gone and back again launders nothing");
    let view = pins.find("fx__a", None).unwrap();
    assert_eq!(
        (view.state, view.approved_digest, view.shown()),
        (PinState::Changed, Some(one.digest), Some(two.digest))
    );
    assert!(view.approved.unwrap().contains("one") && view.waiting.unwrap().contains("two"));
    assert_eq!(shown(&pins, TIER, std::slice::from_ref(&three)), [false]);
    let late = pins.approve("fx__a", None, two.digest, "local").await;
    assert!(matches!(late, Err(PinError::Undecided(PinDecisionError::ChangedSince))), "{late:?}");
    pins.approve("fx__a", None, three.digest, "uid:1").await.unwrap();
    assert_eq!(*persons.lock(), [None, None, Some(Arc::from("uid:1"))], "a change of a server has no person");
    assert_eq!(shown(&pins, TIER, &[three]), [true]);
    assert_eq!(calls.load(Ordering::SeqCst), 1, "what waited had no consents");
    assert!(matches!(pins.find("fx__nobody", None), Err(PinError::Unknown(_))));
}

#[tokio::test]
async fn pins_outlive_the_process_and_are_shared_with_others() {
    let dir = tempfile::tempdir().unwrap();
    let open = || PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap();
    let (first, second) = (open(), open());
    let (one, two) = (tool("a", "one"), tool("a", "two"));
    assert_eq!(shown(&first, TIER, std::slice::from_ref(&one)), [true]);
    assert_eq!(
        shown(&second, TIER, std::slice::from_ref(&two)),
        [false],
        "what another process pinned counts here at once"
    );
    second.approve("fx__a", None, two.digest, "local").await.unwrap();
    assert!(first.refresh().await.unwrap());
    assert!(!first.refresh().await.unwrap());
    assert_eq!(shown(&first, TIER, std::slice::from_ref(&one)), [false]);
    drop((first, second));
    let third = open();
    assert_eq!(shown(&third, TIER, &[one]), [false], "after a restart");
    third.reject("fx__a", None, third.find("fx__a", None).unwrap().shown().unwrap(), "local").await.unwrap();
    assert_eq!(third.find("fx__a", None).unwrap().state, PinState::Rejected);
    drop(third);
    assert_eq!(shown(&open(), TIER, &[two]), [true], "the old pin stays");
}

#[test]
fn an_untrusted_upstream_shows_nothing_by_itself_and_kinds_are_told_apart() {
    let pins = PinRegistry::memory();
    let prompt = Definition::read(ItemList::Prompts, &RawJson::trusted(r#"{"name":"a"}"#)).unwrap();
    assert_eq!(shown(&pins, UNTRUSTED, &[tool("a", "one"), prompt]), [false, false]);
    assert!(matches!(pins.find("fx__a", None), Err(PinError::Several(_))));
    assert_eq!(pins.find("fx__a", Some(PinKind::Prompt)).unwrap().state, PinState::Quarantined);
    assert_eq!(pins.list().len(), 2);
}

#[test]
fn resources_come_and_go_but_a_tools_pin_is_never_pushed_out() {
    let pins = PinRegistry::memory();
    let many: Vec<Definition> = (0..MOST).map(resource).collect();
    assert!(shown(&pins, TIER, &many).iter().all(|shown| *shown));
    let more: Vec<Definition> = (MOST..MOST + 10).map(resource).collect();
    assert_eq!(shown(&pins, TIER, &more), [true; 10]);
    assert_eq!(pins.list().len(), MOST);
    let tools: Vec<Definition> = (0..MOST).map(|n| tool(&format!("t{n}"), "one")).collect();
    assert!(shown(&pins, TIER, &tools).iter().all(|shown| *shown));
    assert_eq!(shown(&pins, TIER, &[tool("new", "x")]), [false]);
    let roomier = PinTier { most: MOST + 1, ..TIER };
    let in_order = shown(&pins, roomier, &[tool("one", "x"), tool("t1", "one"), tool("two", "x")]);
    assert_eq!(in_order, [true, true, false], "the last ones find no room");
    assert_eq!(shown(&pins, TIER, &[tool("t0", "two")]), [false], "it was not forgotten");
}

#[tokio::test]
async fn new_launches_are_pinned_together_and_another_process_may_reject_one() {
    let text = "[upstreams.one]\nurl = \"http://127.0.0.1:9/mcp\"\n[upstreams.two]\nurl = \"http://127.0.0.1:9/mcp\"";
    let nothing = std::io::ErrorKind::NotFound;
    let (config, _) = crate::config::parse(text, "test", &|_| None, &|_| Err(nothing.into())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let pins = PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap();
    pins.pin_new_launches(config.upstreams.iter());
    let shown: Vec<String> = pins.list().iter().map(|pin| format!("{} {:?}", pin.name, pin.state)).collect();
    assert_eq!(shown, ["one Pinned", "two Pinned"]);

    let other = PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap();
    let launch = other.find("one", None).unwrap().shown().unwrap();
    other.reject("one", None, launch, "local").await.unwrap();
    let passes: Vec<bool> =
        config.upstreams.iter().map(|spec| LaunchGate::new(pins.clone(), spec, None).pass(spec).is_ok()).collect();
    assert_eq!(passes, [false, true], "what was rejected elsewhere a moment ago is not started");
}

/// A tool whose schema requires these names and whose default is these words.
fn ordered(names: &str, words: &str) -> Definition {
    let text = format!(
        r#"{{"name":"a","inputSchema":{{"required":[{names}],"properties":{{"x":{{"default":"{words}"}}}}}}}}"#
    );
    Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
}

#[tokio::test]
async fn order_that_means_nothing_changes_no_pin_and_clients_get_the_pinned_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for pins in [PinRegistry::memory(), PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap()] {
        let (one, two) = (ordered(r#""b","a""#, "z,y,x"), ordered(r#""a","b""#, "x,y,z"));
        let judged = |item: &Definition| pins.judge(&name(), TIER, of_items(&[item]), &|_| None).pop().unwrap();
        assert!(matches!(judged(&one), ItemVerdict::Shown));
        let changes = *pins.changes().borrow();
        let ItemVerdict::AsPinned(shown) = judged(&two) else { panic!("it is shown in another order") };
        assert_eq!((shown.raw, shown.digest), (one.raw.clone(), one.digest));
        assert!(matches!(judged(&one), ItemVerdict::Shown));
        assert_eq!(*pins.changes().borrow(), changes, "nothing is to be told");
        assert!(matches!(judged(&ordered(r#""a","c""#, "x,y,z")), ItemVerdict::Away(_)));
        pins.reject("fx__a", None, pins.find("fx__a", None).unwrap().shown().unwrap(), "local").await.unwrap();
        assert!(matches!(judged(&ordered(r#""c","a""#, "y,x,z")), ItemVerdict::Away(_)));
        assert_eq!(pins.find("fx__a", None).unwrap().state, PinState::Rejected, "any order of it is rejected");
        assert!(matches!(judged(&two), ItemVerdict::AsPinned(_)), "the pin holds");
    }
}

#[tokio::test]
async fn a_list_of_an_earlier_run_does_not_take_a_change_back() {
    let dir = tempfile::tempdir().unwrap();
    for pins in [PinRegistry::memory(), PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap()] {
        let judged = |item: &Definition, is_recalled| {
            matches!(
                pins.judge(&name(), TIER, ListedItems { is_recalled, ..of_items(&[item]) }, &|_| None)[..],
                [ItemVerdict::Shown]
            )
        };
        let (approved, changed) = (tool("a", "one"), tool("a", "two"));
        assert!(judged(&approved, true), "nothing is known of it");
        assert!(!judged(&changed, false));
        assert!(!judged(&approved, true), "the server has changed it since");
        assert_eq!(pins.find("fx__a", None).unwrap().state, PinState::Changed);
        assert!(judged(&approved, false), "it is back");
        assert!(!judged(&changed, true), "an approval does not outlive another list");
    }
}

#[tokio::test]
async fn one_decision_about_many_covers_what_was_shown_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    for pins in [PinRegistry::memory(), PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap()] {
        let of = |text: &str| ["a", "b", "c"].map(|key| tool(key, text));
        shown(&pins, TIER, &of("one"));
        let second = of("two");
        assert_eq!(shown(&pins, TIER, &second), [false; 3]);
        let decision = |key: &str, shown| PinDecision { name: format!("fx__{key}"), kind: PinKind::Tool, shown };
        let wanted = ["a", "b", "nobody"].map(|key| (format!("fx__{key}"), PinKind::Tool));
        let views: Vec<_> = pins.views(&wanted).into_iter().map(|view| (view.name, view.waiting_digest)).collect();
        let want = [("a", 0), ("b", 1)].map(|(key, at)| (format!("fx__{key}"), Some(second[at].digest)));
        assert_eq!(views, want);

        // One of them changes again, and one name has no pin.
        let third = tool("b", "three");
        shown(&pins, TIER, std::slice::from_ref(&third));
        let all = [
            decision("a", second[0].digest),
            decision("b", second[1].digest),
            decision("nobody", second[0].digest),
            decision("c", second[2].digest),
        ];
        let decided = pins.decide_all(&all, true, "local").await.unwrap();
        let told: Vec<String> = decided
            .iter()
            .map(|decided| decided.as_ref().map_or_else(ToString::to_string, |view| format!("{:?}", view.state)))
            .collect();
        assert_eq!((told[0].as_str(), told[3].as_str()), ("Pinned", "Pinned"));
        assert!(told[1].contains("changed again") && told[2].contains("no pin has the name"), "{told:?}");
        assert_eq!(shown(&pins, TIER, &[second[0].clone(), third.clone(), second[2].clone()]), [true, false, true]);
        let rejected = pins.decide_all(&[decision("b", third.digest)], false, "local").await.unwrap();
        assert_eq!(rejected[0].as_ref().unwrap().state, PinState::Rejected);
    }
}

/// Pins the launch of `fx` by that program, as an operator's configuration does.
fn launched(pins: &PinRegistry, program: &str) -> Digest {
    let words = format!(r#"{{"command":["{program}"]}}"#);
    let text = PinText { digest: Digest::of(words.as_bytes()), text: Arc::from(words.as_str()) };
    let digest = text.digest;
    let step = PinStep::Started { text, words, trust: UpstreamTrust::Standard, folders: Vec::new() };
    pins.take_now(vec![(PinKey::launch(&name()), step)]).unwrap();
    digest
}

/// Lists these tools; returns the names of the new ones and of those in doubt.
fn listed(pins: &PinRegistry, reading: Option<ToolListing>, tools: &[Definition], doubtful: &str) -> (String, String) {
    let items: Vec<&Definition> = tools.iter().collect();
    let doubt = |item: &Definition| (item.key == doubtful).then(|| "it looks odd".to_owned());
    pins.judge(&name(), TIER, ListedItems { reading, ..of_items(&items) }, &doubt);
    let standings = pins.standings(&name(), tools);
    let with = |test: fn(&crate::policy::PinStatus) -> bool| {
        let keys = tools.iter().map(|tool| tool.key.as_str()).filter(|key| test(&standings[*key]));
        keys.collect::<Vec<_>>().join(" ")
    };
    (with(|standing| standing.is_new), with(|standing| standing.is_doubtful))
}

#[tokio::test]
async fn a_tool_is_new_unless_the_first_inventory_of_its_launch_had_it_or_an_operator_confirmed_it() {
    let dir = tempfile::tempdir().unwrap();
    for pins in [PinRegistry::memory(), PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap()] {
        let of = |names: &str| names.split(' ').map(|key| tool(key, "one")).collect::<Vec<_>>();
        let new = |reading, tools: &[Definition]| listed(&pins, reading, tools, "").0;
        assert_eq!(new(None, &of("a")), "a", "without a launch nothing is known");
        let launch = launched(&pins, "one");
        let read = |askers| Some(ToolListing { launch, askers });
        assert_eq!(new(None, &of("a b")), "a b", "the list was not read to its end");
        let other = Some(ToolListing { launch: Digest::of(b"other"), askers: AskerListing::Read });
        assert_eq!(new(other, &of("a b")), "a b", "the list is that of another launch");
        let asked = |key: &str| {
            let mut tool = tool(key, "one");
            tool.audience = Audience::askable();
            tool
        };
        let few = asked("few");
        assert_eq!(new(read(AskerListing::Awaited), &of("a b")), "");
        assert_eq!(new(read(AskerListing::Awaited), &of("a b c")), "c");
        let with_few = [of("a b c d"), vec![few.clone()]].concat();
        assert_eq!(new(read(AskerListing::Read), &with_few), "c d");
        assert_eq!(new(read(AskerListing::Read), &[few, asked("later")]), "later");
        assert_eq!(new(None, &of("a c")), "c", "a remembered list changes nothing");

        let changes = *pins.changes().borrow();
        let shown = tool("c", "one").digest;
        let wrong = pins.approve("fx__c", None, Digest::of(b"x"), "local").await;
        assert!(matches!(wrong, Err(PinError::Undecided(PinDecisionError::ChangedSince))), "{wrong:?}");
        assert!(pins.find("fx__c", None).unwrap().is_new && !pins.find("fx__a", None).unwrap().is_new);
        let view = pins.approve("fx__c", None, shown, "uid:1").await.unwrap();
        assert!(!view.is_new && view.by == "uid:1" && *pins.changes().borrow() > changes);
        let again = pins.approve("fx__c", None, shown, "uid:1").await;
        assert!(matches!(again, Err(PinError::Undecided(PinDecisionError::NothingWaits))), "{again:?}");
        assert_eq!(new(read(AskerListing::Read), &of("a c d")), "d");

        // Another program has a first inventory of its own, and confirmations were for the old one.
        let launch = launched(&pins, "two");
        assert_eq!(new(None, &of("a b c d")), "a b c d");
        assert_eq!(new(Some(ToolListing { launch, askers: AskerListing::Read }), &of("a d")), "");
        assert_eq!(new(Some(ToolListing { launch, askers: AskerListing::Read }), &of("a b c d")), "b c");
        // A launch that comes back was listed already, and keeps its confirmations.
        let launch = launched(&pins, "one");
        assert_eq!(new(Some(ToolListing { launch, askers: AskerListing::Read }), &of("a b c d e")), "d e");
        launched(&pins, "two");
    }
    let reopened = PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap();
    let tools = ["a", "b", "c", "d"].map(|key| tool(key, "one"));
    assert_eq!(listed(&reopened, None, &tools, "").0, "b c", "after a restart");
}

#[tokio::test]
async fn of_two_processes_one_takes_the_first_inventory() {
    let dir = tempfile::tempdir().unwrap();
    let open = || PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap();
    let first = open();
    let launch = launched(&first, "one");
    let second = open();
    let reading = Some(ToolListing { launch, askers: AskerListing::Read });
    assert_eq!(listed(&first, reading, &[tool("a", "one")], "").0, "");
    assert_eq!(listed(&second, reading, &[tool("a", "one"), tool("b", "one")], "").0, "b", "it was too late");
}

#[tokio::test]
async fn a_doubt_is_one_of_the_text_and_outlives_its_approval() {
    let dir = tempfile::tempdir().unwrap();
    for pins in [PinRegistry::memory(), PinRegistry::open(Db::open(dir.path()).unwrap()).unwrap()] {
        let reading = Some(ToolListing { launch: launched(&pins, "one"), askers: AskerListing::Read });
        let (odd, plain) = (tool("a", "odd"), tool("a", "plain"));
        let doubtful = |text: &Definition, doubt| listed(&pins, reading, std::slice::from_ref(text), doubt).1;
        assert_eq!(doubtful(&odd, "a"), "a");
        pins.approve("fx__a", None, odd.digest, "local").await.unwrap();
        assert_eq!((doubtful(&odd, ""), pins.find("fx__a", None).unwrap().state), ("a".to_owned(), PinState::Pinned));
        doubtful(&plain, "");
        pins.approve("fx__a", None, plain.digest, "local").await.unwrap();
        assert_eq!(doubtful(&plain, ""), "", "another text is not in doubt");
        doubtful(&odd, "a");
        assert_eq!(doubtful(&plain, ""), "");
        doubtful(&odd, "a");
        pins.approve("fx__a", None, odd.digest, "local").await.unwrap();
        assert_eq!(doubtful(&odd, ""), "a");
    }
}

#[tokio::test]
async fn a_changed_text_of_instructions_waits_and_one_of_an_earlier_run_does_not_take_that_back() {
    let pins = PinRegistry::memory();
    let name = |name: &str| UpstreamName::parse(name).unwrap();
    let judge = |upstream: &str, trust, text: &str, is_recalled, doubt: Option<&str>| {
        pins.judge_instructions(&name(upstream), trust, text, is_recalled, || doubt.map(str::to_owned)).is_ok()
    };
    let standard = UpstreamTrust::Standard;
    assert!(!judge("u", UpstreamTrust::Untrusted, "one", false, None));
    assert!(!judge("d", UpstreamTrust::Trusted, "one", false, Some("a doubt")));
    assert!(judge("s", standard, "one", false, None));
    assert!(!judge("s", standard, "two", false, None), "a changed text waits");
    assert!(!judge("s", standard, "one", true, None), "the approved text of an earlier run leaves the change waiting");
    let kind = Some(PinKind::Instructions);
    assert!(pins.find("s", None).is_err(), "instructions are found by their kind alone");
    let view = pins.find("s", kind).unwrap();
    assert_eq!((view.state, view.waiting.as_deref()), (PinState::Changed, Some(r#"{"instructions":"two"}"#)));
    pins.approve("s", kind, view.waiting_digest.unwrap(), "ann").await.unwrap();
    assert!(judge("s", standard, "two", false, None) && !judge("s", standard, "one", false, None));
    assert!(judge("s", standard, "two", false, None), "the pinned text is back");
}

#[tokio::test]
async fn pins_of_apps_are_bounded_and_those_that_are_still_named_stay() {
    let (pins, upstream) = (PinRegistry::memory(), UpstreamName::parse("u").unwrap());
    let judge = |uri: &str, html: &str, is_named: &dyn Fn(&str) -> bool| {
        let text = RawJson::trusted(format!(r#"{{"contents":[{{"text":"{html}"}}]}}"#));
        let app = SeenApp { uri, text, trust: UpstreamTrust::Standard, has_html: true };
        pins.judge_app(&upstream, &app, is_named).is_ok()
    };
    for n in 0..128 {
        assert!(judge(&format!("ui://{n}"), "a", &|_| true));
    }
    assert!(!judge("ui://new", "a", &|_| true), "no pin may be pushed out");
    assert!(judge("ui://new", "a", &|uri| uri != "ui://7"));
    assert_eq!(pins.list().len(), 128);
    assert!(!judge("ui://8", "b", &|_| false) && !judge("ui://8", "b", &|_| false), "a change waits");
    assert!(pins.withheld_apps(&upstream).contains_key("ui://8"));
    for n in 0..200 {
        judge(&format!("ui://again/{n}"), "a", &|_| false);
    }
    assert!(pins.withheld_apps(&upstream).contains_key("ui://8"), "what waits is not pushed out");
    assert!(judge("ui://8", "a", &|_| false) && pins.withheld_apps(&upstream).is_empty());
    assert!(pins.known_views().len() == 128);
}

#[tokio::test]
async fn the_pin_of_an_app_stays_while_its_tool_is_gone_for_a_time() {
    let pins = PinRegistry::memory();
    let text = r#"{"name":"a","_meta":{"ui":{"resourceUri":"ui://of-a-tool"}}}"#;
    assert_eq!(shown(&pins, TIER, &[Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()]), [true]);
    let judge = |uri: &str, html: &str| {
        let text = RawJson::trusted(format!(r#"{{"contents":[{{"text":"{html}"}}]}}"#));
        let app = SeenApp { uri, text, trust: UpstreamTrust::Standard, has_html: true };
        pins.judge_app(&name(), &app, &|_| false).is_ok()
    };
    assert!(judge("ui://of-a-tool", "a") && judge("ui://of-none", "a"));
    for n in 0..2000 {
        assert!(judge(&format!("ui://handed/{n}"), "a"));
    }
    assert!(!judge("ui://of-a-tool", "b"), "its pinned tool names it still");
    assert!(!pins.list().iter().any(|pin| pin.name == "fx+ui://of-none"), "it made room");
}
