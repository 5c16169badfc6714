//! Tokens of clients: the table `client_tokens`.

use rusqlite::{OptionalExtension as _, Row, params};

use crate::store::port::{ClientToken, ClientTokenOperations, DbOperation, TOKEN_PREFIX_BYTES, TokenAddition};
use crate::store::sqlite::{Sqlite, signed, unsigned};
use crate::wire::digest::Digest;

impl ClientTokenOperations for Sqlite {
    fn client_tokens(&self) -> DbOperation<'_, Vec<ClientToken>> {
        self.read(|connection| {
            let sql = "SELECT name, prefix, rest, scopes, created, expires, last_used FROM client_tokens ORDER BY name";
            let mut select = connection.prepare_cached(sql)?;
            let tokens = select.query_map([], read)?;
            tokens.filter_map(Result::transpose).collect()
        })
    }

    fn add_client_token(&self, token: ClientToken, most: usize) -> DbOperation<'_, TokenAddition> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.write(move |connection| {
            let (prefix, rest) = token.digest.bytes().split_at(TOKEN_PREFIX_BYTES);
            let sql =
                "SELECT name = ?1 FROM client_tokens WHERE name = ?1 OR prefix = ?2 ORDER BY name = ?1 DESC LIMIT 1";
            let same: Option<bool> =
                connection.query_row(sql, params![token.name, prefix], |row| row.get(0)).optional()?;
            match same {
                Some(true) => return Ok(TokenAddition::NameExists),
                Some(false) => return Ok(TokenAddition::TokenExists),
                None => {}
            }
            let count: i64 = connection.query_row("SELECT count(*) FROM client_tokens", [], |row| row.get(0))?;
            if count >= most {
                return Ok(TokenAddition::Full);
            }
            let sql = "INSERT INTO client_tokens (name, prefix, rest, scopes, created, expires, last_used) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let (expires, last_used) = (token.expires.map(signed), token.last_used.map(signed));
            let scopes = token.scopes.join(" ");
            connection
                .execute(sql, params![token.name, prefix, rest, scopes, signed(token.created), expires, last_used])?;
            Ok(TokenAddition::Added)
        })
    }

    fn revoke_client_token(&self, name: String) -> DbOperation<'_, bool> {
        self.write(move |connection| {
            connection.execute("DELETE FROM client_tokens WHERE name = ?1", [name]).map(|count| count > 0)
        })
    }

    fn note_token_uses(&self, uses: Vec<(Digest, u64)>) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            let sql = "UPDATE client_tokens SET last_used = ?3 \
                       WHERE prefix = ?1 AND rest = ?2 AND coalesce(last_used, -1) < ?3";
            let mut update = connection.prepare_cached(sql)?;
            for (digest, at) in uses {
                let (prefix, rest) = digest.bytes().split_at(TOKEN_PREFIX_BYTES);
                update.execute(params![prefix, rest, signed(at)])?;
            }
            Ok(())
        })
    }
}

/// Reads a row; `None` if its digest has another length than digests have.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<ClientToken>> {
    let digest = [row.get::<_, Vec<u8>>("prefix")?, row.get("rest")?].concat();
    let scopes: String = row.get("scopes")?;
    let time = |column: &str| row.get::<_, Option<i64>>(column).map(|time| time.map(unsigned));
    Ok(match Digest::from_bytes(&digest) {
        Some(digest) => Some(ClientToken {
            name: row.get("name")?,
            digest,
            scopes: scopes.split_whitespace().map(str::to_owned).collect(),
            created: row.get("created").map(unsigned)?,
            expires: time("expires")?,
            last_used: time("last_used")?,
        }),
        None => None,
    })
}
