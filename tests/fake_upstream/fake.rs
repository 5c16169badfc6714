//! The scriptable MCP server itself, for a process of its own (`main.rs`) and for a stage, which
//! runs it as a task.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::unwrap_in_result,
    clippy::result_large_err,
    clippy::wildcard_enum_match_arm,
    clippy::explicit_write,
    reason = "a test program: what surprises it should end it"
)]

#[path = "asking.rs"]
mod asking;
#[path = "behaviour.rs"]
mod behaviour;
#[path = "damage.rs"]
mod damage;
#[path = "foreign.rs"]
mod foreign;
#[path = "http.rs"]
pub(crate) mod http;
#[path = "jobs.rs"]
mod jobs;
#[path = "login.rs"]
mod login;
#[path = "polled.rs"]
mod polled;
#[path = "script.rs"]
mod script;
#[path = "server.rs"]
mod server;
#[path = "slip.rs"]
mod slip;
#[path = "sse.rs"]
pub(crate) mod sse;
#[path = "stdio.rs"]
pub(crate) mod stdio;
#[path = "tools.rs"]
mod tools;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, ValueEnum};

use self::behaviour::Behaviour;
pub(crate) use self::server::{FakeExit, FakeServer};
use self::slip::Slip;

/// A scriptable MCP server.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    pub(crate) transport: FakeTransport,
    /// Where to listen; the URL is printed as the first line.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    #[arg(long, default_value = "both")]
    era: FakeEras,
    /// The revision in the answer to `initialize`, in place of the requested one.
    #[arg(long)]
    revision: Option<String>,
    #[arg(long, default_value = "fx")]
    name: String,
    /// Number of further tools to list.
    #[arg(long, default_value_t = 0)]
    tools: usize,
    /// Items on one page of a list.
    #[arg(long)]
    page_size: Option<usize>,
    /// File for a log of every message.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Script of verbatim answers to requests; over HTTP the last line alone unless `--answers
    /// sse`.
    #[arg(long)]
    script: Option<PathBuf>,
    /// File of members that replace those of definitions, by name or URI; read at each list.
    #[arg(long)]
    patch: Option<PathBuf>,
    /// File that says by method how a list is not answered, read at each list: an error's code,
    /// `"malformed"`, `"loop"`, `"silent"`, `{"after": milliseconds}`, over HTTP `{"status":
    /// number}`.
    #[arg(long)]
    lists: Option<PathBuf>,
    /// How POSTs are answered.
    #[arg(long, default_value = "json")]
    answers: FakeResponseKind,
    /// Endpoint that the endpoint event of HTTP+SSE names in place of the true one.
    #[arg(long)]
    endpoint: Option<String>,
    /// While this file is there, HTTP requests are answered with 503, and nothing else happens.
    #[arg(long)]
    sick: Option<PathBuf>,
    /// Status and body of the answers to requests in an unknown session, with `${ID}` for the
    /// request's id.
    #[arg(long)]
    lost: Option<String>,
    /// Status and body of the answers to calls of the tool `denied`, in a session that is known.
    #[arg(long)]
    reject: Option<String>,
    /// Status and body of the answers to `server/discover` over HTTP; `silence` for none.
    #[arg(long)]
    discover: Option<String>,
    /// Media type of JSON answers over HTTP in place of the true one; `none` for no header, and
    /// `page` for a web page.
    #[arg(long)]
    media: Option<String>,
    /// Status and `Location` of the answers at the address that it prints; the server is at
    /// `/mcp/`, with HTTP+SSE at `/sse/`.
    #[arg(long)]
    redirect: Option<String>,
    /// File with the numbers of sessions that the server has forgotten, in the order of their
    /// opening.
    #[arg(long)]
    forget: Option<PathBuf>,
    /// Damages its answers, always in the same way for the same seed; stdio only.
    #[arg(long)]
    damage: Option<u64>,
    /// Writes all of its answers against the protocol in this way.
    #[arg(long)]
    slip: Option<Slip>,
    /// The origin that the documents of `login` name, where others reach it by another one than its
    /// own address.
    #[arg(long)]
    origin: Option<String>,
    #[arg(long = "behaviour", value_parser = Behaviour::parse)]
    behaviours: Vec<Behaviour>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FakeTransport {
    Stdio,
    Http,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FakeEras {
    Legacy,
    Modern,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FakeResponseKind {
    Json,
    Sse,
}

/// Makes the server of these arguments and runs its actions before the first read.
pub(crate) async fn start(args: Args, exit: FakeExit) -> Arc<FakeServer> {
    let server = Arc::new(FakeServer::new(args, exit));
    behaviour::at_start(&server).await;
    server
}
