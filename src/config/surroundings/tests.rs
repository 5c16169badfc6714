use super::*;
use crate::config::tests::with_policy;

/// The names that the program of the first upstream inherits, and their values.
fn inherited_by(text: &str, env: &Lookup<'_>) -> Vec<(String, String)> {
    let config = with_policy(text);
    let all = inherited(&config.upstreams[0], env).into_iter().flatten();
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
    for name in
        ["SSH_AUTH_SOCK", "DOCKER_HOST", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"]
    {
        assert!(!usual.iter().any(|one| one == name), "{name} is in {usual:?}");
    }
    assert_eq!(names("trust = \"untrusted\""), ["PATH", "HOME", "LANG", "TMPDIR"]);
    assert_eq!(
        names("trust = \"untrusted\"\nenv-from = [\"SSH_AUTH_SOCK\", \"https_proxy\"]"),
        ["PATH", "HOME", "LANG", "TMPDIR", "SSH_AUTH_SOCK", "https_proxy"]
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
