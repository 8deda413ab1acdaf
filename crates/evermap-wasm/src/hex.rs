//! Hexadecimal digits of hashes and keys.

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Parses `2 * N` hexadecimal digits.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    // `from_str_radix` accepts a sign; hex strings must not have one.
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::from_hex;

    #[test]
    fn hex_digits_must_not_have_a_sign() {
        assert_eq!(from_hex::<2>("0aFf"), Some([10, 255]));
        assert!(["+a0f", "0a+f", "0a", "0a0f0", "zz0f"].iter().all(|t| from_hex::<2>(t).is_none()));
    }
}
