//! Parsers for the numbers in traces. They are exact and return `None` for invalid text.

/// Size of a sector in Linux's block layer, independent of the device.
pub(crate) const SECTOR_BYTES: u64 = 512;

const NS_DIGITS: usize = 9;

/// Parses seconds such as `12.000345`. Returns nanoseconds; digits after the ninth are dropped.
pub(crate) fn seconds_in_ns(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let mut ns = 0;
    for index in 0..NS_DIGITS {
        let digit = decimals.as_bytes().get(index).map_or(0, |digit| u64::from(digit - b'0'));
        ns = ns * 10 + digit;
    }
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Parses a number such as `4096` or `0x1000`, without a sign.
pub(crate) fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

/// Returns the offset of a sector. Overflow gives the largest offset, which the collector rejects.
pub(crate) fn sector_in_bytes(sector: u64) -> u64 {
    sector.saturating_mul(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds_in_ns("1795464242.306508"), Some(1_795_464_242_306_508_000));
        assert_eq!(seconds_in_ns("0.000000001"), Some(1));
        assert_eq!(seconds_in_ns("7"), Some(7_000_000_000));
        assert_eq!(seconds_in_ns("1.23456789099"), Some(1_234_567_890));
        for wrong in ["", ".", "1.", ".5", "-1.0", "1e3", "18446744074.0", "1.2.3", "+1"] {
            assert_eq!(seconds_in_ns(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_have_no_signs() {
        assert_eq!((unsigned("0x1000"), unsigned("12")), (Some(4_096), Some(12)));
        for wrong in ["", "0x", "-1", "+1", "0x+1", "18446744073709551616", "1 "] {
            assert_eq!(unsigned(wrong), None, "{wrong}");
        }
    }
}
