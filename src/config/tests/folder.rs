//! Tests of configurations of several files.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use super::*;

/// A temporary folder with a configuration file and the files of `conf.d`.
struct ConfigFolder {
    dir: tempfile::TempDir,
}

impl ConfigFolder {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        place.set(place.dir.path(), 0o755);
        std::fs::create_dir(place.path("conf.d")).unwrap();
        place.set(&place.path("conf.d"), 0o755);
        files.iter().for_each(|(name, text)| place.write(name, text));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn set(&self, path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        self.set(&self.path(name), 0o644);
    }

    fn load(&self) -> Result<Config, String> {
        load(&self.path("headend.toml")).outcome.map(|(config, _)| config)
    }

    /// Returns the problems, with names in place of paths.
    fn refused(&self) -> String {
        let problems = self.load().expect_err("refused");
        problems.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

const MAIN: &str = "[server]\ndrain-timeout = \"5s\"\n[policy]\ndefault = \"deny\"\n[[policy.rules]]\nid = \"one\"\neffect = \"allow\"\nupstreams = [\"z\"]\n[upstreams.z]\ncommand = [\"/z\"]\n";

#[test]
fn files_are_merged_in_the_order_of_their_names() {
    let place = ConfigFolder::new(&[
        ("headend.toml", MAIN),
        (
            "conf.d/20-b.toml",
            "\u{feff}[upstreams.b]\ncommand = [\"/b\"]\n[server]\nlegacy-sse = true\n[server.limits]\nqueue = 32\n",
        ),
        (
            "conf.d/10-a.toml",
            "[[policy.rules]]\nid = \"two\"\neffect = \"deny\"\ntools = [\"b__*\"]\n[upstreams.a]\ncommand = [\"/a\"]\n[server.limits]\nmax-body = \"1MiB\"\n",
        ),
        ("conf.d/.hidden.toml", "nonsense"),
        ("conf.d/c.toml~", "nonsense"),
        ("conf.d/README", "nonsense"),
    ]);
    let config = place.load().unwrap();
    assert_eq!(config.also, [place.path("conf.d/10-a.toml"), place.path("conf.d/20-b.toml")]);
    let names: Vec<&str> = config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "b"]);
    let rules: Vec<&str> = config.policy.rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(rules, ["one", "two"]);
    assert_eq!((config.server.limits.queue, config.server.limits.body_bytes), (32, 1 << 20));
    assert!(config.server.legacy_sse && config.server.drain_timeout == Duration::from_secs(5));
    let all = load(&place.path("headend.toml")).files;
    let seen: Vec<&Path> = all.iter().map(FileFingerprint::path).collect();
    for name in ["headend.toml", "conf.d", "conf.d/10-a.toml", "conf.d/20-b.toml"] {
        assert!(seen.contains(&place.path(name).as_path()), "{name}: {seen:?}");
    }
}

#[test]
fn times_for_some_clients_are_one_list() {
    let hold = |client: &str| format!("[[policy.consent.holds]]\nclients = [\"{client}\"]\nhold = \"1s\"\n");
    let (main, more) = (format!("{MAIN}{}", hold("a")), format!("[policy.consent]\nhold = \"9s\"\n{}", hold("b")));
    let place = ConfigFolder::new(&[("headend.toml", main.as_str()), ("conf.d/x.toml", more.as_str())]);
    let consent = place.load().unwrap().consent;
    let clients: Vec<String> = consent.holds.iter().flat_map(|hold| hold.clients.clone()).collect();
    assert_eq!((clients, consent.hold), (vec!["a".to_owned(), "b".to_owned()], Duration::from_secs(9)));
}

#[test]
fn what_stands_in_two_files_names_both() {
    for (label, text, wanted) in [
        (
            "a key",
            "\n[server]\ndrain-timeout = \"6s\"\n",
            "conf.d/x.toml:3: server.drain-timeout: stands in headend.toml:2 too",
        ),
        (
            "a default",
            "[policy]\ndefault = \"allow\"\n",
            "conf.d/x.toml:2: policy.default: stands in headend.toml:4 too",
        ),
        (
            "an upstream",
            "[upstreams.z]\ntrust = \"trusted\"\n",
            "conf.d/x.toml:1: upstreams.z: stands in headend.toml:9 too",
        ),
        (
            "a rule",
            "[[policy.rules]]\nid = \"one\"\neffect = \"deny\"\nupstreams = [\"z\"]\n",
            "conf.d/x.toml:2: policy.rules[1].id: stands in headend.toml:6 too",
        ),
        ("another type", "server = 1\n", "conf.d/x.toml:1: server: stands in headend.toml:1 too"),
    ] {
        let place = ConfigFolder::new(&[("headend.toml", MAIN), ("conf.d/x.toml", text)]);
        let told = place.refused();
        assert!(told.contains(wanted), "{label}: {wanted:?} is not in\n{told}");
    }
}

#[test]
fn problems_name_the_file_and_line_that_they_are_in() {
    let place = ConfigFolder::new(&[
        ("headend.toml", MAIN),
        ("conf.d/10.toml", "\n\n[server.limits]\nmax-dept = 1\n"),
        ("conf.d/20.toml", "[upstreams.q]\ncommand = [\n"),
        ("conf.d/30.toml", "[upstreams.p]\nurl = 7\n"),
    ]);
    let told = place.refused();
    assert!(told.contains("conf.d/20.toml:2: not TOML") || told.contains("conf.d/20.toml:3: not TOML"), "{told}");
    place.write("conf.d/20.toml", "");
    let told = place.refused();
    for wanted in
        ["conf.d/10.toml:4: server.limits.max-dept: unknown key", "conf.d/30.toml:2: upstreams.p.url: must be"]
    {
        assert!(told.contains(wanted), "{wanted:?} is not in\n{told}");
    }
}

#[test]
fn a_folder_or_file_that_others_may_write_is_refused() {
    let place = ConfigFolder::new(&[("headend.toml", MAIN), ("conf.d/x.toml", "")]);
    assert!(place.load().is_ok());
    place.set(&place.path("conf.d/x.toml"), 0o666);
    assert!(place.refused().contains("conf.d/x.toml: may be written by others (mode 0666)"));
    place.set(&place.path("conf.d/x.toml"), 0o644);
    place.set(&place.path("conf.d"), 0o777);
    assert!(place.refused().contains("conf.d: may be written by others (mode 0777)"));
    std::fs::remove_dir_all(place.path("conf.d")).unwrap();
    assert!(place.load().is_ok());
    place.write("conf.d", "");
    assert!(place.refused().contains("conf.d: cannot be read: "));
    std::fs::remove_file(place.path("conf.d")).unwrap();
    symlink("nowhere", place.path("conf.d")).unwrap();
    assert!(place.load().is_ok(), "a link that leads nowhere is a folder that is not there");
}

#[test]
fn each_file_may_name_its_schema() {
    let schema = "\"$schema\" = \"headend.schema.json\"\n";
    let more = format!("{schema}[upstreams.a]\ncommand = [\"/a\"]\n");
    let place = ConfigFolder::new(&[("headend.toml", &format!("{schema}{MAIN}")), ("conf.d/a.toml", &more)]);
    assert_eq!(place.load().map(|config| config.upstreams.len()), Ok(2));
    place.write("conf.d/a.toml", &more.replace("\"headend.schema.json\"", "1"));
    place.write("headend.toml", MAIN);
    assert!(place.refused().contains("$schema\": must be a string"), "{}", place.refused());
}
