//! State of this benchmark's sections beyond the shared state: the subjects and their results.

use harness::Outcome;
use harness::machine::{self, Fact, Remarks};
use harness::options::Options;

use crate::compete::Standings;
use crate::subjects::{self, Subject};

/// Bench that a section receives.
pub type Bench = harness::bench::Bench<Own>;

pub struct Own {
    /// Selected subjects that are installed.
    pub subjects: Vec<Subject>,
    /// Results of `cells` and `systems`, for the goals of `finish`.
    pub standings: Vec<Standings>,
}

/// Finds the subjects and prints the description of the machine.
pub fn start(options: Options) -> Outcome<Bench> {
    let python = subjects::find_python();
    let all = subjects::all_subjects(python.as_ref().ok().map(|(path, _)| path.as_path()));
    let wanted = all.into_iter().filter(|subject| options.wants_subject(&subject.name)).collect();
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
    let each = "a process that only loads, measured from inside";
    let cold = "the file's own pages were dropped, or, on packed file systems, the whole page cache, and programs were read again; \
          none of the file is cached then";
    let notes = machine::notes(&bench, each, cold);
    machine::describe(&mut bench, &Remarks { facts: &facts, notes, missing: &missing })?;
    Ok(bench)
}

/// Returns the selected subjects among these names, in this order.
pub fn named(bench: &Bench, names: &[&str]) -> Vec<Subject> {
    let wanted = names.iter().filter(|name| bench.options.wants_subject(name));
    wanted.map(|name| Subject::native(name)).collect()
}
