//! XIDs from NVML. The kernel log is the first source: it says more, and includes GPUs that are
//! lost.
//!
//! NVML reports only the last of several XIDs at the same moment.

use super::fields;
use super::library::NvmlSession;
use crate::events::Events;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long one call waits for an event, and so how long the session's end may.
const WAIT_MILLISECONDS: u32 = 1000;
/// Pause after a failed call, so that a call that fails at once does not keep a CPU busy.
const REST: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 256 << 10;

/// Starts the thread that waits for the session's XIDs. It ends with the session.
pub(super) fn watch(session: &Arc<NvmlSession>, events: &Events) -> io::Result<()> {
    let session = Arc::clone(session);
    let events = events.clone();
    let thread = std::thread::Builder::new()
        .name("xid".to_owned())
        .stack_size(STACK_BYTES);
    thread.spawn(move || {
        if let Err(error) = tell(&session, &events) {
            tracing::debug!(%error, "NVML reports no XIDs");
        }
    })?;
    Ok(())
}

fn tell(session: &NvmlSession, events: &Events) -> Result<(), NvmlError> {
    let lib = session.nvml.lib();
    if let Err(error) = &lib.nvmlEventSetFree {
        // Without it the wrapper's Drop panics.
        return Err(NvmlError::FailedToLoadSymbol(error.to_string()));
    }

    let set = session.nvml.create_event_set()?;
    for index in 0..session.nvml.device_count()? {
        let Ok(device) = session.nvml.device_by_index(index) else {
            continue;
        };
        // To ask for a type that the GPU does not have is an error.
        let types = device.supported_event_types();
        if !types.is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR)) {
            continue;
        }

        // SAFETY: both handles are the wrapper's. Its own function gives up the whole set when one
        // GPU fails.
        let registered = fields::call(&lib.nvmlDeviceRegisterEvents, |function| unsafe {
            function(
                device.handle(),
                EventTypes::CRITICAL_XID_ERROR.bits(),
                set.handle(),
            )
        });

        if let Err(error) = registered {
            tracing::debug!(index, %error, "NVML reports no XIDs of this GPU");
        }
    }

    while !session.is_over() {
        match set.wait(WAIT_MILLISECONDS) {
            Ok(event) => {
                let bus_id = event.device.pci_info().map(|pci| pci.bus_id);
                if let (Ok(bus_id), Some(XidError::Value(xid @ 1..))) = (bus_id, event.event_data) {
                    events.xid_by_nvml(&bus_id, xid);
                }
            }
            Err(NvmlError::Timeout) => {}
            Err(error) => {
                tracing::debug!(%error, "cannot wait for XIDs");
                std::thread::sleep(REST);
            }
        }
    }
    Ok(())
}
