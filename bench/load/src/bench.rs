//! What this benchmark's sections are given besides what those of all benchmarks are: who loads, and what was measured.

use common::Outcome;
use common::machine::{self, Fact, Remarks};
use common::options::Options;

use crate::compete::Standings;
use crate::subjects::{self, Subject};

/// What a section is given.
pub type Bench = common::bench::Bench<Own>;

pub struct Own {
    /// Those that are wanted, and here.
    pub subjects: Vec<Subject>,
    /// What `cells` and `systems` measured, for `finish`.
    pub standings: Vec<Standings>,
}

/// Finds everybody, and says what everything is measured on.
pub fn start(mut options: Options) -> Outcome<Bench> {
    let python = subjects::find_python();
    let all = subjects::everybody(python.as_ref().ok().map(|(path, _)| path.as_path()));
    let wanted = all.into_iter().filter(|subject| options.wants_subject(&subject.name)).collect();
    // What is measured is linked into this program.
    options.evermap = Some(options.program.clone());
    let mut bench = Bench::new(options, Own { subjects: wanted, standings: Vec::new() })?;
    let huge = machine::text_of("/sys/kernel/mm/transparent_hugepage/enabled");
    let mut facts = vec![Fact { key: "huge_pages", name: "huge pages", value: huge }];
    let mut missing = Vec::new();
    match &python {
        Ok((_, versions)) => {
            facts.push(Fact { key: "python", name: "Python", value: versions.clone() });
        }
        Err(why) => missing.push(why.as_str()),
    }
    let each = "a process that does nothing else, measured from inside";
    let cold = "the file's own pages were dropped, or, on packed file systems, the whole page cache, and programs were read again; \
                none of the file is cached then";
    machine::describe(&mut bench, &Remarks { facts: &facts, each, cold, missing: &missing })?;
    Ok(bench)
}

/// Those of these names that are wanted, in this order.
pub fn named(bench: &Bench, names: &[&str]) -> Vec<Subject> {
    let wanted = names.iter().filter(|name| bench.options.wants_subject(name));
    wanted.map(|name| Subject::native(name)).collect()
}
