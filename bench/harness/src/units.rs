//! Formats and parses sizes, rates and counts.

use crate::Outcome;
use crate::samples::figure;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

const UNITS: [(u64, &str); 3] = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];

/// Formats a size in the largest unit that it reaches.
pub fn size(bytes: u64) -> String {
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{} {name}", figure(bytes as f64 / unit as f64)),
        None => format!("{bytes} B"),
    }
}

/// Parses a size; `4096`, `4K`, `4KiB` and `4 KiB` are equal.
pub fn parse_size(text: &str) -> Outcome<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 1,
        "k" => KIB,
        "m" => MIB,
        "g" => GIB,
        _ => return Err(format!("`{text}` is not a size; write 4KiB, 64M or 1G").into()),
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("`{text}` is not a size; write 4KiB, 64M or 1G").into())
}

/// Rate in megabytes (a million bytes) a second.
pub fn megabytes_per_second(bytes: u64, ms: f64) -> f64 {
    bytes as f64 / 1e3 / ms
}

/// Rate in bytes a millisecond, the paper's unit.
pub fn bytes_per_ms(bytes: u64, ms: f64) -> f64 {
    bytes as f64 / ms
}

/// Formats a count in groups of three digits.
pub fn grouped(count: f64) -> String {
    let digits = format!("{:.0}", count.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if count < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn formatted_sizes_parse_to_the_same_number() {
        for bytes in [1, 4096, 61 * KIB, 64 * MIB, GIB] {
            assert_eq!(parse_size(&size(bytes)).unwrap(), bytes);
        }
        assert_eq!(size(3 * MIB / 2), "1.50 MiB");
        assert_eq!(["4K", "4kib", "4096"].map(|text| parse_size(text).unwrap()), [4096; 3]);
        for text in ["", "K", "4X", "-4", "99999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_use_decimal_megabytes() {
        assert_eq!(megabytes_per_second(4_000_000, 2.0), 2000.0);
        assert_eq!(bytes_per_ms(4096, 2.0), 2048.0);
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!(
            [0.0, 999.0, 1000.0, 1234567.0].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
