//! Memory that is short, locked, or never huge.

use std::path::PathBuf;

use evermap_load::{Error, Loader, Method};

use crate::common::{
    WINDOW, act, argument, by, cold_file, directory, is_pattern, is_root, is_started, loader,
    on_demand, pattern, skip,
};

const BYTES: usize = 10 * WINDOW + 4097;

#[test]
fn without_huge_pages_every_method_works_and_none_claims_to_have_some() {
    let file = cold_file(BYTES);
    act("memory::act_without_huge_pages").with("FILE", &file.path).succeeds();
}

#[test]
#[ignore = "a program that another test starts"]
fn act_without_huge_pages() {
    if !is_started() {
        return;
    }
    // SAFETY: changes how this process gets memory from now on.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
    let bytes = pattern(BYTES);
    for method in Method::ALL {
        let Some(image) = by(&loader(&argument("FILE")), method) else { continue };
        assert!(*image == *bytes, "{method}");
        image.wait().unwrap();
        assert_eq!(image.report().residency.huge_bytes, 0, "{method}");
    }
}

/// Files with data, and with holes, in a process whose memory is locked.
fn locked_file() -> (crate::common::File, PathBuf, tempfile::TempDir) {
    let directory = directory();
    let holes = directory.path().join("holes");
    std::fs::File::create(&holes).unwrap().set_len(BYTES as u64).unwrap();
    (cold_file(BYTES), holes, directory)
}

fn lock_memory(flags: libc::c_int) -> bool {
    // SAFETY: locks memory, and changes nothing in it.
    let locked = unsafe { libc::mlockall(flags) } == 0;
    if !locked {
        skip("memory cannot be locked here");
    }
    locked
}

#[test]
fn with_all_memory_locked_every_method_has_the_bytes_and_none_zeros() {
    let (file, holes, _directory) = locked_file();
    for flags in [libc::MCL_CURRENT | libc::MCL_FUTURE, libc::MCL_FUTURE | libc::MCL_ONFAULT] {
        act("memory::act_with_locked_memory")
            .with("FILE", &file.path)
            .with("HOLES", &holes)
            .with("FLAGS", flags.to_string())
            .succeeds();
    }
}

#[test]
#[ignore = "a program that another test starts"]
fn act_with_locked_memory() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    if !is_root() && limit.is_some_and(|limit| limit < 1 << 30) {
        return skip("this user may lock little memory");
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
fn memory_that_is_locked_during_a_load_has_every_byte() {
    let (file, holes, _directory) = locked_file();
    for _ in 0..5 {
        crate::common::chill(&file.path);
        act("memory::act_of_locking_meanwhile")
            .with("FILE", &file.path)
            .with("HOLES", &holes)
            .succeeds();
    }
}

#[test]
#[ignore = "a program that another test starts"]
fn act_of_locking_meanwhile() {
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
fn memory_that_may_not_be_locked_is_an_error_and_no_crash() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let file = cold_file(BYTES);
    act("memory::act_with_little_locked_memory").with("FILE", &file.path).by_nobody().succeeds();
}

#[test]
#[ignore = "a program that another test starts"]
fn act_with_little_locked_memory() {
    if !is_started() || !lock_memory(libc::MCL_FUTURE | libc::MCL_ONFAULT) {
        return;
    }
    match Loader::open(argument("FILE")).load() {
        Ok(image) => assert!(*image == *pattern(BYTES)),
        Err(error) => assert!(error.to_string().contains("ulimit -"), "{error}"),
    }
}

/// A control group of this test's own; removed with it.
struct Group(PathBuf);

const GROUP_FILE_BYTES: usize = 256 << 20;

impl Group {
    /// Of so many bytes at most, of memory; none where groups cannot be made.
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
        // Who was in it may take a moment to be gone.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        eprintln!("{} could not be removed", self.0.display());
    }
}

/// Runs the act in a group with a limit that is a share of the file's bytes.
fn in_a_group(name: &str, per_mille: u64, outcome: &str) {
    let Some(group) = Group::new(name, GROUP_FILE_BYTES as u64 * per_mille / 1000) else {
        return skip("no control group for memory can be made here");
    };
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(GROUP_FILE_BYTES)).unwrap();
    crate::common::chill(&path);
    act("memory::act_in_a_group")
        .with("FILE", path)
        .with("GROUP", &group.0)
        .with("OUTCOME", outcome)
        .succeeds();
}

#[test]
fn with_a_fifth_more_memory_than_the_file_all_of_it_is_loaded_and_written() {
    in_a_group("fifth", 1200, "private");
}

#[test]
fn with_half_the_memory_the_file_is_mapped_or_an_error_and_nobody_is_killed() {
    in_a_group("half", 500, "mapped");
}

#[test]
fn with_just_the_memory_of_the_file_nobody_is_killed() {
    for per_mille in [1000, 1001, 1002, 1005, 1020] {
        in_a_group("just", per_mille, "any");
    }
}

#[test]
#[ignore = "a program that other tests start"]
fn act_in_a_group() {
    if !is_started() {
        return;
    }
    let processes = argument("GROUP").join("cgroup.procs");
    if let Err(error) = std::fs::write(processes, std::process::id().to_string()) {
        return skip(format_args!("a process cannot be put into a group: {error}"));
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
