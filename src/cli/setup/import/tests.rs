use std::path::Path;

use super::*;
use crate::catalog::name::UpstreamName;
use crate::config::{Config, UpstreamTarget};

/// The environment of the samples' user.
fn exported(name: &str) -> Option<String> {
    Some(format!("value-of-{name}"))
}

fn sample(path: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import").join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// Returns the text and the meaning of a configuration that was imported without a terminal.
fn imported(files: &[(PathBuf, String)]) -> (String, Config) {
    imported_as(files, SilentDefault::Ask)
}

fn imported_as(files: &[(PathBuf, String)], silent: SilentDefault) -> (String, Config) {
    let text = converted(files, Some("/home/alice"), silent).unwrap();
    let loaded = config::parse(&text, "imported", &exported, &|_| Err(std::io::ErrorKind::NotFound.into()));
    let (config, _) = loaded.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    assert!(config.policy_stated, "the policy is written");
    (text, config)
}

fn names(config: &Config) -> Vec<&str> {
    config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect()
}

fn secret(config: &Config, upstream: &str, name: &str) -> String {
    let upstream = config.upstreams.iter().find(|one| one.name.as_str() == upstream).unwrap();
    let (UpstreamTarget::Stdio { env: values, .. } | UpstreamTarget::Http { headers: values, .. }) = &upstream.target;
    values.iter().find(|(other, _)| other == name).unwrap().1.expose().to_owned()
}

#[test]
fn claude_desktop_is_imported_without_its_secrets() {
    let (text, config) = imported(&[sample("claude-desktop/claude_desktop_config.json")]);
    assert_eq!(names(&config), ["filesystem", "github-server", "github-server-2"]);
    assert!(!text.contains("canary"), "{text}");
    assert!(text.contains("[upstreams.old]\nenabled = false\n"), "disabled entries stay so: {text}");
    let key = "GITHUB_PERSONAL_ACCESS_TOKEN";
    assert_eq!(secret(&config, "github-server", key), format!("value-of-{key}"));
    assert_eq!(secret(&config, "github-server", "GITHUB_TOOLSETS"), "repos,issues");
    // Another secret with the same name gets its own variable.
    assert_eq!(secret(&config, "github-server-2", key), format!("value-of-GITHUB_SERVER_2_{key}"));
}

#[test]
fn claude_code_keeps_variables_and_defaults() {
    let (text, config) = imported(&[sample("claude-code/.mcp.json")]);
    assert_eq!(names(&config), ["docs", "events", "db", "cache"]);
    assert_eq!(secret(&config, "docs", "Authorization"), "Bearer value-of-DOCS_TOKEN");
    assert_eq!(secret(&config, "docs", "X-Region"), "eu");
    assert_eq!(secret(&config, "db", "DATABASE_URL"), "value-of-DATABASE_URL");
    assert_eq!(secret(&config, "db", "POOL"), "4");
    for wanted in [
        "url = \"${DOCS_URL:-https://docs.example.com}/mcp\"",
        "[\"/usr/local/bin/pg-mcp\", \"--schema\", \"${PG_SCHEMA:-public}\"]\nexpand = true",
        "call-timeout = \"30s\"",
        "# Set DOCS_TOKEN: Authorization, header of docs",
        "[upstreams.events]\nurl = \"https://events.example.com/sse\"\ntransport = \"sse\"",
        "# Set CACHE_DIR: for cache",
        "# [upstreams.plain]",
    ] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
}

#[test]
fn cursor_knows_its_folder_and_the_home_directory() {
    let (text, config) = imported(&[sample("cursor/.cursor/mcp.json")]);
    assert_eq!(names(&config), ["web", "lint"]);
    assert_eq!(secret(&config, "web", "X-Api-Key"), "value-of-WEB_X_API_KEY");
    assert_eq!(secret(&config, "web", "X-User"), "value-of-USER_ID");
    assert!(text.contains("import/cursor/tools/lint-mcp\", \"--home\", \"/home/alice\"]"), "{text}");
    assert!(!text.contains("canary") && text.contains("# Not carried over: envFile."), "{text}");
}

#[test]
fn vs_code_inputs_become_variables() {
    let (text, config) = imported(&[sample("vscode/.vscode/mcp.json")]);
    assert_eq!(names(&config), ["git", "tracker", "asks"]);
    assert_eq!(secret(&config, "tracker", "Authorization"), "Bearer value-of-TRACKER_KEY");
    assert!(text.contains("# Set TRACKER_KEY: Tracker API key"), "{text}");
    assert!(text.contains("\"${TRACKER_KEY}\"]\nexpand = true"), "{text}");
}

#[test]
fn zed_has_two_forms_of_commands() {
    let (text, config) = imported(&[sample("zed/settings.json")]);
    assert_eq!(names(&config), ["pg", "older"]);
    assert_eq!(secret(&config, "older", "MODE"), "fast");
    assert!(text.contains("[upstreams.off]\nenabled = false\n"), "{text}");
}

#[test]
fn crush_is_read_and_what_its_file_says_is_kept() {
    let text = r#"{"$schema":"https://charm.land/crush.json","mcp":{
        "a":{"type":"stdio","command":"/bin/a","args":["-x"],"env":{"A_TOKEN":"$A_TOKEN"},"cwd":"~/src"},
        "b":{"type":"http","url":"https://b.example/mcp?api_key=ab12cd34ef56&profile=p"},
        "c":{"type":"sse","url":"https://c.example/sse","disabled":true}}}"#;
    let (text, config) = imported(&[("/home/alice/.config/crush/crush.json".into(), text.to_owned())]);
    assert_eq!(names(&config), ["a", "b"], "{text}");
    assert_eq!(secret(&config, "a", "A_TOKEN"), "value-of-A_TOKEN");
    assert!(text.contains("cwd = \"/home/alice/src\"") && text.contains("[upstreams.c]\nenabled = false"), "{text}");
    assert!(text.contains("url = \"https://b.example/mcp?api_key=${B_API_KEY}&profile=p\""), "{text}");
}

#[test]
fn several_files_become_one_configuration_with_unique_names() {
    let file = sample("zed/settings.json");
    let other = file.1.replace("\"--ro\"", "\"--rw\"");
    let (text, config) = imported(&[file.clone(), ("/tmp/settings.json".into(), other)]);
    assert_eq!(names(&config), ["pg", "older", "pg-2"]);
    assert_eq!(text.matches("# \"older\" of ").count(), 2, "the same server of two hosts is one: {text}");
}

#[test]
fn names_are_made_possible_and_unique() {
    let cases = [
        ("GitHub Server", "github-server"),
        ("github_server", "github-server-2"),
        ("--x--", "x"),
        ("日本", "upstream"),
        ("", "upstream-2"),
        ("a-name-that-is-much-longer-than-an-upstream-may-have", "a-name-that-is-much-longer"),
        ("a-name-that-is-much-longer-too", "a-name-that-is-much-longer-2"),
    ];
    let mut names = ImportNames::default();
    for (wanted, given) in cases {
        assert_eq!(names.upstream(wanted), given, "{wanted:?}");
        assert!(UpstreamName::parse(given).is_ok(), "{given}");
    }
}

#[test]
fn nothing_in_a_file_ends_a_comment_or_a_string() {
    let text = r#"{"mcpServers":{
        "evil\n[upstreams.one]\ncommand = [\"/bin/one\"]\n#":{"command":"/bin/a\"]\n[upstreams.two]\ncommand = [\"/bin/b","args":["\r\n\u0000"],
            "env":{"A\"\n=":"b\nc"}, "note\n[upstreams.three]\ncommand=['x']":1},
        "off\u2028":{"disabled":true,"command":"a\n[upstreams.four]\nurl='https://x'"}}}"#;
    let (text, config) = imported(&[(PathBuf::from("/tmp/a\nb.json"), text.to_owned())]);
    assert!(names(&config).is_empty(), "{text}");
}

#[test]
fn files_without_servers_are_refused() {
    let cases = [
        ("not JSON", "{\n  \"mcpServers\": {\n", "x.json:"),
        ("another file", "{\"theme\": 1}", "neither `mcpServers`"),
        ("empty", "", "neither `mcpServers`"),
        ("a list", "[]", "neither `mcpServers`"),
    ];
    for (label, text, wanted) in cases {
        let error =
            converted(&[(PathBuf::from("x.json"), text.to_owned())], None, SilentDefault::Ask).unwrap_err().to_string();
        assert!(error.contains(wanted), "{label}: {error}");
    }
}

#[test]
fn strange_shapes_are_no_reason_to_stop() {
    let bodies = [
        "null",
        "[]",
        "{}",
        "1",
        "{\"command\":{}}",
        "{\"command\":[\"a\",1,null]}",
        "{\"url\":\"\"}",
        "{\"url\":\"${\"}",
    ];
    for body in bodies {
        let text = format!("{{\"servers\":{{\"x\":{body},\"good\":{{\"command\":\"/bin/good\"}}}}}}");
        let (text, config) = imported(&[(PathBuf::from("x.json"), text)]);
        assert!(names(&config).contains(&"good"), "{body}: {text}");
    }
}

#[test]
fn a_server_with_nulls_is_the_server_without_them() {
    let keys = [
        "command",
        "cmd",
        "args",
        "env",
        "environment",
        "envs",
        "env_keys",
        "env_vars",
        "cwd",
        "workingDirectory",
        "url",
        "httpUrl",
        "serverUrl",
        "headers",
        "http_headers",
        "bearer_token_env_var",
        "requestInit",
        "type",
        "transport",
        "description",
        "roots",
        "disabled",
        "enabled",
        "autoApprove",
        "alwaysAllow",
        "timeout",
        "tools",
    ];
    for whole in [
        r#"{"cmd":"/bin/x","args":["a"]}"#,
        r#"{"command":"/bin/x","env":{"A":"b"},"cwd":"/tmp"}"#,
        r#"{"url":"https://x.example/mcp","transport":"sse"}"#,
        r#"{"serverUrl":"https://x.example/mcp","headers":{"A":"b"}}"#,
        r#"{"command":"/bin/x","disabled":true}"#,
        r#"{"command":"/bin/x","enabled":false}"#,
        r#"{"command":"/bin/x","autoApprove":["t"]}"#,
    ] {
        let read = |body: &str| imported(&[("x.json".into(), format!(r#"{{"mcpServers":{{"x":{body}}}}}"#))]).0;
        let want = read(whole);
        let absent: Vec<&str> = keys.into_iter().filter(|key| !whole.contains(&format!("\"{key}\""))).collect();
        let with = |nulls: &[&str]| {
            let nulls: String = nulls.iter().map(|key| format!("\"{key}\":null,")).collect();
            read(&whole.replacen('{', &format!("{{{nulls}"), 1))
        };
        for key in &absent {
            assert_eq!(with(&[key]), want, "{key}: null in {whole}");
        }
        assert_eq!(with(&absent), want, "{whole}");
    }
}

#[test]
fn a_file_that_is_nested_without_end_is_refused_with_its_line() {
    for deep in ["[".repeat(100_000), "{\"a\":".repeat(100_000), "// don't \"]\n[".repeat(200)] {
        let text = format!("{{\n\"mcpServers\": {deep}");
        let error = converted(&[("hosts.json".into(), text)], None, SilentDefault::Ask).unwrap_err().to_string();
        assert!(error.starts_with("hosts.json:") && error.contains("100 deep"), "{error}");
    }
}

/// Imports a file with one server, and returns the configuration.
fn one(file: &str, server: &str) -> String {
    let text = format!("{{\"mcpServers\":{{\"x\":{server}}}}}");
    imported(&[(PathBuf::from(file), text)]).0
}

#[test]
fn secrets_become_references() {
    for (server, wanted) in [
        // Values for which headend reads variables.
        (r#"{"command":"/x","env":{"A_TOKEN":"hunter2"}}"#, "env = { A_TOKEN = { env = \"A_TOKEN\" } }"),
        (r#"{"command":"/x","env":{"A_TOKEN":"true"}}"#, "env = { A_TOKEN = \"true\" }"),
        (
            r#"{"url":"https://a.example","headers":{"Authorization":"Bearer hunter2"}}"#,
            "{ env = \"X_AUTHORIZATION\", prefix = \"Bearer \" }",
        ),
        (
            r#"{"command":"env","args":["A_KEY=hunter2","/x"]}"#,
            "command = [\"/x\"]\nenv = { A_KEY = { env = \"A_KEY\" } }",
        ),
        (
            r#"{"command":"docker","args":["run","--rm","--init","-e","A_KEY=hunter2","-e","B=c","img"]}"#,
            "\"-e\", \"A_KEY\", \"-e\", \"B=c\", \"img\"]",
        ),
        // A secret in one place is a secret in another.
        (r#"{"command":"/x","args":["hunter2-hunter2"],"env":{"A_TOKEN":"hunter2-hunter2"}}"#, "[\"/x\", \"${"),
        (r#"{"command":"/x","args":["--key","hunter2"]}"#, "[\"/x\", \"--key\", \"${X_KEY}\"]"),
        (r#"{"command":"/x","args":["--dsn=postgres://a:hunter2@b/c"]}"#, "\"--dsn=${X_DSN}\""),
        (r#"{"command":"/x","args":["postgres://a:hunter2@b/c"]}"#, "\"postgres://a:${X_PASSWORD}@b/c\""),
        (r#"{"command":"/x","args":["a-${B:-ghp_hunter2hunter2}-c"]}"#, "[\"/x\", \"a-${"),
        (
            r#"{"url":"https://a.example/mcp?apiKey=hunter2&b=c"}"#,
            "url = \"https://a.example/mcp?apiKey=${X_APIKEY}&b=c\"",
        ),
    ] {
        let text = one("x.json", server);
        assert!(text.contains(wanted) && !text.contains("hunter2"), "{server}: {text}");
    }
}

#[test]
fn other_formats_are_read() {
    for (file, text, wanted) in [
        (
            "config.toml",
            "[mcp_servers.x]\nurl = \"https://a.example\"\nbearer_token_env_var = \"T\"\n",
            "{ env = \"T\", prefix = \"Bearer \" }",
        ),
        ("config.yaml", "mcpServers:\n  - name: x\n    command: /x\n    args: [a]\n", "command = [\"/x\", \"a\"]"),
        (
            "config.yaml",
            "extensions:\n  x:\n    type: stdio\n    cmd: /x\n    enabled: no\n",
            "[upstreams.x]\nenabled = false",
        ),
        (
            "opencode.json",
            "{\"mcp\":{\"x\":{\"type\":\"local\",\"command\":[\"/x\",\"y\"],\"environment\":{\"A\":\"{env:B}\"}}}}",
            "env = { A = { env = \"B\" } }",
        ),
        (
            "server.json",
            "{\"name\":\"a/x\",\"packages\":[{\"registryType\":\"pypi\",\"identifier\":\"p\",\"version\":\"1.0\"}]}",
            "[\"uvx\", \"p==1.0\"]",
        ),
        (
            "server.json",
            "{\"name\":\"a/x\",\"remotes\":[{\"type\":\"sse\",\"url\":\"https://a.example\",\"headers\":[{\"name\":\"K\",\"isSecret\":true}]}]}",
            "{ K = { env = \"K\" } }",
        ),
        (
            "x.json",
            "{\"mcpServers\":{\"x\":{\"url\":\"https://a.example\",\"roots\":[{\"uri\":\"file:///srv\"}],\"protocolEra\":\"legacy\"}}}",
            "roots = [\"file:///srv\"]\nera = \"legacy\"",
        ),
    ] {
        let (text, _) = imported(&[(PathBuf::from(file), text.to_owned())]);
        assert!(text.contains(wanted), "{file}: {wanted}\n{text}");
    }
}

#[test]
fn headend_is_not_imported_into_itself() {
    for server in [r#"{"command":"/usr/bin/headend","args":["stdio"]}"#, r#"{"url":"http://127.0.0.1:8627/mcp"}"#] {
        assert!(!one("x.json", server).contains("upstreams"), "{server}");
    }
}

#[test]
fn the_policy_follows_the_hosts() {
    let says = r#"{"command":"/x","autoApprove":["get"]}"#;
    let text = one("x.json", says);
    for wanted in ["default = \"ask\"", "claims = { read-only = true, open-world = false }", "tools = [\"x__get\"]"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let both = format!("{{\"mcpServers\":{{\"x\":{says},\"y\":{{\"command\":\"/y\"}}}}}}");
    let both = [(PathBuf::from("x.json"), both)];
    let (text, _) = imported_as(&both, SilentDefault::Allow);
    assert!(text.contains("default = \"ask\"") && text.contains("upstreams = [\"y\"]"), "{text}");
    let (text, _) = imported(&both);
    assert!(text.contains("default = \"ask\"") && !text.contains("upstreams = [\"y\"]"), "{text}");
    let silent = [(PathBuf::from("x.json"), r#"{"mcpServers":{"x":{"command":"/x"}}}"#.to_owned())];
    assert!(imported_as(&silent, SilentDefault::Allow).0.contains("default = \"allow\""));
    let (text, _) = imported(&silent);
    assert!(text.contains("default = \"ask\"") && text.contains("id = \"import-reads\""), "{text}");
}

#[test]
fn a_pipe_a_device_and_a_huge_file_are_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, huge) = (dir.path().join("pipe"), dir.path().join("huge"));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    std::fs::File::create(&huge).unwrap().set_len(MAX_FILE + 1).unwrap();
    for (path, want) in [
        (pipe.as_path(), "is not a file but a pipe"),
        (Path::new("/dev/zero"), "is not a file but a pipe, a device"),
        (dir.path(), "is not a file but a directory"),
        (huge.as_path(), "is larger than"),
    ] {
        let why = HostText::read(path, None).map(drop).unwrap_err();
        assert!(why.starts_with(&path.display().to_string()) && why.contains(want), "{why}");
    }
}
