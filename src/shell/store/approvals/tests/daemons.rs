//! Open approvals of daemons that were killed.

use super::*;

/// Opens an approval in a daemon and one in another process on the store. Returns the second
/// process.
async fn opened_by_a_daemon_and_another(dir: &tempfile::TempDir) -> Approvals {
    let (daemon, alone) = (kept(dir), kept(dir));
    daemon.keep_operator(SettingOwner::Daemon);
    daemon.end_approvals_of_earlier_daemons();
    for (approvals, item) in [(&daemon, "fx__daemon"), (&alone, "fx__alone")] {
        approvals.ask(asked("ci", item, "{}"), shown()).unwrap();
        approvals.inner.db.as_ref().unwrap().all_so_far().run().await.unwrap();
    }
    alone
}

fn listed(dir: &tempfile::TempDir) -> Vec<String> {
    let rows = beside::stored_approvals(&Db::open(dir.path()).unwrap()).unwrap();
    rows.into_iter().map(|row| row.item).collect()
}

#[tokio::test]
async fn a_command_lists_no_approval_of_a_daemon_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let _alone = opened_by_a_daemon_and_another(&dir).await;
    assert_eq!(listed(&dir), ["fx__alone"]);
}

#[tokio::test]
async fn a_new_daemon_ends_the_approvals_of_one_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let alone = opened_by_a_daemon_and_another(&dir).await;
    let _lock = StateLock::take(dir.path()).await.unwrap();
    assert_eq!(listed(&dir).len(), 2, "a daemon has the directory");
    let rows = alone.all_approvals().await.unwrap();
    let killed_approval = rows.into_iter().find(|row| row.item == "fx__daemon").map(|row| row.id);
    let next = kept(&dir);
    let db = next.inner.db.clone().unwrap();
    let audit = full_queue::log(dir.path(), db.clone(), &Metrics::new().unwrap());
    next.record_in(audit.clone());
    next.keep_operator(SettingOwner::Daemon);
    next.end_approvals_of_earlier_daemons();
    db.all_so_far().run().await.unwrap();
    audit.flush().await;
    let [(event, approval, result)] = full_queue::records(dir.path()).try_into().unwrap();
    assert_eq!((&*event, &*result), ("answer", "superseded"), "as when a daemon ends in order");
    assert_eq!(Some(approval), killed_approval);
    assert_eq!(alone.all_approvals().await.unwrap().len(), 1);
    assert_eq!(listed(&dir), ["fx__alone"]);
}
