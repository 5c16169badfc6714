//! Listening sockets that the service manager opens for this process, so that connections wait in
//! them while it restarts. Source: `sd_listen_fds(3)`.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::daemon::inherited::{InheritedListener, InheritedSockets};

/// The listening sockets that the service manager passed, before settings are found for them.
#[derive(Debug, Default)]
pub(crate) struct ActivatedSockets {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    /// A sentence for each descriptor that is no listening stream socket.
    doubts: Vec<String>,
}

impl ActivatedSockets {
    /// Takes the sockets that the environment names, and removes its variables. Ignores variables
    /// for another process. Call it once, before this process starts a thread.
    pub(crate) fn take() -> Self {
        let mut taken = Self::default();
        // The check also keeps all descriptors from programs that this process starts.
        let count = match sd_notify::listen_fds() {
            Ok(passed) if passed.len() == 0 => return taken,
            Ok(passed) => passed.len(),
            Err(error) => {
                taken.doubts.push(format!("the sockets of the service manager are not used: {error}"));
                return taken;
            }
        };
        if std::env::var_os("LISTEN_FDS_FIRST_FD").is_some() {
            taken.doubts.push("the sockets of the service manager are not used: LISTEN_FDS_FIRST_FD is set".to_owned());
            return taken;
        }
        let mut passed = ListenFd::from_env();
        for at in 0..count {
            taken.sort_in(&mut passed, at);
        }
        taken
    }

    /// Takes one descriptor. Closes it unless it is a listening stream socket.
    fn sort_in(&mut self, passed: &mut ListenFd, at: usize) {
        let is_listening = |socket: &dyn AsFd| socket_acceptconn(socket.as_fd()).unwrap_or(false);
        match (passed.take_tcp_listener(at), passed.take_unix_listener(at)) {
            (Ok(Some(listener)), _) if is_listening(&listener) => return self.tcp.push(listener),
            (_, Ok(Some(listener))) if is_listening(&listener) => return self.unix.push(listener),
            _ => {}
        }
        // A socket of another kind is closed with the value; a file that is no socket stays open.
        drop((passed.take_udp_socket(at), passed.take_unix_datagram(at)));
        let number = at + 3;
        self.doubts.push(format!("descriptor {number} of the service manager is no listening stream socket"));
    }

    /// Returns the sockets of the settings that have the same address: `wanted` are keys of the
    /// configuration with their addresses, `admin` is the path of the admin socket. Logs and closes
    /// all others.
    pub(crate) fn assign(mut self, wanted: &[(&str, SocketAddr)], admin: Option<&Path>) -> InheritedSockets {
        let mut sockets = InheritedSockets::default();
        for (key, address) in wanted {
            let is_it = |listener: &TcpListener| listener.local_addr().is_ok_and(|local| local == *address);
            if let Some(at) = self.tcp.iter().position(is_it) {
                let socket = self.tcp.swap_remove(at).into();
                sockets.listeners.push(InheritedListener { key: (*key).to_owned(), wanted: *address, socket });
            }
        }
        let path_of = |listener: &UnixListener| Some(listener.local_addr().ok()?.as_pathname()?.to_owned());
        if let Some(at) = self.unix.iter().position(|listener| admin.is_some() && path_of(listener).as_deref() == admin)
        {
            let path = admin.map(Path::to_owned).unwrap_or_default();
            sockets.admin = Some((path, self.unix.swap_remove(at).into()));
            sockets.is_admin_kept = true;
        }
        let tcp = self.tcp.iter().map(|listener| listener.local_addr().map(|local| local.to_string()));
        let unix = self.unix.iter().map(|listener| {
            Ok(path_of(listener)
                .map_or_else(|| "a socket without a path".to_owned(), |path| path.display().to_string()))
        });
        let unwanted = tcp.chain(unix).map(|place: std::io::Result<String>| {
            let place = place.unwrap_or_else(|error| error.to_string());
            format!(
                "no setting has the address {place} of a socket of the service manager, which is closed; write the same \
                 address in the unit and in the configuration"
            )
        });
        for doubt in std::mem::take(&mut self.doubts).into_iter().chain(unwanted) {
            tracing::warn!(warning = %doubt, "socket activation");
        }
        sockets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_goes_to_the_setting_with_its_address_and_to_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (one, two) = (bind(), bind());
        let [first, second] = [&one, &two].map(|listener| listener.local_addr().unwrap());
        let path = dir.path().join("s");
        let other = dir.path().join("other");
        let unix = || vec![UnixListener::bind(&path).unwrap(), UnixListener::bind(&other).unwrap()];
        let activated = ActivatedSockets { tcp: vec![one, two], unix: unix(), doubts: Vec::new() };
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let sockets = activated.assign(&[("a", second), ("b", any)], Some(&path));
        let taken: Vec<_> = sockets.listeners.iter().map(|listener| (&*listener.key, listener.wanted)).collect();
        assert_eq!(taken, [("a", second)]);
        assert_eq!(sockets.admin.as_ref().map(|(path, _)| path), Some(&path));
        assert!(sockets.is_admin_kept);
        assert!(TcpListener::bind(first).is_ok(), "a socket that no setting wants is closed");
        assert!(TcpListener::bind(second).is_err());
        assert!(std::os::unix::net::UnixStream::connect(&other).is_err());
    }
}
