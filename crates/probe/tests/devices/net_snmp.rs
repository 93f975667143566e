//! Net-SNMP's agent, by v2c and by v3, compared with what its own commands say.

use super::{ask, device};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use takt_probe::{DeviceConfig, DeviceReading};
use tempfile::{TempDir, tempdir};

/// A running `snmpd`. It ends when it is dropped.
struct Snmpd {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Drop for Snmpd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether the programs are installed. A missing one skips the test by name.
fn has_net_snmp(test: &str) -> bool {
    let is_there = |name: &&str| {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).chain(["/usr/sbin".into()]);
        folders
            .map(|folder| folder.join(name))
            .any(|file| file.is_file())
    };
    let missing: Vec<&str> = ["snmpd", "snmpget", "snmpwalk"]
        .into_iter()
        .filter(|name| !is_there(name))
        .collect();
    if missing.is_empty() {
        return true;
    }
    assert!(
        env::var_os("TAKT_TEST_NO_SKIP").is_none(),
        "{test} would be skipped: {missing:?}"
    );
    eprintln!(
        "test {test} ... skipped: needs {}; apt-get install snmpd snmp",
        missing.join(", ")
    );
    false
}

fn start() -> Snmpd {
    let folder = tempdir().unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);

    let config = folder.path().join("snmpd.conf");
    let text = format!(
        "agentaddress udp:127.0.0.1:{port}\nrocommunity public 127.0.0.1\n\
         createUser takt SHA-256 \"authpass12\" AES \"privpass12\"\nrouser takt priv\n\
         sysName made-up-name\n"
    );
    fs::write(&config, text).unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();

    let path = format!("{}:/usr/sbin", env::var("PATH").unwrap_or_default());
    let process = Command::new("snmpd")
        .args(["-f", "-Lo", "-C", "-c"])
        .arg(&config)
        .env("PATH", path)
        .env("SNMP_PERSISTENT_DIR", &state)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let snmpd = Snmpd {
        process,
        port,
        folder,
    };
    for _ in 0..100 {
        if snmpd
            .command("snmpget", "1.3.6.1.2.1.1.5.0")
            .contains("made-up-name")
        {
            return snmpd;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("snmpd does not answer");
}

impl Snmpd {
    /// Output of a command of Net-SNMP: identifiers and values, one a line.
    fn command(&self, name: &str, id: &str) -> String {
        let output = Command::new(name)
            .args(["-v2c", "-c", "public", "-t", "1", "-r", "0", "-Oqne"])
            .arg(format!("127.0.0.1:{}", self.port))
            .arg(id)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// A column by the last arc of its rows.
    fn column(&self, id: &str) -> BTreeMap<u32, String> {
        let text = self.command("snmpwalk", id);
        let row = |line: &str| {
            let (id, value) = line.split_once(' ')?;
            let index = id.rsplit('.').next()?.parse().ok()?;
            Some((index, value.trim_matches('"').to_owned()))
        };
        text.lines().filter_map(row).collect()
    }

    fn v2c(&self) -> DeviceConfig {
        device(self.port, self.folder.path())
    }

    fn v3(&self, auth: &str) -> DeviceConfig {
        let write = |name: &str, secret: &str| {
            let file = self.folder.path().join(name);
            fs::write(&file, secret).unwrap();
            Some(file)
        };
        DeviceConfig {
            community_file: None,
            user: Some("takt".to_owned()),
            auth_file: write("auth", auth),
            privacy_file: write("privacy", "privpass12\n"),
            ..self.v2c()
        }
    }
}

/// Compares the ports of a reading with the columns that `snmpwalk` prints. Byte counters move, so they lie between two walks.
fn compare(reading: &DeviceReading, snmpd: &Snmpd, before: &BTreeMap<u32, String>) {
    let names = snmpd.column("1.3.6.1.2.1.31.1.1.1.1");
    let kinds = snmpd.column("1.3.6.1.2.1.2.2.1.3");
    let speeds = snmpd.column("1.3.6.1.2.1.31.1.1.1.15");
    let states = snmpd.column("1.3.6.1.2.1.2.2.1.8");
    let after = snmpd.column("1.3.6.1.2.1.31.1.1.1.6");

    let expected: Vec<&String> = names
        .iter()
        .filter(|(index, _)| kinds[index] == "6")
        .map(|(_, name)| name)
        .collect();
    let found: Vec<&String> = reading.ports.iter().map(|port| &port.port).collect();
    assert_eq!(found, expected);

    for port in &reading.ports {
        let (index, _) = names.iter().find(|(_, name)| **name == port.port).unwrap();
        let is_up = states[index] == "1";
        assert_eq!(port.is_up, Some(is_up), "{}", port.port);
        if !is_up {
            continue;
        }
        let speed: u64 = speeds[index].parse().unwrap();
        let shown = port.speed_bits_per_second.unwrap_or(0);
        assert_eq!(shown, speed * 1_000_000, "{}", port.port);
        let [low, high] = [before, &after].map(|walk| walk[index].parse::<u64>().unwrap());
        let bytes = port.receive_bytes.unwrap();
        assert!(
            (low..=high).contains(&bytes),
            "{}: {low} {bytes} {high}",
            port.port
        );
    }
}

#[tokio::test]
async fn v2c_and_v3_say_what_snmpwalk_says() {
    if !has_net_snmp("v2c_and_v3_say_what_snmpwalk_says") {
        return;
    }
    let snmpd = start();
    for config in [snmpd.v2c(), snmpd.v3("authpass12\n")] {
        let before = snmpd.column("1.3.6.1.2.1.31.1.1.1.6");
        let reading = ask(config).await;
        assert!(reading.is_up, "{:?}", reading.problems);
        assert_eq!(reading.problems, []);
        assert_eq!(reading.name, "made-up-name");
        assert!(
            reading.object_id.starts_with("1.3.6.1.4.1.8072."),
            "{}",
            reading.object_id
        );
        assert!(reading.uptime_seconds.unwrap() < 600.0);
        compare(&reading, &snmpd, &before);
    }
}

#[tokio::test]
async fn wrong_secrets_get_no_answer() {
    if !has_net_snmp("wrong_secrets_get_no_answer") {
        return;
    }
    let snmpd = start();
    let wrong_password = ask(DeviceConfig {
        timeout_seconds: 2,
        ..snmpd.v3("authpass99\n")
    })
    .await;
    assert!(!wrong_password.is_up);
    // The agent says so, but without a signature: anybody could send that.
    assert_eq!(
        wrong_password.problems[0].reason, "no_answer",
        "{:?}",
        wrong_password.problems
    );
    assert!(!wrong_password.problems[0].text.contains("authpass"));

    // An agent does not answer a wrong community at all.
    let config = DeviceConfig {
        timeout_seconds: 2,
        ..snmpd.v2c()
    };
    fs::write(snmpd.folder.path().join("community"), "wrong").unwrap();
    let wrong_community = ask(config).await;
    assert_eq!(wrong_community.problems[0].reason, "no_answer");
}
