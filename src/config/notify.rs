//! Reads the keys `notify` of `[policy.consent]`: the receiver of notices that approvals are open.

use url::{Host, Url};

use crate::source::expand::VariableText;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::source::secret::{MissingSecrets, Secret};
use crate::values::address::{is_loopback, is_public};
use crate::values::command::command;
use crate::values::proxy::ProxySettings;
use crate::values::remote::{headers, url};

/// The settings of notices of open approvals: their receiver and their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifySettings {
    pub to: NotifyReceiver,
    /// True if notices hold the arguments of the calls.
    pub arguments: bool,
}

/// The receiver of notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifyReceiver {
    /// A program by its absolute path, and its arguments.
    Program(Vec<String>),
    Url(NotifyHook),
}

/// A URL that takes notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyHook {
    /// The URL; a secret, since many services identify their users by its path.
    pub url: Secret,
    /// Scheme, host and port.
    pub origin: String,
    /// True if its server is on this machine; any other has to be on the internet.
    pub is_here: bool,
    pub headers: Vec<(String, Secret)>,
    /// The proxy to use, from headend's environment.
    pub proxy: ProxySettings,
}

impl NotifyHook {
    /// Returns the URL with its path hidden, for people.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.origin, secret::REDACTED)
    }
}

impl NotifySettings {
    pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<Self> {
        let (node, given, arguments) =
            (table.take("notify"), table.take("notify-headers"), table.boolean("notify-arguments"));
        let Some(node) = node else {
            if given.is_some() || arguments == Some(true) {
                table.problem("`notify-headers` and `notify-arguments` mean nothing without `notify`");
            }
            return None;
        };
        let to = if node.is_array() {
            if let Some(given) = given {
                given.problem("belongs to a URL; `notify` is a program");
            }
            NotifyReceiver::Program(program(&node)?)
        } else {
            let (hook, headers) = (hook(&node), given.map_or(Some(Vec::new()), |given| hook_headers(&given)));
            NotifyReceiver::Url(NotifyHook { headers: headers?, ..hook? })
        };
        Some(Self { to, arguments: arguments.unwrap_or(false) })
    }
}

/// Reads a program and its arguments; the program is an absolute path.
fn program(node: &ConfigNode<'_>) -> Option<Vec<String>> {
    let words = command(node, &mut MissingSecrets::new(false, Some(false)))?;
    // An absolute path: there is no PATH in which to look it up.
    let program = node.items("an array of the program and its arguments")?.first()?.home_path()?;
    let rest = words.iter().skip(1).map(VariableText::expose).map(str::to_owned);
    Some(std::iter::once(program.display().to_string()).chain(rest).collect())
}

fn hook_headers(node: &ConfigNode<'_>) -> Option<Vec<(String, Secret)>> {
    let mut lacks = MissingSecrets::new(false, Some(false));
    let headers = headers(node.table()?, &mut lacks);
    lacks.found.iter().for_each(|lack| node.problem(lack));
    lacks.found.is_empty().then_some(headers)
}

/// Reads a URL that takes notices, without its headers.
fn hook(node: &ConfigNode<'_>) -> Option<NotifyHook> {
    if node.as_str().is_some_and(|text| !text.contains("://")) {
        node.problem(
            "must be a URL such as \"https://hooks.example.com/headend\", or an array of a program and its arguments; there is no shell",
        );
        return None;
    }
    let found = secret::read(node)?;
    let url: Url = url(node, found.secret.expose())?;
    let is_here = is_loopback(&url);
    let is_private = match url.host() {
        Some(Host::Ipv4(address)) => !is_public(address.into()),
        Some(Host::Ipv6(address)) => !is_public(address.into()),
        Some(Host::Domain(_)) => false,
        None => true,
    };
    if is_private && !is_here {
        node.problem(
            "is neither on this machine nor on the internet; write a program that tells a server of your own network",
        );
    }
    let (origin, headers) = (url.origin().ascii_serialization(), Vec::new());
    let proxy = ProxySettings::from_environment(node.source.env);
    Some(NotifyHook { url: Secret::new(url.into()), origin, is_here, headers, proxy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::tests::{every, paths};

    fn read(lines: &str) -> Result<(Option<NotifySettings>, String), String> {
        let loaded = parse(&format!("[policy.consent]\n{lines}"), "t", &every, &paths);
        let (config, _) = loaded.map_err(|problems| problems.to_string())?;
        let shown = crate::show::render(&config);
        let shown = shown.lines().filter(|line| line.starts_with("notify")).collect::<Vec<_>>().join("\n");
        Ok((config.consent.notify, shown))
    }

    #[test]
    fn a_program_or_a_url_is_told_and_no_secret_is_shown() {
        let (program, shown) = read("notify = [\"/bin/tell\", \"--token=abc\", \"x\"]").unwrap();
        let words = ["/bin/tell", "--token=abc", "x"].map(str::to_owned).to_vec();
        assert_eq!(program, Some(NotifySettings { to: NotifyReceiver::Program(words), arguments: false }));
        assert_eq!(shown, "notify = [\"/bin/tell\", \"--token=***\", \"x\"]\nnotify-arguments = false");
        for (lines, url, is_here, origin) in [
            (
                "notify = \"https://a.example/T0/canary?k=v\"",
                "https://a.example/T0/canary?k=v",
                false,
                "https://a.example",
            ),
            ("notify = \"http://localhost:7/canary\"", "http://localhost:7/canary", true, "http://localhost:7"),
            ("notify = \"https://[::1]/canary\"", "https://[::1]/canary", true, "https://[::1]"),
            ("notify = \"https://1.1.1.1/canary\"", "https://1.1.1.1/canary", false, "https://1.1.1.1"),
        ] {
            let headers =
                "notify-headers = { Authorization = { env = \"X\", prefix = \"Bearer \" } }\nnotify-arguments = true";
            let (notify, shown) = read(&format!("{lines}\n{headers}")).unwrap();
            let Some(NotifySettings { to: NotifyReceiver::Url(hook), arguments: true }) = notify else {
                panic!("{lines}")
            };
            assert_eq!((hook.url.expose(), hook.is_here, &*hook.origin), (url, is_here, origin));
            assert_eq!(hook.headers[0].0, "Authorization");
            assert!(hook.headers[0].1.expose().starts_with("Bearer "));
            assert!(!shown.contains("canary") && shown.contains(&format!("\"{origin}/***\"")), "{shown}");
            assert!(shown.contains("Authorization = \"***\""), "{shown}");
        }
        assert_eq!(read("").unwrap(), (None, String::new()));
    }

    #[test]
    fn a_url_can_be_a_secret_and_is_in_no_error() {
        let of = |value: &'static str| {
            let env = move |name: &str| (name == "HOOK").then(|| value.to_owned());
            let text = "[policy.consent]\nnotify = { env = \"HOOK\" }";
            let loaded = parse(text, "t", &env, &paths);
            loaded.map(|(config, _)| config.consent.notify).map_err(|problems| problems.to_string())
        };
        assert!(of("https://a.example/canary").unwrap().is_some());
        let missing = "[policy.consent]\nnotify = \"https://a.example\"\nnotify-headers = { A = { env = \"A\" } }";
        let error = parse(missing, "t", &|_| None, &paths).unwrap_err().to_string();
        assert!(error.contains("notify-headers: the environment variable `A` is not set"), "{error}");
        for value in ["http://a.example/canary", "https://10.0.0.1/canary", "canary", "ftp://a.example/canary"] {
            let error = of(value).unwrap_err();
            assert!(error.contains("policy.consent.notify: ") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn other_ways_are_refused_with_what_to_write() {
        for (lines, want) in [
            ("notify = \"/bin/tell me\"", "notify: must be a URL such as"),
            ("notify = [\"tell\"]", "notify[0]: must be an absolute path"),
            ("notify = []", "notify: must not be empty"),
            ("notify = [\"/bin/tell\", 1]", "notify[1]: must be a string"),
            ("notify = 1", "notify: "),
            ("notify = \"http://a.example/\"", "notify: plain http is possible to this machine only"),
            ("notify = \"https://u:p@a.example/\"", "notify: must not contain a user or password"),
            ("notify = \"https://192.168.0.7/\"", "notify: is neither on this machine nor on the internet"),
            ("notify = \"https://[fd00::1]/\"", "notify: is neither on this machine nor on the internet"),
            ("notify = \"https://169.254.169.254/\"", "notify: is neither on this machine nor on the internet"),
            ("notify = \"https://0x7f000001.example\"\nnotify-headers = { Host = \"x\" }", "Host: is set by headend"),
            ("notify = [\"/bin/tell\"]\nnotify-headers = { A = \"x\" }", "notify-headers: belongs to a URL"),
            ("notify-arguments = true", "mean nothing without `notify`"),
        ] {
            let error = read(lines).unwrap_err();
            assert!(error.contains(want), "{lines}: {error}");
        }
    }
}
