//! Reads the time at which a certificate expires: a walk over the first fields of its DER form.
//!
//! Source: RFC 5280, sections 4.1 and 4.1.2.5.

use time::{Date, Month, PrimitiveDateTime, Time};

const SEQUENCE: u8 = 0x30;
/// The optional version of a certificate.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the last second at which a certificate is valid, in seconds since 1970; `None` if the
/// bytes are no certificate. A time before 1970 counts as 1970.
pub(crate) fn not_after(certificate: &[u8]) -> Option<u64> {
    let (signed, _) = value(certificate, SEQUENCE)?;
    let (fields, _) = value(signed, SEQUENCE)?;
    let mut rest = value(fields, VERSION).map_or(fields, |(_, rest)| rest);
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (validity, _) = value(rest, SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    seconds(tag, std::str::from_utf8(text).ok()?)
}

/// Parses a time such as `270131120000Z` or `20510131120000Z`.
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: i32 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(part(0)?).ok()?, part(2)?).ok()?;
    let time = Time::from_hms(part(4)?, part(6)?, part(8)?).ok()?;
    let seconds = PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp();
    (rest.len() == 10).then(|| u64::try_from(seconds).unwrap_or(0))
}

/// Returns the content of an element with this tag, and the bytes after it.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Splits off an element: its tag, its content, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read_from_its_bytes() {
        let key = rcgen::KeyPair::generate().unwrap();
        for (year, month, day, want) in [(2031, 1, 2, 1_925_078_400), (2051, 1, 2, 2_556_230_400)] {
            let mut params = rcgen::CertificateParams::new(vec!["gw.example".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let certificate = params.self_signed(&key).unwrap();
            assert_eq!(not_after(certificate.der()), Some(want), "{year}");
            for end in 0..certificate.der().len().min(200) {
                assert_eq!(not_after(&certificate.der()[..end]), None, "cut at {end}");
            }
        }
        assert_eq!(not_after(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        for (tag, text) in [(UTC_TIME, "2701311200Z"), (UTC_TIME, "271331120000Z"), (4, "270131120000Z")] {
            assert_eq!(seconds(tag, text), None, "{text}");
        }
    }
}
