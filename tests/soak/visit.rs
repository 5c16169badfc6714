//! One client from its first connection to its last: a few requests of any kind, and an end that
//! may be abrupt.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::ledger::End;
use crate::link::{Client, Era, Gone, Next, Way, usual};
use crate::stage::{ASKERS, Facts, MORTALS, STEADY, WATCHED};
use crate::wire::Conn;

/// One client in so many comes through a process of `headend stdio`.
const RELAYS: u64 = 64;
/// Length of the results that slow readers ask for, in KiB.
const LONG_KIB: u64 = 256;

/// Kinds of work, and how often each is chosen.
const WORK: &[(Work, u32)] = &[
    (Work::List, 14),
    (Work::Call, 30),
    (Work::Progress, 10),
    (Work::Burst, 5),
    (Work::Cancel, 7),
    (Work::Subscribe, 6),
    (Work::Ask, 6),
    (Work::Read, 6),
    (Work::Complete, 3),
    (Work::Mortal, 6),
    (Work::Slow, 2),
    (Work::HangUp, 3),
    (Work::Half, 2),
];

#[derive(Clone, Copy, Debug)]
enum Work {
    List,
    Call,
    Progress,
    /// Several calls at once.
    Burst,
    Cancel,
    Subscribe,
    /// A call whose server asks its client.
    Ask,
    Read,
    Complete,
    /// A call of a server that may die of it.
    Mortal,
    /// A long result that is read slowly, or not at all.
    Slow,
    HangUp,
    /// Half of a request.
    Half,
}

/// Plays the client of that number.
pub(crate) async fn play(facts: Arc<Facts>, number: u64, seed: u64) {
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number);
    let era = if number.is_multiple_of(2) { Era::Modern } else { Era::Legacy };
    let way = match (rng.u32(0..100), era) {
        _ if (number / 2).is_multiple_of(RELAYS) => Way::Relay,
        (0..25, _) => Way::Socket,
        (25..50, Era::Legacy) => Way::Sse,
        _ => Way::Http,
    };
    let asks = rng.bool();
    let Ok(mut client) = Client::connect(&facts, era, way, asks, rng.usize(0..3)).await else { return };
    // A session over HTTP may have a stream of its own, which nothing but the end of its client
    // closes.
    let own =
        if era == Era::Legacy && client.is_http() && rng.u8(0..3) == 0 { own_stream(&client).await } else { None };
    for _ in 0..rng.usize(2..6) {
        if facts.stopping() {
            break;
        }
        let work = choose(&mut rng);
        match Box::pin(perform(&mut client, work, &mut rng)).await {
            Ok(true) => {}
            // The client hung up.
            Ok(false) => return,
            Err(Gone) => break,
        }
    }
    drop(own);
    client.leave(rng.u8(0..8) != 0).await;
}

fn choose(rng: &mut Rng) -> Work {
    let mut left = rng.u32(0..WORK.iter().map(|(_, weight)| weight).sum());
    for (work, weight) in WORK {
        if left < *weight {
            return *work;
        }
        left -= weight;
    }
    Work::Call
}

async fn own_stream(client: &Client) -> Option<Conn> {
    let mut conn = Conn::open(client.facts.address).await.ok()?;
    conn.send(&client.stream_bytes()).await.ok()?;
    let head = timeout(client.facts.patience, conn.head()).await.ok()?.ok()?;
    head.is_stream.then_some(conn)
}

/// Does one piece of work; returns `false` if the client hung up in it.
async fn perform(client: &mut Client, work: Work, rng: &mut Rng) -> Result<bool, Gone> {
    match work {
        Work::List => list(client, rng).await?,
        Work::Call => call(client, rng).await?,
        Work::Progress => progress(client, rng).await?,
        Work::Burst => burst(client, rng).await?,
        Work::Cancel => cancel(client, rng).await?,
        Work::Subscribe => return subscribe(client, rng).await,
        Work::Ask => return ask(client, rng).await,
        Work::Read => read(client, rng).await?,
        Work::Complete => complete(client, rng).await?,
        Work::Mortal => {
            let name = format!("{}__echo", pick(rng, MORTALS));
            let params = json!({"name": name, "arguments": {"text": "still there?"}});
            // The call may fail, but it must be answered.
            client.request("call of a mortal", "tools/call", params, |_| End::Answered).await?;
        }
        Work::Slow => return slow(client, rng).await,
        Work::HangUp => return hang_up(client, rng).await,
        Work::Half => {
            let bytes = client.bytes("tools/call", json!({"name": "lab__echo", "arguments": {"text": "half"}}));
            if let Ok(mut conn) = Conn::open(client.facts.address).await {
                // The daemon may close it before all is written.
                let _sent = conn.send(&bytes[..rng.usize(1..bytes.len())]).await;
                sleep(Duration::from_millis(rng.u64(0..50))).await;
            }
            client.facts.ledger.note("half requests");
        }
    }
    Ok(true)
}

fn pick<'t>(rng: &mut Rng, of: &[&'t str]) -> &'t str {
    of[rng.usize(..of.len())]
}

async fn list(client: &mut Client, rng: &mut Rng) -> Result<(), Gone> {
    let (method, member) = [
        ("tools/list", "tools"),
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
    ][rng.usize(0..4)];
    let mut params = json!({});
    loop {
        let judge = |answer: &Value| match answer["result"][member].as_array() {
            Some(items) if !items.is_empty() => usual(answer),
            _ => End::Failed,
        };
        let answer = client.request("list", method, params, judge).await?;
        match answer["result"]["nextCursor"].as_str() {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return Ok(()),
        }
    }
}

/// Returns the parameters of a call of a steady server, and the judge of its answer: the same text.
fn echo(rng: &mut Rng) -> (Value, impl Fn(&Value) -> End + use<>) {
    let upstream = if rng.u8(0..6) == 0 { "lab" } else { pick(rng, STEADY) };
    let text = format!("{:016x}", rng.u64(..));
    let params = json!({"name": format!("{upstream}__echo"), "arguments": {"text": text}});
    let judge = move |answer: &Value| match usual(answer) {
        End::Answered if answer["result"]["content"][0]["text"] != text => End::Wrong,
        end => end,
    };
    (params, judge)
}

async fn call(client: &mut Client, rng: &mut Rng) -> Result<(), Gone> {
    let (params, judge) = echo(rng);
    client.request("call", "tools/call", params, judge).await.map(drop)
}

async fn progress(client: &mut Client, rng: &mut Rng) -> Result<(), Gone> {
    let upstream = pick(rng, STEADY);
    let arguments = json!({"steps": 3, "delay_ms": rng.u64(0..15)});
    let params = json!({"name": format!("{upstream}__progress"), "arguments": arguments, "_meta": {"progressToken": rng.u32(..)}});
    client.request("call with progress", "tools/call", params, usual).await.map(drop)
}

/// Makes calls that are under way at the same time on one pipe, or one after the other if each has
/// a connection.
async fn burst(client: &mut Client, rng: &mut Rng) -> Result<(), Gone> {
    if client.is_http() {
        return call(client, rng).await;
    }
    const KIND: &str = "calls at once";
    let mut open = Vec::new();
    for _ in 0..4 {
        let (params, judge) = echo(rng);
        let ticket = client.facts.ledger.sent(KIND);
        match client.ask("tools/call", params).await {
            Ok(id) => open.push((id, ticket, judge)),
            Err(error) => return Err(client.broken(ticket, &error.to_string())),
        }
    }
    while !open.is_empty() {
        let message = match timeout(client.facts.patience, client.next()).await {
            Ok(Ok(Next::Message(message))) => message,
            other => {
                let why = format!("{other:?}");
                for (_, ticket, _) in open {
                    client.broken(ticket, &why);
                }
                return Err(Gone);
            }
        };
        if message.get("method").is_some() {
            continue;
        }
        match open.iter().position(|(id, ..)| message["id"] == *id) {
            Some(at) => {
                let (_, ticket, judge) = open.swap_remove(at);
                let end = judge(&message);
                ticket.end_with(end, || message.to_string());
            }
            None => client.facts.ledger.note("late answers to requests that were taken back"),
        }
    }
    Ok(())
}

async fn cancel(client: &mut Client, rng: &mut Rng) -> Result<(), Gone> {
    let upstream = pick(rng, STEADY);
    let ticket = client.facts.ledger.sent("call that is cancelled");
    let params = json!({"name": format!("{upstream}__sleep"), "arguments": {"ms": 8_000}});
    match client.ask("tools/call", params).await {
        Ok(id) => {
            sleep(Duration::from_millis(rng.u64(0..60))).await;
            client.cancel(id, ticket).await;
            Ok(())
        }
        Err(error) => Err(client.broken(ticket, &error.to_string())),
    }
}

async fn subscribe(client: &mut Client, rng: &mut Rng) -> Result<bool, Gone> {
    if client.era == Era::Legacy {
        let uri = json!({"uri": WATCHED});
        client.request("subscription", "resources/subscribe", uri.clone(), usual).await?;
        if rng.bool() {
            let params = json!({"name": "watched__test_trigger_resource_update", "arguments": {}});
            client.request("call", "tools/call", params, usual).await?;
        }
        if rng.u8(0..4) > 0 {
            client.request("subscription", "resources/unsubscribe", uri, usual).await?;
        }
        return Ok(true);
    }
    let ticket = client.facts.ledger.sent("subscription");
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": [WATCHED]});
    let id = match client.ask("subscriptions/listen", json!({"notifications": wanted})).await {
        Ok(id) => id,
        Err(error) => return Err(client.broken(ticket, &error.to_string())),
    };
    loop {
        match timeout(client.facts.patience, client.next()).await {
            Ok(Ok(Next::Message(message))) if message["method"] == "notifications/subscriptions/acknowledged" => break,
            // The answer to an earlier request.
            Ok(Ok(Next::Message(message))) if message["id"] != id => {}
            Ok(Ok(Next::Message(message))) => {
                ticket.end_with(End::Failed, || message.to_string());
                return Err(Gone);
            }
            other => return Err(client.broken(ticket, &format!("no acknowledgement but {other:?}"))),
        }
    }
    sleep(Duration::from_millis(rng.u64(0..400))).await;
    client.cancel(id, ticket).await;
    Ok(true)
}

async fn ask(client: &mut Client, rng: &mut Rng) -> Result<bool, Gone> {
    let asker = pick(rng, ASKERS);
    let kind = if asker == "askweb" { "call that asks over HTTP" } else { "call that asks on a pipe" };
    let schema = json!({"type": "object", "properties": {"who": {"type": "string"}}});
    let form = json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}});
    let tag = format!("{:x}", rng.u64(..));
    let arguments = json!({"tag": tag, "rounds": [[form]]});
    let mut params = json!({"name": format!("{asker}__inquire"), "arguments": arguments});
    // A client that cannot be asked gets an answer too.
    let judge = |answer: &Value| if answer.get("error").is_some() { End::Failed } else { End::Answered };
    // The calls of the server on a pipe take turns, and none may wait for a client that is gone.
    if client.era == Era::Legacy && client.asks && asker == "askweb" && rng.u8(0..4) == 0 {
        return leave_question(client, params).await;
    }
    for _ in 0..3 {
        let answer = client.request(kind, "tools/call", params.clone(), judge).await?;
        let result = &answer["result"];
        if result["isError"] == true {
            client.facts.ledger.note("questions that no client was asked");
        }
        if result["resultType"] != "input_required" {
            return Ok(true);
        }
        // Nothing but time ends a question to a client without a session, so none may be left open
        // near the end.
        if client.facts.may_abandon() && asker == "askweb" && rng.u8(0..32) == 0 {
            client.facts.ledger.note("questions without an answer");
            return Ok(true);
        }
        let keys = result["inputRequests"].as_object().map(|asked| asked.keys().cloned().collect::<Vec<_>>());
        let mut responses = json!({});
        for key in keys.unwrap_or_default() {
            responses[key] = json!({"action": "accept", "content": {"who": "me", "name": "Ada"}});
        }
        params["inputResponses"] = responses;
        params["requestState"] = result["requestState"].clone();
    }
    Ok(true)
}

/// Goes away with a question open.
async fn leave_question(client: &mut Client, params: Value) -> Result<bool, Gone> {
    let ticket = client.facts.ledger.sent("question that is left open");
    let id = match client.ask("tools/call", params).await {
        Ok(id) => id,
        Err(error) => return Err(client.broken(ticket, &error.to_string())),
    };
    loop {
        match timeout(client.facts.patience, client.next()).await {
            Ok(Ok(Next::Message(message))) if message["method"] == "elicitation/create" => {
                ticket.end(End::HungUp);
                return Ok(false);
            }
            Ok(Ok(Next::Message(message))) if message["id"] == id && message.get("method").is_none() => {
                ticket.end(End::Answered);
                return Ok(false);
            }
            Ok(Ok(Next::Message(_))) => {}
            other => return Err(client.broken(ticket, &format!("neither question nor answer but {other:?}"))),
        }
    }
}

async fn read(client: &mut Client, rng: &mut Rng) -> Result<(), Gone> {
    let upstream = pick(rng, STEADY);
    let (method, params) = if rng.bool() {
        ("resources/read", json!({"uri": format!("{upstream}+fx://doc/1")}))
    } else {
        ("prompts/get", json!({"name": format!("{upstream}__p"), "arguments": {"a": "b"}}))
    };
    client.request("prompt or resource", method, params, usual).await.map(drop)
}

async fn complete(client: &mut Client, rng: &mut Rng) -> Result<(), Gone> {
    if client.era == Era::Legacy && rng.bool() {
        return client.request("ping", "ping", json!({}), usual).await.map(drop);
    }
    let reference = json!({"type": "ref/prompt", "name": format!("{}__p", pick(rng, STEADY))});
    let params = json!({"ref": reference, "argument": {"name": "a", "value": "b"}});
    client.request("completion", "completion/complete", params, usual).await.map(drop)
}

async fn slow(client: &mut Client, rng: &mut Rng) -> Result<bool, Gone> {
    let params = json!({"name": "lab__big", "arguments": {"kib": LONG_KIB}});
    if !client.is_http() {
        let ticket = client.facts.ledger.sent("long result");
        return match client.ask("tools/call", params).await {
            Ok(id) => {
                sleep(Duration::from_millis(rng.u64(0..500))).await;
                client.answer("long result", ticket, id, usual).await.map(|_| true)
            }
            Err(error) => Err(client.broken(ticket, &error.to_string())),
        };
    }
    let ticket = client.facts.ledger.sent("long result");
    let bytes = client.bytes("tools/call", params);
    let mut conn = match Conn::open(client.facts.address).await {
        Ok(conn) => conn,
        Err(error) => return Err(client.broken(ticket, &error.to_string())),
    };
    if let Err(error) = conn.send(&bytes).await {
        return Err(client.broken(ticket, &error.to_string()));
    }
    if rng.bool() {
        // The client reads nothing.
        sleep(Duration::from_millis(rng.u64(100..2_000))).await;
    } else {
        for _ in 0..rng.usize(1..60) {
            if !matches!(timeout(client.facts.patience, conn.sip(8 << 10)).await, Ok(Ok(1..))) {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
    ticket.end(End::HungUp);
    Ok(true)
}

async fn hang_up(client: &mut Client, rng: &mut Rng) -> Result<bool, Gone> {
    let upstream = pick(rng, STEADY);
    let ticket = client.facts.ledger.sent("call of a client that goes away");
    let params = json!({"name": format!("{upstream}__sleep"), "arguments": {"ms": rng.u64(100..1_500)}});
    match client.ask("tools/call", params).await {
        Ok(_) => {
            sleep(Duration::from_millis(rng.u64(0..60))).await;
            ticket.end(End::HungUp);
            Ok(false)
        }
        Err(error) => Err(client.broken(ticket, &error.to_string())),
    }
}
