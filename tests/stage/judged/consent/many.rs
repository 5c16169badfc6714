//! Tests of many calls at once: an approval for each, one form at a time, and one execution for
//! each yes.

use super::*;

/// Starts a call and waits until its approval is open.
fn waiting(stage: &ConsentGateway, client: &mut Mcp, arguments: &Value) -> OpenCall {
    let before = operator::pending(stage).len();
    let call = client.open("tools/call", json!({"name": "fx__echo", "arguments": arguments}));
    eventually("its approval is open", || operator::pending(stage).len() == before + 1);
    call
}

fn text_of(response: &Value) -> Option<&str> {
    let result = &response["result"];
    if result["isError"] == true { None } else { result["content"][0]["text"].as_str() }
}

#[test]
fn the_forms_of_parallel_calls_come_one_after_the_other() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let texts = ["a", "b", "same", "same", "same", "c"];
    let mut calls: Vec<OpenCall> =
        texts.iter().map(|text| waiting(&stage, &mut client, &json!({"text": text}))).collect();
    assert_eq!(operator::pending(&stage).len(), 6, "six questions, equal ones among them");
    let mut numbers = Vec::new();
    for (nth, call) in calls.iter_mut().enumerate() {
        let question = call.next().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        numbers.push(question["id"].as_str().unwrap().to_owned());
        assert_eq!(stage.called().len(), nth - usize::from(nth > 3), "one yes is one execution");
        client.respond(&question["id"], allow(if nth == 3 { "deny" } else { "once" }));
        let response = call.response();
        let want = if nth == 3 { None } else { Some(texts[nth]) };
        assert_eq!(text_of(&response), want, "{nth}: {response}");
    }
    let asked: Vec<String> = (1..=6).map(|n| format!("ask-{n}")).collect();
    assert_eq!(numbers, asked, "in the order of the calls");
    assert_eq!(stage.called().len(), 5);
    assert_eq!(stage.audit("prompt").len(), 6);
}

#[test]
fn one_once_among_equal_calls_runs_one_of_them() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let arguments = json!({"text": "x"});
    let calls: Vec<OpenCall> = (0..3).map(|_| waiting(&stage, &mut client, &arguments)).collect();
    let ids = operator::pending(&stage);
    operator::headend(&stage, &["approve", &ids[1]]);
    eventually("one of them runs", || stage.called().len() == 1);
    // The call finds neither the grant of another call nor a question without a call.
    let mut mute = stage.client(ClientEra::LEGACY, json!({}));
    assert_eq!(reason(&mute.call("fx__echo", arguments.clone())), "awaiting_approval");
    assert_eq!(operator::pending(&stage).len(), 3);
    for id in [&ids[0], &ids[2]] {
        operator::headend(&stage, &["deny", id]);
    }
    let responses: Vec<Value> = calls.into_iter().map(|mut call| call.response()).collect();
    let ran = responses.iter().filter(|response| text_of(response) == Some("x")).count();
    assert_eq!((ran, stage.called().len()), (1, 1), "{responses:?}");
}

#[test]
fn a_client_that_is_gone_with_a_form_open_stands_in_no_ones_way() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let mut call = waiting(&stage, &mut client, &json!({"text": "x"}));
    call.next().unwrap();
    drop((call, client));
    let mut next = stage.client(ClientEra::LEGACY, forms());
    for text in ["x", "y"] {
        let mut call = waiting(&stage, &mut next, &json!({"text": text}));
        let question = call.next().unwrap();
        next.respond(&question["id"], allow("once"));
        assert_eq!(text_of(&call.response()), Some(text));
    }
}
