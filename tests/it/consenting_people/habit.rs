//! Tests of suggested rules: a suggestion saves questions and allows nothing that no person agreed
//! to, and the real commands replay a log under other rules.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::tools::harness::{GatewaySetup, TestHome};
use crate::tools::process::said;

mod below;
pub(crate) mod week;

/// The configuration that was in force during the week.
const UNDER: &str =
    "default = \"ask\"\n[[policy.rules]]\nid = \"searches\"\neffect = \"allow\"\ntools = [\"web__search\"]";

/// Creates a world with a week of records.
fn world(keeps: bool) -> (TestHome, week::WeekTotals) {
    let upstreams = ["files", "git", "mail", "odd", "rare", "web"];
    let tables: String = upstreams.iter().map(|name| format!("[upstreams.{name}]\ncommand = [\"true\"]\n")).collect();
    let (world, config) = GatewaySetup::new().policy(UNDER).toml(&tables).write();
    fs::create_dir_all(world.path("config/headend")).unwrap();
    fs::rename(config, world.path("config/headend/headend.toml")).unwrap();
    let truth = week::write(&world.path("state/headend/audit"), 17, keeps);
    (world, truth)
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

/// Returns the changes of decisions that a rules file makes.
fn replayed(world: &TestHome, file: &str, code: i32) -> Value {
    let output = world.run(&["policy", "replay", file, "--json"]);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    json_of(&output)
}

#[test]
fn suggested_rules_cut_the_questions_of_a_week_and_open_nothing_that_nobody_agreed_to() {
    for keeps in [true, false] {
        let (world, truth) = world(keeps);
        let suggested = world.run(&["policy", "suggest"]);
        assert!(suggested.status.success(), "{}", said(&suggested));
        let rules = String::from_utf8(suggested.stdout).unwrap();
        let listed = json_of(&world.run(&["policy", "suggest", "--json"]));
        assert_eq!(listed["questions"], truth.questions, "{listed:#}");
        let file = world.write("rules.toml", &rules);
        let file = file.to_str().unwrap();
        let replay = replayed(&world, file, 0);
        let (before, after) = (&replay["before"]["asked"], &replay["after"]["asked"]);
        let (before, after) = (before.as_u64().unwrap(), after.as_u64().unwrap());
        println!(
            "{} records, arguments kept: {keeps}; {} rules; questions {before} -> {after}, {} % fewer",
            truth.records,
            listed["rules"].as_array().unwrap().len(),
            100 - after * 100 / before
        );
        assert_eq!((before, replay["undecided"].as_u64()), (truth.questions, Some(0)));
        assert!(after * 5 <= before, "{before} -> {after}");
        assert_eq!(listed["saves"], before - after);
        let mut opened = 0;
        for item in replay["items"].as_array().unwrap() {
            let name = item["item"].as_str().unwrap();
            assert!(week::forbidden().all(|forbidden| forbidden != name), "{item:#}");
            assert_eq!(item["destructive"], false, "{item:#}");
            assert_eq!(item["denied-before"], 0, "{item:#}");
            assert!(item["allowed-before"].as_u64() >= Some(5), "{item:#}");
            assert_eq!((&item["newly-asked"], &item["newly-denied"]), (&json!(0), &json!(0)), "{item:#}");
            opened += item["newly-allowed"].as_u64().unwrap();
        }
        assert_eq!(opened, before - after);
        assert_eq!(replay["allowed-and-never-called"], json!([]));
        // A whole configuration with the same rules.
        let whole = fs::read_to_string(world.path("config/headend/headend.toml")).unwrap() + "\n" + &rules;
        let whole = world.write("whole.toml", &whole);
        let again = replayed(&world, whole.to_str().unwrap(), 0);
        assert_eq!((&again["before"], &again["after"]), (&replay["before"], &replay["after"]));
        // Calls beyond the approved ones still need an approval.
        for (caller, item, arguments, allowed) in [
            ("ann", "files__write_file", json!({"path": "/srv/ann/notes/new.md", "text": "x"}), true),
            ("ann", "files__write_file", json!({"path": "/etc/passwd", "text": "x"}), !keeps),
            ("ann", "files__write_file", json!({"path": "/srv/ben/notes/1.md", "text": "x"}), !keeps),
            ("ann", "git__tag", json!({"name": "other", "sign": true}), !keeps),
            ("stranger", "files__write_file", json!({"path": "/srv/ann/notes/new.md", "text": "x"}), false),
            ("ann", "files__write_files", json!({}), false),
        ] {
            let arguments = arguments.to_string();
            let rules = rules.lines().filter(|line| !line.starts_with("claims"));
            // No claim holds without a server that makes it, so these rules are left out here.
            let text = fs::read_to_string(world.path("config/headend/headend.toml")).unwrap();
            let config = world.write("unclaimed.toml", &(text + "\n" + &rules.collect::<Vec<_>>().join("\n")));
            let config = config.to_str().unwrap();
            let args =
                ["policy", "test", "--config", config, "--caller", caller, "--tool", item, "--arguments", &arguments];
            let tested = world.run(&args);
            assert_eq!(tested.status.success(), allowed, "{caller} {item} {arguments}: {}", said(&tested));
        }
    }
}

#[test]
fn a_replay_says_what_no_person_has_agreed_to() {
    let (world, _) = world(true);
    let text = "[[policy.rules]]\nid = \"all\"\neffect = \"allow\"\ntools = [\"files__*\"]\n";
    let file = world.write("all.toml", text);
    let replay = replayed(&world, file.to_str().unwrap(), 1);
    let items = replay["items"].as_array().unwrap();
    let of =
        |name: &str| items.iter().find(|item| item["item"] == name).unwrap_or_else(|| panic!("{name}: {items:#?}"));
    assert_eq!(of("files__delete_file")["destructive"], true);
    assert!(of("files__chmod")["denied-before"].as_u64() > Some(0) && of("files__chmod")["allowed-before"] == 0);
    let shown = world.run(&["policy", "replay", file.to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for words in ["questions to people", "destructive by the word", "were denied", "never allowed", "were not approved"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    // Stricter rules ask and deny.
    let text = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"web__search\"]\ncallers = [\"ann\"]\n\
                [[policy.rules]]\nid = \"ask\"\neffect = \"ask\"\ntools = [\"web__fetch\"]\n";
    let file = world.write("less.toml", text);
    let replay = replayed(&world, file.to_str().unwrap(), 0);
    let of = |when: &str, what: &str| replay[when][what].as_u64().unwrap();
    assert!(of("after", "denied") > 0, "{replay:#}");
    assert_eq!(of("after", "denied") + of("after", "allowed"), of("before", "allowed"), "{replay:#}");
    assert_eq!(replay["after"]["granted"], replay["before"]["granted"], "grants hold");
    for (name, text, code) in [
        ("not.toml", "rules = [", 78),
        ("wrong.toml", "[[policy.rules]]\nid = \"x\"\neffect = \"maybe\"\n", 78),
        ("twice.toml", "[[policy.rules]]\nid = \"searches\"\neffect = \"allow\"\ntools = [\"git__*\"]\n", 78),
    ] {
        let file = world.write(name, text);
        let refused = world.run(&["policy", "replay", file.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(code), "{name}: {}", said(&refused));
        assert!(said(&refused).contains(name), "{}", said(&refused));
    }
    assert_eq!(world.run(&["policy", "replay", "/nonexistent"]).status.code(), Some(64));
}

#[test]
fn damage_is_counted_and_older_records_cannot_be_decided() {
    let (world, truth) = world(false);
    let path = world.path("state/headend/audit/audit-main-000001.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let questions: Vec<usize> =
        (0..lines.len()).filter(|at| lines[*at].contains("\"event\":\"prompt\"")).take(3).collect();
    lines[questions[0]] = "not a record".to_owned();
    lines[questions[1]] = lines[questions[1]].replace("\"result\"", "\"resulT\"").replace("default", "defaulT");
    lines[questions[2]] = "x".repeat(3 << 20);
    fs::write(&path, lines.join("\n") + "\n{\"half").unwrap();
    let suggested = world.run(&["policy", "suggest", "--json"]);
    let listed = json_of(&suggested);
    assert_eq!((&listed["damaged"], &listed["questions"]), (&json!(3), &json!(truth.questions - 3)));
    assert!(said(&suggested).contains("3 damaged lines"), "{}", said(&suggested));
    // Rules over arguments that the log does not have.
    let rule = "[[policy.rules]]\nid = \"a\"\neffect = \"allow\"\ntools = [\"files__write_file\"]\n\
                arguments = [{ pointer = \"/path\", path-under = \"/srv\" }]\n";
    let file = world.write("arguments.toml", rule);
    let replay = replayed(&world, file.to_str().unwrap(), 0);
    assert!(replay["undecided"].as_u64() > Some(100), "{replay:#}");
    assert_eq!(replay["after"]["asked"], replay["before"]["asked"]);
}
