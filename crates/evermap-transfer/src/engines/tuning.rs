//! Parameters of the engines, with the measured values as defaults.

/// Parameters of engines. [`Default`] has the measured values.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// Bytes per read or write of `read-write` and `uring`. 256 KiB stay in the processor's cache
    /// between the two.
    pub chunk_bytes: usize,
    /// Bytes of the source mapped at a time. All sizes from 2 to 32 MiB cost the same.
    pub window_bytes: usize,
    /// Bytes per write from a mapping. Larger writes create larger folios in the target's cache
    /// without further gain. In a virtual machine whose host must first provide the memory, they
    /// are slow: 1.4 s instead of 0.3 for 1 GiB.
    pub mapped_write_bytes: usize,
    /// Bytes per direct write from a mapping: long enough that the device hardly waits for the next
    /// one.
    pub direct_window_bytes: usize,
    /// Capacity of a pipe in bytes. 1 MiB is the limit for unprivileged users, and needs sixteen
    /// times fewer calls than 64 KiB.
    pub pipe_bytes: usize,
    /// Number of pipes used in parallel, in engines with lanes.
    pub lanes: usize,
    /// Number of ring buffers in flight.
    pub ring_depth: usize,
    /// Size of a ring buffer of `uring-direct` in bytes.
    pub ring_chunk_bytes: usize,
    /// Minimum size of a copy in which unmeasured engines race. Smaller copies end before a race
    /// pays off.
    pub race_bytes_min: u64,
    /// Bytes each engine moves per round of a race.
    pub race_round_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            chunk_bytes: 256 << 10,
            window_bytes: 8 << 20,
            mapped_write_bytes: 1 << 20,
            direct_window_bytes: 16 << 20,
            pipe_bytes: 1 << 20,
            lanes: 1,
            ring_depth: 8,
            ring_chunk_bytes: 1 << 20,
            race_bytes_min: 256 << 20,
            race_round_bytes: 8 << 20,
        }
    }
}
