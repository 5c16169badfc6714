//! The command `headend status [NAME]`: prints the daemon's state, or everything about one
//! upstream.

use super::exit::NO;
use crate::cli::reach::daemon;
use crate::cli::reach::daemon::DaemonConnection;
use crate::cli::reach::source;
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print, print_json};
use crate::cli::words::screen::{Colour, Column, Screen};
use crate::cluster::membership::describe_other_keys;
use crate::gateway::condition::UPSTREAMS;
use crate::operator::request::{NoParams, Request};
use crate::operator::status::{AddressesView, ConnectedClientView, OpenApprovalsView, ReplicaView, StatusView};
use crate::operator::upstreams::{UnreadView, UpstreamFacts, UpstreamView};
use crate::policy::Caller;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign;

/// Columns of the table of upstreams, each with the name of its fact.
const COLUMNS: [(&str, Column); 12] = [
    ("name", Column { head: "UPSTREAM", rank: 0 }),
    ("state", Column { head: "STATE", rank: 0 }),
    ("since", Column { head: "SINCE", rank: 1 }),
    ("next-try", Column { head: "NEXT TRY", rank: 2 }),
    ("revision", Column { head: "REVISION", rank: 6 }),
    ("tools", Column { head: "TOOLS", rank: 1 }),
    ("prompts", Column { head: "PROMPTS", rank: 7 }),
    ("resources", Column { head: "RESOURCES", rank: 8 }),
    ("withheld", Column { head: "WITHHELD", rank: 3 }),
    ("in-flight", Column { head: "IN FLIGHT", rank: 4 }),
    ("restarts", Column { head: "RESTARTS", rank: 5 }),
    ("last-error", Column { head: "LAST ERROR", rank: 9 }),
];

pub(super) fn run(common: &CommonOptions, name: Option<&str>, json: bool) -> Result<u8, CommandFailure> {
    let mut daemon =
        daemon::connect(common, "admin", None).map_err(|failure| add_other_gateways(common, &failure.into()))?;
    let status: StatusView = daemon.ask(&Request::Status(NoParams {}))?;
    let screen = Screen::of_stdout();
    if let Some(name) = name {
        let found = status.upstreams.iter().find(|upstream| upstream.name == name);
        let unknown = || {
            let meant = suggest_names(name, names(&status));
            CommandFailure::new(NO, format!("there is no upstream `{name}`; `headend status` lists them{meant}"))
        };
        let found = found.ok_or_else(unknown)?;
        return if json { print_json(found) } else { print(&format_upstream(screen, found)) };
    }
    if json {
        return print_json(&status);
    }
    print(&all(screen, &status))
}

/// Extends the failure to find a daemon by the gateways that run without one.
fn add_other_gateways(common: &CommonOptions, failure: &CommandFailure) -> CommandFailure {
    let store = source::open_existing_store(common).ok().flatten();
    let others = store.map(|store| store.other_gateways()).unwrap_or_default();
    let lines: String =
        others.iter().map(|other| format!("\n{other} runs without one, with upstreams of its own")).collect();
    CommandFailure::new(failure.code, format!("{}{lines}", failure.text))
}

/// Formats the state of the gateway and all upstreams.
fn all(screen: Screen, status: &StatusView) -> String {
    let mut out = screen.paragraph(&format!(
        "headend {}, up {}, {}, {}, {}",
        foreign::line(&status.version),
        time(status.uptime_seconds),
        count(status.in_flight, "call") + " in flight",
        count(status.sessions, "legacy HTTP session"),
        count(status.withheld_items, "item") + " withheld",
    ));
    let config = status.config.as_deref().unwrap_or("none, the built-in default or the command line");
    out.push_str(&screen.paragraph(&format!("configuration: {config}")));
    let clients = Some(clients(status));
    let approvals = status.approvals.as_ref().and_then(approvals);
    for line in [addresses(&status.addresses), clients, approvals].into_iter().flatten() {
        out.push_str(&screen.paragraph(&line));
    }
    let command = status.host_command.as_ref().filter(|command| *command != "headend stdio");
    let ways: Vec<_> = status.addresses.public.iter().chain(command).map(|way| foreign::line(way)).collect();
    if !ways.is_empty() {
        out.push_str(&screen.paragraph(&format!("hosts: {}", ways.join(", on this machine "))));
    }
    for other in &status.other_gateways {
        let text = format!("another gateway: {other} runs upstreams of its own on this state directory");
        out.push_str(&screen.paragraph(&text));
    }
    for replica in &status.replicas {
        out.push_str(&screen.paragraph(&format_replica(replica)));
    }
    if status.replicas_with_another_key > 0 {
        out.push_str(&screen.paragraph(&format!("warning: {}", describe_other_keys(status.replicas_with_another_key))));
    }
    out.push('\n');
    for condition in &status.degraded {
        let word = if condition.stops_calls { "no call works" } else { "degraded" };
        let [reason, text] = [&*condition.reason, &condition.text].map(foreign::line);
        // The text on upstreams stands for itself.
        let line = match (reason == UPSTREAMS, condition.stops_calls) {
            (true, false) => text.into_owned(),
            (true, true) => format!("{word}: {text}"),
            (false, _) => format!("{word}: {reason}: {text}"),
        };
        out.push_str(&screen.paragraph(&line));
    }
    if let Some(restored) = &status.restored {
        out.push_str(&screen.paragraph(&foreign::line(&restored.text)));
        out.push('\n');
    }
    out.push_str(if status.degraded.is_empty() { "" } else { "\n" });
    if status.upstreams.is_empty() {
        out.push_str("no upstream is configured; write a table [upstreams.NAME], or run `headend import`\n");
        return out;
    }
    out.push_str(&table(screen, &status.upstreams));
    out
}

/// Formats a replica of the cluster in one line, with a warning if it differs from the one that
/// answers.
fn format_replica(replica: &ReplicaView) -> String {
    let ReplicaView { name, version, uptime_seconds, heartbeat_seconds, in_flight, own, silent, differs } = replica;
    if *silent {
        return format!("replica {}: no heartbeat for {}", foreign::line(name), time(*heartbeat_seconds));
    }
    let mut line = format!(
        "replica {}{}: headend {}, up {}, heartbeat {heartbeat_seconds} s ago, {} in flight",
        foreign::line(name),
        if *own { " (this one)" } else { "" },
        foreign::line(version),
        time(*uptime_seconds),
        count(usize::try_from(*in_flight).unwrap_or(usize::MAX), "call"),
    );
    if !differs.is_empty() {
        let same = differs.iter().any(|what| what == "name");
        let others: Vec<_> = differs.iter().filter(|what| *what != "name").map(|what| foreign::line(what)).collect();
        if !others.is_empty() {
            line.push_str(&format!("; warning: {} not as here", others.join(", ")));
        }
        line.push_str(if same { "; warning: it has the name of another replica" } else { "" });
    }
    line
}

/// Formats the upstreams as a table, with notes on those that need attention.
fn table(screen: Screen, upstreams: &[UpstreamView]) -> String {
    let columns = COLUMNS.map(|(_, column)| column);
    let row = |upstream: &UpstreamView| cells(upstream).map(|cell| cell.unwrap_or_else(|| "-".to_owned())).to_vec();
    let rows: Vec<Vec<String>> = upstreams.iter().map(row).collect();
    let has_errors = screen.fitting(&columns, &rows).contains(&(COLUMNS.len() - 1));
    let mut notes = String::new();
    for upstream in upstreams {
        let error = upstream.facts.as_ref().and_then(|facts| facts.health.last_error.as_deref());
        let error = error.filter(|_| upstream.state.has_failed() && !has_errors);
        let parts: Vec<&str> = error.into_iter().chain(upstream.advice.as_deref()).collect();
        if !parts.is_empty() {
            notes.push_str(&screen.paragraph(&format!("{}: {}", foreign::line(&upstream.name), parts.join("; "))));
        }
    }
    notes.extend(upstreams.iter().filter_map(place).map(|line| screen.paragraph(&line)));
    notes.extend(upstreams.iter().filter_map(left_out).map(|line| screen.paragraph(&line)));
    notes.extend(upstreams.iter().flat_map(unread).map(|line| screen.paragraph(&line)));
    let table = screen.table(&columns, &rows, coloured, |_| None);
    if notes.is_empty() { table } else { format!("{table}\n{notes}") }
}

/// Names the replica that runs the program of an upstream for all of them.
fn place(upstream: &UpstreamView) -> Option<String> {
    let replica = upstream.facts.as_ref()?.replica.as_deref()?;
    Some(format!("{}: runs at replica {}", foreign::line(&upstream.name), foreign::line(replica)))
}

/// Describes the addresses of the daemon.
fn addresses(AddressesView { mcp, console, metrics, socket, .. }: &AddressesView) -> Option<String> {
    let others = [("console", console), ("metrics", metrics), ("socket", socket)];
    let others = others.map(|(name, address)| Some(format!("{name} {}", address.as_ref()?)));
    let parts: Vec<String> = mcp.iter().flatten().cloned().chain(others.into_iter().flatten()).collect();
    (!parts.is_empty()).then(|| format!("listening: {}", parts.join(", ")))
}

/// Lists the connected clients by the names that they gave themselves, with the number of
/// connections and the caller of each.
fn clients(status: &StatusView) -> String {
    let shown = |client: &ConnectedClientView| {
        let name = if client.name.is_empty() { "without a name" } else { &client.name };
        let caller = Some(&client.caller).filter(|caller| *caller != Caller::local().name());
        let caller = caller.map(|caller| format!(" of {caller}")).unwrap_or_default();
        match client.connections {
            1 => format!("{name}{caller}"),
            many => format!("{name}{caller} ({many} times)"),
        }
    };
    let mut parts: Vec<String> = status.clients.iter().map(shown).collect();
    parts.extend(status.clients_not_shown.map(|more| format!("{more} more")));
    format!("clients: {}", if parts.is_empty() { "none is connected".to_owned() } else { parts.join(", ") })
}

/// Describes the open approvals; `None` if there are none.
fn approvals(OpenApprovalsView { open, oldest_seconds }: &OpenApprovalsView) -> Option<String> {
    let age = time(oldest_seconds.filter(|_| *open > 0)?);
    let oldest = if *open == 1 { format!("for {age}") } else { format!("the oldest for {age}") };
    Some(format!("{} open, {oldest}: `headend approvals`", count(*open, "approval")))
}

/// Adds a suggestion to the daemon's error if no upstream has the name.
pub(super) fn suggest_upstream(daemon: &mut DaemonConnection, name: &str, failure: CommandFailure) -> CommandFailure {
    let Ok(status) = daemon.ask::<StatusView>(&Request::Status(NoParams {})) else { return failure };
    if names(&status).any(|known| known == name) {
        return failure;
    }
    CommandFailure { text: format!("{}{}", failure.text, suggest_names(name, names(&status))), ..failure }
}

fn names(status: &StatusView) -> impl Iterator<Item = String> {
    status.upstreams.iter().map(|upstream| upstream.name.clone())
}

/// Returns the colour of a cell; only states have one.
fn coloured(head: &str, cell: &str) -> Option<Colour> {
    let is_state = head == "STATE";
    is_state.then(|| match cell.parse() {
        Ok(UpstreamState::Ready) => Colour::Good,
        Ok(UpstreamState::Starting) => Colour::Busy,
        Ok(state) if !state.has_failed() => Colour::Pale,
        _ => Colour::Bad,
    })
}

/// Returns the cells of an upstream's row; `None` for facts that it lacks.
fn cells(upstream: &UpstreamView) -> [Option<String>; COLUMNS.len()] {
    let line = |text: &String| foreign::line(text).into_owned();
    let facts = upstream.facts.as_deref();
    let new = facts.filter(|facts| facts.new_tools > 0).map(|facts| format!(" ({} new)", facts.new_tools));
    [
        Some(line(&upstream.name)),
        Some(upstream.state.to_string()),
        facts.map(|facts| time(facts.health.since_seconds)),
        facts.and_then(|facts| facts.health.next_try_seconds).map(time),
        facts.and_then(|facts| facts.revision.as_ref()).map(line),
        facts.map(|facts| items(facts, "tools", facts.tools, &new.unwrap_or_default())),
        facts.map(|facts| items(facts, "prompts", facts.prompts, "")),
        facts.map(|facts| items(facts, "resources", facts.resources, "")),
        facts.map(|facts| facts.withheld.to_string()),
        facts.map(|facts| facts.in_flight.to_string()),
        facts.map(|facts| facts.restarts.to_string()),
        facts.and_then(|facts| facts.health.last_error.as_ref()).map(line),
    ]
}

/// Describes the number of items of a list, whether the list could not be read, and how many items
/// are not offered since they exceed `max-inventory`. `new` is inserted as it is.
fn items(facts: &UpstreamFacts, list: &str, number: usize, new: &str) -> String {
    let unread = if facts.unread_lists.contains_key(list) { " (not read)" } else { "" };
    let shown = format!("{number}{unread}{new}");
    let Some(left) = facts.not_offered.get(list) else { return shown };
    let least = if left.or_more { "at least " } else { "" };
    format!("{shown} ({least}{} not offered)", left.items)
}

/// Returns a line about instructions that clients do not get whole; `None` if there are none.
fn left_out(upstream: &UpstreamView) -> Option<String> {
    let passed = upstream.facts.as_ref()?.instructions.as_ref().filter(|passed| passed.passed != "whole")?;
    Some(format!("{}: its instructions: {}", foreign::line(&upstream.name), passed.describe()))
}

/// Returns a line for each list that could not be read.
fn unread(upstream: &UpstreamView) -> Vec<String> {
    let server = foreign::line(&upstream.name);
    let line = |(name, list): (&str, &UnreadView)| {
        let (why, attempts, next) = (foreign::line(&list.why), list.attempts, time(list.next_try_seconds));
        format!(
            "{server}: its {name} could not be read ({why}; attempts: {attempts}); clients see what was known, next try in {next}"
        )
    };
    let lists = ["tools", "prompts", "resources", "resource-templates"].into_iter();
    let facts = upstream.facts.as_ref();
    lists.filter_map(|name| Some((name, facts?.unread_lists.get(name)?))).map(line).collect()
}

pub(super) fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats everything about one upstream: a line for each fact, then the last output of its
/// program.
fn format_upstream(screen: Screen, upstream: &UpstreamView) -> String {
    let line = |text: &String| foreign::line(text).into_owned();
    let advice = ("advice", upstream.advice.as_ref().map(line));
    let known = COLUMNS.iter().map(|(name, _)| *name).zip(cells(upstream)).chain([advice]);
    let Some(facts) = &upstream.facts else { return screen.pairs(&pairs(known)) };
    let turns = facts.one_at_a_time.join(", ");
    let templates = items(facts, "resource-templates", facts.resource_templates, "");
    let mut pairs = pairs(known.chain([
        ("repairs", facts.repairs.map(|repairs| repairs.to_string())),
        ("start", Some(line(&facts.start))),
        ("replica", facts.replica.as_ref().map(line)),
        ("incarnation", Some(facts.incarnation.to_string())),
        ("sessions", Some(facts.sessions.to_string())),
        ("one-at-a-time", Some(line(&turns)).filter(|names| !names.is_empty())),
        ("input", facts.input.as_ref().map(line)),
        ("instructions", facts.instructions.as_ref().map(|passed| passed.describe())),
        ("resource-templates", Some(templates)),
        ("program", facts.program.as_ref().map(line)),
    ]));
    for (at, folder) in facts.path.iter().enumerate() {
        pairs.push((if at == 0 { "PATH" } else { "" }.to_owned(), line(folder)));
    }
    let mut out = screen.pairs(&pairs);
    let not_shown = facts.invalid_definitions_not_shown;
    let more = if not_shown > 0 { format!("  and {not_shown} more\n") } else { String::new() };
    let definitions = ("definitions", &facts.invalid_definitions, more);
    for (what, lines, more) in [definitions, ("messages", &facts.message_flaws, String::new())] {
        if !lines.is_empty() {
            out.push_str(&format!("\n{what} that are not as the protocol wants them:\n"));
            lines.iter().for_each(|line| out.push_str(&screen.indented("  ", line)));
            out.push_str(&more);
        }
    }
    unread(upstream).iter().for_each(|line| out.push_str(&format!("\n{}", screen.paragraph(line))));
    out.push_str(&withheld(screen, facts));
    out.push_str(&new(facts));
    let stderr = &facts.health.stderr;
    if !stderr.is_empty() {
        out.push_str("\nlast lines of stderr:\n");
        stderr.iter().for_each(|line| out.push_str(&format!("  {}\n", foreign::line(line))));
        out.push_str(&format!("`headend logs {}` has more\n", foreign::line(&upstream.name)));
    }
    out
}

/// Returns the facts that have a value, with their names.
fn pairs<'n>(facts: impl Iterator<Item = (&'n str, Option<String>)>) -> Vec<(String, String)> {
    facts.filter_map(|(name, fact)| Some((name.to_owned(), fact?))).collect()
}

/// Returns a line for each withheld item of an upstream; empty if there are none.
fn withheld(screen: Screen, facts: &UpstreamFacts) -> String {
    let named = &facts.withheld_list;
    if named.is_empty() {
        return String::new();
    }
    let mut out = "\nwithheld:\n".to_owned();
    for item in named {
        let [name, why] = [&item.name, &item.why].map(|text| foreign::line(text));
        out.push_str(&screen.indented("  ", &format!("{name} ({}): {why}", item.kind.into_str())));
    }
    match facts.withheld.saturating_sub(named.len()) {
        0 => out,
        more => format!("{out}  and {more} more; `headend tools --all` and `headend pins --waiting` list them\n"),
    }
}

/// Lists the new tools of an upstream and how to confirm them; empty if there are none.
fn new(facts: &UpstreamFacts) -> String {
    let named = &facts.new_tools_list;
    if named.is_empty() {
        return String::new();
    }
    let mut out =
        "\nnew tools (no rule over claims allows their calls before `headend pins approve NAME`):\n".to_owned();
    named.iter().for_each(|name| out.push_str(&format!("  {}\n", foreign::line(name))));
    match facts.new_tools.saturating_sub(named.len()) {
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
