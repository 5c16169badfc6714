//! Pins: the table `pins`, and a number that counts its changes. Each step is taken from the record
//! that is there at this moment, so reading and writing the records are one transaction.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio_postgres::Row;

use super::meta;
use crate::catalog::name::UpstreamName;
use crate::policy::{ConfirmedLaunches, Digest, Pin, PinState};
use crate::store::pin_record::{PinKey, PinKind, PinRecord, PinStep, PinTextForms, launch_place, open_text, seal_text};
use crate::store::port::{DbError, DbOperation, PinOperations, PinStepResults, PinTable};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::{failed, no_key};
use crate::store::postgres::session::{PostgresSession, SqlValue, column, unsigned};
use crate::store::seal::{Seals, UnsealedValue};

/// The number of changes so far.
const EPOCH: &str = "pins_epoch";

/// Most rows that are written before their answers are awaited.
const WRITTEN_TOGETHER: usize = 64;

const COLUMNS: &str = "upstream, kind, name, state, approved, approved_digest, waiting, waiting_digest, by, at, confirmed, lacks_askers, \
                       doubted";

impl PinOperations for Postgres {
    fn open_pins(&self) -> Result<PinTable, DbError> {
        let seals = self.seals.clone();
        let opened = self.write(async move |session: &PostgresSession| {
            // Looking without a key changes nothing.
            if seals.can_seal() {
                reseal(session, &seals).await?;
            }
            load(session, &seals).await
        });
        opened.run_now()
    }

    fn pins_changed(&self, known: u64) -> DbOperation<'_, Option<PinTable>> {
        let seals = self.seals.clone();
        self.read(async move |session: &PostgresSession| {
            if meta::number(session, EPOCH).await? == known {
                return Ok(None);
            }
            load(session, &seals).await.map(Some)
        })
    }

    fn take_steps(
        &self,
        steps: Vec<(PinKey, PinStep)>,
        forget: Vec<PinKey>,
        now: u64,
    ) -> DbOperation<'_, PinStepResults> {
        let seals = self.seals.clone();
        self.announce(async move |session: &PostgresSession| take(session, steps, &forget, now, &seals).await)
    }
}

/// Loads all pins. A row that this program cannot have written is an error: without it, its item
/// would count as never seen and be accepted at first sight.
async fn load(session: &PostgresSession, seals: &Seals) -> Result<PinTable, DbError> {
    // A change in between makes the number too low, and the next look loads them again.
    let epoch = meta::number(session, EPOCH).await?;
    let rows = session.rows(&format!("SELECT {COLUMNS} FROM pins"), &[]).await?;
    Ok((epoch, rows.iter().map(|row| read(row, seals)).collect::<Result<_, _>>()?))
}

/// Seals the private texts of launch pins that are sealed with an earlier key with the current one.
/// Leaves texts whose key is missing.
async fn reseal(session: &PostgresSession, seals: &Seals) -> Result<(), DbError> {
    for name in ["approved", "waiting"] {
        let sql = format!(
            "SELECT upstream, {name} AS stored, {name}_digest AS digest FROM pins \
             WHERE kind = 'launch' AND {name} IS NOT NULL AND {name}_digest IS NOT NULL"
        );
        for row in session.rows(&sql, &[]).await? {
            let (upstream, digest) = (column::<&str>(&row, "upstream")?, column::<&str>(&row, "digest")?);
            let place = launch_place(upstream, digest);
            if let UnsealedValue::Text { text, current: false } = seals.open(&place, column(&row, "stored")?) {
                let sealed = seals.seal(&place, &text).ok_or_else(no_key)?;
                let sql = format!("UPDATE pins SET {name} = $2 WHERE upstream = $1 AND kind = 'launch' AND name = ''");
                session.execute(&sql, &[&upstream, &sealed]).await?;
            }
        }
    }
    Ok(())
}

fn read(row: &Row, seals: &Seals) -> Result<(PinKey, PinRecord), DbError> {
    let text = |name: &str| column::<Option<String>>(row, name);
    let digest = |name: &str| text(name).map(|text| text.as_deref().and_then(Digest::from_hex));
    let upstream = UpstreamName::parse(column(row, "upstream")?).ok();
    let kind = column::<&str>(row, "kind")?.parse::<PinKind>().ok();
    let rejected = column::<&str>(row, "state")? == PinState::Rejected.into_str();
    let (approved, waiting) = (digest("approved_digest")?, digest("waiting_digest")?);
    let (Some(upstream), Some(kind), Some(pin)) = (upstream, kind, Pin::restore(approved, waiting, rejected)) else {
        return Err(failed("a pin cannot be read"));
    };
    let key = PinKey { upstream, kind, name: column(row, "name")? };
    let digests = |name: &str| {
        let words = text(name)?.unwrap_or_default();
        Ok::<_, DbError>(words.split_whitespace().filter_map(Digest::from_hex).collect::<Vec<_>>())
    };
    let record = PinRecord {
        pin,
        approved: open_text(seals, &key, text("approved")?, approved),
        waiting: open_text(seals, &key, text("waiting")?, waiting),
        by: Arc::from(text("by")?.unwrap_or_default()),
        at: unsigned(row, "at")?,
        confirmed: ConfirmedLaunches::restore(digests("confirmed")?.into_iter(), column(row, "lacks_askers")?),
        doubted: digests("doubted")?,
        forms: PinTextForms::default(),
    };
    Ok((key, record))
}

/// Stores a record. A text sealed with a missing key does not open; its stored value stays while
/// its digest does, so that a command without the key loses nothing.
async fn save(session: &PostgresSession, key: &PinKey, record: &PinRecord, seals: &Seals) -> Result<(), DbError> {
    let kept = |name: &str| {
        format!(
            "{name} = CASE WHEN excluded.{name} IS NOT NULL THEN excluded.{name}
                WHEN excluded.{name}_digest IS NOT DISTINCT FROM pins.approved_digest THEN pins.approved
                WHEN excluded.{name}_digest IS NOT DISTINCT FROM pins.waiting_digest THEN pins.waiting END"
        )
    };
    let sql = format!(
        "INSERT INTO pins ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
         ON CONFLICT (upstream, kind, name) DO UPDATE SET state = excluded.state, {}, {}, by = excluded.by, at = excluded.at,
            approved_digest = excluded.approved_digest, waiting_digest = excluded.waiting_digest, confirmed = excluded.confirmed,
            lacks_askers = excluded.lacks_askers, doubted = excluded.doubted",
        kept("approved"),
        kept("waiting")
    );
    let hex = |digest: Option<Digest>| digest.map(|digest| digest.hex());
    let words =
        |digests: &mut dyn Iterator<Item = Digest>| digests.map(|digest| digest.hex()).collect::<Vec<_>>().join(" ");
    let (confirmed, doubted) = (words(&mut record.confirmed.launches()), words(&mut record.doubted.iter().copied()));
    let approved = seal_text(seals, key, record.approved.as_ref(), record.pin.approved()).map_err(|_| no_key())?;
    let waiting = seal_text(seals, key, record.waiting.as_ref(), record.pin.waiting()).map_err(|_| no_key())?;
    let (approved_digest, waiting_digest) = (hex(record.pin.approved()), hex(record.pin.waiting()));
    let at = i64::try_from(record.at).unwrap_or(i64::MAX);
    let values: [&dyn SqlValue; 13] = [
        &key.upstream.as_str(),
        &key.kind.into_str(),
        &key.name,
        &record.pin.state().into_str(),
        &approved,
        &approved_digest,
        &waiting,
        &waiting_digest,
        &&*record.by,
        &at,
        &Some(confirmed).filter(|confirmed| !confirmed.is_empty()),
        &record.confirmed.lacks_askers,
        &Some(doubted).filter(|doubted| !doubted.is_empty()),
    ];
    session.execute(&sql, &values).await.map(drop)
}

/// Loads the pins of these steps' upstreams.
async fn load_of(
    session: &PostgresSession,
    steps: &[(PinKey, PinStep)],
    seals: &Seals,
) -> Result<HashMap<PinKey, PinRecord>, DbError> {
    let mut upstreams: Vec<String> = steps.iter().map(|(key, _)| key.upstream.as_str().to_owned()).collect();
    upstreams.sort_unstable();
    upstreams.dedup();
    let sql = format!("SELECT {COLUMNS} FROM pins WHERE upstream = ANY($1)");
    session.rows(&sql, &[&upstreams]).await?.iter().map(|row| read(row, seals)).collect()
}

async fn take(
    session: &PostgresSession,
    steps: Vec<(PinKey, PinStep)>,
    forget: &[PinKey],
    now: u64,
    seals: &Seals,
) -> Result<PinStepResults, DbError> {
    let epoch = meta::number(session, EPOCH).await?;
    let mut known = load_of(session, &steps, seals).await?;
    for key in forget {
        known.remove(key);
        let sql = "DELETE FROM pins WHERE upstream = $1 AND kind = $2 AND name = $3";
        session.execute(sql, &[&key.upstream.as_str(), &key.kind.into_str(), &key.name]).await?;
    }
    let (mut out, mut changed) = (Vec::with_capacity(steps.len()), Vec::new());
    for (key, step) in steps {
        let before = known.get(&key);
        let launch = (key.kind == PinKind::Tool).then(|| known.get(&PinKey::launch(&key.upstream))).flatten();
        let after = PinRecord::step(before, launch, &step, now);
        if let Ok(record) = &after
            && before.is_none_or(|before| before.differs(record))
        {
            known.insert(key.clone(), record.clone());
            changed.push((key.clone(), record.clone()));
        }
        out.push((key, after));
    }
    for some in changed.chunks(WRITTEN_TOGETHER) {
        try_join_all(some.iter().map(|(key, record)| save(session, key, record, seals))).await?;
    }
    let wrote = !forget.is_empty() || !changed.is_empty();
    let after = epoch.saturating_add(u64::from(wrote));
    if wrote {
        meta::raise(session, EPOCH, after).await?;
    }
    Ok(PinStepResults { stepped: out, before: epoch, after })
}
