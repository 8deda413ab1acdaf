//! The register with a thread's rights to keys (PKRU): two bits per key, the lower one removes all
//! rights, the higher one the right to store.
//!
//! Every caller holds a key, so the kernel and the processor support the register. Without keys,
//! these functions are never called.

pub(super) const ALL: u32 = 0b00;
pub(super) const READ_ONLY: u32 = 0b10;
pub(super) const NONE: u32 = 0b11;

/// Extracts the rights to one key.
pub(super) fn of(register: u32, key: u32) -> u32 {
    register >> (2 * key) & 0b11
}

/// Replaces the rights to one key.
pub(super) fn with(register: u32, key: u32, rights: u32) -> u32 {
    let shift = 2 * key;
    register & !(0b11 << shift) | rights << shift
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) fn read() -> u32 {
    let rights: u32;
    // SAFETY: a key was allocated, so kernel and processor support the instruction. It requires
    // zero in ecx, writes eax and edx, and touches no memory.
    unsafe {
        std::arch::asm!(
            "rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack)
        );
    }
    rights
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) fn write(rights: u32) {
    // SAFETY: a key was allocated, so kernel and processor support the instruction. It requires
    // zeros in ecx and edx. Not `nomem`: the compiler must not move loads or stores across it.
    unsafe {
        std::arch::asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack));
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(super) fn read() -> u32 {
    0
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(super) fn write(_rights: u32) {}
