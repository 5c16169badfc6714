//! The requests to a target, and the expected answers.

use std::fmt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use memchr::memmem;
use url::Url;

use crate::answer;
use crate::http::BenchConnection;

/// Digits of the number that makes a call unique: its id, and the beginning of its text.
const STAMP: usize = 13;

/// The smallest number of [`STAMP`] digits.
const FIRST_STAMP: u64 = 1_000_000_000_000;

/// Number of calls that one connection can make before its stamps meet those of the next one.
const STAMPS_PER_CONNECTION: u64 = 100_000_000;

/// Notices in a call of [`Scenario::Progress`].
const NOTICES: usize = 10;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// The kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scenario {
    /// A short text, echoed.
    Call,
    /// The whole list of tools, all pages.
    List,
    /// A result of 64 KiB.
    Big64k,
    /// A result of 1 MiB.
    Big1m,
    /// An argument of 64 KiB.
    Arg64k,
    /// An argument of 1 MiB.
    Arg1m,
    /// Ten progress notices before the result.
    Progress,
}

/// The kind of client that the load generator plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LoadEra {
    /// `initialize` once, then every connection uses that session.
    Legacy,
    /// Stateless: everything stands in the request.
    Modern,
}

/// An MCP endpoint.
#[derive(Clone, Debug)]
pub(crate) struct BenchEndpoint {
    /// `host:port`.
    pub(crate) authority: String,
    path: String,
    token: Option<String>,
}

impl BenchEndpoint {
    /// # Errors
    /// When `url` is not a plain HTTP URL, or the token file cannot be read.
    pub(crate) fn new(url: &str, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let url = Url::parse(url).with_context(|| format!("read the URL `{url}`"))?;
        ensure!(url.scheme() == "http", "only http:// can be measured");
        let (host, port) = (url.host_str().context("a URL without a host")?, url.port_or_known_default().unwrap_or(80));
        let token = token_file.map(|file| {
            let token = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            anyhow::Ok(token.trim().to_owned())
        });
        Ok(Self { authority: format!("{host}:{port}"), path: url.path().to_owned(), token: token.transpose()? })
    }
}

/// The part of a request that is the same for one target: its address, the era, and the session if
/// there is one.
#[derive(Clone, Debug)]
pub(crate) struct LoadSession {
    pub(crate) target: BenchEndpoint,
    era: LoadEra,
    id: Option<String>,
}

impl LoadSession {
    /// Returns a session of the stateless revision, without a request.
    pub(crate) fn modern(target: BenchEndpoint) -> Self {
        Self { target, era: LoadEra::Modern, id: None }
    }

    /// Opens a session in the way of `era` over `connection`.
    ///
    /// # Errors
    /// When the target refuses `initialize` or a request after it.
    pub(crate) async fn open(
        target: BenchEndpoint,
        era: LoadEra,
        connection: &mut BenchConnection,
    ) -> anyhow::Result<Self> {
        let mut session = Self { target, era, id: None };
        if era == LoadEra::Modern {
            return Ok(session);
        }
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#
        );
        let answer = connection.exchange(&session.http("POST", "", &initialize)).await.context("initialize")?;
        ensure!(answer.status == 200, "initialize: status {}: {}", answer.status, answer::excerpt(answer.body));
        session.id.clone_from(&answer.session);
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let request = session.http("POST", "", initialized);
        let answer = connection.exchange(&request).await.context("notifications/initialized")?;
        ensure!(answer.status == 202, "notifications/initialized: status {}", answer.status);
        Ok(session)
    }

    /// Ends the session, if there is one.
    ///
    /// # Errors
    /// When the connection breaks; any status will do.
    pub(crate) async fn close(&self, connection: &mut BenchConnection) -> anyhow::Result<()> {
        if self.id.is_some() {
            connection.exchange(&self.http("DELETE", "", "")).await.context("end the session")?;
        }
        Ok(())
    }

    /// Returns the request for the stream on which a legacy server speaks first.
    pub(crate) fn get_stream(&self) -> Vec<u8> {
        self.http("GET", "", "")
    }

    /// Reads the whole list of tools.
    ///
    /// # Errors
    /// When a page is refused or is no list.
    pub(crate) async fn count_tools(&self, connection: &mut BenchConnection, id: u64) -> anyhow::Result<usize> {
        let (mut tools, mut params) = (0, String::new());
        loop {
            let request = self.request(id, "tools/list", None, &params, "");
            let page = answer::page(&connection.exchange(&request).await?, id)?;
            tools += page.tools;
            match page.next {
                Some(cursor) if page.tools > 0 => params = format!(r#""cursor":"{cursor}""#),
                Some(_) => bail!("tools/list: an empty page that names a next one"),
                None => return Ok(tools),
            }
        }
    }

    /// Returns the names on the first page of the list of tools.
    ///
    /// # Errors
    /// When it is refused or is no list.
    pub(crate) async fn names_of_tools(
        &self,
        connection: &mut BenchConnection,
        id: u64,
    ) -> anyhow::Result<Vec<String>> {
        let request = self.request(id, "tools/list", None, "", "");
        answer::names(&connection.exchange(&request).await?, id)
    }

    /// Returns a request with `params` and `meta` as members without their braces.
    fn request(&self, id: u64, method: &str, name: Option<&str>, params: &str, meta: &str) -> Vec<u8> {
        let comma = |left: &str, right: &str| {
            if left.is_empty() || right.is_empty() { "" } else { "," }
        };
        let (headers, envelope) = match self.era {
            LoadEra::Legacy => (String::new(), String::new()),
            LoadEra::Modern => (
                format!(
                    "Mcp-Method: {method}\r\n{}",
                    name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default()
                ),
                format!(
                    r#""io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}"#
                ),
            ),
        };
        let mut meta = format!("{envelope}{}{meta}", comma(&envelope, meta));
        if !meta.is_empty() {
            meta = format!(r#"{}"_meta":{{{meta}}}"#, comma(params, &meta));
        }
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{meta}}}}}"#);
        self.http("POST", &headers, &body)
    }

    fn http(&self, verb: &str, headers: &str, body: &str) -> Vec<u8> {
        let BenchEndpoint { authority, path, token } = &self.target;
        let accept = if verb == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        let mut request = format!("{verb} {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: {accept}\r\n{headers}");
        if let Some(token) = token {
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        match (self.era, &self.id) {
            (LoadEra::Modern, _) => request.push_str(&format!("MCP-Protocol-Version: {MODERN}\r\n")),
            (LoadEra::Legacy, Some(id)) => {
                request.push_str(&format!("MCP-Protocol-Version: {LEGACY}\r\nMcp-Session-Id: {id}\r\n"));
            }
            (LoadEra::Legacy, None) => {}
        }
        if verb == "POST" {
            request.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        format!("{request}\r\n{body}").into_bytes()
    }
}

/// One caller's call: its request, rendered once and stamped with a fresh number each time, and the
/// text it must return.
#[derive(Debug)]
pub(crate) struct StampedCall {
    request: Vec<u8>,
    request_stamps: Vec<usize>,
    text: Vec<u8>,
    text_stamp: Option<usize>,
    notices: usize,
    stamp: u64,
}

impl StampedCall {
    /// Returns the call that the `caller`-th connection makes, of a tool whose exposed name begins
    /// with `prefix`.
    ///
    /// `None` for [`Scenario::List`], whose requests depend on the answers.
    pub(crate) fn new(session: &LoadSession, scenario: Scenario, caller: u64, prefix: &str) -> Option<Self> {
        let stamp = first_stamp(caller);
        let (tool, arguments, text) = match scenario {
            Scenario::Call => {
                let text = format!("{stamp} is what this call must return");
                ("echo", format!(r#""text":"{text}""#), text)
            }
            Scenario::Arg64k | Scenario::Arg1m => {
                let length: usize = if scenario == Scenario::Arg64k { 64 << 10 } else { 1 << 20 };
                let argument = format!("{stamp}{}", "a".repeat(length - STAMP));
                ("length", format!(r#""text":"{argument}""#), TextSummary::of(argument.as_bytes()).to_string())
            }
            Scenario::Big64k => ("big", format!(r#""bytes":{}"#, 64 << 10), "x".repeat(64 << 10)),
            Scenario::Big1m => ("big", format!(r#""bytes":{}"#, 1 << 20), "x".repeat(1 << 20)),
            Scenario::Progress => ("progress", format!(r#""n":{NOTICES}"#), "done".to_owned()),
            Scenario::List => return None,
        };
        let notices = if scenario == Scenario::Progress { NOTICES } else { 0 };
        let meta = if notices > 0 { format!(r#""progressToken":{stamp}"#) } else { String::new() };
        let name = format!("{prefix}{tool}");
        let params = format!(r#""name":"{name}","arguments":{{{arguments}}}"#);
        let request = session.request(stamp, "tools/call", Some(&name), &params, &meta);
        let digits = stamp.to_string();
        let request_stamps = memmem::find_iter(&request, digits.as_bytes()).collect();
        let text_stamp = memmem::find(text.as_bytes(), digits.as_bytes());
        Some(Self { request, request_stamps, text: text.into_bytes(), text_stamp, notices, stamp })
    }

    /// Makes the call once with the next stamp, and checks its answer.
    ///
    /// # Errors
    /// When the connection breaks or the answer is not the one to this call.
    pub(crate) async fn make(&mut self, connection: &mut BenchConnection) -> anyhow::Result<()> {
        self.stamp += 1;
        let digits = self.stamp.to_string();
        for at in &self.request_stamps {
            write_at(&mut self.request, *at, digits.as_bytes());
        }
        if let Some(at) = self.text_stamp {
            write_at(&mut self.text, at, digits.as_bytes());
        }
        let answer = connection.exchange(&self.request).await?;
        answer::check(&answer, self.stamp, &self.text, self.notices)
    }
}

/// Returns the number before the first call of the `caller`-th connection.
pub(crate) fn first_stamp(caller: u64) -> u64 {
    FIRST_STAMP + caller * STAMPS_PER_CONNECTION
}

fn write_at(bytes: &mut [u8], at: usize, digits: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + digits.len()) {
        place.copy_from_slice(digits);
    }
}

/// The answer of the tool `length` to a text that begins with a stamp, so that a long argument is
/// checked but not returned.
#[derive(Debug)]
pub(crate) struct TextSummary<'t> {
    stamp: &'t [u8],
    length: usize,
    /// Sum of the bytes after the stamp.
    sum: u64,
}

impl<'t> TextSummary<'t> {
    pub(crate) fn of(text: &'t [u8]) -> Self {
        let (stamp, rest) = text.split_at_checked(STAMP).unwrap_or_default();
        Self { stamp, length: text.len(), sum: rest.iter().map(|byte| u64::from(*byte)).sum() }
    }
}

impl fmt::Display for TextSummary<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stamp = String::from_utf8_lossy(self.stamp);
        write!(out, "{stamp} begins {} bytes of sum {}", self.length, self.sum)
    }
}
