//! libFuzzer over `evermap_trace`: in the detected format, and in each format. Events that were
//! read are the same after writing and reading them again.
#![no_main]

use evermap_trace::{Format, Options, Trace, stat};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    for format in [None].into_iter().chain(Format::ALL.map(Some)) {
        let options =
            Options { format, mappings_are_reads: true, events_max: 10_000, ..Options::default() };
        let Ok(trace) = Trace::read_from(input, "fuzz", &options) else { continue };
        stat(&trace, "24000/1001".parse().ok());
        let mut written = Vec::new();
        trace.write(&mut written).expect("memory takes it");
        let back = Trace::read_from(&written[..], "written", &Options::default());
        assert_eq!(back.expect("it was written here").events, trace.events);
    }
});
