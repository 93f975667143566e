//! Asks the devices around the nodes over the network: switches, PDUs and UPSes, by SNMP.
//!
//! A device is asked for what its kind has, one request at a time, within a deadline. Which tables that are follows from its
//! `sysObjectID` ([`profile`]). The answer is a [`DeviceReading`] of plain values in base units, from which the metrics and the
//! tables of `takt probe` are made. Nothing is stored and nothing is decided here.
//!
//! Every text and number of a device is foreign: lengths, rows, requests and time are bounded, and a wrong part of an answer
//! costs that part and not the rest.

mod ask;
mod config;
mod metrics;
mod parts;
mod profile;
mod reading;
mod schedule;
mod secret;
mod snmp;
mod text;

pub use ask::DeviceProbe;
pub use config::{DeviceConfig, DeviceKind, SnmpDigest, SnmpPrivacy, check_devices};
pub use metrics::{DEVICE_METRICS, DeviceSample};
pub use reading::{
    DeviceProblem, DeviceReading, DeviceSensor, LldpNeighbor, PduInput, PduOutlet, SensorQuantity,
    SwitchPort, UpsLine, UpsReading,
};
pub use schedule::{keep_asking, pause_after};
