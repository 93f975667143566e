//! Keeps memory small: returns it to the operating system, and grows lists in small steps.

/// Makes room for one more item, by an eighth of the list instead of its double. For lists that grow
/// with the number of series; the system moves large ones without copying.
pub(crate) fn make_room<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 64);
    }
}

/// Makes the C library's allocator return unused memory, and unmaps code that is not in use.
///
/// glibc keeps everything before the last used piece of an arena. Sealing, commits and queries
/// leave such holes: 100 MB after 15 minutes of 100,000 series, and a few MB more each day with
/// 2,000 series.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the function takes no pointer and may be called from any thread at any time
        // (malloc_trim(3): MT-Safe).
        unsafe {
            libc::malloc_trim(0);
        }
        unmap_code();
    }
}

/// Unmaps the code and constants of the program and its libraries. Pages that are used again are
/// mapped again, from the system's cache of the file. Otherwise nearly all of DuckDB's library stays
/// mapped after the start, 60 MB of which a server uses few.
#[cfg(target_env = "gnu")]
fn unmap_code() {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" fn unmap(
        object: *mut libc::dl_phdr_info,
        _size: usize,
        _data: *mut c_void,
    ) -> c_int {
        // The kernel rounds lengths up to its pages, which have 64 KiB on some machines.
        let page = rustix::param::page_size();

        // SAFETY: dl_iterate_phdr passes a valid object.
        let object = unsafe { &*object };
        for number in 0..usize::from(object.dlpi_phnum) {
            // SAFETY: the object has this many headers.
            let header = unsafe { &*object.dlpi_phdr.add(number) };
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
                continue;
            }
            let begin = (object.dlpi_addr + header.p_vaddr) as usize;
            let end = begin + header.p_memsz as usize;
            let begin = begin.next_multiple_of(page);
            let end = end / page * page;
            if begin < end {
                // SAFETY: these pages are mapped from a file and never written, so the system
                // reads the same content again. An error means that they stay mapped.
                unsafe {
                    libc::madvise(begin as *mut c_void, end - begin, libc::MADV_DONTNEED);
                }
            }
        }
        0
    }

    // SAFETY: the callback keeps to the interface of dl_iterate_phdr(3).
    unsafe {
        libc::dl_iterate_phdr(Some(unmap), std::ptr::null_mut());
    }
}
