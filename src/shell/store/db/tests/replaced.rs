//! A store that comes back without its last changes, as after a fail-over.

use super::*;
use crate::engine::sealed::ended::EndedSession;
use crate::engine::sealed::session_id::SessionName;
use crate::policy::Caller;

#[test]
fn what_has_ended_stays_so_in_a_database_that_lacks_the_last_changes() {
    let dir = tempfile::tempdir().unwrap();
    let [db, other] = [(); 2].map(|()| Db::open(dir.path()).unwrap());
    // A file is never another one.
    if db.replicas().is_none() {
        return;
    }
    let state = StateUse { id: StateId::default(), until: 100 };
    let session = EndedSession { caller: Caller::named("ci"), name: SessionName::default(), opened: 1, until: 100 };
    let token = |name: &str| ClientToken {
        name: name.to_owned(),
        digest: Digest::of(name.as_bytes()),
        scopes: Vec::new(),
        created: 1,
        expires: None,
        last_used: None,
    };
    for name in ["ended", "left"] {
        assert_eq!(db.add_client_token(token(name), 9).run_now().unwrap(), TokenAddition::Added);
    }
    assert!(db.use_state(state, 2).run_now().unwrap());
    assert!(db.revoke_client_token("ended".to_owned()).run_now().unwrap());
    db.end_session(session.clone(), None).run_now().unwrap();

    // The standby has none of that.
    other.damage("DELETE FROM used_states");
    other.damage("DELETE FROM ended_sessions");
    other.damage(
        "INSERT INTO client_tokens (name, prefix, rest, scopes, created) \
         VALUES ('ended', substr(sha256('ended'), 1, 8), substr(sha256('ended'), 9), '', 1)",
    );
    assert_eq!(other.client_tokens().run_now().unwrap(), ["ended", "left"].map(token));
    other.damage("UPDATE meta SET value = 'another/1' WHERE key = 'system'");
    other.damage("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()");

    // Operations fail until the replica is connected again.
    let tokens = std::iter::repeat_with(|| {
        // A look by another connection takes its time.
        other.damage("SELECT pg_sleep(0.02)");
        db.client_tokens().run_now()
    });
    assert_eq!(tokens.take(500).find_map(Result::ok).unwrap(), [token("left")]);
    assert!(!other.use_state(state, 2).run_now().unwrap());
    assert!(other.ended_sessions(2).unwrap().has(&session.caller, session.opened, &session.name));
}
