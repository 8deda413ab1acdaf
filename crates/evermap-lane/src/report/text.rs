//! Report as text.

use std::fmt;

use super::{Cause, Report};
use crate::Quantiles;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} periods of {:.3} ms: {} missed ({:.2} %), {} of them late and {} dropped; the deadline was {:.3} ms",
            self.periods,
            self.period_ms,
            self.misses + self.drops,
            self.missed_share() * 100.0,
            self.misses,
            self.drops,
            self.deadline_ms
        )?;
        writeln!(f, "  [ms]             p50       p99     p99.9       max")?;
        let rows = [
            ("completion", &self.completion_ms),
            ("wake-up", &self.wake_up_ms),
            ("I/O", &self.io_ms),
            ("compute", &self.compute_ms),
        ];
        rows.iter().try_for_each(|(name, quantiles)| row(f, name, quantiles))?;
        if self.sampled < self.frames {
            writeln!(
                f,
                "  of {} frames, sampled uniformly from {}; the maxima are of all frames",
                self.sampled, self.frames
            )?;
        }
        self.costs(f)?;
        self.policy(f)
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, of: &Quantiles) -> fmt::Result {
    writeln!(
        f,
        "  {name:<12} {:>7.3}   {:>7.3}   {:>7.3}   {:>7.3}",
        of.p50, of.p99, of.p999, of.max
    )
}

impl Report {
    fn costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  processor    {:.1} ms", self.processor_ms)?;
        match self.run_queue_ms {
            Some(waited) => writeln!(f, ", {waited:.1} ms in the run queue")?,
            None => writeln!(f)?,
        }
        writeln!(
            f,
            "  faults       {} minor, {} major; switches {} voluntary, {} involuntary",
            self.minor_faults,
            self.major_faults,
            self.voluntary_switches,
            self.involuntary_switches
        )?;
        if let (Some(core), Some(interrupts)) = (self.core, self.interrupts) {
            write!(f, "  core {core:<7} {interrupts} interrupts")?;
            match self.stolen_ms {
                Some(stolen) if stolen > 0.0 => {
                    writeln!(f, ", {stolen:.0} ms stolen by the host of this machine")?;
                }
                _ => writeln!(f)?,
            }
        }
        let reads: Vec<String> =
            self.reads.named().map(|(name, count)| format!("{count} {name}")).collect();
        if !reads.is_empty() {
            writeln!(f, "  reads        {} ({} KiB)", reads.join(", "), self.reads.bytes >> 10)?;
        }
        Ok(())
    }

    fn policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for applied in &self.applied {
            writeln!(f, "  applied      {applied}")?;
        }
        for note in &self.not_applied {
            writeln!(f, "  not applied  {}: {}", note.what, note.why)?;
        }
        for demotion in &self.demotions {
            let (after_ms, ran_ms) = (demotion.after_ms, demotion.ran_ms);
            match demotion.cause {
                Cause::Overrun => writeln!(
                    f,
                    "  demoted      after {after_ms:.0} ms: it ran for {ran_ms:.0} ms without sleeping, and {:.0} ms are allowed",
                    demotion.allowed_ms
                )?,
                Cause::TimeOver => {
                    writeln!(
                        f,
                        "  demoted      after {after_ms:.0} ms: the lane's time had ended"
                    )?;
                }
            }
        }
        Ok(())
    }
}
