//! The command `headend policy suggest`: suggests rules for calls that people always allow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use toml_edit::{Array, DocumentMut};

use super::log::{AuditWindow, age, period, warn};
use crate::cli::exit::{OK, SOFTWARE};
use crate::cli::reach::source;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print};
use crate::config::{Config, show};
use crate::daemon::own_places::find_protected_folders;
use crate::gateway::decision::dry_run::{ListedItem, list_items};
use crate::operator::audit::PeriodSummary;
use crate::policy::consent::ReservedFolders;
use crate::policy::records::habit::{
    ApprovalCounts, ENOUGH, Habits, OmissionReason, OmittedItem, PolicyReplay, PresentItem, PresentItems, Suggestion,
};
use crate::policy::{ActionKind, PolicyProblem};
use crate::wire::foreign;

/// Width of the output in columns, unless a name is longer.
const WIDTH: usize = 80;
/// The warning above a rule for a tool that may overwrite files.
const OVERWRITES: &str = "this tool may overwrite or delete what lies below that folder; the rule lets it do so without a question. \
                          Symbolic links are the server's matter.";
/// Items that are named for each reason to leave items out.
const NAMED: usize = 3;

#[derive(Clone, Debug, Args)]
pub(crate) struct SuggestArgs {
    /// How far back to read.
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = age)]
    since: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The items of the configuration that upstreams offered last, by kind and name.
pub(super) struct OfferedItems<'c> {
    config: &'c Config,
    items: HashMap<(ActionKind, Arc<str>), PresentItem>,
    places: ReservedFolders,
}

impl<'c> OfferedItems<'c> {
    pub(super) fn of(config: &'c Config, offered: &[ListedItem], places: ReservedFolders) -> Self {
        let known = |one: &ListedItem| {
            let known = PresentItem { facts: one.facts, arguments: one.arguments.clone() };
            ((one.kind, Arc::clone(&one.canonical)), known)
        };
        Self { config, items: offered.iter().map(known).collect(), places }
    }
}

impl PresentItems for OfferedItems<'_> {
    fn has(&self, upstream: &str) -> bool {
        self.config.upstreams.iter().any(|one| one.name.as_str() == upstream)
    }

    fn known(&self, kind: ActionKind, name: &str) -> Option<PresentItem> {
        self.items.get(&(kind, Arc::from(name))).cloned()
    }

    fn places(&self) -> ReservedFolders {
        self.places.clone()
    }
}

/// A suggested rule and its effect on the recorded calls.
struct TriedRule {
    suggestion: Suggestion,
    saved: u64,
    /// Number of the saved questions that were not answered with a yes.
    unapproved: u64,
}

/// The result of the command.
struct SuggestReport {
    reading: PeriodSummary,
    questions: u64,
    saved: u64,
    beyond: u64,
    rules: Vec<TriedRule>,
    left_out: Vec<OmittedItem>,
}

pub(crate) fn run(common: &CommonOptions, args: &SuggestArgs) -> Result<u8, CommandFailure> {
    let loaded = source::load(common, &[])?;
    let store = source::open_existing_store(common)?;
    let offered = list_items(&loaded.config, store.as_ref()).map_err(|text| CommandFailure::new(SOFTWARE, text))?;
    let log = AuditWindow::of(common, args.since)?;
    let (source, state) = (&loaded.source, store.as_ref().map(|store| store.dir()));
    let places = find_protected_folders(source.path.as_deref(), &source.files.lock(), state);
    let report = report(&loaded.config, &OfferedItems::of(&loaded.config, &offered, places), &log)?;
    warn(&report.reading.tally);
    print(&if args.json { json(&report) } else { text(&report, args.since) })?;
    Ok(OK)
}

fn report(config: &Config, present: &OfferedItems<'_>, log: &AuditWindow) -> Result<SuggestReport, CommandFailure> {
    let mut habits = Habits::default();
    let reading = log.read(&mut |line| habits.read(line))?;
    let mut suggestions = habits.suggest(present);
    let policy = suggestions.fit(&config.policy);
    let mut with = PolicyReplay::new(&policy).map_err(|problems| refused(&problems))?;
    // A few more questions may have been recorded since the first reading.
    log.read(&mut |line| with.read(line))?;
    let tried = |suggestion: Suggestion| {
        let (saved, unapproved) = with.saved.get(suggestion.rule.id.as_str()).copied().unwrap_or_default();
        TriedRule { suggestion, saved, unapproved }
    };
    let (mut rules, useless): (Vec<TriedRule>, Vec<TriedRule>) =
        suggestions.rules.into_iter().map(tried).partition(|one| one.saved > 0);
    let mut left_out = suggestions.left_out;
    left_out.extend(useless.iter().map(|one| one.suggestion.left_out(OmissionReason::Ruled)));
    rules.sort_by(|one, other| (other.saved, &one.suggestion.rule.id).cmp(&(one.saved, &other.suggestion.rule.id)));
    Ok(SuggestReport {
        reading,
        questions: habits.questions,
        saved: rules.iter().map(|one| one.saved).sum(),
        beyond: habits.beyond,
        rules,
        left_out,
    })
}

/// Returns the failure for problems of a policy that was valid when it was loaded.
pub(super) fn refused(problems: &[PolicyProblem]) -> CommandFailure {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    CommandFailure::new(SOFTWARE, all.join("; "))
}

fn text(report: &SuggestReport, since: Duration) -> String {
    let mut out = String::new();
    let mut say = |text: &str| out.push_str(&comment(text));
    let since = crate::config::duration_text(since);
    match period(&report.reading) {
        None => say(&format!("The audit log has no records of the last {since}.")),
        Some(period) => say(&format!("Audit log, {period}: {}.", count(as_usize(report.questions), "question"))),
    }
    if report.rules.is_empty() {
        say(&format!("No rule to suggest. A rule needs {ENOUGH} approvals of one item by one caller and no denial."));
    } else {
        let percent = (report.saved * 100).checked_div(report.questions).unwrap_or(0);
        say(&format!(
            "{} would have saved {} of them ({percent}%). Nothing is in force: read each rule, paste those you want into the \
             configuration, and try them with `headend policy replay FILE`.",
            if report.rules.len() == 1 {
                "This rule".to_owned()
            } else {
                format!("These {} rules", report.rules.len())
            },
            report.saved
        ));
    }
    for one in &report.rules {
        out.push('\n');
        for line in rule_comments(one) {
            out.push_str(&comment(&line));
        }
        out.push_str(&wrapped(&show::rule_text(&one.suggestion.rule)));
    }
    let tail = describe_left_out(report);
    if !tail.is_empty() {
        out.push('\n');
        tail.iter().for_each(|line| out.push_str(&comment(line)));
    }
    out
}

/// Returns the comments above a rule.
fn rule_comments(one: &TriedRule) -> Vec<String> {
    let Suggestion { yes, also, is_blind, .. } = &one.suggestion;
    let ApprovalCounts { client, page, operator } = yes;
    let ways =
        [(client, "by the client's own word"), (page, "on the console"), (operator, "by the operator's command")];
    let ways: Vec<String> =
        ways.into_iter().filter(|(number, _)| **number > 0).map(|(number, way)| format!("{number} {way}")).collect();
    let mut lines = vec![format!(
        "Saves {}. Made of {}: {}.",
        count(as_usize(one.saved), "approval"),
        count(as_usize(yes.all()), "approval"),
        ways.join(", ")
    )];
    if one.suggestion.overwrites {
        lines.push(format!("WARNING: {OVERWRITES}"));
    }
    if one.unapproved > 0 {
        let number = one.unapproved;
        lines.push(format!("Also allows: {number} of these calls that were not approved."));
    }
    if *is_blind {
        lines.push(
            "This rule allows any arguments, because the log keeps none. Set `[audit] capture-arguments = \"full\"` to get narrower rules."
                .to_owned(),
        );
    }
    lines.extend(also.iter().map(|also| format!("Also allows: {also}.")));
    lines
}

/// Describes the items without a suggested rule, by reason.
fn describe_left_out(report: &SuggestReport) -> Vec<String> {
    let mut lines = Vec::new();
    let reasons = [
        (OmissionReason::Destructive, "destructive by the word of their server or the configuration"),
        (OmissionReason::Denied, "denied at least once"),
        (OmissionReason::Unknown, "without a record of what their server calls them"),
        (OmissionReason::Name, "with a name, or a caller, that means something in patterns"),
        (OmissionReason::Gone, "of upstreams that are not in the configuration"),
        (OmissionReason::Few, "with fewer than 5 approvals of one caller with such arguments"),
        (OmissionReason::Ruled, "that a rule of the configuration asks about, denies or allows"),
        (OmissionReason::Many, "whose rules are too many to be shown"),
    ];
    for (why, words) in reasons {
        let mut names: Vec<&str> = report.left_out.iter().filter(|one| one.why == why).map(|one| &*one.name).collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(*name));
        if names.is_empty() {
            continue;
        }
        let shown: Vec<String> = names.iter().take(NAMED).map(|name| foreign::line(name).into_owned()).collect();
        let more = names.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!("Left out, {words}: {}{more}.", shown.join(", ")));
    }
    if report.beyond > 0 {
        let number = report.beyond;
        lines.push(format!(
            "Left out, since too many items and callers are in the log: {number} records. Try a shorter --since."
        ));
    }
    lines
}

/// Formats a comment of several lines. Hidden characters of foreign text are escaped.
fn comment(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::from("#");
    for word in foreign::line(text).split(' ') {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}

/// Formats a rule with one name on each line if a list is too long for one line.
fn wrapped(rule: &str) -> String {
    if rule.lines().all(|line| line.chars().count() <= WIDTH) {
        return rule.to_owned();
    }
    // The text was generated here, so it is valid TOML.
    let Ok(mut document) = rule.parse::<DocumentMut>() else { return rule.to_owned() };
    let rules = document.get_mut("policy").and_then(|policy| policy.get_mut("rules"));
    let tables = rules.and_then(|rules| rules.as_array_of_tables_mut()).into_iter().flat_map(|rules| rules.iter_mut());
    for (key, item) in tables.flat_map(|table| table.iter_mut()) {
        let Some(array) = item.as_array_mut() else { continue };
        if key.len() + array.to_string().chars().count() + 2 > WIDTH {
            spread(array);
        }
    }
    document.to_string()
}

fn spread(array: &mut Array) {
    array.iter_mut().for_each(|item| item.decor_mut().set_prefix("\n    "));
    array.iter_mut().for_each(|item| item.decor_mut().set_suffix(""));
    array.set_trailing("\n");
    array.set_trailing_comma(true);
}

fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn json(report: &SuggestReport) -> String {
    let rules = report.rules.iter().map(|one| {
        let Suggestion { rule, yes: ApprovalCounts { client, page, operator }, also, is_blind, overwrites } =
            &one.suggestion;
        serde_json::json!({
            "id": rule.id,
            "toml": show::rule_text(rule),
            "saves": one.saved,
            "unapproved": one.unapproved,
            "approvals": { "client": client, "console": page, "operator": operator },
            "any-arguments": is_blind,
            "also-allows": also,
            "warning": overwrites.then_some(OVERWRITES),
        })
    });
    let left_out = report
        .left_out
        .iter()
        .map(|one| serde_json::json!({ "item": &*one.name, "why": one.why.into_str(), "approvals": one.approvals }));
    let value = serde_json::json!({
        "from": report.reading.from,
        "to": report.reading.to,
        "records": report.reading.records,
        "damaged": report.reading.tally.damaged,
        "unread-chains": report.reading.tally.unread,
        "questions": report.questions,
        "saves": report.saved,
        "rules": rules.collect::<Vec<_>>(),
        "left-out": left_out.collect::<Vec<_>>(),
        "beyond": report.beyond,
    });
    lines_of(&value)
}

/// Formats JSON on several lines, with hidden characters as escapes.
pub(super) fn lines_of(value: &serde_json::Value) -> String {
    format!("{value:#}").lines().map(|line| foreign::json(line) + "\n").collect()
}
