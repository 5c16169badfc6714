//! The admin socket: after a hello in each direction, a connection speaks MCP or the operator's
//! methods, or another process takes the daemon over. No method accepts a command line to execute.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::base::budget::{BudgetRoom, ByteBudget};
use crate::base::callers::CallerNumber;
use crate::base::clock;
use crate::base::tally::LogTally;
use crate::config;
use crate::config::source::guard;
use crate::daemon::access::{SocketUserTable, SocketUsers, UNGREETED, operator_name, socket_callers};
use crate::daemon::gateway::RunningGateway;
use crate::daemon::handover::late::find_listener;
use crate::daemon::handover::{self, TAKE_OVER};
use crate::daemon::hello::{HELLO, HTTP, HelloLine, encode_accepting_hello, encode_hello, publish_address};
use crate::daemon::tokens::LiveTokens;
use crate::gateway::answer::RequestAnswer;
use crate::gateway::client::quota::QuotaKind;
use crate::listener::callers::credentials::CallerAccess;
use crate::listener::lobby::{AcceptedConnection, Lobby, LobbyConnection};
use crate::listener::pieces::MessageSlices;
use crate::listener::press::{BodyPace, PressedStream};
use crate::operator::request::{MalformedRequest, ReloadParams, Request, RequestEffect, VariablesParams};
use crate::operator::views::{ConsoleLink, OperatorView, ReloadView, VariablesView};
use crate::operator::{OperatorRefusal, Person, rekey, tool, tools};
use crate::policy::{Caller, Digest, OperatorAction};
use crate::serve::http_server::serve_passed;
use crate::serve::lines::{self, LineClient};
use crate::wire::code;
use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::json::raw::RawJson;
use crate::wire::message::{self, Message, Request as MessageRequest};

mod call;
mod late;
pub(crate) mod proof;
mod status;
mod tokens;

pub(crate) use self::late::{is_retryable, serve_later};
pub(crate) use self::proof::generate_code;
pub(crate) use self::status::build_status;

use self::proof::PeerProof;
use self::status::build_full_status;

/// Code of the error for a store that cannot be read or written. Other refusals have 1.
pub(crate) const UNUSABLE: i64 = 2;
const MAX_HELLO_BYTES: u64 = 64 * 1024;
/// Longest request line of the operator, in bytes.
const MAX_LINE_BYTES: usize = 4 << 20;
/// Longest time from the connection to the end of its hello.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Binds the admin socket; creates its directory if missing and replaces a socket file that no
/// daemon serves.
///
/// # Errors
/// Another daemon answers at the path, a file that is no socket is there, the directory is not
/// writable, or other users could replace the socket.
pub(crate) async fn bind(path: &Path, access: &SocketUsers) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        // A bare file name is relative to the working directory.
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        let foul = |why| {
            io::Error::new(io::ErrorKind::PermissionDenied, format!("its directory {} {why}", directory.display()))
        };
        guard::check_directory(directory, true).map_err(foul)?;
    }
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let text = "a file that is not a socket is in the way; remove it, or set [admin] socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        if UnixStream::connect(path).await.is_ok() {
            let text = "another headend daemon answers there; stop it, or set [admin] socket";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    access.open(path)?;
    Ok(listener)
}

/// Publishes the socket's address in the state directory at once. The returned future serves the
/// socket until the gateway drains, then removes the address and the socket's file.
pub(crate) fn serve(
    gateway: Arc<RunningGateway>,
    listener: UnixListener,
    path: PathBuf,
    access: SocketUsers,
) -> impl Future<Output = ()> + Send {
    gateway.socket.get_or_init(|| path.clone());
    *gateway.handover.admin.lock() = listener.as_fd().try_clone_to_owned().ok().map(|socket| (path.clone(), socket));
    let published = publish_address(&gateway, &path);
    async move {
        accept(Arc::clone(&gateway), listener, access).await;
        if let Some((address, state)) = published {
            address.remove(&state);
        }
        let handover = &gateway.handover;
        if !handover.socket_is_taken.load(Ordering::Relaxed) && !handover.is_socket_kept.load(Ordering::Relaxed) {
            // Another process may have removed the path already.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Accepts connections until the gateway drains, and spawns a task for each. A user who may not
/// connect gets a hello with the reason.
async fn accept(gateway: Arc<RunningGateway>, listener: UnixListener, access: SocketUsers) {
    let users = gateway.users.get_or_init(|| SocketUserTable::new(access));
    let draining = gateway.service.draining.clone();
    let lobby = Lobby::for_operators("admin", UNGREETED, gateway.service.metrics.clone());
    let foreign = LogTally::default();
    loop {
        let accepted = draining.run_until_cancelled(lobby.next(|| listener.accept())).await;
        let Some(AcceptedConnection { stream: (stream, _), room, .. }) = accepted else { break };
        let peer = stream.peer_cred().ok();
        let proof = PeerProof::new(peer.and_then(|peer| peer.pid()));
        let user = peer.map(|peer| peer.uid());
        let known = user.and_then(|user| Some((user, users.caller(user, &gateway.service.giving_up)?)));
        let Some((user, caller)) = known else {
            if let Some(count) = foreign.count(clock::uptime()) {
                tracing::warn!(count, "admin connection refused: the user is not allowed; see [admin] users and group");
            }
            let why = "this user may not connect; see `[admin] users` and `group`";
            // A client that does not read the refusal at once misses it.
            drop(stream.try_write(encode_hello("", None, None, Some(why)).as_bytes()));
            continue;
        };
        let guest = lobby.enter(user, room);
        let gateway = Arc::clone(&gateway);
        gateway.service.tasks.clone().spawn("admin", async move {
            let access = Arc::clone(&caller.access);
            let served = tokio::select! {
                served = serve_connection(&gateway, stream, caller, guest, proof) => served,
                () = access.ended() => Ok(()),
            };
            if let Err(error) = served {
                tracing::debug!(error = %error, "admin connection ended");
            }
        });
    }
}

/// Serves one connection: reads its hello in time, checks quota, version and profile, answers with
/// a hello, then serves MCP or the operator's methods until the connection ends.
async fn serve_connection(
    gateway: &Arc<RunningGateway>,
    stream: UnixStream,
    caller: CallerAccess,
    guest: LobbyConnection<u32>,
    proof: PeerProof,
) -> io::Result<()> {
    let phase = guest.phase().clone();
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut first = String::new();
    let mut limited = (&mut read).take(MAX_HELLO_BYTES);
    let refused = tokio::select! {
        // A hello that has arrived wins over a simultaneous dismissal of the connection.
        biased;
        read = limited.read_line(&mut first) => {
            read?;
            None
        }
        () = poll_fn(|cx| phase.poll_dismissed(cx)) => Some("too many connections without a hello; try again"),
        () = tokio::time::sleep(HELLO_TIME) => Some("the hello did not come in time"),
    };
    phase.known();
    drop(guest);
    let share = gateway.service.admission.quota.take(&caller.caller, QuotaKind::Connection);
    let full = || share.is_none().then_some("this user has too many connections; see `connections-per-caller`");
    if let Some(why) = refused.or_else(full) {
        // A client that does not read the refusal at once misses it.
        drop(write.try_write(encode_hello("", None, None, Some(why)).as_bytes()));
        return Ok(());
    }
    let config = gateway.source.path.as_ref().map(|path| path.display().to_string());
    let state = gateway.store.as_ref().map(|store| store.dir().display().to_string());
    let refuse = |error: &str| encode_hello("", config.as_deref(), None, Some(error));
    let hello: HelloLine = match serde_json::from_str(&first) {
        Ok(hello) => hello,
        Err(_) => return write.write_all(refuse("the first line must be a hello").as_bytes()).await,
    };
    if hello.headend > HELLO {
        return write.write_all(refuse("this daemon is older than its client; restart it").as_bytes()).await;
    }
    let unknown_profile = |name: &String| !gateway.service.snapshots.load().profiles.contains_key(name);
    if hello.profile.as_ref().is_some_and(unknown_profile) {
        return write.write_all(refuse("there is no profile with that name").as_bytes()).await;
    }
    if let Err(why) = check_want(&hello.want, &caller.caller) {
        return write.write_all(refuse(&why).as_bytes()).await;
    }
    let passed = hello.origin.clone().and_then(|origin| Some((find_listener(gateway, &origin)?, origin)));
    if hello.want == HTTP && passed.is_none() {
        return write.write_all(refuse("no listener has the address of the request").as_bytes()).await;
    }
    let line = encode_accepting_hello(&hello, config.as_deref(), state.as_deref());
    write.write_all(line.as_bytes()).await?;
    if let (HTTP, Some((front, origin))) = (hello.want.as_str(), passed) {
        // The client sends the request after this hello, so nothing was read ahead.
        let stream = read.into_inner().reunite(write).map_err(io::Error::other)?;
        Box::pin(serve_passed(&front, stream, origin, gateway.service.draining.clone())).await;
        return Ok(());
    }
    if hello.want == TAKE_OVER {
        // The client sends nothing before it has got files, so nothing was read ahead.
        let stream = read.into_inner().reunite(write).map_err(io::Error::other)?;
        return Box::pin(handover::giving::give(gateway, stream)).await;
    }
    let write = PressedStream::new(write, Arc::clone(&gateway.service.budget));
    if hello.want == "mcp" {
        let client = gateway.line_client(caller, hello.profile.map(Arc::from));
        let client = LineClient { is_relay: hello.leaves, ..client };
        Box::pin(lines::serve(client, read, write, gateway.service.draining.clone())).await;
        return Ok(());
    }
    serve_operator(gateway, read, write, &caller, proof).await
}

/// Checks that the daemon serves what a connection wants, and that its user may have it: only our
/// own user may take the daemon over or pass requests on, neither root nor those of `[admin]`.
///
/// # Errors
/// The text of the refusal.
fn check_want(want: &str, caller: &Caller) -> Result<(), String> {
    match want {
        "mcp" | "admin" => Ok(()),
        TAKE_OVER if !cfg!(target_os = "linux") => Err("only on Linux a daemon can be taken over".to_owned()),
        TAKE_OVER | HTTP if caller == Caller::local() => Ok(()),
        TAKE_OVER | HTTP => Err("only the user that runs this daemon may take it over".to_owned()),
        other => Err(format!("this daemon serves \"mcp\" and \"admin\", not {other:?}")),
    }
}

/// Reads the next request line, without its newline; returns `None` at the end of the connection.
/// The bytes stay counted against the budget for as long as the line lives.
///
/// # Errors
/// [`io::ErrorKind::QuotaExceeded`] if the line is too long, the budget has no room for it, or it
/// arrives too slowly for the room that it occupies.
async fn read_line(
    read: &mut (impl AsyncBufRead + Unpin),
    budget: &Arc<ByteBudget>,
    caller: &CallerNumber,
) -> io::Result<Option<Bytes>> {
    let mut room = BudgetRoom::of_request(budget, caller);
    let mut line = BytesMut::new();
    let mut pace = BodyPace::new();
    loop {
        let part = tokio::select! {
            biased;
            part = read.fill_buf() => part?,
            () = pace.wait_until_too_slow(line.len(), budget, caller) => return Err(io::ErrorKind::QuotaExceeded.into()),
        };
        let end = memchr::memchr(b'\n', part);
        let taken = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        let length = line.len() + taken.len();
        if length > MAX_LINE_BYTES || room.grow_to(length).await.is_err() {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        line.extend_from_slice(taken);
        pace.count(taken.len(), length);
        let (is_over, used) = (part.is_empty(), taken.len() + usize::from(end.is_some()));
        read.consume(used);
        if end.is_some() || is_over && !line.is_empty() {
            return Ok(Some(room.keep(line.freeze())));
        }
        if is_over {
            return Ok(None);
        }
    }
}

/// Writes one answer and a newline, without copying the answer.
///
/// # Errors
/// The client reads nothing for [`Limits::write_timeout`](crate::config::Limits), or too little
/// while the budget is short of room.
async fn write_answer(write: &mut (impl AsyncWrite + Unpin), answer: MessageSlices, limit: Duration) -> io::Result<()> {
    for slice in answer.slices().chain([Bytes::from_static(b"\n")]) {
        let mut left = slice;
        while !left.is_empty() {
            let written = tokio::time::timeout(limit, write.write(&left)).await??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left.advance(written);
        }
    }
    Ok(())
}

/// Answers the operator's requests, one line after the other, until the connection ends or the
/// gateway drains.
async fn serve_operator(
    gateway: &Arc<RunningGateway>,
    mut read: BufReader<OwnedReadHalf>,
    mut write: PressedStream<OwnedWriteHalf>,
    caller: &CallerAccess,
    mut proof: PeerProof,
) -> io::Result<()> {
    let budget = &gateway.service.budget;
    loop {
        let limit = gateway.service.snapshots.load().config.server.limits.write_timeout;
        // An idle connection, such as that of `approvals --watch`, must not delay the shutdown.
        let line = tokio::select! {
            biased;
            line = read_line(&mut read, budget, caller.access.caller()) => line,
            () = gateway.service.draining.cancelled() => return Ok(()),
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                let text = "the request is too large, or headend's memory for messages is used up; try again";
                let error = message::error_object(code::INVALID_REQUEST, text, None);
                return write_answer(&mut write, message::encode_error(None, &error).into(), limit).await;
            }
            Err(error) => return Err(error),
        };
        let frame = Frame::from_client(line, JsonBounds::CLIENT);
        let Ok(Ok(Message::Request(request))) = frame.map(|frame| Message::parse(&frame)) else {
            let error = message::error_object(code::INVALID_REQUEST, "not a request", None);
            write_answer(&mut write, message::encode_error(None, &error).into(), limit).await?;
            continue;
        };
        let outcome = operate(gateway, caller, &mut proof, &request).await;
        let outcome = outcome.map_err(|(code, text)| message::error_object(code, &text, None));
        let done = MessageSlices::answer(request.id.raw(), RequestAnswer { outcome, status: None, scopes: None });
        write_answer(&mut write, done, limit).await?;
    }
}

/// Checks that the caller may make the request, performs it and records it. Returns the result, or
/// the code and text of an error.
pub(crate) async fn operate(
    gateway: &Arc<RunningGateway>,
    caller: &CallerAccess,
    proof: &mut PeerProof,
    message: &MessageRequest,
) -> Result<RawJson, (i64, String)> {
    let method = message.method.as_str();
    gateway.service.admission.admit(&caller.caller, 1).map_err(|over| (1, over.to_string()))?;
    let params = message.params.clone().unwrap_or(RawJson::EMPTY_OBJECT);
    let request = Request::parse(method, &params);
    let by = match (operator_name(&caller.caller), &request) {
        (Some(by), _) => Person::of_socket(&by),
        // Any user of the socket may list and call tools.
        (None, Some(Ok(Request::Tools(_) | Request::Call(_)))) => Person::of_socket(""),
        (None, _) => return Err((1, "only root and the user that runs headend may do that".to_owned())),
    };
    let request = request.ok_or_else(|| (code::METHOD_NOT_FOUND, format!("no admin method {method:?}")))?;
    let request = match request {
        Ok(request) => request,
        Err(MalformedRequest { effect, why }) => {
            if let RequestEffect::Act(action) = effect {
                gateway.operator.refused(action, &by, &why).await;
            }
            return Err((code::INVALID_PARAMS, why));
        }
    };
    // Boxed: inlining the recorded request would grow the future of every connection.
    let performed = Box::pin(perform(gateway, caller, &by, proof, &request));
    let view = gateway.operator.recorded(&request, &by, performed).await.map_err(|refusal| match refusal {
        OperatorRefusal::Params(why) => (code::INVALID_PARAMS, why),
        OperatorRefusal::Unusable(why) => (UNUSABLE, why),
        other @ (OperatorRefusal::Refused(_) | OperatorRefusal::Stranger) => (1, other.to_string()),
    })?;
    view.json().map_err(|error| (1, error.to_string()))
}

/// Performs a request after its proof is checked. Requests about the program around the gateway are
/// handled here, all others by the operator's service.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other requests are about the gateway itself")]
async fn perform(
    gateway: &Arc<RunningGateway>,
    caller: &CallerAccess,
    by: &Person,
    proof: &mut PeerProof,
    request: &Request,
) -> Result<OperatorView, OperatorRefusal> {
    let setting = gateway.service.snapshots.load().config.consent.operator;
    proof.check(setting, request)?;
    match request {
        Request::Challenge(params) => proof.challenge(setting, &params.method),
        Request::Prove(params) => proof.prove(&params.code).inspect_err(|_| gateway.wrong_codes.count()),
        Request::Status(_) => Ok(OperatorView::Status(Box::new(build_full_status(gateway).await))),
        Request::Tools(params) => tools::list(&gateway.service, caller, params).map(OperatorView::Tools),
        Request::Tool(params) => {
            let users = socket_callers(&gateway.service.snapshots.load().config.admin);
            tool::show(&gateway.service, &params.name, users).map(Box::new).map(OperatorView::Tool)
        }
        Request::Reload(params) => reload(gateway, &by.name, params).await,
        Request::Variables(params) => Ok(OperatorView::Variables(compare_variables(params))),
        Request::Call(params) => call::call(gateway, caller, params).await,
        Request::LinkConsole(_) => create_console_link(gateway),
        Request::AddToken(_) | Request::Tokens(_) | Request::RevokeToken(_) => tokens::operate(gateway, request).await,
        Request::Rekey(params) => {
            let db = gateway.client_tokens.as_ref().map(LiveTokens::db);
            let db = db.ok_or_else(|| OperatorRefusal::refused("this gateway keeps no state, so nothing is sealed"))?;
            rekey::rekey(db, params).await.map(OperatorView::Rekeyed)
        }
        _ => gateway.operator.desk().carry_out(request, by).await,
    }
}

/// Reloads the configuration and returns the plan. With `dry_run` it only returns the plan.
/// `headend enable` and `headend disable` send their action and the upstream's name, for the audit
/// record.
async fn reload(gateway: &RunningGateway, by: &str, params: &ReloadParams) -> Result<OperatorView, OperatorRefusal> {
    let action = match params.action.as_deref() {
        Some("enable") => Some(OperatorAction::Enable),
        Some("disable") => Some(OperatorAction::Disable),
        Some(_) | None => None,
    };
    let plan = if params.dry_run {
        gateway.rehearse(params.config.as_deref())
    } else {
        gateway.reload(by, action.zip(params.name.as_deref())).await
    };
    plan.map(|plan| OperatorView::Reloaded(ReloadView { plan: plan.to_string() })).map_err(OperatorRefusal::Refused)
}

/// Compares the daemon's environment with that of a command. The values stay where they are.
fn compare_variables(params: &VariablesParams) -> VariablesView {
    let is_other = |(name, digest): &(&String, &Digest)| {
        config::environment(name).is_none_or(|value| Digest::of(value.as_bytes()) != **digest)
    };
    let differing = params.digests.iter().filter(is_other).map(|(name, _)| name.clone());
    VariablesView { differing: differing.collect() }
}

/// Creates a link that signs in to the console; a person who opens it is the operator.
fn create_console_link(gateway: &RunningGateway) -> Result<OperatorView, OperatorRefusal> {
    let off = || OperatorRefusal::refused("the console is off; see `[console] listen`");
    let (link, life) = gateway.console.get().ok_or_else(off)?.link();
    let proxied = gateway.service.snapshots.load().config.console.allowed_hosts.first().cloned();
    Ok(OperatorView::ConsoleLink(ConsoleLink { link, seconds: life.as_secs(), proxied }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_user_takes_the_daemon_over() {
        for (caller, may) in [
            (Caller::local().clone(), true),
            (Caller::user(0), false),
            (Caller::user(1000), false),
            (Caller::anyone().clone(), false),
        ] {
            assert!([TAKE_OVER, HTTP].iter().all(|want| check_want(want, &caller).is_ok() == may), "{caller:?}");
            assert!(check_want("mcp", &caller).is_ok() && check_want("", &caller).is_err());
        }
    }
}
