//! What can go wrong, said with the file, the line and what to do.

use std::path::PathBuf;

use evermap_view::ViewError;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum TvError {
    /// A file of the user interface is not what it should be.
    #[error("{}:{line}: {why}; repair the file, or write new ones with `tv generate`", file.display())]
    Xml {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u32,
        /// What was found, and what was expected.
        why: String,
    },
    /// A file can't be read or written.
    #[error("{}: {cause}; {remedy}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        cause: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A screen that the menu does not have.
    #[error("there is no screen `{0}`; there are {1}")]
    NoScreen(String, String),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] evermap::Error),
    /// Nothing can be painted.
    #[error(transparent)]
    View(ViewError),
    /// A picture can't be written.
    #[error("{}: {why}", file.display())]
    Picture {
        /// The file.
        file: PathBuf,
        /// What the encoder says.
        why: String,
    },
    /// The window system is missing or failed.
    #[error("no window: {0}; `tv start --png FILE` needs none")]
    NoWindow(String),
    /// A program that was to be measured ended badly.
    #[error("the measured program {0}")]
    Child(String),
}

/// A result of this program.
pub type Result<T> = std::result::Result<T, TvError>;

impl From<ViewError> for TvError {
    fn from(error: ViewError) -> TvError {
        match error {
            // The viewer's remedy is not this program's.
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
