//! Tables of refusals and warnings.
//!
//! Long, and one file on purpose: nothing but rows of tables.

use super::*;

mod rules;

/// A label, a text, and what one of the problems must contain.
pub(super) type Row = (&'static str, &'static str, &'static str);

/// Two upstreams and a policy, for rows that are about something else.
const BASE: &str = "[upstreams.fs]\ncommand = [\"/bin/true\"]\n[upstreams.docs]\nurl = \"https://d/mcp\"\n";

#[track_caller]
pub(super) fn refused<T: AsRef<str>>(rows: &[(&str, T, &str)], before: &str) {
    let mut wrong = Vec::new();
    for (label, text, wanted) in rows {
        let full = format!("{before}{}", text.as_ref());
        match parse(&full, "t", &every, &paths) {
            Ok(_) => wrong.push(format!("{label}: accepted")),
            Err(problems) if problems.to_string().contains(wanted) => {}
            Err(problems) => wrong.push(format!("{label}: {wanted:?} is not in\n{problems}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_is_no_toml_is_told_with_its_line() {
    let rows: &[Row] = &[
        ("an open table", "[server]\nlisten = [\n[upstreams", "t:3: not TOML"),
        ("a byte order mark", "\u{feff}[server]\nx = 1\n", "t:2: server.x: unknown key"),
        ("no value", "a = 1\nb =\n", "t:2: not TOML"),
        ("a key twice", "[server]\nendpoint = \"/a\"\nendpoint = \"/b\"\n", "t:3: not TOML: duplicate key"),
        (
            "a table twice",
            "[upstreams.a]\ncommand=[\"/a\"]\n[upstreams.a]\ncommand=[\"/b\"]\n",
            "t:3: not TOML: duplicate key",
        ),
        (
            "a key twice, and the rest",
            "[naming]\nuris = 1\nuris = 2\nprefixes = 1\n",
            "t:4: naming.prefixes: unknown key",
        ),
    ];
    refused(rows, "");
}

#[test]
fn the_server_is_checked() {
    let rows: &[Row] = &[
        (
            "no TLS",
            "[server]\nlisten=[\"0.0.0.0:8080\"]\n",
            "t:2: server.listen[0]: plain HTTP is possible on loopback",
        ),
        (
            "no auth in spite of a proxy",
            "[server]\nlisten=[\"0.0.0.0:8080\"]\ntrusted-proxies=[\"10.0.0.7\"]\n[server.auth]\nmode=\"none\"\n",
            "server.listen[0]: mode \"none\" is possible on loopback",
        ),
        (
            "a proxy by name",
            "[server]\ntrusted-proxies=[\"nginx\"]\n",
            "trusted-proxies[0]: must be an address or a network",
        ),
        ("any proxy", "[server]\ntrusted-proxies=[\"::/0\"]\n", "trusted-proxies[0]: would trust every address"),
        ("no key", "[[server.tls]]\ncertificate=\"/c\"\n", "t:1: server.tls[0]: needs `certificate` and `key`"),
        (
            "a relative key",
            "[[server.tls]]\ncertificate=\"/c\"\nkey=\"k\"\n",
            "server.tls[0].key: must be an absolute path",
        ),
        (
            "a certificate twice",
            "[[server.tls]]\ncertificate=\"/c\"\nkey=\"/k\"\n[[server.tls]]\ncertificate=\"/c\"\nkey=\"/l\"\n",
            "server.tls[1]: /c stands here twice",
        ),
        (
            "metrics without a token",
            "[metrics]\nlisten=\"0.0.0.0:1\"\n[[server.tls]]\ncertificate=\"/c\"\nkey=\"/k\"\n",
            "metrics.listen: off loopback, metrics need `token`",
        ),
        (
            "metrics without TLS",
            "[metrics]\nlisten=\"0.0.0.0:1\"\ntoken=\"0123456789abcdef\"\n",
            "metrics.listen: off loopback, metrics need `token`",
        ),
        ("a short token of the metrics", "[metrics]\ntoken=\"short\"\n", "metrics.token: a token must be at least 16"),
        ("any host of the console", "[console]\nallowed-hosts=[\"*\"]\n", "console.allowed-hosts[0]: must be one host"),
        (
            "no auth",
            "[server]\nlisten=[\"0.0.0.0:8080\"]\n[server.auth]\nmode=\"none\"\n",
            "server.listen[0]: mode \"none\" is possible on loopback",
        ),
        ("a host name", "[server]\nlisten=[\"localhost:1\"]\n", "must be an IP address and a port"),
        (
            "a string",
            "[server]\nlisten=\"127.0.0.1:1\"\n",
            "must be an array such as [\"127.0.0.1:8627\"], not a string",
        ),
        ("no address", "[server]\nlisten=[]\n", "must name at least one address"),
        ("an address twice", "[server]\nlisten=[\"127.0.0.1:1\",\"127.0.0.1:1\"]\n", "listen[1]: stands here twice"),
        ("mode mtls", "[server.auth]\nmode=\"mtls\"\n", "mode \"mtls\" is not available"),
        ("another mode", "[server.auth]\nmode=\"tokn\"\n", "did you mean `token`?"),
        (
            "tokens without mode",
            "[server.auth]\nmode=\"none\"\ntokens={a=\"0123456789abcdef\"}\n",
            "tokens are not looked at",
        ),
        (
            "the caller local",
            "[server.auth]\ntokens={local={env=\"T\"}}\n",
            "`local` is the caller of the generated token",
        ),
        (
            "a caller's name",
            "[server.auth]\ntokens={\"a b\"={env=\"T\"}}\n",
            "server.auth.tokens.\"a b\": a caller's name",
        ),
        ("one token for two", "[server.auth]\ntokens={a={env=\"T\"},b={env=\"T\"}}\n", "`a` has the same token"),
        ("a token with spaces", "[server.auth]\ntokens={a={env=\"T\",prefix=\"a b\"}}\n", "visible ASCII"),
        (
            "two sources",
            "[server.auth]\ntokens={a={env=\"T\",file=\"/t\"}}\n",
            "exactly one of `env`, `file` and `credential`",
        ),
        ("no source", "[server.auth]\ntokens={a={envv=\"T\"}}\n", "tokens.a.envv: unknown key; did you mean `env`?"),
        ("a relative secret", "[server.auth]\ntokens={a={file=\"t\"}}\n", "tokens.a.file: must be an absolute path"),
        ("a credential path", "[server.auth]\ntokens={a={credential=\"../t\"}}\n", "must be the name of a credential"),
        (
            "a short token",
            "[server.auth]\ntokens={a={env=\"T\"},b=\"123456789012345\"}\n",
            "t:2: server.auth.tokens.b: a token of fewer than 16 characters",
        ),
        (
            "a short token of a file",
            "[server.auth.tokens]\na={env=\"T\"}\nb={file=\"/t\"}\n",
            "t:3: server.auth.tokens.b: a token of fewer than 16 characters can be guessed; make one with `openssl",
        ),
        ("a short key", "[secrets]\nkey={file=\"/k\"}\n", "t:2: secrets.key: a key of fewer than 32 characters"),
        ("a short old key", "[secrets]\nprevious-key={file=\"/k\"}\n", "previous-key: a key of fewer than 32"),
        (
            "one key twice",
            "[secrets]\nkey=\"0123456789abcdef0123456789abcdef\"\nprevious-key=\"0123456789abcdef0123456789abcdef\"\n",
            "t:3: secrets.previous-key: is the same key as `key`",
        ),
        ("a key of two", "[secrets]\nkey={file=\"/k\",env=\"K\"}\n", "exactly one of `env`, `file` and `credential`"),
        ("a number as a token", "[server.auth]\ntokens={a=1}\n", "write a string or where to find it"),
        (
            "the paths of legacy SSE",
            "[server]\nendpoint=\"/messages\"\nlegacy-sse=true\n",
            "server.legacy-sse: serves /sse and /messages",
        ),
        ("endpoint", "[server]\nendpoint=\"mcp/\"\n", "must be a path such as \"/mcp\""),
        ("endpoint up", "[server]\nendpoint=\"/a/..\"\n", "must be a path such as"),
        ("any host", "[server]\nallowed-hosts=[\"*\"]\n", "allowed-hosts[0]: must be one host"),
        ("a URL as a host", "[server]\nallowed-hosts=[\"https://a\"]\n", "must be a host or host:port"),
        ("any origin", "[server]\nallowed-origins=[\"*\"]\n", "must be one origin"),
        ("null origin", "[server]\nallowed-origins=[\"null\"]\n", "must be one origin"),
        ("an origin with a path", "[server]\nallowed-origins=[\"https://a/\"]\n", "must be an origin without a path"),
        ("metrics for all", "[metrics]\nlisten=\"0.0.0.0:9\"\n", "metrics.listen: off loopback, metrics need `token`"),
        ("metrics at home", "[metrics]\nlisten=\"127.0.0.1:8627\"\n", "is an address of [server] listen too"),
        ("a relative socket", "[admin]\nsocket=\"x\"\n", "admin.socket: must be an absolute path"),
        (
            "audit capture",
            "[audit]\ncapture-arguments=true\n",
            "audit.capture-arguments: must be one of \"none\", \"full\"",
        ),
        ("audit failure", "[audit]\non-failure=\"alow\"\n", "audit.on-failure: must be one of \"deny\", \"continue\""),
        ("audit segment", "[audit]\nmax-segment=\"1B\"\n", "audit.max-segment: must be a size from 64KiB to 4GiB"),
        ("audit age", "[audit]\nretain={ age = \"1h\" }\n", "audit.retain.age: must be a duration from 24h to 36500d"),
        ("audit size", "[audit]\nretain={ size = \"1MiB\" }\n", "audit.retain.size: must not be less than max-segment"),
        ("audit retain", "[audit]\nretain=\"90d\"\n", "audit.retain: must be a table"),
        ("audit outside", "[audit]\npath=\"../x\"\n", "audit.path: must be a path"),
        ("log filter", "[log]\nfilter=\"loud\"\n", "log.filter: must be a level"),
        ("a table", "[serv]\n", "t:1: serv: unknown key"),
        ("not a table", "server = 1\n", "server: must be a table, not an integer"),
    ];
    refused(rows, "");
}

#[test]
fn limits_are_checked() {
    let rows: &[Row] = &[
        ("a bad unit", "max-body=\"4 MB of\"\n", "server.limits.max-body: must be a size from 1KiB to 1GiB"),
        ("negative", "max-in-flight=-1\n", "server.limits.max-in-flight: must be from 1 to"),
        ("zero", "max-sessions=0\n", "must be from 1 to"),
        ("too large", "queue=99999999999999999999\n", "queue: must be from 0 to 1000000"),
        ("a float", "queue=1.5\n", "must be a whole number, not a float"),
        ("a number for a duration", "keepalive=15\n", "must be a duration such as \"30s\""),
        ("a long duration", "keepalive=\"2h\"\n", "must be a duration from 1s to 1h"),
        ("a rate", "caller-rate=\"20\"\n", "must be a whole number and a unit"),
        ("no rate", "caller-rate=\"0/s\"\n", "must not be zero"),
        (
            "no room for one message",
            "max-buffered=\"8MiB\"\n",
            "server.limits: max-buffered (8MiB) must not be less than max-upstream-result (16MiB)",
        ),
        ("an unknown limit", "max-bdy=1\n", "did you mean `max-body`?"),
    ];
    refused(rows, "[server.limits]\n");
}

#[test]
fn upstreams_are_checked() {
    let rows: &[Row] = &[
        ("a homoglyph", "[upstreams.\"gitıub\"]\ncommand=[\"/bin/true\"]\n", "only a-z, 0-9 and - are possible"),
        ("an underscore", "[upstreams.a_b]\ncommand=[\"/bin/true\"]\n", "write for example `[upstreams.a-b]`"),
        (
            "a command line",
            "[upstreams.x]\ncommand=\"npx -y foo\"\n",
            "there is no shell; write [\"npx\", \"-y\", \"foo\"]",
        ),
        ("a shell", "[upstreams.x]\ncommand=\"npx -y foo && curl evil\"\n", "write [\"program\", \"argument\"]"),
        ("no command", "[upstreams.x]\ncommand=[]\n", "upstreams.x.command: must not be empty"),
        ("an empty program", "[upstreams.x]\ncommand=[\"\"]\n", "the program must not be empty"),
        (
            "a number in it",
            "[upstreams.x]\ncommand=[\"a\", 1]\n",
            "upstreams.x.command[1]: must be a string, not an integer",
        ),
        ("both", "[upstreams.x]\ncommand=[\"a\"]\nurl=\"https://x\"\n", "has both `command` and `url`"),
        ("neither", "[upstreams.x]\n", "needs `command` (a local program) or `url` (a remote server)"),
        ("args", "[upstreams.x]\ncommand=[\"a\"]\nargs=[\"b\"]\n", "the arguments stand in `command`"),
        ("headers of a program", "[upstreams.x]\ncommand=[\"a\"]\nheaders={}\n", "x.headers: belongs to `url`"),
        ("environment of a URL", "[upstreams.x]\nurl=\"https://x\"\nenv={}\n", "x.env: belongs to `command`"),
        ("another scheme", "[upstreams.x]\nurl=\"ftp://x\"\n", "must begin with https:// or http://, not ftp:"),
        ("no URL", "[upstreams.x]\nurl=\"x\"\n", "is not a URL"),
        ("plain http", "[upstreams.x]\nurl=\"http://x.example.com/\"\n", "plain http is possible to this machine only"),
        ("looks like loopback", "[upstreams.x]\nurl=\"http://127.0.0.1.example.com/\"\n", "plain http is possible"),
        ("a password", "[upstreams.x]\nurl=\"https://u:p@x/\"\n", "must not contain a user or password"),
        (
            "a reserved header",
            "[upstreams.x]\nurl=\"https://x\"\nheaders={Host=\"y\"}\n",
            "is set by headend; remove it",
        ),
        (
            "our header",
            "[upstreams.x]\nurl=\"https://x\"\nheaders={Mcp-Method=\"y\"}\n",
            "is set by headend; remove it",
        ),
        (
            "a bad header",
            "[upstreams.x]\nurl=\"https://x\"\nheaders={\"a b\"=\"y\"}\n",
            "is not a valid name of an HTTP",
        ),
        (
            "a split header",
            "[upstreams.x]\nurl=\"https://x\"\nheaders={A=\"a\\r\\nB: c\"}\n",
            "characters that no HTTP header may have",
        ),
        ("a login of a program", "[upstreams.x]\ncommand=[\"a\"]\nauth={}\n", "x.auth: belongs to `url`"),
        (
            "a login beside a credential",
            "[upstreams.x]\nurl=\"https://x\"\nheaders={Authorization={env=\"B\"}}\nauth={}\n",
            "x.auth: the upstream has a credential in `headers` already",
        ),
        ("a header twice", "[upstreams.x]\nurl=\"https://x\"\nheaders={A=\"1\",a=\"2\"}\n", "stands here twice"),
        (
            "a variable's name",
            "[upstreams.x]\ncommand=[\"a\"]\nenv={\"A=B\"=\"1\"}\n",
            "must not be empty nor contain `=`",
        ),
        ("a umask that is none", "[upstreams.x]\ncommand=[\"a\"]\numask=\"1022\"\n", "umask: must be octal digits"),
        ("a umask with a sign", "[upstreams.x]\ncommand=[\"a\"]\numask=\"+22\"\n", "umask: must be octal digits"),
        ("a umask as a number", "[upstreams.x]\ncommand=[\"a\"]\numask=22\n", "umask: must be a string"),
        (
            "privileges of a remote server",
            "[upstreams.x]\nurl=\"https://x\"\nno-new-privileges=false\n",
            "no-new-privileges: belongs to `command`",
        ),
        (
            "a relative directory",
            "[upstreams.x]\ncommand=[\"a\"]\ncwd=\"x/y\"\n",
            "cwd: must be an absolute path, or begin with `~/`",
        ),
        (
            "the home of another",
            "[upstreams.x]\ncommand=[\"a\"]\ncwd=\"~you/x\"\n",
            "home directory of headend's own user",
        ),
        (
            "a relative path",
            "[upstreams.x]\ncommand=[\"a\"]\npath=[\"/a\",\"bin\"]\n",
            "path[1]: must be an absolute path",
        ),
        ("a joined path", "[upstreams.x]\ncommand=[\"a\"]\npath=[\"/a:/b\"]\n", "path[0]: must not contain `:`"),
        (
            "a pattern of names",
            "[upstreams.x]\ncommand=[\"a\"]\nenv-from=[\"AWS_*\"]\n",
            "env-from[0]: must be the name of one variable",
        ),
        ("a value for a name", "[upstreams.x]\ncommand=[\"a\"]\nenv-from=[\"A=1\"]\n", "a value is written in `env`"),
        ("a default that is none", "[defaults]\nenv={}\n", "defaults.env: unknown key"),
        (
            "a remote environment",
            "[upstreams.x]\nurl=\"https://x\"\nenv-from=[\"A\"]\n",
            "env-from: belongs to `command`",
        ),
        (
            "modern SSE",
            "[upstreams.x]\nurl=\"https://x\"\ntransport=\"sse\"\nera=\"modern\"\n",
            "x.era: transport \"sse\" is of the legacy era",
        ),
        ("instance", "[upstreams.x]\ncommand=[\"a\"]\ninstance=\"each\"\n", "x.instance"),
        (
            "one of each caller",
            "[upstreams.x]\ncommand=[\"a\"]\ninstance=\"per-session\"\nplacement=\"one\"\n",
            "x.placement: \"one\" is a single process for all callers",
        ),
        (
            "a remote placement",
            "[upstreams.x]\nurl=\"https://x\"\nplacement=\"one\"\n",
            "placement: belongs to `command`",
        ),
        ("placement", "[upstreams.x]\ncommand=[\"a\"]\nplacement=\"two\"\n", "x.placement"),
        ("roots", "[upstreams.x]\ncommand=[\"a\"]\nroots=[\"/srv\"]\n", "x.roots[0]: roots are `file://` URIs"),
        ("roots", "[upstreams.x]\ncommand=[\"a\"]\nroots=7\n", "x.roots"),
        ("apps", "[upstreams.x]\ncommand=[\"a\"]\napps=\"pinned\"\n", "x.apps"),
        ("completions", "[upstreams.x]\ncommand=[\"a\"]\ncompletions=\"yes\"\n", "x.completions"),
        (
            "a number",
            "[upstreams.x]\ncommand=[\"a\"]\nelicit-hosts=[\"10.0.0.1\"]\n",
            "x.elicit-hosts[0]: write a host such",
        ),
        (
            "a URL",
            "[upstreams.x]\ncommand=[\"a\"]\nelicit-hosts=[\"https://x.org\"]\n",
            "x.elicit-hosts[0]: write a host",
        ),
        ("one host", "[upstreams.x]\ncommand=[\"a\"]\nelicit-hosts=\"x.org\"\n", "x.elicit-hosts"),
        ("a word", "[upstreams.x]\ncommand=[\"a\"]\nelicit-secrets=\"yes\"\n", "x.elicit-secrets"),
        (
            "times",
            "[upstreams.x]\ncommand=[\"a\"]\ncall-timeout=\"2m\"\ncall-max=\"1m\"\n",
            "must not be shorter than call-timeout",
        ),
        (
            "an underscore in a key",
            "[upstreams.x]\ncommand=[\"a\"]\ncall_timeout=\"2m\"\n",
            "did you mean `call-timeout`?",
        ),
        (
            "the same prefix",
            "[upstreams.x]\ncommand=[\"a\"]\n[upstreams.y]\ncommand=[\"a\"]\nprefix=\"x__\"\n",
            "upstreams.y.prefix: `x` has the same prefix",
        ),
        ("a dotted prefix", "[upstreams.x]\ncommand=[\"a\"]\nprefix=\"x.\"\n", "must be letters, digits, `_` and `-`"),
        (
            "a long prefix",
            "[upstreams.x]\ncommand=[\"a\"]\nprefix=\"0123456789012345678901234567890123456789_\"\n",
            "must not be longer than 36",
        ),
        ("a glob", "[upstreams.x]\ncommand=[\"a\"]\ntools={allow=[\"[\"]}\n", "tools.allow[0]: is not a pattern"),
        ("an empty glob", "[upstreams.x]\ncommand=[\"a\"]\ntools={deny=[\"\"]}\n", "must not be empty; write \"*\""),
        (
            "one name for two",
            "[upstreams.x]\ncommand=[\"a\"]\ntools={rename={a=\"c\",b=\"c\"}}\n",
            "rename.b: another item has this name",
        ),
        (
            "renamed resources",
            "[upstreams.x]\ncommand=[\"a\"]\nresources={rename={a=\"c\"}}\n",
            "only tools and prompts",
        ),
        ("a bad table", "upstreams.x = 1\n", "upstreams.x: must be a table, not an integer"),
    ];
    refused(rows, "");
}

#[test]
fn the_policy_is_checked() {
    let rows: &[Row] = &[
        ("a long hold", "[policy.consent]\nhold=\"2h\"\n", "policy.consent.hold: must be a duration from 0s to 1h"),
        ("many held", "[policy.consent]\nmax-held=257\n", "policy.consent.max-held: must be from 1 to 256"),
        (
            "a hold without a time",
            "[[policy.consent.holds]]\nclients=[\"ed\"]\n",
            "policy.consent.holds[0]: needs `hold`",
        ),
        ("a hold for all", "[[policy.consent.holds]]\nhold=\"5s\"\n", "policy.consent.holds[0]: is for all clients"),
        (
            "a hold for none",
            "[[policy.consent.holds]]\nhold=\"5s\"\nclients=[]\n",
            "policy.consent.holds[0].clients: must not be empty",
        ),
        (
            "a hold for a broken pattern",
            "[[policy.consent.holds]]\nhold=\"5s\"\nclients=[\"a\",\"b[\"]\n",
            "policy.consent.holds[0].clients[1]: must be a name or a pattern",
        ),
        (
            "a hold for no profile",
            "[[policy.consent.holds]]\nhold=\"5s\"\nprofiles=[\"wrok\"]\n[profiles.work]\nupstreams=[\"fs\"]\n",
            "policy.consent.holds[0].profiles[0]: matches no configured profile; did you mean `work`?",
        ),
        (
            "another key of a hold",
            "[[policy.consent.holds]]\nhold=\"5s\"\nclient=[\"ed\"]\n",
            "policy.consent.holds[0].client: unknown key; did you mean `clients`?",
        ),
        (
            "no such upstream",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"allow\"\ntools=[\"dcos__*\"]\n",
            "t:10: policy.rules[0].tools[0]: matches nothing: there is no upstream `dcos` here; did you mean `docs`?",
        ),
        (
            "part of a name",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"allow\"\ntools=[\"githbu*\"]\n",
            "matches nothing",
        ),
        (
            "an original name",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"allow\"\ntools=[\"delete\"]\n",
            "for example \"fs__delete\"",
        ),
        (
            "a bare URI",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"allow\"\nresources=[\"file:///x\"]\n",
            "`<upstream>+<URI>`",
        ),
        (
            "an upstream pattern",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"allow\"\nupstreams=[\"f\"]\n",
            "rules[0].upstreams[0]: matches no configured upstream",
        ),
        (
            "an empty list",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"allow\"\ntools=[]\n",
            "rules[0].tools: must not be empty; without this key everything",
        ),
        (
            "arguments",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"allow\"\ntools=[\"fs__*\"]\narguments=[{pointer=\"path\",glob=\"/srv/*\"}]\n",
            "t:11: policy.rules[0].arguments[0].pointer: is no JSON pointer: it begins with `/`, such as \"/path\"",
        ),
        (
            "annotations",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"deny\"\nannotations={}\n",
            "rules[0].annotations: has no hints",
        ),
        ("no effect", "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\n", "policy.rules[0]: needs `effect`"),
        (
            "no id",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\neffect=\"deny\"\n",
            "policy.rules[0].id: must not be empty",
        ),
        (
            "an id twice",
            "[policy]\ndefault=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"deny\"\n[[policy.rules]]\nid=\"r\"\neffect=\"deny\"\n",
            "t:11: policy.rules[1].id: `r` is used more than once",
        ),
        (
            "one table",
            "[policy]\ndefault=\"deny\"\n[policy.rules]\nid=\"r\"\n",
            "policy.rules: must be an array of tables, not a table",
        ),
        (
            "no rate",
            "[policy]\ndefault=\"deny\"\n[[policy.limits]]\nid=\"l\"\n",
            "policy.limits[0]: needs `rate`, `concurrent` or `per-day`",
        ),
        (
            "a burst without a rate",
            "[policy]\ndefault=\"deny\"\n[[policy.limits]]\nid=\"l\"\nper-day=5\nburst=5\n",
            "limits[0].burst: means nothing without `rate`",
        ),
        (
            "no calls a day",
            "[policy]\ndefault=\"deny\"\n[[policy.limits]]\nid=\"l\"\nper-day=0\n",
            "limits[0].per-day: must be from 1 to 1000000",
        ),
        (
            "a wordy number of calls at once",
            "[policy]\ndefault=\"deny\"\n[[policy.limits]]\nid=\"l\"\nconcurrent=\"two\"\n",
            "limits[0].concurrent: must be",
        ),
        (
            "a bad rate",
            "[policy]\ndefault=\"deny\"\n[[policy.limits]]\nid=\"l\"\nrate=\"30/min\"\n",
            "limits[0].rate: must be a whole number and a unit",
        ),
        (
            "a bad key",
            "[policy]\ndefault=\"deny\"\n[[policy.limits]]\nid=\"l\"\nrate=\"30/m\"\nkey=[\"tol\"]\n",
            "limits[0].key[0]: must be one of \"caller\", \"upstream\", \"tool\"; did you mean `tool`?",
        ),
        (
            "a limit on nothing",
            "[policy]\ndefault=\"deny\"\n[[policy.limits]]\nid=\"l\"\nrate=\"30/m\"\ntools=[\"x__*\"]\n",
            "limits[0].tools[0]: matches nothing",
        ),
    ];
    refused(rows, BASE);
}

#[test]
fn profiles_are_checked() {
    let rows: &[Row] = &[
        (
            "an unknown upstream",
            "[profiles.p]\nupstreams=[\"doc\"]\n",
            "p.upstreams[0]: there is no upstream `doc`; did you mean `docs`?",
        ),
        ("none", "[profiles.p]\nupstreams=[]\n", "must name at least one upstream"),
        ("one twice", "[profiles.p]\nupstreams=[\"fs\",\"fs\"]\n", "upstreams[1]: stands here twice"),
        (
            "transparent over two",
            "[profiles.p]\nupstreams=[\"fs\",\"docs\"]\ntransparent=true\n",
            "t:5: profiles.p: a transparent profile",
        ),
        ("transparent over all", "[profiles.p]\ntransparent=true\n", "needs exactly one upstream"),
        (
            "another's tools",
            "[profiles.p]\nupstreams=[\"fs\"]\ntools={allow=[\"docs__*\"]}\n",
            "profiles.p.tools.allow[0]: matches nothing: there is no upstream `docs` here",
        ),
        ("original names", "[profiles.p]\ntools={deny=[\"delete\"]}\n", "`<upstream>__<name>`"),
        ("a rename", "[profiles.p]\ntools={rename={}}\n", "only tools and prompts of an upstream"),
        ("a pattern of groups", "[profiles.p]\ngroups=[\"a[\"]\n", "t:6: profiles.p.groups[0]: "),
        ("callers that are none", "[profiles.p]\ncallers=[]\n", "profiles.p.callers: must not be empty"),
        ("a name", "[profiles.Reader]\nupstreams=[\"fs\"]\n", "the name of a profile contains 'R'"),
    ];
    refused(rows, BASE);
}

#[test]
fn what_is_risky_but_possible_is_warned_of() {
    let rows: &[Row] = &[
        (
            "unpinned npx",
            "[upstreams.x]\ncommand=[\"npx\",\"-y\",\"@a/foo\"]\n",
            "`@a/foo` has no exact version, so what runs can change at any start; write `@a/foo@VERSION`",
        ),
        ("a range", "[upstreams.x]\ncommand=[\"npx\",\"foo@^1\"]\n", "`foo@^1` has no exact version"),
        (
            "an image without a tag",
            "[upstreams.x]\ncommand=[\"docker\",\"run\",\"-i\",\"mcp/time\"]\n",
            "the image `mcp/time` has no tag, so what runs can change at any start; write `mcp/time:VERSION` or",
        ),
        ("unpinned uvx", "[upstreams.x]\ncommand=[\"uvx\",\"foo\"]\n", "write `foo==VERSION`"),
        (
            "a container that stays",
            "[upstreams.x]\ncommand=[\"docker\",\"run\",\"-i\",\"mcp/time\"]\n",
            "upstreams.x.command: runs a container without `--rm` and `--init`: --rm removes it",
        ),
        (
            "a secret argument",
            "[upstreams.x]\ncommand=[\"/x\",\"--token=abc\"]\n",
            "upstreams.x.command[1]: looks like a secret",
        ),
        ("a relative program", "[upstreams.x]\ncommand=[\"./x\"]\n", "write an absolute path"),
        (
            "a literal header",
            "[upstreams.x]\nurl=\"https://x\"\nheaders={Authorization=\"Bearer x\"}\n",
            "a secret in the file itself",
        ),
        ("a literal token", "[server.auth]\ntokens={a=\"0123456789abcdef\"}\n", "a secret in the file itself"),
        (
            "a literal variable",
            "[upstreams.x]\ncommand=[\"/x\"]\nenv={API_KEY=\"abc\"}\n",
            "x.env.API_KEY: a secret in the file itself",
        ),
        (
            "a literal password",
            "[secrets]\nkey={file=\"/a/file/with/a/name/that/is/long/enough\"}\n[cluster]\nname=\"a\"\nstore=\"postgres://u:p@h/d\"\n",
            "cluster.store: a secret in the file itself",
        ),
        ("a literal key", "[secrets]\nkey=\"0123456789abcdef0123456789abcdef\"\n", "a secret in the file itself"),
        (
            "a secret in the URL",
            "[upstreams.x]\nurl=\"https://x/?api_key=abc\"\n",
            "the query seems to contain a secret",
        ),
        (
            "prefixes",
            "[upstreams.x]\ncommand=[\"/x\"]\nprefix=\"a\"\n[upstreams.y]\ncommand=[\"/y\"]\nprefix=\"ab\"\n",
            "begins with prefix \"a\" of `x`",
        ),
        (
            "no prefixes",
            "[upstreams.x]\ncommand=[\"/x\"]\nprefix=\"\"\n[upstreams.y]\ncommand=[\"/y\"]\nprefix=\"\"\n",
            "have the same prefix \"\"",
        ),
        ("no policy", "[upstreams.x]\ncommand=[\"/x\"]\n", "there is no [policy] table"),
    ];
    for (label, text, wanted) in rows {
        let (_, warnings) = good(text);
        let found: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|warning| warning.contains(wanted)), "{label}: {wanted:?} is not in {found:?}");
    }
    let quiet = format!(
        "{BASE}[policy]\ndefault=\"allow\"\n[upstreams.y]\ncommand=[\"npx\",\"-y\",\"@a/foo@1.0.0\"]\nenv={{NODE_ENV=\"x\"}}\n[upstreams.z]\ncommand=[\"docker\",\"run\",\"-i\",\"--rm\",\"--init\",\"mcp/time:1\"]\n"
    );
    assert_eq!(good(&quiet).1, [], "nothing to warn of");
}
