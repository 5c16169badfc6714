//! All sealed columns, for work on every value under seal whatever it is.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, ToSql};

use super::{logins, open_approvals, pins, sessions};
use crate::store::port::{DbOperation, LoginKey, ResealPosition, ResealedPart, SealOperations};
use crate::store::seal::{Seals, UnsealedValue};
use crate::store::sqlite::{Sqlite, no_key, signed};

/// Length of `sealed:1:` with the id of a key, without the colon behind it.
const PREFIX: usize = "sealed:1:".len() + 16;

/// A column with sealed values.
struct SealedColumn {
    table: &'static str,
    column: &'static str,
    /// Columns that name a row, in the order in which [`Self::place`] takes their values.
    keys: &'static [&'static str],
    /// Returns the place that the value of a row is sealed for.
    place: fn(&RowKey) -> Vec<String>,
    /// What the value is, for the operator.
    noun: &'static str,
}

/// The values of the columns that name a row.
struct RowKey(Vec<Value>);

const COLUMNS: &[SealedColumn] = &[
    SealedColumn {
        table: "approvals",
        column: "message",
        keys: &["id"],
        place: |key| owned(&open_approvals::place("message", &key.text(0))),
        noun: "the text of approval",
    },
    SealedColumn {
        table: "approvals",
        column: "details",
        keys: &["id"],
        place: |key| owned(&open_approvals::place("details", &key.text(0))),
        noun: "the details of approval",
    },
    SealedColumn {
        table: "pins",
        column: "approved",
        keys: &["upstream", "kind", "name", "approved_digest"],
        place: |key| owned(&pins::place(&key.text(0), &key.text(3))),
        noun: "the approved launch of",
    },
    SealedColumn {
        table: "pins",
        column: "waiting",
        keys: &["upstream", "kind", "name", "waiting_digest"],
        place: |key| owned(&pins::place(&key.text(0), &key.text(3))),
        noun: "the waiting launch of",
    },
    SealedColumn {
        table: "logins",
        column: "value",
        keys: &["upstream", "launch"],
        place: |key| owned(&logins::login_place(&key.login())),
        noun: "the login of",
    },
    SealedColumn {
        table: "registrations",
        column: "value",
        keys: &["upstream", "launch", "issuer"],
        place: |key| owned(&logins::registration_place(&key.login(), &key.text(2))),
        noun: "the client registration of",
    },
    SealedColumn {
        table: "session_resources",
        column: "uri",
        keys: &["name", "slot"],
        place: |key| sessions::place(&key.bytes(0), key.number(1)).to_vec(),
        noun: "a watched resource of a session",
    },
];

impl SealOperations for Sqlite {
    fn reseal(&self, from: ResealPosition, most: usize) -> DbOperation<'_, ResealedPart> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let end = ResealedPart { sealed: 0, lost: Vec::new(), next: None };
            COLUMNS.get(from.column).map_or(Ok(end), |column| column.reseal(connection, &seals, from, most))
        })
    }

    fn forget_resealed(&self) -> DbOperation<'_, ()> {
        self.empty_journal()
    }
}

/// Counts the sealed values of each key, by the key's id.
pub(in crate::store::sqlite) fn count_by_key(connection: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let parts: Vec<String> = COLUMNS
        .iter()
        .map(|SealedColumn { table, column, .. }| {
            format!("SELECT substr({column}, 10, 16) AS key FROM {table} WHERE {column} LIKE 'sealed:1:%'")
        })
        .collect();
    let sql = format!("SELECT key, count(*) FROM ({}) GROUP BY key ORDER BY key", parts.join(" UNION ALL "));
    let mut select = connection.prepare(&sql)?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, crate::store::sqlite::unsigned(row.get(1)?))))?;
    rows.collect()
}

impl SealedColumn {
    fn reseal(
        &self,
        connection: &Connection,
        seals: &Seals,
        from: ResealPosition,
        most: usize,
    ) -> rusqlite::Result<ResealedPart> {
        let current = seals.current_prefix().ok_or_else(no_key)?;
        let Self { table, column, keys, .. } = self;
        let names = keys.join(", ");
        let select = format!(
            "SELECT {column}, {names} FROM {table} WHERE {column} LIKE 'sealed:%' AND substr({column}, 1, {PREFIX} + 1) <> ?1 \
             ORDER BY {names} LIMIT ?2 OFFSET ?3"
        );
        let [limit, offset] = [most, from.skipped].map(|number| signed(u64::try_from(number).unwrap_or(u64::MAX)));
        let read = |row: &Row<'_>| {
            let key = (1..=keys.len()).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
            Ok((row.get::<_, String>(0)?, RowKey(key)))
        };
        let mut statement = connection.prepare_cached(&select)?;
        let rows = statement.query_map(rusqlite::params![current, limit, offset], read)?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let named: Vec<String> = keys.iter().enumerate().map(|(at, key)| format!("{key} IS ?{}", at + 2)).collect();
        let update = format!("UPDATE {table} SET {column} = ?1 WHERE {}", named.join(" AND "));
        let mut update = connection.prepare_cached(&update)?;
        let (count, mut sealed, mut lost) = (rows.len(), 0, Vec::new());
        for (stored, key) in rows {
            let place = (self.place)(&key);
            let place: Vec<&str> = place.iter().map(String::as_str).collect();
            let UnsealedValue::Text { text, .. } = seals.open(&place, &stored) else {
                lost.push(self.name(&key));
                continue;
            };
            let value = seals.seal(&place, &text).ok_or_else(no_key)?;
            let values = [&value as &dyn ToSql].into_iter().chain(key.0.iter().map(|value| value as &dyn ToSql));
            sealed += update.execute(rusqlite::params_from_iter(values))?;
        }
        let next = if count < most {
            ResealPosition { column: from.column + 1, skipped: 0 }
        } else {
            ResealPosition { skipped: from.skipped + lost.len(), ..from }
        };
        Ok(ResealedPart { sealed, lost, next: Some(next).filter(|next| next.column < COLUMNS.len()) })
    }

    /// Returns the name of a value for the operator.
    fn name(&self, key: &RowKey) -> String {
        match key.0.first() {
            Some(Value::Text(name)) => format!("{} {name}", self.noun),
            _ => self.noun.to_owned(),
        }
    }
}

impl RowKey {
    fn text(&self, at: usize) -> String {
        match self.0.get(at) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        }
    }

    fn bytes(&self, at: usize) -> Vec<u8> {
        match self.0.get(at) {
            Some(Value::Blob(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    fn number(&self, at: usize) -> u64 {
        match self.0.get(at) {
            Some(Value::Integer(number)) => crate::store::sqlite::unsigned(*number),
            _ => 0,
        }
    }

    /// Returns the key of a login, if the first two columns are those of one.
    fn login(&self) -> LoginKey {
        LoginKey { upstream: self.text(0), launch: self.text(1) }
    }
}

fn owned(place: &[&str]) -> Vec<String> {
    place.iter().map(|part| (*part).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::name::UpstreamName;
    use crate::config::source::secret::Secret;
    use crate::engine::sealed::ended::EndedSession;
    use crate::policy::consent::ApprovalView;
    use crate::policy::{Caller, Digest, UpstreamTrust};
    use crate::store::pin_record::{PinKey, PinKind, PinStep, PinText};
    use crate::store::port::{
        LoginOperations as _, NewLogin, OpenApprovalOperations as _, PinOperations as _, SessionOperations as _,
    };
    use crate::store::seal::KeySource;
    use crate::store::sqlite::{FILE, count_sealed_values};

    const QUERY: &str = r#"{"transport":"auto","url":"https://a.example/?key=1"}"#;

    fn open(dir: &tempfile::TempDir, keys: [Option<&str>; 2]) -> Sqlite {
        let [given, previous] = keys.map(|key| key.map(|key| Secret::new(key.repeat(32))));
        let seals = Seals::of(dir.path(), &KeySource { given, previous, make: true }).unwrap();
        Sqlite::open(dir.path().join(FILE), seals).unwrap()
    }

    fn key() -> LoginKey {
        LoginKey { upstream: "docs".to_owned(), launch: "l".to_owned() }
    }

    fn session() -> EndedSession {
        EndedSession { caller: Caller::named("ci"), opened: 1, name: [7; 12], until: 1 << 40 }
    }

    fn view() -> ApprovalView {
        ApprovalView { id: "a1".to_owned(), message: "arguments".to_owned(), until: 1 << 40, ..ApprovalView::default() }
    }

    /// Writes a value of each sealed kind.
    fn fill(db: &Sqlite) {
        db.enter_approval("x".to_owned(), view()).run_now().unwrap();
        let launch = PinKey::launch(&UpstreamName::parse("docs").unwrap());
        let text = PinText { digest: Digest::of(b"1"), text: QUERY.into() };
        let (trust, folders) = (UpstreamTrust::Standard, Vec::new());
        let step = PinStep::Started { text, words: QUERY.to_owned(), trust, folders };
        db.take_steps(vec![(launch, step)], Vec::new(), 1).run_now().unwrap();
        let (issuer, value) = ("i".to_owned(), "tokens".to_owned());
        let made = NewLogin { key: key(), issuer: issuer.clone(), issuer_before: None, version: 1, value };
        assert_eq!(db.keep_login(made).run_now().unwrap(), None);
        db.keep_registration(key(), issuer, "client".to_owned()).run_now().unwrap();
        for slot in 0..5 {
            db.keep_resource(session(), slot, format!("file:///{slot}")).run_now().unwrap();
        }
    }

    /// Checks that every value of [`fill`] opens.
    fn check(db: &Sqlite) {
        assert_eq!(db.approval_details("a1".to_owned()).run_now().unwrap().unwrap().message, "arguments");
        assert_eq!(db.listed_approvals(0, true).run_now().unwrap()[0].message, "arguments");
        assert_eq!(db.login(key()).run_now().unwrap().unwrap().value.as_deref(), Some("tokens"));
        assert_eq!(db.registrations(key()).run_now().unwrap(), ["client"]);
        assert_eq!(db.kept_session(session()).run_now().unwrap().unwrap().resources.len(), 5);
        let (_, pins) = db.pins_changed(u64::MAX).run_now().unwrap().unwrap();
        let record = &pins.iter().find(|(key, _)| key.kind == PinKind::Launch).unwrap().1;
        assert_eq!(record.approved.as_deref().or(record.waiting.as_deref()), Some(QUERY));
    }

    /// Runs at most `steps` steps of two values; returns the numbers of sealed and of lost values.
    fn reseal(db: &Sqlite, steps: usize) -> (usize, Vec<String>) {
        let (mut next, mut sealed, mut lost) = (Some(ResealPosition::default()), 0, Vec::new());
        for _ in 0..steps {
            let Some(from) = next else { break };
            let part = db.reseal(from, 2).run_now().unwrap();
            assert!(part.sealed + part.lost.len() <= 2, "{part:?}");
            sealed += part.sealed;
            lost.extend(part.lost);
            next = part.next;
        }
        (sealed, lost)
    }

    fn count(dir: &tempfile::TempDir) -> Vec<u64> {
        count_sealed_values(dir.path()).unwrap().into_iter().map(|(_, count)| count).collect()
    }

    #[test]
    fn every_kind_of_sealed_value_is_sealed_anew_however_often_that_is_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        fill(&open(&dir, [Some("a"), None]));
        assert_eq!(count(&dir), [10]);
        for steps in [1, 3, 5] {
            let db = open(&dir, [Some("b"), Some("a")]);
            reseal(&db, steps);
            check(&db);
        }
        let db = open(&dir, [Some("b"), Some("a")]);
        let (sealed, lost) = reseal(&db, usize::MAX);
        assert!((1..10).contains(&sealed) && lost.is_empty(), "{sealed} {lost:?}");
        assert_eq!((reseal(&db, usize::MAX), count(&dir)), ((0, Vec::new()), vec![10]));
        drop(db);
        check(&open(&dir, [Some("b"), None]));
    }

    #[test]
    fn values_without_their_key_are_named_and_stay_until_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        fill(&open(&dir, [Some("a"), None]));
        let db = open(&dir, [Some("b"), Some("c")]);
        let (sealed, lost) = reseal(&db, usize::MAX);
        assert_eq!((sealed, lost.len()), (0, 10), "{lost:?}");
        for name in ["the login of docs", "the client registration of docs", "the text of approval a1"] {
            assert!(lost.iter().any(|lost| lost == name), "{lost:?}");
        }
        // Values of the present key between them are left alone.
        db.keep_resource(session(), 9, "file:///9".to_owned()).run_now().unwrap();
        assert_eq!(reseal(&db, usize::MAX).0, 0);
        drop(db);
        let db = open(&dir, [Some("b"), Some("a")]);
        assert_eq!(reseal(&db, usize::MAX), (10, Vec::new()));
        assert_eq!(count(&dir), [11]);
    }

    #[test]
    fn a_key_of_the_configuration_takes_over_from_the_file_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(crate::store::seal::KEY_FILE);
        fill(&open(&dir, [None, None]));
        assert_eq!(reseal(&open(&dir, [Some("a"), None]), usize::MAX).0, 10);
        std::fs::remove_file(&file).unwrap();
        check(&open(&dir, [Some("a"), None]));
        assert!(!file.exists());
        assert_eq!(reseal(&open(&dir, [None, Some("a")]), usize::MAX).0, 10);
        assert!(file.exists());
        check(&open(&dir, [None, None]));
    }
}
