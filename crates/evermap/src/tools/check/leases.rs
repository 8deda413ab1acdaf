//! Addresses of an object's regions, as its file and the catalog record them.

use crate::catalog::Lease;
use crate::object::lease_of;
use crate::tools::image::Image;

/// Returns the addresses of an object's regions that the catalog records. A guest object has none,
/// because its addresses are in a guest's memory.
pub(in crate::tools) fn leases_of(image: &Image) -> Vec<Lease> {
    let s = image.superblock();
    let regions = s.regions().iter().filter(|_| !s.is_guest());
    regions.map(lease_of).map(|(base, bytes)| Lease { base, bytes }).collect()
}

pub(super) fn contains(lease: &Lease, region: &Lease) -> bool {
    let end = |l: &Lease| l.base.saturating_add(l.bytes);
    region.base >= lease.base && end(region) <= end(lease)
}

pub(super) fn show(leases: &[Lease]) -> String {
    let each =
        leases.iter().map(|l| format!("{:#x}..{:#x}", l.base, l.base.saturating_add(l.bytes)));
    let all: Vec<String> = each.collect();
    match all.is_empty() {
        true => "none".to_string(),
        false => all.join(", "),
    }
}
