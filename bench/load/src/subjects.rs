//! Ways to load a file: Evermap by its policies and by each method, plain C, and Python libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_load::Method;
use harness::process::{Job, find_program};

use crate::work::Work;

/// Evermap's policy, which knows the work in advance. `automatic-finish` also knows that nothing is
/// used before all is loaded.
pub const AUTOMATIC: &str = "automatic";
pub const FINISH: &str = "automatic-finish";
/// Prefix of a method's subject name.
pub const METHOD: &str = "evermap ";
pub const READ: &str = "malloc+read";
pub const MAP: &str = "mmap";
pub const MAP_POPULATE: &str = "mmap+MAP_POPULATE";
pub const MAP_WILLNEED: &str = "mmap+WILLNEED";
/// Names that `peers/load.py` accepts.
const PYTHON: [&str; 5] = [
    "numpy.fromfile",
    "numpy.memmap r",
    "numpy.memmap c",
    "safetensors load_file",
    "safetensors safe_open",
];
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/load.py");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub name: String,
    /// Interpreter that runs it; `None` for this program.
    python: Option<PathBuf>,
}

/// One load to perform.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// This benchmark's own program.
    pub program: &'a Path,
    pub file: &'a Path,
    /// File with the list of pages to touch.
    pub list: &'a Path,
    pub work: Work,
}

impl Subject {
    pub fn native(name: &str) -> Subject {
        Subject { name: name.to_string(), python: None }
    }

    pub fn method(method: Method) -> Subject {
        Subject::native(&method_name(method))
    }

    /// Returns true for one of Evermap's methods.
    pub fn is_method(name: &str) -> bool {
        name.starts_with(METHOD)
    }

    pub fn is_automatic(name: &str) -> bool {
        name == AUTOMATIC || name == FINISH
    }

    pub fn command(&self, task: Task<'_>) -> Command {
        let mut command = match &self.python {
            Some(python) => {
                let mut command = Command::new(python);
                command.arg(SCRIPT);
                command
            }
            None => {
                let mut command = Command::new(task.program);
                command.args(["child", "load"]);
                command
            }
        };
        let Work { touched_percent, is_written, order } = task.work;
        command.args(["--subject", &self.name, "--touched", &touched_percent.to_string()]);
        command.args(["--order", order.name(), "--pages"]).arg(task.list);
        if is_written {
            command.arg("--written");
        }
        command.arg(task.file);
        command
    }

    /// Returns the command with its output redirected to a file.
    pub fn job(&self, task: Task<'_>, output: &Path) -> Job {
        Job { output: Some(output.to_path_buf()), ..Job::new(self.command(task)) }
    }
}

pub fn method_name(method: Method) -> String {
    format!("{METHOD}{method}")
}

/// Returns all subjects. Python's are included if there is an interpreter.
pub fn all_subjects(python: Option<&Path>) -> Vec<Subject> {
    let automatic = [AUTOMATIC, FINISH].map(Subject::native);
    let peers = [READ, MAP, MAP_POPULATE, MAP_WILLNEED].map(Subject::native);
    let methods = Method::ALL.into_iter().map(Subject::method);
    let in_python = python.into_iter().flat_map(|python| {
        PYTHON.map(|name| Subject { name: name.to_string(), python: Some(python.to_path_buf()) })
    });
    automatic.into_iter().chain(methods).chain(peers).chain(in_python).collect()
}

/// Finds an interpreter with numpy and safetensors, and their versions. The error names what is
/// missing.
pub fn find_python() -> Result<(PathBuf, String), String> {
    let python = match std::env::var_os("EVERMAP_BENCH_PYTHON") {
        Some(path) if path == "none" => return Err("Python (EVERMAP_BENCH_PYTHON=none)".into()),
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => find_program("python3").ok_or("python3 is not installed")?,
    };
    let versions = "import sys, numpy, safetensors.numpy, safetensors; \
                    print(sys.version.split()[0], numpy.__version__, safetensors.__version__)";
    let output = Command::new(&python).args(["-c", versions]).output();
    let output = output.map_err(|error| format!("{}: {error}", python.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.split_whitespace().collect::<Vec<_>>()[..] {
        [own, numpy, safetensors] if output.status.success() => {
            Ok((python, format!("{own}, numpy {numpy}, safetensors {safetensors}")))
        }
        _ => Err(format!(
            "{} has no numpy or safetensors (`bench load` installs them)",
            python.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Order;

    fn line(subject: &Subject) -> String {
        let work = Work::written(25, Order::Random);
        let (program, file, list) = (Path::new("bench"), Path::new("file"), Path::new("list"));
        let command = subject.command(Task { program, file, list, work });
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_subjects_have_different_names() {
        let all = all_subjects(Some(Path::new("python")));
        assert_eq!(all.len(), 2 + 12 + 4 + 5);
        for subject in &all {
            assert_eq!(all.iter().filter(|other| other.name == subject.name).count(), 1);
        }
        assert_eq!(all_subjects(None).len(), 18);
        assert!(Subject::is_method("evermap mmap") && !Subject::is_method(MAP));
    }

    #[test]
    fn all_subjects_get_the_same_arguments() {
        let told = "--touched 25 --order random --pages list --written file";
        let own = line(&Subject::native(READ));
        assert_eq!(own, format!("bench child load --subject malloc+read {told}"));
        let all = all_subjects(Some(Path::new("python")));
        let line = all.last().map(line).unwrap_or_default();
        assert!(line.starts_with("python /") && line.ends_with(told), "{line}");
    }
}
