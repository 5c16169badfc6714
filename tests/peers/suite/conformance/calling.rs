//! The suite as a server behind the gateway, with `conformance-driver.mjs` as the client.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::cell::{Cell, SuiteOutput};
use super::record;
use super::schema::Side;
use super::tap::{PipeTap, Tap};
use super::{CellVerdict, SuiteRevision};
use crate::harness::{TestHome, headend};
use crate::peers::PeerFolders;
use crate::process::{output_within, said};

/// Beginning of the names of scenarios about authorization.
const LOGINS: &str = "auth/";
/// Scenarios of 2025-03-26, which are in no set of requirements.
const UNLISTED: [&str; 2] = ["auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"];

/// Longest time of one scenario; the suite starts Node twice for each.
const SCENARIO: Duration = Duration::from_secs(60);

/// Plays the client scenarios of a revision with a client of that era, except those that the cell
/// leaves out as a group.
pub(super) fn play(revision: SuiteRevision, cell: &str, client: &'static str) {
    let Some(peers) = PeerFolders::find() else { return };
    let suite = Suite { peers, revision, client };
    let expected = Cell::read(cell);
    let mut verdict = CellVerdict::new(cell);
    let mut failed = BTreeSet::new();
    let mut told = Vec::new();
    let mut successes = 0;
    let scenarios = suite.scenarios();
    for (scenario, is_scored) in &scenarios {
        // A scenario that needs the whole of a missing feature costs time and shows nothing.
        if let Some(reason) = expected.reason(scenario).filter(|_| scenario.starts_with(LOGINS)) {
            eprintln!("{cell}: not played: {scenario}: {reason}");
            failed.insert(scenario.clone());
        } else {
            match suite.play(scenario, *is_scored, &mut verdict) {
                Ok(checks) => successes += checks,
                Err(story) => {
                    failed.insert(scenario.clone());
                    told.push(story);
                }
            }
        }
    }
    expected.give_a_second_chance(&mut failed, |again| {
        let is_scored = scenarios.iter().any(|(name, is_scored)| name == again && *is_scored);
        let played = suite.play(again, is_scored, &mut verdict);
        successes += played.as_ref().unwrap_or(&0);
        played.is_ok()
    });
    expected.compare(&failed, &mut verdict.wrong);
    expected.count(successes, &mut verdict.wrong);
    verdict.end(|| told.join("\n\n"));
}

/// The installed suite, and the program that plays the client.
#[derive(Debug)]
struct Suite {
    peers: PeerFolders,
    revision: SuiteRevision,
    client: &'static str,
}

impl Suite {
    fn command(&self, world: &TestHome) -> Command {
        let mut command = world.command(self.peers.node().to_str().unwrap());
        command.arg(self.peers.package("conformance").join("dist/index.js"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the client scenarios that the suite has for this revision, and whether they are
    /// scored.
    fn scenarios(&self) -> Vec<(String, bool)> {
        let world = TestHome::new();
        let mut command = self.command(&world);
        command.args(["list", "--requirements", self.revision]);
        let listed = output_within(command.spawn().unwrap(), SCENARIO, "the list of scenarios");
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let (scored, others) = text.split_once("Client scenarios").unwrap().1.split_once("never scored").unwrap();
        let scored = scored.lines().filter_map(|line| line.trim().strip_prefix("- "));
        let others = others.lines().filter_map(|line| line.trim().strip_prefix("- ")?.strip_suffix(" [client]"));
        let scored = scored.map(|name| (name.to_owned(), true));
        let others = others.chain(UNLISTED).map(|name| (name.to_owned(), false));
        scored.chain(others).collect()
    }

    /// Plays one scenario. Returns how many of its checks succeeded; the error says what happened.
    fn play(&self, scenario: &str, is_scored: bool, verdict: &mut CellVerdict) -> Result<usize, String> {
        if scenario.starts_with(LOGINS) {
            return self.play_login(scenario, is_scored);
        }
        let world = TestHome::new();
        let tap = Tap::start();
        let pipes = PipeTap::new(&world.path("work"), "driver");
        let quoted = |path: &Path| shlex::try_quote(path.to_str().unwrap()).unwrap().into_owned();
        let gateway = format!("{} stdio --upstream up=\"$1\" --transparent --no-daemon", quoted(Path::new(headend())));
        let driver = crate::ground::root().join("tests/peers/conformance-driver.mjs");
        let driver = format!("{} {}", quoted(&self.peers.node()), quoted(&driver));
        let mut command = self.command(&world);
        command.env("GATEWAY", pipes.around(&gateway)).env("RELAY", tap.base()).env("CLIENT_ERA", self.client);
        command.env("PEERS_NODE", self.peers.folder());
        command.args(["client", "--command", &driver, "--scenario", scenario, "--spec-version", self.revision]);
        command.args(["--timeout", "30000", "-o", "results"]);
        let judged = output_within(command.spawn().unwrap(), SCENARIO, scenario);
        let place = |what: &str| format!("{scenario}: {what}");
        verdict.messages(&place("to the driver"), Side::Server, &record::of_pipes(&pipes, self.revision));
        verdict.messages(&place("to the mock"), Side::Client, &record::of_http(&tap.all(), self.revision));
        // The suite makes a folder of a group's name.
        let (group, name) = scenario.rsplit_once('/').unwrap_or(("", scenario));
        let outcome = SuiteOutput::read(&world.path("work/results").join(group), &[name.to_owned()]);
        let passed = judged.status.success() && outcome.passed();
        if passed { Ok(outcome.successes()) } else { Err(format!("{scenario}:\n{outcome}\n{}", said(&judged))) }
    }

    /// Plays a scenario about authorization, without a relay: a server's metadata is about its own
    /// address. Many of the checks are recommendations; one that is not followed fails it.
    fn play_login(&self, scenario: &str, is_scored: bool) -> Result<usize, String> {
        let world = TestHome::new();
        let quoted = |path: &Path| shlex::try_quote(path.to_str().unwrap()).unwrap().into_owned();
        let driver = crate::ground::root().join("tests/peers/conformance-login.mjs");
        let driver = format!("{} {}", quoted(&self.peers.node()), quoted(&driver));
        let mut command = self.command(&world);
        command.env("HEADEND", headend()).env("CLIENT_ERA", self.client).env("PEERS_NODE", self.peers.folder());
        command.args(["client", "--command", &driver, "--scenario", scenario, "--timeout", "30000", "-o", "results"]);
        // The suite skips an extension's scenario where a revision is named, and says that it
        // passed.
        if is_scored {
            command.args(["--spec-version", self.revision]);
        }
        let judged = output_within(command.spawn().unwrap(), SCENARIO, scenario);
        let (_, name) = scenario.split_once('/').unwrap_or_default();
        let outcome = SuiteOutput::read(&world.path("work/results/auth"), &[name.to_owned()]);
        // A refusal of the driver is right if the scenario is about one; the suite judges that.
        let passed = judged.status.success() && outcome.passed() && outcome.warnings() == 0;
        if passed { Ok(outcome.successes()) } else { Err(format!("{scenario}:\n{outcome}\n{}", said(&judged))) }
    }
}
