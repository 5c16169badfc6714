//! Tokens of clients: the table `client_tokens`.

use std::sync::Arc;

use tokio_postgres::Row;

use crate::store::port::{ClientToken, ClientTokenOperations, DbError, DbOperation, TOKEN_PREFIX_BYTES, TokenAddition};
use crate::store::postgres::Postgres;
use crate::store::postgres::ends::WrittenEnd;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};
use crate::wire::digest::Digest;

impl ClientTokenOperations for Postgres {
    fn client_tokens(&self) -> DbOperation<'_, Vec<ClientToken>> {
        self.read(async |session: &PostgresSession| {
            let sql = "SELECT name, prefix, rest, scopes, created, expires, last_used FROM client_tokens ORDER BY name";
            session.rows(sql, &[]).await?.iter().filter_map(|row| read(row).transpose()).collect()
        })
    }

    fn add_client_token(&self, token: ClientToken, most: usize) -> DbOperation<'_, TokenAddition> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.announce(async move |session: &PostgresSession| {
            let (prefix, rest) = token.digest.bytes().split_at(TOKEN_PREFIX_BYTES);
            let sql = "SELECT name = $1 AS is_same FROM client_tokens WHERE name = $1 OR prefix = $2 \
                       ORDER BY name = $1 DESC LIMIT 1";
            if let Some(same) = session.row(sql, &[&token.name, &prefix]).await? {
                let is_same = column(&same, "is_same")?;
                return Ok(if is_same { TokenAddition::NameExists } else { TokenAddition::TokenExists });
            }
            let sql = "INSERT INTO client_tokens (name, prefix, rest, scopes, created, expires, last_used) \
                       SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM client_tokens) < $8";
            let (expires, last_used) = (token.expires.map(signed), token.last_used.map(signed));
            let (scopes, created) = (token.scopes.join(" "), signed(token.created));
            Ok(
                if session
                    .execute(sql, &[&token.name, &prefix, &rest, &scopes, &created, &expires, &last_used, &most])
                    .await?
                    == 1
                {
                    TokenAddition::Added
                } else {
                    TokenAddition::Full
                },
            )
        })
    }

    fn revoke_client_token(&self, name: String) -> DbOperation<'_, bool> {
        let ends = Arc::clone(&self.ends);
        self.announce(async move |session: &PostgresSession| {
            let rows =
                session.rows("DELETE FROM client_tokens WHERE name = $1 RETURNING prefix, rest", &[&name]).await?;
            for row in &rows {
                ends.keep(WrittenEnd::Token(column(row, "prefix")?, column(row, "rest")?));
            }
            Ok(!rows.is_empty())
        })
    }

    fn note_token_uses(&self, uses: Vec<(Digest, u64)>) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            let sql = "UPDATE client_tokens SET last_used = $3 \
                       WHERE prefix = $1 AND rest = $2 AND coalesce(last_used, -1) < $3";
            for (digest, at) in uses {
                let (prefix, rest) = digest.bytes().split_at(TOKEN_PREFIX_BYTES);
                session.execute(sql, &[&prefix, &rest, &signed(at)]).await?;
            }
            Ok(())
        })
    }
}

/// Reads a row; `None` if its digest has another length than digests have.
fn read(row: &Row) -> Result<Option<ClientToken>, DbError> {
    let digest = [column::<Vec<u8>>(row, "prefix")?, column(row, "rest")?].concat();
    let Some(digest) = Digest::from_bytes(&digest) else { return Ok(None) };
    let time =
        |name: &str| column::<Option<i64>>(row, name).map(|time| time.map(|time| u64::try_from(time).unwrap_or(0)));
    Ok(Some(ClientToken {
        name: column(row, "name")?,
        digest,
        scopes: column::<String>(row, "scopes")?.split_whitespace().map(str::to_owned).collect(),
        created: unsigned(row, "created")?,
        expires: time("expires")?,
        last_used: time("last_used")?,
    }))
}
