//! A made-up switch, asked by `takt probe`, by a server, and by the page for another server.

#[path = "../../crates/probe/tests/devices/agent.rs"]
#[allow(dead_code, reason = "the crate's own tests use the rest")]
mod agent;

use self::agent::{Agent, read_table};
use crate::support::process::{free_port, http_get};
use crate::support::takt::Takt;
use serde_json::Value;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(60);

fn switch() -> Agent {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/probe/fixtures/made-up");
    Agent::good(read_table(&folder.join("switch.snmprec")))
}

/// Waits until the answer of an address contains a text.
fn wait_for(address: &str, path: &str, text: &str) -> String {
    let end = Instant::now() + SOON;
    loop {
        let page = http_get(&format!("http://{address}{path}"));
        let answer = page.map(|page| page.body).unwrap_or_default();
        if answer.contains(text) {
            return answer;
        }
        assert!(
            Instant::now() < end,
            "{address}{path} lacks {text}: {answer}"
        );
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn probe_prints_what_a_device_says() {
    let takt = Takt::fresh();
    let switch = switch();
    let address = format!("127.0.0.1:{}", switch.port);
    takt.file("community", "public\n");

    let table = takt
        .run(["probe", &address, "--community-file", "community"])
        .ok();
    for text in [
        "leaf1",
        "to gpu01",
        "25 Gbit/s",
        "5 TB",
        "ens1f0",
        "23.5 °C",
        "profile standard",
    ] {
        assert!(table.contains(text), "{text}: {table}");
    }
    assert!(!table.contains("Loopback0"), "{table}");

    let json = takt
        .run([
            "probe",
            &address,
            "--community-file",
            "community",
            "--format",
            "json",
        ])
        .ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json[0]["ports"][0]["speed_bits_per_second"],
        25_000_000_000u64
    );
    assert_eq!(json[0]["ports"][2]["receive_errors"], Value::Null);

    let said = takt.run(["probe", "leaf9"]).fails(2);
    assert!(said.contains("--community-file"), "{said}");
}

#[test]
fn a_device_of_the_configuration_is_stored_and_served() {
    let takt = Takt::fresh();
    let switch = switch();
    let [at, page_at] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    takt.file("community", "public\n");
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\n[server]\nlisten_address = \"{at}\"\n[jobs]\npoll = false\n\
             [alerts]\nshipped_rules = false\n\
             [[devices]]\nname = \"leaf\"\naddress = \"127.0.0.1:{}\"\ncommunity_file = \"community\"\n\
             interval_seconds = 10\ntimeout_seconds = 5\n",
            switch.port
        ),
    );

    let server = takt.start(["serve", "--config", "takt.toml"]);
    let query = "/api/v1/query?query=count(takt_switch_port_up%7Bcluster%3D%22lab%22,device%3D%22leaf%22%7D)";
    wait_for(&at, query, "\"5\"]");
    drop(server);

    let page = takt.start(["probe", "--config", "takt.toml", "--listen", &page_at]);
    let line = "takt_switch_port_receive_bytes_total{device=\"leaf\",port=\"Ethernet1\",alias=\"to gpu01\"} 5000000000000";
    wait_for(&page_at, "/metrics", line);
    drop(page);
}
