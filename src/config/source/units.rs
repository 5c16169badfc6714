//! Durations and sizes as people write them: `"30s"`, `"4MiB"`.

use std::time::Duration;

/// Units of time, largest first, in milliseconds.
const TIMES: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size, largest first, in bytes.
const SIZES: &[(&str, usize)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Regular expressions, for editors, of the texts that [`parse_duration`] and [`parse_size`] can
/// read.
pub(crate) const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";
pub(crate) const SIZE: &str = "^[0-9]+(B|KiB|MiB|GiB)$";

/// The unit of a day, in milliseconds.
const DAYS: (&str, u64) = ("d", 24 * 3_600_000);

/// Reads `"500ms"`, `"30s"`, `"5m"`, `"24h"`, `"90d"`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, millis) = TIMES.iter().chain(&[DAYS]).find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*millis).map(Duration::from_millis)
}

/// Writes a duration of whole milliseconds in the shortest form; in days from two of them on.
pub fn duration(value: Duration) -> String {
    let millis = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
    let fits = |(name, unit): &&(&str, u64)| {
        millis != 0 && millis.is_multiple_of(*unit) && (*name != DAYS.0 || millis > DAYS.1)
    };
    match [DAYS].iter().chain(TIMES).find(fits) {
        Some((name, unit)) => format!("{}{name}", millis / unit),
        None => "0s".to_owned(),
    }
}

/// Reads `"64KiB"`, `"4MiB"`, `"1GiB"`, `"100B"`.
pub(crate) fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit)?;
    number.parse::<usize>().ok()?.checked_mul(*bytes)
}

/// Writes a size in the shortest form.
pub(crate) fn size(bytes: usize) -> String {
    let fits = |(_, unit): &&(&str, usize)| bytes != 0 && bytes.is_multiple_of(*unit);
    match SIZES.iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => "0B".to_owned(),
    }
}

/// Splits a text into digits and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    if end == 0 { None } else { text.split_at_checked(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_back_as_written() {
        for text in ["500ms", "30s", "5m", "24h", "90d", "1500ms", "90s"] {
            assert_eq!(duration(parse_duration(text).unwrap()), text);
        }
        for text in ["1B", "64KiB", "4MiB", "1GiB", "1025B"] {
            assert_eq!(size(parse_size(text).unwrap()), text);
        }
        assert_eq!(duration(Duration::ZERO), "0s");
    }

    #[test]
    fn anything_else_is_no_duration_and_no_size() {
        for text in ["", "5", "s", "-1s", "1 s", "1.5s", "5S", "1s30", "99999999999999999999s", "18446744073709551615h"]
        {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
        for text in ["", "4", "MiB", "4 MiB", "4MB", "4mib", "4 MB of", "99999999999GiB1"] {
            assert_eq!(parse_size(text), None, "{text:?}");
        }
    }
}
