//! Changes kernel settings for a measurement, and restores them afterwards, even if the run is
//! killed.

use std::path::PathBuf;

use crate::Outcome;
use crate::guard::Guard;

/// Kernel setting whose value is restored on drop.
pub struct Setting {
    file: PathBuf,
    before: String,
}

impl Setting {
    /// Reads the value and registers it with the guard, before anything is changed.
    pub fn keep(guard: &mut Guard, file: PathBuf) -> Outcome<Setting> {
        let setting = Setting::read(file)?;
        guard.write(&setting.before, &setting.file)?;
        Ok(setting)
    }

    fn read(file: PathBuf) -> Outcome<Setting> {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Setting { file, before: text.trim().to_string() })
    }

    pub fn before(&self) -> &str {
        &self.before
    }

    pub fn set(&self, value: &str) -> Outcome {
        std::fs::write(&self.file, value)
            .map_err(|error| format!("{}: {error}", self.file.display()).into())
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(&self.file, &self.before) {
            eprintln!("cannot restore {} to {}: {error}", self.file.display(), self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_setting_is_restored_on_drop() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "128\n").unwrap();
        let setting = Setting::read(file.path().to_path_buf()).unwrap();
        setting.set("0").unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "0");
        assert_eq!(setting.before(), "128");
        drop(setting);
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "128");
        assert!(Setting::read("/nonexistent/setting".into()).is_err());
    }
}
