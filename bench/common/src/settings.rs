//! Settings of the kernel that a measurement needs to be otherwise: as before once it is over, even if the run is killed.

use std::path::PathBuf;

use crate::Outcome;
use crate::guard::Guard;

/// A setting that is as before once this goes away.
pub struct Setting {
    file: PathBuf,
    before: String,
}

impl Setting {
    /// Looks what it is, and has the guard know that before anything is changed.
    pub fn keep(guard: &mut Guard, file: PathBuf) -> Outcome<Setting> {
        let setting = Setting::look(file)?;
        guard.write(&setting.before, &setting.file)?;
        Ok(setting)
    }

    fn look(file: PathBuf) -> Outcome<Setting> {
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
            eprintln!("{} is not {} again: {error}", self.file.display(), self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_setting_is_as_before_once_it_goes_away() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "128\n").unwrap();
        let setting = Setting::look(file.path().to_path_buf()).unwrap();
        setting.set("0").unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "0");
        assert_eq!(setting.before(), "128");
        drop(setting);
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "128");
        assert!(Setting::look("/nonexistent/setting".into()).is_err());
    }
}
