//! Tokens of clients: one of each name and each digest, over all processes.

use super::*;

const MOST: usize = 4;

fn token(name: u8, digest: u8) -> ClientToken {
    ClientToken {
        name: name.to_string(),
        digest: Digest::of(&[digest]),
        scopes: (0..digest).map(|n| format!("s{n}")).collect(),
        created: u64::from(digest),
        expires: digest.is_multiple_of(2).then(|| 1000 + u64::from(digest)),
        last_used: None,
    }
}

#[test]
fn a_token_is_there_from_its_addition_to_its_revocation_and_its_use_only_grows() {
    play((0..2_usize, 0..6_u8, 0..6_u8, 0..6_u8), |dbs, events| {
        let mut model = BTreeMap::<String, ClientToken>::new();
        for (process, what, name, digest) in events {
            let (db, one) = (&dbs[*process], token(*name, *digest));
            match what {
                0 => {
                    let is_there = model.remove(&one.name).is_some();
                    assert_eq!(db.revoke_client_token(one.name.clone()).run_now().unwrap(), is_there);
                }
                1 | 2 => {
                    let at = u64::from(*name);
                    db.note_token_uses(vec![(one.digest, at)]).run_now().unwrap();
                    let same = model.values_mut().filter(|known| known.digest == one.digest);
                    same.for_each(|known| known.last_used = known.last_used.max(Some(at)));
                }
                _ => {
                    let expected = if model.contains_key(&one.name) {
                        TokenAddition::NameExists
                    } else if model.values().any(|known| known.digest == one.digest) {
                        TokenAddition::TokenExists
                    } else if model.len() == MOST {
                        TokenAddition::Full
                    } else {
                        model.insert(one.name.clone(), one.clone());
                        TokenAddition::Added
                    };
                    assert_eq!(db.add_client_token(one, MOST).run_now().unwrap(), expected);
                }
            }
            let kept = dbs[1 - *process].client_tokens().run_now().unwrap();
            assert_eq!(kept, model.values().cloned().collect::<Vec<_>>());
        }
    });
}
