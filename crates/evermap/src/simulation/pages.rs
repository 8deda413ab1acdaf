//! Contents of a file as pages that copies share until one of them is written.
//!
//! Deriving a disk from another copies a whole disk. Sharing reduces that to a few pointers per
//! file.

use std::sync::Arc;

/// Page size in bytes.
pub(super) const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// Contents of a file. A page that is `None` is a hole and reads as zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Arc<Page>>>,
    length: u64,
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

impl Pages {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Truncates the file, or extends it by a hole. Truncated data is discarded.
    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.pages.truncate(length.div_ceil(PAGE) as usize);
            let inside = (length % PAGE) as usize;
            if inside > 0
                && let Some(Some(page)) = self.pages.get_mut((length / PAGE) as usize)
            {
                Arc::make_mut(page)[inside..].fill(0);
            }
        }
        self.length = length;
    }

    /// Calls `each` for every page of the range with the page, the offset in it, the offset in the
    /// range, and the length.
    fn for_each_part(offset: u64, length: usize, mut each: impl FnMut(usize, usize, usize, usize)) {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let inside = (at % PAGE) as usize;
            let step = (length - done).min(PAGE as usize - inside);
            each((at / PAGE) as usize, inside, done, step);
            done += step;
        }
    }

    /// Reads a range. Holes and bytes past the end read as zeros.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        let length = buffer.len();
        Self::for_each_part(offset, length, |page, inside, done, step| {
            let part = &mut buffer[done..done + step];
            match self.pages.get(page) {
                Some(Some(page)) => part.copy_from_slice(&page[inside..inside + step]),
                _ => part.fill(0),
            }
        });
    }

    /// Writes bytes and extends the file if necessary.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.length = self.length.max(offset + bytes.len() as u64);
        Self::for_each_part(offset, bytes.len(), |page, inside, done, step| {
            let part = &bytes[done..done + step];
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            let slot = &mut self.pages[page];
            if slot.is_none() && is_zero(part) {
                return;
            }
            let page = slot.get_or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[inside..inside + step].copy_from_slice(part);
        });
    }

    /// Returns the numbers of the pages that are not holes.
    pub(super) fn filled(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.pages).filter_map(|(number, page)| page.as_ref().map(|_| number))
    }

    /// Returns runs of pages that are not holes: the offset, and the pages. The last page may reach
    /// past the end.
    pub(super) fn runs(&self) -> Vec<(u64, Vec<&[u8]>)> {
        let mut runs: Vec<(u64, Vec<&[u8]>)> = Vec::new();
        let mut next = None;
        for (index, page) in self.pages.iter().enumerate() {
            let Some(page) = page else { continue };
            match runs.last_mut() {
                Some((_, run)) if next == Some(index) => run.push(&page[..]),
                _ => runs.push((index as u64 * PAGE, vec![&page[..]])),
            }
            next = Some(index + 1);
        }
        runs
    }

    /// Returns the sectors of `bytes`, starting at `offset`, that differ from the contents.
    pub(super) fn differences(
        &self,
        offset: u64,
        bytes: &[u8],
        sector: usize,
    ) -> Vec<(u64, usize)> {
        let mut found: Vec<(u64, usize)> = Vec::new();
        let mut own = [0; PAGE as usize];
        Self::for_each_part(offset, bytes.len(), |page, inside, done, step| {
            let part = &bytes[done..done + step];
            let same = match self.pages.get(page) {
                Some(Some(page)) => page[inside..inside + step] == *part,
                _ => is_zero(part),
            };
            if same {
                return;
            }
            let base = offset + done as u64;
            self.read(base, &mut own[..step]);
            for at in (0..step).step_by(sector) {
                let end = (at + sector).min(step);
                if own[at..end] != part[at..end] {
                    match found.last_mut() {
                        Some((start, length)) if *start + *length as u64 == base + at as u64 => {
                            *length += end - at;
                        }
                        _ => found.push((base + at as u64, end - at)),
                    }
                }
            }
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_independent_and_holes_read_as_zeros() {
        let mut first = Pages::default();
        first.write(5000, b"hello");
        let second = first.clone();
        first.write(5001, b"a");
        let mut buffer = [9; 7];
        second.read(4999, &mut buffer);
        assert_eq!(&buffer, b"\0hello\0");
        first.read(4999, &mut buffer);
        assert_eq!(&buffer, b"\0hallo\0");
        first.set_length(5002);
        first.set_length(9000);
        first.read(4999, &mut buffer);
        assert_eq!(&buffer, b"\0ha\0\0\0\0");
        assert_eq!(first.length(), 9000);
        assert_eq!(first.differences(5000, b"haXlo", 2), [(5002, 3)]);
    }
}
