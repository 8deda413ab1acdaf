//! What of a section is wanted, and how much of it: `EVERMAP_BENCH_PARTS`, `EVERMAP_BENCH_QUICK`.

/// Which parts are wanted: names separated by commas; all, without it.
pub struct Parts(Option<String>);

impl Parts {
    pub fn from_environment() -> Parts {
        Parts(std::env::var("EVERMAP_BENCH_PARTS").ok())
    }

    pub fn any(&self, names: &[&str]) -> bool {
        let wanted = |text: &String| text.split(',').any(|part| names.contains(&part.trim()));
        self.0.as_ref().is_none_or(wanted)
    }
}

/// Is this run only to see that everything works?
pub fn quick() -> bool {
    std::env::var("EVERMAP_BENCH_QUICK").is_ok_and(|quick| quick != "0")
}
