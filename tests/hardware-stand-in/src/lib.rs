//! Stand-ins for hardware that no test machine has: SATA and SAS disks behind `SG_IO`, and a BMC
//! behind `/dev/ipmi0`.
//!
//! A program that is started with this library in `LD_PRELOAD` opens the simulated `/dev/sd*` and
//! `/dev/ipmi0`, and gets the kernel's structures filled as by a real device.
//! `HARDWARE_STAND_IN_SCRIPT` names a file that describes the devices. It is read again at every
//! command, so a test may rewrite it:
//!
//! ```text
//! disk sda mode 255               # CHECK POWER MODE's answer; 0 is standby
//! disk sda fails                  # SMART RETURN STATUS
//! disk sda attribute 5 100 36 8   # number, value, threshold, raw
//! disk sda written 1000           # logical sectors, of the device statistics
//! disk sda denied                 # EPERM, as without CAP_SYS_RAWIO
//! disk sdb refuses                # "invalid command operation code", as a RAID controller answers
//! disk sdc sas 5d 10 41           # informational exception: code, qualifier, temperature
//! bmc entry 01 00 02 …            # a record of the event log, 16 bytes
//! bmc chassis 01 08 00            # Get Chassis Status, without its completion code
//! bmc clock 1795000000            # Get SEL Time; without this line, the machine's clock
//! bmc overflow                    # entries were dropped
//! bmc slow 300                    # milliseconds until an answer
//! bmc silent                      # never an answer
//! ```
//!
//! A command that would wake a sleeping disk leaves the file `SCRIPT.woken`.

#[cfg(target_os = "linux")]
mod bmc;
#[cfg(target_os = "linux")]
mod disk;

#[cfg(target_os = "linux")]
mod interpose {
    use crate::{bmc, disk};
    use std::collections::BTreeMap;
    use std::env;
    use std::ffi::CStr;
    use std::fs;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    static OPENED: Mutex<BTreeMap<i32, String>> = Mutex::new(BTreeMap::new());

    fn opened() -> MutexGuard<'static, BTreeMap<i32, String>> {
        OPENED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lines of a device in the script as words, without its name.
    pub(crate) fn script(device: &[&str]) -> Vec<Vec<String>> {
        let text = env::var_os("HARDWARE_STAND_IN_SCRIPT")
            .and_then(|path| fs::read_to_string(path).ok())
            .unwrap_or_default();
        let words = text.lines().map(|line| {
            line.split(" #")
                .next()
                .unwrap_or(line)
                .split_whitespace()
                .collect::<Vec<_>>()
        });
        words
            .filter_map(|words| {
                Some(
                    words
                        .strip_prefix(device)?
                        .iter()
                        .map(|word| (*word).to_owned())
                        .collect(),
                )
            })
            .collect()
    }

    pub(crate) fn fail(error: i32) -> i32 {
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = error };
        -1
    }

    unsafe fn real_open(path: *const libc::c_char, flags: i32, mode: u32) -> i32 {
        // SAFETY: as the caller's caller has it.
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as i32 }
    }

    /// As libc's `open64`, which is what Rust's standard library calls.
    ///
    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn open64(path: *const libc::c_char, flags: i32, mode: u32) -> i32 {
        // SAFETY: `path` is a C string.
        let name = unsafe { CStr::from_ptr(path) }.to_str().unwrap_or_default();
        let name = name.strip_prefix("/dev/").unwrap_or_default();
        let device: &[&str] = match name {
            "ipmi0" => &["bmc"],
            disk if disk.starts_with("sd") => &["disk", disk],
            // SAFETY: as the caller has it.
            _ => return unsafe { real_open(path, flags, mode) },
        };
        let handle = match (script(device).is_empty(), name) {
            // Other devices of this machine do not exist.
            (true, _) => return fail(libc::ENOENT),
            // SAFETY: it takes any numbers.
            (false, "ipmi0") => unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) },
            // SAFETY: a C string and flags.
            (false, _) => unsafe {
                real_open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0)
            },
        };
        opened().insert(handle, name.to_owned());
        handle
    }

    /// As libc's `ioctl`.
    ///
    /// # Safety
    /// As libc's: `argument` points to what the request wants.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn ioctl(
        handle: i32,
        request: libc::c_ulong,
        argument: *mut libc::c_void,
    ) -> i32 {
        let name = opened().get(&handle).cloned();
        match (name, request) {
            // SAFETY: callers of these requests pass the kernel's structures.
            (Some(name), disk::SG_IO) => unsafe { disk::answer(&name, argument.cast()) },
            // SAFETY: the same.
            (Some(_), bmc::SEND_COMMAND) => unsafe { bmc::send(handle, argument.cast()) },
            // SAFETY: the same.
            (Some(_), bmc::RECEIVE_MESSAGE_TRUNCATED) => unsafe {
                bmc::receive(handle, argument.cast())
            },
            // SAFETY: as the caller has it.
            _ => unsafe { libc::syscall(libc::SYS_ioctl, handle, request, argument) as i32 },
        }
    }
}
