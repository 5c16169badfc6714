//! The floor: the cost of a reverse proxy on the same HTTP stack that parses nothing.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;

use crate::serve;
use crate::tls::CertificateFiles;

#[derive(Debug, clap::Args)]
pub(crate) struct FloorOptions {
    /// Where to listen; port 0 takes a free one.
    #[arg(long)]
    listen: SocketAddr,
    /// The server every request goes to.
    #[arg(long)]
    to: SocketAddr,
    /// Reach that server over TLS, by the certificates in this folder.
    #[arg(long)]
    tls: Option<PathBuf>,
    /// End when stdin closes.
    #[arg(long, hide = true)]
    until_eof: bool,
}

pub(crate) fn main(options: &FloorOptions) -> anyhow::Result<()> {
    if options.until_eof {
        crate::exit_at_eof();
    }
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(async {
        for listener in serve::bind(&[options.listen]).await? {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            match &options.tls {
                None => forward(listener, ("http", options.to), connector).await?,
                Some(folder) => {
                    connector.enforce_http(false);
                    let connector = CertificateFiles::at(folder).connector(connector)?;
                    forward(listener, ("https", options.to), connector).await?;
                }
            }
        }
        Ok(())
    })
}

/// Passes every request of one listener on to a scheme and address through pooled connections.
///
/// # Errors
/// When a connection cannot be accepted.
pub(crate) async fn forward<C>(
    listener: tokio::net::TcpListener,
    (scheme, to): (&'static str, SocketAddr),
    connector: C,
) -> anyhow::Result<()>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let client = client.clone();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::builder().scheme(scheme).authority(to.to_string()).path_and_query(path).build();
        async move {
            *request.uri_mut() = uri?;
            Ok::<_, anyhow::Error>(client.request(request).await?)
        }
    });
    serve::serve(listener, None, service).await
}
