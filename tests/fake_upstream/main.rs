//! A scriptable MCP server for the end-to-end tests: both eras, stdio, HTTP and HTTP+SSE, well behaved or not.

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

mod asking;
mod behaviour;
mod damage;
mod foreign;
mod http;
mod jobs;
mod login;
mod polled;
mod script;
mod server;
mod slip;
mod sse;
mod stdio;
mod tools;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, ValueEnum};

use crate::behaviour::Behaviour;
use crate::server::Server;
use crate::slip::Slip;

/// A scriptable MCP server.
#[derive(Debug, Parser)]
struct Args {
    transport: Transport,
    /// Where to listen; the URL is printed as the first line.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[arg(long, default_value = "both")]
    era: Eras,
    /// The revision in the answer to `initialize`, in place of the requested one.
    #[arg(long)]
    revision: Option<String>,
    #[arg(long, default_value = "fx")]
    name: String,
    /// How many further tools to list.
    #[arg(long, default_value_t = 0)]
    tools: usize,
    /// Items on one page of a list.
    #[arg(long)]
    page_size: Option<usize>,
    /// File for a log of every message.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Script of verbatim answers to requests; over HTTP the last line alone unless `--answers sse`.
    #[arg(long)]
    script: Option<PathBuf>,
    /// File of members that replace those of definitions, by name or URI; read at each list.
    #[arg(long)]
    patch: Option<PathBuf>,
    /// File that says by method how a list is not answered, read at each list: an error's code, `"malformed"`, `"loop"`, `"silent"`,
    /// `{"after": milliseconds}`, over HTTP `{"status": number}`.
    #[arg(long)]
    lists: Option<PathBuf>,
    /// How POSTs are answered.
    #[arg(long, default_value = "json")]
    answers: Answers,
    /// Endpoint that the endpoint event of HTTP+SSE names in place of the true one.
    #[arg(long)]
    endpoint: Option<String>,
    /// While this file is there, HTTP requests are answered with 503, and nothing else happens.
    #[arg(long)]
    sick: Option<PathBuf>,
    /// Status and body of the answers to requests in an unknown session, with `${ID}` for the request's id.
    #[arg(long)]
    lost: Option<String>,
    /// The same for calls of the tool `denied`, in a session that is known.
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
    /// File with the numbers of sessions that the server has forgotten, in the order of their opening.
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Stdio,
    Http,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Eras {
    Legacy,
    Modern,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Answers {
    Json,
    Sse,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let (transport, listen) = (args.transport, args.listen);
    let server = Arc::new(Server::new(args));
    behaviour::at_start(&server).await;
    match transport {
        Transport::Stdio => stdio::serve(server).await,
        Transport::Http => http::serve(server, listen).await,
        Transport::Sse => sse::serve(server, listen).await,
    }
}
