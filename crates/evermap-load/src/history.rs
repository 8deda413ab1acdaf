//! History of a load: the method, the methods tried before, and the recording. Images and reports
//! read it.

use evermap_observe::Usage;

use crate::plan::{Choice, Method};
use crate::replay;

/// Method and history of a load.
#[derive(Debug)]
pub(crate) struct LoadHistory {
    pub(crate) choice: Choice,
    /// Methods tried before, with the reasons for refusal.
    pub(crate) refused: Vec<(Method, String)>,
    /// Resources used for a complete load.
    pub(crate) usage: Usage,
    pub(crate) replay: replay::Plan,
    pub(crate) may_map: bool,
}
