//! Servers of the stage that listen on ports of its network.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Parser as _;
use tempfile::TempDir;
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::fake::{Args, FakeExit, FakeTransport, http, sse, start};
use super::net::Listener;
use super::{StageUse, block_on, stage};

/// The name of the one program of the stage.
pub(super) const FAKE: &str = "fake-upstream";

/// The path of a program of the stage. The file is there for those who look for it.
pub(crate) fn example(name: &str) -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    assert_eq!(name, FAKE, "a stage has no other program");
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("headend-stage-").tempdir().unwrap();
        let path = folder.path().join(FAKE);
        fs::write(&path, "#!/bin/sh\nexit 70\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    });
    folder.path().join(name)
}

/// A fake upstream that listens, and ends with this value.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) url: String,
    tasks: JoinSet<()>,
    frozen: watch::Sender<bool>,
    // Dropped last.
    _seat: StageUse,
}

impl Listening {
    /// Starts it.
    pub(crate) fn spawn(_program: &Path, args: &[String]) -> Self {
        let _seat = StageUse::take();
        let args = Args::parse_from(std::iter::once(FAKE).chain(args.iter().map(String::as_str)));
        let transport = args.transport;
        let front = Listener::bind(args.listen.port());
        let back = Listener::bind(0);
        let (address, inner) = (front.address, back.address.port());
        let path = if transport == FakeTransport::Sse { "sse" } else { "mcp" };
        let (frozen, is_frozen) = watch::channel(false);
        let number = super::program::fresh_number();
        let stage = stage();
        let _entered = stage.runtime.enter();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let server =
                start(args, FakeExit::new(number, |code| panic!("a server behind HTTP ends with {code}"))).await;
            match transport {
                FakeTransport::Stdio => panic!("a program on pipes listens nowhere"),
                FakeTransport::Http => http::serve(server, back, address).await,
                FakeTransport::Sse => sse::serve(server, back).await,
            }
        });
        tasks.spawn(relay(front, inner, is_frozen));
        Self { url: format!("http://{address}/{path}"), tasks, frozen, _seat }
    }

    /// Returns the address that the server listens on.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().unwrap()
    }

    /// Lets it stand still: its connections stay open and bring nothing.
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.frozen.send_replace(false);
    }
}

impl Drop for Listening {
    /// Ends its tasks at once, so that its port is free.
    fn drop(&mut self) {
        block_on(self.tasks.shutdown());
    }
}

/// Hands connections on, so that all of them end with the server.
async fn relay(mut front: Listener, inner: u16, frozen: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = axum::serve::Listener::accept(&mut front).await;
        let server = super::net::connect(inner);
        connections.spawn(join(client, server, frozen.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn join(mut client: DuplexStream, server: std::io::Result<DuplexStream>, mut frozen: watch::Receiver<bool>) {
    let Ok(mut server) = server else { return };
    loop {
        if frozen.wait_for(|frozen| !frozen).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            changed = frozen.wait_for(|frozen| *frozen) => if changed.is_err() { return },
            _ended = copy_bidirectional(&mut client, &mut server) => return,
        }
    }
}
