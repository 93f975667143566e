//! `takt store`, and what a server's samples survive, with the real program.

#![allow(clippy::unwrap_used, reason = "a test that cannot have its surroundings shall end")]

mod support;

use serde_json::Value;
use std::time::Duration;

use support::process::{Daemon, free_port, http_get};
use support::takt::Takt;

const SOON: Duration = Duration::from_secs(60);

/// A server that reads an exporter twice a second; returns once some samples are durable.
fn serve(takt: &Takt) -> (Daemon, Daemon, String) {
    let node = format!("127.0.0.1:{}", free_port());
    let command = takt.command(["exporter", "--web.listen-address", &node]);
    let exporter = Daemon::start("exporter", command, &takt.directory().join("exporter.log"));
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\n[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = false\n\
             [scrape]\ninterval_seconds = 0.5\ntimeout_seconds = 0.5\n\
             [[scrape.targets]]\naddress = \"{node}\"\nnode = \"g01\"\n[[scrape.targets]]\naddress = \"{node}\"\nnode = \"g02\"\n"
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    server.wait_until("storing samples", SOON, || {
        let page = http_get(&format!("http://{address}/metrics")).ok()?.body;
        let line = page.lines().find_map(|line| line.strip_prefix("takt_store_samples_total "))?;
        (line.parse::<f64>().ok()? > 3000.0).then_some(())
    });
    (exporter, server, address)
}

fn json(takt: &Takt, arguments: &[&str]) -> Value {
    serde_json::from_str(&takt.run(arguments).ok()).unwrap()
}

fn samples(takt: &Takt) -> i64 {
    json(takt, &["sql", "--format", "json", "SELECT count(*) AS n FROM samples"])[0]["n"].as_i64().unwrap()
}

const SEAL: [&str; 4] = ["store", "seal", "--format", "json"];
const STAT: [&str; 4] = ["store", "stat", "--format", "json"];

#[test]
fn blocks_are_sealed_verified_and_deleted_by_the_server_and_without_one() {
    let takt = Takt::fresh();
    let (_exporter, mut server, _) = serve(&takt);
    let kept = json(&takt, &SEAL);
    assert!(kept["rows"].as_u64().unwrap() > 1000, "{kept}");
    assert_eq!(json(&takt, &["store", "verify", "--format", "json"]), Value::Array(Vec::new()));
    let stat = json(&takt, &STAT);
    assert_eq!(stat["blocks"].as_array().unwrap().len(), 1);
    // Asked while the server scrapes on: nothing of the other node goes.
    let said = takt.run(["store", "delete", "--node", "g02"]).fails(2);
    assert!(said.contains("this deletes every stored sample of {node=\"g02\"} for good; say --yes"), "{said}");
    let deleted = json(&takt, &["store", "delete", "--node", "g02", "--yes", "--format", "json"]);
    assert!(deleted["rows"].as_u64().unwrap() > 500, "{deleted}");
    server.wait_until("storing samples after the first block", SOON, || {
        (json(&takt, &STAT)["hot_samples"].as_u64()? > 0).then_some(())
    });
    server.stop();

    // The same from the files.
    json(&takt, &SEAL);
    let stat = json(&takt, &STAT);
    assert_eq!((stat["blocks"].as_array().unwrap().len(), &stat["hot_samples"]), (2, &0.into()));
    let before = samples(&takt);
    takt.run(["store", "delete", "--selector", "{node=\"g02\"}", "--yes"]).ok();
    let sql = "SELECT count(DISTINCT json_extract_string(labels, '$.node')) AS n FROM samples";
    assert_eq!(json(&takt, &["sql", "--format", "json", sql])[0]["n"], 1);
    assert!(samples(&takt) <= before, "deleting makes no samples");
    let said = takt.run(["store", "delete", "--selector", "up{", "--yes"]).fails(2);
    assert!(said.contains("parse error") || said.contains("unexpected"), "{said}");
    takt.run(["store", "verify"]).ok();

    // A damaged file is named, and the exit code says so.
    let stat = json(&takt, &STAT);
    let name = stat["blocks"][0]["name"].as_str().unwrap();
    let file = takt.data_directory().join("blocks/raw").join(name).join("samples.parquet");
    let mut content = std::fs::read(&file).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 0x40;
    std::fs::write(&file, content).unwrap();
    let run = takt.run(["store", "verify"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains(name) && run.stderr.contains("1 damaged blocks"), "{run:?}");
}

#[test]
fn the_program_may_die_at_any_step_of_sealing() {
    let takt = Takt::fresh();
    let (_exporter, mut server, _) = serve(&takt);
    server.stop();
    let expected = samples(&takt);
    assert!(expected > 3000);
    for step in ["written", "verified", "durable", "renamed"] {
        let mut command = takt.command(SEAL);
        let status = command.env("TAKT_CRASH_AT", step).output().unwrap().status;
        assert_eq!(status.code(), None, "{step}");
        assert_eq!(samples(&takt), expected, "after dying when {step}");
    }
    json(&takt, &SEAL);
    assert_eq!(samples(&takt), expected);
    takt.run(["store", "verify"]).ok();
    assert_eq!(json(&takt, &STAT)["hot_samples"], 0);
}
