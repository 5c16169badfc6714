//! Calls whose streams end at once: clients get the messages by resuming.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{mpsc, watch};

use super::server::{FakeRequest, FakeServer};

/// Events on one stream before it ends again.
const AT_ONCE: usize = 2;

/// Messages of a call, and whether they are complete.
type PolledMessages = (Vec<String>, bool);

/// The messages of each call.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    said: Mutex<HashMap<String, watch::Receiver<PolledMessages>>>,
}

impl Polled {
    /// Starts a call, and returns a stream with a priming event and no more.
    pub(crate) fn call(
        &self,
        server: &Arc<FakeServer>,
        request: FakeRequest,
        mut outbox: mpsc::UnboundedReceiver<String>,
        retry: u64,
    ) -> Response {
        let name = format!("call{}", request.id);
        let (said, heard) = watch::channel((Vec::new(), false));
        self.said.lock().unwrap().insert(name.clone(), heard);
        let server = Arc::clone(server);
        tokio::spawn(async move {
            let answered = async {
                let answer = server.answer(&request).await;
                drop(request);
                answer
            };
            let noticed = async {
                while let Some(notice) = outbox.recv().await {
                    said.send_modify(|(events, _)| events.push(notice));
                }
            };
            let (answer, ()) = tokio::join!(answered, noticed);
            said.send_modify(|(events, all)| {
                events.extend(answer);
                *all = true;
            });
        });
        response(stream::iter([format!("id: {name}-0\nretry: {retry}\ndata: \n\n")]))
    }

    /// Continues after an event.
    pub(crate) fn resume(&self, last: &str) -> Option<Response> {
        let (name, number) = last.rsplit_once('-')?;
        let number: usize = number.parse().ok()?;
        let heard = self.said.lock().unwrap().get(name)?.clone();
        let name = name.to_owned();
        let events = stream::unfold((heard, number), move |(mut heard, at)| {
            let name = name.clone();
            async move {
                let said = heard.wait_for(|(events, all)| events.len() > at || *all).await.ok()?;
                let text = said.0.get(at)?.clone();
                drop(said);
                Some((format!("id: {name}-{}\ndata: {text}\n\n", at + 1), (heard, at + 1)))
            }
        });
        Some(response(events.take(AT_ONCE)))
    }
}

fn response(events: impl stream::Stream<Item = String> + Send + 'static) -> Response {
    let body = Body::from_stream(events.map(Ok::<_, Infallible>));
    ([("content-type", "text/event-stream"), ("cache-control", "no-store")], body).into_response()
}
