//! A relay on loopback that records messages: plain HTTP, or two pipes.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Headers of one connection only; each side of the relay has its own.
const HOP_BY_HOP: [header::HeaderName; 2] = [header::CONNECTION, header::TRANSFER_ENCODING];

/// Delay of a request for a stream, so that a message which relies on an unopened stream is lost
/// visibly.
const WAY_OF_A_STREAM: Duration = Duration::from_millis(50);

/// One request over HTTP and as much of its response as came.
#[derive(Debug, Clone, Default)]
pub(super) struct TappedExchange {
    /// Port of the server, and the path there.
    port: u16,
    pub(super) path: String,
    pub(super) asked: HeaderMap,
    pub(super) request: Bytes,
    pub(super) status: StatusCode,
    pub(super) answered: HeaderMap,
    pub(super) response: Vec<u8>,
}

type TappedExchanges = Arc<Mutex<Vec<Arc<Mutex<TappedExchange>>>>>;

/// The relay: a request for `/PORT/path` goes on to `/path` at that port of this machine.
pub(super) struct Tap {
    port: u16,
    record: TappedExchanges,
    /// Ends the relay with the test.
    runtime: Option<Runtime>,
}

impl Tap {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let record = TappedExchanges::default();
        runtime.spawn(accept(listener, Arc::clone(&record)));
        Self { port, record, runtime: Some(runtime) }
    }

    /// Returns all exchanges, of any URL.
    pub(super) fn all(&self) -> Vec<TappedExchange> {
        self.record.lock().unwrap().iter().map(|exchange| exchange.lock().unwrap().clone()).collect()
    }

    /// Address of the relay; a port and a path follow.
    pub(super) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the URL that leads to this one through the relay.
    pub(super) fn before(&self, url: &str) -> String {
        let uri: Uri = url.parse().unwrap();
        format!("{}/{}{}", self.base(), uri.port_u16().unwrap(), uri.path())
    }

    /// Returns the exchanges of that URL, in the order of the requests.
    pub(super) fn exchanges(&self, url: &str) -> Vec<TappedExchange> {
        let port = url.parse::<Uri>().unwrap().port_u16().unwrap();
        self.all().into_iter().filter(|exchange| exchange.port == port).collect()
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, record: TappedExchanges) {
    let own = listener.local_addr().unwrap().port();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let record = Arc::clone(&record);
        let service = service_fn(move |request| {
            let record = Arc::clone(&record);
            async move {
                let answer = pass(own, request, &record).await;
                // If the server is gone, a client sees a gateway error.
                let failed = |error: anyhow::Error| {
                    let mut response = Response::new(BoxBody::new(Full::from(format!("{error:#}")).map_err(never)));
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    response
                };
                Ok::<_, Infallible>(answer.unwrap_or_else(failed))
            }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn never(error: Infallible) -> hyper::Error {
    match error {}
}

/// Passes one request on, on a connection of its own, so that the server notices when the client
/// goes away.
async fn pass(
    own: u16,
    request: Request<Incoming>,
    record: &TappedExchanges,
) -> anyhow::Result<Response<BoxBody<Bytes, hyper::Error>>> {
    let (mut head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).trim_start_matches('/');
    let (port, path) = target.split_once('/').unwrap_or((target, ""));
    let port: u16 = port.parse()?;
    head.uri = format!("/{path}").parse()?;
    name_the_server(&mut head.headers, own, port);
    HOP_BY_HOP.iter().for_each(|name| drop(head.headers.remove(name)));
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path().to_owned();
    let asked =
        TappedExchange { port, path, asked: head.headers.clone(), request: body.clone(), ..TappedExchange::default() };
    let exchange = Arc::new(Mutex::new(asked));
    record.lock().unwrap().push(Arc::clone(&exchange));
    if head.method == Method::GET {
        tokio::time::sleep(WAY_OF_A_STREAM).await;
    }
    let stream = TcpStream::connect(("localhost", port)).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
    let (mut head, body) = response.into_parts();
    HOP_BY_HOP.iter().for_each(|name| drop(head.headers.remove(name)));
    {
        let mut exchange = exchange.lock().unwrap();
        exchange.status = head.status;
        exchange.answered = head.headers.clone();
    }
    let body = body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref() {
            exchange.lock().unwrap().response.extend_from_slice(data);
        }
        frame
    });
    Ok(Response::from_parts(head, BoxBody::new(body)))
}

/// Replaces the relay's name in Host and Origin by the server's own.
fn name_the_server(headers: &mut HeaderMap, own: u16, port: u16) {
    for name in [header::HOST, header::ORIGIN] {
        let Some(value) = headers.get(&name).and_then(|value| value.to_str().ok()) else { continue };
        if let Some(host) = value.strip_suffix(&format!(":{own}")) {
            let named = HeaderValue::try_from(format!("{host}:{port}")).unwrap();
            headers.insert(name, named);
        }
    }
}

/// Both directions of a program on two pipes, one message a line.
#[derive(Debug, Clone)]
pub(super) struct PipeTap {
    pub(super) input: PathBuf,
    pub(super) output: PathBuf,
}

impl PipeTap {
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        Self { input: folder.join(format!("{name}.in")), output: folder.join(format!("{name}.out")) }
    }

    /// Returns a shell line that runs `command` and records its input and output.
    pub(super) fn around(&self, command: &str) -> String {
        let quoted = |path: &Path| shlex::try_quote(path.to_str().unwrap()).unwrap().into_owned();
        format!("tee -a {} | {command} | tee -a {}", quoted(&self.input), quoted(&self.output))
    }
}
