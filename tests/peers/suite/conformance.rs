//! The official conformance suite through the gateway, with every message of the gateway held
//! against the official schema.
//!
//! A cell is a set of requirements and the program on the other side of the gateway: `serving-*`
//! has the suite as a client and the reference server behind the gateway, `calling-*` the suite as
//! a server and a client of ours. `tests/data/conformance` lists the known failures of each cell
//! with reasons, exactly: a scenario that begins to pass must be struck off. Relays on both sides
//! of the gateway record the messages.

use std::collections::BTreeSet;
use std::thread;

use serde_json::json;

use self::record::RecordedMessage;
use self::schema::Side;
use self::serving::{SPLIT, SuiteServer};
use self::tap::Tap;
use crate::harness::GatewaySetup;
use crate::mcp::{ClientEra, Mcp};

mod calling;
mod cell;
mod record;
mod schema;
mod serving;
mod tap;

/// A set of requirements of the suite.
type SuiteRevision = &'static str;

const LEGACY: SuiteRevision = "2025-11-25";
const MODERN: SuiteRevision = "2026-07-28";

/// End of the name of a cell whose server drops the prefix that the gateway adds.
const RENAMED: &str = "-renamed";

/// Eras and transports of the reference server.
const SERVERS: [SuiteServer; 5] = [
    SuiteServer::whole("modern", "http"),
    SuiteServer::whole("modern", "stdio"),
    SuiteServer::whole("legacy", "http"),
    SuiteServer::whole("legacy", "stdio"),
    SuiteServer::whole("legacy", "sse"),
];

#[test]
fn a_legacy_client_before_modern_servers() {
    before(LEGACY, "modern", "");
}

#[test]
fn a_legacy_client_before_legacy_servers() {
    before(LEGACY, "legacy", "");
}

#[test]
fn a_modern_client_before_modern_servers() {
    before(MODERN, "modern", "");
}

#[test]
fn a_modern_client_before_legacy_servers() {
    before(MODERN, "legacy", "");
}

#[test]
fn renamed_items_of_modern_servers_pass_a_legacy_client() {
    before(LEGACY, "modern", RENAMED);
}

#[test]
fn renamed_items_of_legacy_servers_pass_a_legacy_client() {
    before(LEGACY, "legacy", RENAMED);
}

#[test]
fn renamed_items_of_modern_servers_pass_a_modern_client() {
    before(MODERN, "modern", RENAMED);
}

#[test]
fn renamed_items_of_legacy_servers_pass_a_modern_client() {
    before(MODERN, "legacy", RENAMED);
}

#[test]
fn three_servers_of_three_kinds_look_like_one() {
    for revision in [LEGACY, MODERN] {
        serving::play(revision, &format!("serving-{revision}-split"), &SPLIT);
    }
}

#[test]
fn a_legacy_client_of_the_suites_own_servers() {
    behind("legacy");
}

#[test]
fn a_modern_client_of_the_suites_own_servers() {
    behind("modern");
}

#[test]
fn every_expected_failure_has_a_cell_and_a_reason() {
    let mut cells = BTreeSet::new();
    for revision in [LEGACY, MODERN] {
        cells.extend(["legacy", "modern"].map(|client| calling_cell(revision, client)));
        cells
            .extend(SERVERS.iter().flat_map(|server| ["", RENAMED].map(|names| serving_cell(revision, server, names))));
        cells.insert(format!("serving-{revision}-split"));
    }
    cell::check_folder(&cells);
}

#[test]
fn what_passes_the_relay_is_written_down() {
    let gateway = GatewaySetup::new().server("[server.auth]\nmode = \"none\"").start();
    let tap = Tap::start();
    let url = format!("http://{}/mcp", gateway.address);
    let path = format!("/{}/mcp", gateway.address.port());
    let relay = tap.base().trim_start_matches("http://").parse().unwrap();
    for era in ClientEra::BOTH {
        let mut client = Mcp::http_at(relay, None, era, &path, json!({}));
        assert!(client.tool_names().is_empty());
    }
    let entries = record::of_http(&tap.exchanges(&url), MODERN);
    let revisions: BTreeSet<&str> = entries.iter().map(RecordedMessage::revision).collect();
    assert_eq!(revisions, BTreeSet::from([LEGACY, MODERN]));
    for side in [Side::Client, Side::Server] {
        let mut wrong = Vec::new();
        assert!(record::judge("the relay", side, &entries, &mut wrong) >= 3, "{entries:#?}");
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Plays the cells of the servers of that era, with their names unchanged or [`RENAMED`].
fn before(revision: SuiteRevision, era: &str, names: &str) {
    // The cells run at once, since a cell waits most of the time.
    thread::scope(|scope| {
        for server in SERVERS.iter().filter(|server| server.era == era) {
            let played = if names == RENAMED { server.renamed().to_vec() } else { vec![*server] };
            let cell = serving_cell(revision, server, names);
            scope.spawn(move || serving::play(revision, &cell, &played));
        }
    });
}

fn serving_cell(revision: SuiteRevision, server: &SuiteServer, names: &str) -> String {
    format!("serving-{revision}-{}-{}{names}", server.era, server.transport)
}

fn behind(client: &'static str) {
    for revision in [LEGACY, MODERN] {
        calling::play(revision, &calling_cell(revision, client), client);
    }
}

fn calling_cell(revision: SuiteRevision, client: &str) -> String {
    format!("calling-{revision}-{client}-client")
}

/// The failures of a cell.
#[derive(Debug)]
struct CellVerdict {
    cell: String,
    wrong: Vec<String>,
    counts: Vec<(String, usize)>,
}

impl CellVerdict {
    fn new(cell: &str) -> Self {
        Self { cell: cell.to_owned(), wrong: Vec::new(), counts: Vec::new() }
    }

    /// Checks the gateway's messages there against the schema.
    fn messages(&mut self, place: &str, from: Side, entries: &[RecordedMessage]) {
        let count = record::judge(place, from, entries, &mut self.wrong);
        if count == 0 {
            self.wrong.push(format!("{place}: no message of the gateway was seen"));
        }
        self.counts.push((place.to_owned(), count));
    }

    /// Fails with the log of the run if there is any failure.
    fn end(self, story: impl FnOnce() -> String) {
        let Self { cell, wrong, counts } = self;
        eprintln!("{cell}: messages of the gateway that were checked: {counts:?}");
        assert!(wrong.is_empty(), "{cell}:\n{}\n{}", wrong.join("\n"), story());
    }
}
