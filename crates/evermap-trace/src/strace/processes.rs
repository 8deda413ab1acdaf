//! Tracks open files and their positions for each process, as the kernel does.
//!
//! Threads share a descriptor table, and a child gets a copy. Duplicated descriptors share one
//! position.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of tracked files per process.
const FILES_MAX: usize = 16_384;
/// Maximum number of descriptors copied for children in a whole trace. Children beyond it start
/// with an empty table. A build of 100,000 processes makes 2 million copies.
const COPIES_MAX: usize = 8 << 20;

/// Maximum number of pending fork calls.
const PENDING_FORKS_MAX: usize = 1_024;

/// Open file description, as created by `open`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenFile {
    pub name: Arc<str>,
    /// Offset of the next read or write, or `None` if unknown.
    pub position_bytes: Option<u64>,
    /// Writes go to the end of the file.
    pub is_appending: bool,
    /// A warning about the unknown position was given.
    pub is_warned: bool,
}

pub(super) type File = Rc<RefCell<OpenFile>>;
type Table = Rc<RefCell<HashMap<i32, File>>>;

/// Fork call that has not returned yet.
#[derive(Clone, Copy, Debug)]
struct PendingFork {
    parent: u32,
    shares_files: bool,
}

/// Processes of a trace.
#[derive(Debug, Default)]
pub(super) struct Processes {
    tables: HashMap<u32, Table>,
    pending_forks: Vec<PendingFork>,
    copies: usize,
}

impl Processes {
    /// Returns the table of a process. A new process gets the table of a pending fork: a child's
    /// first call may come before its parent's fork returns.
    fn table(&mut self, process: u32) -> Table {
        if let Some(table) = self.tables.get(&process) {
            return Rc::clone(table);
        }
        match self.pending_forks.pop() {
            Some(PendingFork { parent, shares_files }) => self.fork(parent, process, shares_files),
            None => {
                self.tables.insert(process, Table::default());
            }
        }
        Rc::clone(self.tables.entry(process).or_default())
    }

    pub fn file(&mut self, process: u32, number: i32) -> Option<File> {
        self.table(process).borrow().get(&number).cloned()
    }

    /// Assigns a file to a descriptor. Returns false if the process has too many.
    pub fn set(&mut self, process: u32, number: i32, file: File) -> bool {
        let table = self.table(process);
        let mut table = table.borrow_mut();
        let has_room = table.len() < FILES_MAX || table.contains_key(&number);
        if has_room {
            table.insert(number, file);
        }
        has_room
    }

    pub fn close(&mut self, process: u32, number: i32) {
        self.table(process).borrow_mut().remove(&number);
    }

    pub fn close_range(&mut self, process: u32, first: i32, last: i32) {
        self.table(process).borrow_mut().retain(|number, _| !(first..=last).contains(number));
    }

    /// Records the start of a fork call.
    pub fn begin_fork(&mut self, parent: u32, shares_files: bool) {
        if self.pending_forks.len() == PENDING_FORKS_MAX {
            self.pending_forks.remove(0);
        }
        self.pending_forks.push(PendingFork { parent, shares_files });
    }

    /// Records the return of a fork call. The child has claimed it by now.
    pub fn end_fork(&mut self, parent: u32) {
        self.pending_forks.retain(|fork| fork.parent != parent);
    }

    /// Returns true if the process has appeared, possibly before its parent's fork returned.
    pub fn is_known(&self, process: u32) -> bool {
        self.tables.contains_key(&process)
    }

    pub fn fork(&mut self, parent: u32, child: u32, shares_files: bool) {
        let table = Rc::clone(self.tables.entry(parent).or_default());
        let table = if shares_files { table } else { self.copied(&table) };
        self.tables.insert(child, table);
    }

    /// Stops sharing the table of a process that executes another program.
    pub fn execute(&mut self, process: u32) {
        let table = self.table(process);
        if Rc::strong_count(&table) > 2 {
            let table = self.copied(&table);
            self.tables.insert(process, table);
        }
    }

    pub fn exit(&mut self, process: u32) {
        self.tables.remove(&process);
        self.end_fork(process);
    }

    fn copied(&mut self, table: &Table) -> Table {
        let table = table.borrow();
        self.copies = self.copies.saturating_add(table.len());
        match self.copies <= COPIES_MAX {
            true => Rc::new(RefCell::new(table.clone())),
            false => Table::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_file(name: &str) -> File {
        Rc::new(RefCell::new(OpenFile {
            name: name.into(),
            position_bytes: Some(0),
            is_appending: false,
            is_warned: false,
        }))
    }

    #[test]
    fn a_child_copies_the_table_and_shares_the_open_files() {
        let mut processes = Processes::default();
        processes.set(1, 3, a_file("a"));
        processes.fork(1, 2, false);
        processes.file(2, 3).unwrap().borrow_mut().position_bytes = Some(7);
        assert_eq!(processes.file(1, 3).unwrap().borrow().position_bytes, Some(7));
        processes.close(2, 3);
        assert!(processes.file(1, 3).is_some() && processes.file(2, 3).is_none());
    }

    #[test]
    fn threads_share_their_table_until_one_executes_a_program() {
        let mut processes = Processes::default();
        processes.fork(1, 2, true);
        processes.set(1, 3, a_file("a"));
        assert!(processes.file(2, 3).is_some());
        processes.execute(2);
        processes.close(2, 3);
        assert!(processes.file(1, 3).is_some());
    }

    #[test]
    fn a_child_seen_before_its_parent_returns_gets_the_table() {
        let mut processes = Processes::default();
        processes.set(1, 3, a_file("a"));
        processes.begin_fork(1, false);
        assert!(processes.file(2, 3).is_some());
        assert!(processes.file(9, 3).is_none());
    }

    #[test]
    fn the_files_of_a_process_are_bounded() {
        let mut processes = Processes::default();
        let file = a_file("a");
        let kept = (0..20_000).filter(|&n| processes.set(1, n, Rc::clone(&file))).count();
        assert_eq!(kept, FILES_MAX);
        assert!(processes.set(1, 0, file));
    }
}
