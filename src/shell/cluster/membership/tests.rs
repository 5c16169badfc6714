//! Replicas that come, fall silent, die and come back, on a paused clock and a directory in memory.

use super::*;
use crate::store::port::MemoryReplicas;
use crate::wire::secrets::SealSecrets;

/// A replica whose requests go nowhere.
async fn replica(directory: &Arc<MemoryReplicas>, name: &str, secret: u8) -> Arc<Cluster> {
    let facts = ReplicaFacts {
        name: name.to_owned(),
        url: Some("http://127.0.0.1:1".parse().unwrap()),
        key: None,
        version: String::new(),
        started: 0,
        load: 0,
        policy: String::new(),
        upstreams: String::new(),
    };
    let key = PeerKey::new(&SealSecrets::new([secret; 32]));
    let cluster = Cluster::new(Arc::clone(directory) as _, key, None, Arc::default(), facts);
    cluster.join().await.unwrap();
    cluster
}

/// Lets a replica send heartbeats for so many seconds.
async fn beat_for(replicas: &[&Arc<Cluster>], seconds: u64) {
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for replica in replicas {
            let _reader = replica.reader.lock().await;
            // The store may be away.
            drop(replica.beat().await);
        }
    }
}

fn session(name: u8, owner: &Cluster) -> NamedSession {
    let until = clock::since_1970().as_secs() + 3600;
    NamedSession { name: [name; 12], run: owner.run().unwrap(), until }
}

async fn is_own(replica: &Cluster, session: &NamedSession) -> bool {
    matches!(replica.holder(session, HolderDoubt::None).await.unwrap(), SessionHolder::Own)
}

async fn held_by(replica: &Cluster, session: &NamedSession) -> Option<RunId> {
    match replica.holder(session, HolderDoubt::None).await.unwrap() {
        SessionHolder::Own => replica.run(),
        SessionHolder::Peer(peer) => Some(peer.run),
        SessionHolder::Unreachable => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_owner_is_dead_after_fifteen_seconds_and_one_replica_takes_its_session() {
    let directory = Arc::new(MemoryReplicas::default());
    let [a, b, c] =
        [replica(&directory, "a", 1).await, replica(&directory, "b", 1).await, replica(&directory, "c", 1).await];
    let one = session(1, &a);
    assert!(is_own(&a, &one).await);
    assert_eq!(held_by(&b, &one).await, a.run());
    beat_for(&[&b, &c], 14).await;
    assert_eq!(held_by(&b, &one).await, a.run(), "not yet");
    beat_for(&[&b, &c], 4).await;
    let (left, right) = tokio::join!(held_by(&b, &one), held_by(&c, &one));
    assert!(left == right && [b.run(), c.run()].contains(&left), "one of them");
    assert_eq!(directory.claims(), 1);
    // It comes back, as another run: what it held is not its own by right.
    let before = a.run();
    beat_for(&[&a, &b, &c], 1).await;
    assert!(a.run() != before && a.is_own(before.unwrap()));
    assert_eq!(held_by(&a, &one).await, left);
    let other = session(2, &a);
    assert_eq!(held_by(&b, &other).await, a.run(), "its new sessions are its own");
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_says_at_once_that_a_replica_is_dead() {
    let directory = Arc::new(MemoryReplicas::default());
    let [a, b, c] =
        [replica(&directory, "a", 1).await, replica(&directory, "b", 1).await, replica(&directory, "c", 1).await];
    let one = session(1, &a);
    assert_eq!(held_by(&b, &one).await, a.run());
    let holder = b.holder(&one, HolderDoubt::Refused(a.run().unwrap())).await.unwrap();
    assert!(matches!(holder, SessionHolder::Own));
    beat_for(&[&c], 1).await;
    assert_eq!(held_by(&c, &one).await, b.run());
    // The second owner dies too.
    assert!(matches!(c.holder(&one, HolderDoubt::Refused(b.run().unwrap())).await.unwrap(), SessionHolder::Own));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_dead_because_the_store_was_away() {
    let directory = Arc::new(MemoryReplicas::default());
    let [a, b] = [replica(&directory, "a", 1).await, replica(&directory, "b", 1).await];
    beat_for(&[&a, &b], 20).await;
    let (one, before) = (session(1, &a), a.run());
    directory.set_away(true);
    beat_for(&[&a, &b], 60).await;
    assert_eq!(held_by(&b, &one).await, before);
    let unknown = NamedSession { run: RunId::new([9; 8]).unwrap(), ..one };
    assert!(b.holder(&unknown, HolderDoubt::None).await.is_err(), "its owner may live");
    directory.set_away(false);
    beat_for(&[&b], 3).await;
    assert_eq!(held_by(&b, &one).await, before, "it had no time for a heartbeat yet");
    beat_for(&[&a, &b], 20).await;
    assert_eq!((a.run(), directory.claims()), (before, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_taken_once_and_from_living_replicas_of_the_cluster_alone() {
    let directory = Arc::new(MemoryReplicas::default());
    let [a, b] = [replica(&directory, "a", 1).await, replica(&directory, "b", 1).await];
    let stranger = replica(&directory, "stranger", 2).await;
    let request = |from: &Cluster, to: &Cluster| PassedRequest {
        from: from.run().unwrap(),
        to: to.run().unwrap(),
        method: "POST",
        target: "/mcp",
        headers: [None, None],
        body: Digest::of(b"{}"),
    };
    let there = request(&a, &b);
    let caller = Caller::token("ci").unwrap();
    let vouch = |by: &Cluster, request| by.vouch(request, &caller, PassedCredential::Token([7; 32])).unwrap();
    let sealed = vouch(&a, &there);
    let taken = b.take_caller(&there, &sealed).await.unwrap();
    assert_eq!((&taken.caller, taken.credential), (&caller, PassedCredential::Token([7; 32])));
    assert_eq!(b.take_caller(&there, &sealed).await, None, "a second time");
    let sealed = vouch(&a, &there);
    assert_eq!(b.take_caller(&PassedRequest { target: "/mcp/work", ..there }, &sealed).await, None, "another path");
    assert_eq!(a.take_caller(&request(&a, &a), &sealed).await, None, "another receiver");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(b.take_caller(&there, &sealed).await, None, "too late");
    let theirs = request(&stranger, &b);
    assert_eq!(b.take_caller(&theirs, &vouch(&stranger, &theirs)).await, None, "another cluster");
    beat_for(&[&a, &b], 1).await;
    assert!(b.take_caller(&there, &vouch(&a, &there)).await.is_some());
    a.leave().await;
    let sealed = vouch(&a, &there);
    beat_for(&[&b], 1).await;
    assert_eq!(b.take_caller(&there, &sealed).await, None, "a replica that has left");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_was_not_made_in_the_cluster_is_no_replica() {
    let directory = Arc::new(MemoryReplicas::default());
    let a = replica(&directory, "a", 1).await;
    let stranger = replica(&directory, "stranger", 2).await;
    beat_for(&[&a], 1).await;
    assert_eq!(a.reading().replicas.len(), 1);
    assert!(a.peer(stranger.run().unwrap()).await.is_none());
    assert!(!a.knows_key(&Digest::of(b"a key")).await);
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_clock_of_the_store_makes_no_replica_dead() {
    let directory = Arc::new(MemoryReplicas::default());
    let [a, b] = [replica(&directory, "a", 1).await, replica(&directory, "b", 1).await];
    let one = session(1, &a);
    beat_for(&[&a, &b], 30).await;
    directory.set_jump(DEAD_AFTER * 2);
    // Before either has sent a heartbeat, and while one of them has.
    let doubted = b.holder(&one, HolderDoubt::Denied).await.unwrap();
    assert!(matches!(doubted, SessionHolder::Peer(peer) if Some(peer.run) == a.run()));
    beat_for(&[&b], 1).await;
    assert_eq!(held_by(&b, &one).await, a.run());
    let run = a.run();
    beat_for(&[&a, &b], 30).await;
    assert_eq!((a.run(), held_by(&b, &one).await), (run, run));
    // Back again: a dead one is noticed later.
    directory.set_jump(Duration::ZERO);
    beat_for(&[&a, &b], 30).await;
    assert_eq!((a.run(), held_by(&b, &one).await), (run, run));
    beat_for(&[&b], 60).await;
    assert_eq!(held_by(&b, &session(2, &a)).await, b.run());
}
