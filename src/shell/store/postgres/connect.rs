//! Connections to the database: how they are made and protected, and what a database must be like
//! before it is used.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use futures_util::stream::{self, Stream, StreamExt as _};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Config, Connection, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::bounds::WrittenBounds;
use super::ends::WrittenEnds;
use super::error::{describe_error, refused, unavailable};
use super::schema;
use super::session::{PostgresSession, WorkKind, column};
use super::tables::replaced;
use crate::base::clock;
use crate::config::{ClusterSettings, StoreTls};
use crate::store::port::{DbError, StoreHealth};

/// Longest time for a connection, until it can be used.
const CONNECT: Duration = Duration::from_secs(10);
/// Time after which a silent peer is probed, and for which sent bytes may stay unacknowledged.
const SILENCE: Duration = Duration::from_secs(5);
/// The oldest version of the server.
const OLDEST: i32 = 130_000;

/// Settings of each session. A commit is on disk when it is answered; a process that hangs in a
/// transaction holds the others up for two seconds.
const SETTINGS: &str = "
SET search_path = headend;
SET synchronous_commit = on;
SET statement_timeout = '5s';
SET lock_timeout = '4s';
SET idle_in_transaction_session_timeout = '2s';
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;
";

/// Longest time for a look at a database that nothing depends on.
const GLANCE: Duration = Duration::from_secs(3);

/// A database's address, with the means to connect to it.
pub(super) struct StoreServer {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// The name by which this process knows its own notifications.
    by: String,
    bounds: Arc<WrittenBounds>,
    ends: Arc<WrittenEnds>,
    /// The database that this process was connected to last.
    last: Mutex<Option<String>>,
}

/// Messages of the database without a request, and errors of the connection. Nothing is sent or
/// received unless this is polled.
type StoreMessages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, Error>>>>;

/// A connection that can be used.
pub(super) struct StoreLink {
    pub(super) session: PostgresSession,
    messages: StoreMessages,
    by: String,
}

impl StoreServer {
    /// # Errors
    /// A sentence without the URL.
    pub(super) fn new(
        settings: &ClusterSettings,
        bounds: Arc<WrittenBounds>,
        ends: Arc<WrittenEnds>,
    ) -> Result<Self, DbError> {
        let mut config: Config = settings
            .store
            .url
            .expose()
            .parse()
            .map_err(|_| refused("has a URL that cannot be used; correct [cluster] store"))?;
        config.application_name("headend").tcp_user_timeout(SILENCE).keepalives_idle(SILENCE);
        config.keepalives_interval(SILENCE).keepalives_retries(2).connect_timeout(SILENCE);
        let tls = match &settings.store.tls {
            StoreTls::Off => None,
            StoreTls::Verified { authorities } => Some(MakeRustlsConnect::new(tls_config(authorities.as_deref())?)),
        };
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        let by = HEXLOWER.encode(&clock::random::<8>());
        Ok(Self { config, tls, by, bounds, ends, last: Mutex::default() })
    }

    /// Connects, checks the database, makes its tables if they are missing, and ends once-grants if
    /// the database is not the one that the store was last used in.
    ///
    /// # Errors
    /// When there is no usable database.
    pub(super) async fn connect(&self, health: &StoreHealth) -> Result<StoreLink, DbError> {
        let connected = tokio::time::timeout(CONNECT, Box::pin(self.open(health))).await;
        connected.unwrap_or_else(|_| Err(DbError::Unavailable { why: "it does not answer".to_owned() }))
    }

    /// Connects and reads, for a look that nothing depends on. Changes nothing, and waits for no
    /// database that is away.
    ///
    /// # Errors
    /// When the database cannot be read, or has not the tables of this program.
    pub(super) async fn look<T>(
        &self,
        work: impl AsyncFnOnce(&PostgresSession) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let health = StoreHealth::default();
        let looked = tokio::time::timeout(GLANCE, async {
            let mut link = self.dial().await?;
            let read = async |session: &PostgresSession| {
                session.batch(SETTINGS).await?;
                schema::check(session).await?;
                work(session).await
            };
            link.drive(&health, read).await?
        });
        Box::pin(looked).await.unwrap_or_else(|_| Err(DbError::Unavailable { why: "it does not answer".to_owned() }))
    }

    async fn open(&self, health: &StoreHealth) -> Result<StoreLink, DbError> {
        let mut link = self.dial().await?;
        link.drive(health, async |session: &PostgresSession| self.prepare(session).await).await??;
        Ok(link)
    }

    /// Connects, and nothing else.
    async fn dial(&self) -> Result<StoreLink, DbError> {
        let failed = |error| describe_error(&error);
        let (client, messages) = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(failed)?;
                (client, messages_of(connection))
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
                (client, messages_of(connection))
            }
        };
        let session = PostgresSession::new(client, &self.by);
        Ok(StoreLink { session, messages, by: self.by.clone() })
    }

    /// Checks and prepares the database. If it is another one than before, ends once-grants and
    /// writes this process's bounds of limits again.
    async fn prepare(&self, session: &PostgresSession) -> Result<(), DbError> {
        session.batch(SETTINGS).await?;
        check(session).await?;
        session.batch("LISTEN headend").await?;
        schema::migrate(session).await?;
        let system = replaced::system(session).await?;
        let is_other = self.last.lock().as_ref().is_some_and(|last| *last != system);
        session.begin().await?;
        let ended = replaced::end_lost_uses(session, &system, clock::since_1970().as_secs()).await?;
        if is_other || ended.is_some() {
            self.bounds.restore(session).await?;
            self.ends.restore(session).await?;
        }
        session.commit(WorkKind::Announced).await?;
        *self.last.lock() = Some(system);
        if let Some(ended) = ended {
            tracing::error!(
                ended,
                "the store of the cluster is in another database than before, which may lack the last changes: its once-grants were ended"
            );
        }
        Ok(())
    }
}

impl StoreLink {
    /// Does work on the session, while the connection's messages are handled.
    ///
    /// # Errors
    /// When the connection ended before the work.
    pub(super) async fn drive<T>(
        &mut self,
        health: &StoreHealth,
        work: impl AsyncFnOnce(&PostgresSession) -> T,
    ) -> Result<T, DbError> {
        let work = work(&self.session);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                message = self.messages.next() => note(message, &self.by, health)?,
            }
        }
    }

    /// Waits for the next message, and handles it. Cancel-safe.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) async fn handle_message(&mut self, health: &StoreHealth) -> Result<(), DbError> {
        let message = self.messages.next().await;
        note(message, &self.by, health)
    }
}

fn messages_of<S, T>(mut connection: Connection<S, T>) -> StoreMessages
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    Box::pin(stream::poll_fn(move |context| connection.poll_message(context)))
}

/// Notes a change that another process told of.
fn note(message: Option<Result<AsyncMessage, Error>>, by: &str, health: &StoreHealth) -> Result<(), DbError> {
    match message {
        Some(Ok(AsyncMessage::Notification(told))) if told.payload() != by => health.changed(),
        Some(Ok(_)) => {}
        Some(Err(error)) => return Err(unavailable(describe_error(&error))),
        None => return Err(DbError::Unavailable { why: "it has closed the connection".to_owned() }),
    }
    Ok(())
}

/// Refuses a database that does not keep what it has confirmed.
async fn check(session: &PostgresSession) -> Result<(), DbError> {
    let sql = "SELECT pg_is_in_recovery() AS is_standby, current_setting('server_version_num')::int4 AS version, \
               current_setting('fsync') = 'on' AS syncs, current_setting('full_page_writes') = 'on' AS writes_pages, \
               current_setting('synchronous_commit') IN ('on', 'remote_apply') AS commits";
    let Some(row) = session.row(sql, &[]).await? else { return Err(refused("answers nothing")) };
    if column(&row, "is_standby")? {
        return Err(refused("is a standby, which takes no writes; name the primary in [cluster] store"));
    }
    if column::<i32>(&row, "version")? < OLDEST {
        return Err(refused("is older than PostgreSQL 13; update the server"));
    }
    for (setting, name) in [("syncs", "fsync"), ("writes_pages", "full_page_writes")] {
        if !column::<bool>(&row, setting)? {
            return Err(refused(format!("has {name} = off, and would lose what it confirms; set it to on")));
        }
    }
    if !column::<bool>(&row, "commits")? {
        return Err(refused("does not let a session set synchronous_commit = on; is a pooler in between?"));
    }
    Ok(())
}

/// Creates TLS settings by which the server's certificate must be valid for its host.
fn tls_config(authorities: Option<&Path>) -> Result<ClientConfig, DbError> {
    let unusable = |error: rustls::Error| refused(format!("cannot be verified: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(unusable)?;
    let Some(file) = authorities else {
        return Ok(builder.with_platform_verifier().map_err(unusable)?.with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| refused(format!("has no readable sslrootcert ({}: {error})", file.display())))?;
    let (added, _) = roots.add_parsable_certificates(found);
    if added == 0 {
        return Err(refused(format!("has no certificate in its sslrootcert ({})", file.display())));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
