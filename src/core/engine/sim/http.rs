//! Sessions over HTTP: the questions of the handshake and the pages of the lists, posted one after
//! the other.

use super::*;
use crate::engine::handshake::{Handshake, HandshakeAction, HandshakeReply, HandshakeTransport, ServerOffers};
use crate::engine::lists::{DuePage, UpstreamLists};
use crate::mcp::meta::HopMeta;
use crate::wire::message;

/// Posts a request and returns its result, or its error.
fn post(server: &mut Server, method: Method, params: Option<&RawJson>) -> Result<RawJson, RawJson> {
    let body = message::encode_request(&RawJson::trusted("1"), method.as_str(), params);
    let answer = server.answer(&String::from_utf8_lossy(&body)).remove(0);
    let part = |name: &str| RawJson::trusted(answer[name].to_string());
    if answer["error"].is_null() { Ok(part("result")) } else { Err(part("error")) }
}

fn shake(server: &mut Server) -> HandshakeAction {
    let mut handshake = Handshake::new(EraHint::Probe, HandshakeTransport::Http { may_be_older: true });
    loop {
        let question = handshake.question();
        let params = question.params(&HopMeta::bare(), &DeclaredCapabilities::default());
        let answer = post(server, question.method(), Some(&params));
        let next = handshake.heard(Some(200), HandshakeReply::Answer(answer));
        if !matches!(next, HandshakeAction::Ask(_)) {
            return next;
        }
    }
}

/// Posts for one page, of a list that is due where none is being read.
fn read(server: &mut Server, lists: &mut UpstreamLists, page: Option<DuePage>, now: Instant) -> Option<DuePage> {
    let page = page.or_else(|| lists.next(now))?;
    let params = page.params(&HopMeta::bare(), server.revision);
    let answer = post(server, page.reading.list.method(), params.as_ref());
    lists.answered(page.reading, answer, now).0
}

#[test]
fn a_session_over_http_asks_what_a_process_is_asked() {
    for &revision in Revision::ALL {
        let mut world = World::new().upstream("a", revision, &["t1", "t2", "t3"]);
        let process = std::mem::take(&mut world.upstreams[0].server.seen);
        let server = &mut world.upstreams[0].server;
        let HandshakeAction::Agreed(agreed) = shake(server) else { panic!("{revision}: no handshake") };
        assert_eq!(agreed.revision, revision);
        let mut lists = UpstreamLists::new(ListBounds::default());
        lists.begin(agreed.offers);
        let mut page = None;
        while lists.news(world.now).is_none() {
            page = read(server, &mut lists, page, world.now);
        }
        let asked = |seen: &[Value]| -> Vec<(String, String)> {
            let requests = seen.iter().filter(|message| message["id"].is_u64());
            requests.map(|m| (m["method"].to_string(), format!("{}{}", claim(m), m["params"]["cursor"]))).collect()
        };
        assert_eq!(asked(&server.seen), asked(&process), "{revision}");
    }
}

#[derive(Clone, Debug)]
enum PostStep {
    Change,
    Pass(u64),
    Page,
    NoRoom,
    /// The list cannot be read.
    Fail,
    /// The server may have sent a message that the gateway missed.
    Doubt,
    /// The session's own stream has ended, and notifications sent meanwhile are lost.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<PostStep>> {
    let step = prop_oneof![
        3 => Just(PostStep::Change),
        2 => (0..2000_u64).prop_map(PostStep::Pass),
        6 => Just(PostStep::Page),
        1 => Just(PostStep::NoRoom),
        2 => Just(PostStep::Fail),
        1 => Just(PostStep::Doubt),
        1 => Just(PostStep::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn whatever_happens_meanwhile_the_last_change_is_read(steps in steps()) {
        let mut world = World::new();
        world.add("a", Revision::V2025_11_25, &["t"], EraHint::Legacy);
        let (server, mut now) = (&mut world.upstreams[0].server, world.now);
        let mut lists = UpstreamLists::new(ListBounds::default());
        lists.begin(ServerOffers::default());
        let (mut page, mut told) = (None, None);
        for step in steps {
            match step {
                PostStep::Change => {
                    server.tools.push(format!("u{}", server.tools.len()));
                    lists.changed(&[ItemList::Tools]);
                }
                PostStep::Pass(ms) => now += Duration::from_millis(ms),
                PostStep::Page => page = read(server, &mut lists, page, now),
                PostStep::NoRoom => page.take().into_iter().for_each(|page: DuePage| lists.no_room(page.reading.list)),
                PostStep::Fail => page.take().into_iter().for_each(|page: DuePage| lists.failed(page.reading.list, "no", now)),
                PostStep::Doubt => lists.reopened(now),
                PostStep::Reopen => {
                    page = None;
                    lists.begin(ServerOffers::default());
                }
            }
            told = lists.news(now).or(told);
        }
        loop {
            page = page.take().or_else(|| lists.next(now));
            if page.is_some() {
                page = read(server, &mut lists, page, now);
                told = lists.news(now).or(told);
            } else if let Some(due) = lists.refresh_at() {
                now = due;
            } else {
                break;
            }
        }
        let names: Vec<String> = told.unwrap().items(ItemList::Tools).iter().map(|item| item.key.clone()).collect();
        prop_assert_eq!(&names, &server.tools);
    }
}
