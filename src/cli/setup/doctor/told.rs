//! Formats the findings, the gravest first. On a terminal the first two are shown in full and the
//! others in a line each, so that all of them fit the screen.

use super::finding::{DoctorFinding, DoctorFindings, FindingLevel};
use crate::cli::words::output::count;
use crate::cli::words::screen::{Colour, Screen, shortened};
use crate::wire::foreign;

/// Findings that are printed in full if all must fit a screen.
const FIRST: usize = 2;
/// Lines of a program's output that are quoted then.
const QUOTED: usize = 1;
/// Indent of findings.
const INDENT: &str = "         ";

/// Formats all findings, followed by their count. `all` prints them in full on any screen.
pub(super) fn text(screen: Screen, found: &DoctorFindings, all: bool) -> String {
    let mut findings: Vec<&DoctorFinding> = found.0.iter().collect();
    // The sort is stable: findings of one level keep their order.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let verdict = verdict(found);
    match screen.height().filter(|_| !all) {
        Some(height) => format_to_fit(screen, height, &findings, &verdict),
        None => {
            let told: String = findings.iter().map(|finding| format_in_full(screen, finding, usize::MAX)).collect();
            format!("{told}\n{verdict}\n")
        }
    }
}

/// Counts problems and warnings.
fn verdict(found: &DoctorFindings) -> String {
    match (found.number(FindingLevel::Problem), found.number(FindingLevel::Warning)) {
        (0, 0) => "no problems".to_owned(),
        (0, warnings) => count(warnings, "warning"),
        (problems, 0) => count(problems, "problem"),
        (problems, warnings) => format!("{}, {}", count(problems, "problem"), count(warnings, "warning")),
    }
}

/// Formats the findings on at most `height` lines, including the line of the shell's next prompt.
fn format_to_fit(screen: Screen, height: usize, findings: &[&DoctorFinding], verdict: &str) -> String {
    let (good, bad): (Vec<&DoctorFinding>, Vec<&DoctorFinding>) =
        findings.iter().partition(|finding| finding.level == FindingLevel::Ok);
    let in_full = |count: usize| {
        bad.iter().take(count).map(|finding| format_in_full(screen, finding, QUOTED)).collect::<String>()
    };
    let mut count = bad.len().min(FIRST);
    // If the findings are long, fewer are printed in full.
    while count > 1 && in_full(count).lines().count() > height * 2 / 3 {
        count -= 1;
    }
    let (mut out, (first, others)) = (in_full(count), bad.split_at(count));
    let mut fine: Vec<&str> = Vec::new();
    for finding in good {
        if !fine.contains(&finding.about.as_str()) {
            fine.push(&finding.about);
        }
    }
    let fine = if fine.is_empty() {
        String::new()
    } else {
        let line = screen.indented(INDENT, &fine.join(", "));
        labelled(screen, FindingLevel::Ok, &line)
    };
    let mut is_cut = first.iter().any(|finding| finding.quoted.len() > QUOTED);
    // Two more lines are needed: the verdict and the prompt of the shell.
    let taken = out.lines().count() + fine.lines().count() + 2;
    let room = height.saturating_sub(taken).max(1);
    let shown = if others.len() > room { room - 1 } else { others.len() };
    for finding in others.iter().take(shown) {
        let line = format!("{}: {}", finding.about, finding.what);
        let line = format!("{INDENT}{}\n", shortened(&line, screen.room(INDENT.len())));
        out.push_str(&labelled(screen, finding.level, &line));
        is_cut = true;
    }
    if others.len() > shown {
        out.push_str(&format!("{INDENT}and {} more\n", others.len() - shown));
        is_cut = true;
    }
    let more = if is_cut { "; `headend doctor --all` tells everything" } else { "" };
    format!("{out}{fine}{verdict}{more}\n")
}

/// Formats a finding in full, with the last `quoted` lines of the quoted output.
fn format_in_full(screen: Screen, finding: &DoctorFinding, quoted: usize) -> String {
    let line = screen.indented(INDENT, &format!("{}: {}", finding.about, finding.what));
    let mut out = labelled(screen, finding.level, &line);
    for quoted in finding.quoted.iter().skip(finding.quoted.len().saturating_sub(quoted)) {
        out.push_str(&format!("{INDENT}| {}\n", foreign::line(quoted)));
    }
    if !finding.next.is_empty() {
        out.push_str(&screen.indented("      -> ", &finding.next).replace("\n      -> ", "\n         "));
    }
    out
}

/// Puts the level's word into the indent of the first line.
fn labelled(screen: Screen, level: FindingLevel, lines: &str) -> String {
    let (colour, word) = match level {
        FindingLevel::Ok => (Colour::Good, "ok"),
        FindingLevel::Note => (Colour::Pale, "note"),
        FindingLevel::Warning => (Colour::Busy, "WARNING"),
        FindingLevel::Problem => (Colour::Bad, "PROBLEM"),
    };
    let gap = " ".repeat(INDENT.len() - word.len());
    format!("{}{gap}{}", screen.paint(colour, word), lines.get(INDENT.len()..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    fn found(problems: usize, warnings: usize) -> DoctorFindings {
        let mut found = DoctorFindings::default();
        found.ok("daemon", "headend answers");
        for n in 0..warnings {
            let what =
                format!("the file says something that is worth a look, number {n}, and goes on for more than a line");
            found.add(FindingLevel::Warning, "configuration", what, "look at it");
        }
        for n in 0..problems {
            found.problem(
                &format!("fx{n}"),
                "down: the program ended, as programs do that have nothing to say",
                "mend it",
            );
            found.quoting(vec!["one".to_owned(), "last words".to_owned()]);
        }
        found.ok("state", "/srv/state");
        found
    }

    #[test]
    fn everything_fits_the_screen_and_the_gravest_come_first() {
        for (problems, warnings) in [(0, 0), (1, 0), (0, 3), (2, 5), (9, 40)] {
            let found = found(problems, warnings);
            let text = text(Screen::of_size(80, 24), &found, false);
            assert!(text.lines().count() < 24, "{text}");
            assert!(text.lines().all(|line| line.width() <= 80), "{text}");
            assert!(text.contains("ok       daemon, state\n"), "{text}");
            assert_eq!(text.starts_with("PROBLEM  fx0: "), problems > 0, "{text}");
            assert_eq!(text.matches("      -> ").count(), (problems + warnings).min(FIRST), "{text}");
            assert_eq!(text.contains(" more\n"), problems + warnings > 20, "{text}");
            assert_eq!(text.contains("doctor --all"), problems > 0 || warnings > FIRST, "{text}");
        }
    }

    #[test]
    fn without_a_screen_everything_is_told_in_full() {
        let found = found(9, 40);
        for text in [text(Screen::of(None), &found, false), text(Screen::of_size(80, 24), &found, true)] {
            assert!(text.starts_with("PROBLEM  fx0: ") && text.contains("| one\n"), "{text}");
            assert_eq!(text.matches("      -> ").count(), 49, "{text}");
            assert!(text.ends_with("ok       state: /srv/state\n\n9 problems, 40 warnings\n"), "{text}");
        }
    }
}
