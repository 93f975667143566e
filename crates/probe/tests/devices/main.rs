//! Devices that answer over UDP: made-up ones of each profile, hostile ones, and the agent of Net-SNMP.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot have its surroundings shall end, and says what it skipped"
)]

mod agent;
mod hostile;
mod made_up;
mod net_snmp;

use agent::{Table, read_table};
use std::fs;
use std::path::Path;
use takt_probe::{DeviceConfig, DeviceProbe, DeviceReading};

/// The values of a made-up device.
fn table(name: &str) -> Table {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/made-up");
    read_table(&folder.join(name))
}

/// A device at this port of this machine, with the community `public` in a file of the folder.
fn device(port: u16, folder: &Path) -> DeviceConfig {
    let community = folder.join("community");
    fs::write(&community, "public\n").unwrap();
    DeviceConfig {
        community_file: Some(community),
        ..DeviceConfig::at("dev", &format!("127.0.0.1:{port}"))
    }
}

/// Asks a device once.
async fn ask(config: DeviceConfig) -> DeviceReading {
    DeviceProbe::new(config).ask().await
}
