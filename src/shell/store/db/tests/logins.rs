//! Logins: one process renews, and what it says of another row changes nothing.

use super::*;

/// Time for which a claim lasts.
const CLAIM: u64 = 3;

#[derive(Debug)]
struct Row {
    version: u64,
    value: String,
    is_expired: bool,
    was_tried: bool,
    /// The claimant, and the end of the claim.
    claim: Option<(u64, u64)>,
}

fn key() -> LoginKey {
    LoginKey { upstream: "a".to_owned(), launch: "l".to_owned() }
}

#[test]
fn a_login_is_renewed_by_one_process_at_a_time_and_only_as_the_row_that_it_is() {
    play((0..2_usize, 0..7_u8, 0..4_u64), |dbs, events| {
        let (mut model, mut now, mut last) = (None::<Row>, 1, 0);
        for (process, what, back) in events {
            let (db, by) = (&dbs[*process], *process as u64);
            now += 1;
            // Mostly the row of now, at times one of before.
            let version = last - if *back == 3 { 1.min(last) } else { 0 };
            let who = || ClaimKey { key: key(), version, by };
            let row = model.as_mut().filter(|row| row.version == version);
            match what {
                0 => {
                    last += 1;
                    let (version, value) = (last, format!("made {last}"));
                    let issuer = "i".to_owned();
                    let made = NewLogin { key: key(), issuer, issuer_before: None, version, value: value.clone() };
                    assert_eq!(db.keep_login(made).run_now().unwrap(), None);
                    model = Some(Row { version, value, is_expired: false, was_tried: false, claim: None });
                }
                1 | 2 => {
                    let is_busy = |row: &Row| row.claim.is_some_and(|(owner, end)| owner != by && end > now);
                    let claim = match row.filter(|row| !row.is_expired) {
                        None => LoginRowClaim::Moved,
                        Some(row) if is_busy(row) => LoginRowClaim::Busy,
                        Some(row) => {
                            row.claim = Some((by, now + CLAIM));
                            LoginRowClaim::Mine { was_tried: std::mem::replace(&mut row.was_tried, true) }
                        }
                    };
                    assert_eq!(db.claim_login(who(), now, now + CLAIM).run_now().unwrap(), claim);
                }
                3 => {
                    let (fresh, value) = (last + 1, format!("renewed {last}"));
                    let renewed = db.renew_login(who(), fresh, value.clone()).run_now().unwrap();
                    assert_eq!(renewed, row.as_ref().is_some_and(|row| !row.is_expired));
                    if let Some(row) = row.filter(|_| renewed) {
                        *row = Row { version: fresh, value, is_expired: false, was_tried: false, claim: None };
                        last = fresh;
                    }
                }
                4 => {
                    db.release_login(who(), false).run_now().unwrap();
                    if let Some(row) = row.filter(|row| row.claim.is_some_and(|(owner, _)| owner == by)) {
                        (row.claim, row.was_tried) = (None, false);
                    }
                }
                5 => {
                    assert_eq!(db.expire_login(key(), version).run_now().unwrap(), row.is_some());
                    if let Some(row) = row {
                        (row.claim, row.is_expired) = (None, true);
                    }
                }
                _ => assert_eq!(db.forget_login(key()).run_now().unwrap(), model.take().is_some()),
            }
            let seen = dbs[1 - *process].login(key()).run_now().unwrap();
            let seen = seen.map(|kept| (kept.version, kept.value.unwrap(), kept.is_expired));
            assert_eq!(seen, model.as_ref().map(|row| (row.version, row.value.clone(), row.is_expired)));
        }
    });
}

#[test]
fn a_login_at_another_issuer_gives_way_to_the_one_that_was_kept_meanwhile() {
    play((0..2_usize, 0..3_u8, 0..4_u8), |dbs, events| {
        let mut model = None::<String>;
        for (process, issuer, before) in events {
            let (db, name) = (&dbs[*process], |n: &u8| format!("issuer {n}"));
            let (issuer, before) = (name(issuer), (*before > 0).then(|| name(&(before - 1))));
            let made = NewLogin {
                key: key(),
                issuer: issuer.clone(),
                issuer_before: before.clone(),
                version: 1,
                value: "v".to_owned(),
            };
            let other = model.clone().filter(|kept| model != before && *kept != issuer);
            assert_eq!(db.keep_login(made).run_now().unwrap(), other);
            model = other.or(Some(issuer));
            db.forget_login(key()).run_now().unwrap();
            assert_eq!(dbs[1 - *process].login_issuer(key()).run_now().unwrap(), model, "it outlives the login");
        }
    });
}
