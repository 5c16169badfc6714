use super::*;

/// Creates a home with these files and their directories.
fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    home
}

fn found_beside(home: &Path, more: &[(&str, &str)], path: &[&str]) -> Vec<String> {
    let env = |name: &str| {
        let own = (name == "HOME").then(|| home.to_str().unwrap().to_owned());
        own.or_else(|| more.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
    };
    let below = |path: PathBuf| path.strip_prefix(home).unwrap_or(&path).display().to_string();
    let there: Vec<PathBuf> = path.iter().map(|path| home.join(path)).collect();
    directories(&env, &there).into_iter().map(below).collect()
}

fn found(home: &Path, more: &[(&str, &str)]) -> Vec<String> {
    found_beside(home, more, &[])
}

#[test]
fn the_directories_that_are_there_are_found_in_order() {
    let all = home(&[
        (".local/bin/uvx", ""),
        (".volta/bin/node", ""),
        (".pyenv/shims/python", ""),
        (".pyenv/bin/pyenv", ""),
        (".local/share/mise/shims/node", ""),
        (".nvm/versions/node/v18.0.0/bin/npx", ""),
    ]);
    let wanted = [
        ".local/bin",
        ".local/share/mise/shims",
        ".volta/bin",
        ".nvm/versions/node/v18.0.0/bin",
        ".pyenv/shims",
        ".pyenv/bin",
    ];
    assert_eq!(found(all.path(), &[]), wanted);
    assert!(found(all.path(), &[("STATE_DIRECTORY", "/var/lib/headend")]).is_empty(), "a service of the system");
    assert!(found(home(&[]).path(), &[]).is_empty());
    for (there, gone) in [
        (".local/bin", ".local/bin"),
        (".local/share/mise/installs/node/22/bin", ".local/share/mise/shims"),
        (".nvm/versions/node/v16.0.0/bin", ".nvm/versions/node/v18.0.0/bin"),
    ] {
        let left: Vec<&str> = wanted.iter().copied().filter(|directory| *directory != gone).collect();
        assert_eq!(found_beside(all.path(), &[], &[there]), left, "the search path has it");
    }
    let moved = home(&[("m/shims/node", ""), ("v/bin/node", ""), ("n/versions/node/v1.0.0/bin/npx", "")]);
    let at = |name: &str| moved.path().join(name).display().to_string();
    let variables = [("MISE_DATA_DIR", &at("m")), ("VOLTA_HOME", &at("v")), ("NVM_DIR", &at("n"))];
    let variables = variables.map(|(name, value)| (name, value.as_str()));
    assert_eq!(found(moved.path(), &variables), ["m/shims", "v/bin", "n/versions/node/v1.0.0/bin"]);
}

#[test]
fn a_directory_that_others_may_write_counts_as_none() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = home(&[(".local/bin/uvx", ""), (".volta/bin/node", "")]);
    std::fs::set_permissions(home.path().join(".local/bin"), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(found(home.path(), &[]), [".volta/bin"]);
}

#[test]
fn nvm_has_the_version_of_a_new_shell() {
    let version = |name: &str| format!(".nvm/versions/node/{name}/bin/npx");
    let (a, b, c) = (version("v9.11.2"), version("v20.1.0"), version("v20.10.3"));
    let installed = [(a.as_str(), ""), (b.as_str(), ""), (c.as_str(), "")];
    for (aliases, wanted) in [
        (vec![], Some("v20.10.3")),
        (vec![("default", "node\n")], Some("v20.10.3")),
        (vec![("default", "9")], Some("v9.11.2")),
        (vec![("default", "v20.1")], Some("v20.1.0")),
        (vec![("default", "20")], Some("v20.10.3")),
        (vec![("default", "lts/*"), ("lts/*", "lts/iron"), ("lts/iron", "v20.1.0")], Some("v20.1.0")),
        (vec![("default", "system")], None),
        (vec![("default", "21")], None),
        (vec![("default", "../../../../etc/hostname")], None),
        (vec![("default", "one"), ("one", "default")], None),
    ] {
        let aliases: Vec<_> = aliases.into_iter().map(|(name, text)| (format!(".nvm/alias/{name}"), text)).collect();
        let files: Vec<_> = aliases.iter().map(|(name, text)| (name.as_str(), *text)).chain(installed).collect();
        let home = home(&files);
        let wanted: Vec<String> = wanted.iter().map(|name| format!(".nvm/versions/node/{name}/bin")).collect();
        assert_eq!(found(home.path(), &[]), wanted, "{aliases:?}");
    }
}

#[test]
fn another_version_is_the_same_place_and_nothing_else_is() {
    let folders = [PathBuf::from("/h/.nvm/versions/node"), PathBuf::from("/h/.pyenv/versions")];
    let same = |one: &str, other: &str| is_same_place(Path::new(one), Path::new(other), &folders);
    assert!(same("/h/.nvm/versions/node/v20.1.0/bin/npx", "/h/.nvm/versions/node/v22.0.0/bin/npx"));
    assert!(same("/h/.pyenv/versions/3.11.1/bin/python", "/h/.pyenv/versions/3.12.0/bin/python"));
    for (one, other) in [
        ("/h/.nvm/versions/node/v20.1.0/bin/npx", "/h/.nvm/versions/node/v22.0.0/bin/node"),
        ("/h/.nvm/versions/node/v20.1.0/bin/npx", "/h/.nvm/versions/node/v22.0.0/lib/bin/npx"),
        ("/h/.nvm/versions/node/v20.1.0/bin/npx", "/h/.nvm/versions/node/evil/bin/npx"),
        ("/h/.nvm/versions/node/v20.1.0/bin/npx", "/h/.nvm/versions/node/v22.0.0/../../bin/npx"),
        ("/h/.nvm/versions/node/v20.1.0/bin/npx", "/h/.pyenv/versions/3.12.0/bin/npx"),
        ("/h/.nvm/versions/node/v20.1.0/bin/npx", "/usr/bin/npx"),
        ("/h/.nvm/versions/node/v20.1.0", "/h/.nvm/versions/node/v22.0.0"),
        ("/usr/bin/npx", "/usr/local/bin/npx"),
    ] {
        assert!(!same(one, other) && !same(other, one), "{one} {other}");
    }
}

#[test]
fn known_directories_have_the_newest_version_first_and_heed_the_homes_of_managers() {
    let home = home(&[
        (".nvm/versions/node/v18.20.1/bin/npx", ""),
        (".nvm/versions/node/v9.0.0/bin/npx", ""),
        (".nvm/versions/node/v22.1.0/bin/npx", ""),
        (".nvm/versions/node/alias", ""),
        ("f/node-versions/v20.0.0/installation/bin/npx", ""),
    ]);
    let (own, fnm) = (home.path().to_str().unwrap(), home.path().join("f").display().to_string());
    let env = |name: &str| match name {
        "HOME" => Some(own.to_owned()),
        "FNM_DIR" => Some(fnm.clone()),
        // Unlike for the search, a service of the system is no exception: its operator asks.
        "STATE_DIRECTORY" => Some("/var/lib/headend".to_owned()),
        _ => None,
    };
    let below: Vec<String> = known_directories(&env)
        .iter()
        .filter_map(|path| Some(path.strip_prefix(home.path()).ok()?.display().to_string()))
        .collect();
    let node = ["v22.1.0", "v18.20.1", "v9.0.0"].map(|version| format!(".nvm/versions/node/{version}/bin"));
    let at = below.iter().position(|path| *path == node[0]).unwrap();
    assert_eq!(below[at..at + 3], node);
    assert_eq!(below[at + 3], "f/node-versions/v20.0.0/installation/bin");
    assert!(!below.iter().any(|path| path.contains("alias")) && below.contains(&".cargo/bin".to_owned()));
}
