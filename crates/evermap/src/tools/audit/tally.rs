//! Counts the pointers that a walk finds by kind, target and confidence, with samples of each.
//!
//! Also maps a pointer's location and evidence to the kind of finding. That mapping is the table in
//! `docs/tools.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::Location;
use super::memory::Memory;
use super::path::path_of;
use super::ranges::{Confidence, Ranges, Target};
use super::report::{PointerFinding, PointerKind, PointerSample};
use super::walked::{Defect, Evidence, Pointer, Spot, Visitor, WalkResult};

/// Limit of distinct 4 GiB spans per group. Pointers of a process are close together; hits in more
/// spans than this are numbers.
const SPANS_MAX: usize = 16;

/// Pointers of one kind to one target. The samples are spot, address and value.
#[derive(Default)]
struct Group {
    count: u64,
    spans: BTreeSet<u32>,
    samples: Vec<(Spot, u64, u64)>,
}

pub(super) struct Tally<'a> {
    pub(super) ranges: Ranges<'a>,
    pub(super) samples_max: usize,
    groups: BTreeMap<(PointerKind, Target, Confidence), Group>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(ranges: Ranges<'a>, samples_max: usize) -> Tally<'a> {
        Tally { ranges, samples_max, groups: BTreeMap::new() }
    }

    fn add(&mut self, kind: PointerKind, to: (Target, Confidence), pointer: &Pointer) {
        let group = self.groups.entry((kind, to.0, to.1)).or_default();
        group.count += 1;
        if group.spans.len() <= SPANS_MAX {
            group.spans.insert((pointer.value >> 32) as u32);
        }
        if group.samples.len() < self.samples_max {
            group.samples.push((pointer.spot, pointer.address, pointer.value));
        }
    }

    /// Returns the findings, the most severe first.
    pub(super) fn findings(
        self,
        walked: &WalkResult,
        memory: &mut Memory<'_>,
    ) -> Vec<PointerFinding> {
        let Tally { ranges, groups, .. } = self;
        let mut findings: Vec<PointerFinding> = Vec::new();
        for ((kind, target, confidence), group) in groups {
            let is_spread =
                group.spans.len() > SPANS_MAX && matches!(target, Target::TypicalRange(_));
            let confidence = match confidence == Confidence::Likely && is_spread {
                true => Confidence::Possible,
                false => confidence,
            };
            let sample = |(spot, address, value)| {
                PointerSample::new(path_of(walked, memory, spot), address, value)
            };
            let samples: Vec<PointerSample> = group.samples.into_iter().map(sample).collect();
            let to = to_of(&ranges, kind, target);
            let same = findings
                .iter_mut()
                .find(|f| f.kind == kind && f.to == to && f.confidence == confidence);
            match same {
                Some(known) => {
                    known.count += group.count;
                    known.samples.extend(samples);
                    known.samples.truncate(self.samples_max);
                }
                None => findings.push(PointerFinding {
                    kind,
                    severity: kind.severity(confidence),
                    confidence,
                    to,
                    count: group.count,
                    samples,
                }),
            }
        }
        findings.sort_by_key(|f| {
            (std::cmp::Reverse((f.severity, f.confidence)), f.kind, std::cmp::Reverse(f.count))
        });
        findings
    }
}

fn to_of(ranges: &Ranges<'_>, kind: PointerKind, target: Target) -> String {
    match kind {
        PointerKind::Dangling => "a place where nothing is allocated".to_string(),
        PointerKind::Metadata => "the object's metadata".to_string(),
        PointerKind::Misplaced => "the middle of a block".to_string(),
        PointerKind::Broken => "a block that does not match what the container claims".to_string(),
        PointerKind::Shared => "a block that another pointer owns".to_string(),
        _ => ranges.name_of(target),
    }
}

impl Visitor for Tally<'_> {
    fn pointer(&mut self, pointer: &Pointer) {
        let is_exact = pointer.evidence != Evidence::Word;
        // Words in the object's own range are hardly ever numbers, but they may be stale.
        let confidence = if is_exact { Confidence::Certain } else { Confidence::Likely };
        let here = (Target::Nowhere, confidence);
        match pointer.location {
            Location::Block(_, offset) => {
                if offset != 0 && pointer.evidence == Evidence::Owner {
                    self.add(PointerKind::Misplaced, here, pointer);
                }
            }
            Location::RootArea if pointer.evidence != Evidence::Owner => {}
            Location::RootArea | Location::Metadata => {
                self.add(PointerKind::Metadata, here, pointer)
            }
            Location::Unallocated => self.add(PointerKind::Dangling, here, pointer),
            Location::Outside => {
                let target = self.ranges.target(pointer.value);
                let (target, by_value) = match (target, is_exact) {
                    (Some(found), _) => found,
                    (None, true) => (Target::Nowhere, Confidence::Certain),
                    (None, false) => return,
                };
                let confidence = if is_exact { Confidence::Certain } else { by_value };
                let kind = match target {
                    Target::Object(_) => PointerKind::OtherObject,
                    Target::NoObject => PointerKind::NoObject,
                    Target::Store(_) => PointerKind::OtherStore,
                    _ => PointerKind::Foreign,
                };
                self.add(kind, (target, confidence), pointer);
            }
        }
    }

    fn defect(&mut self, defect: Defect, pointer: &Pointer) {
        let kind = match defect {
            Defect::Broken => PointerKind::Broken,
            Defect::Shared => PointerKind::Shared,
        };
        self.add(kind, (Target::Nowhere, Confidence::Certain), pointer);
    }
}
