use super::*;
use crate::base::access::Access;
use crate::mcp::version::Era;

fn client(caller: &str) -> ClientContext {
    let access = Access::new(&CancellationToken::new());
    ClientContext::new(Caller::named(caller), access, None, Revision::preferred(Era::Legacy))
}

fn sessions(limit: usize) -> ClientSessions {
    let hour = Duration::from_secs(3600);
    let limits = SessionLimits { sessions: limit, per_caller: Some(2), idle: hour, max: hour };
    ClientSessions::new(limits, ByteBudget::new(1 << 20), None, None, Arc::default())
}

#[test]
fn a_session_belongs_to_its_caller() {
    let sessions = sessions(8);
    let id = sessions.open(client("a"), None).unwrap().id.clone();
    assert!(sessions.find(&id, &Caller::named("a")).is_some());
    assert!(sessions.find(&id, &Caller::named("b")).is_none());
    assert!(!sessions.close(&id, &Caller::named("b")));
    assert!(sessions.close(&id, &Caller::named("a")));
    assert!(sessions.find(&id, &Caller::named("a")).is_none());
}

#[test]
fn a_full_table_ends_an_idle_session_and_never_a_busy_one() {
    let sessions = sessions(1);
    let first = sessions.open(client("a"), None).unwrap();
    let stream = first.stream().unwrap();
    assert!(first.stream().is_none(), "one stream at a time");
    assert!(sessions.open(client("b"), None).is_none());
    drop(stream);
    assert!(sessions.open(client("b"), None).is_some());
    assert!(first.ended.is_cancelled());
}

#[test]
fn withdrawn_access_ends_its_sessions_and_opens_none() {
    let sessions = sessions(8);
    let (ours, theirs) = (client("a"), client("b"));
    let (first, other) = (sessions.open(ours.clone(), None).unwrap(), sessions.open(theirs, None).unwrap());
    ours.access.withdraw();
    assert!(sessions.open(ours, None).is_none());
    sessions.end_withdrawn();
    assert!(first.ended.is_cancelled() && sessions.find(&first.id, &Caller::named("a")).is_none());
    assert!(!other.ended.is_cancelled() && sessions.find(&other.id, &Caller::named("b")).is_some());
}

#[test]
fn a_caller_has_a_share_of_the_table() {
    let sessions = sessions(8);
    assert!(sessions.open(client("a"), None).is_some());
    assert!(sessions.open(client("a"), None).is_some());
    assert!(sessions.open(client("a"), None).is_none());
    assert!(sessions.open(client("b"), None).is_some());
}
