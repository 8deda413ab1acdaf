//! Process that outlives a killed run and undoes the changes that the kernel does not undo.
//!
//! The run announces each change before it makes it: `remove PATH` for a folder, `write VALUE PATH`
//! for a setting of a block device, `group PATH` for a control group. When its input ends, the
//! guard undoes all of these in reverse order. A run that ends normally has undone everything, so
//! the guard finds nothing to do. The guard starts before mounts become private and never sees
//! them: removing a folder can't reach into a file system that is mounted there.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;

/// Longest wait until the last process of a control group ends.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Handle of the guard process. Dropping it makes the guard undo everything, and waits for that.
pub struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard as a child of this program.
    pub fn start(program: &Path) -> Outcome<Guard> {
        let mut command = Command::new(program);
        command.args(["child", "guard"]).stdin(Stdio::piped()).stdout(Stdio::null());
        // Signals of the terminal do not reach the guard.
        command.process_group(0);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        Ok(Guard { child, input })
    }

    /// Registers a folder to remove at the end.
    pub fn remove(&mut self, folder: &Path) -> Outcome {
        self.tell(&format!("remove {}", utf8(folder)?))
    }

    /// Registers the value to restore in a setting at the end.
    pub fn write(&mut self, value: &str, file: &Path) -> Outcome {
        self.tell(&format!("write {value} {}", utf8(file)?))
    }

    /// Registers a control group to remove at the end.
    pub fn group(&mut self, folder: &Path) -> Outcome {
        self.tell(&format!("group {}", utf8(folder)?))
    }

    fn tell(&mut self, line: &str) -> Outcome {
        let input = self.input.as_mut().ok_or("the guard has ended")?;
        writeln!(input, "{line}").map_err(|error| format!("the guard has ended: {error}"))?;
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
        format!("{}: the path must be UTF-8 without line breaks", path.display()).into()
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

/// Removes a control group after its last process has ended. Waits for that up to the timeout.
pub fn remove_group(folder: &Path) -> std::io::Result<()> {
    let start = Instant::now();
    loop {
        match std::fs::remove_dir(folder) {
            Err(error)
                if error.kind() == std::io::ErrorKind::ResourceBusy
                    && start.elapsed() < TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            end => return end,
        }
    }
}

/// Runs the guard: reads the changes, and undoes them when its input ends.
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
    fn the_guard_undoes_everything_in_reverse_order_when_its_input_ends() {
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
    fn missing_files_and_malformed_lines_are_ignored() {
        watch("remove /nonexistent/at all\nwhat is this\nwrite\n".as_bytes()).unwrap();
        assert_eq!(Undo::parse("write 4"), None);
    }

    #[test]
    fn paths_with_line_breaks_are_refused() {
        assert!(utf8(Path::new("a\nb")).is_err());
        assert_eq!(utf8(Path::new("a b")).unwrap(), "a b");
    }
}
