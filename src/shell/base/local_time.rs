//! Formats times for people: date and time in this machine's time zone, followed by the zone.
//!
//! `chrono` reads the zone (`$TZ`, else `/etc/localtime`) without the C library. `time` asks that
//! library, which is unsound while another thread may change the environment, and therefore refuses
//! to work in a process with several threads.

use chrono::{DateTime, Local, Offset as _, TimeZone};

/// Formats a time as `2026-11-28 13:05:09 +01:00`, with `UTC` for an offset of zero. Returns the
/// number itself if the calendar cannot represent it.
pub fn local(seconds_since_1970: u64) -> String {
    told(&Local, seconds_since_1970, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time like [`local`], without the seconds.
pub fn local_minute(seconds_since_1970: u64) -> String {
    told(&Local, seconds_since_1970, "%Y-%m-%d %H:%M")
}

/// Formats the time of day: `13:05 +01:00`.
pub fn local_clock(seconds_since_1970: u64) -> String {
    told(&Local, seconds_since_1970, "%H:%M")
}

/// Returns the zone in force at that time: `+01:00`, or `UTC`.
pub fn zone(seconds_since_1970: u64) -> String {
    local_clock(seconds_since_1970).rsplit(' ').next().unwrap_or_default().to_owned()
}

/// Converts a time of an audit record, RFC 3339 in UTC, as [`local`] does. Any other text is
/// returned unchanged.
pub fn local_of(rfc_3339: &str) -> String {
    let seconds = DateTime::parse_from_rfc3339(rfc_3339).ok().and_then(|at| u64::try_from(at.timestamp()).ok());
    seconds.map_or_else(|| rfc_3339.to_owned(), local)
}

/// Formats a time in a time zone.
fn told<Z: TimeZone>(zone: &Z, seconds_since_1970: u64, form: &str) -> String
where
    Z::Offset: std::fmt::Display,
{
    let moment = i64::try_from(seconds_since_1970).ok().and_then(|at| zone.timestamp_opt(at, 0).single());
    let Some(moment) = moment else { return seconds_since_1970.to_string() };
    let zone =
        if moment.offset().fix().local_minus_utc() == 0 { "UTC".to_owned() } else { moment.format("%:z").to_string() };
    format!("{} {zone}", moment.format(form))
}

#[cfg(test)]
mod tests {
    use chrono::{FixedOffset, Utc};

    use super::*;

    const FORM: &str = "%Y-%m-%d %H:%M:%S";

    #[test]
    fn a_moment_has_its_zone() {
        let at = 1_795_867_509;
        assert_eq!(told(&Utc, at, FORM), "2026-11-28 12:05:09 UTC");
        let east = |hours: i32| FixedOffset::east_opt(hours * 3600).unwrap();
        assert_eq!(told(&east(1), at, FORM), "2026-11-28 13:05:09 +01:00");
        assert_eq!(told(&east(-13), at, "%Y-%m-%d %H:%M"), "2026-11-27 23:05 -13:00");
        assert_eq!(told(&Utc, u64::MAX, FORM), u64::MAX.to_string());
        assert_eq!(local_of("yesterday"), "yesterday");
        assert_eq!(local_of("2026-11-28T12:05:09.120Z"), local(at));
        assert!(local_minute(at).starts_with("2026-11-2"));
        assert!(local(at).ends_with(&zone(at)) && local_clock(at).ends_with(&zone(at)));
    }
}
