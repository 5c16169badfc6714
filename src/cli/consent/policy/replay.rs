//! The command `headend policy replay`: replays the audit log under other rules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::log::{AuditWindow, age, period, warn};
use super::suggest::{lines_of, refused};
use crate::cli::exit::{CONFIG, NO, OK, SOFTWARE, USAGE};
use crate::cli::reach::source;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::config::Config;
use crate::config::source::guard;
use crate::gateway::decision::dry_run::{ListedItem, list_items};
use crate::operator::audit::PeriodSummary;
use crate::policy::records::habit::{CallCounts, ItemChange, PolicyReplay};
use crate::policy::{ActionKind, Caller, Policy, RuleEffect, RuleSubject};
use crate::wire::foreign;

/// Most items that are printed.
const SHOWN: usize = 40;
/// Most callers for whom items without calls are checked.
const MAX_CALLERS: usize = 64;

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A configuration, or a file with nothing but rules.
    file: PathBuf,
    /// How far back to read.
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = age)]
    since: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The result of a replay.
struct ReplayReport {
    reading: PeriodSummary,
    before: CallCounts,
    after: CallCounts,
    undecided: u64,
    beyond: u64,
    changes: Vec<(ActionKind, Arc<str>, ItemChange)>,
    /// Offered items that were never called, and that the new rules allow although the rules in
    /// force do not.
    uncalled: Vec<(ActionKind, Arc<str>)>,
}

impl ReplayReport {
    /// Returns true if a change allows calls that no person has approved, such as those of a
    /// destructive item.
    fn is_grave(change: &ItemChange) -> bool {
        change.opened > 0 && (change.is_destructive || change.denied_before > 0 || change.allowed_before == 0)
    }

    fn verdict(&self) -> u8 {
        let opens = self.changes.iter().any(|(_, _, change)| Self::is_grave(change)) || !self.uncalled.is_empty();
        if opens { NO } else { OK }
    }
}

pub(crate) fn run(common: &CommonOptions, args: &ReplayArgs) -> Result<u8, CommandFailure> {
    let present = source::load(common, &[])?.config;
    let other = read(common, &args.file)?;
    let store = source::open_existing_store(common)?;
    let offered = list_items(&other, store.as_ref()).map_err(|text| CommandFailure::new(SOFTWARE, text))?;
    let mut replay = PolicyReplay::new(&other.policy).map_err(|problems| refused(&problems))?;
    let mut callers = BTreeSet::from([Caller::local().clone()]);
    let reading = AuditWindow::of(common, args.since)?.read(&mut |line| {
        if let Some(name) = line.caller.as_deref().filter(|_| callers.len() < MAX_CALLERS) {
            callers.insert(Caller::named(name));
        }
        replay.read(line);
    })?;
    let policy = Policy::build(&present.policy).map_err(|problems| refused(&problems))?;
    let report = ReplayReport {
        before: replay.before,
        after: replay.after,
        undecided: replay.undecided,
        beyond: replay.beyond,
        changes: replay.changes(),
        uncalled: find_opened_uncalled(&policy, &replay, &offered, &callers),
        reading,
    };
    warn(&report.reading.tally);
    print(&if args.json { json(&report) } else { text(&report) })?;
    Ok(report.verdict())
}

/// Reads the file as a whole configuration, or, if it has rules alone, adds them to the
/// configuration in force.
fn read(common: &CommonOptions, file: &Path) -> Result<Config, CommandFailure> {
    let name = file.display().to_string();
    let text = guard::read(file).map_err(|error| CommandFailure::new(USAGE, format!("read {name}: {error}")))?;
    let table: toml::Table =
        text.parse().map_err(|error| CommandFailure::new(CONFIG, format!("{name} is not TOML: {error}")))?;
    let has_rules_alone = table.keys().all(|key| key == "policy" || key == "$schema");
    if has_rules_alone { source::load_with_rules(common, &name, &text) } else { source::load_file(file) }
}

/// Finds the offered items that were never called, and that the replayed rules allow to one of the
/// callers although the rules in force do not.
fn find_opened_uncalled(
    present: &Policy,
    replay: &PolicyReplay,
    offered: &[ListedItem],
    callers: &BTreeSet<Caller>,
) -> Vec<(ActionKind, Arc<str>)> {
    let allows = |policy: &Policy, one: &ListedItem, caller: &Caller| {
        let rules = policy.item_rules(one.kind, &one.upstream, &one.canonical);
        let rights = caller.assumed_rights();
        policy.effect(&rules, &RuleSubject::new(caller, &rights, "", one.facts)) == RuleEffect::Allow
    };
    let fresh = offered.iter().filter(|one| !replay.has(one.kind, &one.canonical));
    let opened = fresh.filter(|one| {
        callers.iter().any(|caller| allows(replay.policy(), one, caller) && !allows(present, one, caller))
    });
    opened.map(|one| (one.kind, Arc::clone(&one.canonical))).collect()
}

fn text(report: &ReplayReport) -> String {
    let Some(period) = period(&report.reading) else {
        return "The audit log has no records of that time.\n".to_owned();
    };
    let mut out = format!("Audit log, {period}, {} records\n\n", report.reading.records);
    let rows = [
        ("questions to people", report.before.asked, report.after.asked),
        ("allowed by a rule", report.before.allowed, report.after.allowed),
        ("allowed by an earlier approval", report.before.granted, report.after.granted),
        ("denied by a rule", report.before.denied, report.after.denied),
    ];
    out.push_str(&format!("{:<32} {:>10} {:>10}\n", "", "before", "after"));
    for (name, before, after) in rows {
        out.push_str(&format!("{name:<32} {before:>10} {after:>10}\n"));
    }
    if report.undecided > 0 {
        out.push_str(&format!(
            "\n{} records cannot be decided again: they lack what the rules look at.\nThey count as asked, unless an approval \
             allowed them.\n",
            report.undecided
        ));
    }
    type Number = fn(&ItemChange) -> u64;
    let sections: [(&str, Number); 3] = [
        ("Newly allowed", |change| change.opened),
        ("Newly asked", |change| change.asked),
        ("Newly denied", |change| change.closed),
    ];
    for (title, number) in sections {
        let changes: Vec<_> = report.changes.iter().filter(|(_, _, change)| number(change) > 0).collect();
        if changes.is_empty() {
            continue;
        }
        let calls: u64 = changes.iter().map(|(_, _, change)| number(change)).sum();
        out.push_str(&format!("\n{title}: {calls} calls of {} items\n", changes.len()));
        for (kind, name, change) in changes.iter().take(SHOWN) {
            let kind = if *kind == ActionKind::Tool { String::new() } else { format!(" ({})", kind.into_str()) };
            out.push_str(&format!("{:>8}  {}{kind}\n", number(change), foreign::line(name)));
            if title == "Newly allowed" {
                remarks(change).iter().for_each(|remark| out.push_str(&format!("{:>8}  - {remark}\n", "")));
            }
        }
        if changes.len() > SHOWN {
            out.push_str(&format!("{:>8}  and {} items more; --json has all\n", "", changes.len() - SHOWN));
        }
    }
    if !report.uncalled.is_empty() {
        out.push_str(&format!("\nAllowed and never called in this time: {} items\n", report.uncalled.len()));
        for (kind, name) in report.uncalled.iter().take(SHOWN) {
            let kind = if *kind == ActionKind::Tool { String::new() } else { format!(" ({})", kind.into_str()) };
            out.push_str(&format!("{:>8}  {}{kind}\n", "", foreign::line(name)));
        }
        if report.uncalled.len() > SHOWN {
            out.push_str(&format!("{:>8}  and {} items more; --json has all\n", "", report.uncalled.len() - SHOWN));
        }
    }
    if report.beyond > 0 {
        out.push_str(&format!("\n{} records are of items beyond those that are listed.\n", report.beyond));
    }
    out.push_str(if report.verdict() == OK {
        "\nThe rules allow no call of an item that is destructive, that was denied, or\nthat was never allowed or called. Nothing \
         is in force yet.\n"
    } else {
        "\nLook at the items with a remark, and at those that were never called, before\nyou put these rules in force.\n"
    });
    out
}

/// Returns warnings to read before such calls are allowed.
fn remarks(change: &ItemChange) -> Vec<String> {
    let mut remarks = Vec::new();
    if change.is_destructive {
        remarks.push("destructive by the word of its server or the configuration".to_owned());
    }
    if change.denied_before > 0 {
        remarks.push(format!("{} of these calls were denied", change.denied_before));
    }
    if change.allowed_before == 0 {
        remarks.push("it was never allowed in this time".to_owned());
    } else if change.unapproved > change.denied_before {
        remarks.push(format!("{} of these calls were not approved", change.unapproved - change.denied_before));
    }
    remarks
}

fn json(report: &ReplayReport) -> String {
    let counts = |counts: &CallCounts| {
        let CallCounts { asked, allowed, granted, denied } = counts;
        serde_json::json!({ "asked": asked, "allowed": allowed, "granted": granted, "denied": denied })
    };
    let changes = report.changes.iter().map(|(kind, name, change)| {
        serde_json::json!({
            "kind": kind.into_str(),
            "item": &**name,
            "newly-allowed": change.opened,
            "newly-asked": change.asked,
            "newly-denied": change.closed,
            "unapproved": change.unapproved,
            "denied-before": change.denied_before,
            "allowed-before": change.allowed_before,
            "destructive": change.is_destructive,
        })
    });
    let uncalled =
        report.uncalled.iter().map(|(kind, name)| serde_json::json!({ "kind": kind.into_str(), "item": &**name }));
    lines_of(&serde_json::json!({
        "from": report.reading.from,
        "to": report.reading.to,
        "records": report.reading.records,
        "damaged": report.reading.tally.damaged,
        "unread-chains": report.reading.tally.unread,
        "before": counts(&report.before),
        "after": counts(&report.after),
        "undecided": report.undecided,
        "beyond": report.beyond,
        "items": changes.collect::<Vec<_>>(),
        "allowed-and-never-called": uncalled.collect::<Vec<_>>(),
        "ok": report.verdict() == OK,
    }))
}
