//! Messages to a client on lines that answer no call: changes, and those of its subscriptions.

use std::ops::ControlFlow;

use crate::serve::feed::ClientNotifications;
use crate::serve::lines::LineConnection;
use crate::serve::listening::OpenSubscription;
use crate::serve::open_request::OpenRequest;
use crate::wire::json::raw::RawJson;
use crate::wire::message;

impl LineConnection {
    /// Sends a legacy client the notifications that belong to no call, from `initialized` on. While
    /// its credential has expired they wait for the next one.
    pub(super) async fn tell(&self, mut news: ClientNotifications) {
        loop {
            let next = async {
                let messages = news.next().await;
                if let Some(posts) = &self.client.posts {
                    posts.valid().await;
                }
                messages
            };
            tokio::select! {
                messages = next => for message in messages {
                    self.send(message).await;
                },
                () = self.tasks.stop_token().cancelled() => return,
                () = self.input_over.cancelled() => return,
                () = self.client.service.draining.cancelled() => return,
                () = self.out.closed() => return,
            }
        }
    }

    /// Sends the messages of a subscription until it ends.
    pub(super) async fn follow(&self, mut listening: OpenSubscription, id: &RawJson, open: &OpenRequest) {
        if let Some(first) = listening.acknowledge().await {
            self.send(first).await;
        }
        loop {
            let messages = tokio::select! {
                messages = listening.next() => messages,
                () = open.cancelled.cancelled() => return,
                () = self.tasks.stop_token().cancelled() => return,
                () = self.out.closed() => return,
            };
            match messages {
                ControlFlow::Continue(messages) => {
                    for message in messages {
                        self.send(message).await;
                    }
                }
                ControlFlow::Break(end) => {
                    self.send(end).await;
                    let params = RawJson::trusted(format!(r#"{{"requestId":{}}}"#, id.text()));
                    return self.send(message::encode_notification("notifications/cancelled", Some(&params))).await;
                }
            }
        }
    }
}
