//! The JSON Schema of the configuration: generated from the keys that the cursor is asked for, and
//! compared with the shipped file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use expect_test::expect_file;
use serde_json::{Value, json};

use super::examples::{examples, shipped};
use super::{FULL, every, paths};
use crate::build;
use crate::plan::SETTINGS;
use crate::source::file::{ParseContext, SourceText, with_root};

/// Values that no other text of the tests has.
const MORE: &str = r#"
"$schema" = "headend.schema.json"
[server]
legacy-sse = true
[server.auth]
mode = "token"
[server.auth.tokens]
a = "a-token-that-is-long"
b = { env = "B", prefix = "" }
c = { file = "/a/file/with/a/long/name" }
d = { credential = "d" }
[metrics]
token = "a-token-of-the-metrics"
[console]
listen = ""
[upstreams.a]
command = ["/a"]
enabled = true
prompts = { allow = ["x"], deny = ["y"], rename = { z = "w" } }
roots = "client"
[upstreams.a.env]
b = { env = "B", prefix = "" }
c = { file = "/c" }
d = { credential = "d" }
[upstreams.b]
url = "https://b"
ca = "an-authority-as-a-text"
client-certificate = "a-certificate-as-a-text"
proxy = false
roots = ["file:///b"]
[upstreams.b.headers]
a = "a"
b = { env = "B", prefix = "" }
c = { file = "/c" }
d = { credential = "d" }
[upstreams.c]
url = "https://c"
ca = { env = "B", prefix = "" }
client-certificate = { env = "B", prefix = "" }
proxy = { env = "PROXY", prefix = "" }
[upstreams.c.auth]
type = "client-credentials"
client-id = "c"
client-secret = "a-secret-of-the-client"
issuers = ["https://login.example.com"]
[upstreams.d]
url = "https://d"
ca = { credential = "d" }
client-certificate = { credential = "d" }
proxy = { file = "/proxy" }
[upstreams.d.auth]
client-id = "d"
client-secret = { env = "B", prefix = "" }
issuers = ["https://login.example.com"]
[upstreams.e]
url = "https://e"
proxy = { credential = "proxy" }
[upstreams.e.auth]
client-id = "e"
client-secret = { credential = "d" }
issuers = ["https://login.example.com"]
[upstreams.f]
url = "https://f"
[upstreams.f.auth]
ca = "an-authority-as-a-text"
client-certificate = "a-certificate-as-a-text"
client-id = "f"
private-key = "a-key-of-the-client"
issuers = ["https://login.example.com"]
[upstreams.g]
url = "https://g"
[upstreams.g.auth]
ca = { env = "B", prefix = "" }
client-certificate = { env = "B", prefix = "" }
client-metadata-url = "https://g.example/client.json"
private-key = { env = "B", prefix = "" }
issuers = ["https://login.example.com"]
[upstreams.h]
url = "https://h"
[upstreams.h.auth]
ca = { credential = "d" }
client-certificate = { credential = "d" }
client-id = "h"
private-key = { credential = "d" }
issuers = ["https://login.example.com"]
[policy]
default = "ask"
[policy.consent]
notify = { env = "A", prefix = "https://a.example" }
notify-arguments = true
[policy.consent.notify-headers]
a = "a"
b = { env = "B", prefix = "" }
c = { file = "/c" }
d = { credential = "d" }
[audit]
retain = { age = "9d", size = 1073741824 }
[profiles.p]
hints = "server"
tools = { allow = ["a__*"], deny = ["b__x"] }
prompts = { allow = ["a__*"], deny = ["b__x"] }
resources = { allow = ["a+*"], deny = ["b+x"] }
"#;

/// Further values of keys that a text can set only once: the key of the store, the store of a
/// cluster, and the receiver of notices.
const KEYS: [&str; 15] = [
    "[metrics]\ntoken = { env = \"M_0123456789abcdef\", prefix = \"\" }",
    "[metrics]\ntoken = { credential = \"m_0123456789abcdef\" }",
    "[secrets]\nkey = \"0123456789abcdef0123456789abcdef\"",
    "[secrets]\nkey = { env = \"K_0123456789abcdef0123456789\", prefix = \"\" }",
    "[secrets]\nkey = { file = \"/a/file/with/a/name/that/is/long/enough\" }",
    "[secrets]\nprevious-key = \"0123456789abcdef0123456789abcdef\"",
    "[secrets]\nprevious-key = { env = \"K_0123456789abcdef0123456789\", prefix = \"\" }",
    "[secrets]\nprevious-key = { file = \"/a/file/with/a/name/that/is/long/enough\" }",
    "[secrets]\nkey = \"0123456789abcdef0123456789abcdef\"\n[cluster]\nname = \"a\"\nstore = \"postgres://headend@localhost/headend\"",
    "[secrets]\nkey = \"0123456789abcdef0123456789abcdef\"\n[cluster]\npeer-listen = \"10.0.0.7:1\"\nname = { env = \"REPLICA\", prefix = \"\" }\npeer-url = { env = \"PEER_URL\", prefix = \"\" }\nstore = { env = \"STORE\", prefix = \"postgres://a\" }",
    "[secrets]\nkey = \"0123456789abcdef0123456789abcdef\"\n[cluster]\npeer-listen = \"10.0.0.7:1\"\nname = { file = \"/replica\" }\npeer-url = { file = \"/peer-url\" }\nstore = { file = \"/a/file\", prefix = \"postgres://a\" }",
    "[secrets]\nkey = \"0123456789abcdef0123456789abcdef\"\n[cluster]\npeer-listen = \"10.0.0.7:1\"\nname = { credential = \"replica\" }\npeer-url = { credential = \"peer-url\" }\nstore = { credential = \"store\", prefix = \"postgres://a\" }",
    "[policy.consent]\nnotify = [\"/bin/tell\"]",
    "[policy.consent]\nnotify = { file = \"/b\", prefix = \"https://a.example\" }",
    "[policy.consent]\nnotify = { credential = \"c\", prefix = \"https://a.example\" }",
];

/// Records of several texts, by key paths in which names are `*` and indices of an array are `[]`.
#[derive(Default)]
struct SchemaBuilder {
    shapes: BTreeMap<String, Vec<Value>>,
    named: BTreeSet<String>,
    keys: BTreeMap<String, BTreeSet<&'static str>>,
    described: BTreeMap<String, String>,
    /// Paths without a shape.
    bare: Vec<String>,
}

/// Returns the path for both lists of conditions of a rule, which have one form, and for the
/// matchers of a scope, which are those of a rule.
fn form(path: &str) -> String {
    let path = path.replace("server.auth.scopes.*.", "policy.rules[].");
    path.replace("policy.rules[].unless[]", "policy.rules[].arguments[]")
}

/// Generalises a key path of one file to a path of all files.
fn general(path: &str, named: &BTreeSet<String>) -> String {
    let (mut out, mut at) = (String::new(), 0);
    while let Some(rest) = path.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with('[') {
            out.push_str("[]");
            at += rest.find(']').map_or(rest.len(), |end| end + 1);
            continue;
        }
        let is_name = named.contains(&path[..at]);
        let dot = usize::from(rest.starts_with('.'));
        let key = &rest[dot..];
        let length = match key.strip_prefix('"') {
            Some(quoted) => quoted.find('"').map_or(key.len(), |end| end + 2),
            None => key.find(['.', '[']).unwrap_or(key.len()),
        };
        out.push_str(if dot == 1 { "." } else { "" });
        out.push_str(if is_name { "*" } else { key[..length].trim_matches('"') });
        at += dot + length;
    }
    out
}

impl SchemaBuilder {
    fn learn(&mut self, text: &str) {
        let texts = [SourceText { origin: "t", text }];
        let valid = |name: &str| match name {
            "PROXY" | "proxy" => Some("http://proxy".to_owned()),
            "REPLICA" | "replica" => Some("left".to_owned()),
            "PEER_URL" | "peer-url" => Some("https://left.example:8630".to_owned()),
            _ => None,
        };
        let env = |name: &str| valid(name).or_else(|| every(name));
        let read = |path: &Path| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.and_then(valid).map_or_else(|| paths(path), Ok)
        };
        let mut source = ParseContext::new(&texts, &env, &read);
        with_root(&source, build::config).unwrap();
        let all = std::mem::take(&mut source.observed).all();
        let (problems, _) = source.into_findings();
        assert!(
            problems.is_empty(),
            "{}",
            problems.iter().map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n")
        );
        for (path, shapes) in all.shapes {
            let known = self.shapes.entry(form(&general(&path, &all.named))).or_default();
            shapes.into_iter().for_each(|shape| {
                if !known.contains(&shape) {
                    known.push(shape)
                }
            });
        }
        for (path, keys) in &all.keys {
            self.keys.entry(form(&general(path, &all.named))).or_default().extend(keys);
        }
        self.named.extend(all.named.iter().map(|path| general(path, &all.named)));
    }

    /// Takes the comments before the keys of the annotated file as descriptions.
    fn describe(&mut self, text: &str) {
        let (mut table, mut comment, mut is_open) = (String::new(), Vec::new(), false);
        for line in text.lines() {
            if let Some(words) = line.strip_prefix("# ") {
                if !is_open {
                    comment.clear();
                }
                is_open = true;
                comment.push(words.trim());
                continue;
            }
            is_open = false;
            let code = line.strip_prefix('#').unwrap_or(line);
            if let Some(name) = code.strip_prefix('[') {
                let is_array = name.starts_with('[');
                let name = name.trim_matches(['[', ']']);
                table = match name.split_once('.') {
                    Some((first @ ("upstreams" | "profiles"), _)) => format!("{first}.*"),
                    _ if is_array => format!("{name}[]"),
                    _ => name.to_owned(),
                };
            } else if let Some((key, _)) = code.split_once(" = ").filter(|_| !comment.is_empty()) {
                self.described.entry(format!("{table}.{key}")).or_insert_with(|| comment.join(" "));
            } else {
                comment.clear();
            }
        }
    }

    fn schema(&mut self, path: &str) -> Value {
        let shapes = self.shapes.get(&form(path)).cloned().unwrap_or_default();
        if shapes.is_empty() {
            self.bare.push(path.to_owned());
        }
        let mut all: Vec<Value> = shapes.into_iter().map(|shape| self.whole(path, shape)).collect();
        let mut schema = if all.len() == 1 { all.remove(0) } else { json!({ "anyOf": all }) };
        if let Some(words) = self.described.get(path) {
            schema["description"] = json!(words);
        }
        schema
    }

    /// Completes a shape with the schemas of its items or members.
    fn whole(&mut self, path: &str, mut shape: Value) -> Value {
        if shape["type"] == "array" {
            shape["items"] = self.schema(&format!("{path}[]"));
        } else if shape["type"] == "object" && self.named.contains(path) {
            shape["additionalProperties"] = self.schema(&format!("{path}.*"));
        } else if shape["type"] == "object" {
            let keys = self.keys.get(&form(path)).cloned().unwrap_or_default();
            let start = if path.is_empty() { String::new() } else { format!("{path}.") };
            shape["properties"] =
                keys.into_iter().map(|key| (key.to_owned(), self.schema(&format!("{start}{key}")))).collect();
            shape["additionalProperties"] = json!(false);
        }
        shape
    }
}

fn generated() -> Value {
    let annotated = shipped("config/headend.toml");
    let mut known = SchemaBuilder::default();
    [FULL, MORE, &examples(&annotated)].into_iter().chain(KEYS).for_each(|text| known.learn(text));
    known.describe(&annotated);
    let mut schema = known.whole("", json!({ "type": "object" }));
    assert_eq!(known.bare, Vec::<String>::new(), "no text has a value for these");
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("The configuration of headend");
    schema
}

#[test]
fn the_schema_is_that_of_the_shipped_file() {
    let text = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
    expect_file!["../../../config/headend.schema.json"].assert_eq(&text);
}

/// Each key is in the table of settings, or a reload compares it in another way.
#[test]
fn the_table_of_settings_has_every_key() {
    let schema = generated();
    let keys = |table: &str| -> Vec<String> {
        let keys = schema["properties"][table]["properties"].as_object().unwrap().keys();
        keys.map(|key| format!("{table}.{key}")).collect()
    };
    let mut taught: Vec<String> = ["server", "metrics", "console", "admin", "audit", "secrets", "log"]
        .iter()
        .flat_map(|table| keys(table))
        .collect();
    taught.retain(|key| key != "server.limits");
    taught.extend(["policy.consent", "cluster"].map(str::to_owned));
    let mut settings: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    taught.sort_unstable();
    settings.sort_unstable();
    assert_eq!(settings, taught);
    let apart = ["$schema", "stdio", "naming", "defaults", "upstreams", "policy", "profiles"];
    let known = schema["properties"].as_object().unwrap().keys().filter(|table| !apart.contains(&table.as_str()));
    assert!(known.into_iter().all(|table| settings.iter().any(|key| key.split('.').next() == Some(table))));
}

#[test]
fn the_reference_names_the_keys_that_need_a_restart() {
    let fixed = SETTINGS.iter().filter(|setting| !setting.is_live);
    let keys: Vec<String> = fixed.map(|setting| format!("`{}`", setting.key)).collect();
    let row = format!("| {} | after a restart: ", keys.join(", "));
    assert!(shipped("config/README.md").contains(&row), "{row}");
}

#[test]
fn the_schema_accepts_what_headend_does_and_refuses_slips() {
    let validator = jsonschema::validator_for(&generated()).unwrap();
    let accepts = |text: &str| {
        let value = serde_json::to_value(toml::from_str::<toml::Value>(text).unwrap()).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
    };
    let files = ["desk", "embedded", "headend", "single", "team"].map(|name| shipped(&format!("config/{name}.toml")));
    for text in files.iter().map(String::as_str).chain([FULL, MORE, &examples(&files[2])]) {
        assert_eq!(accepts(text), Ok(()), "{text}");
    }
    for text in [
        "[server]\nendpont = \"/mcp\"",
        "[server]\nlisten = \"127.0.0.1:1\"",
        "[upstreams.a]\ncommand = \"a b\"",
        "[upstreams.a]\ncall-timeout = \"5 minutes\"",
        "[upstreams.a]\nmax-in-flight = 0",
        "[upstreams.a]\ntrust = \"much\"",
        "[upstreams.a]\nenv = { A = 1 }",
        "[upstreams.a]\nenv = { A = { environment = \"A\" } }",
        "[upstreams.a]\nargs = [\"x\"]",
        "[[policy.rules]]\neffect = \"perhaps\"",
        "[server.limits]\nmax-body = \"4MB\"",
    ] {
        assert!(accepts(text).is_err(), "{text}");
        assert!(crate::parse(text, "t", &every, &paths).is_err(), "{text}");
    }
}
