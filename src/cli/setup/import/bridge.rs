//! Bridges: command lines such as `npx mcp-remote URL --header ...` that only forward to a URL, as
//! headend does itself. A bridge also has its headers on a command line.

use super::value::FileValue;

/// The server behind a bridge.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BridgedServer {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) transport: Option<&'static str>,
}

/// Returns the server behind a command line that is nothing but a bridge. With other options or
/// variables it does more than headend would, and stays a program.
pub(super) fn remote(words: &[String], env: &[(String, FileValue)]) -> Option<BridgedServer> {
    let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let is_bridge = |word: &str| word == "mcp-remote" || word.starts_with("mcp-remote@");
    let (first, rest) = words.split_first()?;
    let at = match name(first).as_str() {
        "npx" | "bunx" | "pnpx" | "npx.cmd" => {
            let at = rest.iter().position(|word| is_bridge(word))?;
            rest.iter().take(at).all(|word| ["-y", "--yes"].contains(&word.as_str())).then_some(at + 1)?
        }
        bridge if is_bridge(bridge) => 0,
        _ => return None,
    };
    let mut remote = BridgedServer { url: String::new(), headers: Vec::new(), transport: None };
    let mut used = Vec::new();
    let mut options = rest.iter().skip(at);
    while let Some(word) = options.next() {
        let (option, own) = word.split_once('=').map_or((word.as_str(), None), |(option, value)| (option, Some(value)));
        match option {
            "--header" => {
                let (name, value) = own.or_else(|| options.next().map(String::as_str))?.split_once(':')?;
                remote.headers.push((name.trim().to_owned(), filled(value.trim(), env, &mut used)));
            }
            "--transport" => {
                remote.transport = match own.or_else(|| options.next().map(String::as_str))? {
                    "sse-only" => Some("sse"),
                    "http-only" => Some("streamable-http"),
                    _ => None,
                }
            }
            "--allow-http" | "--debug" | "--silent" | "--enable-proxy" => {}
            _ if remote.url.is_empty() && (word.starts_with("https://") || word.starts_with("http://")) => {
                remote.url.clone_from(word);
            }
            // The port of the bridge's own sign-in.
            _ if word.bytes().all(|b| b.is_ascii_digit()) => {}
            _ => return None,
        }
    }
    let unused = env.iter().any(|(name, _)| !used.contains(name));
    (!remote.url.is_empty() && !unused).then_some(remote)
}

/// Replaces `${VAR}` in a header by variables of the entry's environment, as the bridge does, and
/// notes which were used.
fn filled(value: &str, env: &[(String, FileValue)], used: &mut Vec<String>) -> String {
    let mut out = value.to_owned();
    for (name, variable) in env {
        let reference = format!("${{{name}}}");
        if let Some(text) = variable.scalar().filter(|_| out.contains(&reference)) {
            out = out.replace(&reference, &text);
            used.push(name.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str, env: &[(&str, &str)]) -> Option<BridgedServer> {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        let env: Vec<_> =
            env.iter().map(|(name, value)| (name.to_string(), FileValue::String(value.to_string()))).collect();
        remote(&words, &env)
    }

    #[test]
    fn a_bridge_is_a_remote_server() {
        let found =
            of("npx -y mcp-remote@0.1 https://a.example/sse 3334 --header A:_b --transport sse-only", &[]).unwrap();
        let wanted = BridgedServer {
            url: "https://a.example/sse".to_owned(),
            headers: vec![("A".to_owned(), "b".to_owned())],
            transport: Some("sse"),
        };
        assert_eq!(found, wanted);
        let found = of("npx mcp-remote https://a.example --header A:${T}", &[("T", "Bearer x")]).unwrap();
        assert_eq!(found.headers, [("A".to_owned(), "Bearer x".to_owned())]);
        let found = of("npx -y mcp-remote https://a.example/mcp", &[]).unwrap();
        assert_eq!(
            (found.url.as_str(), found.headers.len()),
            ("https://a.example/mcp", 0),
            "headend logs in by itself"
        );
    }

    #[test]
    fn everything_else_stays_a_program() {
        for (line, env) in [
            ("npx -y mcp-remote", &[][..]),
            ("npx -y mcp-remote https://a.example --static-oauth-client-info x", &[]),
            ("npx -y mcp-remote https://a.example --header A:b", &[("NODE_EXTRA_CA_CERTS", "/ca")]),
            ("npx -y -p x mcp-remote https://a.example --header A:b", &[]),
            ("node mcp-remote https://a.example --header A:b", &[]),
        ] {
            assert_eq!(of(line, env), None, "{line}");
        }
    }
}
