//! Tests the choice "Always below this folder" on a card, and grants below a folder in the list.

use super::*;
use crate::policy::consent::{ApprovalView, GrantView, OfferView};

fn offer(base: &str) -> OfferView {
    OfferView { base: base.to_owned(), covers: "Judged: /path. Symbolic links are the server's matter.".to_owned() }
}

#[tokio::test]
async fn a_card_offers_the_folders_and_a_form_names_one() {
    let stage = ConsoleTestServer::set(FakeBackend::busy()).await;
    let cookie = stage.sign_in().await;
    let plain = approval("a1", "x", "x", StatedHints::default(), 1, "{}");
    stage.desk.ask(plain.clone());
    assert!(!stage.get("/approvals/a1", &cookie).await.body.contains("Always below"), "where nothing is offered");
    let below = vec![offer("/srv/app/<b>"), offer("/srv/app")];
    stage.desk.approvals.lock().retain(|approval| approval.id != "a1");
    stage.desk.ask(ApprovalView { below: Some(below), ..plain.clone() });
    let page = stage.get("/approvals/a1", &cookie).await;
    for part in [
        "<option>/srv/app/&#60;b&#62;</option><option>/srv/app</option>",
        "Always below this folder",
        "Symbolic links are",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    stage.desk.ask(ApprovalView { id: "a2".to_owned(), below: Some(vec![offer("https://docs.example/")]), ..plain });
    let site = stage.get("/approvals/a2", &cookie).await.body;
    assert!(site.contains("Always for this site<span"), "{site}");
    let csrf = page.csrf();
    let form = |more: &str| format!("csrf={csrf}&answer=below&digest={}{more}", digest("a1"));
    let send = async |body: String| stage.send("POST", "/approvals/a1", &[("Cookie", &cookie)], &body).await.status;
    assert_eq!(send(form("")).await, 400, "without a folder");
    assert_eq!(send(form("&below=%2Fsrv%2Fapp")).await, 303);
    assert_eq!(stage.desk.done().last().unwrap(), "answer a1 always below /srv/app");
    let told = "Allowed always below /srv/app: calls of x by local, until the tool or its server changes.";
    assert!(stage.get("/", &cookie).await.body.contains(told));
}

#[test]
fn a_grant_is_listed_with_its_folder() {
    let grant = FakeBackend::busy().grants().remove(3);
    let row = page::GrantTableRow::new(
        &GrantView { below: Some("/srv/app".to_owned()), covers: Some(offer("").covers), ..grant },
        1_790_000_000,
    );
    assert_eq!(row.scope, "below /srv/app. Judged: /path. Symbolic links are the server's matter.");
}
