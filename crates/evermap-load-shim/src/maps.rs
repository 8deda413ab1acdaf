//! Current protection of addresses, read from the kernel because the program may have changed it.

use std::ffi::c_int;

use evermap_observe::proc::mappings;

/// Returns the mapped parts of a range with their protection, ascending.
pub(crate) fn protections(start: usize, end: usize) -> Vec<(usize, usize, c_int)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    of_text(&maps, start, end)
}

fn of_text(maps: &str, start: usize, end: usize) -> Vec<(usize, usize, c_int)> {
    mappings(maps)
        .filter_map(|mapping| {
            let (from, to) = ((mapping.start as usize).max(start), (mapping.end as usize).min(end));
            let right = |letter, right: c_int| if mapping.has(letter) { right } else { 0 };
            let protection = right('r', libc::PROT_READ)
                | right('w', libc::PROT_WRITE)
                | right('x', libc::PROT_EXEC);
            (from < to).then_some((from, to, protection))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_parts_of_a_range_have_their_protection() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 \n3000-5000 r--p 00000000 08:01 7 /a file\n";
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let expected = [(0x2000, 0x3000, read_write), (0x3000, 0x4000, libc::PROT_READ)];
        assert_eq!(of_text(maps, 0x2000, 0x4000), expected);
        assert_eq!(of_text(maps, 0x6000, 0x7000), []);
    }
}
