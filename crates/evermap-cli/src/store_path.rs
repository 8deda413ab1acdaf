//! Choice of the store's directory without `--store`.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use crate::failure::Failure;

/// Environment variable that names the store if `--store` is not given.
const STORE_VARIABLE: &str = "EVERMAP_STORE";

/// Returns the directory of the store without `--store`: from the environment, else the user's own.
pub fn default_store() -> Result<PathBuf, Failure> {
    if let Some(directory) = std::env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty()) {
        return Ok(directory.into());
    }
    let strategy = etcetera::base_strategy::Xdg::new().map_err(|_| Failure::NoHome)?;
    Ok(strategy.data_dir().join("evermap").join("store"))
}
