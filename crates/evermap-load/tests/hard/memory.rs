//! Memory that is short, locked, or without huge pages.

use std::path::PathBuf;

use evermap_load::{Error, Loader, Method};

use crate::common::{
    WINDOW, argument, by, child_test, cold_file, directory, is_pattern, is_root, is_started,
    loader, on_demand, pattern, skip,
};

const BYTES: usize = 10 * WINDOW + 4097;

#[test]
fn without_huge_pages_every_method_works_and_reports_none() {
    let file = cold_file(BYTES);
    child_test("memory::child_without_huge_pages").with("FILE", &file.path).succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_without_huge_pages() {
    if !is_started() {
        return;
    }
    // SAFETY: changes only how this process gets memory.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
    let bytes = pattern(BYTES);
    for method in Method::ALL {
        let Some(image) = by(&loader(&argument("FILE")), method) else { continue };
        assert!(*image == *bytes, "{method}");
        image.wait().unwrap();
        assert_eq!(image.report().residency.huge_bytes, 0, "{method}");
    }
}

/// Creates files with data and with holes, for a process with locked memory.
fn locked_file() -> (crate::common::File, PathBuf, tempfile::TempDir) {
    let directory = directory();
    let holes = directory.path().join("holes");
    std::fs::File::create(&holes).unwrap().set_len(BYTES as u64).unwrap();
    (cold_file(BYTES), holes, directory)
}

fn lock_memory(flags: libc::c_int) -> bool {
    // SAFETY: locks memory without changing its contents.
    let locked = unsafe { libc::mlockall(flags) } == 0;
    if !locked {
        skip("cannot lock memory");
    }
    locked
}

#[test]
fn with_locked_memory_every_method_has_the_bytes() {
    let (file, holes, _directory) = locked_file();
    for flags in [libc::MCL_CURRENT | libc::MCL_FUTURE, libc::MCL_FUTURE | libc::MCL_ONFAULT] {
        child_test("memory::child_with_locked_memory")
            .with("FILE", &file.path)
            .with("HOLES", &holes)
            .with("FLAGS", flags.to_string())
            .succeeds();
    }
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_locked_memory() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    if !is_root() && limit.is_some_and(|limit| limit < 1 << 30) {
        return skip("this user's limit of locked memory is too small");
    }
    if !is_started() || !lock_memory(argument("FLAGS").to_str().unwrap().parse().unwrap()) {
        return;
    }
    crate::common::every_method_gives(&argument("FILE"), &pattern(BYTES));
    crate::common::every_method_gives(&argument("HOLES"), &vec![0; BYTES]);
    let image = Loader::open(argument("FILE")).load().unwrap();
    assert!(*image == *pattern(BYTES), "{}", image.why());
}

#[test]
fn locking_memory_during_a_load_keeps_every_byte() {
    let (file, holes, _directory) = locked_file();
    for _ in 0..5 {
        crate::common::evict(&file.path);
        child_test("memory::child_locking_during_load")
            .with("FILE", &file.path)
            .with("HOLES", &holes)
            .succeeds();
    }
}

#[test]
#[ignore = "started as a process by another test"]
fn child_locking_during_load() {
    if !is_started() {
        return;
    }
    let Some(image) = on_demand(&argument("FILE")) else { return };
    let Some(holes) = on_demand(&argument("HOLES")) else { return };
    if !lock_memory(libc::MCL_CURRENT | libc::MCL_FUTURE) {
        return;
    }
    assert!(*image == *pattern(BYTES));
    assert!(holes.iter().all(|byte| *byte == 0));
    image.wait().unwrap();
    holes.wait().unwrap();
}

#[test]
fn exceeding_the_locked_memory_limit_is_an_error() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let file = cold_file(BYTES);
    child_test("memory::child_with_little_locked_memory")
        .with("FILE", &file.path)
        .run_as_nobody()
        .succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_little_locked_memory() {
    if !is_started() || !lock_memory(libc::MCL_FUTURE | libc::MCL_ONFAULT) {
        return;
    }
    match Loader::open(argument("FILE")).load() {
        Ok(image) => assert!(*image == *pattern(BYTES)),
        Err(error) => assert!(error.to_string().contains("ulimit -"), "{error}"),
    }
}

/// Control group of a test, removed on drop.
struct Group(PathBuf);

const GROUP_FILE_BYTES: usize = 256 << 20;

impl Group {
    /// Creates a group with a memory limit, or returns `None` if groups cannot be created.
    fn new(name: &str, limit_bytes: u64) -> Option<Group> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let version_1 = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_memory = controllers.split(',').any(|controller| controller == "memory");
            is_memory.then(|| format!("/sys/fs/cgroup/memory{path}"))
        });
        let (parent, file) = match version_1 {
            Some(parent) => (parent, "memory.limit_in_bytes"),
            None => ("/sys/fs/cgroup".to_string(), "memory.max"),
        };
        let path = PathBuf::from(parent).join(format!("evermap-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let group = Group(path);
        std::fs::write(group.0.join(file), limit_bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process may leave its group a moment after it ends.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        eprintln!("cannot remove {}", self.0.display());
    }
}

/// Runs the child test in a group whose limit is a share of the file's size.
fn in_a_group(name: &str, per_mille: u64, outcome: &str) {
    let Some(group) = Group::new(name, GROUP_FILE_BYTES as u64 * per_mille / 1000) else {
        return skip("cannot create a memory control group");
    };
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(GROUP_FILE_BYTES)).unwrap();
    crate::common::evict(&path);
    child_test("memory::child_in_a_group")
        .with("FILE", path)
        .with("GROUP", &group.0)
        .with("OUTCOME", outcome)
        .succeeds();
}

#[test]
fn with_a_fifth_more_memory_than_the_file_it_is_loaded_and_written() {
    in_a_group("fifth", 1200, "private");
}

#[test]
fn with_half_the_memory_the_file_is_mapped_or_refused_without_a_kill() {
    in_a_group("half", 500, "mapped");
}

#[test]
fn with_exactly_the_memory_of_the_file_no_process_is_killed() {
    for per_mille in [1000, 1001, 1002, 1005, 1020] {
        in_a_group("just", per_mille, "any");
    }
}

#[test]
#[ignore = "started as a process by other tests"]
fn child_in_a_group() {
    if !is_started() {
        return;
    }
    let processes = argument("GROUP").join("cgroup.procs");
    if let Err(error) = std::fs::write(processes, std::process::id().to_string()) {
        return skip(format_args!("cannot move a process into a group: {error}"));
    }
    let path = argument("FILE");
    let outcome = argument("OUTCOME");
    let outcome = outcome.to_str().unwrap();
    let mut image = match Loader::open(&path).load() {
        Ok(image) => image,
        Err(Error::NoMemory { needed_bytes, available_bytes, limit, .. }) => {
            assert_ne!(outcome, "private");
            assert!(needed_bytes > available_bytes && limit == "the control group");
            let image = loader(&path).load().unwrap();
            assert!(image.method().maps_the_file());
            assert!(is_pattern(&image), "{}", image.why());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_ne!(outcome, "mapped");
    assert!(image.method().is_private(), "{}", image.why());
    assert!(is_pattern(&image));
    image.iter_mut().step_by(4096).for_each(|byte| *byte = 7);
    image.wait().unwrap();
    assert!(image.iter().step_by(4096).all(|byte| *byte == 7));
}
