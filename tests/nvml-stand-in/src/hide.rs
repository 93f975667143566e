//! Missing symbols: `hide FUNCTION` in the script takes a function out of this library's symbol
//! table, so that the loader does not find it, as with an older driver.
//!
//! The loader runs constructors before any symbol is looked up. It reads the script and writes over
//! the first letter of each hidden name in the string table of this copy of the library in memory.
//! The hash table still leads to the entry, its name no longer matches, and the lookup fails.

use std::ptr;

use crate::world;
use std::slice;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = hide_symbols;

extern "C" fn hide_symbols() {
    // A script with mistakes hides nothing; each call will name the mistake.
    let Ok(script) = world::read_script() else {
        return;
    };
    if script.hidden.is_empty() {
        return;
    }
    // SAFETY: the loader has mapped and relocated this library before it runs its constructors.
    let Some((table, length)) = (unsafe { string_table() }) else {
        return;
    };
    // SAFETY: `table` is the library's string table of `length` bytes; making its pages writable
    // gives us a private copy, and no other code has used the library yet.
    let names = unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = table as usize & !(page - 1);
        let size = table as usize + length - start;
        if libc::mprotect(
            start as *mut libc::c_void,
            size,
            libc::PROT_READ | libc::PROT_WRITE,
        ) != 0
        {
            return;
        }
        slice::from_raw_parts_mut(table.cast_mut(), length)
    };
    for function in &script.hidden {
        let entry = [b"\0", function.as_bytes(), b"\0"].concat();
        if let Some(at) = names
            .windows(entry.len())
            .position(|window| window == entry)
        {
            names[at + 1] = b'-';
        }
    }
}

/// Returns the place of this library's `.dynstr` from its dynamic section.
unsafe fn string_table() -> Option<(*const u8, usize)> {
    #[repr(C)]
    struct Dyn {
        tag: isize,
        value: usize,
    }
    const DT_NULL: isize = 0;
    const DT_STRTAB: isize = 5;
    const DT_STRSZ: isize = 10;
    unsafe extern "C" {
        // Provided by the linker, one for each library.
        static _DYNAMIC: Dyn;
    }
    let mut table = None;
    let mut length = None;
    let mut entry = &raw const _DYNAMIC;
    // SAFETY: the dynamic section ends with DT_NULL. glibc has turned DT_STRTAB into an address.
    unsafe {
        while (*entry).tag != DT_NULL {
            match (*entry).tag {
                DT_STRTAB => table = Some(ptr::with_exposed_provenance((*entry).value)),
                DT_STRSZ => length = Some((*entry).value),
                _ => {}
            }
            entry = entry.add(1);
        }
    }
    table.zip(length)
}
