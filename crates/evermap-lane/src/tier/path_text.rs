//! Serialization of paths: text if valid UTF-8, else an array of bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathText {
    Text(String),
    Bytes(Vec<u8>),
}

/// Serializer for `serde(with)`.
pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => serializer.serialize_str(text),
        None => path.as_os_str().as_bytes().serialize(serializer),
    }
}

/// Deserializer for `serde(with)`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let bytes = match PathText::deserialize(deserializer)? {
        PathText::Text(text) => text.into_bytes(),
        PathText::Bytes(bytes) => bytes,
    };
    if bytes.contains(&0) {
        return Err(serde::de::Error::custom("a path must not contain a NUL byte"));
    }
    Ok(OsString::from_vec(bytes).into())
}
