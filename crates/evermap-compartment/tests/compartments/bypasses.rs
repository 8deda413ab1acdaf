//! Ways around compartments. Each works, to show that keys do not stop hostile code. The outer wall
//! closes the first three.

use std::os::unix::fs::FileExt;

use evermap::Access;
use evermap_compartment::compartments::{Class, assign};

use super::{NOTHING, get, may, object, store};

pub fn ways() {
    let (_directory, store) = store();
    let mut words = object(&store, "words");
    assign(&mut words, &[(Class::define("nobody here").unwrap(), Access::Write)]).unwrap();
    let address = words.root().address;
    assert_eq!(may(&words), NOTHING);

    // The process's memory, read and written as a file.
    let memory = std::fs::File::options().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut number = [0; 8];
    memory.read_exact_at(&mut number, address as u64).unwrap();
    assert_eq!(u64::from_le_bytes(number), 7);
    memory.write_all_at(&8u64.to_le_bytes(), address as u64).unwrap();

    // The system call for other processes' memory, applied to itself.
    let local = libc::iovec { iov_base: number.as_mut_ptr().cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: address.cast(), iov_len: 8 };
    // SAFETY: copies eight bytes into an eight-byte buffer.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    assert_eq!((count, u64::from_le_bytes(number)), (8, 8));

    // The `wrpkru` instruction: first all rights to all keys, then only those to ordinary memory.
    write_register(0);
    assert_eq!(get(&words), 8);
    write_register(0x5555_5554);
    assert_eq!(may(&words), NOTHING);

    // The page moved to the key of ordinary memory.
    let page = address as usize & !4095;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the page is mapped, and stays readable and writable.
    assert_eq!(unsafe { libc::syscall(libc::SYS_pkey_mprotect, page, 4096, rights, 0) }, 0);
    assert_eq!(get(&words), 8);
}

#[cfg(target_arch = "x86_64")]
fn write_register(rights: u32) {
    // SAFETY: keys are available, so the instruction exists. It accesses no memory.
    unsafe { std::arch::asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0) };
}

#[cfg(not(target_arch = "x86_64"))]
fn write_register(_rights: u32) {
    unreachable!("there are no keys here");
}
