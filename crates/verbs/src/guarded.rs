//! Copies to and from memory that may have gone: a program that knows nothing of us may unmap what
//! it has registered.
//!
//! A hardware adapter keeps the pages of a region; nobody can do that from within the process. To
//! ask the kernel before each copy costs 0.4 µs (`mincore`) and is no promise; to have it copy
//! (`process_vm_readv`) costs 1 µs, as much again as all else that is done for a packet. So we copy
//! as always, and catch the fault: the copy is a single instruction, and a handler of SIGSEGV and
//! SIGBUS that finds the processor at it has it go on where the copy is said to have failed. Where
//! memory is there, that costs nothing. Every other fault goes to whoever had the signal before. On
//! processors for which these instructions are not written here, the kernel copies.
//!
//! Who sets a handler of his own later has ours no more, and a thread that blocks these signals
//! dies of them: then memory that has gone ends the process, as a touch of it by the program would.

use std::io;

/// The memory is not there, or not to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Copies `len` bytes.
///
/// # Safety
/// One of the two is memory that is there; the other is there, or such that nobody minds a fault.
/// They do not overlap, and nobody else has a reference to what is written.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
    // SAFETY: the caller promises it.
    unsafe { imp::copy(to, from, len) }
}

/// Reads eight bytes at once.
///
/// # Safety
/// The place is a multiple of 8, and there, or such that nobody minds a fault.
pub(crate) unsafe fn load(place: *const u64) -> Result<u64, Fault> {
    // SAFETY: the caller promises it.
    unsafe { imp::load(place) }
}

/// Writes eight bytes at once.
///
/// # Safety
/// As for [`load`]; only atomics use the place meanwhile.
pub(crate) unsafe fn store(place: *mut u64, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller promises it.
    unsafe { imp::store(place, value) }
}

/// Swaps eight bytes for `new` if they are `old`; what was there, if not.
///
/// # Safety
/// As for [`store`].
pub(crate) unsafe fn swap(place: *mut u64, old: u64, new: u64) -> Result<Result<(), u64>, Fault> {
    // SAFETY: the caller promises it.
    unsafe { imp::swap(place, old, new) }
}

/// Makes ready for all this. Only the first call does anything.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn prepare() -> io::Result<()> {
    imp::prepare()
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::naked_asm;
    use std::ffi::{c_int, c_void};
    use std::sync::OnceLock;
    use std::{io, mem, ptr};

    use super::Fault;

    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
        // SAFETY: the caller promises it.
        answer(unsafe { copy_bytes(to, from, len) })
    }

    pub(super) unsafe fn load(place: *const u64) -> Result<u64, Fault> {
        let mut found = 0;
        // SAFETY: the caller promises it.
        answer(unsafe { load_eight(place, &raw mut found) })?;
        Ok(found)
    }

    pub(super) unsafe fn store(place: *mut u64, value: u64) -> Result<(), Fault> {
        // SAFETY: the caller promises it.
        answer(unsafe { store_eight(place, value) })
    }

    pub(super) unsafe fn swap(
        place: *mut u64,
        old: u64,
        new: u64,
    ) -> Result<Result<(), u64>, Fault> {
        let mut found = old;
        // SAFETY: the caller promises it.
        answer(unsafe { swap_eight(place, &raw mut found, new) })?;
        Ok(if found == old { Ok(()) } else { Err(found) })
    }

    const fn answer(done: u32) -> Result<(), Fault> {
        if done == 0 { Err(Fault) } else { Ok(()) }
    }

    /// So that the instruction that may fault is the first of a function, and its address known.
    #[unsafe(naked)]
    unsafe extern "C" fn copy_bytes(to: *mut u8, from: *const u8, len: usize) -> u32 {
        naked_asm!("mov rcx, rdx", "mov eax, 1", "jmp {}", sym at_copy)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn at_copy() {
        naked_asm!("rep movsb", "ret")
    }

    #[unsafe(naked)]
    unsafe extern "C" fn load_eight(place: *const u64, found: *mut u64) -> u32 {
        naked_asm!("mov rax, [rdi]", "mov [rsi], rax", "mov eax, 1", "ret")
    }

    #[unsafe(naked)]
    unsafe extern "C" fn store_eight(place: *mut u64, value: u64) -> u32 {
        naked_asm!("xchg [rdi], rsi", "mov eax, 1", "ret")
    }

    #[unsafe(naked)]
    unsafe extern "C" fn swap_eight(place: *mut u64, found: *mut u64, new: u64) -> u32 {
        naked_asm!("mov rax, [rsi]", "jmp {}", sym at_swap)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn at_swap() {
        naked_asm!("lock cmpxchg [rdi], rdx", "mov [rsi], rax", "mov eax, 1", "ret")
    }

    /// Where a function goes on whose first instruction faulted: it answers 0.
    #[unsafe(naked)]
    unsafe extern "C" fn failed() {
        naked_asm!("xor eax, eax", "ret")
    }

    /// What was done at these signals before.
    static BEFORE: OnceLock<[(c_int, libc::sigaction); 2]> = OnceLock::new();

    pub(super) fn prepare() -> io::Result<()> {
        static DONE: OnceLock<Result<(), c_int>> = OnceLock::new();
        let done = DONE.get_or_init(|| {
            let (segv, bus) = (action(libc::SIGSEGV, None), action(libc::SIGBUS, None));
            let before = segv.and_then(|segv| Ok([(libc::SIGSEGV, segv), (libc::SIGBUS, bus?)]));
            let _ = BEFORE.set(before?);
            // SAFETY: all of it being zero is a value that it may have.
            let mut ours: libc::sigaction = unsafe { mem::zeroed() };
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
            ours.sa_sigaction = handler as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            action(libc::SIGSEGV, Some(&ours))?;
            action(libc::SIGBUS, Some(&ours)).map(|_| ())
        });
        done.map_err(io::Error::from_raw_os_error)
    }

    /// Sets what is done at a signal, or leaves it. Gives what was done before.
    fn action(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, c_int> {
        // SAFETY: all of it being zero is a value that it may have.
        let mut before: libc::sigaction = unsafe { mem::zeroed() };
        let new = new.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: both are there while the call lasts, and a handler is one of ours or of before.
        match unsafe { libc::sigaction(signal, new, &raw mut before) } {
            0 => Ok(before),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
        }
    }

    extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel gives a handler with SA_SIGINFO the state of its thread, which no
        // other has.
        let state = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        let at = &mut state.uc_mcontext.gregs[libc::REG_RIP as usize];
        let may_fault = [
            at_copy as *const () as i64,
            load_eight as *const () as i64,
            store_eight as *const () as i64,
            at_swap as *const () as i64,
        ];
        if may_fault.contains(at) {
            *at = failed as *const () as i64;
            return;
        }
        let before = BEFORE.get().and_then(|all| all.iter().find(|(of, _)| *of == signal));
        let Some((_, before)) = before else { return };
        match before.sa_sigaction {
            // The instruction is tried again, and is what it was without us.
            libc::SIG_DFL | libc::SIG_IGN => drop(action(signal, Some(before))),
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                // SAFETY: whoever set it said that it is one with three arguments.
                let handler = unsafe { mem::transmute::<usize, Handler>(handler) };
                handler(signal, info, context);
            }
            handler => {
                // SAFETY: whoever set it said that it is one with one argument.
                let handler = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
                handler(signal);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Fault;

    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), Fault> {
        let piece = |start: *mut u8| libc::iovec { iov_base: start.cast(), iov_len: len };
        let (here, there) = (piece(to), piece(from.cast_mut()));
        // SAFETY: the kernel looks whether the memory is there.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) };
        if usize::try_from(copied) == Ok(len) { Ok(()) } else { Err(Fault) }
    }

    pub(super) unsafe fn load(place: *const u64) -> Result<u64, Fault> {
        let mut found = [0; 8];
        // SAFETY: the caller promises it; `found` is ours.
        unsafe { copy(found.as_mut_ptr(), place.cast(), 8)? };
        Ok(u64::from_ne_bytes(found))
    }

    pub(super) unsafe fn store(place: *mut u64, value: u64) -> Result<(), Fault> {
        // SAFETY: the caller promises it.
        unsafe { there(place)? }.store(value, Ordering::SeqCst);
        Ok(())
    }

    pub(super) unsafe fn swap(
        place: *mut u64,
        old: u64,
        new: u64,
    ) -> Result<Result<(), u64>, Fault> {
        // SAFETY: the caller promises it.
        let value = unsafe { there(place)? };
        let swapped = value.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
        Ok(swapped.map(|_| ()))
    }

    /// The place, if it was there a moment ago.
    unsafe fn there<'a>(place: *mut u64) -> Result<&'a AtomicU64, Fault> {
        // SAFETY: the caller promises it.
        unsafe { load(place)? };
        // SAFETY: aligned, as the caller says; only atomics use it.
        Ok(unsafe { AtomicU64::from_ptr(place) })
    }

    pub(super) const fn prepare() -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// Two pages of the kernel's, of which the second is unmapped again.
    fn page_with_an_end() -> *mut u8 {
        let (flags, rights) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: new pages, of which nobody else knows.
        unsafe {
            let start = libc::mmap(ptr::null_mut(), 8192, rights, flags, -1, 0).cast::<u8>();
            assert_ne!(start.cast(), libc::MAP_FAILED);
            assert_eq!(libc::munmap(start.add(4096).cast(), 4096), 0);
            start
        }
    }

    #[test]
    fn memory_that_has_gone_fails_and_nothing_else() {
        prepare().unwrap();
        let start = page_with_an_end();
        let mut room = [7_u8; 4096];
        // SAFETY: `room` is there, and of the page nobody else knows.
        unsafe {
            assert_eq!(copy(start, room.as_ptr(), 4096), Ok(()));
            assert_eq!(copy(start.add(4000), room.as_ptr(), 100), Err(Fault));
            assert_eq!(copy(room.as_mut_ptr(), start.add(4095), 2), Err(Fault));
            assert_eq!(copy(room.as_mut_ptr(), start.add(4095), 1), Ok(()));
            assert_eq!(copy(room.as_mut_ptr(), start.add(4096), 0), Ok(()));
        }
        assert_eq!(room[0], 7);
    }

    #[test]
    fn eight_bytes_are_changed_at_once_or_not_at_all() {
        prepare().unwrap();
        let start = page_with_an_end();
        let (last, gone) =
            (start.wrapping_add(4088).cast::<u64>(), start.wrapping_add(4096).cast());
        // SAFETY: of the page nobody else knows, and both places are multiples of 8.
        unsafe {
            assert_eq!(store(last, 5), Ok(()));
            assert_eq!(swap(last, 4, 9), Ok(Err(5)));
            assert_eq!(swap(last, 5, 9), Ok(Ok(())));
            assert_eq!(load(last), Ok(9));
            assert_eq!(load(gone), Err(Fault));
            assert_eq!(store(gone, 1), Err(Fault));
            assert_eq!(swap(gone, 0, 1), Err(Fault));
        }
    }
}
