//! Memory of this process, from the kernel's walk over its page tables (`smaps_rollup`); the faster
//! counters are inexact.

use harness::Outcome;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) private_bytes: u64,
    pub(super) huge_bytes: u64,
    pub(super) mapped_bytes: u64,
}

pub(super) fn now() -> Outcome<Memory> {
    Ok(parse(&std::fs::read_to_string("/proc/self/smaps_rollup")?))
}

fn parse(text: &str) -> Memory {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kib = line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    };
    let private_bytes = bytes("Anonymous:");
    Memory {
        private_bytes,
        huge_bytes: bytes("AnonHugePages:"),
        mapped_bytes: bytes("Rss:").saturating_sub(private_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_pages_are_distinguished_from_file_pages() {
        let text = "5580-7ffc ---p 0 00:00 0 [rollup]\nRss:      1884 kB\nAnonymous:    884 kB\n\
                    LazyFree:       0 kB\nAnonHugePages:   512 kB\n";
        let memory =
            Memory { private_bytes: 884 << 10, huge_bytes: 512 << 10, mapped_bytes: 1000 << 10 };
        assert_eq!(parse(text), memory);
    }
}
