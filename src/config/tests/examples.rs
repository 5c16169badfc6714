//! Tests of the shipped files: example configurations and systemd units.

use super::*;

/// Returns the root folder of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

pub(super) fn shipped(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Puts the examples of a text in force: removes the `#` of `#key = value` and `#[table]`.
pub(super) fn examples(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn shipped_configurations_load_without_warnings() {
    let dir = root().join("config");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let read = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
                Some("store-url") => Ok("postgres://headend@db.example/headend".to_owned()),
                Some("store-key") => Ok("0123456789abcdef".repeat(4)),
                _ => paths(path),
            };
            let loaded = parse(&text, &path.display().to_string(), &every, &read);
            let (config, warnings) = loaded.unwrap_or_else(|problems| panic!("{problems}"));
            // The first file has no upstream yet, and headend warns of that.
            let expected = usize::from(config.upstreams.is_empty() && path.ends_with("init.toml"));
            assert!(config.policy_stated && warnings.len() == expected, "{}: {warnings:?}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} files");
}

#[test]
fn every_example_of_the_annotated_file_loads() {
    let text = examples(&shipped("config/headend.toml"));
    let (config, warnings) = good(&text);
    assert_eq!(warnings, [], "{text}");
    assert_eq!((config.policy.rules.len(), config.policy.limits.len(), config.profiles.len()), (5, 1, 1));
}

#[test]
fn every_example_of_the_first_file_loads() {
    let (config, warnings) = good(&examples(&shipped("config/init.toml")));
    assert_eq!(warnings, []);
    assert_eq!((config.upstreams.len(), config.policy.rules.len()), (2, 2));
}

#[test]
fn the_annotated_file_shows_the_limits_with_their_defaults() {
    let (config, _) = good(&examples(&shipped("config/headend.toml")));
    assert_eq!(config.server.limits, Limits::default());
}

#[test]
fn the_annotated_file_teaches_every_key() {
    let text = shipped("config/headend.toml");
    let shown = show::render(&good(FULL).0);
    for key in shown.lines().filter_map(|line| Some(line.split_once(" = ")?.0)) {
        let taught = text.lines().any(|line| line.trim_start_matches('#').starts_with(&format!("{key} = ")));
        assert!(taught, "`{key}` is not in config/headend.toml");
    }
    for table in shown.lines().filter_map(|line| line.strip_prefix('[')) {
        let start = table.split('.').next().unwrap_or_default().trim_end_matches(']');
        assert!(text.contains(start), "[{start} is not in config/headend.toml");
    }
}
