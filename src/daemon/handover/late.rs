//! Requests that arrive at the old process after a hand-over: how both processes connect for them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::daemon::gateway::RunningGateway;
use crate::daemon::hello::{HelloLine, encode_passing_hello, published_socket};
use crate::serve::front::ListenerState;
use crate::serve::late::{PassedOrigin, Successor};

/// Longest hello of the other process, in bytes.
const MAX_HELLO_BYTES: u64 = 64 * 1024;

/// Returns the process that has taken over, to which requests are passed by its admin socket.
pub(super) fn connect_to_successor(gateway: &RunningGateway) -> Successor {
    let state = gateway.store.as_ref().map(|store| store.dir().to_owned());
    let own = gateway.socket.get().cloned();
    Successor::new(Box::new(move |origin| {
        // The new process publishes its socket, which may have another path.
        let path = state.as_deref().and_then(published_socket).or_else(|| own.clone());
        Box::pin(connect(path, origin))
    }))
}

/// Connects to the admin socket at `path` for one request.
///
/// # Errors
/// No process of our own user answers there, or it refuses.
async fn connect(path: Option<PathBuf>, origin: PassedOrigin) -> io::Result<UnixStream> {
    let path = path.ok_or_else(|| io::Error::other("there is no admin socket"))?;
    let mut stream = UnixStream::connect(&path).await?;
    // Requests have the credentials of clients in them.
    if stream.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("another user serves {}", Path::display(&path))));
    }
    stream.write_all(encode_passing_hello(&origin).as_bytes()).await?;
    let mut line = String::new();
    // The other process writes nothing more before it gets the request.
    BufReader::new((&mut stream).take(MAX_HELLO_BYTES)).read_line(&mut line).await?;
    let hello: HelloLine = serde_json::from_str(&line).map_err(io::Error::other)?;
    match hello.error {
        Some(why) => Err(io::Error::other(why)),
        None => Ok(stream),
    }
}

/// Returns the listener of this process for a request that another one passes on.
pub(in crate::daemon) fn find_listener(gateway: &RunningGateway, origin: &PassedOrigin) -> Option<Arc<ListenerState>> {
    let doors = gateway.doors.get()?;
    doors.fronts.lock().iter().find(|front| front.local == origin.listener).cloned()
}
