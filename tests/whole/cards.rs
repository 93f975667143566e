//! The life of a card: it has a fault, is moved to another node, and has the fault again.

use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::Takt;

const SOON: Duration = Duration::from_secs(120);

/// A node with an exporter, whose cards a script describes.
struct CardNode {
    name: &'static str,
    address: String,
}

impl CardNode {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            address: format!("127.0.0.1:{}", free_port()),
        }
    }

    /// Starts the exporter with cards of these serial numbers, in slots 1, 2, …
    fn start(&self, takt: &Takt, serials: &[&str]) -> Daemon {
        let library = Path::new(env!("CARGO_BIN_EXE_takt")).with_file_name("libnvml_stand_in.so");
        assert!(
            library.exists(),
            "{} is missing; cargo build -p nvml-stand-in",
            library.display()
        );

        let mut script = format!("profile h100 {}\n", serials.len());
        for (index, serial) in serials.iter().enumerate() {
            script += &format!(
                "gpu {index} serial {serial}\ngpu {index} uuid GPU-{serial}\ngpu {index} pci 00000000:0{}:00.0\n",
                index + 1
            );
        }
        let script = takt.file(&self.file("gpus"), script);
        let kmsg = takt.file(&self.file("kmsg"), "");

        let mut command = takt.command(["exporter", "--web.listen-address", &self.address]);
        command
            .arg("--nvml.library")
            .arg(library)
            .arg("--path.kmsg")
            .arg(kmsg)
            .env("NVML_STAND_IN_SCRIPT", script);
        let log = takt.directory().join(self.file("log"));
        let mut exporter = Daemon::start("exporter", command, &log);
        exporter.wait_until("showing its cards", SOON, || {
            let page = http_get(&format!("http://{}/metrics", self.address)).ok()?;
            (page.body.matches("takt_gpu_info{").count() == serials.len()).then_some(())
        });
        exporter
    }

    fn file(&self, kind: &str) -> String {
        format!("{}.{kind}", self.name)
    }

    /// Appends a line to the node's kernel log, or to the script of its cards.
    fn append(&self, takt: &Takt, kind: &str, line: &str) {
        let path = takt.directory().join(self.file(kind));
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

fn show(takt: &Takt, card: &str) -> Option<Value> {
    let shown = takt.run(["card", "show", card, "--format", "json"]);
    serde_json::from_str(&shown.stdout).ok()
}

/// Node, slot, and whether the card is still there, of each placement.
fn placements(card: &Value) -> Vec<Value> {
    let all = card["placements"].as_array().unwrap().iter();
    all.map(|one| json!([one["node"], one["slot"], one["to"].is_null()]))
        .collect()
}

#[test]
fn a_fault_that_moves_with_its_card_to_another_node() {
    let takt = Takt::fresh();
    let [one, two] = ["g1", "g2"].map(CardNode::new);
    let mut of_one = one.start(&takt, &["1650001", "1650002"]);
    let mut of_two = two.start(&takt, &["1650003"]);

    let address = format!("127.0.0.1:{}", free_port());
    let targets = [&one, &two].map(|node| {
        format!(
            "[[scrape.targets]]\naddress = \"{}\"\nnode = \"{}\"\n",
            node.address, node.name
        )
    });
    let config = format!(
        "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = false\n\
         [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n{}",
        targets.concat()
    );
    takt.file("takt.toml", config);
    let mut server = takt.start(["serve", "--config", "takt.toml"]);

    server.wait_until("knowing three healthy cards", SOON, || {
        let listed = takt.run(["card", "list", "--verdict", "healthy", "--format", "json"]);
        let cards: Vec<Value> = serde_json::from_str(&listed.stdout).ok()?;
        (cards.len() == 3).then_some(())
    });

    // The card falls off the bus of g1.
    one.append(
        &takt,
        "kmsg",
        "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
    );
    let card = server.wait_until("suspecting the card", SOON, || {
        show(&takt, "1650001").filter(|card| card["diagnosis"]["verdict"] == "inspect")
    });
    assert_eq!(placements(&card), [json!(["g1", "0000:01:00.0", true])]);
    assert_eq!(card["diagnosis"]["origin"]["origin"], "unknown", "{card}");

    // Nodes that are down keep their cards. Then g1 comes back with one card less, and g2 with one more.
    of_one.stop();
    of_two.stop();
    let mut of_one = one.start(&takt, &["1650002"]);
    let mut of_two = two.start(&takt, &["1650003", "1650001"]);
    let card = server.wait_until("finding the card in g2", SOON, || {
        show(&takt, "GPU-1650001").filter(|card| placements(card).len() == 2)
    });
    assert_eq!(
        placements(&card),
        [
            json!(["g1", "0000:01:00.0", false]),
            json!(["g2", "0000:02:00.0", true]),
        ]
    );
    assert_eq!(card["diagnosis"]["verdict"], "watch", "{card}");

    // The card of slot 2 in g1 took the place of the one that was taken out.
    let other = server.wait_until("finding the other card in slot 1", SOON, || {
        show(&takt, "1650002").filter(|card| placements(card).len() == 2)
    });
    assert_eq!(placements(&other)[1], json!(["g1", "0000:01:00.0", true]));

    // The fault comes back, so it moved with the card.
    two.append(
        &takt,
        "kmsg",
        "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
    );
    let card = server.wait_until("seeing that the fault moved with the card", SOON, || {
        show(&takt, "1650001").filter(|card| card["diagnosis"]["origin"]["origin"] == "card")
    });
    let text = takt.run(["card", "show", "1650001"]).ok();
    assert!(
        text.contains("a hardware fault came back after a reset, a reboot or a move"),
        "{text}"
    );
    assert!(
        text.contains("Card or slot: the card; it moved with the card"),
        "{text}"
    );
    assert!(
        text.contains("moved: 0000:02:00.0 in g2, before 0000:01:00.0 in g1"),
        "{text}"
    );
    assert_eq!(card["faults"].as_array().map(Vec::len), Some(2), "{card}");

    // Hours of cards are hours of slots.
    let sql = "SELECT sum(epoch(last_seen - from_time))::BIGINT AS seconds, count(DISTINCT card) AS cards,
               count(*) FILTER (to_time IS NULL) AS open FROM card_placements";
    let rows: Vec<Value> =
        serde_json::from_str(&takt.run(["sql", "--format", "json", sql]).ok()).unwrap();
    assert_eq!(
        (&rows[0]["cards"], &rows[0]["open"]),
        (&json!(3), &json!(3)),
        "{rows:?}"
    );

    takt.run(["card", "note", "1650001", "reseated in g2"]).ok();
    let error = takt.run(["card", "note", "1650009", "x"]).fails(2);
    assert!(
        error.contains("no card 1650009 is known; did you mean"),
        "{error}"
    );
    for path in ["/cards", "/gpus/GPU-1650001", "/cards.csv"] {
        let page = http_get(&format!("http://{address}{path}")).unwrap().body;
        assert!(
            page.contains("1650001") && page.contains("inspect"),
            "{path}: {page}"
        );
    }
    let page = http_get(&format!("http://{address}/gpus/GPU-1650001"))
        .unwrap()
        .body;
    assert!(page.contains("reseated in g2"), "{page}");

    // The driver's flag for a return is read within five minutes; a restart of the server reads it at once.
    two.append(&takt, "gpus", "gpu 1 remapped 0 9 0 1");
    server.stop();
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    server.wait_until("reading the flag for a return", SOON, || {
        show(&takt, "1650001").filter(|card| card["diagnosis"]["verdict"] == "return")
    });

    takt.run(["card", "bundle", "1650001", "-o", "card.tar.gz"])
        .ok();
    let error = takt
        .run(["card", "bundle", "1650001", "-o", "card.tar.gz"])
        .fails(2);
    assert!(error.contains("cannot create card.tar.gz"), "{error}");
    let packed = fs::read(takt.directory().join("card.tar.gz")).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
    archive.unpack(takt.directory()).unwrap();
    let folder = takt.directory().join("takt-card-1650001");
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    assert!(readme.starts_with("# Card 1650001: return\n"), "{readme}");
    assert!(!readme.contains("reseated"), "notes name people: {readme}");
    let xids = fs::read_to_string(folder.join("xid.csv")).unwrap();
    assert_eq!(
        xids.matches("GPU has fallen off the bus.").count(),
        2,
        "{xids}"
    );

    // What `sha256sum --check` checks.
    let sums = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let checked = std::process::Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(&folder)
        .status();
    assert!(checked.is_ok_and(|status| status.success()), "{sums}");

    server.stop();
    of_one.stop();
    of_two.stop();
}
