//! Routes one request of a browser: finds its session, then shows a page or carries out an action.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::{CONNECTION, COOKIE as COOKIES};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Incoming;
use url::form_urlencoded;

use super::action;
use super::asset;
use super::calls;
use super::events;
use super::form::{FormFields, form};
use super::login;
use super::page::{
    ApprovalGroup, ApprovalPage, BlockRow, ClosedApprovalPage, ConsoleSection, DecisionTableRow, DecisionsPage,
    GrantTableRow, GrantsPage, OpenLinkPage, OverviewPage, PageFrame, PinnedGroup, PinsPage, SignInPage, UpstreamTile,
    UpstreamsPage, WaitingPin,
};
use super::reply::{self, COOKIE};
use super::session::{SignInError, SignedInVisitor, session_name};
use super::site::{ConsoleConnection, ConsoleSite};
use super::text::{capitalised, visible};
use super::upstream_page::{UpstreamPage, name_in};
use crate::base::clock;
use crate::console::approval::card::ApprovalCard;
use crate::console::approval::group_link::GroupLink;
use crate::console::approval::questions::ListedApprovals;
use crate::listener::body::ReplyBody;
use crate::listener::reply::closing;
use crate::operator::ApprovalState;
use crate::policy::OperatorAction;

/// Number of decisions on the overview (`FEW`) and on their own page (`ALL`).
const FEW: usize = 8;
const ALL: usize = 200;
/// Header of the requests that the page's script makes. They leave the notice for the page that the
/// operator sees next, unless the value is [`TOLD`]: then the script shows it.
const REFRESH: &str = "headend-refresh";
const TOLD: &str = "told";

/// Serves one request: checks host, origin and session, then routes it by method and path.
pub(super) async fn handle(
    console: &Arc<ConsoleSite>,
    request: http::Request<Incoming>,
    seat: &ConsoleConnection,
) -> Response<ReplyBody> {
    let (head, body) = request.into_parts();
    if let Err(refused) = console.guard.admit(&head) {
        let text = "This request did not come from a page of this console, or names another address. Open the console at the \
                    address that headend prints.";
        let mut response = reply::wrong(refused.status(), "Refused", text);
        response.headers_mut().extend(refused.headers().get(CONNECTION).map(|close| (CONNECTION, close.clone())));
        return response;
    }
    let visitor = visitor(console, &head);
    if visitor.is_some() && !seat.settle(|| Arc::clone(&console.places).try_acquire_owned().ok()) {
        let text = "Too many connections to the console are open. Close some of its pages.";
        return closing(reply::busy(text));
    }
    if let Some(file) = asset::find(head.uri.path()) {
        return if is_read(&head.method) { file } else { reply::method_not_allowed("GET, HEAD") };
    }
    if is_read(&head.method) {
        return read(console, &head, visitor).await;
    }
    if head.method != Method::POST {
        return reply::method_not_allowed("GET, HEAD, POST");
    }
    if !same_site(&head.headers) {
        return reply::forbidden("The form was sent by another site.");
    }
    let form = match form(&head.headers, body).await {
        Ok(form) => form,
        Err(refused) => return *refused,
    };
    write(console, &head, visitor, form).await
}

fn is_read(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// Returns false if the browser says that another site sent the form. Programs other than browsers
/// send no such header, and have no cookie of a browser.
fn same_site(headers: &HeaderMap) -> bool {
    headers.get_all("sec-fetch-site").iter().all(|site| site == "same-origin" || site == "none")
}

/// Finds the session of the request's cookie, and extends it unless the page's script made the
/// request.
///
/// A cookie is not bound to a port, so programs on other ports of this address may have set any
/// number of cookies with this name, some of which are not text. All are tried; the limit on the
/// head bounds their number.
fn visitor(console: &ConsoleSite, head: &Parts) -> Option<SignedInVisitor> {
    // An open page sends these requests by itself, so they prove no activity of a person.
    let active = !head.headers.contains_key(REFRESH) && head.uri.path() != "/events";
    let pairs = head.headers.get_all(COOKIES).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let mut own = pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"="));
    own.find_map(|value| console.doors.visitor(str::from_utf8(value).ok()?, active, clock::uptime()))
}

/// Returns the path if it is a page of the console, else `/`. Keeps redirects inside the console.
pub(super) fn own_page(path: &str) -> &str {
    let known = matches!(path, "/" | "/grants" | "/pins" | "/upstreams" | "/decisions" | "/calls");
    let approval = path.strip_prefix("/approvals/").is_some_and(is_id);
    if known || approval || name_in(path).is_some() { path } else { "/" }
}

/// Returns true if the text has the form of an approval's id.
pub(super) fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Returns true if the text after `/open/` is base64url of about the length of a secret.
pub(super) fn is_link(link: &str) -> bool {
    (20..=64).contains(&link.len()) && link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Serves a GET or HEAD request. Nothing but a login's call-back changes anything here.
async fn read(console: &Arc<ConsoleSite>, head: &Parts, visitor: Option<SignedInVisitor>) -> Response<ReplyBody> {
    let path = head.uri.path();
    if let Some(link) = path.strip_prefix("/open/") {
        // Every link gets the same page, so opening it neither reveals whether the link is valid
        // nor uses it up.
        return if is_link(link) {
            reply::page(StatusCode::OK, &OpenLinkPage { link: link.to_owned() })
        } else {
            reply::not_found()
        };
    }
    if let Some(id) = path.strip_prefix("/login/") {
        return login::show(console, id, visitor.is_some());
    }
    if path == login::CALLBACK {
        // A program that prefetches addresses has no login cookie, so it ends no login.
        return if head.method == Method::HEAD {
            reply::method_not_allowed("GET")
        } else {
            login::finish_from_callback(console, head, visitor.as_ref()).await
        };
    }
    if path == "/sign-in" {
        let query = head.uri.query().unwrap_or_default();
        let then = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "then").map(|(_, then)| then);
        let then = own_page(then.as_deref().unwrap_or("/")).to_owned();
        return reply::page(StatusCode::OK, &SignInPage { then, problem: None });
    }
    if path == "/sign-out" {
        return reply::method_not_allowed("POST");
    }
    let Some(visitor) = visitor else { return to_sign_in(path) };
    if path == "/events" {
        if head.method == Method::HEAD {
            return reply::method_not_allowed("GET");
        }
        return events::stream(console, &visitor)
            .unwrap_or_else(|| reply::busy("Too many pages of the console are open. Close some of them."));
    }
    show(console, head, &visitor).await
}

/// Redirects to the sign-in page, which leads back to `path` if that is a page of the console.
fn to_sign_in(path: &str) -> Response<ReplyBody> {
    match own_page(path) {
        "/" => reply::see("/sign-in"),
        then => reply::see(&format!("/sign-in?then={then}")),
    }
}

/// Returns true if the request leaves the session's notice for a later page.
fn keeps_notice(headers: &HeaderMap) -> bool {
    headers.get(REFRESH).is_some_and(|value| value != TOLD)
}

/// Shows a page to a signed-in browser. Consumes the session's notice, unless the script keeps it.
async fn show(console: &ConsoleSite, head: &Parts, visitor: &SignedInVisitor) -> Response<ReplyBody> {
    let desk = console.desk();
    let now = desk.now();
    let pins = desk.pins();
    let frame = |section| PageFrame {
        section,
        csrf: visitor.csrf.clone(),
        notice: if keeps_notice(&head.headers) { None } else { console.doors.told(visitor) },
        waiting: desk.approvals().len(),
        pins_waiting: pins.iter().filter(|pin| WaitingPin::is_due(pin)).count(),
    };
    let rows =
        |count| desk.decisions(count).iter().map(|decision| DecisionTableRow::new(decision, now)).collect::<Vec<_>>();
    let tiles = || desk.upstreams().iter().map(UpstreamTile::new).collect::<Vec<_>>();
    let ok = StatusCode::OK;
    match head.uri.path() {
        "/" => {
            let mut tiles = tiles();
            // Failed upstreams come first; the others keep the order of the configuration.
            tiles.sort_by_key(|tile| tile.tone != "danger");
            let troubled = tiles.iter().filter(|tile| tile.tone == "danger").count();
            let questions = ListedApprovals::new(&desk.approvals(), now);
            let troubles =
                desk.troubles().iter().map(|trouble| format!("{}.", capitalised(&visible(trouble)))).collect();
            let blocks = desk.blocks().iter().map(|block| BlockRow::new(block, now)).collect();
            let frame = frame(ConsoleSection::Overview);
            reply::page(ok, &OverviewPage { frame, questions, blocks, troubles, troubled, tiles, rows: rows(FEW) })
        }
        "/grants" => {
            let grants = desk.grants().iter().map(|grant| GrantTableRow::new(grant, now)).collect();
            reply::page(ok, &GrantsPage { frame: frame(ConsoleSection::Grants), grants })
        }
        "/pins" => {
            let reviews = pins.iter().filter_map(|pin| WaitingPin::new(pin, now)).collect();
            reply::page(ok, &PinsPage { frame: frame(ConsoleSection::Pins), reviews, pinned: PinnedGroup::all(&pins) })
        }
        "/upstreams" => {
            let host_command = desk.host_command();
            reply::page(ok, &UpstreamsPage { frame: frame(ConsoleSection::Upstreams), host_command, tiles: tiles() })
        }
        "/group" => {
            let query = head.uri.query().unwrap_or_default();
            let mut of: HashMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
            let [caller, kind, item] = ["caller", "kind", "item"].map(|name| of.remove(name).unwrap_or_default());
            let mut approvals = desk.approvals();
            approvals.retain(|one| one.caller.key() == caller && one.kind == kind && one.item == item);
            let cards = approvals.iter().map(|approval| ApprovalCard::new(approval, now)).collect();
            reply::page(ok, &ApprovalGroup::new(frame(ConsoleSection::Other), cards))
        }
        "/calls" => calls::show(console, frame(ConsoleSection::Calls), head.uri.query().unwrap_or_default()).await,
        "/decisions" => reply::page(ok, &DecisionsPage { frame: frame(ConsoleSection::Decisions), rows: rows(ALL) }),
        path => match path.strip_prefix("/approvals/").filter(|id| is_id(id)) {
            Some(id) => match desk.approval(id) {
                ApprovalState::Open(approval) => {
                    let card = ApprovalCard::whole(&approval, now);
                    let count = desk.approvals().iter().filter(|other| other.is_beside(&approval)).count();
                    let group = (count > 1).then(|| GroupLink::to(&approval, count));
                    reply::page(ok, &ApprovalPage { frame: frame(ConsoleSection::Other), card, group })
                }
                ApprovalState::Closed { how, is_late } => {
                    reply::page(ok, &ClosedApprovalPage::new(frame(ConsoleSection::Other), id, Some(how), is_late))
                }
                ApprovalState::Unknown => reply::page(
                    StatusCode::NOT_FOUND,
                    &ClosedApprovalPage::new(frame(ConsoleSection::Other), id, None, false),
                ),
            },
            None => match name_in(path).and_then(|name| desk.upstream(name)) {
                Some(detail) => reply::page(ok, &UpstreamPage::new(frame(ConsoleSection::Upstreams), &detail)),
                None => reply::not_found(),
            },
        },
    }
}

/// Serves a POST request: signs in or out, goes on with a login, or carries out the action of a
/// form.
async fn write(
    console: &Arc<ConsoleSite>,
    head: &Parts,
    visitor: Option<SignedInVisitor>,
    form: FormFields,
) -> Response<ReplyBody> {
    let path = head.uri.path();
    let now = clock::uptime();
    if let Some(link) = path.strip_prefix("/open/") {
        let text = "This link was used already, or is too old. Run headend console for another one.";
        return sign_in(console, "link", || console.doors.use_link(link, now), "/", text).await;
    }
    if let Some(id) = path.strip_prefix("/login/") {
        return login::enter(console, id, visitor.as_ref()).await;
    }
    if path == login::CALLBACK {
        return login::finish_from_paste(console, head, visitor.as_ref(), &form).await;
    }
    if path == "/sign-in" {
        let then = own_page(form.field("then").unwrap_or("/"));
        let token = form.field("token").unwrap_or_default();
        let wrong = "This is not the operator's token.";
        return sign_in(console, "token", || console.doors.enter(token, now), then, wrong).await;
    }
    let Some(visitor) = visitor else { return to_sign_in(path) };
    if !form.field("csrf").is_some_and(|csrf| visitor.sent(csrf)) {
        return reply::forbidden("The form does not belong to your session. Reload the page and try again.");
    }
    if path == "/sign-out" {
        let record = console.operator.audit().begin(OperatorAction::SignOut, &visitor.name(), None).await;
        console.doors.leave(&visitor).await;
        // A sign-out never waits for room in the log, so there is a record.
        record.into_iter().for_each(|record| record.end(Ok("")));
        return reply::with_cookie(reply::see("/sign-in"), None);
    }
    if let Some(name) = name_in(path).filter(|_| form.field("do") == Some("log-in")) {
        return login::begin(console, name, &visitor).await.unwrap_or_else(|notice| {
            console.doors.tell(&visitor, notice);
            reply::see(path)
        });
    }
    let (own, path) = (Arc::clone(console), path.to_owned());
    console.act(async move { Box::pin(perform(&own, &path, &visitor, &form)).await }).await
}

/// Runs the action of a form that was posted to `path`, leaves its notice for the session, and
/// redirects.
async fn perform(
    console: &ConsoleSite,
    path: &str,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Response<ReplyBody> {
    let done = match path {
        "/blocks" => action::unblock(console, visitor, form).await,
        "/grants" => action::revoke(console, visitor, form).await,
        "/pins" => action::judge_pin(console, visitor, form).await,
        "/group" => action::answer_group(console, visitor, form).await,
        "/approvals" => action::deny_all(console, visitor, form).await,
        _ => match (path.strip_prefix("/approvals/").filter(|id| is_id(id)), name_in(path)) {
            (Some(id), _) => action::answer(console, id, visitor, form).await,
            (None, Some(name)) => action::act_on_upstream(console, name, visitor, form).await,
            (None, None) if own_page(path) == path => return reply::method_not_allowed("GET, HEAD"),
            (None, None) => return reply::not_found(),
        },
    };
    let Some(notice) = done else {
        return reply::wrong(StatusCode::BAD_REQUEST, "Not understood", "The form lacks a field. Reload the page.");
    };
    console.doors.tell(visitor, notice);
    let is_of_overview = path.starts_with("/approvals") || matches!(path, "/group" | "/blocks");
    reply::see(if is_of_overview { "/" } else { path })
}

/// Signs in with a token or link (`open`), records that, and redirects to `then`. On failure,
/// counts the attempt and shows the sign-in page with the error.
async fn sign_in(
    console: &ConsoleSite,
    by_what: &str,
    open: impl FnOnce() -> Result<String, SignInError> + Send,
    then: &str,
    wrong: &str,
) -> Response<ReplyBody> {
    let page =
        |status, problem: String| reply::page(status, &SignInPage { then: then.to_owned(), problem: Some(problem) });
    let mut record = match console.operator.audit().begin(OperatorAction::SignIn, "console", Some(by_what)).await {
        Ok(record) => record,
        Err(error) => return page(StatusCode::SERVICE_UNAVAILABLE, format!("Not signed in: {error}.")),
    };
    let entry = open();
    if let Ok(cookie) = &entry {
        record.set_by(&session_name(cookie));
        record.end(Ok(""));
        tracing::info!("the operator signed in to the console");
        return reply::with_cookie(reply::see(then), Some(cookie));
    }
    record.forget();
    console.wrong_sign_ins.count();
    match entry {
        Ok(_) | Err(SignInError::Wrong) => {
            tracing::warn!("wrong sign-in to the console");
            page(StatusCode::FORBIDDEN, wrong.to_owned())
        }
        Err(SignInError::TooMany(wait)) => {
            let seconds = wait.as_secs() + 1;
            let problem =
                format!("Too many wrong attempts. Try again in {seconds} s, or use a link from headend console.");
            reply::retry_later(page(StatusCode::TOO_MANY_REQUESTS, problem), seconds)
        }
    }
}
