//! Known failures of each cell of the matrix: one file a cell in `tests/data/conformance`, one
//! scenario a line.
//!
//! `scenario: reason`, where the reason is a row of the table "What this release does not bridge"
//! of the architecture text, or `by design: ...`. `prefix-*` stands for all scenarios of that
//! beginning. Lines that begin with `#` are comments. `checks: 93` is how many checks of the cell
//! succeed at least: the suite counts a scenario as passed where none of its checks applied.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const FOLDER: &str = "tests/data/conformance";
const ARCHITECTURE: &str = include_str!("../../../../src/ARCHITECTURE.md");
const TABLE: &str = "## What this release does not bridge";
const BY_DESIGN: &str = "by design: ";

/// The line with the number of checks that succeed.
const CHECKS: &str = "checks";

/// The scenarios that one cell is expected to fail.
#[derive(Debug)]
pub(super) struct Cell {
    file: PathBuf,
    lines: Vec<(String, String)>,
    /// Least number of checks that succeed.
    checks: usize,
}

impl Cell {
    pub(super) fn read(name: &str) -> Self {
        let file = crate::ground::root().join(FOLDER).join(format!("{name}.txt"));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let split = |line: &str| match line.split_once(": ") {
            Some((scenario, reason)) => (scenario.to_owned(), reason.to_owned()),
            None => panic!("{}: write `scenario: reason`, not {line:?}", file.display()),
        };
        let mut lines: Vec<_> = lines.map(split).collect();
        let checks = lines.iter().position(|(name, _)| name == CHECKS).map(|at| lines.remove(at).1);
        let checks = checks.and_then(|number| number.parse().ok());
        let checks = checks.unwrap_or_else(|| panic!("{}: write `checks: NUMBER`", file.display()));
        Self { file, lines, checks }
    }

    /// Returns the reason why a scenario is expected to fail, if it is.
    pub(super) fn reason(&self, scenario: &str) -> Option<&str> {
        self.lines.iter().find(|(pattern, _)| fits(pattern, scenario)).map(|(_, reason)| reason.as_str())
    }

    /// Plays unexpected failures once more, alone, and removes those that pass.
    ///
    /// Some checks of the suite wait half a second for an answer, which a busy machine may not
    /// keep.
    pub(super) fn give_a_second_chance(&self, failed: &mut BTreeSet<String>, mut passes: impl FnMut(&str) -> bool) {
        failed.retain(|scenario| {
            let stays = self.reason(scenario).is_some() || !passes(scenario);
            if !stays {
                eprintln!("{}: {scenario} passed the second time only", self.file.display());
            }
            stays
        });
    }

    /// Reports checks that succeeded and are not made any more.
    pub(super) fn count(&self, successes: usize, wrong: &mut Vec<String>) {
        let (file, checks) = (self.file.display(), self.checks);
        eprintln!("{file}: {successes} checks succeed, {checks} at least");
        if successes < checks {
            wrong.push(format!("{successes} checks succeed, fewer than the {checks} of {file}: some apply no more"));
        }
    }

    /// Reports the differences between failures and the list; a scenario that begins to pass must
    /// be struck off.
    pub(super) fn compare(&self, failed: &BTreeSet<String>, wrong: &mut Vec<String>) {
        let file = self.file.display();
        for scenario in failed.iter().filter(|scenario| self.reason(scenario).is_none()) {
            wrong.push(format!("{scenario} fails and is not in {file}"));
        }
        for (pattern, _) in self.lines.iter().filter(|(pattern, _)| !failed.iter().any(|name| fits(pattern, name))) {
            wrong.push(format!("{pattern} does not fail: strike it off {file}"));
        }
    }
}

fn fits(pattern: &str, scenario: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == scenario, |beginning| scenario.starts_with(beginning))
}

/// Checks that there is a file for each of these cells, no other, and a known reason in each line.
pub(super) fn check_folder(cells: &BTreeSet<String>) {
    let folder = crate::ground::root().join(FOLDER);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let names: BTreeSet<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, *cells, "files of {FOLDER} and cells of the matrix");
    let table = ARCHITECTURE.split_once(TABLE).unwrap().1;
    let rows: BTreeSet<&str> = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    for cell in cells {
        for (scenario, reason) in Cell::read(cell).lines {
            let known = reason.starts_with(BY_DESIGN) || rows.contains(reason.as_str());
            assert!(known, "{cell}: {scenario}: {reason:?} is no row of {TABLE:?}, which has {rows:#?}");
        }
    }
}

/// The suite's output for a scenario: one object a check.
#[derive(Debug, Default)]
pub(super) struct SuiteOutput {
    checks: Vec<Value>,
}

impl SuiteOutput {
    /// Reads what lies below a folder of results, in folders whose names begin with one of these.
    pub(super) fn read(folder: &Path, beginnings: &[String]) -> Self {
        let folders = fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| {
            let name = entry.file_name().into_string().unwrap();
            beginnings.iter().any(|beginning| name.starts_with(beginning))
        });
        let files = folders.filter_map(|entry| fs::read(entry.path().join("checks.json")).ok());
        let read = |bytes: Vec<u8>| serde_json::from_slice::<Vec<Value>>(&bytes).unwrap();
        Self { checks: files.flat_map(read).collect() }
    }

    pub(super) fn passed(&self) -> bool {
        self.count("SUCCESS") > 0 && self.count("FAILURE") == 0
    }

    /// Returns the number of recommendations that were not followed, which the suite forgives.
    pub(super) fn warnings(&self) -> usize {
        self.count("WARNING")
    }

    /// Returns the number of checks that applied and succeeded.
    pub(super) fn successes(&self) -> usize {
        self.count("SUCCESS")
    }

    fn count(&self, status: &str) -> usize {
        self.checks.iter().filter(|check| check["status"] == status).count()
    }
}

impl fmt::Display for SuiteOutput {
    /// Writes the checks that failed, and the recommendations that were not followed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.checks.iter().filter(|check| check["status"] == "FAILURE" || check["status"] == "WARNING");
        failed.into_iter().try_for_each(|check| {
            let Value::Object(check) = check else { return Ok(()) };
            writeln!(f, "  {}: {}", check["id"], check.get("errorMessage").unwrap_or(&check["description"]))
        })
    }
}
