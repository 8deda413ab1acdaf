//! Files of one `NAME: VALUE` a line: `status`, `meminfo`.

/// Returns the text of `/proc/self/status`.
pub fn own_status() -> Option<String> {
    std::fs::read_to_string("/proc/self/status").ok()
}

/// Returns the value of a field, without surrounding blanks.
///
/// ```
/// use evermap_observe::proc::field;
/// assert_eq!(field("Name:\tsh\nUmask:\t0022\n", "Umask"), Some("0022"));
/// ```
pub fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns a field in kB as bytes.
///
/// ```
/// use evermap_observe::proc::bytes_of;
/// assert_eq!(bytes_of("VmLck:\t      12 kB\n", "VmLck"), Some(12 << 10));
/// ```
pub fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Returns a field of `/proc/self/status` as bytes, such as `VmHWM`. Costs some microseconds.
///
/// ```
/// let peak_bytes = evermap_observe::proc::status_bytes("VmHWM");
/// assert!(peak_bytes.is_none_or(|bytes| bytes > 0));
/// ```
pub fn status_bytes(name: &str) -> Option<u64> {
    bytes_of(&own_status()?, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotal:        8127692 kB\nMemAvailable:    4063846 kB\nHuge: 3\n";
        assert_eq!(bytes_of(text, "MemAvailable"), Some(4_063_846 << 10));
        assert_eq!(field(text, "Huge"), Some("3"));
        assert_eq!(bytes_of(text, "Huge"), None);
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(bytes_of("MemAvailable:    18446744073709551615 kB\n", "MemAvailable"), None);
    }
}
