//! Handshakes between replicas, over pipes in memory.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

/// Connects to a replica that has the key `server`, whose row says `wanted`. Returns the digest of
/// the key that the server has seen.
async fn connect(client: Option<&PeerTls>, server: &PeerTls, wanted: Digest) -> Result<Digest, String> {
    let config = match client {
        Some(client) => client.client(wanted)?,
        // A client of the internet, which has no key.
        None => {
            let mut config = server.client(wanted)?;
            config.client_auth_cert_resolver = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13])
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth()
                .client_auth_cert_resolver;
            config
        }
    };
    let acceptor = TlsAcceptor::from(Arc::new(server.server()?));
    let (ours, theirs) = duplex(64 * 1024);
    let accept = async {
        let mut stream = acceptor.accept(theirs).await.map_err(|error| error.to_string())?;
        let digest = key_digest(stream.get_ref().1.peer_certificates());
        stream.write_all(b"x").await.map_err(|error| error.to_string())?;
        digest.ok_or_else(|| "no key".to_owned())
    };
    let name = ServerName::try_from("replica.example").unwrap();
    let open = async {
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, ours).await.map_err(|e| e.to_string())?;
        stream.read_u8().await.map_err(|error| error.to_string())
    };
    let (accepted, opened) = tokio::join!(accept, open);
    opened?;
    accepted
}

#[tokio::test]
async fn replicas_prove_their_keys_to_each_other() {
    let [left, right, other] = [(); 3].map(|()| PeerTls::generate().unwrap());
    assert_eq!(connect(Some(&left), &right, *right.digest()).await, Ok(*left.digest()));
    assert!(connect(Some(&left), &other, *right.digest()).await.is_err(), "another replica answers");
    assert!(connect(None, &right, *right.digest()).await.is_err(), "a client without a key");
    assert_ne!(left.digest(), right.digest());
}
