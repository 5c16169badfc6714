//! Tests of upstreams with more items than `max-inventory`: the first are offered, the others
//! counted, on every transport and in both eras.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::names;
use crate::stage::now;
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Fake;

/// Number of tools of each fake upstream besides those asked for.
const OWN: usize = 12;

fn status(gateway: &Gateway) -> Value {
    let output = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    status["upstreams"][0].clone()
}

/// Starts a gateway in front of one upstream with `tools` further tools.
fn stage(transport: &str, era: &str, tools: usize, keys: &str) -> (Gateway, Option<crate::stage::upstream::Listening>) {
    let fake = match transport {
        "stdio" => Fake::stdio(era),
        "http" => Fake::http(era),
        _ => Fake::sse(),
    };
    let fake = fake.with("--tools", tools.to_string()).with("--page-size", "20");
    let running = (transport != "stdio").then(|| fake.spawn());
    let target = match &running {
        Some(running) => format!("url = \"{}\"", running.url),
        None => format!("command = {}", fake.command()),
    };
    (GatewaySetup::new().toml(&format!("[upstreams.fx]\n{target}\n{keys}\n")).start(), running)
}

#[test]
fn the_first_tools_are_offered_and_status_and_metrics_count_the_others() {
    for (transport, era) in
        [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern"), ("sse", "legacy")]
    {
        let at = format!("{era} over {transport}");
        let (gateway, _running) = stage(transport, era, 60, "max-inventory = 50");
        gateway.wait_for_tools(&["fx__echo"]);
        let mut client = gateway.modern();
        let listed = client.tool_names();
        assert_eq!((listed.len(), listed.last().unwrap().as_str()), (50, "fx__extra_0037"), "{at}: the server's order");
        assert_eq!(client.call("fx__extra_0037", json!({})).text(), "extra_0037", "{at}");
        assert_eq!(client.call("fx__extra_0038", json!({})).code(), Some(-32602), "{at}: beyond it");
        let left = json!({"tools": {"items": OWN + 60 - 50, "or-more": false}});
        assert_eq!(status(&gateway)["not-offered"], left, "{at}");
        for args in [&["status"][..], &["status", "fx"]] {
            let shown = gateway.run(args);
            assert!(String::from_utf8_lossy(&shown.stdout).contains("50 (22 not offered)"), "{at}: {}", said(&shown));
        }
        assert!(gateway.scrape().contains(r#"headend_catalog_excess_items{upstream="fx"} 22"#), "{at}");
        let warnings = || gateway.stderr.all().iter().filter(|line| line.contains("max-inventory")).count();
        eventually("the operator is told once", || warnings() == 1);
    }
}

#[test]
fn every_kind_of_item_has_the_bound() {
    let list = |kind: &str, member: &str| {
        let items: Vec<Value> =
            (0..7).map(|n| json!({"name": format!("{kind}{n}"), member: format!("{kind}://{n}")})).collect();
        json!(items)
    };
    let page = |member: &str, items: Value| {
        vec![format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{}}}"#, json!({member: items}))]
    };
    let setup = GatewaySetup::new();
    let script = json!({
        "prompts/list": page("prompts", list("p", "title")),
        "resources/list": page("resources", list("r", "uri")),
        "resources/templates/list": page("resourceTemplates", list("t", "uriTemplate")),
    });
    let script = setup.world.write("work/script.json", &script.to_string());
    let fake = Fake::stdio("legacy").with("--script", script.to_str().unwrap());
    let command = fake.command();
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}\nmax-inventory = 5\n")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    eventually("all is listed", || client.list("resources/templates/list", "resourceTemplates").len() == 5);
    assert_eq!(names(&client.list("prompts/list", "prompts")), ["fx__p0", "fx__p1", "fx__p2", "fx__p3", "fx__p4"]);
    assert_eq!(names(&client.list("resources/list", "resources")), ["r0", "r1", "r2", "r3", "r4"]);
    let left = |items: usize| json!({"items": items, "or-more": false});
    let wanted =
        json!({"tools": left(OWN - 5), "prompts": left(2), "resources": left(2), "resource-templates": left(2)});
    assert_eq!(status(&gateway)["not-offered"], wanted);
}

#[test]
fn a_list_of_thousands_is_offered_whole_and_another_bound_lists_it_again() {
    let fake = Fake::stdio("both").with("--tools", "2600").with("--page-size", "500");
    let setup = GatewaySetup::new().fake("fx", &fake);
    let begun = now();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__extra_2599"]);
    assert_eq!(gateway.legacy().tool_names().len(), 2600 + OWN);
    assert_eq!(gateway.modern().call("fx__extra_2599", json!({})).text(), "extra_2599");
    assert!(status(&gateway).get("not-offered").is_none(), "nothing is left out");
    let took = now() - begun;
    assert!(took < Duration::from_secs(30), "{took:?}");

    let fewer =
        GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {}\nmax-inventory = 30\n", fake.command())).text();
    let plan = gateway.reload(&fewer);
    assert!(plan.status.success(), "{}", said(&plan));
    eventually("its lists are shorter", || status(&gateway)["tools"] == 30);
    assert_eq!(gateway.modern().tool_names().len(), 30);
    let plan = gateway.reload(&GatewaySetup::new().fake("fx", &fake).text());
    assert!(plan.status.success(), "{}", said(&plan));
    // Not checked by listing: a list that changes between two pages has no second page.
    eventually("its lists are whole again", || status(&gateway)["tools"] == 2600 + OWN);
}
