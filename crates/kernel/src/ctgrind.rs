//! Marks for valgrind's memcheck. Bytes marked as secret count as undefined, and memcheck reports
//! every branch and every index that depends on them (Langley's *ctgrind*, 2010). Outside valgrind,
//! and on processors other than x86-64, the marks do nothing.

/// Marks `bytes` as secret.
pub fn secret<T: Copy>(bytes: &mut [T]) {
    request(
        MAKE_MEM_UNDEFINED,
        bytes.as_mut_ptr() as u64,
        size_of_val(bytes),
    );
}

/// Marks `bytes` as public, before they are sent, or compared in a test.
pub fn public<T: Copy>(bytes: &[T]) {
    request(MAKE_MEM_DEFINED, bytes.as_ptr() as u64, size_of_val(bytes));
}

/// Whether this process runs under valgrind, with any tool.
pub fn is_watched() -> bool {
    request(RUNNING_ON_VALGRIND, 0, 0) > 0
}

const RUNNING_ON_VALGRIND: u64 = 0x1001;
const MEMCHECK: u64 = (b'M' as u64) << 24 | (b'C' as u64) << 16;
const MAKE_MEM_UNDEFINED: u64 = MEMCHECK + 1;
const MAKE_MEM_DEFINED: u64 = MEMCHECK + 2;

/// A client request, as `valgrind.h` makes it on x86-64: four rotations that together do nothing,
/// and an exchange of a register with itself. Valgrind takes the sequence for a call.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn request(what: u64, address: u64, len: usize) -> u64 {
    let arguments = [what, address, len as u64, 0, 0, 0];
    let mut result = 0u64;
    // SAFETY: outside valgrind only the flags change. Under valgrind the requests above change
    // memcheck's state for memory that a reference of the caller covers, and nothing else.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") result,
            out("rdi") _,
            options(nostack),
        );
    }
    result
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn request(_: u64, _: u64, _: usize) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_change_nothing() {
        let mut bytes = *b"secret";
        secret(&mut bytes);
        public(&bytes);
        assert_eq!(&bytes, b"secret");
    }
}
