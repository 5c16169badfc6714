//! A direct connection of a host of apps compared with a connection through the gateway: every
//! difference is in a table, with its reason.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::PeerFolders;
use super::{AppServer, gateway};
use crate::mcp::{ClientEra, Mcp};
use crate::upstream::{Listening, toml_array};

/// What a host gets of one server: its greeting, lists by original names, views and results.
type Connection = BTreeMap<&'static str, Value>;

/// Differences for clients of each era: the path, and the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    ("greeting.capabilities.completions", "the gateway declares what any server can have"),
    ("greeting.capabilities.logging", "as completions"),
    ("greeting.capabilities.prompts", "as completions"),
    ("greeting.capabilities.resources.subscribe", "as completions"),
    ("greeting.capabilities.extensions", "the gateway says that there are apps; these servers do not"),
    ("greeting.capabilities.tasks", "the tasks of 2025-11-25 are not offered"),
    ("greeting.instructions", "the gateway's rules, and the texts of its servers quoted"),
    ("greeting.serverInfo.name", "the server of the connection is the gateway"),
    ("greeting.serverInfo.title", "as its name"),
    ("greeting.serverInfo.version", "as its name"),
    ("prompts.*.name", "begins with the server's name"),
    ("resources.*.uri", "two servers have the URI, and both get theirs with their name in it"),
    ("tools.*._meta.ui.resourceUri", "as the resource's URI"),
    ("tools.*._meta.ui/resourceUri", "as the resource's URI"),
    ("tools.*.execution", "the tasks of 2025-11-25 are not offered"),
    ("tools.*.name", "begins with the server's name"),
    ("tools.*.title", "two servers have the title, and both get theirs with their name before it"),
    ("views.*.contents[].uri", "is the URI that the host asked for"),
];

/// Further differences for clients of the modern era, since the servers here are legacy.
const MODERN_DIFFERENCES: &[(&str, &str)] = &[
    ("greeting._meta", "says in this revision who the server is"),
    ("greeting.cacheScope", "this revision has it"),
    ("greeting.protocolVersion", "not in the result of this revision"),
    ("greeting.resultType", "this revision has it"),
    ("greeting.serverInfo", "in `_meta` in this revision"),
    ("greeting.supportedVersions", "this revision has it"),
    ("greeting.ttlMs", "this revision has it"),
    ("result.resultType", "this revision has it"),
    ("views.*.cacheScope", "this revision has it"),
    ("views.*.resultType", "this revision has it"),
    ("views.*.ttlMs", "this revision has it"),
];

/// The lists of a server: method, member, and the member of an item that identifies it.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("prompts/list", "prompts", "name"),
];

/// A server to compare, and a call of it.
struct Compared {
    name: &'static str,
    call: (&'static str, Value),
    listening: Listening,
}

/// Returns the capabilities of a host of apps.
fn capabilities() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}})
}

fn servers(peers: &PeerFolders) -> Vec<Compared> {
    let mut servers: Vec<Compared> = AppServer::ALL
        .into_iter()
        .map(|server| Compared { name: server.name, call: (server.tool, json!({})), listening: server.direct(peers) })
        .collect();
    let script = crate::ground::root().join("tests/peers/everything.mjs").to_str().unwrap().to_owned();
    let folder = peers.folder().to_str().unwrap().to_owned();
    let listening = Listening::spawn(&peers.node(), &[script, folder, "streamableHttp".to_owned()]);
    servers.push(Compared { name: "every", call: ("get-resource-links", json!({"count": 2})), listening });
    servers
}

/// Returns the original of a name or URI that the gateway has renamed.
fn original(server: &str, renamed: &str) -> String {
    let (scheme, rest) = renamed.split_once("://").unwrap_or(("", renamed));
    let rest = rest.strip_prefix(&format!("{server}+")).unwrap_or(rest);
    let name = if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") };
    name.strip_prefix(&format!("{server}__")).unwrap_or(&name).to_owned()
}

/// Reads everything of one server: of a direct connection, or of a merged one its part alone.
fn read(client: &mut Mcp, era: ClientEra, server: &Compared, direct: Option<&Connection>) -> Connection {
    let mut all = Connection::new();
    let greeting = match era {
        ClientEra::Legacy(_) => client.greeting.clone(),
        ClientEra::Modern => client.request("server/discover", json!({})).result().clone(),
    };
    all.insert("greeting", greeting);
    for (method, member, key) in LISTS {
        let answer = client.request(method, json!({}));
        // A server without that capability has no such list; the gateway has an empty one.
        let items = answer.code().map_or_else(|| answer.result()[member].clone(), |_| json!([]));
        let mut list = Map::new();
        for item in items.as_array().unwrap() {
            let name = original(server.name, item[key].as_str().unwrap());
            let is_its = |all: &Connection| all[member].get(&name).is_some();
            // Of two tools or resources with one original, the merged view names the server.
            let is_of_other =
                item[key] != name.as_str() && item[key].as_str().is_some_and(|n| !n.contains(server.name));
            if direct.is_none_or(|all| is_its(all) && !is_of_other) {
                list.insert(name, item.clone());
            }
        }
        all.insert(member, Value::Object(list));
    }
    let mut views = Map::new();
    for tool in all["tools"].as_object().unwrap().values() {
        if let Some(uri) = tool["_meta"]["ui"]["resourceUri"].as_str() {
            let answer = client.request("resources/read", json!({"uri": uri}));
            let read = answer.code().map_or_else(|| answer.result().clone(), |code| json!({"error": code}));
            views.insert(original(server.name, uri), read);
        }
    }
    all.insert("views", Value::Object(views));
    let name = all["tools"][server.call.0]["name"].as_str().unwrap().to_owned();
    let result = client.call(&name, server.call.1.clone()).result().clone();
    all.insert("result", without_digits(&result));
    all
}

/// Replaces the digits of all texts: they are times and random numbers.
fn without_digits(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(text.replace(|c: char| c.is_ascii_digit(), "0")),
        Value::Array(items) => items.iter().map(without_digits).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), without_digits(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Adds the paths at which two values differ, with an example of each.
fn compare(path: &str, direct: &Value, merged: &Value, found: &mut BTreeMap<String, String>) {
    match (direct, merged) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let null = Value::Null;
                let (a, b) = (a.get(name).unwrap_or(&null), b.get(name).unwrap_or(&null));
                // The items of a list by their names.
                let is_list = LISTS.iter().any(|(_, member, _)| *member == path) || path == "views";
                let part = if is_list { "*" } else { name.as_str() };
                compare(&format!("{path}.{part}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                compare(&format!("{path}[]"), a, b, found);
            }
        }
        (a, b) if a != b => {
            let short = |value: &Value| value.to_string().chars().take(200).collect::<String>();
            found.entry(path.to_owned()).or_insert_with(|| format!("{} became {}", short(a), short(b)));
        }
        _ => {}
    }
}

#[test]
fn a_host_of_apps_sees_no_difference_to_a_direct_connection_but_those_with_a_reason() {
    let Some(peers) = PeerFolders::find() else { return };
    let servers = servers(&peers);
    let every = peers.package("server-everything").join("dist/index.js");
    let command = toml_array([peers.node().to_str().unwrap(), every.to_str().unwrap(), "stdio"]);
    let gateway = gateway(&peers, &format!("[upstreams.every]\nstart-wait = \"120s\"\ncommand = {command}\n"));
    gateway.wait_for_tools(&["every__echo"]);
    let mut found = BTreeMap::new();
    let mut found_modern = BTreeMap::new();
    for server in &servers {
        let address = server.listening.address().parse().unwrap();
        let mut client = Mcp::http_at(address, None, ClientEra::LEGACY, "/mcp", capabilities());
        let direct = read(&mut client, ClientEra::LEGACY, server, None);
        for (era, found) in [(ClientEra::LEGACY, &mut found), (ClientEra::Modern, &mut found_modern)] {
            let mut client = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", capabilities());
            let merged = read(&mut client, era, server, Some(&direct));
            for (part, value) in &direct {
                compare(part, value, &merged[part], found);
            }
        }
    }
    found_modern.retain(|path, _| !found.contains_key(path));
    let mut wrong = Vec::new();
    for (era, table, found) in [("legacy", DIFFERENCES, &found), ("modern", MODERN_DIFFERENCES, &found_modern)] {
        for (path, example) in found {
            if !table.iter().any(|(known, _)| known == path) {
                wrong.push(format!("no reason, {era}: {path}: {example}"));
            }
        }
        for (path, reason) in table {
            if !found.contains_key(*path) {
                wrong.push(format!("no difference, {era}: {path}: {reason}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
