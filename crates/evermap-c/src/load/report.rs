//! Converts load reports into the structs that C reads, and passes choices to callbacks.

use std::ffi::c_void;

use evermap_load::{Choice, Facts, Order, Recording, RecordingUse, Report, Residency};

use super::types::*;
use crate::abi::arguments::{array, owned};
use crate::abi::types::*;

/// Converts seconds of the Rust library. An event that has happened takes at least 1 ns, because 0
/// means "not yet".
fn ns(seconds: Option<f64>) -> u64 {
    seconds.map_or(0, |seconds| ((seconds * 1e9) as u64).max(1))
}

pub fn facts(facts: &Facts) -> em_load_facts {
    em_load_facts {
        size: size_of::<em_load_facts>(),
        bytes: facts.bytes,
        resident_bytes: facts.resident_bytes.unwrap_or(u64::MAX),
        dirty_bytes: facts.dirty_bytes,
        direct_block_bytes: facts.direct_block_bytes.unwrap_or(0),
        available_bytes: facts.available_bytes.unwrap_or(u64::MAX),
        device_bytes_per_s: facts.device_bytes_per_s.map_or(0, |rate| rate as u64),
        processors: number(facts.processors),
        is_in_memory: facts.is_in_memory.into(),
        is_compressed: facts.is_compressed.into(),
        shares_blocks: facts.shares_blocks.into(),
        is_unchangeable: facts.is_unchangeable.into(),
        reserved: 0,
        file_system: array(&facts.file_system),
        available_limit: array(facts.available_limit),
    }
}

/// Reports the choices, the best first, until the callback declines more.
pub fn tell(choices: &[Choice], call: em_load_choice_callback, context: *mut c_void) {
    let Some(call) = call else { return };
    choices.iter().all(|choice| {
        let (method, why) = (owned(choice.method.name()), owned(&choice.why));
        let told = em_load_choice {
            size: size_of::<em_load_choice>(),
            method: method.as_ptr(),
            why: why.as_ptr(),
            threads: number(choice.threads),
            maps_the_file: choice.method.maps_the_file().into(),
        };
        // SAFETY: the caller's function, called with the arguments that the header documents.
        unsafe { call(&told, context) }
    });
}

pub fn residency(found: &Residency) -> em_residency {
    em_residency {
        size: size_of::<em_residency>(),
        private_bytes: found.private_bytes,
        huge_bytes: found.huge_bytes,
        file_bytes: found.file_bytes,
        swapped_bytes: found.swapped_bytes,
        cached_bytes: found.cached_bytes,
        duplicate_bytes: found.duplicate_bytes,
    }
}

pub fn report(report: &Report) -> em_load_report {
    let (usage, residency) = (&report.usage, &report.residency);
    em_load_report {
        size: size_of::<em_load_report>(),
        bytes: report.bytes,
        first_use_ns: ns(report.first_use_s),
        complete_ns: ns(report.complete_s),
        wall_ns: (usage.wall_s * 1e9) as u64,
        user_ns: (usage.user_s * 1e9) as u64,
        system_ns: (usage.system_s * 1e9) as u64,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        peak_resident_bytes: report.peak_resident_bytes.unwrap_or(0),
        private_bytes: residency.private_bytes,
        huge_bytes: residency.huge_bytes,
        file_bytes: residency.file_bytes,
        swapped_bytes: residency.swapped_bytes,
        cached_bytes: residency.cached_bytes,
        duplicate_bytes: residency.duplicate_bytes,
        windows_on_demand: report.windows_on_demand,
        windows_streamed: report.windows_streamed,
        direct_bytes: report.direct_bytes,
        buffered_bytes: report.buffered_bytes,
        hole_bytes: report.hole_bytes,
        moves_retried: report.moves_retried,
        pages_copied: report.pages_copied,
        windows_read_again: report.windows_read_again,
        threads_replaced: report.threads_replaced,
        device_permille: report.device_share.map_or(0, |share| (share * 1e3).round() as u32),
        serves_system_calls: report.serves_system_calls.into(),
        threads: number(report.choice.threads),
        refused: number(report.refused.len()),
        recording: recording_use(report.recording.as_ref()),
        reserved: 0,
        method: array(report.choice.method.name()),
        why: array(&report.choice.why),
    }
}

fn recording_use(used: Option<&RecordingUse>) -> u32 {
    match used {
        Some(RecordingUse::Made) => RECORDING_MADE,
        Some(RecordingUse::NotMade(_)) => RECORDING_NOT_MADE,
        Some(RecordingUse::Replayed) => RECORDING_REPLAYED,
        Some(RecordingUse::Ignored(_)) => RECORDING_IGNORED,
        // The enum may grow.
        _ => RECORDING_NONE,
    }
}

pub fn recording(recording: &Recording) -> em_recording {
    // As in options: a share of zero is a valid value, and 0 means "not known".
    let permille = |share: f64| match (share * 1e3).ceil() as u32 {
        0 => LOAD_NONE,
        some => some.min(1000),
    };
    em_recording {
        size: size_of::<em_recording>(),
        windows_touched: recording.touches().len() as u64,
        touched_permille: permille(recording.touched_share()),
        written_permille: permille(recording.written_share()),
        order: match recording.order() {
            Order::Unknown => LOAD_ORDER_UNKNOWN,
            Order::Sequential => LOAD_ORDER_SEQUENTIAL,
            Order::Random => LOAD_ORDER_RANDOM,
        },
        reserved: 0,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
