//! Tests of everyday commands: the last line of `check`, listings that fit their screen, one tool,
//! logs, and suggestions for mistyped names.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::tools::harness::{Gateway, GatewaySetup, headend};
use crate::tools::process::{eventually, installed, output_within, said, within};
use crate::tools::terminal::Terminal;
use crate::tools::upstream::Fake;

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ok(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.run(args);
    assert!(output.status.success(), "headend {args:?}: {}", said(&output));
    stdout(&output)
}

/// Removes colour sequences from a text.
fn plain(screen: &str) -> String {
    let mut out = String::new();
    let mut rest = screen;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[test]
fn check_ends_with_one_line_and_prints_the_whole_where_asked() {
    let rule = "[[policy.rules]]\nid = \"a\"\neffect = \"deny\"\ntools = [\"x__*\"]";
    let setup = GatewaySetup::new().toml(rule).toml("[upstreams.x]\ncommand = [\"/bin/true\"]");
    let (world, config) = setup.toml("[upstreams.gone]\ncommand = [\"/not/there\"]").write();
    let config = config.to_str().unwrap();
    let run = |args: &[&str]| world.run(&[&["check", "--config", config], args].concat());
    let checked = run(&[]);
    assert_eq!(stdout(&checked), format!("{config}\nok: 2 upstreams, 1 rule, 1 warning\n"), "{}", said(&checked));
    assert_eq!(String::from_utf8_lossy(&checked.stderr).matches("no program at `/not/there`").count(), 1);
    let quiet = run(&["--quiet"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{}", said(&quiet));
    let whole = stdout(&run(&["--resolved"]));
    assert!(
        whole.ends_with("\n# ok: 2 upstreams, 1 rule, 1 warning\n") && whole.contains("[upstreams.gone]"),
        "{whole}"
    );
    let again = world.write("again.toml", &whole);
    assert!(world.run(&["check", "--quiet", "--config", again.to_str().unwrap()]).status.success());
    let bad = world.write("bad.toml", "x = 1\n");
    assert_eq!(world.run(&["check", "--quiet", "--config", bad.to_str().unwrap()]).status.code(), Some(78));
    let none = world.run(&["check"]);
    assert!(stdout(&none).starts_with("no configuration file"), "{}", said(&none));
}

#[test]
fn a_warning_of_the_file_is_logged_once_and_not_at_each_reload() {
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both"));
    let warned = format!("{}\n[upstreams.docs]\nurl = \"http://127.0.0.1:9/mcp?token=abc\"\n", setup.text());
    let gateway = setup.start();
    let count = || gateway.stderr.all().iter().filter(|line| line.contains("seems to contain a secret")).count();
    assert!(gateway.reload(&warned).status.success());
    eventually("it is logged", || count() == 1);
    let more = format!("{warned}call-timeout = \"50s\"\n");
    assert!(gateway.reload(&more).status.success());
    assert_eq!(count(), 1, "{}", gateway.story());
}

#[test]
fn listings_fit_eighty_columns_and_say_more_where_there_is_room() {
    let gone = "[upstreams.a-server-with-a-long-name]\ncommand = [\"no-such-program-anywhere\"]";
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__fail\"]";
    let setup =
        GatewaySetup::new().fake("fx", &Fake::stdio("both")).fake("a-rather-long-server-name", &Fake::stdio("both"));
    let gateway = setup.toml(gone).toml(rule).start();
    gateway.wait_for_tools(&["fx__echo", "a-rather-long-server-name__echo"]);
    let screen = |columns: u16, args: &[&str]| {
        let (code, screen) = Terminal::wide(&gateway.world, columns, args).end();
        assert_eq!(code, Some(0), "{args:?}: {screen}");
        if std::env::var_os("HEADEND_SHOW_SCREENS").is_some() {
            eprintln!("--- headend {} ({columns} columns)\n{}", args.join(" "), plain(&screen).replace('\r', ""));
        }
        plain(&screen)
    };
    for columns in [80, 160] {
        for args in [
            &["status"][..],
            &["status", "fx"],
            &["status", "a-server-with-a-long-name"],
            &["tools"],
            &["tools", "--all"],
            &["tools", "--tokens"],
            &["tools", "fx__echo"],
            &["pins"],
            &["grants"],
            &["tokens"],
            &["approvals"],
            &["logs", "fx"],
        ] {
            let shown = screen(columns, args);
            for line in shown.lines() {
                // A word is never broken, so that names and folders can be copied.
                let words = line.split_whitespace().count();
                assert!(line.width() <= usize::from(columns) || words <= 2, "{args:?} at {columns}: {line}\n{shown}");
            }
        }
    }
    let (narrow, wide) = (screen(80, &["tools"]), screen(160, &["tools"]));
    assert!(!narrow.contains("CANONICAL") && wide.contains("CANONICAL"), "{narrow}\n{wide}");
    assert!(narrow.contains("EFFECT") && narrow.contains("fx__echo"), "{narrow}");
    let (narrow, wide) = (screen(80, &["status"]), screen(160, &["status"]));
    assert!(!narrow.contains("REVISION") || !narrow.contains("LAST ERROR"), "{narrow}");
    assert!(narrow.contains("not found in PATH") && wide.contains("RESTARTS"), "{narrow}\n{wide}");
    // A pipe has room for all, and `COLUMNS` says otherwise.
    assert!(ok(&gateway, &["tools"]).contains("CANONICAL"));
    let mut command = gateway.world.command(headend());
    command.args(["tools"]).env("COLUMNS", "60").stdout(Stdio::piped()).stderr(Stdio::piped());
    let told = output_within(command.spawn().unwrap(), Duration::from_secs(30), "headend tools");
    assert!(!stdout(&told).contains("CANONICAL"), "{}", said(&told));
}

#[test]
fn colours_are_for_terminals_and_not_for_those_who_want_none() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    assert!(Terminal::start(&gateway.world, &["status"], "").end().1.contains("\u{1b}[32mready"));
    assert!(!ok(&gateway, &["status"]).contains('\u{1b}'));
    let (_, screen) = Terminal::by(&gateway.world, "env", &["NO_COLOR=1", headend(), "status"]).end();
    assert!(screen.contains("ready") && !screen.contains("\u{1b}[3"), "{screen}");
}

#[test]
fn one_tool_is_shown_with_its_schema_its_hints_and_who_may_call_it() {
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\ncallers = [\"second\"]";
    let profile = "[profiles.small]\nupstreams = [\"fx\"]\ntransparent = true";
    let setup = GatewaySetup::new().second_caller("0123456789abcdef-second").fake("fx", &Fake::stdio("both"));
    let gateway = setup.toml(rule).toml(profile).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let shown = ok(&gateway, &["tools", "fx__echo"]);
    for text in
        ["canonical  fx__echo", "the server says", "schema of its arguments", "\"text\"", "tokens", "who may call it"]
    {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let row = |caller: &str, profile: &str| {
        let row = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        row.into_iter()
            .find(|row| row.len() == 4 && row[0] == caller && row[1] == profile)
            .unwrap_or_else(|| panic!("{shown}"))
    };
    assert_eq!(row("local", "-")[2..], ["fx__echo", "allow"]);
    assert_eq!(row("second", "-")[2..], ["fx__echo", "deny"]);
    assert_eq!(row("local", "small")[2..], ["echo", "allow"]);
    let json: Value = serde_json::from_str(&ok(&gateway, &["tools", "fx__echo", "--json"])).unwrap();
    assert!(json["input-schema"].is_object() && json["who"].as_array().unwrap().len() == 4, "{json}");
    let sizes = ok(&gateway, &["tools", "--tokens"]);
    assert!(sizes.contains("fx (") && sizes.contains("fx__echo") && sizes.contains("all"), "{sizes}");
    let bytes = json["bytes"].to_string();
    assert!(sizes.lines().any(|line| line.contains(&bytes) && line.ends_with("fx__echo")), "{bytes}: {sizes}");
}

#[test]
fn a_name_that_does_not_exist_leads_to_one_that_does() {
    let gateway = GatewaySetup::new().fake("files", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["files__echo"]);
    for (args, meant) in [
        (&["call", "files__ecko"][..], "did you mean `files__echo`?"),
        (&["call", "echo"], "did you mean `files__echo`?"),
        (&["tools", "files_echo"], "did you mean `files__echo`?"),
        (&["status", "file"], "did you mean `files`?"),
        (&["restart", "fiels"], "did you mean `files`?"),
        (&["logs", "flies"], "did you mean `files`?"),
    ] {
        let refused = gateway.run(args);
        assert!(refused.status.code() == Some(1) && said(&refused).contains(meant), "{args:?}: {}", said(&refused));
    }
    assert!(!said(&gateway.run(&["call", "files__fail"])).contains("did you mean"));
    assert!(!said(&gateway.run(&["call", "weather"])).contains("did you mean"));
}

#[test]
fn a_socket_without_permission_says_whose_it_is() {
    if !rustix::process::getuid().is_root() || !installed("setpriv") {
        return eprintln!("left out: a socket without permission: only root can become another user, with setpriv");
    }
    let gateway = GatewaySetup::new().start();
    let as_nobody = || {
        let mut command = gateway.world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", headend(), "status"]).current_dir("/");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        output_within(child, Duration::from_secs(30), "headend status as another user")
    };
    for reachable in [false, true] {
        for folder in ["", "run"] {
            let mode = if reachable { 0o755 } else { 0o700 };
            fs::set_permissions(gateway.world.path(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        let refused = as_nobody();
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(69), "{text}");
        assert!(text.contains("permission denied") && text.contains("belongs to user root"), "{text}");
        assert!(text.contains("you are user nobody") && text.contains("[admin] users"), "{text}");
    }
}

#[test]
fn logs_show_what_a_server_wrote_and_follow_it() {
    let setup = GatewaySetup::new().env("SECRET_OF_FX", "hunter2-canary");
    let script = setup
        .world
        .write("work/server", "#!/bin/sh\necho \"token is $KEY\" >&2\nprintf 'one\\033[2Jtwo\\n' >&2\nexit 3\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let upstream = format!("[upstreams.fx]\ncommand = [{script:?}]\nenv = {{ KEY = {{ env = \"SECRET_OF_FX\" }} }}");
    let gateway = setup.toml(&upstream).start();
    let shown = || ok(&gateway, &["logs", "fx"]);
    eventually("its words are kept", || shown().contains("| token is $KEY") && shown().contains("* down"));
    let text = shown();
    assert!(!text.contains("hunter2") && !text.contains('\u{1b}') && text.contains("exit status: 3"), "{text}");
    assert_eq!(ok(&gateway, &["logs", "fx", "-n", "1"]).lines().count(), 1);
    let mut follow = Terminal::start(&gateway.world, &["logs", "--follow", "fx"], "");
    follow.wait_for("token is $KEY");
    let before = follow.screen().matches("token is").count();
    drop(gateway.run(&["restart", "fx"]));
    within(Duration::from_secs(15), "the next start is followed", || {
        follow.screen().matches("token is").count() > before
    });
    follow.type_in("\u{3}");
    let json = ok(&gateway, &["logs", "fx", "--json"]);
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert!(first["time"].is_string() && first["from"].is_string(), "{first}");
}

#[test]
fn status_of_one_upstream_says_where_its_program_was_looked_for() {
    let gateway = GatewaySetup::new().toml("[upstreams.fx]\ncommand = [\"no-such-program-anywhere\"]").start();
    let shown = || ok(&gateway, &["status", "fx"]);
    eventually("it is misconfigured", || shown().contains("misconfigured"));
    let path = std::env::var("PATH").unwrap();
    let text = shown();
    assert!(text.contains("PATH"), "{text}");
    for folder in path.split(':') {
        assert!(text.lines().any(|line| line.split_whitespace().last() == Some(folder)), "{folder}: {text}");
    }
    assert!(text.contains("next-try") && text.contains("advice"), "{text}");
}

#[test]
fn an_upstream_is_switched_off_and_on_in_its_file() {
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both"));
    let config_text = format!("# mine\n{}", setup.text());
    let (world, config) = setup.write();
    world.write("headend.toml", &config_text);
    fs::create_dir(world.path("conf.d")).unwrap();
    let also = GatewaySetup::new().fake("gx", &Fake::stdio("both")).text();
    let table = also.split("[upstreams.gx]").nth(1).unwrap();
    let part = world.write("conf.d/gx.toml", &format!("# another\n[upstreams.gx]{table}"));
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo", "gx__echo"]);
    let file = gateway.config.to_str().unwrap().to_owned();
    let switch = |word: &str, name: &str| gateway.run(&[word, name, "--config", &file]);
    let before = fs::read_to_string(&part).unwrap();
    let off = switch("disable", "gx");
    assert!(off.status.success() && said(&off).contains("gx: disabled in "), "{}", said(&off));
    let edited = fs::read_to_string(&part).unwrap();
    assert!(edited.starts_with("# another\n") && edited.contains("enabled = false"), "{edited}");
    assert_eq!(fs::read_to_string(&gateway.config).unwrap(), config_text, "the other file is as it was");
    eventually("its tools leave", || !gateway.modern().tool_names().contains(&"gx__echo".to_owned()));
    assert!(ok(&gateway, &["status"]).contains("disabled"));
    assert!(said(&switch("disable", "gx")).contains("disabled already"));
    let on = switch("enable", "gx");
    assert!(on.status.success(), "{}", said(&on));
    gateway.wait_for_tools(&["gx__echo"]);
    let edited = fs::read_to_string(&part).unwrap();
    assert_eq!(edited.replace("enabled = true\n", "").trim_end(), before.trim_end());
    let unknown = switch("disable", "gxx");
    assert!(unknown.status.code() == Some(1) && said(&unknown).contains("did you mean `gx`?"), "{}", said(&unknown));
}
