//! A driver that lacks a function. Symbols are hidden when the library is loaded, so this test is a
//! program of its own.

mod common;

use common::Machine;
use nvml_wrapper::error::NvmlError;

#[test]
fn a_hidden_function_is_missing_and_the_others_are_not() {
    let machine = Machine::new("hide nvmlDeviceGetCount_v2\nhide nvmlDeviceGetName\n");
    let nvml = machine.nvml().unwrap();
    assert!(matches!(
        nvml.device_count(),
        Err(NvmlError::FailedToLoadSymbol(_))
    ));
    let device = nvml.device_by_index(0).unwrap();
    assert!(matches!(
        device.name(),
        Err(NvmlError::FailedToLoadSymbol(_))
    ));
    assert_eq!(device.num_fans().unwrap(), 2);
}
