//! Everyday commands: the last line of `check`.

use std::process::Output;

use crate::harness::Setup;
use crate::process::{eventually, said};
use crate::upstream::Fake;

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn check_ends_with_one_line_and_prints_the_whole_where_asked() {
    let rule = "[[policy.rules]]\nid = \"a\"\neffect = \"deny\"\ntools = [\"x__*\"]";
    let setup = Setup::new().toml(rule).toml("[upstreams.x]\ncommand = [\"/bin/true\"]");
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
    let setup = Setup::new().fake("fx", &Fake::stdio("both"));
    let warned = format!("{}\n[upstreams.docs]\nurl = \"http://127.0.0.1:9/mcp?token=abc\"\n", setup.text());
    let gateway = setup.start();
    let count = || gateway.stderr.all().iter().filter(|line| line.contains("seems to contain a secret")).count();
    assert!(gateway.reload(&warned).status.success());
    eventually("it is logged", || count() == 1);
    let more = format!("{warned}call-timeout = \"50s\"\n");
    assert!(gateway.reload(&more).status.success());
    assert_eq!(count(), 1, "{}", gateway.story());
}
