//! Tests of choosing a core, with the reasons that are given.

use evermap_lane::machine::{ChosenCore, Machine, Roots};
use evermap_lane::{Core, Error};

use crate::mock::Mock;

const DISK_DEVICE: &str = "pci0000:00/0000:00:02.0/virtio1";

/// Machine with two cores and a virtio disk whose requests core 1 completes.
fn virtual_machine() -> Mock {
    Mock::with_cores("0-1")
        .disk("vda", DISK_DEVICE)
        .sys("devices/pci0000:00/0000:00:02.0/msi_irqs/35", "msix\n")
        .sys("devices/pci0000:00/0000:00:02.0/msi_irqs/36", "msix\n")
        .interrupts(
            &[0, 1],
            &[
                (32, &[6_163, 0], "virtio0-stats"),
                (35, &[1, 0], "virtio1-config"),
                (36, &[0, 1_312_211], "virtio1-req.0"),
            ],
        )
}

fn auto(machine: &Machine) -> ChosenCore {
    machine.choose_core(Core::Auto, &[]).unwrap()
}

fn says(chosen: &ChosenCore, what: &str) {
    assert!(chosen.why.iter().any(|why| why.contains(what)), "{:?} lacks {what:?}", chosen.why);
}

#[test]
fn the_core_that_completes_disk_requests_is_avoided() {
    let chosen = auto(&virtual_machine().look());
    // Core 0 has served more device interrupts, including the disk's configuration interrupt.
    assert_eq!(chosen.core, 0);
    says(&chosen, "core 0 completes no disk requests; core 1 completes those of vda");
}

#[test]
fn a_disk_is_found_by_interrupt_names_if_its_device_lists_none() {
    let machine = Mock::with_cores("0-1")
        .disk("vda", "platform/a0001c00.virtio_mmio/virtio7")
        .interrupts(&[0, 1], &[(5, &[900, 0], "virtio7"), (6, &[0, 800], "virtio70")])
        .look();
    let of_disk: Vec<u32> = machine
        .interrupts
        .iter()
        .filter(|one| !one.disks.is_empty())
        .map(|one| one.number)
        .collect();
    assert_eq!(of_disk, [5]);
    assert_eq!(auto(&machine).core, 1);
}

#[test]
fn a_disk_behind_usb_has_the_interrupts_of_its_controller() {
    let machine = Mock::with_cores("0-1")
        .disk("sda", "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host0/target0:0:0/0:0:0:0")
        .sys("devices/pci0000:00/0000:00:14.0/irq", "121\n")
        .interrupts(&[0, 1], &[(121, &[77, 0], "xhci_hcd"), (122, &[0, 5_000], "eth0")])
        .look();
    assert_eq!(machine.disks_served_by(0), ["sda"]);
    assert_eq!(auto(&machine).core, 1);
}

#[test]
fn if_all_cores_serve_the_disk_the_least_busy_one_is_chosen() {
    let mut mock =
        Mock::with_cores("0-3").disk("nvme0n1", "pci0000:00/0000:01:00.0/nvme/nvme0").interrupts(
            &[0, 1, 2, 3],
            &[
                (40, &[12, 0, 0, 0], "nvme0q0"),
                (41, &[500, 0, 0, 0], "nvme0q1"),
                (42, &[0, 400, 0, 0], "nvme0q2"),
                (43, &[0, 0, 300, 0], "nvme0q3"),
                (44, &[0, 0, 0, 600], "nvme0q4"),
            ],
        );
    for number in 40..45 {
        mock = mock.sys(&format!("devices/pci0000:00/0000:01:00.0/msi_irqs/{number}"), "msix\n");
    }
    let machine = mock.look();
    let admin = machine.interrupts.iter().find(|one| one.number == 40).unwrap();
    assert!(admin.disks.is_empty(), "the admin queue completes no requests");
    let chosen = auto(&machine);
    assert_eq!(chosen.core, 2);
    says(&chosen, "all cores complete disk requests, and core 2 the fewest: 300");
}

#[test]
fn a_multipath_disk_has_the_interrupts_of_all_its_controllers() {
    let machine = Mock::with_cores("0-2")
        .disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0")
        .sys("devices/pci0000:00/0000:01:00.0/nvme/nvme0/state", "live\n")
        .sys("devices/pci0000:00/0000:02:00.0/nvme/nvme1/state", "live\n")
        .link(
            "devices/pci0000:00/0000:01:00.0/nvme/nvme0",
            "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0",
        )
        .link(
            "devices/pci0000:00/0000:02:00.0/nvme/nvme1",
            "devices/virtual/nvme-subsystem/nvme-subsys0/nvme1",
        )
        .interrupts(
            &[0, 1, 2],
            &[(41, &[9, 0, 0], "nvme0q1"), (51, &[0, 9, 0], "nvme1q1"), (60, &[0, 0, 99], "eth0")],
        )
        .look();
    assert_eq!(auto(&machine).core, 2);
}

#[test]
fn a_software_disk_has_no_interrupts() {
    let machine = Mock::with_cores("0-1")
        .sys("block/loop0/size", "0\n")
        .interrupts(&[0, 1], &[(5, &[1, 0], "loop0"), (6, &[0, 9], "eth0")])
        .look();
    let chosen = auto(&machine);
    assert_eq!(chosen.core, 0);
    says(&chosen, "fewest device interrupts: 1");
}

#[test]
fn without_sys_driver_names_and_counts_are_used() {
    let machine = Mock::silent()
        .proc("stat", "cpu  1 2 3\ncpu0 1 2\ncpu1 1 2\nintr 5\n")
        .proc("interrupts", "  CPU0 CPU1\n 30: 0 7 IO-APIC 3-edge  virtio2-input.0\n 36: 12 0 PCI-MSIX  1-edge  virtio1-req.0\n")
        .look();
    assert_eq!(machine.cpus.online.to_string(), "0-1");
    assert_eq!(auto(&machine).core, 1);
}

#[test]
fn a_machine_without_cores_is_an_error_that_names_the_file() {
    let error = Machine::detect_in(&Mock::silent().roots()).unwrap_err();
    assert!(error.to_string().contains("devices/system/cpu/online"), "{error}");
}

#[test]
fn the_only_core_is_chosen_with_a_warning() {
    let machine = Mock::with_cores("0")
        .disk("vda", DISK_DEVICE)
        .interrupts(&[0], &[(36, &[5], "virtio1-req.0")])
        .look();
    let chosen = auto(&machine);
    assert_eq!(chosen.core, 0);
    says(&chosen, "the only core online");
    says(&chosen, "core 0 completes the requests of vda");
}

#[test]
fn the_only_allowed_core_is_chosen() {
    let chosen = auto(&Mock::with_cores("0-3").allowed("2").look());
    assert_eq!(chosen.core, 2);
    says(&chosen, "the only core of 0-3 that this process may use");
}

#[test]
fn an_offline_core_is_neither_chosen_nor_accepted() {
    // State right after a core went offline: the affinity still contains it.
    let machine = Mock::with_cores("0-2").sys("devices/system/cpu/online", "1-2\n").look();
    let chosen = auto(&machine);
    assert_eq!(chosen.core, 1);
    says(&chosen, "core 0 is offline");
    let error = machine.choose_core(Core::Number(0), &[]).unwrap_err().to_string();
    assert!(error.contains("core 0") && error.contains("offline, and 1-2 are online"), "{error}");
}

#[test]
fn an_absent_core_is_refused_with_the_possible_ones() {
    let error = virtual_machine().look().choose_core(Core::Number(7), &[]).unwrap_err();
    assert!(error.to_string().contains("the machine has only 0-1"), "{error}");
}

#[test]
fn a_core_of_another_lane_is_not_chosen() {
    let machine = Mock::with_cores("0-2").look();
    let chosen = machine.choose_core(Core::Auto, &[0]).unwrap();
    assert_eq!(chosen.core, 1);
    says(&chosen, "other lanes have core 0");
    let error = machine.choose_core(Core::Number(0), &[0]).unwrap_err();
    assert!(error.to_string().contains("another lane has claimed it"), "{error}");
    let error = machine.choose_core(Core::Auto, &[0, 1, 2]).unwrap_err();
    assert!(matches!(error, Error::NoCore { .. }) && error.to_string().contains("0-2"), "{error}");
}

#[test]
fn a_core_with_a_bound_real_time_program_is_avoided() {
    // For example another user's lane, whose claim is not visible.
    const FIFO: u32 = 1;
    let mock = || Mock::with_cores("0-2").thread(70, "a (b) mpv", FIFO, 0x40_0000, "0");
    let chosen = auto(&mock().look());
    assert_eq!(chosen.core, 1);
    says(&chosen, "a (b) mpv (process 70) with a real-time policy is bound to core 0");
    let named = mock().look().choose_core(Core::Number(0), &[]).unwrap();
    says(&named, "mpv (process 70) with a real-time policy is bound to core 0, too");
    let both = mock().thread(71, "jackd", FIFO, 0, "1").thread(72, "other", FIFO, 0, "2").look();
    let chosen = auto(&both);
    assert_eq!(chosen.core, 0, "all cores have one, and the reason says so");
    says(&chosen, "bound to core 0, too");
    // A core that serves a disk is still worse.
    assert_eq!(auto(&virtual_machine().thread(70, "mpv", FIFO, 0, "0").look()).core, 0);
}

#[test]
fn ordinary_unpinned_and_kernel_threads_do_not_occupy_a_core() {
    let machine = Mock::with_cores("0-1")
        .thread(70, "ordinary", 0, 0, "0")
        .thread(71, "wide", 1, 0, "0-1")
        .thread(72, "migration/0", 1, 0x0420_8040, "0")
        .proc("73/stat", "73 (nonsense")
        .proc("74/stat", "")
        .look();
    assert_eq!(machine.bound, []);
    assert_eq!(auto(&machine).core, 0);
}

#[test]
fn the_setting_that_forbids_a_core_is_named() {
    let cpuset = |mock: Mock| {
        mock.proc("self/cgroup", "3:cpuset:/a\n")
            .proc(
                "self/mountinfo",
                "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
            )
            .sys("fs/cgroup/cpuset/a/cpuset.effective_cpus", "0-1\n")
    };
    let machine = cpuset(Mock::with_cores("0-3").allowed("0")).look();
    let of_cpuset = machine.choose_core(Core::Number(3), &[]).unwrap_err().to_string();
    assert!(of_cpuset.contains("the cpuset of this process has only 0-1"), "{of_cpuset}");
    assert!(of_cpuset.contains("cpuset/a/cpuset.effective_cpus"), "{of_cpuset}");
    let of_affinity = machine.choose_core(Core::Number(1), &[]).unwrap_err().to_string();
    assert!(of_affinity.contains("the affinity of this process is 0"), "{of_affinity}");
}

#[test]
fn an_isolated_core_is_chosen_first_although_it_is_in_no_affinity() {
    let machine = Mock::with_cores("0-3")
        .allowed("0-1")
        .sys("devices/system/cpu/isolated", "2-3\n")
        .proc("self/cgroup", "0::/\n")
        .proc("self/mountinfo", "34 31 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .sys("fs/cgroup/cpuset.cpus.effective", "0-3\n")
        .look();
    let chosen = auto(&machine);
    assert_eq!(chosen.core, 2);
    says(&chosen, "core 2 is isolated");
    assert_eq!(machine.choose_core(Core::Number(3), &[]).unwrap().core, 3);
}

#[test]
fn an_isolated_core_that_completes_disk_requests_is_avoided() {
    let machine = virtual_machine().sys("devices/system/cpu/isolated", "1\n").look();
    assert_eq!(auto(&machine).core, 0);
}

#[test]
fn a_named_core_that_serves_a_disk_is_chosen_with_a_warning() {
    let chosen = virtual_machine().look().choose_core(Core::Number(1), &[]).unwrap();
    assert_eq!(chosen.core, 1);
    says(&chosen, "core 1 completes the requests of vda");
}

#[test]
fn the_choice_is_deterministic() {
    let machine = Mock::with_cores("0-63").look();
    let first = auto(&machine);
    assert_eq!(first.core, 0);
    assert!((0..20).all(|_| auto(&machine) == first));
}

#[test]
fn this_machine_has_a_core_for_a_lane() {
    let machine = Machine::detect().unwrap();
    assert_eq!(machine.roots, Roots::default());
    let chosen = auto(&machine);
    assert!(machine.cpus.online.contains(chosen.core) && !chosen.why.is_empty());
}
