//! The audit log's chain of records: the format of a line, how lines are written, and how a log is
//! verified.
//!
//! A log is a sequence of lines in files ("segments") `audit-<chain>-<number>.jsonl`. Each line is
//! one record, a JSON object that was written without spaces:
//!
//! ```text
//! {"v":1,"seq":7,"ts":"2026-11-21T10:15:00.250Z", .. ,"prev":"<64 hex>","hash":"<64 hex>"}
//! ```
//!
//! `seq` counts from 1 without gaps, over all segments. `prev` is the `hash` of the record before;
//! for the very first record it is the SHA-256 of the chain's name. `hash` is the SHA-256 of the 64
//! digits of `prev`, followed by the bytes of the line from its first byte up to, not including,
//! `,"hash":"`. The first two members and the last two always have these positions, so a line is
//! verified by its bytes, without parsing JSON:
//!
//! ```python
//! import sys, hashlib
//! prev, seq = hashlib.sha256(b"main").hexdigest(), 0  # the chain's name
//! for line in sys.stdin.buffer:                # cat audit-main-*.jsonl | python3 verify.py
//!     body, hash = line[:-76], line[-67:-3].decode()       # ..,"hash":"<64 digits>"}\n
//!     seq += 1
//!     assert body.startswith(b'{"v":1,"seq":%d,' % seq), f"record {seq} is missing"
//!     assert body.endswith(b',"prev":"%s"' % prev.encode()), f"record {seq} follows another"
//!     assert hashlib.sha256(prev.encode() + body).hexdigest() == hash, f"record {seq} was changed"
//!     prev = hash
//! print(f"main:{seq}:{prev}")
//! ```
//!
//! A caller's calls of items that it cannot see are one `decision` and then one line a minute with
//! `"event":"refusals"`, `"count"` and the items in `"why"`; see `policy::refusals`.
//!
//! An operator's action that is more than a look is one line with `"event":"action"`: `action` is
//! its word (see `policy::record::OperatorAction`), `name` its object, `by` the person or the
//! cause, `result` the outcome (`done`, `refused`, or `unfinished` if headend ended before it),
//! `why` the outcome in words. The effects of the action on each approval, grant or pin have lines
//! of their own.
//!
//! One reading of an upstream's lists that changes more than 20 pins is one line with
//! `"event":"pin"` and `"result":"relisted"`: `count` is the number of changed pins, `changes` has
//! the counts of items that were `added`, `changed`, `withheld` and `removed`, and a `digest` over
//! all changes, whose text `policy::record::ListChanges` describes.
//!
//! The chain shows every change but one: if the last records are cut off, the rest is still sound.
//! Therefore the last record's number and hash (the *head*) are kept elsewhere as well: in the
//! store, and in the journal with every thousandth record.
//!
//! With `retain`, the oldest files are removed after a record with `"result":"removed"` says which
//! records go and the hash of the last one of them (`"removed"`; see [`RecordRemoval`]). Such a log
//! begins later, with the record after the removed ones: begin the verification with the `until`
//! and `hash` of the last such removal.
//!
//! `caller` is the caller's name. `caller-kind` is beside it if another caller can have that name:
//! `anyone` is a client when no credential is required; `local` without a kind is our own user.
//! Records of earlier releases have no `caller-kind`.
//!
//! `client` is the name that the client gives itself, which nothing proves. `hints` are the
//! effective annotations of a tool at that moment, `claims` its server's own words (a word after
//! `not-` is denied), and `heard` says that an allow rule may go by them; see `chain::facts`. With
//! them the decision can be made again under other rules. Records of earlier releases lack the
//! three.
//!
//! `args` is not the arguments but the first 16 bytes of their HMAC-SHA-256 under a key of the
//! installation, over their canonical text: a reader of the log sees that two calls had the same
//! arguments, but cannot find out what they were by trying.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::hmac;
use time::OffsetDateTime;

use super::record::{AuditEntry, ListChanges, RecordRemoval};
use crate::mcp::client_name::ClientName;
use crate::policy::caller::Caller;
use crate::wire::canonical::canonicalize;
use crate::wire::digest::Digest;
use crate::wire::digest::hexadecimal;
use crate::wire::json::plain::is_plain;
use crate::wire::json::raw::RawJson;

mod facts;
mod line;
mod reader;
mod retain;

pub use self::line::{AuditLine, LoggedArguments};
pub use self::reader::{BadRecord, ChainVerifier, RecordDefect, SoundLog};
pub use self::retain::{LogPiece, RetentionBounds, order_times};

/// Most bytes of arguments in a record, if arguments are written down.
const MAX_ARGUMENTS: usize = 64 << 10;
/// Most bytes of any other text in a record; names and reasons are far shorter.
const MAX_TEXT: usize = 4 << 10;
/// Bytes of the HMAC over the arguments that are written.
const MAC_BYTES: usize = 16;

/// Text before the digits of `prev`.
const PREV: &[u8] = b",\"prev\":\"";
/// Text before the digits of `hash`.
const HASH: &[u8] = b",\"hash\":\"";
/// Text before the number of a record.
const START: &[u8] = b"{\"v\":1,\"seq\":";

/// The number and hash of a chain's last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The record's number; zero before the first record.
    pub seq: u64,
    pub hash: Digest,
}

impl ChainHead {
    /// Returns the head of a chain without records.
    pub fn none(chain: &str) -> Self {
        Self { seq: 0, hash: Digest::of(chain.as_bytes()) }
    }

    /// Returns the head before the record in a line, from the number and `prev` that the line
    /// states.
    pub fn before_line(line: &[u8]) -> Option<Self> {
        let parts = LineParts::of(line)?;
        Some(Self { seq: parts.seq.checked_sub(1)?, hash: parts.prev })
    }

    /// Returns the head after the record in a line, if the line is a whole record whose hash is
    /// right. Does not check the records before it.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        let parts = LineParts::of(line)?;
        (parts.computed() == parts.hash).then_some(Self { seq: parts.seq, hash: parts.hash })
    }
}

impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// Settings of a log: the installation's key, and whether arguments are written in full.
pub struct LogSettings {
    key: hmac::Key,
    /// Whether arguments are written in full, beside their digest.
    arguments: bool,
}

impl fmt::Debug for LogSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Form {{ arguments: {} }}", self.arguments)
    }
}

impl LogSettings {
    /// `key` is the secret of the installation.
    pub fn new(key: &[u8; 32], arguments: bool) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), arguments }
    }

    /// Sets whether arguments are written in full from here on.
    pub const fn set_arguments(&mut self, arguments: bool) {
        self.arguments = arguments;
    }

    /// Signs a removal with the installation's key: sets its `mac`.
    pub fn vouch(&self, removal: &mut RecordRemoval) {
        removal.mac = HEXLOWER.encode(hmac::sign(&self.key, &signed_text(removal)).as_ref());
    }

    /// Whether the removal's `mac` was made with the installation's key.
    pub fn vouches(&self, removal: &RecordRemoval) -> bool {
        let mac = HEXLOWER.decode(removal.mac.as_bytes()).unwrap_or_default();
        hmac::verify(&self.key, &signed_text(removal), &mac).is_ok()
    }
}

/// Returns the signed text of a removal: the chain, and the records that are gone. Arguments, which
/// are signed with the same key, never have this form.
fn signed_text(removal: &RecordRemoval) -> Vec<u8> {
    let RecordRemoval { chain, from, until, hash, .. } = removal;
    format!("removed:{chain}:{from}:{until}:{}", hash.hex()).into_bytes()
}

/// The writer of a chain: makes each record's line and keeps the head.
#[derive(Clone, Copy, Debug)]
pub struct ChainWriter {
    head: ChainHead,
}

impl ChainWriter {
    /// Continues a chain after this record.
    pub const fn after(head: ChainHead) -> Self {
        Self { head }
    }

    pub const fn head(&self) -> ChainHead {
        self.head
    }

    /// Appends a record's line to `out`, with its newline, and moves the head. `at` is in
    /// milliseconds since 1970.
    pub fn append(&mut self, entry: &AuditEntry, at: u64, form: &LogSettings, out: &mut Vec<u8>) {
        let from = out.len();
        let seq = self.head.seq + 1;
        let prev = self.head.hash.digits();
        let prev = prev.as_flattened();
        out.extend_from_slice(START);
        number(seq, out);
        write_members(entry, at, form, out);
        out.extend_from_slice(PREV);
        out.extend_from_slice(prev);
        out.push(b'"');
        let hash = Digest::of_parts(&[prev, out.get(from..).unwrap_or_default()]);
        out.extend_from_slice(HASH);
        out.extend_from_slice(hash.digits().as_flattened());
        out.extend_from_slice(b"\"}\n");
        self.head = ChainHead { seq, hash };
    }
}

/// The number and hashes that a line states.
struct LineParts<'l> {
    seq: u64,
    /// The bytes that the hash covers, besides the digits of `prev`.
    content: &'l [u8],
    prev: Digest,
    hash: Digest,
}

impl<'l> LineParts<'l> {
    /// Splits a line without its newline; `None` if it is no record.
    fn of(line: &'l [u8]) -> Option<Self> {
        let (content, hash) = last_member(line.strip_suffix(b"}")?, HASH)?;
        let (_, prev) = last_member(content, PREV)?;
        let rest = content.strip_prefix(START)?;
        let digits = rest.get(..rest.iter().position(|byte| !byte.is_ascii_digit())?)?;
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        // Each number has one spelling: no leading zeros, and a member behind it.
        let plain = !digits.starts_with(b"0") && rest.get(digits.len()) == Some(&b',');
        plain.then_some(Self { seq: number, content, prev, hash })
    }

    /// Returns the hash that the line should have.
    fn computed(&self) -> Digest {
        Digest::of_parts(&[self.prev.digits().as_flattened(), self.content])
    }
}

/// Returns the date that a record begins with, as written; nothing in it is checked.
pub fn date_of(line: &[u8]) -> Option<&str> {
    let rest = line.strip_prefix(START)?;
    let rest = rest.get(rest.iter().position(|byte| *byte == b',')?..)?.strip_prefix(b",\"ts\":\"")?;
    std::str::from_utf8(rest.get(..24)?).ok()
}

/// Splits `..,"name":"<64 digits>"` into the text before it and the digest.
fn last_member<'l>(text: &'l [u8], name: &[u8]) -> Option<(&'l [u8], Digest)> {
    let text = text.strip_suffix(b"\"")?;
    let (before, digits) = text.split_at_checked(text.len().checked_sub(64)?)?;
    let digest = Digest::from_hex(std::str::from_utf8(digits).ok()?)?;
    Some((before.strip_suffix(name)?, digest))
}

/// Writes all members between `seq` and `prev`.
fn write_members(entry: &AuditEntry, at: u64, form: &LogSettings, out: &mut Vec<u8>) {
    word("ts", &timestamp_digits(at), out);
    word("event", entry.event.into_str().as_bytes(), out);
    write_own_word("action", entry.action.map(Into::into), out);
    write_optional_text("name", entry.name.as_deref(), out);
    if let Some(call) = entry.call {
        let digits = hexadecimal(call.to_be_bytes());
        let digits = digits.as_flattened();
        let zeros = digits.iter().take(digits.len() - 1).take_while(|digit| **digit == b'0').count();
        word("call", digits.get(zeros..).unwrap_or_default(), out);
    }
    write_optional_text("caller", entry.caller.as_ref().map(Caller::name), out);
    write_own_word("caller-kind", entry.caller.as_ref().and_then(Caller::shared_name_kind), out);
    if let Some(client) = &entry.client {
        write_client(client, out);
    }
    if let Some(session) = entry.session {
        key("session", out);
        number(session, out);
    }
    write_optional_text("profile", entry.profile.as_deref(), out);
    write_optional_text("upstream", entry.upstream.as_deref(), out);
    write_own_word("kind", entry.kind.map(Into::into), out);
    write_optional_text("item", entry.item.as_deref(), out);
    if let Some(facts) = &entry.facts {
        key("hints", out);
        facts::put_hints(&facts.annotations, out);
        if facts.claims.hints.values().iter().any(Option::is_some) {
            key("claims", out);
            facts::put_claims(&facts.claims.hints, out);
        }
        if facts.claims.may_open {
            key("heard", out);
            out.extend_from_slice(b"true");
        }
    }
    if let Some(definition) = entry.definition {
        word("definition", definition.digits().as_flattened(), out);
    }
    if let Some(arguments) = &entry.arguments {
        write_arguments(arguments, form, out);
    }
    write_own_word("result", Some(entry.result).filter(|word| !word.is_empty()), out);
    write_optional_text("rule", entry.rule.as_deref(), out);
    write_optional_text("grant", entry.grant.as_deref(), out);
    write_optional_text("prompt", entry.approval.as_deref(), out);
    write_own_word("evidence", entry.evidence.map(Into::into), out);
    write_optional_text("by", entry.by.as_deref(), out);
    if let Some(count) = entry.count {
        key("count", out);
        number(count, out);
    }
    if let Some(changes) = &entry.changes {
        write_changes(changes, out);
    }
    if let Some(removal) = &entry.removed {
        key("removed", out);
        // Writing texts and numbers to memory cannot fail.
        drop(serde_json::to_writer(&mut *out, removal));
    }
    write_optional_text("why", Some(&*entry.why).filter(|why| !why.is_empty()), out);
    if let Some(duration) = entry.duration {
        key("us", out);
        number(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX), out);
    }
}

/// Writes the digest of the arguments and, if the settings say so, the arguments.
fn write_arguments(arguments: &RawJson, form: &LogSettings, out: &mut Vec<u8>) {
    // Arguments that are not JSON cannot have come this far; if they did, their bytes are digested.
    let canonical = canonicalize(arguments).ok();
    let bytes = canonical.as_deref().unwrap_or(arguments.bytes());
    let tag = hmac::sign(&form.key, bytes).as_ref().first_chunk::<MAC_BYTES>().copied().unwrap_or_default();
    word("args", hexadecimal(tag).as_flattened(), out);
    if !form.arguments {
        return;
    }
    match canonical.as_deref() {
        Some(json) if json.len() <= MAX_ARGUMENTS && !json.contains(&b'\n') => {
            key("arguments", out);
            out.extend_from_slice(json);
        }
        _ => {
            let shown = bytes.get(..MAX_ARGUMENTS).unwrap_or(bytes);
            key("arguments", out);
            string(&String::from_utf8_lossy(shown), out);
            key("arguments-bytes", out);
            number(bytes.len() as u64, out);
        }
    }
}

/// Writes the counts of the pins that one reading changed.
fn write_changes(changes: &ListChanges, out: &mut Vec<u8>) {
    let ListChanges { added, changed, withheld, removed, digest } = changes;
    key("changes", out);
    out.push(b'{');
    let counts = [("added", added), ("changed", changed), ("withheld", withheld), ("removed", removed)];
    for (name, count) in counts {
        out.extend_from_slice(format!("\"{name}\":{count},").as_bytes());
    }
    out.extend_from_slice(format!("\"digest\":\"{}\"}}", digest.hex()).as_bytes());
}

/// Writes the name that a client gives itself, as it is displayed.
fn write_client(client: &ClientName, out: &mut Vec<u8>) {
    match &client.version {
        None => text("client", &client.name, out),
        Some(version)
            if is_plain(&client.name) && is_plain(version) && client.name.len() + version.len() < MAX_TEXT =>
        {
            key("client", out);
            for piece in ["\"", &*client.name, " ", &**version, "\""] {
                out.extend_from_slice(piece.as_bytes());
            }
        }
        Some(_) => text("client", &client.to_string(), out),
    }
}

/// Appends a member whose value is a constant of headend without characters to escape; nothing for
/// `None`.
fn write_own_word(name: &str, value: Option<&'static str>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        word(name, value.as_bytes(), out);
    }
}

/// Appends a member with a text, cut to [`MAX_TEXT`]; nothing for `None`.
fn write_optional_text(name: &str, value: Option<&str>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        text(name, value, out);
    }
}

/// Appends a member with a text, escaped, and cut to [`MAX_TEXT`] bytes.
fn text(name: &str, value: &str, out: &mut Vec<u8>) {
    key(name, out);
    if value.len() <= MAX_TEXT {
        string(value, out);
    } else {
        let end = (0..=MAX_TEXT).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
        string(&format!("{}…", value.get(..end).unwrap_or_default()), out);
    }
}

/// Appends a member with a text that has no characters to escape.
fn word(name: &str, value: &[u8], out: &mut Vec<u8>) {
    key(name, out);
    out.push(b'"');
    out.extend_from_slice(value);
    out.push(b'"');
}

fn key(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn string(value: &str, out: &mut Vec<u8>) {
    if is_plain(value) {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
        return;
    }
    // Writing a string to memory cannot fail.
    drop(serde_json::to_writer(out, value));
}

fn number(value: u64, out: &mut Vec<u8>) {
    drop(serde_json::to_writer(out, &value));
}

/// Returns a time in RFC 3339, in UTC with milliseconds. `at` is in milliseconds since 1970; a time
/// beyond the calendar becomes 1970.
pub fn timestamp(at: u64) -> String {
    timestamp_digits(at).map(char::from).iter().collect()
}

/// Returns [`timestamp`] as bytes, without allocating. Each call writes two; a general formatter
/// would take a tenth of the time of a record.
fn timestamp_digits(at: u64) -> [u8; 24] {
    let seconds = i64::try_from(at / 1000).unwrap_or(i64::MAX);
    let (time, milliseconds) =
        OffsetDateTime::from_unix_timestamp(seconds).map_or((OffsetDateTime::UNIX_EPOCH, 0), |time| (time, at % 1000));
    let ((year, month, day), (hour, minute, second)) = (time.to_calendar_date(), time.to_hms());
    let year = u64::from(year.unsigned_abs());
    let mut out = *b"0000-00-00T00:00:00.000Z";
    for (at, value) in [
        (0, year / 100),
        (2, year),
        (5, u64::from(u8::from(month))),
        (8, u64::from(day)),
        (11, u64::from(hour)),
        (14, u64::from(minute)),
        (17, u64::from(second)),
        (20, milliseconds / 10),
        (21, milliseconds),
    ] {
        if let Some([tens, ones]) = out.get_mut(at..at + 2) {
            (*tens, *ones) = (digit(value / 10), digit(value));
        }
    }
    out
}

/// Returns the last decimal digit of a number.
fn digit(value: u64) -> u8 {
    b'0' + u8::try_from(value % 10).unwrap_or(0)
}

#[cfg(test)]
mod tests;
