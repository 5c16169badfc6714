//! Tests from texts to configurations and to problems. `examples` loads the shipped files.

use std::fmt::Write as _;
use std::time::Duration;

use super::model::NamingSettings;
use super::*;
use crate::policy::RuleEffect;
use crate::source::secret::Secret;

mod cluster;
mod examples;
mod folder;
mod issuers;
mod logins;
mod problems;
mod schema;

/// An environment in which every variable is set, each to another value.
pub(super) fn every(name: &str) -> Option<String> {
    Some(format!("/a-long-value-of-{name}"))
}

fn nothing(_: &str) -> Option<String> {
    None
}

/// A file system in which the content of every file is its own path.
#[expect(clippy::unnecessary_wraps, reason = "the shape of `read_to_string`")]
pub(super) fn paths(path: &Path) -> io::Result<String> {
    Ok(format!("{}\n", path.display()))
}

/// Parses a text that has no problem.
#[track_caller]
pub(super) fn good(text: &str) -> (Config, Vec<ConfigWarning>) {
    parse(text, "test.toml", &every, &paths).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Parses a text with a policy that has only a default.
pub(super) fn with_policy(text: &str) -> Config {
    good(&format!("[policy]\ndefault = \"allow\"\n{text}")).0
}

#[test]
fn users_of_the_socket_without_a_group_are_warned_about_with_what_to_write() {
    let (_, warnings) = good("[admin]\nusers = [\"alice\"]");
    let told: Vec<String> = warnings.iter().map(ToString::to_string).filter(|line| line.contains("admin")).collect();
    assert!(told.len() == 1 && told[0].contains("write `group = \"headend\"`"), "{told:?}");
    let (_, warnings) = good("[admin]\nusers = [\"alice\"]\ngroup = \"headend\"");
    assert!(warnings.iter().all(|warning| !warning.to_string().contains("admin")), "{warnings:?}");
}

#[test]
fn an_empty_file_has_the_defaults_and_two_warnings() {
    let (config, warnings) = good("");
    assert_eq!(config.server.listen, ["127.0.0.1:8627".parse().unwrap()]);
    assert_eq!(config.server.endpoint, "/mcp");
    assert_eq!(config.server.auth, ClientAuth::Token { tokens: Vec::new() });
    assert_eq!(config.server.drain_timeout, Duration::from_secs(25));
    assert_eq!(config.metrics.listen, Some("127.0.0.1:9627".parse().unwrap()));
    assert_eq!(config.naming, NamingSettings { uris: UriExposure::Keep });
    assert_eq!(config.audit, AuditSettings::default());
    assert_eq!((config.policy.default, config.policy_stated), (RuleEffect::Ask, false));
    let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("test.toml: policy: there is no [policy] table")), "{texts:?}");
}

#[test]
fn upstreams_keep_the_order_of_the_file() {
    let config = with_policy(
        "[upstreams.z]\nurl = \"https://z\"\n[upstreams.a.env]\nB = \"1\"\nA = \"2\"\n[upstreams.m]\ncommand = [\"/m\"]\n[upstreams.a]\ncommand = [\"/a\"]\n",
    );
    let names: Vec<&str> = config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    // The order of the upstreams' own tables counts.
    assert_eq!(names, ["z", "m", "a"]);
    let UpstreamTarget::Stdio { env, .. } = &config.upstreams[2].target else { panic!("not stdio") };
    assert_eq!(env.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["B", "A"]);
}

#[test]
fn an_upstream_has_the_defaults_of_its_kind() {
    let config = with_policy("[upstreams.a]\ncommand = [\"/a\"]\n[upstreams.b]\nurl = \"http://[::1]:80/mcp\"\n");
    let [a, b] = config.upstreams.as_slice() else { panic!("two") };
    assert_eq!((a.max_in_flight, b.max_in_flight), (16, 64));
    assert_eq!((a.call_timeout, a.call_max), (Duration::from_secs(60), Duration::from_secs(600)));
    assert_eq!((a.queue, a.queue_timeout), (128, Duration::from_secs(5)));
    assert_eq!((a.idle_stop, a.max_inventory), (Duration::from_secs(600), 10_000));
    assert_eq!((a.prefix.as_str(), &a.tools), ("a__", &FilterSettings::default()));
    assert_eq!((a.era, a.instance, a.start), (EraChoice::Auto, InstanceScope::Auto, StartMode::Eager));
}

#[test]
fn every_number_of_the_limits_can_be_set() {
    let defaults = Limits::default();
    assert_eq!((defaults.body_bytes, defaults.in_flight, defaults.sessions), (4 << 20, 512, 4096));
    let mut text = "[server.limits]\n".to_owned();
    let mut expected = String::new();
    for (key, value) in &defaults.shown() {
        let other = match value.to_string().trim_matches('"') {
            text if text.ends_with("/s") || text.ends_with("/m") => "\"7/h\"".to_owned(),
            _ if key.starts_with("max-instructions") => "\"2KiB\"".to_owned(),
            text if text.ends_with('B') => "\"2MiB\"".to_owned(),
            text if text.ends_with(['s', 'm', 'h']) => "\"7s\"".to_owned(),
            text => (text.parse::<usize>().unwrap() + 1).to_string(),
        };
        writeln!(expected, "{key} = {other}").unwrap();
    }
    text.push_str(&expected);
    let (config, _) = good(&text);
    let lines = |limits: &Limits| -> Vec<String> {
        limits.shown().iter().map(|(key, value)| format!("{key} = {value}")).collect()
    };
    let (shown, defaults) = (lines(&config.server.limits), lines(&defaults));
    for (shown, (expected, default)) in shown.iter().zip(expected.lines().zip(&defaults)) {
        assert_eq!(shown, expected);
        assert!(shown != default, "{shown} was not changed");
    }
}

#[test]
fn secrets_come_from_the_text_the_environment_files_and_credentials() {
    let config = with_policy(
        "[upstreams.a]\nurl = \"https://a\"\n[upstreams.a.headers]\nA = \"literal\"\nB = { env = \"TOKEN\", prefix = \"Bearer \" }\nC = { file = \"/run/c\" }\nD = { credential = \"d\" }\n",
    );
    let UpstreamTarget::Http { headers, .. } = &config.upstreams[0].target else { panic!("not HTTP") };
    let values: Vec<&str> = headers.iter().map(|(_, value)| value.expose()).collect();
    assert_eq!(
        values,
        ["literal", "Bearer /a-long-value-of-TOKEN", "/run/c", "/a-long-value-of-CREDENTIALS_DIRECTORY/d"]
    );
    assert!(!format!("{config:?}").contains("value-of-TOKEN"), "debug shows no secret");
}

#[test]
fn a_missing_secret_of_an_upstream_is_a_warning_that_names_its_key() {
    let text = "[upstreams.a]\nurl = \"https://a\"\n[upstreams.a.headers]\nA = { env = \"NOT_SET\" }\nB = { file = \"/none\" }\nC = { credential = \"c\" }\n";
    let missing = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let (config, warnings) = parse(text, "x", &nothing, &missing).unwrap();
    let lines = warnings.iter().map(ToString::to_string);
    let lines: Vec<String> = lines.filter(|line| line.contains("headers")).collect();
    let problems = lines.join("\n");
    assert_eq!(config.upstreams[0].lacks.len(), 3, "{problems}");
    assert!(config.upstreams[0].lacks[0].starts_with("the environment variable `NOT_SET` is not set; export it"));
    assert!(
        lines[0].starts_with("x:4: upstreams.a.headers.A.env: the environment variable `NOT_SET` is not set"),
        "{problems}"
    );
    assert!(lines[1].starts_with("x:5: upstreams.a.headers.B.file: read /none:"), "{problems}");
    assert!(
        lines[2].starts_with("x:6: upstreams.a.headers.C.credential: $CREDENTIALS_DIRECTORY is not set"),
        "{problems}"
    );
}

#[test]
fn every_problem_is_told_at_once_in_the_order_of_the_file() {
    let text = "[server]\nlisten = [\"0.0.0.0:1\"]\nendpont = \"/x\"\n[upstreams.Bad]\ncommand = []\n[upstreams.ok]\nurl = \"ftp://x\"\nnonsense = 1\n";
    let problems = parse(text, "bad.toml", &nothing, &paths).unwrap_err();
    let found: Vec<(usize, &str)> = problems.0.iter().map(|p| (p.line.unwrap(), p.path.as_str())).collect();
    let expected = [
        (2, "server.listen[0]"),
        (3, "server.endpont"),
        (4, "upstreams.Bad"),
        (5, "upstreams.Bad.command"),
        (7, "upstreams.ok.url"),
        (8, "upstreams.ok.nonsense"),
    ];
    assert_eq!(found, expected, "{problems}");
    assert!(
        problems.to_string().contains("bad.toml:3: server.endpont: unknown key; did you mean `endpoint`?"),
        "{problems}"
    );
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("headend.toml");
    std::fs::write(&path, "[policy]\ndefault = \"deny\"\n").unwrap();
    for (mode, accepted) in
        [(0o600, true), (0o640, true), (0o644, true), (0o664, false), (0o646, false), (0o666, false)]
    {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let loaded = load(&path).outcome;
        assert_eq!(loaded.is_ok(), accepted, "{mode:o}: {loaded:?}");
        if let Ok((config, _)) = loaded {
            assert_eq!(config.path.as_deref(), Some(path.as_path()));
        }
    }
    let missing = load(&dir.path().join("none.toml")).outcome.unwrap_err();
    assert!(missing.contains("none.toml: cannot be read: "), "{missing}");
    assert!(load(dir.path()).outcome.unwrap_err().contains("is not a file"));
}

/// A configuration with every key of this release.
pub(super) const FULL: &str = r#"
[server]
listen = ["127.0.0.1:0", "[::1]:8627"]
endpoint = "/a/mcp"
allowed-hosts = ["mcp.example.com", "mcp.example.com:8443"]
allowed-origins = ["https://app.example.com"]
drain-timeout = "1500ms"
[server.auth]
tokens = { ci = { env = "CI_TOKEN" } }
[server.auth.scopes]
"mcp:write" = { tools = ["z__*"], unless = [{ pointer = "/p", absent = true }] }
read = { upstreams = ["a"], kinds = ["prompt", "resource"], profiles = ["p"] }
tools = { prompts = ["a__*"], resources = ["a+*"] }
[server.auth.scopes."hint/s"]
annotations = { read-only = false }
claims = { open-world = true }
arguments = [{ pointer = "/a", eq = 1 }]
[server.limits]
max-body = 1048576
caller-rate = "5/m"
[metrics]
listen = ""
[admin]
socket = "/run/x.sock"
group = "staff"
users = ["alice"]
[stdio]
reconnect-timeout = "7m"
[naming]
uris = "prefix"
[defaults]
env-from = ["AWS_PROFILE"]
path = ["/opt/all"]
[upstreams.w]
url = "http://127.0.0.1:9/mcp"
[upstreams.w.auth]
type = "oauth"
issuers = ["http://127.0.0.1:8", "https://as.example"]
client-id = "me"
scopes = ["a", "b"]
resource = "https://w.example/mcp"
redirect-url = "http://127.0.0.1:7/cb"
[upstreams.z]
expand = true
command = ["/bin/z", "--token=abc", "a\"b\\c\n", "${W:-w}"]
env = { A = "1", B = { file = "/b" } }
cwd = "/srv/${D}"
env-from = ["SSH_AUTH_SOCK"]
path = ["/opt/z", "/opt/y"]
no-new-privileges = false
umask = "022"
era = "legacy"
instance = "shared"
start = "lazy"
call-timeout = "90s"
call-max = "2h"
start-timeout = "1m"
start-wait = "10s"
idle-stop = "3m"
max-inventory = 500
max-in-flight = 3
queue = 0
queue-timeout = "0s"
attribution-timeout = "1500ms"
elicit-hosts = ["login.example.com", "*.bücher.example"]
elicit-secrets = true
prefix = "zed_"
tools = { allow = ["a*", "{b,c}"], deny = ["ab"], rename = { "old.name" = "new" } }
resources = { deny = ["file:///secret/*"] }
trust = "trusted"
annotations = { "delete_*" = { destructive = true, read-only = false }, x = { open-world = false, idempotent = true } }
[upstreams.a]
url = "https://a.example.com/mcp?key=abc&x=1"
transport = "streamable-http"
era = "modern"
headers = { Authorization = { env = "A" } }
proxy = "http://proxy.example.com:3128"
[upstreams.off]
command = ["/bin/off"]
path = []
enabled = false
[policy]
default = "deny"
[[policy.rules]]
id = "r1"
effect = "allow"
upstreams = ["a"]
prompts = ["a__*"]
callers = ["ci", "local"]
groups = ["dev", "ops-*"]
[[policy.rules]]
id = "r2"
effect = "deny"
tools = ["z__*"]
resources = ["z+file://*"]
[[policy.rules]]
id = "r3"
effect = "ask"
tools = ["a__*"]
profiles = ["p"]
kinds = ["tool"]
annotations = { read-only = false, open-world = true }
claims = { destructive = true, idempotent = false }
min-evidence = "L2"
arguments = [
  { pointer = "/a", eq = "x\ny" },
  { pointer = "/b2", ne = 1.5 },
  { pointer = "/c", in = ["x", -7, true] },
  { pointer = "/d", prefix = "x" },
  { pointer = "/e", suffix = "x" },
  { pointer = "/f", glob = "x*" },
  { pointer = "/g", regex = "^x\\d+$" },
  { pointer = "/h", path-under = "/srv" },
  { pointer = "/i", url-host-in = ["example.com", "*.example.org"] },
  { pointer = "/j/*", email-domain-in = ["example.com"] },
  { pointer = "/k", cidr-in = ["10.0.0.0/8"] },
  { pointer = "/l", range = { min = 1, max = 1e3 } },
  { pointer = "/m", max-len = 7 },
  { pointer = "/n", max-items = 7 },
  { pointer = "/o", type = "integer" },
]
unless = [{ pointer = "/p", absent = true }, { pointer = "/q", present = true }]
[[policy.limits]]
id = "l"
tools = ["a__*"]
upstreams = ["*"]
callers = ["*"]
groups = ["dev"]
key = ["caller", "upstream", "tool"]
rate = "30/m"
concurrent = 4
per-day = 1000
[[policy.limits]]
id = "alone"
concurrent = 1
[policy.consent]
operator = "terminal"
hold = "30s"
max-held = 7
[[policy.consent.holds]]
callers = ["ci"]
profiles = ["p"]
clients = ["ed*", "*-cli"]
hold = "0s"
[[policy.consent.holds]]
clients = ["slow"]
hold = "1500ms"
[profiles.p]
upstreams = ["a", "z"]
callers = ["corp:*"]
groups = ["dev"]
tools = { allow = ["a__*"], deny = ["z__x"] }
[profiles.q]
upstreams = ["a"]
transparent = true
[audit]
path = "/var/log/headend"
capture-arguments = "full"
strict = true
on-failure = "continue"
max-segment = "1MiB"
retain = { age = "90d", size = "1GiB" }
[secrets]
key = { credential = "headend-store-key" }
previous-key = { credential = "headend-store-key-of-before" }
[cluster]
store = { env = "STORE", prefix = "postgres://headend@db.example/" }
name = "left"
store-wait = "1m"
peer-listen = "10.0.0.7:8630"
peer-url = "https://left.example:8630/"
[log]
filter = "warn,headend::upstream=debug"
format = "json"
"#;

#[test]
fn what_is_shown_reads_back_as_the_same_configuration() {
    let (mut config, _) = good(FULL);
    let shown = show::render(&config);
    for secret in ["abc", "value-of", "/b\""] {
        assert!(!shown.contains(secret), "{secret} in\n{shown}");
    }
    // `***` is too short for a token or a key, so a copied one is refused.
    let refused = parse(&shown, "test.toml", &every, &paths).unwrap_err().to_string();
    assert!(refused.contains("auth.tokens.ci: a token of") && refused.contains("secrets.key: a key of"), "{refused}");
    let long = "*".repeat(32);
    let other = "*".repeat(33);
    let stars = |name: &str, stars: &str| format!("{name} = \"{stars}\"");
    let named = [("ci", &long), ("\nkey", &long), ("previous-key", &other)];
    let long_enough =
        named.iter().fold(shown.clone(), |text, (name, long)| text.replace(&stars(name, "***"), &stars(name, long)));
    let (again, _) = good(&long_enough.replace("store = \"***\"", "store = \"postgres://***\""));
    assert_eq!(show::render(&again), shown);
    // Equal except for the secrets, which are `***` after the round trip. An address that is shown
    // counts as chosen.
    config.console.chosen = true;
    let stars = || Secret::new("***".to_owned());
    config.server.auth = ClientAuth::Token { tokens: vec![("ci".to_owned(), Secret::new(long.clone()))] };
    config.secrets = SecretSettings { key: Some(Secret::new(long)), previous_key: Some(Secret::new(other)) };
    config.cluster.iter_mut().for_each(|cluster| cluster.store.url = Secret::new("postgres://***".to_owned()));
    for upstream in &mut config.upstreams {
        match &mut upstream.target {
            UpstreamTarget::Stdio { command, env, .. } => {
                command[1] = VariableText::plain("--token=***".to_owned());
                env.iter_mut().for_each(|(_, value)| *value = stars());
            }
            UpstreamTarget::Http { url, headers, .. } => {
                if url.query().is_some() {
                    url.set_query(Some("key=***&x=1"));
                }
                headers.iter_mut().for_each(|(_, value)| *value = stars());
            }
        }
    }
    assert_eq!(again, config);
}

#[test]
fn the_shown_default_reads_back_too() {
    let config = with_policy("");
    let (again, _) = good(&show::render(&config));
    assert_eq!(again, config);
    let silent = show::render(&good("").0);
    assert!(silent.contains("# The file has no [policy].\n"), "{silent}");
}

#[test]
fn no_mutant_of_a_configuration_panics() {
    let chars: Vec<char> = FULL.chars().collect();
    let mut accepted = 0;
    for at in (0..chars.len()).step_by(7) {
        let (before, after) = chars.split_at(at);
        let (before, rest): (String, String) = (before.iter().collect(), after[1..].iter().collect());
        for inserted in ["", "\"", "[", "\n", "\u{e9}", "9"] {
            accepted += usize::from(parse(&format!("{before}{inserted}{rest}"), "x", &every, &paths).is_ok());
        }
        let half = parse(&before, "x", &every, &paths);
        accepted += usize::from(half.is_ok());
    }
    assert!(0 < accepted, "some change nothing that matters");
}

#[test]
fn a_disabled_upstream_is_checked_and_stands_apart() {
    let text = "[upstreams.a]\nurl = \"https://a\"\nenabled = false\nheaders = { A = { env = \"NOT_SET\" } }\n[upstreams.b]\ncommand = [\"/b\"]\n[policy]\ndefault = \"ask\"\n[[policy.rules]]\nid = \"r\"\neffect = \"deny\"\nupstreams = [\"a\"]\ntools = [\"a__x\"]\n[profiles.p]\nupstreams = [\"a\", \"b\"]\n";
    let (config, warnings) = parse(text, "x", &nothing, &paths).unwrap();
    assert_eq!(warnings, [], "a secret of it is not missed, and what names it holds");
    let names = |some: &[UpstreamSettings]| some.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
    assert_eq!((names(&config.upstreams), names(&config.disabled)), (vec!["b".to_owned()], vec!["a".to_owned()]));
    let bad = parse(&text.replace("https://a", "ftp://a"), "x", &nothing, &paths).unwrap_err().to_string();
    assert!(bad.contains("upstreams.a.url"), "{bad}");
    let (_, warnings) =
        parse("[policy]\n[upstreams.a]\ncommand = [\"/a\"]\nenabled = false", "x", &nothing, &paths).unwrap();
    assert!(warnings.iter().any(|warning| warning.to_string().contains("all have `enabled = false`")), "{warnings:?}");
}
