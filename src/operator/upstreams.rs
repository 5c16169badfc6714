//! The health of one upstream in the answer to `status`, what of its lists is not offered or withheld, and which could not be read.

use std::time::Duration;

use crate::base::clock;
use crate::catalog::merge::{Dropped, Entry};
use crate::config::Target;
use crate::gateway::snapshot::Snapshot;
use crate::mcp::method::List;
use crate::mcp::version::Era;
use crate::store::pins::{PinKind, program_of, searched};
use crate::upstream::handle::Handle;
use crate::upstream::keeper::LoginView;
use crate::wire::raw::{RawJson, RawObject};

/// Withheld items and new tools that are named; all are counted.
const NAMED: usize = 20;

/// Adds how many items are withheld, and which and why.
pub(crate) fn add_withheld(out: &mut RawObject, snapshot: &Snapshot, handle: &Handle) {
    let withheld: Vec<&Dropped> = snapshot.dropped.iter().filter(|dropped| dropped.upstream == handle.name).collect();
    out.set("withheld", RawJson::number(withheld.len()));
    let named = withheld.iter().take(NAMED).map(|dropped| {
        let kind = dropped.list.map_or(PinKind::Launch, PinKind::of);
        let name = dropped.canonical();
        RawObject::of_strings(&[("name", &name), ("kind", kind.into_str()), ("why", &dropped.why)]).encode()
    });
    if !withheld.is_empty() {
        out.set("withheld-list", RawJson::list(named));
    }
}

/// Adds how many tools are new, and which: they appeared after the first inventory of the launch, and nobody has confirmed them.
pub(crate) fn add_new(out: &mut RawObject, snapshot: &Snapshot, handle: &Handle) {
    let entries = snapshot.whole.catalog.entries().iter();
    let new: Vec<&Entry> = entries.filter(|entry| entry.is_new && entry.upstream_name == handle.name).collect();
    if !new.is_empty() {
        out.set("new-tools", RawJson::number(new.len()));
        out.set("new-tools-list", RawJson::list(new.iter().take(NAMED).map(|entry| RawJson::string(&entry.canonical))));
    }
}

/// Adds for how long the upstream is in its state, why, when it is tried again, and what to do.
pub(crate) fn add_health(out: &mut RawObject, handle: &Handle) {
    out.set("since-seconds", RawJson::number(handle.health.age().as_secs()));
    out.set_some("next-try-seconds", handle.next_start().map(seconds));
    out.set_some("last-error", handle.health.last_error().map(|error| RawJson::string(&error)));
    out.set_some("advice", handle.advice().map(|advice| RawJson::string(&advice)));
    let stderr = handle.health.stderr();
    if !stderr.is_empty() {
        out.set("stderr", RawJson::list(stderr.iter().map(|line| RawJson::string(line))));
    }
}

/// Adds whose login is in use, and until when.
pub(crate) fn add_login(out: &mut RawObject, handle: &Handle) {
    let Some(LoginView { issuer, account, left, is_refreshing }) =
        handle.keeper.as_ref().and_then(|keeper| keeper.view())
    else {
        return;
    };
    let mut login = RawObject::of_strings(&[("issuer", &issuer)]);
    login.set_some("account", account.map(|account| RawJson::string(&account)));
    login.set_some("token-seconds", left.map(|left| RawJson::number(left.as_secs())));
    login.set("refreshing", RawJson::boolean(is_refreshing));
    out.set("login", login.encode());
}

/// Adds the program that is started and the folders in which it was looked for.
pub(crate) fn add_program(out: &mut RawObject, handle: &Handle) {
    let spec = handle.spec.load();
    let folders = searched(&spec);
    let is_open = match &spec.target {
        Target::Stdio { command, .. } => command.first().is_some_and(|word| !spec.target.hides_program(word)),
        Target::Http { .. } => false,
    };
    let program = program_of(&spec).filter(|_| is_open);
    out.set_some("program", program.map(|program| RawJson::string(&program.display().to_string())));
    if !folders.is_empty() {
        out.set("path", RawJson::list(folders.iter().map(|folder| RawJson::string(folder))));
    }
}

/// Adds the items whose calls pass one at a time, because they ask their client where calls share a connection.
pub(crate) fn add_turns(out: &mut RawObject, handle: &Handle) {
    let names = handle.main.news.turns.askers().names();
    if !names.is_empty() {
        out.set("one-at-a-time", RawJson::list(names.iter().map(|name| RawJson::string(name))));
    }
}

/// Adds why the server is told that it can ask its clients nothing, where that follows from the callers that there can be.
pub(crate) fn add_input(out: &mut RawObject, snapshot: &Snapshot, handle: &Handle) {
    let link = handle.main.open_link();
    let is_legacy = link.is_some_and(|link| link.agreed().revision.era() == Era::Legacy);
    if is_legacy && handle.spec.load().is_shared_process() && snapshot.config.has_many_callers() {
        let why = "the server can ask no client anything, and may hide tools for that: several callers share its process; \
                   `instance = \"per-caller\"` gives each caller a process of its own";
        out.set("input", RawJson::string(why));
    }
}

/// Adds how many items are not offered because the upstream's lists are longer than its `max-inventory`.
pub(crate) fn add_excess(out: &mut RawObject, handle: &Handle) {
    let excess = List::ALL.into_iter().zip(handle.excess()).filter(|(_, excess)| !excess.is_none());
    let mut left = RawObject::default();
    for (list, excess) in excess {
        let (items, or_more) = (RawJson::number(excess.items), RawJson::boolean(excess.or_more));
        left.set(name(list), RawObject::of([("items", items), ("or-more", or_more)]).encode());
    }
    if handle.excess().iter().any(|excess| !excess.is_none()) {
        out.set("not-offered", left.encode());
    }
}

/// Adds how its messages break the protocol, and which definitions were repaired or are withheld
/// because they are invalid.
pub(crate) fn add_flaws(out: &mut RawObject, handle: &Handle) {
    let lines = handle.health.flaws.lines();
    if !lines.is_empty() {
        out.set("message-flaws", RawJson::list(lines.iter().map(|line| RawJson::string(line))));
    }
    let flaws = handle.flaws();
    if flaws.lines.is_empty() {
        return;
    }
    out.set("repairs", RawJson::number(flaws.repairs));
    out.set("invalid-definitions", RawJson::list(flaws.lines.iter().map(|line| RawJson::string(line))));
    if flaws.more > 0 {
        out.set("invalid-definitions-not-shown", RawJson::number(flaws.more));
    }
}

/// Adds the lists that could not be read when they were last asked for, of which clients see what was known before.
pub(crate) fn add_unread(out: &mut RawObject, handle: &Handle) {
    let unread = handle.unread.all();
    let mut lists = RawObject::default();
    for unread in &unread {
        let mut list = RawObject::default();
        list.set("why", RawJson::string(&unread.trouble.why));
        list.set("attempts", RawJson::number(unread.trouble.attempts));
        list.set("since-seconds", RawJson::number(unread.age().as_secs()));
        list.set("next-try-seconds", seconds(unread.trouble.again.saturating_duration_since(clock::now())));
        lists.set(name(unread.list), list.encode());
    }
    if !unread.is_empty() {
        out.set("unread-lists", lists.encode());
    }
}

/// The member of an upstream's object that counts the items of a list.
fn name(list: List) -> &'static str {
    if list == List::Templates { "resource-templates" } else { list.member() }
}

/// Whole seconds, of which the last may have begun.
fn seconds(wait: Duration) -> RawJson {
    RawJson::number(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}
