//! `headend status [NAME]`.

use super::daemon;
use super::exit::NO;
use super::options::Common;
use super::output::{Failure, print, table};
use crate::wire::foreign;
use crate::wire::raw::RawObject;

/// Members of an upstream's object and the heads of their columns.
const COLUMNS: [(&str, &str); 12] = [
    ("name", "UPSTREAM"),
    ("state", "STATE"),
    ("since-seconds", "SINCE"),
    ("next-try-seconds", "NEXT TRY"),
    ("revision", "REVISION"),
    ("tools", "TOOLS"),
    ("prompts", "PROMPTS"),
    ("resources", "RESOURCES"),
    ("withheld", "WITHHELD"),
    ("in-flight", "IN FLIGHT"),
    ("restarts", "RESTARTS"),
    ("last-error", "LAST ERROR"),
];

pub(super) fn run(common: &Common, name: Option<&str>, json: bool) -> Result<u8, Failure> {
    let status = daemon::connect(common, "admin", None)?.ask("status", None)?;
    let upstreams = status.list("upstreams").unwrap_or_default();
    let upstreams: Vec<RawObject> = upstreams.iter().filter_map(|raw| RawObject::parse(raw).ok()).collect();
    if let Some(name) = name {
        let found = upstreams.iter().find(|upstream| upstream.string("name").as_deref() == Some(name));
        let unknown = || Failure::new(NO, format!("there is no upstream `{name}`; `headend status` lists them"));
        let found = found.ok_or_else(unknown)?;
        return print(&if json { format!("{}\n", found.encode().text()) } else { about(found) });
    }
    if json {
        return print(&format!("{}\n", status.encode().text()));
    }
    let mut rows: Vec<Vec<String>> = vec![COLUMNS.map(|(_, head)| head.to_owned()).to_vec()];
    rows.extend(upstreams.iter().map(|upstream| COLUMNS.map(|(name, _)| cell(upstream, name)).to_vec()));
    let head = format!(
        "headend {}, up {} s, configuration {}, {} legacy HTTP sessions, {} calls in flight, {} items withheld\n\n",
        field(&status, "version"),
        field(&status, "uptime-seconds"),
        field(&status, "config"),
        field(&status, "sessions"),
        field(&status, "in-flight"),
        field(&status, "withheld-items"),
    );
    let advised = upstreams.iter().filter(|upstream| upstream.get("advice").is_some());
    let advice: String =
        advised.map(|upstream| format!("\n{}: {}", field(upstream, "name"), field(upstream, "advice"))).collect();
    let unread: String = upstreams.iter().flat_map(unread).map(|line| format!("\n{line}")).collect();
    let advice = if advice.is_empty() && unread.is_empty() { advice } else { format!("{advice}{unread}\n") };
    let degraded = status.list("degraded").unwrap_or_default();
    let degraded: String = degraded
        .iter()
        .filter_map(|raw| RawObject::parse(raw).ok())
        .map(|condition| {
            let stops_calls = condition.get("stops-calls").is_some_and(|raw| raw.text() == "true");
            let word = if stops_calls { "no call works" } else { "degraded" };
            format!("{word}: {}: {}\n", field(&condition, "reason"), field(&condition, "text"))
        })
        .collect();
    let gap = if degraded.is_empty() { "" } else { "\n" };
    print(&format!("{head}{degraded}{gap}{}{advice}", table(&rows)))
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

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Everything about one upstream: a line for each member, then what its program said last.
fn about(upstream: &RawObject) -> String {
    let shown = |name: &&str| upstream.get(name).is_some();
    let names =
        ["advice", "repairs", "start", "incarnation", "sessions", "one-at-a-time", "input", "resource-templates"];
    let names = COLUMNS.iter().map(|(name, _)| *name).chain(names).filter(shown);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in names {
        rows.push(vec![name.trim_end_matches("-seconds").to_owned(), cell(upstream, name)]);
    }
    let mut out = table(&rows);
    let invalid =
        upstream.get("invalid-definitions").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    if !invalid.is_empty() {
        out.push_str("\ndefinitions that are not as the protocol wants them:\n");
        invalid.iter().for_each(|line| out.push_str(&format!("  {}\n", foreign::line(line))));
        if upstream.get("invalid-definitions-not-shown").is_some() {
            out.push_str(&format!("  and {} more\n", field(upstream, "invalid-definitions-not-shown")));
        }
    }
    unread(upstream).iter().for_each(|line| out.push_str(&format!("\n{line}\n")));
    out.push_str(&withheld(upstream));
    out.push_str(&new(upstream));
    let stderr = upstream.get("stderr").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
    if !stderr.is_empty() {
        out.push_str("\nlast lines of stderr:\n");
        stderr.iter().for_each(|line| out.push_str(&format!("  {}\n", foreign::line(line))));
    }
    out
}

/// A line for each withheld item of an upstream that the daemon names, and nothing where there is none.
fn withheld(upstream: &RawObject) -> String {
    let named = upstream.list("withheld-list").unwrap_or_default();
    let named: Vec<RawObject> = named.iter().filter_map(|raw| RawObject::parse(raw).ok()).collect();
    if named.is_empty() {
        return String::new();
    }
    let mut out = "\nwithheld:\n".to_owned();
    for item in &named {
        let [name, kind, why] = ["name", "kind", "why"].map(|member| field(item, member));
        out.push_str(&format!("  {name} ({kind}): {why}\n"));
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
