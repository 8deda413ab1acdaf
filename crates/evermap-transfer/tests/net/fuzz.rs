//! Greetings and conversations with bytes changed, cut, doubled, moved: no panic, no hang, nothing left.

use std::io::Write;
use std::time::Duration;

use evermap_transfer::net::{Receive, Send};

use crate::common::{Place, over_pair};
use crate::wire::{Hello, KEEP, end, frame, manifest_with, range, summed};

/// A source of numbers that gives the same for the same seed.
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

/// What a sender says, in parts that are changed apart, so that checksums can be made right again behind a lie.
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
fn no_conversation_however_changed_does_harm() {
    let seed =
        std::env::var("EVERMAP_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7u64);
    eprintln!("EVERMAP_FUZZ_SEED={seed}");
    let place = Place::new();
    let mut numbers = Numbers(seed);
    let (mut kept, mut refused) = (0, 0);
    for round in 0..1500 {
        let mut parts = parts();
        for _ in 0..1 + numbers.next(3) {
            let which = numbers.next(parts.len());
            let is_summed = which == 0 || which == 1 || which == 7;
            if is_summed && numbers.next(4) > 0 {
                // A lie with a checksum that is right.
                let length = parts[which].len().saturating_sub(4);
                parts[which].truncate(length);
                numbers.change(&mut parts[which]);
                parts[which] = summed(std::mem::take(&mut parts[which]));
            } else {
                numbers.change(&mut parts[which]);
            }
        }
        let receive = Receive::new(place.inbox())
            .discard(numbers.next(8) == 0)
            .handshake_timeout(Duration::from_secs(5))
            .idle_timeout(Duration::from_secs(5));
        let (mut stream, receiver) = over_pair(&receive);
        // It may be gone already.
        let _ = stream.write_all(&parts.concat());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        match receiver.join().unwrap_or_else(|_| panic!("round {round} of seed {seed} panicked")) {
            Ok(report) => {
                kept += 1;
                if let Some(path) = report.path {
                    assert_eq!(path.parent(), Some(place.inbox().as_path()), "round {round}");
                    std::fs::remove_file(path).unwrap();
                }
            }
            Err(_) => refused += 1,
        }
        assert!(
            place.received().is_empty(),
            "round {round} of seed {seed} left {:?}",
            place.received()
        );
    }
    assert!(
        kept > 50 && refused > 500,
        "{kept} kept, {refused} refused: changes that change nothing"
    );
}

#[test]
fn no_answer_however_changed_does_harm_to_a_sender() {
    let place = Place::new();
    let file = place.file("file", vec![b'x'; 100]);
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
