//! Memory that is free goes back to the system.

/// Has the C library's allocator give back what nothing uses.
///
/// glibc keeps what lies before the last piece of an arena that is still in use, and sealing, committing and queries leave such
/// holes: 100 MB after a quarter of an hour of 100,000 series, and a few MB more each day of 2,000.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called from any thread at any time (malloc_trim(3): MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
