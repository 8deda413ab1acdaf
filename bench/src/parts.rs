//! Reads which parts of a section to run (`EVERMAP_BENCH_PARTS`), and whether the run is quick
//! (`EVERMAP_BENCH_QUICK`).

/// Selected parts: names separated by commas; all parts if the variable is not set.
pub struct Parts(Option<String>);

impl Parts {
    pub fn from_environment() -> Parts {
        Parts(std::env::var("EVERMAP_BENCH_PARTS").ok())
    }

    /// Returns true if one of these parts is selected.
    pub fn any(&self, names: &[&str]) -> bool {
        let wanted = |text: &String| text.split(',').any(|part| names.contains(&part.trim()));
        self.0.as_ref().is_none_or(wanted)
    }
}

/// Returns true if this run only checks that everything works.
pub fn quick() -> bool {
    std::env::var("EVERMAP_BENCH_QUICK").is_ok_and(|quick| quick != "0")
}
