//! Tests of holds with a simulated kernel. The command's tests use the kernel of this machine.

use std::path::Path;

use super::simulated::{Kernel, MOUNT};
use super::tree::Tree;
use super::*;

fn without_journal(_: &Hold) -> Result<()> {
    Ok(())
}

fn refusal(result: Result<Hold>) -> HoldRefusal {
    match result {
        Err(Error::HoldRefused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// Kernel of either version with tasks in the group that lanes are started from, and other groups.
fn kernel(is_v2: bool) -> (Kernel, PathBuf, Vec<u32>) {
    let kernel = Kernel::new(is_v2, "0-3");
    let root = PathBuf::from(MOUNT);
    let home = if is_v2 { kernel.group("session", "") } else { root.clone() };
    let other = kernel.group("other", if is_v2 { "" } else { "0-1" });
    let tasks = vec![
        kernel.task(&home),
        kernel.task(&home),
        kernel.task_that_forks(&home, 5),
        kernel.kernel_thread(&root, true),
        kernel.kernel_thread(&root, false),
        kernel.bound(&home),
        kernel.task(&other),
    ];
    (kernel, home, tasks)
}

fn made(kernel: &Kernel, home: &Path, core: u32) -> Hold {
    let mut hold = Hold::plan(kernel, &kernel.groups_of(home), core).unwrap();
    hold.make(kernel, &mut without_journal).unwrap();
    hold
}

#[test]
fn cpusets_move_tasks_of_the_lane_s_group_only() {
    let (kernel, home, tasks) = kernel(false);
    let before = kernel.state(&tasks);
    let hold = made(&kernel, &home, 2);
    let at = |task: usize| kernel.is_in(tasks[task]);
    assert!(at(0).ends_with("evermap-rest-2") && at(1) == at(0) && at(2) == at(0));
    assert_eq!((at(3), at(4), at(5)), (home.clone(), home.clone(), home.clone()));
    assert!(at(6).ends_with("other"), "the other group is not touched");
    // Tasks started while their parent was moved are moved, too.
    let left = tree::tasks(&kernel, &home.join("tasks")).unwrap();
    assert_eq!(left, [tasks[3], tasks[4], tasks[5]]);
    assert_eq!(kernel.read(&home.join("evermap-rest-2/cpuset.cpus")).unwrap(), "0-1,3");
    assert_eq!(kernel.read(&home.join("evermap-lane-2/cpuset.cpu_exclusive")).unwrap(), "1");
    hold.enter(&kernel, tasks[0]).unwrap();
    assert!(at(0).ends_with("evermap-lane-2"));
    hold.undo(&kernel).unwrap();
    assert_eq!(kernel.state(&tasks), before);
    assert!(hold.undo(&kernel).unwrap().is_empty(), "the second undo has nothing to do");
}

#[test]
fn a_partition_takes_the_core_without_moving_other_tasks() {
    let (kernel, home, tasks) = kernel(true);
    let before = kernel.state(&tasks);
    let hold = made(&kernel, &home, 2);
    let root = PathBuf::from(MOUNT);
    assert_eq!(kernel.read(&root.join("cpuset.cpus.effective")).unwrap(), "0-1,3");
    assert_eq!(kernel.is_in(tasks[0]), home);
    hold.enter(&kernel, tasks[0]).unwrap();
    assert!(kernel.is_in(tasks[0]).ends_with("evermap-lane-2"));
    hold.undo(&kernel).unwrap();
    assert_eq!(kernel.state(&tasks), before, "the controller is disabled again");
    assert!(hold.undo(&kernel).unwrap().is_empty());
}

#[test]
fn a_crash_at_any_step_is_undone_by_the_journal() {
    for is_v2 in [false, true] {
        let mut cuts = 0;
        for changes in 0.. {
            let (kernel, home, tasks) = kernel(is_v2);
            let before = kernel.state(&tasks);
            let mut hold = Hold::plan(&kernel, &kernel.groups_of(&home), 1).unwrap_or_else(|_| {
                // Version 1: the other group has cores 0 and 1.
                Hold::plan(&kernel, &kernel.groups_of(&home), 3).unwrap()
            });
            kernel.left.set(Some(changes));
            let mut journal = None;
            let result = hold.make(&kernel, &mut |plan| {
                journal = Some(plan.clone());
                Ok(())
            });
            let entered = hold.enter(&kernel, tasks[0]);
            let was_cut = kernel.left.get() == Some(0);
            kernel.left.set(None);
            // A crash loses the plan in memory, so only the journal is used.
            let journal = journal.unwrap();
            drop((result, entered));
            journal.undo(&kernel).unwrap();
            assert_eq!(
                kernel.state(&tasks),
                before,
                "version 2: {is_v2}, crash after {changes} changes"
            );
            for task in kernel.all_tasks() {
                let at = kernel.is_in(task);
                assert!(!at.to_str().unwrap().contains("evermap"), "{task} is in {at:?}");
            }
            if !was_cut {
                break;
            }
            cuts += 1;
        }
        assert!(cuts >= 5, "version 2: {is_v2}: {cuts} crash points");
    }
}

#[test]
fn an_interrupted_undo_is_completed_by_the_next() {
    for is_v2 in [false, true] {
        for changes in 0..12 {
            let (kernel, home, tasks) = kernel(is_v2);
            let before = kernel.state(&tasks);
            let hold = made(&kernel, &home, 3);
            hold.enter(&kernel, tasks[0]).unwrap();
            kernel.left.set(Some(changes));
            let first = hold.undo(&kernel);
            let was_cut = kernel.left.get() == Some(0);
            kernel.left.set(None);
            assert!(first.is_ok() || was_cut);
            hold.undo(&kernel).unwrap();
            assert_eq!(
                kernel.state(&tasks),
                before,
                "version 2: {is_v2}, crash after {changes} changes"
            );
        }
    }
}

#[test]
fn undo_waits_for_ending_tasks_and_reports_those_that_do_not_end() {
    for is_v2 in [false, true] {
        for (times, is_undone) in [(200, true), (u32::MAX, false)] {
            let (kernel, home, tasks) = kernel(is_v2);
            let hold = made(&kernel, &home, 3);
            hold.enter(&kernel, tasks[0]).unwrap();
            kernel.end(tasks[0], times);
            let undone = hold.undo(&kernel);
            assert_eq!(undone.is_ok(), is_undone, "{undone:?}");
            if let Err(why) = undone {
                assert!(why.to_string().contains("do not end"), "{why}");
            }
        }
    }
}

#[test]
fn children_of_the_program_are_moved_to_the_other_tasks() {
    for is_v2 in [false, true] {
        let (kernel, home, tasks) = kernel(is_v2);
        let hold = made(&kernel, &home, 3);
        hold.enter(&kernel, tasks[0]).unwrap();
        let child = kernel.task(&kernel.is_in(tasks[0]));
        assert_eq!(hold.move_children_off(&kernel, tasks[0]), 1);
        assert!(kernel.is_in(tasks[0]).ends_with("evermap-lane-3"));
        let to = if is_v2 { home.clone() } else { home.join("evermap-rest-3") };
        assert_eq!(kernel.is_in(child), to);
    }
}

#[test]
fn tasks_that_arrive_later_are_moved_away() {
    let (kernel, home, _) = kernel(false);
    let hold = made(&kernel, &home, 3);
    let late = kernel.task(&home);
    hold.maintain(&kernel).unwrap();
    assert!(kernel.is_in(late).ends_with("evermap-rest-3"));
}

#[test]
fn an_existing_group_of_the_name_is_refused_and_not_touched() {
    for (is_v2, name) in
        [(false, "evermap-lane-3"), (false, "evermap-rest-3"), (true, "evermap-lane-3")]
    {
        let (kernel, home, _) = kernel(is_v2);
        let foreign = kernel.group(name, "");
        let within = kernel.task(&foreign);
        let why = refusal(Hold::plan(&kernel, &kernel.groups_of(&home), 3));
        assert!(matches!(&why, HoldRefusal::Collision { group } if *group == foreign), "{why}");
        assert!(why.to_string().contains("lane undo"), "{why}");
        assert_eq!(kernel.is_in(within), foreign);
    }
}

#[test]
fn a_group_made_between_plan_and_step_is_left_alone() {
    let (kernel, home, tasks) = kernel(false);
    let mut hold = Hold::plan(&kernel, &kernel.groups_of(&home), 3).unwrap();
    let foreign = kernel.group("evermap-lane-3", "2");
    let within = kernel.task(&foreign);
    let mut journal = None;
    let error = hold.make(&kernel, &mut |plan| {
        journal = Some(plan.clone());
        Ok(())
    });
    assert!(error.unwrap_err().to_string().contains("already"));
    journal.unwrap().undo(&kernel).unwrap();
    assert_eq!(kernel.is_in(within), foreign);
    assert!(kernel.is_in(tasks[0]) == home);
    hold.undo(&kernel).unwrap();
    assert!(kernel.inode(&home.join("evermap-rest-3")).is_err());
}

#[test]
fn a_new_group_of_the_same_name_is_left_alone() {
    let (kernel, home, _) = kernel(false);
    let hold = made(&kernel, &home, 3);
    hold.undo(&kernel).unwrap();
    let foreign = kernel.group("evermap-lane-3", "3");
    let within = kernel.task(&foreign);
    assert!(hold.undo(&kernel).unwrap().is_empty());
    assert_eq!(kernel.is_in(within), foreign);
}

#[test]
fn a_core_of_another_group_is_refused() {
    for is_v2 in [false, true] {
        let kernel = Kernel::new(is_v2, "0-3");
        let root = PathBuf::from(MOUNT);
        if is_v2 {
            kernel.write(&root.join("cgroup.subtree_control"), "+cpuset").unwrap();
        }
        kernel.group("others", "2-3");
        let why = refusal(Hold::plan(&kernel, &kernel.groups_of(&root), 3));
        assert!(matches!(&why, HoldRefusal::Shared { .. }), "{why}");
        assert!(why.to_string().contains("/others") && why.to_string().contains("2-3"), "{why}");
    }
}

#[test]
fn the_last_core_is_refused() {
    for is_v2 in [false, true] {
        let kernel = Kernel::new(is_v2, "0");
        let why = refusal(Hold::plan(&kernel, &kernel.groups_of(Path::new(MOUNT)), 0));
        assert!(matches!(why, HoldRefusal::NoCoreLeft { .. }), "{why}");
    }
}

#[test]
fn a_group_that_is_not_exclusive_is_refused() {
    let kernel = Kernel::new(false, "0-3");
    let container = kernel.group("container", "2-3");
    let why = refusal(Hold::plan(&kernel, &kernel.groups_of(&container), 3));
    assert!(matches!(why, HoldRefusal::NotExclusive { .. }), "{why}");
    kernel.exclusive(&container);
    Hold::plan(&kernel, &kernel.groups_of(&container), 3).unwrap();
    let why = refusal(Hold::plan(&kernel, &kernel.groups_of(&container), 0));
    assert!(matches!(why, HoldRefusal::NotInGroup { .. }), "{why}");
}

#[test]
fn a_hold_within_another_lane_s_group_is_refused_and_names_its_core() {
    let (kernel, home, tasks) = kernel(false);
    let hold = made(&kernel, &home, 3);
    hold.enter(&kernel, tasks[0]).unwrap();
    for task in [tasks[0], tasks[1]] {
        let own = kernel.is_in(task);
        let why = refusal(Hold::plan(&kernel, &kernel.groups_of(&own), 2));
        assert!(matches!(&why, HoldRefusal::Within { held: 3, .. }), "{why}");
    }
    hold.undo(&kernel).unwrap();
    Hold::plan(&kernel, &kernel.groups_of(&home), 2).unwrap();
}

#[test]
fn an_invalid_partition_is_an_error_with_the_kernel_s_reason() {
    let (kernel, home, tasks) = kernel(true);
    let before = kernel.state(&tasks);
    *kernel.partition_error.borrow_mut() = Some("Cpu list in cpuset.cpus not exclusive".into());
    let mut hold = Hold::plan(&kernel, &kernel.groups_of(&home), 1).unwrap();
    let error = hold.make(&kernel, &mut without_journal).unwrap_err();
    assert!(error.to_string().contains("not exclusive"), "{error}");
    hold.undo(&kernel).unwrap();
    assert_eq!(kernel.state(&tasks), before);
}

#[test]
fn a_partition_is_made_where_the_kernel_allows_one() {
    let kernel = Kernel::new(true, "0-3");
    let slice = kernel.group("slice", "");
    let scope = kernel.group("slice/scope", "");
    kernel.task(&scope);
    kernel.write(&PathBuf::from(MOUNT).join("cgroup.subtree_control"), "+cpuset").unwrap();
    let Hold::V2(partition) = Hold::plan(&kernel, &kernel.groups_of(&scope), 1).unwrap() else {
        panic!("version 2");
    };
    assert_eq!((partition.parent.as_path(), partition.home), (Path::new(MOUNT), scope));
    assert!(!partition.enabled, "the controller was enabled before");
    drop(slice);
}

#[test]
fn a_controller_stays_enabled_until_the_last_lane_ends() {
    let (kernel, home, _) = kernel(true);
    let first = made(&kernel, &home, 1);
    let mut second = Hold::plan(&kernel, &kernel.groups_of(&home), 2).unwrap();
    second.inherit_controller(&first);
    second.make(&kernel, &mut without_journal).unwrap();
    let enabled = || kernel.read(&PathBuf::from(MOUNT).join("cgroup.subtree_control")).unwrap();
    first.undo(&kernel).unwrap();
    assert!(enabled().contains("cpuset"), "the second lane would lose its core");
    second.undo(&kernel).unwrap();
    assert!(!enabled().contains("cpuset"));
}

#[test]
fn a_missing_right_differs_from_a_refusal() {
    for is_v2 in [false, true] {
        let (kernel, home, tasks) = kernel(is_v2);
        kernel.is_read_only.set(true);
        let before = kernel.state(&tasks);
        let mut hold = Hold::plan(&kernel, &kernel.groups_of(&home), 3).unwrap();
        match hold.make(&kernel, &mut without_journal).unwrap_err() {
            Error::HoldRefused { why, .. } => assert!(why.is_lack_of_right(), "{why}"),
            other => panic!("{other}"),
        }
        hold.undo(&kernel).unwrap();
        assert_eq!(kernel.state(&tasks), before);
    }
    let why = refusal(Hold::plan(&Kernel::new(true, "0"), &Groups::default(), 0));
    assert!(matches!(why, HoldRefusal::NoController) && why.is_lack_of_right());
}

#[test]
fn the_version_with_the_cpuset_controller_is_used() {
    let v1 = Kernel::new(false, "0-3");
    let mut groups = v1.groups_of(Path::new(MOUNT));
    groups.v2 = Kernel::new(true, "0-3").groups_of(Path::new("/cg")).v2;
    assert!(matches!(Hold::plan(&v1, &groups, 1).unwrap(), Hold::V1(_)));
    // Version 1 is mounted for other controllers only.
    let v2 = Kernel::new(true, "0-3");
    let mut groups = v2.groups_of(Path::new(MOUNT));
    let cpu = v1.groups_of(Path::new(MOUNT)).v1.remove("cpuset").unwrap();
    groups.v1.insert("cpu".into(), cpu);
    assert!(matches!(Hold::plan(&v2, &groups, 1).unwrap(), Hold::V2(_)));
}

#[test]
fn a_hold_survives_a_round_trip_through_the_journal() {
    for is_v2 in [false, true] {
        let (kernel, home, _) = kernel(is_v2);
        let hold = made(&kernel, &home, 3);
        let text = serde_json::to_string(&hold).unwrap();
        assert_eq!(serde_json::from_str::<Hold>(&text).unwrap(), hold);
    }
}
