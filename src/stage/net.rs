//! The network of a stage: ports that servers of the stage listen on, and connections in memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

/// Bytes that wait in a connection in each direction.
const BUFFER: usize = 256 * 1024;
/// The first port of a stage.
const FIRST: u16 = 7001;

thread_local! {
    static LISTENERS: RefCell<HashMap<u16, mpsc::UnboundedSender<DuplexStream>>> = RefCell::default();
}

/// A listener on a port of the stage. Dropped, it refuses connections.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    connections: mpsc::UnboundedReceiver<DuplexStream>,
}

impl Listener {
    /// Listens on that port, or on a fresh one for port 0.
    pub(crate) fn bind(port: u16) -> Self {
        let (sender, connections) = mpsc::unbounded_channel();
        let port = LISTENERS.with_borrow_mut(|listeners| {
            let is_free = |port: &u16| listeners.get(port).is_none_or(mpsc::UnboundedSender::is_closed);
            // A port that no server of this stage has had: clients of an ended one try its port
            // again.
            let fresh = |port: &u16| !listeners.contains_key(port);
            let port = if port == 0 { (FIRST..).find(fresh).unwrap() } else { port };
            assert!(is_free(&port), "port {port} of the stage is in use");
            listeners.insert(port, sender);
            port
        });
        Self { address: SocketAddr::from(([127, 0, 0, 1], port)), connections }
    }
}

impl axum::serve::Listener for Listener {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.connections.recv().await {
            Some(stream) => (stream, self.address),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Makes the connections of this thread lead to its ports.
pub(super) fn enter() {
    headend_shell::stage::net::install_connector(Some(connect));
}

/// Forgets all ports, and lets connections lead to the network again.
pub(super) fn leave() {
    headend_shell::stage::net::install_connector(None);
    LISTENERS.take();
}

/// Connects to a port of the stage.
pub(super) fn connect(port: u16) -> io::Result<DuplexStream> {
    let (ours, theirs) = duplex(BUFFER);
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    LISTENERS.with_borrow(|listeners| {
        let listener = listeners.get(&port).ok_or_else(refused)?;
        listener.send(theirs).map_err(|_| refused())
    })?;
    Ok(ours)
}
