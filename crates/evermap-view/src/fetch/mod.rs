//! URLs to bytes.
