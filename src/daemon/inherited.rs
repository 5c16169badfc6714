//! Listening sockets that another process has opened for this one.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A listening TCP socket, and the setting that it is for.
#[derive(Debug)]
pub(crate) struct InheritedListener {
    /// Key of the configuration.
    pub(crate) key: String,
    /// Address as the configuration has it, whose port may be 0.
    pub(crate) wanted: SocketAddr,
    pub(crate) socket: OwnedFd,
}

impl InheritedListener {
    /// Duplicates a socket for another process.
    ///
    /// # Errors
    /// This process may open no more files.
    pub(crate) fn duplicate(key: &str, wanted: SocketAddr, socket: &tokio::net::TcpListener) -> io::Result<Self> {
        Ok(Self { key: key.to_owned(), wanted, socket: socket.as_fd().try_clone_to_owned()? })
    }
}

/// The listening sockets of this process that another one has opened, until they are taken.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets {
    pub(crate) listeners: Vec<InheritedListener>,
    /// The admin socket and its path.
    pub(crate) admin: Option<(PathBuf, OwnedFd)>,
    /// True if the service manager keeps the admin socket open, so that its file has to stay.
    pub(crate) is_admin_kept: bool,
}

impl InheritedSockets {
    /// Takes the socket for a setting with this address, if there is one that has the address.
    /// Without `is_exact` any port will do.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub(crate) fn take(
        &mut self,
        key: &str,
        wanted: SocketAddr,
        is_exact: bool,
    ) -> io::Result<Option<tokio::net::TcpListener>> {
        let is_it = |listener: &InheritedListener| listener.key == key && listener.wanted == wanted;
        let Some(at) = self.listeners.iter().position(is_it) else { return Ok(None) };
        let listener = TcpListener::from(self.listeners.swap_remove(at).socket);
        let local = listener.local_addr()?;
        let has_port = !is_exact || wanted.port() == 0 || local.port() == wanted.port();
        if local.ip() != wanted.ip() || !has_port {
            return Ok(None);
        }
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener).map(Some)
    }

    /// Takes the admin socket if it is the one at this path.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub(crate) fn take_admin(&mut self, path: &Path) -> io::Result<Option<tokio::net::UnixListener>> {
        let Some((_, socket)) = self.admin.take_if(|(taken, _)| taken == path) else { return Ok(None) };
        let listener = UnixListener::from(socket);
        let bound = listener.local_addr()?;
        if bound.as_pathname() != Some(path) {
            return Ok(None);
        }
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_taken_once_and_for_its_setting_alone() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bound = tokio::net::TcpListener::bind(any).await.unwrap();
        let local = bound.local_addr().unwrap();
        let of = |wanted| InheritedListener::duplicate("a", wanted, &bound).unwrap();
        let elsewhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let mut sockets =
            InheritedSockets { listeners: vec![of(any), of(local), of(elsewhere)], admin: None, is_admin_kept: false };
        assert!(sockets.take("b", any, true).unwrap().is_none());
        for wanted in [any, local] {
            assert_eq!(sockets.take("a", wanted, true).unwrap().unwrap().local_addr().unwrap(), local);
            assert!(sockets.take("a", wanted, true).unwrap().is_none());
        }
        assert!(sockets.take("a", elsewhere, true).unwrap().is_none(), "the socket has another address");
    }
}
