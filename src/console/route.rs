//! One request of a browser: its session, its page, its action.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE as COOKIES};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use url::form_urlencoded;

use super::card::Card;
use super::desk::{Found, PinKey, Reply};
use super::events;
use super::group_link::GroupLink;
use super::page::{
    Closed, Decisions, Frame, Granted, Grants, Group, OneApproval, Open, Overview, Pinned, Pins, Review, Row, Section,
    SignIn, Tile, Upstreams,
};
use super::reply::{self, COOKIE};
use super::session::{NoEntry, Notice, Visitor};
use super::site::{Console, Seat};
use crate::base::clock;
use crate::listener::body::ReplyBody;
use crate::wire::coding;

const MAX_BODY: usize = 64 * 1024;
const BODY_TIME: Duration = Duration::from_secs(10);
/// Number of decisions on the overview, and on their own page.
const FEW: usize = 8;
const ALL: usize = 200;
/// Header of the script's own requests: they leave a notice for the page that the operator sees next.
const REFRESH: &str = "headend-refresh";

/// Serves one request.
pub(super) async fn handle(
    console: &Arc<Console>,
    request: http::Request<Incoming>,
    seat: &Seat,
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
        let busy = reply::wrong(StatusCode::SERVICE_UNAVAILABLE, "Not now", text);
        return reply::closing(reply::retry_later(busy, 10));
    }
    if let Some(file) = file(head.uri.path()) {
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
    write(console, &head, visitor, &form).await
}

fn is_read(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

fn file(path: &str) -> Option<Response<ReplyBody>> {
    Some(match path {
        "/static/console.css" => reply::file("text/css; charset=utf-8", include_str!("console.css")),
        "/static/console.js" => reply::file("text/javascript; charset=utf-8", include_str!("console.js")),
        "/static/icon.svg" => reply::file("image/svg+xml", include_str!("icon.svg")),
        _ => return None,
    })
}

/// Browsers say where a form comes from. Other programs say nothing, and have no cookie of another program.
fn same_site(headers: &HeaderMap) -> bool {
    headers.get_all("sec-fetch-site").iter().all(|site| site == "same-origin" || site == "none")
}

/// The session of the request's cookie.
///
/// A cookie is not bound to a port, so programs on other ports of this address may have set any number of that name,
/// and some that are not text. All are tried; the bound on the head limits their number.
fn visitor(console: &Console, head: &Parts) -> Option<Visitor> {
    // An open page asks by itself, so that says nothing of a person.
    let active = !head.headers.contains_key(REFRESH) && head.uri.path() != "/events";
    let pairs = head.headers.get_all(COOKIES).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let mut own = pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"="));
    own.find_map(|value| console.doors.visitor(str::from_utf8(value).ok()?, active, clock::uptime()))
}

/// The path if it is a page of the console, else that of the overview.
pub(super) fn own_page(path: &str) -> &str {
    let known = matches!(path, "/" | "/grants" | "/pins" | "/upstreams" | "/decisions");
    let approval = path.strip_prefix("/approvals/").is_some_and(is_id);
    if known || approval { path } else { "/" }
}

pub(super) fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Whether a text after `/open/` is base64url of the length of a secret.
pub(super) fn is_link(link: &str) -> bool {
    (20..=64).contains(&link.len()) && link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

async fn read(console: &Arc<Console>, head: &Parts, visitor: Option<Visitor>) -> Response<ReplyBody> {
    let path = head.uri.path();
    if let Some(link) = path.strip_prefix("/open/") {
        // The same page for every link: opening it reveals nothing and uses nothing up.
        return if is_link(link) {
            reply::page(StatusCode::OK, &Open { link: link.to_owned() })
        } else {
            reply::not_found()
        };
    }
    if path == "/sign-in" {
        let query = head.uri.query().unwrap_or_default();
        let then = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "then").map(|(_, then)| then);
        let then = own_page(then.as_deref().unwrap_or("/")).to_owned();
        return reply::page(StatusCode::OK, &SignIn { then, problem: None });
    }
    if path == "/sign-out" {
        return reply::method_not_allowed("POST");
    }
    let Some(visitor) = visitor else { return to_sign_in(path) };
    if path == "/events" {
        if head.method == Method::HEAD {
            return reply::method_not_allowed("GET");
        }
        return events::stream(console, &visitor).unwrap_or_else(|| {
            let text = "Too many pages of the console are open. Close some of them.";
            reply::retry_later(reply::wrong(StatusCode::SERVICE_UNAVAILABLE, "Not now", text), 10)
        });
    }
    show(console, head, &visitor).await
}

fn to_sign_in(path: &str) -> Response<ReplyBody> {
    match own_page(path) {
        "/" => reply::see("/sign-in"),
        then => reply::see(&format!("/sign-in?then={then}")),
    }
}

/// A page for a signed-in browser.
async fn show(console: &Console, head: &Parts, visitor: &Visitor) -> Response<ReplyBody> {
    let desk = &console.desk;
    let now = desk.now();
    let pins = desk.pins().await;
    let frame = |section| Frame {
        section,
        csrf: visitor.csrf.clone(),
        notice: if head.headers.contains_key(REFRESH) { None } else { console.doors.told(visitor) },
        waiting: desk.approvals().len(),
        pins_waiting: pins.iter().filter(|pin| Review::is_due(pin)).count(),
    };
    let rows = |count| desk.decisions(count).iter().map(|decision| Row::new(decision, now)).collect::<Vec<_>>();
    let tiles = || desk.upstreams().iter().map(Tile::new).collect::<Vec<_>>();
    let ok = StatusCode::OK;
    match head.uri.path() {
        "/" => {
            let mut tiles = tiles();
            // Upstreams in trouble come first; the rest keeps the order of the configuration.
            tiles.sort_by_key(|tile| tile.tone != "danger");
            let approvals = desk.approvals();
            let page = Overview {
                frame: frame(Section::Overview),
                cards: approvals.iter().map(|approval| Card::new(approval, now)).collect(),
                groups: GroupLink::all(&approvals),
                troubled: tiles.iter().filter(|tile| tile.tone == "danger").count(),
                tiles,
                rows: rows(FEW),
            };
            reply::page(ok, &page)
        }
        "/grants" => {
            let grants = desk.grants().iter().map(|grant| Granted::new(grant, now)).collect();
            reply::page(ok, &Grants { frame: frame(Section::Grants), grants })
        }
        "/pins" => {
            let reviews = pins.iter().filter_map(|pin| Review::new(pin, now)).collect();
            reply::page(ok, &Pins { frame: frame(Section::Pins), reviews, pinned: Pinned::all(&pins) })
        }
        "/upstreams" => reply::page(ok, &Upstreams { frame: frame(Section::Upstreams), tiles: tiles() }),
        "/group" => {
            let query = head.uri.query().unwrap_or_default();
            let mut of: HashMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
            let [caller, kind, item] = ["caller", "kind", "item"].map(|name| of.remove(name).unwrap_or_default());
            let mut approvals = desk.approvals();
            approvals.retain(|one| one.caller == caller && one.kind == kind && one.canonical == item);
            let cards = approvals.iter().map(|approval| Card::new(approval, now)).collect();
            reply::page(ok, &Group::new(frame(Section::Other), cards))
        }
        "/decisions" => reply::page(ok, &Decisions { frame: frame(Section::Decisions), rows: rows(ALL) }),
        path => match path.strip_prefix("/approvals/").filter(|id| is_id(id)) {
            Some(id) => match desk.approval(id) {
                Found::Open(approval) => {
                    let card = Card::whole(&approval, now);
                    let count = desk.approvals().iter().filter(|other| other.is_beside(&approval)).count();
                    let group = (count > 1).then(|| GroupLink::to(&approval, count));
                    reply::page(ok, &OneApproval { frame: frame(Section::Other), card, group })
                }
                Found::Closed(ending) => reply::page(ok, &Closed::new(frame(Section::Other), id, Some(ending))),
                Found::Unknown => reply::page(StatusCode::NOT_FOUND, &Closed::new(frame(Section::Other), id, None)),
            },
            None => reply::not_found(),
        },
    }
}

/// Fields of a form.
struct Form(Vec<(String, String)>);

impl Form {
    /// The value of a field that occurs once.
    fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// The values of a field that may occur several times.
    fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

async fn form(headers: &HeaderMap, body: Incoming) -> Result<Form, Box<Response<ReplyBody>>> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let plain = coding::is_plain_content(headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes));
    if !plain || !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let text = "The console accepts only its own forms.";
        return Err(Box::new(reply::wrong(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Refused", text)));
    }
    match tokio::time::timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(Form(form_urlencoded::parse(&body.to_bytes()).into_owned().collect())),
        Ok(Err(_)) => Err(Box::new(reply::wrong(StatusCode::PAYLOAD_TOO_LARGE, "Refused", "The form is too large."))),
        Err(_) => Err(Box::new(reply::wrong(StatusCode::REQUEST_TIMEOUT, "Refused", "The form came too slowly."))),
    }
}

async fn write(console: &Console, head: &Parts, visitor: Option<Visitor>, form: &Form) -> Response<ReplyBody> {
    let path = head.uri.path();
    let now = clock::uptime();
    if let Some(link) = path.strip_prefix("/open/") {
        let text = "This link was used already, or is too old. Run headend console for another one.";
        return entered(console.doors.use_link(link, now), "/", text);
    }
    if path == "/sign-in" {
        let then = own_page(form.field("then").unwrap_or("/"));
        let token = form.field("token").unwrap_or_default();
        return entered(console.doors.enter(token, now), then, "This is not the operator's token.");
    }
    let Some(visitor) = visitor else { return to_sign_in(path) };
    if !form.field("csrf").is_some_and(|csrf| visitor.sent(csrf)) {
        return reply::forbidden("The form does not belong to your session. Reload the page and try again.");
    }
    if path == "/sign-out" {
        console.doors.leave(&visitor).await;
        return reply::with_cookie(reply::see("/sign-in"), None);
    }
    let done = match path {
        "/grants" => revoke(console, form).await,
        "/pins" => judge_pin(console, form).await,
        "/group" => answer_group(console, form).await,
        _ => match path.strip_prefix("/approvals/").filter(|id| is_id(id)) {
            Some(id) => answer(console, id, form).await,
            None if own_page(path) == path => return reply::method_not_allowed("GET, HEAD"),
            None => return reply::not_found(),
        },
    };
    let Some(notice) = done else {
        return reply::wrong(StatusCode::BAD_REQUEST, "Not understood", "The form lacks a field. Reload the page.");
    };
    console.doors.tell(&visitor, notice);
    reply::see(if path.starts_with("/approvals/") || path == "/group" { "/" } else { path })
}

/// Redirects into the console after sign-in, or shows the sign-in page with the error.
fn entered(entry: Result<String, NoEntry>, then: &str, wrong: &str) -> Response<ReplyBody> {
    let page = |status, problem: String| reply::page(status, &SignIn { then: then.to_owned(), problem: Some(problem) });
    match entry {
        Ok(cookie) => {
            tracing::info!("the operator signed in to the console");
            reply::with_cookie(reply::see(then), Some(&cookie))
        }
        Err(NoEntry::Wrong) => {
            tracing::warn!("wrong sign-in to the console");
            page(StatusCode::FORBIDDEN, wrong.to_owned())
        }
        Err(NoEntry::TooMany(wait)) => {
            let seconds = wait.as_secs() + 1;
            let problem =
                format!("Too many wrong attempts. Try again in {seconds} s, or use a link from headend console.");
            reply::retry_later(page(StatusCode::TOO_MANY_REQUESTS, problem), seconds)
        }
    }
}

/// `None` for a malformed form.
async fn answer(console: &Console, id: &str, form: &Form) -> Option<Notice> {
    let reply = Reply::parse(form.field("answer")?)?;
    Some(match console.desk.answer(id, reply).await {
        Ok(ending) => {
            let text = match reply {
                Reply::Deny => "Denied. The call is not made.",
                Reply::Once => "Allowed once.",
                Reply::Session => "Allowed for the session of this caller.",
                Reply::Hour => "Allowed for one hour.",
                Reply::UntilChanged => "Allowed until the definition or its server changes.",
            };
            tracing::info!(approval = id, ending = ?ending, "answered in the console");
            Notice { good: true, text: text.to_owned() }
        }
        Err(text) => Notice { good: false, text },
    })
}

/// `None` for a malformed form.
async fn answer_group(console: &Console, form: &Form) -> Option<Notice> {
    let reply = Reply::parse(form.field("answer")?)?;
    let member = |value: &str| value.split_once(':').map(|(id, digest)| (id.to_owned(), digest.to_owned()));
    let members: Vec<(String, String)> = form.fields("member").map(member).collect::<Option<_>>()?;
    if members.is_empty() {
        return Some(Notice { good: false, text: "No call was checked, so nothing was answered.".to_owned() });
    }
    let answered = match console.desk.answer_group(&members, reply).await {
        Ok(answered) => answered,
        Err(text) => return Some(Notice { good: false, text }),
    };
    tracing::info!(approvals = members.len(), answered = ?answered, "answered together in the console");
    let done = answered.iter().filter(|one| one.is_ok()).count();
    let verb = if reply == Reply::Deny { "Denied" } else { "Allowed once" };
    let mut text = format!("{verb}: {done} of {}.", members.len());
    if let Some(why) = answered.iter().find_map(|one| one.as_ref().err()) {
        text.push_str(&format!(" Not answered: {} ({why})", members.len() - done));
    }
    Some(Notice { good: done == members.len(), text })
}

async fn revoke(console: &Console, form: &Form) -> Option<Notice> {
    Some(match console.desk.revoke(form.field("id")?).await {
        Ok(true) => Notice { good: true, text: "Revoked. The next such call needs an approval.".to_owned() },
        Ok(false) => Notice { good: false, text: "This grant had ended already.".to_owned() },
        Err(text) => Notice { good: false, text },
    })
}

async fn judge_pin(console: &Console, form: &Form) -> Option<Notice> {
    let field = |name| form.field(name).map(str::to_owned);
    let key = PinKey { upstream: field("upstream")?, kind: field("kind")?, name: field("name")? };
    let digest = form.field("digest")?;
    let (outcome, text) = match form.field("answer")? {
        "approve" => (console.desk.approve_pin(&key, digest).await, "Approved. Clients see it as it is now."),
        "reject" => (console.desk.reject_pin(&key, digest).await, "Rejected. It stays hidden until it changes again."),
        _ => return None,
    };
    Some(match outcome {
        Ok(()) => Notice { good: true, text: text.to_owned() },
        Err(text) => Notice { good: false, text },
    })
}
