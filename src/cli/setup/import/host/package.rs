//! Descriptions of one server: `server.json` of the registry, and the `manifest.json` of a bundle
//! (MCPB).
//!
//! Both are converted to an entry of a host's list; values that the user has to give become inputs.

use super::super::value::FileValue;

/// A server with its name, and its inputs: id and description.
pub(super) type PackageServer = (Option<(String, FileValue)>, Vec<(String, String)>);

/// Returns true for a `server.json`, bare or in an answer of the registry.
pub(super) fn is_registry(root: &FileValue) -> bool {
    let described = root.get("server").unwrap_or(root);
    described.get("name").is_some() && (described.get("packages").is_some() || described.get("remotes").is_some())
}

/// Converts the description of a server.
pub(super) fn server(root: &FileValue) -> PackageServer {
    if root.at(&["server", "mcp_config"]).is_some() || !is_registry(root) { bundle(root) } else { registry(root) }
}

/// Converts the manifest of a bundle. Defaults of its settings are filled in, unless they are
/// sensitive.
fn bundle(root: &FileValue) -> PackageServer {
    let name = root.get("name").and_then(FileValue::as_str).unwrap_or("bundle").to_owned();
    let config = root.get("user_config").map(FileValue::members).unwrap_or_default();
    let mut inputs = Vec::new();
    let mut body = root.at(&["server", "mcp_config"]).cloned().unwrap_or(FileValue::Object(Vec::new()));
    for (id, about) in config {
        let text = ["title", "description"].into_iter().find_map(|key| about.get(key)?.as_str()).unwrap_or(id);
        let is_sensitive = about.get("sensitive") == Some(&FileValue::Bool(true));
        match about.get("default").and_then(FileValue::scalar).filter(|_| !is_sensitive) {
            Some(default) => body = replaced(&body, &format!("${{user_config.{id}}}"), &default),
            None => inputs.push((id.clone(), text.to_owned())),
        }
    }
    (Some((name, body)), inputs)
}

/// Replaces one text by another in all strings of a value.
fn replaced(value: &FileValue, from: &str, to: &str) -> FileValue {
    match value {
        FileValue::String(text) => FileValue::String(text.replace(from, to)),
        FileValue::Array(items) => FileValue::Array(items.iter().map(|item| replaced(item, from, to)).collect()),
        FileValue::Object(members) => {
            FileValue::Object(members.iter().map(|(name, value)| (name.clone(), replaced(value, from, to))).collect())
        }
        FileValue::Null | FileValue::Bool(_) | FileValue::Number(_) => value.clone(),
    }
}

/// Converts a `server.json`: the first package that a known program starts, else the first remote.
fn registry(root: &FileValue) -> PackageServer {
    let described = root.get("server").unwrap_or(root);
    let name = described.get("name").and_then(FileValue::as_str).unwrap_or("server");
    let name = name.rsplit('/').next().unwrap_or(name).to_owned();
    let mut inputs = Vec::new();
    let items = |key: &str| described.get(key).map(FileValue::items).unwrap_or_default();
    let started = items("packages").iter().filter(is_stdio).find_map(|package| started(package, &mut inputs));
    let body = started.or_else(|| items("remotes").first().map(|remote| reached(remote, &mut inputs)));
    (Some((name, body.unwrap_or(FileValue::Object(Vec::new())))), inputs)
}

/// Returns false for a package whose server has to be reached over HTTP after its start.
fn is_stdio(package: &&FileValue) -> bool {
    package.at(&["transport", "type"]).and_then(FileValue::as_str).is_none_or(|kind| kind == "stdio")
}

/// Returns the member under the first of two spellings that is there.
fn spelled<'j>(value: &'j FileValue, keys: [&str; 2]) -> Option<&'j FileValue> {
    keys.into_iter().find_map(|key| value.get(key))
}

fn string(text: impl Into<String>) -> FileValue {
    FileValue::String(text.into())
}

/// Converts a package to a command line; `None` if no known program starts it.
fn started(package: &FileValue, inputs: &mut Vec<(String, String)>) -> Option<FileValue> {
    let text = |keys| spelled(package, keys).and_then(FileValue::as_str);
    let kind = text(["registryType", "registry_type"]).or(text(["registry_name", "registryName"]))?;
    let identifier = text(["identifier", "name"]).filter(|identifier| is_identifier(kind, identifier))?;
    let version = text(["version", "version"]).filter(|version| !version.is_empty() && *version != "latest");
    version.is_none_or(|version| is_plain(version, ".-_+!")).then_some(())?;
    let at =
        |sign: &str| version.map_or_else(|| identifier.to_owned(), |version| format!("{identifier}{sign}{version}"));
    // Another program, which the file could name, would read the arguments in another way.
    let engine = text(["runtimeHint", "runtime_hint"]).filter(|hint| *hint == "podman").unwrap_or("docker");
    let (program, lead, what) = match kind {
        "npm" => ("npx", vec!["-y".to_owned()], at("@")),
        "pypi" => ("uvx", Vec::new(), at("==")),
        "nuget" => ("dnx", vec!["--yes".to_owned()], at("@")),
        "oci" | "docker" => {
            let tagged = identifier.rsplit('/').next().is_some_and(|last| last.contains([':', '@']));
            let image = if tagged { identifier.to_owned() } else { at(":") };
            (engine, ["run", "-i", "--rm", "--init"].map(str::to_owned).to_vec(), image)
        }
        _ => return None,
    };
    let mut words = lead;
    let mut take = |keys, words: &mut Vec<String>| {
        for argument in spelled(package, keys).map(FileValue::items).unwrap_or_default() {
            words.extend(arguments(argument, inputs));
        }
    };
    take(["runtimeArguments", "runtime_arguments"], &mut words);
    words.dedup_by(|word, before| word == before && word == "-y");
    let variables =
        spelled(package, ["environmentVariables", "environment_variables"]).map(FileValue::items).unwrap_or_default();
    if program == "docker" || program == "podman" {
        let names = variables.iter().filter_map(|variable| variable.get("name")?.as_str());
        words.extend(names.flat_map(|name| ["-e".to_owned(), name.to_owned()]));
    }
    words.push(what);
    take(["packageArguments", "package_arguments"], &mut words);
    let env = variables
        .iter()
        .filter_map(|variable| Some((variable.get("name")?.as_str()?.to_owned(), given(variable, inputs)?)));
    let env = env.map(|(name, value)| (name, string(value))).collect();
    Some(FileValue::Object(vec![
        ("command".to_owned(), string(program)),
        ("args".to_owned(), FileValue::Array(words.into_iter().map(string).collect())),
        ("env".to_owned(), FileValue::Object(env)),
    ]))
}

/// Returns true for a name of a package or an image in a registry of that kind. Other words could
/// be options, paths, addresses or repositories.
fn is_identifier(kind: &str, identifier: &str) -> bool {
    match kind {
        "npm" => {
            let (scope, name) =
                identifier.strip_prefix('@').and_then(|rest| rest.split_once('/')).unwrap_or(("x", identifier));
            is_plain(scope, "._-") && is_plain(name, "._-")
        }
        "oci" | "docker" => is_plain(identifier, "._-/:@"),
        _ => is_plain(identifier, "._-"),
    }
}

/// Returns true for a text of letters, digits and these characters that begins with a letter or
/// digit.
fn is_plain(text: &str, more: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_alphanumeric) && text.chars().all(|c| is_alphanumeric(c) || more.contains(c))
}

/// Converts a remote to a URL with headers.
fn reached(remote: &FileValue, inputs: &mut Vec<(String, String)>) -> FileValue {
    let url = remote.get("url").and_then(FileValue::as_str).unwrap_or_default();
    let kind = spelled(remote, ["type", "transport_type"]).cloned().unwrap_or(FileValue::Null);
    let headers = remote.get("headers").map(FileValue::items).unwrap_or_default().iter();
    let headers = headers.filter_map(|one| Some((one.get("name")?.as_str()?.to_owned(), given(one, inputs)?)));
    let headers = headers.map(|(name, value)| (name, string(value))).collect();
    let url = asked_for(url, remote, inputs);
    FileValue::Object(vec![
        ("url".to_owned(), string(url)),
        ("type".to_owned(), kind),
        ("headers".to_owned(), FileValue::Object(headers)),
    ])
}

/// Converts one argument to words. An optional argument without a value is left out.
fn arguments(argument: &FileValue, inputs: &mut Vec<(String, String)>) -> Vec<String> {
    let value = given(argument, inputs);
    match argument.get("name").and_then(FileValue::as_str) {
        Some(name) if argument.get("type").and_then(FileValue::as_str) == Some("named") => {
            let is_flag = value.is_none() && argument.get("isRequired") == Some(&FileValue::Bool(true));
            if value.is_some() || is_flag {
                std::iter::once(name.to_owned()).chain(value).collect()
            } else {
                Vec::new()
            }
        }
        _ => value.into_iter().collect(),
    }
}

/// Returns the value of an argument, variable or header: the given one, the default unless it is
/// secret, or an input if the value is required or secret.
fn given(one: &FileValue, inputs: &mut Vec<(String, String)>) -> Option<String> {
    let is = |keys| spelled(one, keys) == Some(&FileValue::Bool(true));
    if let Some(value) = one.get("value").and_then(FileValue::scalar) {
        return Some(asked_for(&value, one, inputs));
    }
    if let Some(default) = one.get("default").and_then(FileValue::scalar).filter(|_| !is(["isSecret", "is_secret"])) {
        return Some(default);
    }
    let id = ["name", "valueHint", "value_hint"].into_iter().find_map(|key| one.get(key)?.as_str())?;
    if !is(["isRequired", "is_required"]) && !is(["isSecret", "is_secret"]) {
        return None;
    }
    let id = id.trim_start_matches('-');
    inputs.push((id.to_owned(), one.get("description").and_then(FileValue::as_str).unwrap_or(id).to_owned()));
    Some(format!("${{input:{id}}}"))
}

/// Replaces each `{name}` of a template by its value or by an input.
fn asked_for(text: &str, one: &FileValue, inputs: &mut Vec<(String, String)>) -> String {
    let mut out = text.to_owned();
    for (id, about) in one.get("variables").map(FileValue::members).unwrap_or_default() {
        let is_secret = spelled(about, ["isSecret", "is_secret"]) == Some(&FileValue::Bool(true));
        let value =
            about.get("value").or_else(|| about.get("default")).and_then(FileValue::scalar).filter(|_| !is_secret);
        let value = value.unwrap_or_else(|| {
            inputs.push((id.clone(), about.get("description").and_then(FileValue::as_str).unwrap_or(id).to_owned()));
            format!("${{input:{id}}}")
        });
        out = out.replace(&format!("{{{id}}}"), &value);
    }
    out
}
