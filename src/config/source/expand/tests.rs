use super::*;
use crate::model::UpstreamTarget;
use crate::tests::{good, paths};
use crate::{Config, parse, preflight, show};

fn env(name: &str) -> Option<String> {
    match name {
        "A" => Some("one".to_owned()),
        "_b2" => Some("t${A}o".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

#[test]
fn variables_are_put_in_once_and_nothing_else_is() {
    for (text, wanted) in [
        ("${A}", "one"),
        ("x${A}y${_b2}z", "xoneyt${A}oz"),
        ("${A:-other}${NONE:-other}${EMPTY:-}", "oneother"),
        ("${NONE:-a:-b $c}", "a:-b $c"),
        ("$${A} $$${A} $A {A} $", "${A} $${A} $A {A} $"),
        ("\u{fc}${A}\u{fc}", "\u{fc}one\u{fc}"),
    ] {
        assert_eq!(expand(text, &env).ok().map(|expanded| expanded.text).as_deref(), Some(wanted), "{text}");
    }
    for (text, wanted) in [
        ("${NONE}", "variable `NONE` is not set; set it where headend is started"),
        ("${EMPTY}", "variable `EMPTY` is not set"),
        ("${A", "has no `}`"),
        ("${}", "neither"),
        ("${1A}", "neither"),
        ("${env:A}", "`${env:A}` is neither `${VAR}` nor `${VAR:-default}`"),
        ("${A-x}", "neither"),
        ("${NONE:-${A}}", "neither"),
    ] {
        let troubles = expand(text, &env).err().unwrap_or_default();
        assert!(troubles.len() == 1 && troubles[0].contains(wanted), "{text}: {troubles:?}");
    }
    assert_eq!(expand("${X} ${Y} ${A:-${B}}", &env).err().map(|troubles| troubles.len()), Some(3));
}

/// A configuration with variables in all texts that may have them.
const ALL: &str = "[upstreams.a]\nexpand = true\ncommand = [\"${P}/a\", \"--token=${T}\", \"$${x}\"]\nenv = { A = \"x${T}\", B = \"${NONE:-y}\" }\ncwd = \"~/${D}\"\n\
                   [upstreams.b]\nurl = \"https://${H}/mcp?key=${T}\"\nheaders = { Authorization = \"Bearer ${T}\" }\n[policy]\ndefault = \"ask\"\n";

fn set(name: &str) -> Option<String> {
    let value = match name {
        "P" => "/secret-p",
        "T" => "secret-t",
        "D" => "secret-d",
        "H" => "secret-h.example",
        "HOME" => "/home/me",
        _ => return None,
    };
    Some(value.to_owned())
}

fn read(text: &str) -> (Config, Vec<String>) {
    let (config, warnings) = parse(text, "t", &set, &paths).unwrap();
    (config, warnings.iter().map(ToString::to_string).collect())
}

#[test]
fn every_text_of_an_upstream_may_have_them_and_none_is_shown() {
    let (config, warnings) = read(ALL);
    let UpstreamTarget::Stdio { command, env, cwd } = &config.upstreams[0].target else { panic!("a program") };
    let words: Vec<&str> = command.iter().map(VariableText::expose).collect();
    assert_eq!(words, ["/secret-p/a", "--token=secret-t", "${x}"]);
    assert_eq!(env.iter().map(|(_, value)| value.expose()).collect::<Vec<_>>(), ["xsecret-t", "y"]);
    assert_eq!(cwd.as_ref().map(|cwd| (cwd.written(), cwd.expose())), Some(("/home/me/${D}", "/home/me/secret-d")));
    let UpstreamTarget::Http { url, headers, .. } = &config.upstreams[1].target else { panic!("a URL") };
    assert_eq!(url.as_str(), "https://secret-h.example/mcp?key=secret-t");
    assert_eq!(headers[0].1.expose(), "Bearer secret-t");
    let shown = show::render(&config);
    for text in [shown.clone(), format!("{config:?}"), warnings.join("\n")] {
        // A parsed URL is shown by Debug only.
        let text = text.replace("secret-h.example", "").replace("key=secret-t", "");
        assert!(!text.contains("secret-"), "{text}");
    }
    assert!(!shown.contains("secret-h"), "{shown}");
    for line in [
        "command = [\"${P}/a\", \"--token=${T}\", \"$${x}\"]",
        "cwd = \"/home/me/${D}\"",
        "url = \"https://${H}/mcp?key=${T}\"",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let of_command: Vec<&String> = warnings.iter().filter(|warning| warning.contains("upstreams.a.command")).collect();
    assert!(of_command.len() == 2 && of_command.iter().all(|warning| warning.contains("command line")), "{warnings:?}");
}

#[test]
fn a_launch_is_the_text_before() {
    let other = |name: &str| set(name).map(|value| value.replace("secret", "other"));
    let (one, _) = read(ALL);
    let (two, _) = parse(ALL, "t", &other, &paths).unwrap();
    for (one, two) in one.upstreams.iter().zip(&two.upstreams) {
        assert_ne!(one, two);
        assert_eq!(one.launch_identity(), two.launch_identity());
    }
    // The identities of texts without variables have not changed since there were none.
    let before = "[upstreams.a]\ncommand = [\"/bin/a\", \"${x}\", \"-v\"]\nenv = { K = \"1\", J = \"$x\" }\ncwd = \"/srv\"\n\
                  [upstreams.b]\nurl = \"https://b.example/mcp?x=1\"\nheaders = { H = \"1\" }\n[policy]\ndefault = \"ask\"\n";
    let identities: Vec<String> = read(before).0.upstreams.iter().map(|one| one.launch_identity()).collect();
    assert_eq!(
        identities,
        [
            "b8790e60229112c398632611261d5f7ba5fc6a735a83b06ab3496bd3c5fb9722",
            "f58106b6deb935bcc051bd13c9e54efbf6a7dd015ce1d7e6f58766512fb29c4a",
        ]
    );
}

#[test]
fn the_command_of_a_file_of_before_stays_as_it_is() {
    let text = |more: &str| {
        format!("[upstreams.a]\ncommand = [\"sh\", \"-c\", \"echo ${{T}}\"]\n{more}[policy]\ndefault = \"ask\"\n")
    };
    let word = |config: &Config| {
        let UpstreamTarget::Stdio { command, .. } = &config.upstreams[0].target else { panic!("a program") };
        command[2].expose().to_owned()
    };
    let (config, warnings) = read(&text(""));
    assert_eq!(word(&config), "echo ${T}");
    assert!(warnings.len() == 1 && warnings[0].contains("`expand = true`"), "{warnings:?}");
    let (config, warnings) = read(&text("expand = false\nenv = { A = \"${T}\" }\n"));
    assert_eq!((word(&config).as_str(), warnings.len()), ("echo ${T}", 0));
    let UpstreamTarget::Stdio { env, .. } = &config.upstreams[0].target else { panic!("a program") };
    assert_eq!(env[0].1.expose(), "${T}");
    assert_eq!(word(&read(&text("expand = true\n")).0), "echo secret-t");
}

#[test]
fn an_argument_whose_variable_is_not_set_gets_one_warning_with_its_place_once() {
    let text = "[upstreams.a]\nexpand = true\ncommand = [\"/a\", \"Bearer ${NONE}\", \"--token\", \"${NONE}\"]\n[policy]\ndefault = \"ask\"\n";
    let (config, warnings) = read(text);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for (warning, place) in warnings.iter().zip(["upstreams.a.command[1]: the env", "upstreams.a.command[3]: the env"])
    {
        assert!(warning.contains(place), "{warning}");
    }
    assert!(config.upstreams[0].lacks[0].starts_with("command[1]: the environment variable"), "{config:?}");
    // The program and the directory get no second warning that they do not exist.
    let (config, warnings) = read(
        "[upstreams.a]\nexpand = true\ncommand = [\"${NONE}/a\"]\ncwd = \"${NONE}\"\n[policy]\ndefault = \"ask\"\n",
    );
    assert_eq!((warnings.len(), preflight(&config)), (2, Vec::new()), "{warnings:?}");
}

#[test]
fn one_that_is_not_set_keeps_its_upstream_alone_from_starting() {
    let text = "[upstreams.a]\nurl = \"${BASE}/mcp\"\nheaders = { Authorization = \"Bearer ${NONE}\" }\n\
                [upstreams.b]\ncommand = [\"/b\"]\nenv = { A = \"${env:T}\" }\n[upstreams.c]\nurl = \"${T}\"\n[upstreams.d]\ncommand = [\"/d\"]\n[policy]\ndefault = \"ask\"\n";
    let (config, warnings) = read(text);
    let lacks: Vec<usize> = config.upstreams.iter().map(|one| one.lacks.len()).collect();
    assert_eq!(lacks, [2, 1, 1, 0], "{warnings:?}");
    let [a, b, c, _] = config.upstreams.as_slice() else { panic!("four") };
    assert!(a.lacks[1].starts_with("url: the environment variable `BASE` is not set"), "{:?}", a.lacks);
    assert!(a.lacks[0].starts_with("headers.Authorization: the environment variable `NONE`"), "{:?}", a.lacks);
    assert!(b.lacks[0].starts_with("env.A: `${env:T}`"), "{:?}", b.lacks);
    assert!(c.lacks[0].starts_with("url: ") && !c.lacks[0].contains("secret"), "{:?}", c.lacks);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    let shown = show::render(&config);
    assert!(shown.contains("url = \"${BASE}/mcp\""), "{shown}");
    let again = parse(&shown, "t", &set, &paths);
    assert!(again.is_ok(), "{again:?}");
    assert_eq!(good(ALL).0.upstreams.len(), 2);
}
