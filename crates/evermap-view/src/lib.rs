//! Pages that stay laid out between runs.
