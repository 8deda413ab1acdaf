//! Traces recorded with real tools (strace 6.1, perf 6.1, fio 3.33, and blkparse 1.2 over prepared
//! events), and malformed traces of all formats. All are read without a panic, and writing them in
//! the crate's own format and reading them back gives the same events.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use evermap_trace::{Error, Event, Format, Operation, Options, Problem, TimeUnit, Trace};
use proptest::prelude::*;

const FILES: [(&str, Format); 9] = [
    ("strace-player.log", Format::Strace),
    ("strace-calls.log", Format::Strace),
    ("strace-calls-yy.log", Format::Strace),
    ("perf.txt", Format::Perf),
    ("blkparse.txt", Format::Blkparse),
    ("fio-v2.log", Format::Fio),
    ("fio-v3.log", Format::Fio),
    ("msr.csv", Format::Msr),
    ("spc.csv", Format::Spc),
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

fn fixture(name: &str) -> Trace {
    Trace::read(path(name), None).unwrap()
}

fn read_as(format: Format, text: &str) -> Result<Trace, Error> {
    let options = Options { format: Some(format), ..Options::default() };
    Trace::read_from(text.as_bytes(), "test", &options)
}

fn problems(trace: &Trace) -> Vec<(Option<u64>, Problem)> {
    trace.warnings.iter().map(|warning| (warning.line, warning.problem)).collect()
}

/// Fields that most tests compare.
fn short(event: &Event) -> (Operation, &str, Option<u64>, u64) {
    let file = event.file.as_deref().unwrap_or("-");
    (event.operation, file, event.offset_bytes, event.length_bytes)
}

fn transfers(trace: &Trace) -> Vec<(Operation, &str, Option<u64>, u64)> {
    let is_transfer = |event: &&Event| event.operation != Operation::Other;
    trace.events.iter().filter(is_transfer).map(short).collect()
}

#[test]
fn every_format_is_detected_from_its_content() {
    for (name, format) in FILES {
        let trace = fixture(name);
        assert_eq!(trace.format, format, "{name}");
        assert_eq!(trace.events[0].at_ns, 0, "{name}");
        assert!(trace.events.is_sorted_by_key(|event| event.at_ns), "{name}");
    }
}

#[test]
fn an_imported_trace_reads_back_the_same() {
    for (name, _) in FILES {
        let mut trace = fixture(name);
        trace.mark_frames("24".parse().unwrap());
        let mut written = Vec::new();
        trace.write(&mut written).unwrap();
        let back = Trace::read_from(&written[..], "test", &Options::default()).unwrap();
        assert_eq!((back.format, back.events), (trace.format, trace.events), "{name}");
    }
}

#[test]
fn lines_may_end_in_crlf() {
    for (name, format) in FILES {
        let text = std::fs::read_to_string(path(name)).unwrap();
        let crlf = read_as(format, &text.replace('\n', "\r\n")).unwrap();
        assert_eq!(crlf, read_as(format, &text).unwrap(), "{name}");
    }
}

#[test]
fn a_player_reads_its_clip_sequentially() {
    let trace = fixture("strace-player.log");
    let clip: Vec<&Event> = trace
        .events
        .iter()
        .filter(|event| event.file.as_deref() == Some("/home/viewer/clip.mkv"))
        .filter(|event| event.operation == Operation::Read)
        .collect();
    assert_eq!(clip.len(), 14);
    for (index, event) in clip.iter().enumerate() {
        assert_eq!(event.offset_bytes, Some(index as u64 * 32_768));
        assert_eq!(event.length_bytes, 32_768);
    }
    assert_eq!(clip[0].latency_ns, Some(29_000));
    // The recording begins with another request.
    assert_eq!(clip[1].at_ns - clip[0].at_ns, 6_060_000);
    assert_eq!(problems(&trace), []);
}

#[test]
fn calls_of_all_kinds_are_tracked() {
    use Operation::{Flush, Read, Write};
    let odd = "/home/user/n\nl\\xff\u{e4}";
    let program = "/home/user/t.py";
    let gone = "/home/user/gone";
    let expected = [
        (Read, program, None, 920),
        (Read, program, None, 0),
        (Read, program, Some(0), 920),
        (Read, program, Some(0), 920),
        (Read, program, Some(920), 0),
        (Read, "/home/user/a>b<c d\"e.txt", Some(0), 3),
        (Read, odd, Some(0), 3),
        // The position was reset to 0 through a duplicate.
        (Read, odd, Some(0), 1),
        (Read, odd, Some(0), 6),
        (Write, odd, Some(7), 2),
        // A child shares the position.
        (Read, odd, Some(1), 1),
        (Flush, odd, None, 0),
        (Write, gone, Some(0), 5),
        (Read, gone, Some(0), 5),
        (Write, "/home/user/gone2", None, 5),
        // From `sendfile` to /dev/null, and `copy_file_range`.
        (Read, gone, Some(0), 4),
        (Read, gone, Some(0), 3),
        (Write, odd, Some(0), 3),
    ];
    let trace = fixture("strace-calls.log");
    assert_eq!(transfers(&trace), expected);
    let kinds: Vec<Problem> = trace.warnings.iter().map(|warning| warning.problem).collect();
    assert_eq!(kinds, [Problem::UnknownOffset, Problem::UnknownOffset, Problem::Unseen]);
    // The result is the same if sockets and devices are spelled out.
    assert_eq!(transfers(&fixture("strace-calls-yy.log")), expected);
    let child = trace.events.iter().find(|event| short(event) == expected[10]).unwrap();
    assert_eq!(child.process, Some(12_359));
}

#[test]
fn interrupted_calls_are_joined_and_unfinished_ones_reported() {
    let text = "\
71    1795464441.000000 openat(AT_FDCWD</h>, \"a\", O_RDONLY) = 3</h/a> <0.000010>
71    1795464441.000100 read(3</h/a>,  <unfinished ...>
72    1795464441.000150 pread64(4</h/b>, \"\"..., 4096, 8192 <unfinished ...>
71    1795464441.000200 <... read resumed>\"\"..., 4096) = 4096 <0.000100>
72    1795464441.000300 <... pread64 resumed>) = 100 <0.000150>
71    1795464441.000400 write(3</h/a>, \"\"..., 512 <unfinished ...>
73    1795464441.000500 <... read resumed>\"\", 10) = 10 <0.1>
71    1795464441.000600 --- SIGKILL {si_signo=SIGKILL} ---
71    1795464441.000700 +++ killed by SIGKILL +++
72    1795464441.000800 read(4</h/b>,  <detached ...>
strace: Process 72 detached
";
    let trace = read_as(Format::Strace, text).unwrap();
    let expected = [
        (Operation::Read, "/h/a", Some(0), 4_096),
        (Operation::Read, "/h/b", Some(8_192), 100),
        (Operation::Write, "/h/a", Some(4_096), 512),
    ];
    assert_eq!(transfers(&trace), expected);
    let latencies: Vec<_> = trace.events.iter().map(|event| event.latency_ns).collect();
    assert_eq!(latencies, [Some(10_000), Some(100_000), Some(150_000), None]);
    assert_eq!(
        problems(&trace),
        [
            (Some(7), Problem::Unstarted),
            (Some(6), Problem::Unfinished),
            (Some(10), Problem::Unfinished)
        ]
    );
}

#[test]
fn an_unfinished_call_is_reported_when_another_call_ends() {
    let text = "\
71 1795464441.000000 openat(AT_FDCWD</h>, \"a\", O_RDWR) = 3</h/a> <0.000010>
71 1795464441.000100 write(3</h/a>, \"\"..., 512 <unfinished ...>
71 1795464441.000200 <... read resumed>\"\"..., 10) = 10 <0.000100>
71 1795464441.000300 writev(3</h/a>, [{iov_base=\"\"..., iov_len=9}, {iov_base=\"\"..., iov_len=7}], 2 <unfinished ...>
";
    let trace = read_as(Format::Strace, text).unwrap();
    // The total length of the vectors is unknown; the number of vectors is not a length.
    assert_eq!(transfers(&trace), [(Operation::Write, "/h/a", Some(0), 512)]);
    assert_eq!(
        problems(&trace),
        [
            (Some(2), Problem::Unfinished),
            (Some(3), Problem::Unstarted),
            (Some(4), Problem::Unfinished)
        ]
    );
}

#[test]
fn calls_that_never_return_are_bounded_by_their_text() {
    let path = "a".repeat(4_000);
    let begin = |process: u32| {
        format!("{process} 1795464441.000100 write(3</{path}>, \"\"..., 512 <unfinished ...>\n")
    };
    let end = |process: u32| {
        format!("{process} 1795464441.000200 <... write resumed>) = 512 <0.000100>\n")
    };
    // The text is 24 MB, more than the limit.
    let text: String = (1..=6_000).map(begin).chain((1..=6_000).map(end)).collect();
    let trace = read_as(Format::Strace, &text).unwrap();
    assert_eq!(trace.events.len(), 6_000);
    let answered = trace.events.iter().filter(|event| event.latency_ns.is_some()).count();
    assert!(answered > 3_000 && answered < 5_000, "{answered}");
}

#[test]
fn a_child_that_calls_before_its_parents_fork_returns_has_its_files() {
    let text = "\
71 1795464441.000000 openat(AT_FDCWD, \"/h/a\", O_RDONLY) = 3 <0.000010>
71 1795464441.000100 read(3, \"\"..., 100) = 100 <0.000010>
71 1795464441.000200 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
72 1795464441.000250 read(3, \"\"..., 50) = 50 <0.000010>
71 1795464441.000300 <... clone resumed>) = 72 <0.000100>
71 1795464441.000400 read(3, \"\"..., 25) = 25 <0.000010>
72 1795464441.000500 close(3) = 0 <0.000010>
71 1795464441.000600 read(3, \"\"..., 5) = 5 <0.000010>
72 1795464441.000700 read(3, \"\"..., 5) = 5 <0.000010>
";
    let trace = read_as(Format::Strace, text).unwrap();
    let offsets: Vec<_> = transfers(&trace).iter().map(|transfer| transfer.2).collect();
    assert_eq!(offsets, [Some(0), Some(100), Some(150), Some(175)]);
    // The last read uses a closed descriptor, without a name.
    assert_eq!(problems(&trace), [(Some(9), Problem::Unstarted)]);
}

#[test]
fn mappings_count_as_reads_on_request() {
    let text = "\
71 1795464441.000000 openat(AT_FDCWD</h>, \"a\", O_RDONLY) = 3</h/a> <0.000010>
71 1795464441.000100 mmap(NULL, 5000000000, PROT_READ, MAP_SHARED, 3</h/a>, 0x1000) = 0x7f0000000000 <0.000010>
";
    let plain = read_as(Format::Strace, text).unwrap();
    assert_eq!(short(&plain.events[1]), (Operation::Other, "/h/a", Some(4_096), 5_000_000_000));
    assert_eq!(problems(&plain), [(Some(2), Problem::Unseen)]);
    let options = Options { mappings_are_reads: true, ..Options::default() };
    let reads = Trace::read_from(text.as_bytes(), "test", &options).unwrap();
    let bytes: u64 = transfers(&reads).iter().map(|transfer| transfer.3).sum();
    assert_eq!((transfers(&reads).len(), bytes), (3, 5_000_000_000));
    assert_eq!(problems(&reads), [(Some(2), Problem::Assumed)]);
}

#[test]
fn strace_without_absolute_times_is_refused_with_the_remedy() {
    for text in
        ["read(3, \"\", 1) = 1\n", "71 12:00:00.000001 read(3</a>, \"\", 1) = 1 <0.000001>\n"]
    {
        let error = read_as(Format::Strace, text).unwrap_err();
        assert!(error.to_string().contains("strace -f -ttt -T -y"), "{error}");
    }
}

#[test]
fn block_events_of_perf_have_their_latency() {
    let trace = fixture("perf.txt");
    let first = &trace.events[0];
    assert_eq!(short(first), (Operation::Read, "254,0", Some(19_618_528 * 512), 4_096));
    assert_eq!((first.latency_ns, first.process), (Some(341_000), Some(11_979)));
    let flush = trace.events.iter().find(|event| event.operation == Operation::Flush).unwrap();
    assert_eq!((flush.offset_bytes, flush.latency_ns), (None, Some(30_000)));
    let discard = trace.events.last().unwrap();
    assert_eq!(short(discard), (Operation::Discard, "254,0", Some(319_890_288 * 512), 65_536));
    // The excerpt ends before the completion.
    assert_eq!(discard.latency_ns, None);
    assert_eq!(problems(&trace), [(Some(40), Problem::Unfinished)]);
}

#[test]
fn block_events_of_ftrace_are_read() {
    let text = "\
# tracer: nop
              dd-11983   [000] d..1. 14209.992507: block_rq_issue: 254,0 RS 65536 () 353971712 + 128 [dd]
          <idle>-0       [001] d.h1. 14209.992678: block_rq_complete: 254,0 RS () 353971712 + 128 [0]
 my prog (1)-77          [001] 14209.993000: block_rq_issue: 8,16 W 512 () 7 + 1 [my prog (1)]
";
    let trace = read_as(Format::Perf, text).unwrap();
    assert_eq!(
        short(&trace.events[0]),
        (Operation::Read, "254,0", Some(353_971_712 * 512), 65_536)
    );
    assert_eq!(trace.events[0].latency_ns, Some(171_000));
    assert_eq!((trace.events[0].process, trace.events[1].process), (Some(11_983), Some(77)));
}

#[test]
fn blkparse_latencies_begin_at_the_issue_and_the_summary_is_skipped() {
    let trace = fixture("blkparse.txt");
    let expected = [
        (Operation::Read, "8,0", Some(2_048 * 512), 4_096),
        (Operation::Write, "8,0", Some(4_096 * 512), 8_192),
        (Operation::Flush, "8,0", None, 0),
        (Operation::Discard, "8,0", Some(65_536 * 512), 1 << 20),
        (Operation::Read, "8,0", Some(9_000 * 512), 8_192),
        (Operation::Read, "8,0", Some(9_999 * 512), 4_096),
    ];
    assert_eq!(trace.events.iter().map(short).collect::<Vec<_>>(), expected);
    let latencies: Vec<_> = trace.events.iter().map(|event| event.latency_ns).collect();
    let us = |us: u64| Some(us * 1_000);
    assert_eq!(latencies, [us(100), us(1_000), us(10), us(100), us(100), None]);
    assert_eq!(trace.events[0].process, Some(700));
    assert_eq!(problems(&trace), [(Some(22), Problem::Unfinished)]);
}

#[test]
fn filtered_blkparse_traces_use_the_remaining_start_events() {
    let queued = "\
  8,0    0        1     0.000000000   700  Q   R 2048 + 8 [fio]
  8,0    0        2     0.100000000   700  Q   R 2048 + 8 [fio]
";
    let trace = read_as(Format::Blkparse, queued).unwrap();
    assert_eq!((trace.events.len(), problems(&trace)), (2, Vec::new()));
    let answered = "\
  8,0    0        1     0.000000000   700  I   R 2048 + 8 [fio]
  8,0    0        2     0.000200000     0  C   R 2048 + 8 [0]
";
    let trace = read_as(Format::Blkparse, answered).unwrap();
    assert_eq!(trace.events[0].latency_ns, Some(200_000));
}

#[test]
fn reading_requests_without_completions_stops_at_the_limit() {
    let line = |n: u64| format!("  8,0 0 {n} 0.{n:09} 700 Q R {} + 8 [fio]\n", n * 8);
    let text: String = (1..=20_000).map(line).collect();
    let mut rest = text.as_bytes();
    let options = Options { events_max: 100, ..Options::default() };
    let trace = Trace::read_from(&mut rest, "test", &options).unwrap();
    assert_eq!(trace.events.len(), 100);
    assert_eq!(problems(&trace), [(Some(101), Problem::TooManyEvents)]);
    assert!(rest.len() > text.len() / 2, "{} bytes were not read", rest.len());
}

#[test]
fn fio_logs_have_the_unit_that_fio_writes_or_the_given_one() {
    let trace = fixture("fio-v3.log");
    let reads: Vec<&Event> =
        trace.events.iter().filter(|event| event.operation == Operation::Read).collect();
    // The job paused for 20 ms between requests.
    assert_eq!(reads[1].at_ns - reads[0].at_ns, 20_264_000);
    assert_eq!(short(reads[1]), (Operation::Read, "/home/user/fio.dat", Some(180_224), 16_384));
    assert_eq!(problems(&trace), [(Some(1), Problem::Assumed)]);
    let options = Options { time_unit: Some(TimeUnit::Ms), ..Options::default() };
    let explicit = Trace::read_with(path("fio-v3.log"), &options).unwrap();
    assert_eq!(explicit.events.last().unwrap().at_ns, trace.events.last().unwrap().at_ns * 1_000);
    assert_eq!(problems(&explicit), []);
}

#[test]
fn fio_waits_are_milliseconds_since_the_start() {
    let trace = fixture("fio-v2.log");
    let times: Vec<u64> = trace.events.iter().map(|event| event.at_ns).collect();
    assert_eq!(times, [0, 300_000_000, 600_000_000]);
}

#[test]
fn msr_times_are_in_100_ns_and_unordered_lines_are_sorted() {
    let trace = fixture("msr.csv");
    let found: Vec<_> = trace
        .events
        .iter()
        .map(|event| (event.at_ns, event.file.as_deref().unwrap(), event.latency_ns.unwrap()))
        .collect();
    let expected = [
        (0, "web_0", 41_300),
        (1_332_052_600, "web_0", 112_000),
        (2_332_061_100, "web_0", 230_000),
        (2_332_061_600, "web_1", 9_800),
    ];
    assert_eq!(found, expected);
    assert_eq!(problems(&trace), [(Some(4), Problem::Unordered)]);
}

#[test]
fn spc_counts_blocks_of_512_bytes() {
    let trace = fixture("spc.csv");
    assert_eq!(
        trace.events.iter().map(short).collect::<Vec<_>>()[2..],
        [
            (Operation::Write, "asu0", Some(303_574 * 512), 3_584),
            (Operation::Read, "asu1", Some(240_840 * 512), 3_072),
            (Operation::Read, "asu0", Some(303_581 * 512), 3_584),
        ]
    );
    assert_eq!(trace.events[2].at_ns, 26_214_000);
}

#[test]
fn invalid_fields_are_reported_and_the_rest_is_kept() {
    let text = "\
0,18446744073709551615,4096,r,0.0
0,1,9999999999,r,0.1
0,2,0,r,0.2
0,3,4096,r,0.1
0,4,4096,x,0.3
\0\0\0\0
\n0,5,4096,w,0.4\n0,6,40";
    let trace = read_as(Format::Spc, text).unwrap();
    let found: Vec<_> =
        trace.events.iter().map(|event| (event.at_ns, event.offset_bytes)).collect();
    let expected = [
        (0, None),
        (100_000_000, Some(3 * 512)),
        (200_000_000, Some(2 * 512)),
        (400_000_000, Some(5 * 512)),
    ];
    assert_eq!(found, expected);
    assert_eq!(
        problems(&trace),
        [
            (Some(1), Problem::OffsetTooLarge),
            (Some(2), Problem::LengthTooLarge),
            (Some(3), Problem::ZeroLength),
            (Some(4), Problem::Unordered),
            (Some(5), Problem::Malformed),
            (Some(6), Problem::Malformed),
            (Some(9), Problem::Truncated),
        ]
    );
}

#[test]
fn a_huge_line_and_invalid_utf_8_affect_only_their_lines() {
    let mut bytes = b"0,1,4096,r,0.1\n".to_vec();
    bytes.resize(bytes.len() + (4 << 20), b'7');
    bytes.extend_from_slice(b"\n\xff\xfe,1\n0,2,4096,r,0.2\n");
    let trace = Trace::read_from(&bytes[..], "test", &Options::default()).unwrap();
    assert_eq!((trace.format, trace.events.len()), (Format::Spc, 2));
    let expected = [
        (Some(2), Problem::LineTooLong),
        (Some(3), Problem::NotText),
        (Some(3), Problem::Malformed),
    ];
    assert_eq!(problems(&trace), expected);
}

#[test]
fn an_unknown_format_is_an_error_that_lists_the_formats() {
    let read = |bytes: &[u8]| Trace::read_from(bytes, "x.bin", &Options::default()).unwrap_err();
    assert!(matches!(read(b""), Error::Empty { .. }));
    let unknown = read(b"\x7fELF\x02\x01\n").to_string();
    assert!(unknown.contains("x.bin") && unknown.contains("strace, perf, blkparse"), "{unknown}");
    let unusable = read_as(Format::Msr, "Timestamp,Hostname,DiskNumber\n1,2\n").unwrap_err();
    assert!(unusable.to_string().contains("seven fields"), "{unusable}");
    assert!(matches!(Trace::read("/nonesuch", None).unwrap_err(), Error::Io { .. }));
    assert!(matches!(Trace::read("/", None).unwrap_err(), Error::Io { .. }));
}

/// Fixture with bytes changed, removed and inserted, truncated or rotated.
fn mutated() -> impl Strategy<Value = (Format, Vec<u8>)> {
    let edit = (any::<prop::sample::Index>(), 0..6_u8, any::<u8>());
    (prop::sample::select(&FILES[..]), prop::collection::vec(edit, 1..40)).prop_map(
        |((name, format), edits)| {
            let mut bytes = std::fs::read(path(name)).unwrap();
            for (at, kind, byte) in edits {
                if bytes.is_empty() {
                    break;
                }
                let at = at.index(bytes.len());
                match kind {
                    0 => bytes[at] = byte,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, byte),
                    3 => bytes.truncate(at),
                    4 => bytes.rotate_left(at),
                    _ => bytes[at] = b"0123456789<>()[]\",-\\ \n\0"[usize::from(byte) % 23],
                }
            }
            (format, bytes)
        },
    )
}

/// Checks that reading does not panic, and that a read trace can be written and read back.
fn survives(format: Option<Format>, bytes: &[u8]) {
    let options =
        Options { format, mappings_are_reads: true, events_max: 10_000, ..Options::default() };
    let Ok(trace) = Trace::read_from(bytes, "test", &options) else { return };
    assert!(trace.events.is_sorted_by_key(|event| event.at_ns));
    let statistics = evermap_trace::stat(&trace, "60".parse().ok());
    assert_eq!(statistics.events, trace.events.len() as u64);
    let mut written = Vec::new();
    trace.write(&mut written).unwrap();
    let back = Trace::read_from(&written[..], "test", &Options::default()).unwrap();
    assert_eq!(back.events, trace.events);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        survives(None, &bytes);
        for format in Format::ALL {
            survives(Some(format), &bytes);
        }
    }

    #[test]
    fn mutated_traces_never_panic((format, bytes) in mutated()) {
        survives(None, &bytes);
        survives(Some(format), &bytes);
    }

    #[test]
    fn text_that_looks_like_calls_never_panics(
        lines in prop::collection::vec(r#"(7[12] )?179546444[0-9]\.[0-9]{6} (<\.\.\. )?(read|pread64|mmap|openat|clone|dup2|sendfile)( resumed>|\()[0-9</a>"\\,\[\] x()\-]{0,40}\)? (= [0-9?-]{1,20}|<unfinished \.\.\.>)( <0\.1>)?"#, 0..30)
    ) {
        survives(Some(Format::Strace), lines.join("\n").as_bytes());
    }
}
