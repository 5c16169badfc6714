use super::*;
use crate::tests::{good, with_policy};

/// Returns names and values of the variables that the program of the first upstream inherits.
fn inherited_by(text: &str, env: &EnvironmentLookup<'_>) -> Vec<(String, String)> {
    let config = with_policy(text);
    let all = inherited_variables(&config.upstreams[0], env).into_iter().flatten();
    all.map(|(name, value)| (name, value.into_string().unwrap())).collect()
}

const FX: &str = "[upstreams.fx]\ncommand = [\"/fx\"]\n";

#[test]
fn trust_decides_which_variables_are_inherited_and_names_add_to_them() {
    let every = |_: &str| Some(OsString::from("x"));
    let names = |more: &str| -> Vec<String> {
        inherited_by(&format!("{FX}{more}"), &every).into_iter().map(|(name, _)| name).collect()
    };
    let usual = names("");
    for name in
        ["HOME", "LANG", "TMPDIR", "https_proxy", "NODE_EXTRA_CA_CERTS", "LC_ALL", "XDG_CONFIG_HOME", "UV_CACHE_DIR"]
    {
        assert!(usual.iter().any(|one| one == name), "{name} is not in {usual:?}");
    }
    for name in [
        "PATH",
        "SSH_AUTH_SOCK",
        "DOCKER_HOST",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
    ] {
        assert!(!usual.iter().any(|one| one == name), "{name} is in {usual:?}");
    }
    assert_eq!(names("trust = \"untrusted\""), ["HOME", "LANG", "TMPDIR"]);
    assert_eq!(
        names("trust = \"untrusted\"\nenv-from = [\"SSH_AUTH_SOCK\", \"https_proxy\"]"),
        ["HOME", "LANG", "TMPDIR", "SSH_AUTH_SOCK", "https_proxy"]
    );
    assert_eq!(names("env-from = [\"DISPLAY\", \"HOME\"]").len(), usual.len() + 1, "none comes twice");
    assert!(inherited_by(FX, &|_| None).is_empty());
}

#[test]
fn a_proxy_is_inherited_without_its_password_unless_it_is_named() {
    for (value, wanted) in [
        ("http://proxy:3128", Some("http://proxy:3128")),
        ("http://user:pw@proxy:3128/", Some("http://proxy:3128/")),
        ("http://user@name:p@w@proxy", Some("http://proxy")),
        ("user:pw@proxy:3128", Some("proxy:3128")),
        ("http://user:p/w@proxy:3128", None),
        ("localhost,.example.com,10.0.0.0/8", Some("localhost,.example.com,10.0.0.0/8")),
        ("", Some("")),
    ] {
        let env = |name: &str| (name == "HTTPS_PROXY").then(|| OsString::from(value));
        let plain = inherited_by(FX, &env).pop().map(|(_, value)| value);
        assert_eq!(plain.as_deref(), wanted, "{value}");
        let named = inherited_by(&format!("{FX}env-from = [\"HTTPS_PROXY\"]"), &env);
        assert_eq!(named, [("HTTPS_PROXY".to_owned(), value.to_owned())]);
    }
}

#[test]
fn directories_stand_before_the_path_of_the_program() {
    let home = tempfile::tempdir().unwrap();
    let local = home.path().join(".local/bin");
    std::fs::create_dir_all(&local).unwrap();
    let local = local.to_str().unwrap();
    let path = |more: &str, ours: Option<&str>| {
        let (config, _) = good(&format!("{FX}{more}\n[policy]\n"));
        let env = |name: &str| match name {
            "HOME" => Some(home.path().as_os_str().to_owned()),
            "PATH" => ours.map(OsString::from),
            _ => None,
        };
        let found = search_path(&config.upstreams[0], true, &env);
        found.map(|path| path.into_string().unwrap().replace(local, "LOCAL"))
    };
    for (label, more, ours, wanted) in [
        ("version managers", "", Some("/usr/bin:/bin"), Some("LOCAL:/usr/bin:/bin")),
        ("no path of ours", "", None, Some("LOCAL")),
        ("one that is there already", "", Some(&*format!("/usr/bin:{local}")), Some("/usr/bin:LOCAL")),
        ("directories of its own", "path = [\"/x\", \"/y\"]", Some("/bin"), Some("/x:/y:LOCAL:/bin")),
        ("one that is named already", &*format!("path = [{local:?}]"), Some("/bin"), Some("LOCAL:/bin")),
        ("none at all", "path = []", Some("/bin"), Some("/bin")),
        ("none at all, and no path of ours", "path = []", None, None),
        ("a PATH that is stated", "env = { PATH = \"/own\" }", Some("/bin"), Some("/own")),
        ("both", "env = { PATH = \"/own\" }\npath = [\"/x\"]", Some("/bin"), Some("/x:/own")),
    ] {
        assert_eq!(path(more, ours).as_deref(), wanted, "{label}");
    }
}

#[test]
fn defaults_are_added_but_an_untrusted_upstream_gets_no_variables_of_them() {
    let read = |defaults: &str, own: &str| {
        let (config, _) = good(&format!("[defaults]\n{defaults}\n{FX}{own}\n[policy]\n"));
        config.upstreams[0].surroundings.clone()
    };
    let surroundings = |env_from: &[&str], path: &[&str], managers: bool| ProgramSurroundings {
        env_from: env_from.iter().map(ToString::to_string).collect(),
        path: path.iter().map(PathBuf::from).collect(),
        managers,
    };
    let both = "env-from = [\"A\", \"B\"]\npath = [\"/a\", \"/b\"]";
    for (defaults, own, wanted) in [
        ("", "", surroundings(&[], &[], true)),
        (both, "", surroundings(&["A", "B"], &["/a", "/b"], true)),
        (
            both,
            "env-from = [\"C\", \"A\"]\npath = [\"/b\", \"/c\"]",
            surroundings(&["C", "A", "B"], &["/b", "/c", "/a"], true),
        ),
        (both, "env-from = [\"C\"]\ntrust = \"untrusted\"", surroundings(&["C"], &["/a", "/b"], true)),
        (both, "path = []", surroundings(&["A", "B"], &[], false)),
        ("path = []", "", surroundings(&[], &[], false)),
        ("path = []", "path = [\"/x\"]", surroundings(&[], &["/x"], false)),
    ] {
        assert_eq!(read(defaults, own), wanted, "{defaults} {own}");
    }
}
