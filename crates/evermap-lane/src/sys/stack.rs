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

    #[test]
    fn small_stacks_are_not_run_out_of() {
        let small = std::thread::Builder::new().stack_size(64 << 10).spawn(prefault).unwrap();
        // The library may have made it larger; that it came back at all is the claim.
        assert!(small.join().unwrap() < PRESENT_BYTES_MAX);
        let large = std::thread::Builder::new().stack_size(4 << 20).spawn(prefault).unwrap();
        assert_eq!(large.join().unwrap(), PRESENT_BYTES_MAX);
    }
}
