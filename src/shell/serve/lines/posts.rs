//! Messages of a line client that arrive by POST, each with a credential of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::base::access::Access;

/// A message that a client has posted.
#[derive(Debug)]
pub struct PostedMessage {
    pub bytes: Bytes,
    /// The access of the POST.
    pub access: Arc<Access>,
}

/// The credential of a client that posts its messages: the one of its latest message.
#[derive(Debug)]
pub struct PostedCredential {
    access: watch::Sender<Arc<Access>>,
    /// Time for which the client may stay without a valid credential.
    patience: Duration,
}

impl PostedCredential {
    /// Creates the credential of a client that has not posted anything yet.
    pub fn new(access: Arc<Access>, patience: Duration) -> Self {
        Self { access: watch::Sender::new(access), patience }
    }

    /// Returns the access of the latest message.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.borrow())
    }

    /// Notes the access of the next message.
    pub fn renew(&self, access: Arc<Access>) {
        self.access.send_replace(access);
    }

    /// Resolves when the credential is valid, at once if it has not expired.
    pub async fn valid(&self) {
        let mut latest = self.access.subscribe();
        // The sender is in `self`, so the wait cannot fail.
        drop(latest.wait_for(|access| !access.has_expired()).await);
    }

    /// Resolves when the credential has been expired for longer than the client may stay, and
    /// `is_idle` is true. Cancel-safe.
    pub async fn given_up(&self, is_idle: impl Fn() -> bool) {
        let mut latest = self.access.subscribe();
        loop {
            let access = Arc::clone(&latest.borrow_and_update());
            let over = async {
                access.expired().await;
                tokio::time::sleep(self.patience).await;
            };
            tokio::select! {
                _ = latest.changed() => {}
                () = over => if is_idle() {
                    return;
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::base::access::IssuerAccess;
    use crate::base::clock;
    use crate::policy::{Caller, CallerRights};

    fn access(life: u64) -> Arc<Access> {
        let expires = clock::since_1970() + Duration::from_secs(life);
        let issuer = IssuerAccess::new("corp", &CancellationToken::new());
        issuer.of_caller(&Caller::issued("corp", "alice").unwrap(), CallerRights::all(), expires)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_given_up_some_time_after_its_latest_credential() {
        let credential = Arc::new(PostedCredential::new(access(100), Duration::from_secs(50)));
        let (begun, renewed) = (clock::now(), Arc::clone(&credential));
        let renewing = async {
            tokio::time::sleep(Duration::from_secs(120)).await;
            renewed.renew(access(300));
            renewed.valid().await;
            assert_eq!(clock::since(begun).as_secs(), 120);
            std::future::pending::<()>().await;
        };
        // A call is in flight for 500 s.
        let is_idle = || clock::since(begun) >= Duration::from_secs(500);
        tokio::select! {
            () = credential.given_up(is_idle) => {}
            () = renewing => {}
        }
        assert_eq!(clock::since(begun).as_secs(), 520, "two times 50 s after 420 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_is_valid_again_once_it_is_renewed() {
        let credential = PostedCredential::new(access(10), Duration::from_secs(50));
        credential.valid().await;
        tokio::time::sleep(Duration::from_secs(11)).await;
        let waited = tokio::time::timeout(Duration::from_secs(60), credential.valid()).await;
        assert!(waited.is_err());
        credential.renew(access(10));
        credential.valid().await;
    }
}
