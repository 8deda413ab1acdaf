//! Recordings as TOML files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bounded::read_bounded;
use crate::error::{Error, Result};
use crate::recording::{Recording, Touch, WINDOW_BYTES};

/// Version of the layout.
const VERSION: u32 = 1;

/// Maximum size of a recording file.
const BYTES_MAX: u64 = 256 << 20;

/// Contents of a recording file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    file_bytes: u64,
    modified_ns: i64,
    begin_bytes: u64,
    end_bytes: u64,
    window_bytes: u64,
    written_bytes: u64,
    /// Windows in the order of first access.
    touched: Vec<u32>,
    /// Windows whose first access was a write, in the same order.
    written_first: Vec<u32>,
}

impl Recording {
    /// Reads a saved recording of at most 256 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::Malformed`] for an invalid file.
    pub fn read(path: impl AsRef<Path>) -> Result<Recording> {
        let path = path.as_ref();
        let bytes = read_bounded(path, BYTES_MAX).map_err(|source| Error::Io {
            operation: "read",
            path: path.into(),
            source,
        })?;
        let parsed = String::from_utf8(bytes).map_err(|error| error.to_string());
        parsed.and_then(|text| parse(&text)).map_err(|what| Error::Malformed {
            path: path.into(),
            what: format!("invalid recording: {what}; remove it to record again"),
        })
    }

    /// Saves the recording atomically, replacing an existing file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |source| Error::Io { operation: "save", path: path.into(), source };
        let text = self.text().map_err(|error| failed(std::io::Error::other(error)))?;
        let temporary = temporary_path(path);
        let saved =
            std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
        saved.map_err(|source| {
            let _ = std::fs::remove_file(&temporary);
            failed(source)
        })
    }

    fn text(&self) -> Result<String, toml::ser::Error> {
        let first = |touch: &&Touch| touch.is_write;
        let windows = |touch: &Touch| touch.window;
        toml::to_string(&Text {
            version: VERSION,
            file_bytes: self.file_bytes,
            modified_ns: i64::try_from(self.modified_ns).unwrap_or(i64::MAX),
            begin_bytes: self.begin,
            end_bytes: self.end,
            window_bytes: WINDOW_BYTES as u64,
            written_bytes: self.written_bytes,
            touched: self.touches.iter().map(windows).collect(),
            written_first: self.touches.iter().filter(first).map(windows).collect(),
        })
    }
}

/// Returns a temporary name in the same directory, unique to this process.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

fn parse(text: &str) -> Result<Recording, String> {
    let text: Text = toml::from_str(text).map_err(|error| error.to_string())?;
    if (text.version, text.window_bytes) != (VERSION, WINDOW_BYTES as u64) {
        return Err("it was written by another version".into());
    }
    if text.begin_bytes > text.end_bytes || text.end_bytes > text.file_bytes {
        return Err("its range is not in its file".into());
    }
    let mut written = text.written_first.iter().peekable();
    let touch =
        |window| Touch { window, is_write: written.next_if(|first| **first == window).is_some() };
    Ok(Recording {
        file_bytes: text.file_bytes,
        modified_ns: text.modified_ns.into(),
        begin: text.begin_bytes,
        end: text.end_bytes,
        touches: text.touched.into_iter().map(touch).collect(),
        written_bytes: text.written_bytes,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_saved_recording_reads_back_equal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("use.toml");
        let touches = [(5, true), (0, false), (7, true)]
            .map(|(window, is_write)| Touch { window, is_write })
            .into();
        let recording = Recording {
            file_bytes: 1 << 20,
            modified_ns: 1_700_000_000_123_456_789,
            begin: 4096,
            end: 1 << 20,
            touches,
            written_bytes: 8192,
        };
        recording.save(&path).unwrap();
        assert_eq!(Recording::read(&path).unwrap(), recording);
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn an_invalid_recording_is_an_error_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("use.toml");
        for text in ["", "version = 1", "\u{0}", "[[file]]"]
            .map(str::as_bytes)
            .iter()
            .chain([&&[0xff_u8, 1][..]])
        {
            std::fs::write(&path, text).unwrap();
            let error = Recording::read(&path).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
            assert!(error.to_string().contains("remove it"), "{error}");
        }
    }
}
