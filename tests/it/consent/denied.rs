//! Denials that are listed and taken back on the console's page.

use super::abuse::waits_for;
use super::operator::headend;
use super::*;
use crate::console::Browser;

#[test]
fn the_console_lists_a_denial_and_undo_takes_it_back() {
    let stage = Stage::with("hold = \"0s\"", "[console]\nlisten = \"127.0.0.1:0\"");
    let mut client = stage.client(Era::Modern, json!({}));
    let one = json!({"text": "one"});
    let id = waits_for(&client.call("fx__echo", one.clone()));
    headend(&stage, &["deny", &id]);
    let mut browser = Browser::signed_in(&stage.gateway);
    let page = browser.get("/").text();
    assert!(page.contains("Undo") && page.contains("fx__echo"), "{page}");
    let (_, csrf) = page.split_once("name=\"csrf\" value=\"").unwrap();
    let csrf = csrf.split('"').next().unwrap().to_owned();
    assert_eq!(browser.post("/blocks", &format!("csrf={csrf}&id={id}")).head.status, 303);
    assert!(!browser.get("/").text().contains("Undo"));
    waits_for(&client.call("fx__echo", one));
}
