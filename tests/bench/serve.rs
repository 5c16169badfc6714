//! The listening side that the upstream and the floor share.

use std::error::Error;
use std::net::SocketAddr;

use anyhow::Context;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Precedes the address on stdout, one line for each listener, once it accepts connections.
pub(crate) const LISTENING: &str = "listening on ";

/// Binds every address and prints it on stdout; port 0 takes a free one.
///
/// # Errors
/// When an address cannot be bound.
pub(crate) async fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let listener = TcpListener::bind(address).await.with_context(|| format!("bind {address}"))?;
        println!("{LISTENING}{}", listener.local_addr().context("read the bound address")?);
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Serves every connection of one listener with clones of one service, until accepting fails; over
/// TLS with an acceptor.
///
/// # Errors
/// When a connection cannot be accepted.
pub(crate) async fn serve<S, B>(listener: TcpListener, acceptor: Option<TlsAcceptor>, service: S) -> anyhow::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    loop {
        let (stream, _) = listener.accept().await.context("accept a connection")?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        let (service, acceptor) = (service.clone(), acceptor.clone());
        tokio::spawn(async move {
            // The client that waits for an answer on a broken connection reports it.
            let Some(acceptor) = acceptor else {
                return drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
            };
            if let Ok(stream) = acceptor.accept(stream).await {
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
            }
        });
    }
}
