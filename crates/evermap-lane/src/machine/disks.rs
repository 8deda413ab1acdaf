//! Finds the interrupts that complete disk requests.
//!
//! A disk's device, or a device above it, lists its interrupts in `/sys` (`msi_irqs`, `irq`). Other
//! devices are found by the names of their interrupts, which contain the device's name; without
//! `/sys`, by the names that disk drivers use.

use std::fs;
use std::path::{Path, PathBuf};

use super::Roots;
use super::interrupts::Interrupt;

/// Prefixes of interrupt names used by disk drivers.
const DRIVERS: [&str; 14] = [
    "nvme",
    "ahci",
    "mmc",
    "megasas",
    "mpt2sas",
    "mpt3sas",
    "aacraid",
    "smartpqi",
    "hpsa",
    "ata_",
    "sata_",
    "ufshcd",
    "virtio_blk",
    "blkif",
];

/// Sets the disks of each interrupt.
pub(super) fn assign_disks(roots: &Roots, interrupts: &mut [Interrupt]) {
    let Ok(blocks) = fs::read_dir(roots.sys.join("block")) else {
        return assign_disks_by_driver(interrupts);
    };
    let mut names: Vec<_> = blocks.flatten().map(|block| block.file_name()).collect();
    names.sort();
    for name in names {
        let numbers: Vec<u32> = devices_of(&roots.sys.join("block").join(&name))
            .iter()
            .flat_map(|device| of_device(roots, device, interrupts))
            .collect();
        for interrupt in interrupts.iter_mut().filter(|one| numbers.contains(&one.number)) {
            interrupt.disks.push(name.to_string_lossy().into_owned());
        }
    }
}

fn assign_disks_by_driver(interrupts: &mut [Interrupt]) {
    for interrupt in interrupts {
        let of_disk = interrupt.names.iter().find(|name| {
            let is_virtio = name.starts_with("virtio") && name.contains("-req");
            (is_virtio || DRIVERS.iter().any(|driver| name.starts_with(driver)))
                && !is_configuration(name)
        });
        interrupt.disks = of_disk.into_iter().cloned().collect();
    }
}

/// Devices of a block device. Empty for software devices (loop, zram, dm).
fn devices_of(block: &Path) -> Vec<PathBuf> {
    let Ok(device) = fs::canonicalize(block.join("device")) else {
        return Vec::new();
    };
    // A multipath disk is attached to its subsystem, which links to each controller.
    let links = fs::read_dir(&device).into_iter().flatten().flatten();
    let controllers = links.filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("nvme"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
            && entry.file_type().is_ok_and(|kind| kind.is_symlink())
    });
    let controllers: Vec<_> =
        controllers.filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect();
    if controllers.is_empty() { vec![device] } else { controllers }
}

/// Interrupts that complete the requests of a device.
fn of_device(roots: &Roots, device: &Path, interrupts: &[Interrupt]) -> Vec<u32> {
    let root =
        fs::canonicalize(roots.sys.join("devices")).unwrap_or_else(|_| roots.sys.join("devices"));
    let upwards =
        || device.ancestors().take_while(|above| above.starts_with(&root) && *above != root);
    let listed =
        upwards().map(|device| listed(device, interrupts)).find(|listed| !listed.is_empty());
    let all = listed.unwrap_or_else(|| {
        let parts: Vec<&str> = upwards().filter_map(|above| above.file_name()?.to_str()).collect();
        let named = interrupts.iter().filter(|one| {
            one.names.iter().any(|name| parts.iter().any(|part| is_named_after(name, part)))
        });
        named.collect()
    });
    // Interrupts for changes of settings delay no requests, so they are left out if others exist.
    let of_requests: Vec<u32> = all
        .iter()
        .filter(|one| !one.names.iter().all(|name| is_configuration(name)))
        .map(|one| one.number)
        .collect();
    match of_requests.is_empty() {
        true => all.iter().map(|one| one.number).collect(),
        false => of_requests,
    }
}

/// Interrupts that the device itself lists.
fn listed<'a>(device: &Path, interrupts: &'a [Interrupt]) -> Vec<&'a Interrupt> {
    let msi = fs::read_dir(device.join("msi_irqs")).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        msi.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    if numbers.is_empty() {
        let irq =
            super::roots::text(&device.join("irq")).ok().and_then(|text| text.trim().parse().ok());
        numbers.extend(irq.filter(|number: &u32| *number != 0));
    }
    interrupts.iter().filter(|one| numbers.contains(&one.number)).collect()
}

/// Returns true for `virtio1-req.0` and `virtio1`, `nvme0q3` and `nvme0`, `ahci[0000:00:1f.2]` and
/// `0000:00:1f.2`.
fn is_named_after(interrupt: &str, device: &str) -> bool {
    let in_brackets = interrupt.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    let rest = interrupt.strip_prefix(device);
    in_brackets == Some(device)
        || rest.is_some_and(|rest| {
            rest.is_empty()
                || rest.starts_with('-')
                || rest.strip_prefix('q').is_some_and(|queue| queue.parse::<u32>().is_ok())
        })
}

/// Returns true for interrupts of a device's settings instead of its requests: `virtio1-config`,
/// `nvme0q0`.
fn is_configuration(name: &str) -> bool {
    let is_admin_queue = name
        .strip_prefix("nvme")
        .is_some_and(|rest| rest.split_once('q').is_some_and(|(_, queue)| queue == "0"));
    is_admin_queue
        || name.ends_with("-config")
        || name.ends_with("-control")
        || name.ends_with("-event")
}
