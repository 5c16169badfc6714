//! One client from its first connection to its last: a few requests of any kind, and an end that
//! may be abrupt.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::ledger::RequestEnd;
use crate::link::{ConnectionLost, SoakClient, SoakEra, SoakEvent, SoakTransport, usual};
use crate::stage::{ASKERS, MORTALS, STEADY, SoakFacts, WATCHED};
use crate::wire::SoakWire;

/// One client in so many comes through a process of `headend stdio`.
const RELAYS: u64 = 64;
/// Length of the results that slow readers ask for, in KiB.
const LONG_KIB: u64 = 256;

/// Kinds of work, and how often each is chosen.
const WORK: &[(VisitWork, u32)] = &[
    (VisitWork::List, 14),
    (VisitWork::Call, 30),
    (VisitWork::Progress, 10),
    (VisitWork::Burst, 5),
    (VisitWork::Cancel, 7),
    (VisitWork::Subscribe, 6),
    (VisitWork::Ask, 6),
    (VisitWork::Read, 6),
    (VisitWork::Complete, 3),
    (VisitWork::Mortal, 6),
    (VisitWork::Slow, 2),
    (VisitWork::HangUp, 3),
    (VisitWork::Half, 2),
];

#[derive(Clone, Copy, Debug)]
enum VisitWork {
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
pub(crate) async fn play(facts: Arc<SoakFacts>, number: u64, seed: u64) {
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number);
    let era = if number.is_multiple_of(2) { SoakEra::Modern } else { SoakEra::Legacy };
    let way = match (rng.u32(0..100), era) {
        _ if (number / 2).is_multiple_of(RELAYS) => SoakTransport::Relay,
        (0..25, _) => SoakTransport::Socket,
        (25..50, SoakEra::Legacy) => SoakTransport::Sse,
        _ => SoakTransport::Http,
    };
    let asks = rng.bool();
    let Ok(mut client) = SoakClient::connect(&facts, era, way, asks, rng.usize(0..3)).await else { return };
    // A session over HTTP may have a stream of its own, which nothing but the end of its client
    // closes.
    let own =
        if era == SoakEra::Legacy && client.is_http() && rng.u8(0..3) == 0 { own_stream(&client).await } else { None };
    for _ in 0..rng.usize(2..6) {
        if facts.stopping() {
            break;
        }
        let work = choose(&mut rng);
        match Box::pin(perform(&mut client, work, &mut rng)).await {
            Ok(true) => {}
            // The client hung up.
            Ok(false) => return,
            Err(ConnectionLost) => break,
        }
    }
    drop(own);
    client.leave(rng.u8(0..8) != 0).await;
}

fn choose(rng: &mut Rng) -> VisitWork {
    let mut left = rng.u32(0..WORK.iter().map(|(_, weight)| weight).sum());
    for (work, weight) in WORK {
        if left < *weight {
            return *work;
        }
        left -= weight;
    }
    VisitWork::Call
}

async fn own_stream(client: &SoakClient) -> Option<SoakWire> {
    let mut conn = SoakWire::open(client.facts.address).await.ok()?;
    conn.send(&client.stream_bytes()).await.ok()?;
    let head = timeout(client.facts.patience, conn.head()).await.ok()?.ok()?;
    head.is_stream.then_some(conn)
}

/// Does one piece of work; returns `false` if the client hung up in it.
async fn perform(client: &mut SoakClient, work: VisitWork, rng: &mut Rng) -> Result<bool, ConnectionLost> {
    match work {
        VisitWork::List => list(client, rng).await?,
        VisitWork::Call => call(client, rng).await?,
        VisitWork::Progress => progress(client, rng).await?,
        VisitWork::Burst => burst(client, rng).await?,
        VisitWork::Cancel => cancel(client, rng).await?,
        VisitWork::Subscribe => return subscribe(client, rng).await,
        VisitWork::Ask => return ask(client, rng).await,
        VisitWork::Read => read(client, rng).await?,
        VisitWork::Complete => complete(client, rng).await?,
        VisitWork::Mortal => {
            let name = format!("{}__echo", pick(rng, MORTALS));
            let params = json!({"name": name, "arguments": {"text": "still there?"}});
            // The call may fail, but it must be answered.
            client.request("call of a mortal", "tools/call", params, |_| RequestEnd::Answered).await?;
        }
        VisitWork::Slow => return slow(client, rng).await,
        VisitWork::HangUp => return hang_up(client, rng).await,
        VisitWork::Half => {
            let bytes = client.bytes("tools/call", json!({"name": "lab__echo", "arguments": {"text": "half"}}));
            if let Ok(mut conn) = SoakWire::open(client.facts.address).await {
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

async fn list(client: &mut SoakClient, rng: &mut Rng) -> Result<(), ConnectionLost> {
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
            _ => RequestEnd::Failed,
        };
        let answer = client.request("list", method, params, judge).await?;
        match answer["result"]["nextCursor"].as_str() {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return Ok(()),
        }
    }
}

/// Returns the parameters of a call of a steady server, and the judge of its answer: the same text.
fn echo(rng: &mut Rng) -> (Value, impl Fn(&Value) -> RequestEnd + use<>) {
    let upstream = if rng.u8(0..6) == 0 { "lab" } else { pick(rng, STEADY) };
    let text = format!("{:016x}", rng.u64(..));
    let params = json!({"name": format!("{upstream}__echo"), "arguments": {"text": text}});
    let judge = move |answer: &Value| match usual(answer) {
        RequestEnd::Answered if answer["result"]["content"][0]["text"] != text => RequestEnd::Wrong,
        end => end,
    };
    (params, judge)
}

async fn call(client: &mut SoakClient, rng: &mut Rng) -> Result<(), ConnectionLost> {
    let (params, judge) = echo(rng);
    client.request("call", "tools/call", params, judge).await.map(drop)
}

async fn progress(client: &mut SoakClient, rng: &mut Rng) -> Result<(), ConnectionLost> {
    let upstream = pick(rng, STEADY);
    let arguments = json!({"steps": 3, "delay_ms": rng.u64(0..15)});
    let params = json!({"name": format!("{upstream}__progress"), "arguments": arguments, "_meta": {"progressToken": rng.u32(..)}});
    client.request("call with progress", "tools/call", params, usual).await.map(drop)
}

/// Makes calls that are under way at the same time on one pipe, or one after the other if each has
/// a connection.
async fn burst(client: &mut SoakClient, rng: &mut Rng) -> Result<(), ConnectionLost> {
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
            Ok(Ok(SoakEvent::Message(message))) => message,
            other => {
                let why = format!("{other:?}");
                for (_, ticket, _) in open {
                    client.broken(ticket, &why);
                }
                return Err(ConnectionLost);
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

async fn cancel(client: &mut SoakClient, rng: &mut Rng) -> Result<(), ConnectionLost> {
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

async fn subscribe(client: &mut SoakClient, rng: &mut Rng) -> Result<bool, ConnectionLost> {
    if client.era == SoakEra::Legacy {
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
            Ok(Ok(SoakEvent::Message(message))) if message["method"] == "notifications/subscriptions/acknowledged" => {
                break;
            }
            // The answer to an earlier request.
            Ok(Ok(SoakEvent::Message(message))) if message["id"] != id => {}
            Ok(Ok(SoakEvent::Message(message))) => {
                ticket.end_with(RequestEnd::Failed, || message.to_string());
                return Err(ConnectionLost);
            }
            other => return Err(client.broken(ticket, &format!("no acknowledgement but {other:?}"))),
        }
    }
    sleep(Duration::from_millis(rng.u64(0..400))).await;
    client.cancel(id, ticket).await;
    Ok(true)
}

async fn ask(client: &mut SoakClient, rng: &mut Rng) -> Result<bool, ConnectionLost> {
    let asker = pick(rng, ASKERS);
    let kind = if asker == "askweb" { "call that asks over HTTP" } else { "call that asks on a pipe" };
    let schema = json!({"type": "object", "properties": {"who": {"type": "string"}}});
    let form = json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}});
    let tag = format!("{:x}", rng.u64(..));
    let arguments = json!({"tag": tag, "rounds": [[form]]});
    let mut params = json!({"name": format!("{asker}__inquire"), "arguments": arguments});
    // A client that cannot be asked gets an answer too.
    let judge = |answer: &Value| if answer.get("error").is_some() { RequestEnd::Failed } else { RequestEnd::Answered };
    // The calls of the server on a pipe take turns, and none may wait for a client that is gone.
    if client.era == SoakEra::Legacy && client.asks && asker == "askweb" && rng.u8(0..4) == 0 {
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
async fn leave_question(client: &mut SoakClient, params: Value) -> Result<bool, ConnectionLost> {
    let ticket = client.facts.ledger.sent("question that is left open");
    let id = match client.ask("tools/call", params).await {
        Ok(id) => id,
        Err(error) => return Err(client.broken(ticket, &error.to_string())),
    };
    loop {
        match timeout(client.facts.patience, client.next()).await {
            Ok(Ok(SoakEvent::Message(message))) if message["method"] == "elicitation/create" => {
                ticket.end(RequestEnd::HungUp);
                return Ok(false);
            }
            Ok(Ok(SoakEvent::Message(message))) if message["id"] == id && message.get("method").is_none() => {
                ticket.end(RequestEnd::Answered);
                return Ok(false);
            }
            Ok(Ok(SoakEvent::Message(_))) => {}
            other => return Err(client.broken(ticket, &format!("neither question nor answer but {other:?}"))),
        }
    }
}

async fn read(client: &mut SoakClient, rng: &mut Rng) -> Result<(), ConnectionLost> {
    let upstream = pick(rng, STEADY);
    let (method, params) = if rng.bool() {
        ("resources/read", json!({"uri": format!("{upstream}+fx://doc/1")}))
    } else {
        ("prompts/get", json!({"name": format!("{upstream}__p"), "arguments": {"a": "b"}}))
    };
    client.request("prompt or resource", method, params, usual).await.map(drop)
}

async fn complete(client: &mut SoakClient, rng: &mut Rng) -> Result<(), ConnectionLost> {
    if client.era == SoakEra::Legacy && rng.bool() {
        return client.request("ping", "ping", json!({}), usual).await.map(drop);
    }
    let reference = json!({"type": "ref/prompt", "name": format!("{}__p", pick(rng, STEADY))});
    let params = json!({"ref": reference, "argument": {"name": "a", "value": "b"}});
    client.request("completion", "completion/complete", params, usual).await.map(drop)
}

async fn slow(client: &mut SoakClient, rng: &mut Rng) -> Result<bool, ConnectionLost> {
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
    let mut conn = match SoakWire::open(client.facts.address).await {
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
    ticket.end(RequestEnd::HungUp);
    Ok(true)
}

async fn hang_up(client: &mut SoakClient, rng: &mut Rng) -> Result<bool, ConnectionLost> {
    let upstream = pick(rng, STEADY);
    let ticket = client.facts.ledger.sent("call of a client that goes away");
    let params = json!({"name": format!("{upstream}__sleep"), "arguments": {"ms": rng.u64(100..1_500)}});
    match client.ask("tools/call", params).await {
        Ok(_) => {
            sleep(Duration::from_millis(rng.u64(0..60))).await;
            ticket.end(RequestEnd::HungUp);
            Ok(false)
        }
        Err(error) => Err(client.broken(ticket, &error.to_string())),
    }
}
