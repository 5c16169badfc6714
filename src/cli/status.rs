//! `headend status [NAME]`.

use super::daemon::{self, Daemon};
use super::exit::NO;
use super::meant::meant;
use super::options::Common;
use super::output::{Failure, count, print};
use super::screen::{Colour, Column, Screen};
use super::source;
use crate::operator::request::{NoParams, Request};
use crate::policy::LOCAL;
use crate::wire::foreign;
use crate::wire::raw::RawObject;

/// Members of an upstream's object and their columns.
const COLUMNS: [(&str, Column); 12] = [
    ("name", Column { head: "UPSTREAM", rank: 0 }),
    ("state", Column { head: "STATE", rank: 0 }),
    ("since-seconds", Column { head: "SINCE", rank: 1 }),
    ("next-try-seconds", Column { head: "NEXT TRY", rank: 2 }),
    ("revision", Column { head: "REVISION", rank: 6 }),
    ("tools", Column { head: "TOOLS", rank: 1 }),
    ("prompts", Column { head: "PROMPTS", rank: 7 }),
    ("resources", Column { head: "RESOURCES", rank: 8 }),
    ("withheld", Column { head: "WITHHELD", rank: 3 }),
    ("in-flight", Column { head: "IN FLIGHT", rank: 4 }),
    ("restarts", Column { head: "RESTARTS", rank: 5 }),
    ("last-error", Column { head: "LAST ERROR", rank: 9 }),
];
/// States of an upstream that needs nothing of an operator.
const WORKS: [&str; 5] = ["ready", "idle", "starting", "stopped", "disabled"];

pub(super) fn run(common: &Common, name: Option<&str>, json: bool) -> Result<u8, Failure> {
    let mut daemon = daemon::connect(common, "admin", None).map_err(|failure| beside(common, &failure.into()))?;
    let status = daemon.ask_object(&Request::Status(NoParams {}))?;
    let upstreams = status.objects("upstreams");
    let screen = Screen::of_stdout();
    if let Some(name) = name {
        let found = upstreams.iter().find(|upstream| upstream.string("name").as_deref() == Some(name));
        let unknown = || {
            let names = upstreams.iter().filter_map(|upstream| upstream.string("name"));
            let meant = meant(name, names);
            Failure::new(NO, format!("there is no upstream `{name}`; `headend status` lists them{meant}"))
        };
        let found = found.ok_or_else(unknown)?;
        return print(&if json { format!("{}\n", found.encode().text()) } else { about(screen, found) });
    }
    if json {
        return print(&format!("{}\n", status.encode().text()));
    }
    print(&all(screen, &status, &upstreams))
}

/// The failure to find a daemon, with the gateways that run without one.
fn beside(common: &Common, failure: &Failure) -> Failure {
    let store = source::existing_store(common).ok().flatten();
    let others = store.map(|store| store.other_gateways()).unwrap_or_default();
    let lines: String =
        others.iter().map(|other| format!("\n{other} runs without one, with upstreams of its own")).collect();
    Failure::new(failure.code, format!("{}{lines}", failure.text))
}

/// The gateway and all upstreams.
fn all(screen: Screen, status: &RawObject, upstreams: &[RawObject]) -> String {
    let number = |name: &str| status.get(name).and_then(|count| count.parse::<usize>().ok()).unwrap_or_default();
    let uptime = status.get("uptime-seconds").and_then(|raw| raw.parse().ok()).map_or_else(|| "-".to_owned(), time);
    let mut out = screen.paragraph(&format!(
        "headend {}, up {uptime}, {}, {}, {}",
        field(status, "version"),
        count(number("in-flight"), "call") + " in flight",
        count(number("sessions"), "legacy HTTP session"),
        count(number("withheld-items"), "item") + " withheld",
    ));
    let config = status.string("config").unwrap_or_else(|| "none, the built-in default or the command line".to_owned());
    out.push_str(&screen.paragraph(&format!("configuration: {config}")));
    for line in [addresses(status), clients(status), approvals(status)].into_iter().flatten() {
        out.push_str(&screen.paragraph(&line));
    }
    if let Some(command) = status.string("host-command").filter(|command| command != "headend stdio") {
        out.push_str(&screen.paragraph(&format!("hosts: {}", foreign::line(&command))));
    }
    for other in status.objects("other-gateways") {
        let pid = field(&other, "pid");
        let host = other.string("host").map(|host| format!(" for {}", foreign::line(&host))).unwrap_or_default();
        let text = format!(
            "another gateway: `headend stdio`{host} (pid {pid}) runs upstreams of its own on this state directory"
        );
        out.push_str(&screen.paragraph(&text));
    }
    out.push('\n');
    let degraded = status.objects("degraded");
    for condition in &degraded {
        let word = if condition.is_true("stops-calls") { "no call works" } else { "degraded" };
        out.push_str(&screen.paragraph(&format!(
            "{word}: {}: {}",
            field(condition, "reason"),
            field(condition, "text")
        )));
    }
    if let Some(restored) = status.object("restored") {
        out.push_str(&screen.paragraph(&field(&restored, "text")));
        out.push('\n');
    }
    out.push_str(if degraded.is_empty() { "" } else { "\n" });
    if upstreams.is_empty() {
        out.push_str("no upstream is configured; write a table [upstreams.NAME], or run `headend import`\n");
        return out;
    }
    let columns = COLUMNS.map(|(_, column)| column);
    let rows: Vec<Vec<String>> =
        upstreams.iter().map(|upstream| COLUMNS.map(|(name, _)| cell(upstream, name)).to_vec()).collect();
    let has_errors = screen.fitting(&columns, &rows).contains(&(COLUMNS.len() - 1));
    out.push_str(&screen.table(&columns, &rows, coloured, |_| None));
    let mut notes = String::new();
    for upstream in upstreams {
        let mut parts: Vec<String> = Vec::new();
        let is_bad = !WORKS.contains(&field(upstream, "state").as_str());
        parts.extend(upstream.string("last-error").filter(|_| is_bad && !has_errors));
        parts.extend(upstream.string("advice"));
        if !parts.is_empty() {
            notes.push_str(&screen.paragraph(&format!("{}: {}", field(upstream, "name"), parts.join("; "))));
        }
    }
    notes.extend(upstreams.iter().flat_map(unread).map(|line| screen.paragraph(&line)));
    if !notes.is_empty() {
        out.push_str(&format!("\n{notes}"));
    }
    out
}

/// Where the daemon can be reached.
fn addresses(status: &RawObject) -> Option<String> {
    let addresses = status.object("addresses")?;
    let mcp = addresses.get("mcp").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    let others = ["console", "metrics", "socket"].map(|name| Some(format!("{name} {}", addresses.string(name)?)));
    let parts: Vec<String> = mcp.into_iter().chain(others.into_iter().flatten()).collect();
    (!parts.is_empty()).then(|| format!("listening: {}", parts.join(", ")))
}

/// The connected clients by the names that they gave themselves, each with the number of its
/// connections and its caller.
fn clients(status: &RawObject) -> Option<String> {
    status.list("clients")?;
    let shown = |client: &RawObject| {
        let name = client.string("name").filter(|name| !name.is_empty()).unwrap_or_else(|| "without a name".to_owned());
        let caller = client.string("caller").filter(|caller| caller != LOCAL);
        let caller = caller.map(|caller| format!(" of {caller}")).unwrap_or_default();
        match field(client, "connections").as_str() {
            "1" => format!("{name}{caller}"),
            many => format!("{name}{caller} ({many} times)"),
        }
    };
    let mut parts: Vec<String> = status.objects("clients").iter().map(shown).collect();
    parts.extend(status.get("clients-not-shown").map(|more| format!("{} more", more.text())));
    Some(format!("clients: {}", if parts.is_empty() { "none is connected".to_owned() } else { parts.join(", ") }))
}

/// The open approvals, if there are any.
fn approvals(status: &RawObject) -> Option<String> {
    let approvals = status.object("approvals")?;
    let open = approvals.get("open").and_then(|open| open.parse::<usize>().ok()).filter(|open| *open > 0)?;
    let age = approvals.get("oldest-seconds").map(|_| field(&approvals, "oldest-seconds")).unwrap_or_default();
    let oldest = if open == 1 { format!("for {age}") } else { format!("the oldest for {age}") };
    Some(format!("{} open, {oldest}: `headend approvals`", count(open, "approval")))
}

/// The daemon's error, with the upstreams that may be meant where there is none of that name.
pub(super) fn unknown(daemon: &mut Daemon, name: &str, failure: Failure) -> Failure {
    let Ok(status) = daemon.ask_object(&Request::Status(NoParams {})) else { return failure };
    let names: Vec<String> = status.objects("upstreams").iter().filter_map(|known| known.string("name")).collect();
    if names.iter().any(|known| known == name) {
        return failure;
    }
    Failure { text: format!("{}{}", failure.text, meant(name, names)), ..failure }
}

/// The colour of a cell: only states have one.
fn coloured(head: &str, cell: &str) -> Option<Colour> {
    match (head, cell) {
        ("STATE", "ready") => Some(Colour::Good),
        ("STATE", "starting") => Some(Colour::Busy),
        ("STATE", "idle" | "stopped" | "disabled") => Some(Colour::Pale),
        ("STATE", _) => Some(Colour::Bad),
        _ => None,
    }
}

/// A member of an upstream, with how many tools are new, how many items are beyond its `max-inventory`, or that they are those of an
/// earlier reading.
fn cell(upstream: &RawObject, name: &str) -> String {
    let is_unread = upstream.object("unread-lists").is_some_and(|lists| lists.get(name).is_some());
    let shown = format!("{}{}", field(upstream, name), if is_unread { " (not read)" } else { "" });
    let new = upstream.get("new-tools").filter(|_| name == "tools").map(|count| format!(" ({} new)", count.text()));
    let shown = shown + &new.unwrap_or_default();
    let Some(left) = upstream.object("not-offered").and_then(|left| left.object(name)) else { return shown };
    let least = if left.is_true("or-more") { "at least " } else { "" };
    format!("{shown} ({least}{} not offered)", field(&left, "items"))
}

/// A line about each list that could not be read.
fn unread(upstream: &RawObject) -> Vec<String> {
    let lists = upstream.object("unread-lists").unwrap_or_default();
    let line = |name: &str| {
        let list = lists.object(name)?;
        let (why, attempts, next) = (field(&list, "why"), field(&list, "attempts"), field(&list, "next-try-seconds"));
        let server = field(upstream, "name");
        Some(format!(
            "{server}: its {name} could not be read ({why}; attempts: {attempts}); clients see what was known, next try in {next}"
        ))
    };
    ["tools", "prompts", "resources", "resource-templates"].into_iter().filter_map(line).collect()
}

/// A member as one line; times in the unit that fits.
fn field(object: &RawObject, name: &str) -> String {
    let Some(raw) = object.get(name) else { return "-".to_owned() };
    let text = object.string(name).unwrap_or_else(|| raw.text().into_owned());
    match text.parse() {
        Ok(seconds) if name.ends_with("-seconds") && name != "uptime-seconds" => time(seconds),
        _ => foreign::line(&text).into_owned(),
    }
}

pub(super) fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Everything about one upstream: a line for each member, then what its program said last.
fn about(screen: Screen, upstream: &RawObject) -> String {
    let names = [
        "advice",
        "repairs",
        "start",
        "incarnation",
        "sessions",
        "one-at-a-time",
        "input",
        "resource-templates",
        "program",
    ];
    let names = COLUMNS.iter().map(|(name, _)| *name).chain(names).filter(|name| upstream.get(name).is_some());
    let mut pairs: Vec<(String, String)> =
        names.map(|name| (name.trim_end_matches("-seconds").to_owned(), cell(upstream, name))).collect();
    let path = upstream.get("path").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    for (at, folder) in path.into_iter().enumerate() {
        pairs.push((if at == 0 { "PATH" } else { "" }.to_owned(), foreign::line(&folder).into_owned()));
    }
    let mut out = screen.pairs(&pairs);
    let invalid =
        upstream.get("invalid-definitions").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    if !invalid.is_empty() {
        out.push_str("\ndefinitions that are not as the protocol wants them:\n");
        invalid.iter().for_each(|line| out.push_str(&screen.indented("  ", line)));
        if upstream.get("invalid-definitions-not-shown").is_some() {
            out.push_str(&format!("  and {} more\n", field(upstream, "invalid-definitions-not-shown")));
        }
    }
    let flaws = upstream.get("message-flaws").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    if !flaws.is_empty() {
        out.push_str("\nmessages that are not as the protocol wants them:\n");
        flaws.iter().for_each(|line| out.push_str(&screen.indented("  ", line)));
    }
    unread(upstream).iter().for_each(|line| out.push_str(&format!("\n{}", screen.paragraph(line))));
    out.push_str(&withheld(screen, upstream));
    out.push_str(&new(upstream));
    let stderr = upstream.get("stderr").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    if !stderr.is_empty() {
        out.push_str("\nlast lines of stderr:\n");
        stderr.iter().for_each(|line| out.push_str(&format!("  {}\n", foreign::line(line))));
        out.push_str(&format!("`headend logs {}` has more\n", field(upstream, "name")));
    }
    out
}

/// A line for each withheld item of an upstream that the daemon names, and nothing where there is none.
fn withheld(screen: Screen, upstream: &RawObject) -> String {
    let named = upstream.objects("withheld-list");
    if named.is_empty() {
        return String::new();
    }
    let mut out = "\nwithheld:\n".to_owned();
    for item in &named {
        let [name, kind, why] = ["name", "kind", "why"].map(|member| field(item, member));
        out.push_str(&screen.indented("  ", &format!("{name} ({kind}): {why}")));
    }
    let all = upstream.get("withheld").and_then(|count| count.parse::<usize>().ok()).unwrap_or_default();
    match all.saturating_sub(named.len()) {
        0 => out,
        more => format!("{out}  and {more} more; `headend tools --all` and `headend pins --waiting` list them\n"),
    }
}

/// The new tools of an upstream that the daemon names, and how they are confirmed; nothing where there is none.
fn new(upstream: &RawObject) -> String {
    let named = upstream.get("new-tools-list").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    if named.is_empty() {
        return String::new();
    }
    let mut out =
        "\nnew tools (no rule over claims allows their calls before `headend pins approve NAME`):\n".to_owned();
    named.iter().for_each(|name| out.push_str(&format!("  {}\n", foreign::line(name))));
    let all = upstream.get("new-tools").and_then(|count| count.parse::<usize>().ok()).unwrap_or_default();
    match all.saturating_sub(named.len()) {
        0 => out,
        more => format!("{out}  and {more} more; `headend tools` lists them\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        let shown = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(time);
        assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    }
}
