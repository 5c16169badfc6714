//! A scriptable MCP server for the end-to-end tests: both eras, stdio, HTTP and HTTP+SSE, well
//! behaved or not.
#![allow(clippy::unwrap_used, clippy::explicit_write, reason = "a test program: what surprises it should end it")]

use std::io::Write as _;

use clap::Parser as _;
use tokio::net::TcpListener;

mod fake;

use self::fake::{Args, FakeExit, FakeTransport, http, sse, start, stdio};

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let (transport, listen) = (args.transport, args.listen);
    let server = start(args, FakeExit::new(std::process::id(), |code| std::process::exit(code))).await;
    let listener = async {
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let path = if transport == FakeTransport::Sse { "sse" } else { "mcp" };
        writeln!(std::io::stdout(), "http://{address}/{path}").unwrap();
        std::io::stdout().flush().unwrap();
        (listener, address)
    };
    match transport {
        FakeTransport::Stdio => {
            stdio::serve(server, tokio::io::stdin(), tokio::io::stdout()).await;
            std::process::exit(0);
        }
        FakeTransport::Http => {
            let (listener, address) = listener.await;
            http::serve(server, listener, address).await;
        }
        FakeTransport::Sse => sse::serve(server, listener.await.0).await,
    }
}
