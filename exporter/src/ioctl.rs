//! The system call `ioctl`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Makes a request of a device and returns the kernel's number, which is not negative.
///
/// # Errors
/// The error of the kernel or the device.
///
/// # Safety
/// `argument` must point to the struct that the request reads and writes, and each pointer in it to
/// memory of the stated length.
pub(crate) unsafe fn ioctl<T>(
    device: impl AsFd,
    request: u32,
    argument: *mut T,
) -> io::Result<libc::c_int> {
    let device = device.as_fd().as_raw_fd();
    // The type of the request differs between C libraries: `c_ulong` in glibc, `c_int` in musl.
    let request = request as libc::Ioctl;
    // SAFETY: the caller's.
    match unsafe { libc::ioctl(device, request, argument) } {
        number @ 0.. => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}
