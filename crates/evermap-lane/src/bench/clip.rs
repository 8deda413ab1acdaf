//! Clip: numbered frames with checksums, so that a player can verify what it read.
//!
//! All words have 64 bits, little-endian. A frame consists of `EVRMCLIP`, its number, its length in
//! bytes, a checksum, and data derived from its number. The checksum is Fletcher's with 64-bit
//! words: cheap, and sensitive to missing, torn and reordered words.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat, unlinkat};

use crate::{Error, Result};

const MAGIC: u64 = u64::from_le_bytes(*b"EVRMCLIP");
const HEAD_WORDS: usize = 4;

/// Minimum and maximum length of a frame, in bytes.
pub const FRAME_BYTES: std::ops::RangeInclusive<usize> = 64..=64 << 20;

/// Dimensions of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clip {
    /// Number of frames.
    pub frames: u64,
    /// Length of each frame: a multiple of 8 within [`FRAME_BYTES`].
    pub frame_bytes: usize,
}

impl Clip {
    /// Length of the clip in bytes.
    pub fn bytes(&self) -> u64 {
        self.frames.saturating_mul(self.frame_bytes as u64)
    }

    /// Writes the clip to a file that gets its name, and replaces an older one, only when it is
    /// complete and flushed. Cost: writing its bytes.
    ///
    /// # Errors
    /// [`Error::InvalidPolicy`] for invalid frames; I/O errors. No file is left then.
    pub fn make(&self, path: &Path) -> Result<()> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = self.unnamed(folder)?;
        let failed = |error: rustix::io::Errno| failed("name the clip", path)(error.into());
        let here = rustix::fs::CWD;
        let unnamed = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let link = |to: &Path| linkat(here, &unnamed, here, to, AtFlags::SYMLINK_FOLLOW);
        match link(path) {
            Err(rustix::io::Errno::EXIST) => {
                // A link cannot replace a file; a rename does so atomically.
                let mut name = path.file_name().unwrap_or_default().to_os_string();
                name.push(format!(".{}.new", std::process::id()));
                let temporary = path.with_file_name(name);
                link(&temporary).map_err(failed)?;
                rustix::fs::rename(&temporary, path).inspect_err(|_| {
                    let _ = unlinkat(here, &temporary, AtFlags::empty());
                })
            }
            other => other,
        }
        .map_err(failed)
    }

    /// Writes the clip to an unnamed file, which disappears with its last descriptor.
    ///
    /// # Errors
    /// Same errors as [`Clip::make`].
    pub fn unnamed(&self, folder: &Path) -> Result<File> {
        if !FRAME_BYTES.contains(&self.frame_bytes) || !self.frame_bytes.is_multiple_of(8) {
            return Err(Error::InvalidPolicy(format!(
                "invalid frame length of {} bytes: use a multiple of 8 from {} bytes to {} MiB",
                self.frame_bytes,
                FRAME_BYTES.start(),
                FRAME_BYTES.end() >> 20
            )));
        }
        let file = unnamed(folder)?;
        self.write(&file).map_err(failed("write the clip in", folder))?;
        Ok(file)
    }

    fn write(&self, file: &File) -> std::io::Result<()> {
        let mut writer = BufWriter::with_capacity(1 << 20, file);
        let mut frame = vec![0; self.frame_bytes];
        for number in 0..self.frames {
            fill(&mut frame, number);
            writer.write_all(&frame)?;
        }
        writer.flush()?;
        file.sync_all()
    }
}

/// Makes an unnamed file for reading and writing.
pub(super) fn unnamed(folder: &Path) -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(rustix::fs::CWD, folder, flags, Mode::from_raw_mode(0o644))
        .map(File::from)
        .map_err(|source| failed("make an unnamed file in", folder)(source.into()))
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { operation, path: path.into(), source }
}

fn fill(frame: &mut [u8], number: u64) {
    let mut random = fastrand::Rng::with_seed(number);
    let (head, data) = frame.split_at_mut(HEAD_WORDS * 8);
    for word in data.chunks_exact_mut(8) {
        word.copy_from_slice(&random.u64(..).to_le_bytes());
    }
    let words = [MAGIC, number, (head.len() + data.len()) as u64, checksum(number, data)];
    for (place, word) in head.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// Returns true if the bytes are frame `number`. Cost: reads each byte once.
pub fn is_frame(bytes: &[u8], number: u64) -> bool {
    if bytes.len() < HEAD_WORDS * 8 || !bytes.len().is_multiple_of(8) {
        return false;
    }
    let (head, data) = bytes.split_at(HEAD_WORDS * 8);
    words(head).eq([MAGIC, number, bytes.len() as u64, checksum(number, data)])
}

fn checksum(number: u64, data: &[u8]) -> u64 {
    let (mut sum, mut sums) = (number, number);
    for word in words(data) {
        sum = sum.wrapping_add(word);
        sums = sums.wrapping_add(sum);
    }
    sum ^ sums.rotate_left(32)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_intact_frame_with_the_number_is_accepted() {
        let mut frame = vec![0; 4_096];
        fill(&mut frame, 7);
        assert!(is_frame(&frame, 7));
        assert!(!is_frame(&frame, 8) && !is_frame(&frame[..4_088], 7) && !is_frame(&[], 0));
        for at in [0, 9, 17, 25, 33, 4_095] {
            let mut torn = frame.clone();
            torn[at] ^= 1;
            assert!(!is_frame(&torn, 7), "byte {at}");
        }
        let mut swapped = frame.clone();
        swapped.copy_within(64..72, 72);
        swapped[64..72].copy_from_slice(&frame[72..80]);
        assert!(!is_frame(&swapped, 7), "two words are swapped");
    }

    #[test]
    fn a_complete_clip_replaces_an_older_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clip");
        std::fs::write(&path, "before").unwrap();
        let clip = Clip { frames: 5, frame_bytes: 1_000 };
        for _ in 0..2 {
            clip.make(&path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, clip.bytes());
            let frames = bytes.chunks(1_000).zip(0..);
            assert!(frames.into_iter().all(|(frame, number)| is_frame(frame, number)));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn invalid_frame_lengths_are_refused() {
        for frame_bytes in [0, 8, 63, 65, 1 << 30] {
            let error = Clip { frames: 1, frame_bytes }.unnamed(Path::new("/tmp")).unwrap_err();
            assert!(matches!(error, Error::InvalidPolicy(_)), "{error}");
        }
    }
}
