//! How much of this thread's stack is left, and having it there before it is needed.

/// No more is made present: what a frame's calls need, not what recursion may.
const PRESENT_BYTES_MAX: usize = 256 << 10;
/// As much as one call below touches.
const STEP_BYTES: usize = 16 << 10;

/// Touches the next pages of this thread's stack, so that no frame pays for their first use: up to 256 KiB, and never more than half of what is left. Gives
/// the bytes.
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
    // By the page, and seen by nobody who could leave it out.
    for byte in step.iter_mut().step_by(1 << 10) {
        *byte = 1;
    }
    std::hint::black_box(&mut step);
    descend(steps - 1);
    std::hint::black_box(&mut step);
}

/// From here to the stack's end; 0 if the library does not say.
fn left_bytes() -> usize {
    let here = 0_u8;
    let here = std::ptr::from_ref(std::hint::black_box(&here)) as usize;
    lowest().map_or(0, |lowest| here.saturating_sub(lowest))
}

fn lowest() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: of this thread, which is there; the structure is filled if the call succeeds.
    let outcome =
        unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) };
    if outcome != 0 {
        return None;
    }
    let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the structure was filled above, and is given back once.
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

    /// What is left at first, and what of it was touched.
    fn of_a_stack(bytes: usize) -> (usize, usize) {
        let thread = std::thread::Builder::new().stack_size(bytes);
        thread.spawn(|| (left_bytes(), prefault())).unwrap().join().unwrap()
    }

    #[test]
    fn no_more_than_half_of_what_is_left_is_touched_and_no_more_than_is_useful() {
        // The library may give more than was asked for: a stack of a thread that has ended.
        let (left, touched) = of_a_stack(64 << 10);
        assert!(left > 0 && touched <= left / 2, "{touched} of {left}");
        let (left, touched) = of_a_stack(4 << 20);
        assert_eq!(touched, PRESENT_BYTES_MAX, "of {left}");
    }
}
