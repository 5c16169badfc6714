//! Tests of batches of 2025-03-26 that contain answers to questions.

use serde_json::{Value, json};

use super::{
    AskingGateway, AskingTransport, answered, everything, has_roots, inquire, question, roots, sample, sampled, usual,
};
use crate::stage::mcp::ClientEra;

#[test]
fn answers_that_come_in_a_batch_reach_their_questions() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "roots = \"client\"");
        let mut client = stage.client(ClientEra::Legacy("2025-03-26"), everything());
        let mut call = inquire(&mut client, &way.asks("t", json!([[sample(), roots()]])));
        let asked = [question(&mut call), question(&mut call)];
        let batch: Vec<Value> =
            asked.iter().map(|asked| json!({"jsonrpc": "2.0", "id": asked["id"], "result": usual(asked)})).collect();
        let headers = client.headers("", &json!({}));
        let taken = client.exchange(&Value::Null, &headers, &json!(batch).to_string());
        assert_eq!((taken.status, taken.raw.as_str()), (202, ""), "{way:?}: nothing in it has an answer");
        let answers = answered(&call.response());
        assert_eq!([&answers[0]["result"], &answers[1]["result"]], [&sampled(), &has_roots()], "{way:?}");
    }
}
