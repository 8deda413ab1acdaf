//! Formats text for people: numbers with units, times, and text without control characters.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Escapes the control characters of a text, except line feeds. Used for text from files, paths and
/// other processes, so that a terminal does not interpret it.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() && character != '\n' {
            true => plain.extend(character.escape_default()),
            false => plain.push(character),
        }
    }
    plain
}

/// Formats a size as `4.10 kB`, in decimal units as file managers and disk vendors use.
pub fn bytes(count: u64) -> String {
    humansize::format_size(count, humansize::DECIMAL)
}

/// Formats a number as `12,345,678`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a number of things as `1 block` or `12,345 blocks`.
pub fn counted(number: u64, singular: &str) -> String {
    if number == 1 {
        return format!("1 {singular}");
    }
    let (stem, ending) = match singular.strip_suffix('y') {
        Some(stem) => (stem, "ies"),
        None if singular.ends_with("sh") => (singular, "es"),
        None => (singular, "s"),
    };
    format!("{} {stem}{ending}", count(number))
}

/// Formats a duration with three digits in µs, ms or s.
pub fn duration(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    let (value, unit) = match us {
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    match value {
        value if value < 10.0 => format!("{value:.2} {unit}"),
        value if value < 100.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// Formats seconds as [`duration`] does. Negative ones count as 0.
pub fn seconds(seconds: f64) -> String {
    duration(Duration::from_secs_f64(seconds.max(0.0)))
}

/// Returns a duration in milliseconds, rounded to microseconds.
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Formats a time as `2026-01-31T23:59:59Z`. Times before 1970 and after 9999 become the nearest
/// one that it can format.
pub fn utc(time: SystemTime) -> String {
    const END_OF_9999_S: u64 = 253_402_300_799;
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(END_OF_9999_S));
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_formats_leap_days_and_year_ends() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(at(1 << 60), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn counts_are_grouped_and_durations_have_three_digits() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(
            ["block", "entry", "flush"].map(|one| counted(1, one)),
            ["1 block", "1 entry", "1 flush"]
        );
        assert_eq!(
            ["block", "entry", "flush"].map(|one| counted(0, one)),
            ["0 blocks", "0 entries", "0 flushes"]
        );
        assert_eq!(counted(1_234, "block"), "1,234 blocks");
        assert_eq!(duration(Duration::from_nanos(12_340)), "12.3 µs");
        assert_eq!(duration(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(duration(Duration::from_millis(2_500)), "2.50 s");
    }
}
