//! Trace format of this crate: a header line in JSON, then a JSON line for each event. Reading
//! restores exactly the [`Event`]s that were written.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};

use serde::{Deserialize, Serialize};

use crate::collect::Collector;
use crate::event::{Event, Operation, Trace};
use crate::parser::Parser;

/// Version that is written, and the latest one that can be read.
pub(crate) const VERSION: u64 = 1;

/// First line.
#[derive(Debug, Serialize, Deserialize)]
struct Header<'a> {
    #[serde(rename = "evermap-trace")]
    version: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    from: Option<Cow<'a, str>>,
}

/// Each further line. Unknown keys are ignored, so that a later version can add some.
#[derive(Debug, Serialize, Deserialize)]
struct Record<'a> {
    t: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    frame: Option<u64>,
    op: Operation,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    file: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    off: Option<u64>,
    len: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lat: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

impl Trace {
    /// Writes the trace in the format of this crate (section 10 of `docs/lane.md`). Omits warnings.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        let mut writer = BufWriter::with_capacity(1 << 16, writer);
        let header = Header { version: VERSION, from: Some(self.format.name().into()) };
        serde_json::to_writer(&mut writer, &header)?;
        writer.write_all(b"\n")?;
        for event in &self.events {
            let record = Record {
                t: event.at_ns,
                frame: event.frame,
                op: event.operation,
                file: event.file.as_deref().map(Cow::Borrowed),
                off: event.offset_bytes,
                len: event.length_bytes,
                lat: event.latency_ns,
                pid: event.process,
            };
            serde_json::to_writer(&mut writer, &record)?;
            writer.write_all(b"\n")?;
        }
        writer.flush()
    }
}

/// Returns the version in a header line, or `None` for other lines.
pub(crate) fn version(line: &str) -> Option<u64> {
    serde_json::from_str::<Header>(line).ok().map(|header| header.version)
}

/// Returns true if `line` may be a line of this format.
pub(crate) fn is_line(line: &str) -> bool {
    line.starts_with('{')
        && (version(line).is_some() || serde_json::from_str::<Record>(line).is_ok())
}

/// Parser for the format of this crate.
#[derive(Debug)]
pub(crate) struct Json;

impl Parser for Json {
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool {
        let Ok(record) = serde_json::from_str::<Record>(line) else {
            let Ok(header) = serde_json::from_str::<Header>(line) else { return false };
            if let Some(Ok(from)) = header.from.map(|from| from.parse()) {
                collector.set_original_format(from);
            }
            return true;
        };
        let file = record.file.and_then(|file| collector.name(&file));
        collector.add_in_order(Event {
            at_ns: record.t,
            frame: record.frame,
            operation: record.op,
            file,
            offset_bytes: record.off,
            length_bytes: record.len,
            latency_ns: record.lat,
            process: record.pid,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::LENGTH_BYTES_MAX;
    use crate::format::Format;
    use crate::read::Options;
    use crate::warning::Problem;

    fn read(text: &[u8]) -> Trace {
        Trace::read_from(text, "test", &Options::default()).unwrap()
    }

    #[test]
    fn the_format_is_written_exactly() {
        let events = vec![
            Event {
                at_ns: 0,
                frame: Some(0),
                operation: Operation::Read,
                file: Some("clip \"1\".mkv".into()),
                offset_bytes: Some(4_096),
                length_bytes: 32_768,
                latency_ns: Some(16_000),
                process: Some(71),
            },
            Event {
                at_ns: 1_500,
                frame: None,
                operation: Operation::Flush,
                file: None,
                offset_bytes: None,
                length_bytes: 0,
                latency_ns: None,
                process: None,
            },
        ];
        let trace = Trace { format: Format::Strace, events, warnings: Vec::new() };
        let mut written = Vec::new();
        trace.write(&mut written).unwrap();
        let expected = concat!(
            r#"{"evermap-trace":1,"from":"strace"}"#,
            "\n",
            r#"{"t":0,"frame":0,"op":"read","file":"clip \"1\".mkv","off":4096,"len":32768,"lat":16000,"pid":71}"#,
            "\n",
            r#"{"t":1500,"op":"flush","len":0}"#,
            "\n",
        );
        assert_eq!(String::from_utf8(written).unwrap(), expected);
        assert_eq!(read(expected.as_bytes()), trace);
    }

    #[test]
    fn a_later_version_is_refused_and_unknown_keys_are_ignored() {
        let text = b"{\"evermap-trace\":2}\n{\"t\":1,\"op\":\"read\",\"len\":2}\n";
        let error = Trace::read_from(&text[..], "later.jsonl", &Options::default()).unwrap_err();
        assert!(error.to_string().starts_with("later.jsonl is a trace of version 2"), "{error}");
        let trace = read(b"{\"t\":1,\"op\":\"read\",\"len\":2,\"colour\":\"red\"}\n");
        assert_eq!((trace.format, trace.events.len()), (Format::Json, 1));
        assert_eq!(trace.warnings, []);
    }

    #[test]
    fn unordered_truncated_and_malformed_lines_are_reported_by_number() {
        let trace = read(
            b"{\"evermap-trace\":1}\r\n{\"t\":9,\"op\":\"read\",\"len\":1}\r\n{\"t\":-1,\"op\":\"read\",\"len\":1}\n\n\
            {\"t\":5,\"op\":\"write\",\"len\":0}\n{\"t\":7,\"op\":\"read\",\"len\":3,\"off\":9223372036854775806}\n{\"t\":8,\"op",
        );
        let times: Vec<u64> = trace.events.iter().map(|event| event.at_ns).collect();
        assert_eq!(times, [5, 7, 9]);
        assert_eq!(trace.events[1].offset_bytes, None);
        let found: Vec<_> = trace.warnings.iter().map(|w| (w.line.unwrap(), w.problem)).collect();
        let expected = [
            (3, Problem::Malformed),
            (5, Problem::Unordered),
            (6, Problem::Unordered),
            (6, Problem::OffsetTooLarge),
            (7, Problem::Truncated),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn events_beyond_the_limit_are_left_out_with_a_warning() {
        let line = "{\"t\":1,\"op\":\"read\",\"len\":2}\n";
        let text = line.repeat(5);
        let options = Options { events_max: 3, ..Options::default() };
        let trace = Trace::read_from(text.as_bytes(), "test", &options).unwrap();
        assert_eq!(trace.events.len(), 3);
        assert_eq!(trace.warnings[0].problem, Problem::TooManyEvents);
        let options = Options { events_max: 5, ..Options::default() };
        let trace = Trace::read_from(text.as_bytes(), "test", &options).unwrap();
        assert_eq!((trace.events.len(), trace.warnings.len()), (5, 0));
    }

    prop_compose! {
        fn an_event()(
            at_ns: u64,
            frame: Option<u64>,
            operation in prop::sample::select(vec![
                Operation::Read, Operation::Write, Operation::Flush, Operation::Discard, Operation::Other,
            ]),
            file in prop::option::of(".{0,40}"),
            offset_bytes in prop::option::of(0..1_u64 << 62),
            length_bytes in 0..=LENGTH_BYTES_MAX,
            latency_ns: Option<u64>,
            process: Option<u32>,
        ) -> Event {
            let file = file.map(Into::into);
            Event { at_ns, frame, operation, file, offset_bytes, length_bytes, latency_ns, process }
        }
    }

    proptest! {
        #[test]
        fn reading_restores_what_was_written(mut events in prop::collection::vec(an_event(), 1..40)) {
            events.sort_by_key(|event| event.at_ns);
            let trace = Trace { format: Format::Spc, events, warnings: Vec::new() };
            let mut written = Vec::new();
            trace.write(&mut written).unwrap();
            let back = read(&written);
            prop_assert_eq!(back.format, trace.format);
            prop_assert_eq!(back.events, trace.events);
        }
    }
}
