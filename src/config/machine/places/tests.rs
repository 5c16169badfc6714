use super::*;
use crate::tests::with_policy;

/// Returns an environment of these pairs.
fn env<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
}

/// Variables with values.
type Pairs = [(&'static str, &'static str)];

#[test]
fn the_configuration_is_looked_up_in_order() {
    /// Label, `--config`, environment, files that exist, and the expected result.
    type Row = (&'static str, Option<&'static str>, &'static Pairs, &'static [&'static str], &'static str);
    let rows: &[Row] = &[
        ("--config first", Some("/x"), &[("HEADEND_CONFIG", "/y")], &[], "/x"),
        ("then the variable", None, &[("HEADEND_CONFIG", "/y")], &["/c/headend/headend.toml"], "/y"),
        (
            "an empty one is none",
            None,
            &[("HEADEND_CONFIG", ""), ("XDG_CONFIG_HOME", "/c")],
            &["/c/headend/headend.toml"],
            "/c/headend/headend.toml",
        ),
        (
            "the home directory",
            None,
            &[("HOME", "/h")],
            &["/h/.config/headend/headend.toml"],
            "/h/.config/headend/headend.toml",
        ),
        ("a relative XDG is none", None, &[("XDG_CONFIG_HOME", "c"), ("HOME", "/h")], &["c/headend/headend.toml"], ""),
        ("the machine's", None, &[("HOME", "/h")], &[SYSTEM], SYSTEM),
        (
            "the user's before it",
            None,
            &[("HOME", "/h")],
            &[SYSTEM, "/h/.config/headend/headend.toml"],
            "/h/.config/headend/headend.toml",
        ),
        ("none", None, &[], &[], ""),
    ];
    for (label, explicit, pairs, files, wanted) in rows {
        let exists = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        let found = locate_among(explicit.map(Path::new), &env(pairs), &exists);
        let wanted =
            if wanted.is_empty() { ConfigLocation::Embedded } else { ConfigLocation::File(PathBuf::from(wanted)) };
        assert_eq!(found, wanted, "{label}");
    }
}

#[test]
fn state_lives_where_systemd_or_xdg_say() {
    let rows: &[(&Pairs, Option<&str>)] = &[
        (&[("STATE_DIRECTORY", "/var/lib/headend:/var/lib/other"), ("HOME", "/h")], Some("/var/lib/headend")),
        (&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")], Some("/s/headend")),
        (&[("HOME", "/h")], Some("/h/.local/state/headend")),
        (&[], None),
    ];
    for (pairs, wanted) in rows {
        assert_eq!(state_dir(&env(pairs)).as_deref(), wanted.map(Path::new));
    }
}

#[test]
fn programs_and_directories_that_are_not_there_are_told() {
    let config = with_policy(
        "[upstreams.a]\ncommand = [\"there\"]\n[upstreams.b]\ncommand = [\"gone\"]\n[upstreams.c]\ncommand = [\"/opt/c\"]\ncwd = \"/none\"\n\
         [upstreams.d]\ncommand = [\"own\"]\nenv = { PATH = \"/own\" }\n[upstreams.e]\nurl = \"https://e\"\n",
    );
    let programs = ["/usr/bin/there", "/own/own"];
    let is_program = |path: &Path| programs.iter().any(|program| Path::new(program) == path);
    let path = |name: &str| (name == "PATH").then(|| std::ffi::OsString::from("/bin:/usr/bin"));
    let warnings = find_missing(&config, &path, &is_program, &|path| path != Path::new("/none"));
    assert_eq!(
        warnings,
        [
            "upstreams.b.command: `gone` not found in PATH (/bin:/usr/bin)",
            "upstreams.c.command: no program at `/opt/c`",
            "upstreams.c.cwd: no directory at `/none`",
        ]
    );
}
