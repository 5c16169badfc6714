//! Tests of the supervisor with upstreams that are never started: reports, drafts and orders.

use std::sync::mpsc as blocking;

use tokio::sync::oneshot;

use super::*;
use crate::base::budget::ByteBudget;
use crate::config;
use crate::engine::handshake::{HandshakeAgreement, ServerOffers};
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::store::audit::AuditLog;
use crate::upstream::actor::context::ActorNews;
use crate::wire::json::raw::RawJson;

/// Makes a supervisor of lazy upstreams with these names.
fn supervisor(
    names: &[&str],
) -> (Supervisor, mpsc::Receiver<ActorReport>, mpsc::Receiver<SupervisorOrder>, SupervisorHandle) {
    let tables = names.iter().map(|name| format!("[upstreams.{name}]\ncommand = [\"/bin/true\"]\nstart = \"lazy\"\n"));
    let text: String = tables.collect();
    let nothing = std::io::ErrorKind::NotFound;
    let (config, _) = config::parse(&text, "test", &|_| None, &|_| Err(nothing.into())).unwrap();
    let metrics = Metrics::new().unwrap();
    let limits = &config.server.limits;
    let parts = SupervisorServices {
        role: GatewayRole::Serve,
        metrics: metrics.clone(),
        store: None,
        http: HttpClient::new(),
        intake: IntakeLimits::new(ByteBudget::new(limits.buffered_bytes), limits),
        logins: LoginServices::new(None, AuditLog::none()),
        leases: Leases::new(None, metrics),
        pins: PinRegistry::memory(),
        times: StopTimes::DAEMON,
        marks: OwnerMarks::claim(None),
        prior: Default::default(),
        membership: Default::default(),
    };
    build(config, parts).unwrap()
}

fn tools(count: usize, description: &str) -> Inventory {
    let tool = |n| {
        let text = format!(r#"{{"name":"t{n}","description":"{description}","inputSchema":{{"type":"object"}}}}"#);
        Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap()
    };
    let mut inventory = Inventory::default();
    inventory.replace(ItemList::Tools, (0..count).map(tool).collect());
    inventory
}

fn report(supervisor: &Supervisor, name: &str, inventory: Inventory) -> ActorReport {
    let name = UpstreamName::parse(name).unwrap();
    let handle = Arc::clone(&supervisor.managed[&name].handle);
    let agreed = HandshakeAgreement { revision: Revision::V2025_06_18, offers: ServerOffers::default() };
    ActorReport { upstream: name, handle, news: ActorNews::Inventory(Box::new(inventory), agreed), shown: None }
}

fn shown(supervised: &SupervisorHandle) -> usize {
    supervised.snapshots.load().whole.catalog.entries().len()
}

#[tokio::test]
async fn an_inventory_beyond_the_bound_of_all_is_refused_and_the_last_good_one_stays() {
    let (mut supervisor, _reports, _orders, supervised) = supervisor(&["big", "small"]);
    supervisor.max_inventory_bytes = 200_000;
    let publish = |supervisor: &mut Supervisor| {
        let draft = supervisor.draft(false);
        supervisor.put(draft.make());
    };
    for (name, count) in [("big", 100), ("small", 10)] {
        supervisor.report(report(&supervisor, name, tools(count, "one")));
    }
    publish(&mut supervisor);
    assert_eq!(shown(&supervised), 110);
    let unread = |supervisor: &Supervisor, name: &str| {
        let name = UpstreamName::parse(name).unwrap();
        supervisor.managed[&name].handle.unread.all().into_iter().map(|unread| unread.trouble.why).collect::<Vec<_>>()
    };
    supervisor.report(report(&supervisor, "big", tools(1_000, "one")));
    publish(&mut supervisor);
    assert_eq!(shown(&supervised), 110, "the last good list stays");
    let why = unread(&supervisor, "big");
    assert!(why.len() == 1 && why[0].contains("`max-inventory`"), "{why:?}");
    assert!(unread(&supervisor, "small").is_empty(), "the others are not concerned");
    supervisor.report(report(&supervisor, "small", tools(20, "one")));
    supervisor.report(report(&supervisor, "big", tools(150, "one")));
    publish(&mut supervisor);
    assert_eq!(shown(&supervised), 170);
    assert!(unread(&supervisor, "big").is_empty(), "a smaller list is taken again");
    supervised.stop.cancel();
}

#[tokio::test]
async fn the_supervisor_takes_orders_and_reports_while_a_reading_is_judged() {
    let (supervisor, reports, orders, supervised) = supervisor(&["big", "small"]);
    let (entered, is_entered) = blocking::channel();
    let (release, released) = blocking::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    // Judging blocks in the announcement of what it found.
    supervisor.parts.pins.on_change(Box::new(move |_| {
        entered.send(()).unwrap();
        released.lock().recv().unwrap();
    }));
    let first = report(&supervisor, "big", tools(2_000, "one"));
    let second = report(&supervisor, "big", tools(2_000, "two"));
    let other = report(&supervisor, "small", tools(1, "one"));
    let reports_in = supervisor.reports.clone();
    supervised.tasks.spawn("supervisor", supervisor.run(reports, orders));
    let told = |report: ActorReport| {
        let (told, shown) = oneshot::channel();
        (ActorReport { shown: Some(told), ..report }, shown)
    };
    let (first, is_shown) = told(first);
    reports_in.send(first).await.unwrap();
    is_shown.await.unwrap();
    assert_eq!(shown(&supervised), 2_000);
    let (second, mut is_second_shown) = told(second);
    reports_in.send(second).await.unwrap();
    tokio::task::spawn_blocking(move || is_entered.recv().unwrap()).await.unwrap();
    // The only thread of this runtime is free, and with it the supervisor.
    let (reply, answer) = oneshot::channel();
    supervised.orders.send(SupervisorOrder::Restart { name: "nobody".to_owned(), reply }).await.unwrap();
    assert!(answer.await.unwrap().is_err(), "the order is answered");
    let (other, mut is_other_shown) = told(other);
    reports_in.send(other).await.unwrap();
    assert!(is_second_shown.try_recv().is_err());
    release.send(()).unwrap();
    (&mut is_second_shown).await.unwrap();
    (&mut is_other_shown).await.unwrap();
    assert_eq!(shown(&supervised), 1, "the changed tools are withheld");
    supervised.stop.cancel();
    drop(reports_in);
    supervised.tasks.join().await;
}

#[tokio::test]
async fn a_snapshot_of_replaced_upstreams_is_not_put_in_force() {
    let (mut supervisor, _reports, _orders, supervised) = supervisor(&["one"]);
    supervisor.report(report(&supervisor, "one", tools(3, "one")));
    let draft = supervisor.draft(true);
    supervisor.restart("one").unwrap();
    let made = draft.make();
    assert!(!supervisor.is_current(made.snapshot.as_ref().unwrap()));
    let made = supervisor.draft(true).make();
    assert!(supervisor.is_current(made.snapshot.as_ref().unwrap()));
    supervisor.put(made);
    assert_eq!(shown(&supervised), 3, "the items stay listed");
    supervised.stop.cancel();
}

#[tokio::test]
async fn a_replaced_upstream_is_not_stopped_while_clients_can_find_it() {
    let (mut supervisor, _reports, _orders, supervised) = supervisor(&["one"]);
    let old = supervisor.managed[&UpstreamName::parse("one").unwrap()].stop.clone();
    supervisor.restart("one").unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!old.is_cancelled(), "the snapshot still has it");
    supervisor.make();
    let made = (&mut supervisor.making.as_mut().unwrap().made).await.unwrap();
    supervisor.made(Some(made));
    old.cancelled().await;
    supervised.stop.cancel();
}

#[tokio::test]
async fn an_upstream_that_was_read_rests_for_its_part_of_the_judging_and_others_do_not() {
    let (mut supervisor, _reports, _orders, supervised) = supervisor(&["big", "small"]);
    let watched = |supervisor: &Supervisor, name: &str| {
        supervisor.managed[&UpstreamName::parse(name).unwrap()].handle.judged.subscribe()
    };
    let (big, small) = (watched(&supervisor, "big"), watched(&supervisor, "small"));
    supervisor.report(report(&supervisor, "big", tools(500, "one")));
    let draft = supervisor.draft(false);
    supervisor.put(draft.make());
    assert!(big.has_changed().unwrap() && !small.has_changed().unwrap());
    assert!(*big.borrow() > Duration::ZERO);
    supervised.stop.cancel();
}

#[tokio::test]
async fn a_task_that_waits_for_a_snapshot_is_told_by_the_next_good_one() {
    for is_stale in [true, false] {
        let (mut supervisor, _reports, _orders, supervised) = supervisor(&["one"]);
        supervisor.report(report(&supervisor, "one", tools(3, "one")));
        supervisor.publish(true);
        let (reply, mut answer) = oneshot::channel();
        supervisor.answer(reply, ());
        supervisor.make();
        let made = (&mut supervisor.making.as_mut().unwrap().made).await.unwrap();
        if is_stale {
            supervisor.restart("one").unwrap();
            supervisor.made(Some(made));
        } else {
            // As if the thread that made the snapshot had failed.
            supervisor.made(None);
            supervisor.publish(true);
        }
        assert_eq!((answer.try_recv().is_err(), shown(&supervised)), (true, 0), "{is_stale}");
        supervisor.make();
        let made = (&mut supervisor.making.as_mut().unwrap().made).await.unwrap();
        supervisor.made(Some(made));
        assert_eq!((answer.try_recv().is_ok(), shown(&supervised)), (true, 3), "{is_stale}");
        supervised.stop.cancel();
    }
}
