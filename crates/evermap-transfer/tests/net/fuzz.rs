//! Handshakes and transfers with bytes changed, cut, doubled or moved: no panic, no hang, no files
//! left.

use std::io::Write;
use std::time::Duration;

use evermap_transfer::net::{Receive, Send};

use crate::common::{TestDir, over_pair};
use crate::wire::{Hello, KEEP, end, frame, manifest_with, range, summed};

/// Deterministic random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = self.next(bytes.len());
        match self.next(6) {
            0 => bytes[at] ^= 1 << self.next(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.next(5)],
            2 => bytes.truncate(at),
            3 => {
                let until = (at + self.next(20)).min(bytes.len());
                let copied = bytes[at..until].to_vec();
                bytes.splice(at..at, copied);
            }
            4 => {
                let until = (at + 8).min(bytes.len());
                bytes[at..until].fill([0, 0xff][self.next(2)]);
            }
            _ => {
                bytes.remove(at);
            }
        }
    }
}

/// Returns a sender's messages as parts that are mutated separately, so that checksums can be fixed
/// after a mutation.
fn parts() -> Vec<Vec<u8>> {
    let manifest = manifest_with(b"file", 300, 0o644, 1 << 16, &[(0, 100), (200, 300)]);
    let hello = Hello::new(&manifest).bytes();
    let bytes = vec![b'x'; 100];
    vec![
        hello,
        manifest,
        range(0, 100),
        bytes.clone(),
        range(200, 300),
        bytes,
        end(),
        frame(KEEP, 0, 0),
    ]
}

#[test]
fn mutated_transfers_do_no_harm() {
    let seed =
        std::env::var("EVERMAP_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7u64);
    eprintln!("EVERMAP_FUZZ_SEED={seed}");
    let dir = TestDir::new();
    let mut numbers = Numbers(seed);
    let (mut kept, mut refused) = (0, 0);
    for round in 0..1500 {
        let mut parts = parts();
        for _ in 0..1 + numbers.next(3) {
            let which = numbers.next(parts.len());
            let is_summed = which == 0 || which == 1 || which == 7;
            if is_summed && numbers.next(4) > 0 {
                // A mutation with a correct checksum.
                let length = parts[which].len().saturating_sub(4);
                parts[which].truncate(length);
                numbers.change(&mut parts[which]);
                parts[which] = summed(std::mem::take(&mut parts[which]));
            } else {
                numbers.change(&mut parts[which]);
            }
        }
        let receive = Receive::new(dir.inbox())
            .discard(numbers.next(8) == 0)
            .handshake_timeout(Duration::from_secs(5))
            .idle_timeout(Duration::from_secs(5));
        let (mut stream, receiver) = over_pair(&receive);
        // The receiver may have closed already.
        let _ = stream.write_all(&parts.concat());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        match receiver.join().unwrap_or_else(|_| panic!("round {round} of seed {seed} panicked")) {
            Ok(report) => {
                kept += 1;
                if let Some(path) = report.path {
                    assert_eq!(path.parent(), Some(dir.inbox().as_path()), "round {round}");
                    std::fs::remove_file(path).unwrap();
                }
            }
            Err(_) => refused += 1,
        }
        assert!(
            dir.received().is_empty(),
            "round {round} of seed {seed} left {:?}",
            dir.received()
        );
    }
    assert!(
        kept > 50 && refused > 500,
        "{kept} kept, {refused} refused: too few mutations had an effect"
    );
}

#[test]
fn mutated_answers_do_no_harm_to_a_sender() {
    let dir = TestDir::new();
    let file = dir.file("file", vec![b'x'; 100]);
    let mut numbers = Numbers(11);
    for round in 0..300 {
        let mut answers = [frame(1, 0, 0), frame(4, 100, 0), frame(6, 0, 0)];
        let which = numbers.next(3);
        let length = answers[which].len() - 4;
        answers[which].truncate(length);
        numbers.change(&mut answers[which]);
        answers[which] = summed(std::mem::take(&mut answers[which]));
        let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        let _ = there.write_all(&answers.concat());
        let _ = there.shutdown(std::net::Shutdown::Write);
        let send = Send::new(&file)
            .handshake_timeout(Duration::from_secs(5))
            .idle_timeout(Duration::from_secs(5));
        let sender = std::thread::spawn(move || send.over(here));
        let sent = sender.join().unwrap_or_else(|_| panic!("round {round} panicked"));
        drop(sent);
        assert_eq!(std::fs::read(&file).unwrap(), vec![b'x'; 100]);
    }
}
