//! Messages to the BMC and back, through the kernel's driver (`linux/ipmi.h`).

use crate::ioctl::ioctl;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// `struct ipmi_system_interface_addr`: the BMC itself.
#[repr(C)]
struct Address {
    kind: libc::c_int,
    channel: libc::c_short,
    unit: u8,
}

const BMC: Address = Address {
    kind: 0x0c,
    channel: 0x0f,
    unit: 0,
};

/// `struct ipmi_msg`.
#[repr(C)]
struct Message {
    function: u8,
    command: u8,
    bytes: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
struct Request {
    address: *const Address,
    address_bytes: libc::c_uint,
    id: libc::c_long,
    message: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct Received {
    kind: libc::c_int,
    address: *mut Address,
    address_bytes: libc::c_uint,
    id: libc::c_long,
    message: Message,
}

/// `_IOR('i', 13, struct ipmi_req)` and `_IOWR('i', 11, struct ipmi_recv)`.
const SEND_COMMAND: u32 = 0x8000_690d | (size_of::<Request>() as u32) << 16;
const RECEIVE_MESSAGE_TRUNCATED: u32 = 0xc000_690b | (size_of::<Received>() as u32) << 16;

/// Timeout of a command. A BMC may be busy, and the driver itself retries for a while.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum length of an answer, in bytes.
const ANSWER_BYTES: usize = 64;

/// The kernel's driver, opened to ask.
pub(super) struct Bmc {
    device: File,
    asked: libc::c_long,
}

/// Answer of the BMC: completion code, and data if the code is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BmcAnswer {
    pub code: u8,
    pub data: Vec<u8>,
}

impl Bmc {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            device: File::open(path)?,
            asked: 0,
        })
    }

    /// Sends a command and waits for its answer until the timeout.
    pub fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<BmcAnswer> {
        self.asked += 1;

        let mut data = data.to_vec();
        let message = Message {
            function,
            command,
            bytes: data.len() as u16,
            data: data.as_mut_ptr(),
        };

        let address_bytes = size_of::<Address>() as libc::c_uint;
        let mut request = Request {
            address: &raw const BMC_ADDRESS,
            address_bytes,
            id: self.asked,
            message,
        };

        // SAFETY: the request points to an address and data of the lengths that it says, and they
        // live on.
        unsafe { ioctl(&self.device, SEND_COMMAND, &raw mut request) }?;

        let until = Instant::now() + TIMEOUT;
        loop {
            self.wait(until)?;
            // Late answers to earlier commands are dropped.
            if let Some((id, answer)) = self.receive()?
                && id == self.asked
            {
                return Ok(answer);
            }
        }
    }

    fn wait(&self, until: Instant) -> io::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_millis() as libc::c_int;
            let mut waits = libc::pollfd {
                fd: self.device.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };

            // SAFETY: one `pollfd`, which lives on.
            match unsafe { libc::poll(&raw mut waits, 1, left) } {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the BMC does not answer",
                    ));
                }
                1.. => return Ok(()),
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }

    fn receive(&self) -> io::Result<Option<(libc::c_long, BmcAnswer)>> {
        let mut data = [0; ANSWER_BYTES];

        let mut address = BMC;
        let message = Message {
            function: 0,
            command: 0,
            bytes: ANSWER_BYTES as u16,
            data: data.as_mut_ptr(),
        };

        let address_bytes = size_of::<Address>() as libc::c_uint;
        let mut received = Received {
            kind: 0,
            address: &raw mut address,
            address_bytes,
            id: 0,
            message,
        };

        // SAFETY: there is room for an address and for data of the lengths that it says.
        let answered = unsafe { ioctl(&self.device, RECEIVE_MESSAGE_TRUNCATED, &raw mut received) };
        if let Err(error) = answered {
            // Another process took the answer, or it is too long for these commands.
            let is_none = matches!(
                error.raw_os_error(),
                Some(libc::EAGAIN | libc::EMSGSIZE | libc::EINTR)
            );
            return if is_none { Ok(None) } else { Err(error) };
        }

        let said = data
            .get(..usize::from(received.message.bytes))
            .unwrap_or_default();
        let [code, data @ ..] = said else {
            return Ok(None);
        };
        let answer = BmcAnswer {
            code: *code,
            data: data.to_vec(),
        };
        Ok(Some((received.id, answer)))
    }
}

static BMC_ADDRESS: Address = BMC;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_laid_out_as_the_kernel_has_them() {
        if cfg!(target_pointer_width = "64") {
            assert_eq!(
                (
                    size_of::<Address>(),
                    size_of::<Request>(),
                    size_of::<Received>()
                ),
                (8, 40, 48)
            );
            assert_eq!(
                (SEND_COMMAND, RECEIVE_MESSAGE_TRUNCATED),
                (0x8028_690d, 0xc030_690b)
            );
        }
        // A device that is not a BMC refuses the command.
        assert!(
            Bmc::open("/dev/null".as_ref())
                .unwrap()
                .ask(0x0a, 0x40, &[])
                .is_err()
        );
    }
}
