//! Creates a week of audit records from a seed, with the record writer of the daemon.
//!
//! Of 10,000 calls, 40 % read, 30 % write with one of six tools, 5 % are denied, 2 % use tools that
//! their server calls destructive, 2 % use tools that are called once or twice, 1 % have names that
//! are special in patterns or in TOML, 1 % are never answered, and the rest needs no question,
//! because a rule or an earlier approval allows it. Eight callers make the calls.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headend_core::mcp::client_name::ClientName;
use headend_core::policy::records::chain::{ChainHead, ChainWriter, LogSettings};
use headend_core::policy::{
    ActionKind, Annotations, ApprovalEvidence, AuditEntry, AuditEvent, Caller, Claims, Digest, Hints, ToolFacts,
};
use headend_core::wire::json::raw::RawJson;
use serde_json::{Value, json};

pub(crate) const CALLS: u64 = 10_000;
pub(crate) const CALLERS: [&str; 8] = ["ann", "ben", "ci", "dora", "eli", "fay", "gus", "hal"];
const READS: [&str; 6] =
    ["files__read_file", "files__list", "git__log", "git__diff", "mail__search_mail", "mail__read_mail"];
/// Writing tools, whose argument a person looks at.
const WRITES: [&str; 6] =
    ["files__write_file", "files__move_file", "git__commit", "git__tag", "mail__draft", "mail__label"];
const DENIED: [&str; 4] = ["git__push_force", "mail__send_all", "files__chmod", "files__sometimes"];
const DESTRUCTIVE: [&str; 3] = ["files__delete_file", "git__reset_hard", "mail__empty_trash"];
/// Names with a star, braces, the end of a TOML string, and a pattern.
const ODD: [&str; 4] = ["odd__*", "odd__{a,b}", "odd__x\"]\n[policy]\ndefault = \"allow\"\n#", "odd__read_\\*"];

/// The true numbers of the week.
#[derive(Debug, Default)]
pub(crate) struct WeekTotals {
    pub(crate) questions: u64,
    pub(crate) approved: u64,
    pub(crate) records: u64,
}

/// Returns names that no rule may allow.
pub(crate) fn forbidden() -> impl Iterator<Item = &'static str> {
    DENIED.into_iter().chain(DESTRUCTIVE).chain(ODD)
}

struct Week {
    chain: ChainWriter,
    form: LogSettings,
    at: u64,
    call: u64,
    text: Vec<u8>,
    random: fastrand::Rng,
    truth: WeekTotals,
}

/// One call of the week.
struct WeekCall {
    entry: AuditEntry,
    answer: WeekAnswer,
}

#[derive(Clone, Copy)]
enum WeekAnswer {
    Yes(ApprovalEvidence, &'static str),
    No,
    None,
    /// Decided without a question: by a rule, or by a grant.
    Rule,
    Granted,
}

/// Writes the log into a folder. `keeps` says whether it contains the arguments.
pub(crate) fn write(folder: &Path, seed: u64, keeps: bool) -> WeekTotals {
    let week = Week::of("main", seed, keeps, CALLS);
    put(folder, "main", &week.text);
    week.truth
}

/// Writes the log of another chain with another number of calls, and returns the file.
pub(crate) fn write_chain(folder: &Path, chain: &str, seed: u64, keeps: bool, calls: u64) -> PathBuf {
    put(folder, chain, &Week::of(chain, seed, keeps, calls).text)
}

fn put(folder: &Path, chain: &str, text: &[u8]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(format!("audit-{chain}-000001.jsonl"));
    fs::write(&path, text).unwrap();
    path
}

impl Week {
    fn of(chain: &str, seed: u64, keeps: bool, calls: u64) -> Self {
        let week = (7 * 24 * 3600 - 1800) * 1000;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1000;
        let mut this = Self {
            chain: ChainWriter::after(ChainHead::none(chain)),
            form: LogSettings::new(&[7; 32], keeps),
            at: now - week,
            call: 0,
            text: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            truth: WeekTotals::default(),
        };
        // Half of the week is the time between calls; the rest may pass within them.
        let pause = (week / calls).max(2);
        this.record(AuditEntry::gateway("started", ""));
        for _ in 0..calls {
            this.at += this.random.u64(0..pause);
            let call = this.any();
            this.play(call, pause);
        }
        this
    }

    fn record(&mut self, entry: AuditEntry) {
        self.at += self.random.u64(1..4);
        self.chain.append(&entry, self.at, &self.form, &mut self.text);
        self.truth.records += 1;
    }

    fn pick(&mut self, names: &[&'static str]) -> &'static str {
        names[self.random.usize(0..names.len())]
    }

    fn any(&mut self) -> WeekCall {
        let caller = self.pick(&CALLERS);
        let number = self.random.u32(0..1_000_000);
        let how = self.pick(&["command", "console", "client"]);
        let yes = match how {
            "command" => WeekAnswer::Yes(ApprovalEvidence::Operator, "ann"),
            "console" => WeekAnswer::Yes(ApprovalEvidence::Page, "console"),
            _ => WeekAnswer::Yes(ApprovalEvidence::Client, "client"),
        };
        let call = |item: &str, facts, arguments: Value, answer| WeekCall {
            entry: entry(caller, item, facts, &arguments),
            answer,
        };
        let path = || json!({ "path": format!("/srv/{caller}/notes/{number}.md") });
        match self.random.u32(0..100) {
            0..40 => call(self.pick(&READS), reads(), path(), yes),
            40..70 => {
                let item = self.pick(&WRITES);
                let mut arguments = path();
                arguments["text"] = json!(format!("text {number}"));
                if item == "git__tag" {
                    arguments = json!({ "name": self.pick(&["nightly", "stable"]), "sign": true });
                }
                call(item, writes(), arguments, yes)
            }
            70..75 => {
                let item = self.pick(&DENIED);
                // One tool is approved more often than it is denied.
                let answer = if item == "files__sometimes" && self.random.u32(0..4) > 0 { yes } else { WeekAnswer::No };
                call(item, writes(), path(), answer)
            }
            75..77 => call(self.pick(&DESTRUCTIVE), destroys(), path(), yes),
            77..79 => {
                let item = format!("rare__tool_{}", self.random.u32(0..400));
                call(&item, writes(), path(), yes)
            }
            79 => call(self.pick(&ODD), reads(), path(), yes),
            80 => call(self.pick(&WRITES), writes(), path(), WeekAnswer::None),
            81..93 => call("web__search", reads(), json!({ "query": number }), WeekAnswer::Rule),
            _ => call("web__fetch", reads(), json!({ "url": number }), WeekAnswer::Granted),
        }
    }

    fn play(&mut self, call: WeekCall, pause: u64) {
        let number = self.call;
        self.call += 1;
        let base = AuditEntry { call: Some(number), ..call.entry };
        let decision = |result, rule: &str| AuditEntry { result, rule: Some(Arc::from(rule)), ..base.clone() };
        let grant = || Some(Arc::from(format!("g{number:x}")));
        let outcome = AuditEntry {
            event: AuditEvent::Outcome,
            arguments: None,
            facts: None,
            result: "ok",
            duration: Some(Duration::from_millis(12)),
            ..base.clone()
        };
        match call.answer {
            WeekAnswer::Rule => {
                self.record(decision("allow", "searches"));
                self.record(outcome);
                return;
            }
            WeekAnswer::Granted => {
                self.record(AuditEntry { grant: grant(), ..decision("allow", "default") });
                self.record(outcome);
                return;
            }
            WeekAnswer::Yes(..) | WeekAnswer::No | WeekAnswer::None => {}
        }
        self.truth.questions += 1;
        let approval: Option<Arc<str>> = Some(Arc::from(format!("p{number:x}")));
        let evidence = Some(ApprovalEvidence::Client);
        self.record(AuditEntry { evidence, ..decision("ask", "default") });
        self.record(AuditEntry {
            event: AuditEvent::Prompt,
            result: "",
            approval: approval.clone(),
            evidence,
            ..decision("", "default")
        });
        self.at += self.random.u64(0..pause / 3);
        let answer = AuditEntry {
            event: AuditEvent::Answer,
            call: None,
            arguments: None,
            facts: None,
            approval,
            ..decision("", "default")
        };
        match call.answer {
            WeekAnswer::Yes(evidence, by) => {
                self.truth.approved += 1;
                let (evidence, by) = (Some(evidence), Some(Arc::from(by)));
                self.record(AuditEntry { result: "granted", evidence, by: by.clone(), grant: grant(), ..answer });
                self.record(AuditEntry { evidence, by, grant: grant(), ..decision("allow", "default") });
                self.record(outcome);
            }
            WeekAnswer::No => self.record(AuditEntry {
                result: "denied",
                evidence: Some(ApprovalEvidence::Page),
                by: Some(Arc::from("console")),
                ..answer
            }),
            WeekAnswer::None | WeekAnswer::Rule | WeekAnswer::Granted => {
                self.record(AuditEntry { result: "timed-out", evidence: None, ..answer })
            }
        }
    }
}

fn entry(caller: &str, item: &str, facts: ToolFacts, arguments: &Value) -> AuditEntry {
    let upstream = item.split_once("__").unwrap().0;
    AuditEntry {
        caller: Some(Caller::named(caller)),
        client: ClientName::read(&RawJson::trusted(r#"{"name":"made-up","version":"1"}"#)),
        session: Some(0),
        upstream: Some(Arc::from(upstream)),
        kind: Some(ActionKind::Tool),
        item: Some(Arc::from(item)),
        facts: Some(facts),
        definition: Some(Digest::of(item.as_bytes())),
        arguments: Some(RawJson::trusted(arguments.to_string())),
        ..AuditEntry::new(AuditEvent::Decision)
    }
}

fn facts(hints: Hints, known_destructive: bool) -> ToolFacts {
    let annotations = Annotations { known_destructive, ..Annotations::ASSUMED };
    ToolFacts { annotations, claims: Claims { hints, may_open: true } }
}

fn reads() -> ToolFacts {
    facts(Hints { read_only: Some(true), ..Hints::default() }, false)
}

fn writes() -> ToolFacts {
    facts(Hints { read_only: Some(false), destructive: Some(false), ..Hints::default() }, false)
}

fn destroys() -> ToolFacts {
    facts(Hints { destructive: Some(true), ..Hints::default() }, true)
}
