//! Which open file a descriptor is, and where in it the next read begins: what the kernel keeps for each process, followed call by call.
//!
//! Threads share a table of descriptors, a child gets a copy; a duplicate shares its original's position, as the kernel has it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// More open files than this of one process are not followed.
const FILES_MAX: usize = 16_384;
/// Copies of descriptors for children, over a whole trace: children beyond it begin with none. A build of 100,000 processes makes 2 million.
const COPIES_MAX: usize = 8 << 20;

/// Calls that begin a process and have not returned: more than this at a time are not waited for.
const FORKING_MAX: usize = 1_024;

/// An open file, as `open` made it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenFile {
    pub name: Arc<str>,
    /// Where the next read or write begins; none when that is not known.
    pub position_bytes: Option<u64>,
    /// Writes go to its end, wherever that is.
    pub is_appending: bool,
    /// That its position is not known has been said.
    pub is_warned: bool,
}

pub(super) type File = Rc<RefCell<OpenFile>>;
type Table = Rc<RefCell<HashMap<i32, File>>>;

/// A call that begins a process, and has not returned yet.
#[derive(Clone, Copy, Debug)]
struct Forking {
    parent: u32,
    shares_files: bool,
}

/// The processes of a trace.
#[derive(Debug, Default)]
pub(super) struct Processes {
    tables: HashMap<u32, Table>,
    forking: Vec<Forking>,
    copies: usize,
}

impl Processes {
    /// The table of a process; one that is new has that of whoever is about to begin one: its first call may come before its parent's returns.
    fn table(&mut self, process: u32) -> Table {
        if let Some(table) = self.tables.get(&process) {
            return Rc::clone(table);
        }
        match self.forking.pop() {
            Some(Forking { parent, shares_files }) => self.fork(parent, process, shares_files),
            None => {
                self.tables.insert(process, Table::default());
            }
        }
        Rc::clone(self.tables.entry(process).or_default())
    }

    pub fn file(&mut self, process: u32, number: i32) -> Option<File> {
        self.table(process).borrow().get(&number).cloned()
    }

    /// Makes a descriptor lead to a file. False: it has too many.
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

    /// A call that begins a process was entered.
    pub fn begins_fork(&mut self, parent: u32, shares_files: bool) {
        if self.forking.len() == FORKING_MAX {
            self.forking.remove(0);
        }
        self.forking.push(Forking { parent, shares_files });
    }

    /// It has returned; whoever was to take it for its beginning has done so.
    pub fn ends_fork(&mut self, parent: u32) {
        self.forking.retain(|forking| forking.parent != parent);
    }

    /// A process is there. One that is known already has come before its parent's call returned.
    pub fn is_known(&self, process: u32) -> bool {
        self.tables.contains_key(&process)
    }

    pub fn fork(&mut self, parent: u32, child: u32, shares_files: bool) {
        let table = Rc::clone(self.tables.entry(parent).or_default());
        let table = if shares_files { table } else { self.copied(&table) };
        self.tables.insert(child, table);
    }

    /// A process that runs another program no longer shares its table.
    pub fn execute(&mut self, process: u32) {
        let table = self.table(process);
        if Rc::strong_count(&table) > 2 {
            let table = self.copied(&table);
            self.tables.insert(process, table);
        }
    }

    pub fn exit(&mut self, process: u32) {
        self.tables.remove(&process);
        self.ends_fork(process);
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
    fn a_child_has_a_copy_of_the_table_and_the_same_open_files() {
        let mut processes = Processes::default();
        processes.set(1, 3, a_file("a"));
        processes.fork(1, 2, false);
        processes.file(2, 3).unwrap().borrow_mut().position_bytes = Some(7);
        assert_eq!(processes.file(1, 3).unwrap().borrow().position_bytes, Some(7));
        processes.close(2, 3);
        assert!(processes.file(1, 3).is_some() && processes.file(2, 3).is_none());
    }

    #[test]
    fn threads_share_their_table_until_one_runs_a_program() {
        let mut processes = Processes::default();
        processes.fork(1, 2, true);
        processes.set(1, 3, a_file("a"));
        assert!(processes.file(2, 3).is_some());
        processes.execute(2);
        processes.close(2, 3);
        assert!(processes.file(1, 3).is_some());
    }

    #[test]
    fn a_child_that_is_seen_before_its_parent_returns_has_its_table() {
        let mut processes = Processes::default();
        processes.set(1, 3, a_file("a"));
        processes.begins_fork(1, false);
        assert!(processes.file(2, 3).is_some());
        assert!(processes.file(9, 3).is_none());
    }

    #[test]
    fn files_of_a_process_are_bounded() {
        let mut processes = Processes::default();
        let file = a_file("a");
        let kept = (0..20_000).filter(|&n| processes.set(1, n, Rc::clone(&file))).count();
        assert_eq!(kept, FILES_MAX);
        assert!(processes.set(1, 0, file));
    }
}
