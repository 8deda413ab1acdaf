//! A process that outlives a run that is killed, and undoes what the kernel does not undo by itself.
//!
//! It is told what to undo before that is done: `remove PATH` for a folder, `write VALUE PATH` for a setting of a block
//! device, `group PATH` for a control group. When its input ends it undoes all that, the last first. A run that ends well has undone everything itself;
//! the guard then finds nothing to do. It is started before mounts become private and so never sees them: removing a
//! folder can't reach into a file system that is mounted there.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;

/// For what is left to end by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// The guard, as seen by the run. Going away lets it undo what is left, and waits for that.
pub struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts it by the program at this path.
    pub fn start(program: &Path) -> Outcome<Guard> {
        let mut command = Command::new(program);
        command.args(["child", "guard"]).stdin(Stdio::piped()).stdout(Stdio::null());
        // What the terminal sends to the run does not reach it.
        command.process_group(0);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        Ok(Guard { child, input })
    }

    /// A folder that has to be gone in the end.
    pub fn remove(&mut self, folder: &Path) -> Outcome {
        self.tell(&format!("remove {}", utf8(folder)?))
    }

    /// A setting that has to be this again.
    pub fn write(&mut self, value: &str, file: &Path) -> Outcome {
        self.tell(&format!("write {value} {}", utf8(file)?))
    }

    /// A control group that has to be gone in the end.
    pub fn group(&mut self, folder: &Path) -> Outcome {
        self.tell(&format!("group {}", utf8(folder)?))
    }

    fn tell(&mut self, line: &str) -> Outcome {
        let input = self.input.as_mut().ok_or("the guard is gone")?;
        writeln!(input, "{line}").map_err(|error| format!("the guard is gone: {error}"))?;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn utf8(path: &Path) -> Outcome<&str> {
    let text = path.to_str().filter(|text| !text.contains('\n'));
    text.ok_or_else(|| {
        format!("{}: a path of ordinary characters is needed", path.display()).into()
    })
}

#[derive(Debug, PartialEq)]
enum Undo {
    Remove(PathBuf),
    Write(String, PathBuf),
    Group(PathBuf),
}

impl Undo {
    fn parse(line: &str) -> Option<Undo> {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "remove" => Some(Undo::Remove(rest.into())),
            "group" => Some(Undo::Group(rest.into())),
            "write" => {
                let (value, path) = rest.split_once(' ')?;
                Some(Undo::Write(value.to_string(), path.into()))
            }
            _ => None,
        }
    }

    fn perform(&self) -> std::io::Result<()> {
        match self {
            Undo::Remove(folder) => std::fs::remove_dir_all(folder),
            Undo::Write(value, file) => std::fs::write(file, value),
            Undo::Group(folder) => remove_group(folder),
        }
    }
}

/// Removes a control group, once the last process in it has ended: those who are in one end by themselves.
pub fn remove_group(folder: &Path) -> std::io::Result<()> {
    let start = Instant::now();
    loop {
        match std::fs::remove_dir(folder) {
            Err(error)
                if error.kind() == std::io::ErrorKind::ResourceBusy
                    && start.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            end => return end,
        }
    }
}

/// The guard itself: reads what is to be undone, and undoes it when there is nobody left to say more.
pub fn watch(input: impl BufRead) -> Outcome {
    let lines = input.lines().map_while(Result::ok);
    let undos: Vec<Undo> = lines.filter_map(|line| Undo::parse(&line)).collect();
    for undo in undos.iter().rev() {
        match undo.perform() {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                eprintln!("not undone: {undo:?}: {error}");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn when_its_input_ends_the_guard_undoes_everything_the_last_first() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, setting) = (outer.path().join("a folder"), outer.path().join("setting"));
        std::fs::create_dir_all(folder.join("deep/er")).unwrap();
        std::fs::write(&setting, "0").unwrap();
        let lines = format!(
            "remove {}\nwrite 128 {}\nwrite 7 {}\n",
            folder.display(),
            setting.display(),
            setting.display()
        );
        watch(lines.as_bytes()).unwrap();
        assert!(!folder.exists());
        assert_eq!(std::fs::read_to_string(setting).unwrap(), "128");
    }

    #[test]
    fn what_is_undone_already_and_what_makes_no_sense_are_no_matter() {
        watch("remove /nonexistent/at all\nwhat is this\nwrite\n".as_bytes()).unwrap();
        assert_eq!(Undo::parse("write 4"), None);
    }

    #[test]
    fn paths_that_would_be_two_lines_are_refused() {
        assert!(utf8(Path::new("a\nb")).is_err());
        assert_eq!(utf8(Path::new("a b")).unwrap(), "a b");
    }
}
