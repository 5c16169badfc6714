use super::*;
use crate::tests::paths;
use crate::{UpstreamSettings, parse};

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Returns the route to a URL in an environment of these variables: "direct", a proxy, or the
/// error.
fn route(variables: &[(&str, &str)], to: &str) -> String {
    let env = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    match ProxySettings::from_environment(&env).route(&url(to)) {
        Ok(Some(proxy)) => proxy.to_string(),
        Ok(None) => "direct".to_owned(),
        Err(why) => why,
    }
}

/// Parses an upstream behind that URL with further lines; returns it and the warnings.
fn upstream(to: &str, lines: &str) -> Result<(UpstreamSettings, String), String> {
    let env = |name: &str| match name {
        "HTTPS_PROXY" => Some("http://environment:1".to_owned()),
        "CORP" => Some("http://me:canary@proxy.corp:3128".to_owned()),
        "PW" => Some("canary".to_owned()),
        _ => None,
    };
    let text = format!("[policy]\n[upstreams.x]\nurl = \"{to}\"\n{lines}");
    let loaded = parse(&text, "t", &env, &|path| match path.to_str() {
        Some("/proxy") => Ok("https://file:canary@proxy.corp\n".to_owned()),
        _ => paths(path),
    });
    let (mut config, warnings) = loaded.map_err(|problems| problems.to_string())?;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let shown = crate::show::render(&config);
    assert!(!shown.contains("canary"), "{shown}");
    Ok((config.upstreams.remove(0), warnings.join("\n")))
}

#[test]
fn the_scheme_picks_the_variable_and_lower_case_goes_first() {
    let (upper, lower) = (("HTTPS_PROXY", "http://upper:1"), ("https_proxy", "http://lower:2"));
    let plain = [("HTTP_PROXY", "http://plain:3"), ("http_proxy", "http://small:4")];
    for (variables, to, want) in [
        (&[][..], "https://a.example/", "direct"),
        (&[upper], "https://a.example/", "http://upper:1"),
        (&[upper], "http://a.example/", "direct"),
        (&[upper, lower], "https://a.example/", "http://lower:2"),
        (&[upper, ("https_proxy", "")], "https://a.example/", "http://upper:1"),
        (&plain[..1], "http://a.example/", "http://plain:3"),
        (&plain, "http://a.example/", "http://small:4"),
        (&plain, "https://a.example/", "direct"),
        (&[plain[0], ("REQUEST_METHOD", "GET")], "http://a.example/", "direct"),
        (&[("ALL_PROXY", "http://all:5")], "https://a.example/", "direct"),
        (&[("HTTPS_PROXY", "proxy.corp:3128")], "https://a.example/", "http://proxy.corp:3128"),
        (&[("HTTPS_PROXY", "https://proxy.corp/")], "https://a.example/", "https://proxy.corp"),
        (&[("HTTPS_PROXY", "http://me:canary@proxy.corp:3128")], "https://a.example/", "http://proxy.corp:3128"),
        (&[("HTTPS_PROXY", "http://[fd00::1]:3128")], "https://a.example/", "http://[fd00::1]:3128"),
    ] {
        assert_eq!(route(variables, to), want, "{variables:?} {to}");
    }
}

#[test]
fn a_variable_without_a_usable_proxy_opens_no_direct_way() {
    for value in
        ["socks5://me:canary@proxy:1080", "http://me:canary@", "http://me:canary@proxy:3128/canary", "http://:1"]
    {
        let said = route(&[("HTTPS_PROXY", value)], "https://a.example/");
        assert!(said.starts_with("the proxy in $HTTPS_PROXY cannot be used: the value "), "{said}");
        assert!(!said.contains("canary"), "{said}");
        assert_eq!(route(&[("HTTPS_PROXY", value)], "https://localhost/"), "direct");
        assert_eq!(route(&[("HTTPS_PROXY", value), ("NO_PROXY", "a.example")], "https://a.example/"), "direct");
    }
}

#[test]
fn hosts_of_no_proxy_and_this_machine_are_reached_directly() {
    for (list, direct, proxied) in [
        (
            "a.example",
            &["https://a.example/", "https://b.a.example/", "https://A.Example./"][..],
            &["https://ba.example/", "https://example/"][..],
        ),
        (".a.example", &["https://b.a.example/", "https://c.b.a.example:8443/"], &["https://ba.example/"]),
        ("*.a.example", &["https://b.a.example/"], &["https://ba.example/"]),
        ("a.example.", &["https://a.example/"], &["https://b.example/"]),
        ("A.EXAMPLE", &["https://a.example/"], &["https://b.example/"]),
        ("x, a.example ,b.example", &["https://a.example/", "https://b.example/"], &["https://c.example/"]),
        ("a.example b.example", &["https://a.example/", "https://b.example/"], &["https://c.example/"]),
        ("a.example:8443", &["https://a.example:8443/"], &["https://a.example/", "https://a.example:8444/"]),
        ("a.example:443", &["https://a.example/"], &["https://a.example:8443/"]),
        ("*", &["https://a.example/", "https://1.1.1.1/"], &[]),
        ("10.0.0.1", &["https://10.0.0.1/"], &["https://10.0.0.2/"]),
        ("10.0.0.0/8", &["https://10.1.2.3/", "https://10.1.2.3:8443/"], &["https://11.0.0.1/", "https://a.example/"]),
        ("10.0.0.1:8443", &["https://10.0.0.1:8443/"], &["https://10.0.0.1/"]),
        ("fd00::1", &["https://[fd00::1]/"], &["https://[fd00::2]/"]),
        ("[fd00::1]", &["https://[fd00::1]/"], &["https://[fd00::2]/"]),
        ("[fd00::1]:8443", &["https://[fd00::1]:8443/"], &["https://[fd00::1]/"]),
        ("fd00::/8", &["https://[fd00::1]/"], &["https://[fe00::1]/"]),
        (
            "",
            &["https://localhost/", "https://127.0.0.1:1/", "https://[::1]/", "https://a.localhost/"],
            &["https://a.example/"],
        ),
        (",, :80 a:b", &[], &["https://a.example/", "https://a/"]),
    ] {
        for name in ["NO_PROXY", "no_proxy"] {
            let variables = [("HTTPS_PROXY", "http://proxy:3128"), (name, list)];
            direct.iter().for_each(|to| assert_eq!(route(&variables, to), "direct", "{list}: {to}"));
            proxied.iter().for_each(|to| assert_eq!(route(&variables, to), "http://proxy:3128", "{list}: {to}"));
        }
    }
}

#[test]
fn the_key_goes_before_the_environment() {
    let to = url("https://a.example/mcp");
    let basic = |text: &str| HeaderValue::from_str(&format!("Basic {text}")).unwrap();
    for (lines, want, authorization) in [
        ("", Some("http://environment:1"), None),
        ("proxy = \"none\"", None, None),
        ("proxy = false", None, None),
        ("proxy = \"http://other.corp:8080\"", Some("http://other.corp:8080"), None),
        ("proxy = \"http://me:p%40w@other.corp:8080\"", Some("http://other.corp:8080"), Some("bWU6cEB3")),
        ("proxy = { env = \"CORP\" }", Some("http://proxy.corp:3128"), Some("bWU6Y2FuYXJ5")),
        ("proxy = { file = \"/proxy\" }", Some("https://proxy.corp"), Some("ZmlsZTpjYW5hcnk=")),
        ("proxy = \"http://me:${PW}@proxy.corp:3128\"", Some("http://proxy.corp:3128"), Some("bWU6Y2FuYXJ5")),
    ] {
        let (upstream, warnings) = upstream("https://a.example/mcp", lines).unwrap();
        let proxy = upstream.proxy.route(&to).unwrap();
        assert_eq!(proxy.map(ToString::to_string).as_deref(), want, "{lines}");
        assert_eq!(proxy.and_then(|proxy| proxy.authorization().cloned()), authorization.map(basic), "{lines}");
        let debug = format!("{upstream:?}");
        assert!(!debug.contains("canary") && !debug.contains("p%40w") && !debug.contains("bWU6"), "{debug}");
        assert_eq!(warnings.contains("a secret in the file itself"), lines.contains("p%40w"), "{warnings}");
    }
}

#[test]
fn a_launch_is_the_same_by_any_proxy_and_a_secret_of_it_can_be_missing() {
    let of = |lines| upstream("https://a.example/mcp", lines).unwrap().0;
    assert_eq!(of("").launch_identity(), of("proxy = \"http://other:1\"").launch_identity());
    for lines in ["proxy = { env = \"NOT_SET\" }", "proxy = \"http://${NOT_SET}@proxy:1\""] {
        let lacks = of(lines).lacks.join("\n");
        assert!(lacks.contains("`NOT_SET` is not set"), "{lacks}");
    }
    assert!(of("proxy = \"${PW}://x\"").lacks.join("\n").contains("proxy: with its variables put in it must begin"));
}

#[test]
fn a_server_of_this_machine_takes_a_proxy_of_this_machine_alone() {
    for proxy in ["http://127.0.0.1:8080", "http://localhost:8080", "none"] {
        assert!(upstream("http://localhost:3000/mcp", &format!("proxy = \"{proxy}\"")).is_ok(), "{proxy}");
    }
    let refused = upstream("http://localhost:3000/mcp", "proxy = \"http://proxy.corp:8080\"").unwrap_err();
    assert!(refused.contains("upstreams.x.proxy: the server is on this machine"), "{refused}");
}

#[test]
fn other_values_are_refused_and_not_repeated() {
    for (value, want) in [
        ("true", "must be false, \"none\" or the URL of a proxy"),
        ("1", "write a string or where to find it"),
        ("\"socks5://me:canary@proxy:1080\"", "must begin with http:// or https://"),
        ("\"http://me:canary@proxy/path\"", "must end behind the host and the port"),
        ("\"http://me:canary@\"", "is not a URL such as"),
        ("\"\"", "is not a URL such as"),
    ] {
        let refused = upstream("https://a.example/", &format!("proxy = {value}")).unwrap_err();
        assert!(refused.contains(&format!("upstreams.x.proxy: {want}")) && !refused.contains("canary"), "{refused}");
    }
    let refused = parse("[policy]\n[upstreams.x]\ncommand = [\"/x\"]\nproxy = \"none\"", "t", &|_| None, &paths);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("upstreams.x.proxy: belongs to `url`; for a local program write env = "), "{refused}");
}
