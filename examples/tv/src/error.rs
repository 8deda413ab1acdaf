//! Errors with file, line and remedy.

use std::path::PathBuf;

use evermap_view::ViewError;

/// Reason why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum TvError {
    /// A file of the user interface is invalid.
    #[error("{}:{line}: {why}; repair the file, or write new ones with `tv generate`", file.display())]
    Xml {
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: u32,
        /// Found and expected contents.
        why: String,
    },
    /// A file can't be read or written.
    #[error("{}: {cause}; {remedy}", file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
        /// Action that solves the problem.
        remedy: &'static str,
    },
    /// The menu has no screen of this name.
    #[error("no screen is named `{0}`; choose from: {1}")]
    NoScreen(String, String),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] evermap::Error),
    /// The page can't be painted.
    #[error(transparent)]
    View(ViewError),
    /// A picture can't be written.
    #[error("{}: {why}", file.display())]
    Picture {
        /// Path of the file.
        file: PathBuf,
        /// Error of the encoder.
        why: String,
    },
    /// The window system is missing or failed.
    #[error("cannot open a window: {0}; use `tv start --png FILE`, which needs none")]
    NoWindow(String),
    /// A measured program failed.
    #[error("the measured program {0}")]
    Child(String),
}

/// Result of this program.
pub type Result<T> = std::result::Result<T, TvError>;

impl From<ViewError> for TvError {
    fn from(error: ViewError) -> TvError {
        match error {
            // The viewer's remedy does not apply to this program.
            ViewError::NoWindow(cause) => TvError::NoWindow(cause),
            error => TvError::View(error),
        }
    }
}

impl TvError {
    pub(crate) fn file(
        file: impl Into<PathBuf>,
        remedy: &'static str,
    ) -> impl FnOnce(std::io::Error) -> TvError {
        let file = file.into();
        move |cause| TvError::File { file, cause, remedy }
    }
}
