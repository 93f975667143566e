//! NVML's functions, by subject. Names, arguments and layouts are NVML's own (`nvml.h`); each
//! function answers with one of NVML's return codes. The contract of all: pointers are null or
//! valid, as nvml.h says.

mod device;
mod event;
mod field;
mod gpm;
mod process;
mod system;
mod virtualization;

use std::ffi::{c_char, c_uint};

use crate::{Answer, code};

/// Exports functions whose first argument is a device. In the body, `gpu` is that device.
macro_rules! device_calls {
    ($($(#[$note:meta])* fn $name:ident($gpu:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            device: nvml_wrapper_sys::bindings::nvmlDevice_t $(, $argument: $type)*
        ) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            crate::world::on_device(stringify!($name), device, |$gpu| {
                #[allow(unused_unsafe, reason = "some bodies only refuse")]
                // SAFETY: the caller's pointers are valid, as nvml.h demands of every call.
                unsafe { $body }
            })
        }
    )*};
}
use device_calls;

/// Writes a result through the caller's pointer.
unsafe fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, so valid by the function's contract.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text and its terminating zero into the caller's buffer.
unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Answer {
    if to.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the buffer holds `length` bytes, which is more than the text has.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list as NVML does: if the buffer is too small, only the length is written, and the call
/// returns InsufficientSize.
unsafe fn put_list<T>(to: *mut T, count: *mut c_uint, list: &[T]) -> Answer
where
    T: Copy,
{
    if count.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: `count` is valid, and `to` has room for `*count` elements.
    unsafe {
        let room = count.read() as usize;
        count.write(list.len() as c_uint);
        if room < list.len() {
            return Err(code::INSUFFICIENT_SIZE);
        }
        if !list.is_empty() {
            if to.is_null() {
                return Err(code::INVALID_ARGUMENT);
            }
            to.copy_from_nonoverlapping(list.as_ptr(), list.len());
        }
    }
    Ok(())
}

/// Fills a text field of a struct, which has room for it and a zero.
fn fill<const N: usize>(field: &mut [c_char; N], text: &str) {
    *field = [0; N];
    for (to, byte) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = byte as c_char;
    }
}
