//! Tests of a connection's task, over pipes in memory.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use super::*;
use crate::base::budget::ByteBudget;
use crate::catalog::inventory::ListBounds;
use crate::config::Limits;
use crate::engine::askers::CallOrigin;
use crate::engine::call::CallOutcome;
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::event::CallEvent;
use crate::engine::peer::PeerTimes;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::voice::UpstreamReader;
use crate::telemetry::metrics::Metrics;
use crate::upstream::line::call::stdio_call;
use crate::wire::frame::JsonBounds;
use crate::wire::json::raw::RawJson;

fn options() -> StdioOptions {
    let times = PeerTimes { probe: Duration::from_secs(5), start: Duration::from_secs(5) };
    let ear = UpstreamReader::new("fx", JsonBounds::CLIENT, |bytes| bytes);
    let (hint, bounds) = (EraHint::Legacy, ListBounds::default());
    let (declared, askers) = (DeclaredCapabilities::default(), Arc::default());
    let peer = PeerOptions { ear, hint, times, bounds, declared, lists: false, askers };
    StdioOptions {
        peer,
        intake: IntakeLimits::new(ByteBudget::new(1 << 20), &Limits::default()),
        relist: Arc::default(),
        judged: None,
        is_shared: false,
        loss: CallFailure::crashed(),
    }
}

fn call(name: &str) -> OutgoingCall {
    let mut outgoing = OutgoingCall::own(Method::ToolsCall, Meta::default());
    outgoing.body.set("name", RawJson::string(name));
    outgoing
}

/// The server's end of the pipes.
struct Server {
    said: Lines<BufReader<ReadHalf<DuplexStream>>>,
    says: WriteHalf<DuplexStream>,
}

impl Server {
    fn new(pipes: DuplexStream) -> Self {
        let (said, says) = tokio::io::split(pipes);
        Self { said: BufReader::new(said).lines(), says }
    }

    async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.said.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.says.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }

    /// Answers the handshake, and returns the link that the task reports.
    async fn ready(&mut self, told: &mut mpsc::Receiver<StdioNews>) -> StdioLink {
        let greeting = self.hear().await;
        let result =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}});
        self.answer(&greeting, result).await;
        let Some(StdioNews::Ready(link)) = told.recv().await else { panic!("not ready") };
        assert_eq!(self.hear().await["method"], "notifications/initialized");
        link
    }
}

#[tokio::test]
async fn a_call_that_was_cancelled_before_the_task_took_it_is_not_sent() {
    let (gateway, server) = tokio::io::duplex(64 * 1024);
    let (stdout, stdin) = tokio::io::split(gateway);
    let mut server = Server::new(server);
    let (tell, mut told) = mpsc::channel(8);
    let mut news = move |news| drop(tell.try_send(news));
    let metrics = Metrics::new().unwrap().upstream("fx");
    let stop = CancellationToken::new();
    let talk = async {
        let link = server.ready(&mut told).await;
        // Either of the two channels may be read first.
        for n in 0..20 {
            drop(link.call(call("cancelled")));
            let mut kept = link.call(call("kept"));
            let got = server.hear().await;
            assert_eq!(got["params"]["name"], "kept", "{n}: {got}");
            server.answer(&got, json!({})).await;
            assert!(matches!(kept.next().await, CallEvent::Done(CallOutcome::Result { .. })), "{n}");
        }
    };
    tokio::select! {
        ended = run((stdin, stdout), None, options(), &metrics, &stop, &mut news) => panic!("{ended:?}"),
        () = talk => {}
    }
}

#[tokio::test]
async fn a_call_of_which_no_byte_was_written_comes_back_whole_and_any_other_does_not() {
    // So small that the first call does not fit.
    let (gateway, server) = tokio::io::duplex(64);
    let (stdout, stdin) = tokio::io::split(gateway);
    let (tell, mut told) = mpsc::channel(8);
    let mut news = move |news| drop(tell.try_send(news));
    let metrics = Metrics::new().unwrap().upstream("fx");
    let stop = CancellationToken::new();
    let talk = async {
        let mut server = Server::new(server);
        let link = server.ready(&mut told).await;
        let mut begun = link.call(call(&"x".repeat(100)));
        // Until the pipe is full.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut behind = link.call(call("behind"));
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(server);
        let mut late = link.call(call("late"));
        for (label, exchange, want) in
            [("begun", &mut begun, None), ("behind", &mut behind, Some("behind")), ("late", &mut late, Some("late"))]
        {
            let CallEvent::Done(CallOutcome::Failed(failure)) = exchange.next().await else { panic!("{label}") };
            let executed = if want.is_some() { ExecutionDoubt::No } else { ExecutionDoubt::Unknown };
            assert_eq!(failure.executed, executed, "{label}");
            let unsent = exchange.take_unsent().and_then(|outgoing| outgoing.body.string("name"));
            assert_eq!(unsent.as_deref(), want, "{label}");
        }
        link
    };
    let (ended, link) = tokio::join!(run((stdin, stdout), None, options(), &metrics, &stop, &mut news), talk);
    assert!(!link.is_open(), "{ended:?}");
    let mut after = link.call(call("after"));
    assert!(matches!(after.next().await, CallEvent::Done(CallOutcome::Failed(_))));
    assert!(after.take_unsent().is_some());
}

#[tokio::test]
async fn a_call_that_comes_while_the_connection_ends_comes_back_whole() {
    let (gateway, server) = tokio::io::duplex(64 * 1024);
    let (stdout, stdin) = tokio::io::split(gateway);
    let (tell, mut told) = mpsc::channel(8);
    let mut news = move |news| drop(tell.try_send(news));
    let metrics = Metrics::new().unwrap().upstream("fx");
    let stop = CancellationToken::new();
    let talk = async {
        let mut server = Server::new(server);
        let link = server.ready(&mut told).await;
        // Reproduces the moment in which a thread has reserved its slot in the queue and not yet
        // sent its call.
        let place = link.calls.reserve().await.unwrap();
        drop(server);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!link.is_open());
        let (port, mut exchange) =
            stdio_call(1, CallOrigin::default(), call("x").wants(), ByteBudget::new(1 << 20), link.signals.clone());
        place.send(LineCall { outgoing: call("x"), port });
        let ended = tokio::time::timeout(Duration::from_secs(5), exchange.next()).await;
        assert!(matches!(ended, Ok(CallEvent::Done(CallOutcome::Failed(_)))), "{ended:?}");
        assert!(exchange.take_unsent().is_some());
    };
    tokio::join!(run((stdin, stdout), None, options(), &metrics, &stop, &mut news), talk);
}

/// Returns the reported messages that could not be read.
fn unreadable(told: &mut mpsc::Receiver<StdioNews>) -> Vec<UnreadableBytes> {
    let news = std::iter::from_fn(|| told.try_recv().ok());
    news.filter_map(|news| if let StdioNews::Unreadable(message) = news { Some(message) } else { None }).collect()
}

#[tokio::test]
async fn a_line_that_is_no_text_ends_its_call_at_once_and_is_told() {
    let (gateway, server) = tokio::io::duplex(64 * 1024);
    let (stdout, stdin) = tokio::io::split(gateway);
    let mut server = Server::new(server);
    let (tell, mut told) = mpsc::channel(8);
    let mut news = move |news| drop(tell.try_send(news));
    let metrics = Metrics::new().unwrap().upstream("fx");
    let stop = CancellationToken::new();
    let talk = async {
        let link = server.ready(&mut told).await;
        let mut exchange = link.call(call("x"));
        let id = server.hear().await["id"].to_string();
        let answer = [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"caf"#).as_bytes(), b"\xe9\"}}\n"].concat();
        server.says.write_all(&answer).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(5), exchange.next()).await;
        let Ok(CallEvent::Done(CallOutcome::Failed(failure))) = ended else { panic!("{ended:?}") };
        assert_eq!(failure.executed, ExecutionDoubt::Unknown);
        let shown = unreadable(&mut told);
        assert!(shown[0].why.contains("not UTF-8") && shown[0].start.contains("caf\\xe9"), "{shown:?}");
    };
    tokio::select! {
        ended = run((stdin, stdout), None, options(), &metrics, &stop, &mut news) => panic!("{ended:?}"),
        () = talk => {}
    }
}

#[tokio::test]
async fn a_handshake_whose_answer_has_no_line_end_says_so() {
    let (gateway, server) = tokio::io::duplex(64 * 1024);
    let (stdout, stdin) = tokio::io::split(gateway);
    let mut server = Server::new(server);
    let (tell, mut told) = mpsc::channel(8);
    let mut news = move |news| drop(tell.try_send(news));
    let metrics = Metrics::new().unwrap().upstream("fx");
    let stop = CancellationToken::new();
    server.says.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}").await.unwrap();
    let mut options = options();
    options.peer.times.start = Duration::from_millis(50);
    let ended = run((stdin, stdout), None, options, &metrics, &stop, &mut news).await;
    assert!(ended.why.contains("no JSON-RPC message") && ended.why.contains(UNFINISHED), "{ended:?}");
    let shown = unreadable(&mut told);
    assert!(shown[0].start.contains("jsonrpc") && shown[0].is_meant, "{shown:?}");
}
