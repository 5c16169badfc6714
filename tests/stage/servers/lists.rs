//! Tests of lists that an upstream refuses, breaks, delays or never sends: what was known of them
//! stays, operators see the trouble, and they are read again, on every transport and in both eras.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup, status_of};
use crate::stage::mcp::names;
use crate::stage::process::{eventually, said, within};
use crate::stage::upstream::{Fake, InputLog, Listening};
use crate::stage::{now, pass};

const EVERYWHERE: [(&str, &str); 5] =
    [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern"), ("sse", "legacy")];
/// Number of tools of each fake upstream.
const OWN: usize = 12;
/// Time for some attempts of the back-off on a slow machine.
const SOON: Duration = Duration::from_secs(20);

/// A gateway in front of one upstream whose lists fail as the test says.
struct ListsGateway {
    gateway: Gateway,
    record: InputLog,
    /// File that says how lists are answered instead.
    lists: PathBuf,
    /// Text of the configuration.
    text: String,
    _running: Option<Listening>,
}

impl ListsGateway {
    fn new((transport, era): (&str, &str), keys: &str, instead: &Value) -> Self {
        let setup = GatewaySetup::new();
        let folder = setup.world.path("work");
        let (record, lists) = (InputLog::new(&folder, "fx"), folder.join("lists.json"));
        let fake = match transport {
            "stdio" => Fake::stdio(era),
            "http" => Fake::http(era),
            _ => Fake::sse(),
        };
        let fake = fake.logging(&record).with("--lists", lists.to_str().unwrap());
        set(&lists, instead);
        let running = (transport != "stdio").then(|| fake.spawn());
        let target = match &running {
            Some(running) => format!("url = \"{}\"", running.url),
            None => format!("command = {}", fake.command()),
        };
        let setup = setup.toml(&format!("[upstreams.fx]\n{target}\n{keys}\n"));
        let text = setup.text();
        Self { gateway: setup.start(), record, lists, text, _running: running }
    }

    fn instead(&self, instead: &Value) {
        set(&self.lists, instead);
    }

    /// Makes the server announce a change: it lists one more tool.
    fn grow(&self) {
        assert_eq!(self.gateway.modern().call("fx__mutate", json!({})).text(), "grown");
    }

    fn tools(&self) -> Vec<String> {
        self.gateway.modern().tool_names()
    }

    fn unread(&self) -> Value {
        status_of(&self.gateway, "fx")["unread-lists"].clone()
    }

    /// Waits until that list counts as unread, and returns the reason.
    fn wait_unread(&self, list: &str, at: &str) -> String {
        let mut why = None;
        // The list may be read a moment later.
        within(SOON, &format!("{at}: {list} are not read"), || {
            why = self.unread()[list]["why"].as_str().map(str::to_owned);
            why.is_some()
        });
        why.unwrap()
    }

    fn wait_read(&self, at: &str) {
        within(SOON, &format!("{at}: every list is read"), || self.unread().is_null());
    }

    /// Counts the log lines with that text.
    fn told(&self, text: &str) -> usize {
        self.gateway.stderr.all().iter().filter(|line| line.contains(text)).count()
    }

    fn counts(&self, lists: usize) -> bool {
        self.gateway.scrape().contains(&format!("headend_catalog_unread_lists{{upstream=\"fx\"}} {lists}\n"))
    }
}

fn set(path: &Path, instead: &Value) {
    let fresh = path.with_extension("new");
    fs::write(&fresh, instead.to_string()).unwrap();
    fs::rename(fresh, path).unwrap();
}

#[test]
fn a_list_that_cannot_be_read_keeps_its_items_is_told_and_is_read_again() {
    for place in EVERYWHERE {
        keeps_its_items(place);
    }
}

fn keeps_its_items((transport, era): (&str, &str)) {
    let stage = ListsGateway::new((transport, era), "start-timeout = \"2s\"", &json!({}));
    stage.gateway.wait_for_tools(&["fx__echo"]);
    let mut kinds = vec![json!(-32603), json!(-32000), json!("malformed"), json!("loop"), json!("silent")];
    if transport == "http" {
        kinds.push(json!({"status": 500}));
        kinds.push(json!({"status": 400}));
    }
    let mut grown = 0;
    for (n, kind) in kinds.into_iter().enumerate() {
        let at = format!("{era} over {transport}, {kind}");
        let (lost, back) = (stage.told("list not read"), stage.told("list read again"));
        assert!(stage.counts(0), "{at}");
        stage.instead(&json!({"tools/list": kind}));
        stage.grow();
        grown += 1;
        stage.wait_unread("tools", &at);
        let tools = stage.tools();
        assert!(tools.len() >= OWN + n && tools.contains(&"fx__echo".to_owned()), "{at}: {tools:?}");
        assert_eq!(stage.gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "x", "{at}");
        assert_eq!(status_of(&stage.gateway, "fx")["state"], "ready", "{at}");
        assert!(stage.counts(1), "{at}");
        for args in [&["status"][..], &["status", "fx"]] {
            // Another attempt may end at this moment.
            let told = || said(&stage.gateway.run(args)).contains("its tools could not be read");
            within(SOON, &format!("{at}: {args:?} tells"), told);
        }
        if n == 0 {
            // A further attempt logs no further line. The last one is made without a cause from
            // outside.
            within(SOON, "it is tried again", || stage.unread()["tools"]["attempts"].as_u64() > Some(1));
            stage.instead(&json!({}));
        } else {
            stage.instead(&json!({}));
            stage.grow();
            grown += 1;
        }
        stage.wait_read(&at);
        let last = format!("fx__grown_{}", grown - 1);
        within(SOON, &format!("{at}: the change is seen"), || stage.tools().contains(&last));
        within(SOON, &format!("{at}: nothing is counted"), || stage.counts(0));
        // The log is read by another thread.
        within(SOON, &format!("{at}: the log says so"), || stage.told("list read again") > back);
        let told = (stage.told("list not read") - lost, stage.told("list read again") - back);
        assert_eq!(told, (1, 1), "{at}: {}", stage.gateway.story());
    }
}

#[test]
fn only_the_error_for_an_unknown_method_empties_a_list() {
    for place in EVERYWHERE {
        let stage = ListsGateway::new(place, "", &json!({}));
        stage.gateway.wait_for_tools(&["fx__echo"]);
        let mut client = stage.gateway.modern();
        eventually("the prompts are listed", || client.list("prompts/list", "prompts").len() == 1);
        stage.instead(&json!({"tools/list": -32601}));
        stage.grow();
        within(SOON, &format!("{place:?}: the tools are gone"), || client.tool_names().is_empty());
        assert_eq!(client.list("prompts/list", "prompts").len(), 1, "{place:?}");
        assert!(stage.unread().is_null() && stage.told("list not read") == 0, "{place:?}");
    }
}

#[test]
fn at_the_first_start_the_other_lists_are_offered_and_the_refused_one_when_it_comes() {
    for place in EVERYWHERE {
        let stage = ListsGateway::new(place, "", &json!({"tools/list": -32603}));
        let mut client = stage.gateway.modern();
        within(SOON, &format!("{place:?}: prompts"), || names(&client.list("prompts/list", "prompts")) == ["fx__p"]);
        within(SOON, &format!("{place:?}: resources"), || client.list("resources/list", "resources").len() == 1);
        assert!(client.tool_names().is_empty(), "{place:?}");
        let got = client.request("prompts/get", json!({"name": "fx__p", "arguments": {"a": "b"}}));
        assert!(got.message.get("result").is_some(), "{place:?}: {}", got.raw);
        assert!(stage.wait_unread("tools", &format!("{place:?}")).contains("not now (-32603)"));
        stage.instead(&json!({}));
        stage.gateway.wait_for_tools_within(SOON, &["fx__echo"]);
        stage.wait_read(&format!("{place:?}"));
    }
}

#[test]
fn a_list_that_never_comes_does_not_hold_up_the_others() {
    for place in EVERYWHERE {
        {
            let stage = ListsGateway::new(place, "", &json!({"resources/list": "silent"}));
            let begun = now();
            stage.gateway.wait_for_tools_within(SOON, &["fx__echo"]);
            let mut client = stage.gateway.modern();
            within(SOON, &format!("{place:?}: prompts"), || client.list("prompts/list", "prompts").len() == 1);
            // Not after the `start-timeout` of two minutes.
            assert!(now() - begun < SOON, "{place:?}");
            assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x", "{place:?}");
        }
    }
}

#[test]
fn a_list_that_comes_after_the_start_timeout_is_still_read() {
    for place in EVERYWHERE {
        {
            // Every attempt takes longer than allowed, even if a busy machine needs a second
            // handshake, which gets twice the time.
            let stage = ListsGateway::new(place, "start-timeout = \"2s\"", &json!({"tools/list": {"after": 6000}}));
            let why = stage.wait_unread("tools", &format!("{place:?}"));
            assert!(why.contains("start-timeout"), "{place:?}: {why}");
            stage.gateway.wait_for_tools_within(SOON, &["fx__echo"]);
            assert_eq!(stage.tools().len(), OWN, "{place:?}");
        }
    }
}

/// Stops the daemon and starts it again.
fn again(stage: ListsGateway) -> ListsGateway {
    let ListsGateway { mut gateway, record, lists, text, _running } = stage;
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    ListsGateway { gateway, record, lists, text, _running }
}

#[test]
fn a_restart_of_server_and_gateway_keeps_what_is_on_disk_of_a_refused_list() {
    for place in EVERYWHERE {
        for keys in ["", "start = \"lazy\"\nidle-stop = \"300ms\""] {
            let at = format!("{place:?} {keys}");
            let stage = ListsGateway::new(place, keys, &json!({}));
            stage.gateway.wait_for_tools(&["fx__echo"]);
            stage.instead(&json!({"tools/list": -32603}));
            let restarted = stage.gateway.run(&["restart", "fx"]);
            assert!(restarted.status.success(), "{at}: {}", said(&restarted));
            stage.wait_unread("tools", &at);
            assert_eq!(stage.tools().len(), OWN, "{at}: after a restart of the server");
            let stage = again(stage);
            assert_eq!(stage.gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "x", "{at}");
            stage.wait_unread("tools", &at);
            assert_eq!(stage.tools().len(), OWN, "{at}: after a restart of the gateway");
            stage.instead(&json!({}));
            stage.gateway.run(&["reload"]);
            stage.wait_read(&at);
        }
    }
}

#[test]
fn a_process_that_dies_and_refuses_its_list_keeps_its_tools() {
    let stage = ListsGateway::new(("stdio", "legacy"), "", &json!({}));
    stage.gateway.wait_for_tools(&["fx__echo"]);
    stage.instead(&json!({"tools/list": -32603}));
    stage.gateway.modern().call("fx__exit", json!({}));
    stage.wait_unread("tools", "after its death");
    assert_eq!(stage.tools().len(), OWN);
    assert_eq!(stage.gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "x");
}

#[test]
fn a_lazy_upstream_without_any_item_stays_up_until_its_list_is_read() {
    let keys = "start = \"lazy\"\nidle-stop = \"200ms\"";
    let all = json!({"tools/list": -32603, "prompts/list": -32601, "resources/list": -32601, "resources/templates/list": -32601});
    for place in [("stdio", "legacy"), ("http", "modern")] {
        let stage = ListsGateway::new(place, keys, &all);
        stage.wait_unread("tools", &format!("{place:?}"));
        pass(Duration::from_millis(500));
        assert_eq!(status_of(&stage.gateway, "fx")["state"], "ready", "{place:?}: no call would start it");
        stage.instead(&json!({}));
        stage.gateway.wait_for_tools_within(SOON, &["fx__echo"]);
        within(SOON, "it rests", || status_of(&stage.gateway, "fx")["state"] == "idle");
    }
}

#[test]
fn attempts_are_few_and_a_notice_or_a_reload_is_one_at_once() {
    for place in EVERYWHERE {
        few_attempts(place);
    }
}

fn few_attempts(place: (&str, &str)) {
    let stage = ListsGateway::new(place, "instance = \"shared\"", &json!({}));
    stage.gateway.wait_for_tools(&["fx__echo"]);
    let asked = || stage.record.count("tools/list");
    let before = asked();
    stage.instead(&json!({"tools/list": -32603}));
    stage.grow();
    stage.wait_unread("tools", &format!("{place:?}"));
    pass(Duration::from_millis(3500));
    // Attempts come after 0, 1 and 3 seconds.
    let attempts = asked() - before;
    assert!((2..=5).contains(&attempts), "{place:?}: {attempts} attempts");
    within(SOON, "the wait grows", || stage.unread()["tools"]["next-try-seconds"].as_u64() > Some(3));
    let before = asked();
    let plan = stage.gateway.reload(&stage.text);
    assert!(plan.status.success(), "{place:?}: {}", said(&plan));
    within(Duration::from_secs(2), &format!("{place:?}: a reload tries at once"), || asked() > before);
    within(SOON, "the wait grows", || stage.unread()["tools"]["next-try-seconds"].as_u64() > Some(5));
    stage.instead(&json!({}));
    stage.grow();
    within(Duration::from_secs(3), &format!("{place:?}: so does a notice"), || stage.unread().is_null());
}
