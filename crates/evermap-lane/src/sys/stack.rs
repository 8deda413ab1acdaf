//! Size of the rest of this thread's stack, and prefaulting it.

/// Maximum number of bytes prefaulted: enough for the calls of a frame, not for deep recursion.
const PRESENT_BYTES_MAX: usize = 256 << 10;
/// Bytes that one call of `descend` touches.
const STEP_BYTES: usize = 16 << 10;

/// Touches the next pages of this thread's stack so that no frame takes their first page faults: up
/// to 256 KiB, and at most half of what is left. Returns the number of bytes.
pub(crate) fn prefault() -> usize {
    let wanted = (left_bytes() / 2).min(PRESENT_BYTES_MAX);
    descend(wanted / STEP_BYTES);
    wanted / STEP_BYTES * STEP_BYTES
}

#[inline(never)]
fn descend(steps: usize) {
    if steps == 0 {
        return;
    }
    let mut step = [0_u8; STEP_BYTES - 256];
    // Writes to each page; `black_box` keeps the compiler from removing the writes.
    for byte in step.iter_mut().step_by(1 << 10) {
        *byte = 1;
    }
    std::hint::black_box(&mut step);
    descend(steps - 1);
    std::hint::black_box(&mut step);
}

/// Bytes from here to the end of the stack. Returns 0 if the library does not report it.
fn left_bytes() -> usize {
    let here = 0_u8;
    let here = std::ptr::from_ref(std::hint::black_box(&here)) as usize;
    lowest().map_or(0, |lowest| here.saturating_sub(lowest))
}

fn lowest() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the calling thread exists, and the structure is read only if the call succeeds.
    let outcome =
        unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) };
    if outcome != 0 {
        return None;
    }
    let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the structure was filled above and is destroyed once.
    let outcome = unsafe {
        let outcome =
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        outcome
    };
    (outcome == 0).then_some(lowest as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes left at first, and bytes touched, in a thread with this stack size.
    fn of_a_stack(bytes: usize) -> (usize, usize) {
        let thread = std::thread::Builder::new().stack_size(bytes);
        thread.spawn(|| (left_bytes(), prefault())).unwrap().join().unwrap()
    }

    #[test]
    fn prefault_touches_at_most_half_of_the_rest_and_at_most_256_kib() {
        // The library may use a larger stack of a thread that has ended.
        let (left, touched) = of_a_stack(64 << 10);
        assert!(left > 0 && touched <= left / 2, "{touched} of {left}");
        let (left, touched) = of_a_stack(4 << 20);
        assert_eq!(touched, PRESENT_BYTES_MAX, "of {left}");
    }
}
