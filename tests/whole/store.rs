//! `takt store`, and the faults that stored samples survive, with the real program.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use std::collections::HashSet;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::mount::Mount;
use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::takt::Takt;
use crate::support::{need_file, need_program, need_root, or_skip};
use std::fs;

const SOON: Duration = Duration::from_secs(60);

/// Starts a server that scrapes an exporter twice a second. Returns when some samples are durable.
fn serve(takt: &Takt) -> (Daemon, Daemon, String) {
    serve_with(takt, "")
}

/// As [`serve`], with lines for `[store]`.
fn serve_with(takt: &Takt, store: &str) -> (Daemon, Daemon, String) {
    // One exporter as two nodes: half of the samples can be deleted and counted.
    let node = format!("127.0.0.1:{}", free_port());
    let command = takt.command(["exporter", "--web.listen-address", &node]);
    let exporter = Daemon::start("exporter", command, &takt.directory().join("exporter.log"));
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\n[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = \
             false\n[store]\n{store}\n\
             [scrape]\ninterval_seconds = 0.5\ntimeout_seconds = 0.5\n\
             [[scrape.targets]]\naddress = \"{node}\"\nnode = \"g01\"\n[[scrape.targets]]\naddress \
             = \"{node}\"\nnode = \"g02\"\n"
        ),
    );
    let mut server = start(takt);
    server.wait_until("storing samples", SOON, || {
        (metric(&address, "takt_store_samples_total")? > 3000.0).then_some(())
    });
    (exporter, server, address)
}

fn start(takt: &Takt) -> Daemon {
    takt.start(["serve", "--config", "takt.toml"])
}

fn metric(address: &str, name: &str) -> Option<f64> {
    http_get(&format!("http://{address}/metrics"))
        .ok()?
        .body
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?
        .parse()
        .ok()
}

fn json(takt: &Takt, arguments: &[&str]) -> Value {
    serde_json::from_str(&takt.run(arguments).ok()).unwrap()
}

fn samples(takt: &Takt) -> i64 {
    json(
        takt,
        &[
            "sql",
            "--format",
            "json",
            "SELECT count(*) AS n FROM samples",
        ],
    )[0]["n"]
        .as_i64()
        .unwrap()
}

const SEAL: [&str; 4] = ["store", "seal", "--format", "json"];
const STAT: [&str; 4] = ["store", "stat", "--format", "json"];

#[test]
fn blocks_are_sealed_verified_and_deleted_by_the_server_and_without_one() {
    let takt = Takt::fresh();
    let (_exporter, mut server, _) = serve(&takt);
    // Sealed by the running server, which alone has the samples in memory.
    let kept = json(&takt, &SEAL);
    assert!(kept["rows"].as_u64().unwrap() > 1000, "{kept}");
    assert_eq!(
        json(&takt, &["store", "verify", "--format", "json"]),
        Value::Array(Vec::new())
    );
    let stat = json(&takt, &STAT);
    assert_eq!(stat["blocks"].as_array().unwrap().len(), 1);

    // While the server keeps scraping: no sample of the other node is deleted.
    // A malformed selector deletes nothing, least of all everything.
    let said = takt.run(["store", "delete", "--node", "g02"]).fails(2);
    assert!(
        said.contains("this deletes every stored sample of {node=\"g02\"} for good; say --yes"),
        "{said}"
    );
    let deleted = json(
        &takt,
        &[
            "store", "delete", "--node", "g02", "--yes", "--format", "json",
        ],
    );
    assert!(deleted["rows"].as_u64().unwrap() > 500, "{deleted}");
    server.wait_until("storing samples after the first block", SOON, || {
        (json(&takt, &STAT)["hot_samples"].as_u64()? > 0).then_some(())
    });
    server.stop();

    // Without a server the answer is the same.
    json(&takt, &SEAL);
    let stat = json(&takt, &STAT);

    // Samples between the first sealing and the deletion make one more block.
    assert!(
        stat["blocks"].as_array().unwrap().len() >= 2 && stat["hot_samples"] == 0,
        "{stat}"
    );
    let before = samples(&takt);

    // Samples of the node since the first deletion are deleted, too, if there are any.
    let again = takt.run(["store", "delete", "--selector", "{node=\"g02\"}", "--yes"]);
    let had_none = again.stderr.contains("so nothing was deleted");
    assert_eq!(again.code, Some(i32::from(had_none)), "{}", again.stderr);
    let sql = "SELECT count(DISTINCT json_extract_string(labels, '$.node')) AS n FROM samples";
    assert_eq!(json(&takt, &["sql", "--format", "json", sql])[0]["n"], 1);
    assert!(samples(&takt) <= before, "deleting makes no samples");
    let said = takt
        .run(["store", "delete", "--selector", "up{", "--yes"])
        .fails(2);
    assert!(
        said.contains("parse error") || said.contains("unexpected"),
        "{said}"
    );
    takt.run(["store", "verify"]).ok();

    // A damaged file is named, and the exit code is 1.
    let stat = json(&takt, &STAT);
    let name = stat["blocks"][0]["name"].as_str().unwrap();
    let file = takt
        .data_directory()
        .join("blocks/raw")
        .join(name)
        .join("samples.parquet");
    let mut content = fs::read(&file).unwrap();
    // A bit in the middle: the ends of a Parquet file are checked by any reader.
    let middle = content.len() / 2;
    content[middle] ^= 0x40;
    fs::write(&file, content).unwrap();
    let run = takt.run(["store", "verify"]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stdout.contains(name) && run.stderr.contains("damaged blocks: 1"),
        "{run:?}"
    );
}

#[test]
fn the_program_may_die_at_any_step_of_sealing() {
    let takt = Takt::fresh();
    let (_exporter, mut server, _) = serve(&takt);
    server.stop();
    let expected = samples(&takt);
    assert!(expected > 3000);
    for step in ["written", "verified", "durable", "renamed"] {
        let status = takt
            .command(SEAL)
            .env("TAKT_CRASH_AT", step)
            .output()
            .unwrap()
            .status;
        // It died of a signal, so the step exists.
        assert_eq!(status.code(), None, "{step}");
        assert_eq!(samples(&takt), expected, "after dying when {step}");
    }

    // Neither is a half-written block taken for one, nor are its samples sealed twice.
    json(&takt, &SEAL);
    assert_eq!(samples(&takt), expected);
    takt.run(["store", "verify"]).ok();
    assert_eq!(json(&takt, &STAT)["hot_samples"], 0);
}

/// Damaged files are renamed, logged and counted. The server starts with the rest.
#[test]
fn a_damaged_log_and_a_damaged_block_are_set_aside_by_name() {
    let takt = Takt::fresh();
    let (_exporter, mut server, address) = serve(&takt);
    json(&takt, &SEAL);
    let stat = json(&takt, &STAT);
    let block = &stat["blocks"][0];
    server.wait_until("storing samples after the block", SOON, || {
        (json(&takt, &STAT)["hot_samples"].as_u64()? > 3000).then_some(())
    });
    // Killed: an orderly end would leave less in the logs.
    server.kill();
    let mut logs: Vec<_> = fs::read_dir(takt.data_directory().join("unsealed"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == "log"))
        .collect();
    logs.sort();
    let log = logs.pop().unwrap();
    let mut content = fs::read(&log).unwrap();
    let middle = content.len() / 2;
    content[middle..middle + 64].fill(0x5a);
    fs::write(&log, content).unwrap();

    let is_counted = |server: &mut Daemon, name: &str, files: f64| {
        server.wait_until("storing samples again", SOON, || {
            (metric(&address, "takt_store_samples_total")? > 0.0).then_some(())
        });
        let counted = metric(&address, "takt_store_damaged_files");
        assert_eq!(counted, Some(files));
        let said = server.log();
        let aside = said
            .lines()
            .find(|line| line.contains("set a damaged file aside") && line.contains(name));
        assert!(
            aside.is_some_and(|line| line.contains(".damaged-")),
            "{said}"
        );
    };
    let mut server = start(&takt);
    is_counted(&mut server, ".log", 1.0);
    // The block is whole, whatever the log has lost.
    assert!(samples(&takt) >= block["rows"].as_i64().unwrap());
    server.stop();

    let path = takt
        .data_directory()
        .join("blocks/raw")
        .join(block["name"].as_str().unwrap());
    // Only its first bytes are left, as after a power failure.
    fs::OpenOptions::new()
        .write(true)
        .open(path.join("samples.parquet"))
        .unwrap()
        .set_len(100)
        .unwrap();
    let mut server = start(&takt);
    is_counted(&mut server, block["name"].as_str().unwrap(), 2.0);
    assert!(!path.exists() && samples(&takt) > 0);
}

/// The disk is full while samples are sealed, and for some time afterwards.
#[test]
fn a_disk_that_is_full_while_samples_are_sealed_loses_none() {
    let Some(()) = or_skip(need_root()) else {
        return;
    };
    let takt = Takt::fresh();
    let mount = Mount::tmpfs(&takt.data_directory(), "size=64m");
    let (_exporter, mut server, _) = serve_with(&takt, "min_free_bytes = 0\n");

    // Later samples may have earlier times: results of rules have the time of their evaluation.
    let stored = || {
        let sql = "SELECT metric, labels::VARCHAR, epoch_ms(ts) FROM samples";
        let run = takt.run(["sql", "--format", "csv", sql]);
        (run.code == Some(0)).then(|| run.stdout.lines().map(String::from).collect::<Vec<_>>())
    };

    let before = stored().unwrap();
    let are_kept = |now: Vec<String>| {
        let distinct: HashSet<_> = now.iter().collect();
        assert_eq!(distinct.len(), now.len(), "samples were stored twice");
        let lost: Vec<_> = before
            .iter()
            .filter(|row| !distinct.contains(row))
            .collect();
        assert!(lost.is_empty(), "lost {lost:?}");
    };
    mount.fill();
    let said = server.wait_until("failing to seal", SOON, || {
        let run = takt.run(SEAL);
        // The rest of the disk may hold a small block.
        (run.code != Some(0)).then_some(run.stderr)
    });
    assert!(
        said.contains("No space left") || said.contains("less than"),
        "{said}"
    );
    server.wait_until("saying that samples wait", SOON, || {
        server_says(&takt, "samples cannot be written").then_some(())
    });
    assert!(server.is_running());
    // Nothing has to be started again.
    mount.free();
    server.wait_until("sealing again", SOON, || {
        (takt.run(SEAL).code == Some(0)).then_some(())
    });
    are_kept(server.wait_until("answering", SOON, stored));
    takt.run(["store", "verify"]).ok();

    // From the files alone, the answer is the same.
    server.stop();
    are_kept(stored().unwrap());
}

fn server_says(takt: &Takt, words: &str) -> bool {
    fs::read_to_string(takt.directory().join("takt.log")).is_ok_and(|log| log.contains(words))
}

/// The file system turns read-only, as ext4 does after an error. The server logs it and keeps
/// answering. All durable samples are there after the repair.
#[test]
fn a_file_system_that_turns_read_only_loses_nothing_up_to_the_watermark() {
    let Some(()) = or_skip(need_root().and_then(|()| need_program("mkfs.ext4").map(drop))) else {
        return;
    };
    let takt = Takt::fresh();
    let image = takt.directory().join("disk.img");
    let mount = Mount::ext4(&takt.data_directory(), &image, 128 << 20);
    let (_exporter, mut server, address) = serve_with(&takt, "min_free_bytes = 0\n");
    json(&takt, &SEAL);
    let watermark = server.wait_until("publishing a watermark", SOON, || {
        metric(&address, "takt_store_watermark_timestamp_seconds").filter(|seconds| *seconds > 0.0)
    });
    let sql = format!(
        "SELECT count(*) AS n FROM samples WHERE epoch_ms(ts) <= {}",
        (watermark * 1000.0) as i64
    );
    let count = |takt: &Takt| {
        json(takt, &["sql", "--format", "json", &sql])[0]["n"]
            .as_i64()
            .unwrap()
    };
    let expected = count(&takt);
    assert!(expected > 3000);
    // As after an error of the disk: ext4 gives up its journal and refuses writes.
    mount.again("abort");
    server.wait_until("saying that samples wait", SOON, || {
        (server_says(&takt, "samples cannot be written") || server_says(&takt, "became invalid"))
            .then_some(())
    });
    assert!(
        server_says(&takt, "Read-only file system") || server_says(&takt, "Input/output error"),
        "{}",
        server.log()
    );
    server.kill();
    drop(mount);

    // The repair, as at a boot.
    let _mount = Mount::ext4(&takt.data_directory(), &image, 0);
    let mut server = start(&takt);
    server.wait_until("storing samples again", SOON, || {
        (metric(&address, "takt_store_samples_total")? > 0.0).then_some(())
    });

    // Results of rules have the time of their evaluation and may arrive after the watermark has
    // passed it.
    let found = count(&takt);
    assert!(found >= expected, "{found} of {expected}");
    takt.run(["store", "verify"]).ok();
}

/// DuckDB invalidates a database when a checkpoint fails. The server opens it again and continues
/// with the durable data.
#[test]
fn a_fatal_error_of_the_database_makes_the_server_reopen_it() {
    let takt = Takt::fresh();
    let (_exporter, mut server, address) = serve(&takt);
    server.stop();

    // The series of one more node go into DuckDB's log, which the checkpoint writes back.
    let config = takt.directory().join("takt.toml");
    let text = fs::read_to_string(&config).unwrap();
    let target = text.lines().rfind(|line| line.starts_with("address"));
    let more = format!(
        "{text}[[scrape.targets]]\n{}\nnode = \"g03\"\n",
        target.unwrap()
    );
    fs::write(&config, more).unwrap();

    // A write beyond the file size limit fails, as on a full disk. The shell ignores the signal
    // SIGXFSZ for the server.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        r#"trap "" XFSZ; exec "$0" "$@""#,
        env!("CARGO_BIN_EXE_takt"),
        "serve",
        "--config",
        "takt.toml",
    ]);
    command
        .current_dir(takt.directory())
        .env("TAKT_DATA_DIR", takt.data_directory());
    let log = takt.directory().join("again.log");
    let mut server = Daemon::start("takt", command, &log);
    server.wait_until("storing samples", SOON, || {
        (metric(&address, "takt_store_samples_total")? > 1000.0).then_some(())
    });
    let before = samples(&takt);

    // The log and the undo file, with one block, can be written; a second block cannot.
    limit_files(&server, Some(300_000));
    server.wait_until("opening the database anew", SOON, || {
        // This asks for a checkpoint.
        takt.run(SEAL);
        fs::read_to_string(&log)
            .is_ok_and(|log| log.contains("reopening it"))
            .then_some(())
    });
    // The disk has space again.
    limit_files(&server, None);
    server.wait_until("having more samples than before", SOON, || {
        let run = takt.run([
            "sql",
            "--format",
            "json",
            "SELECT count(*) AS n FROM samples",
        ]);
        let rows: Value = serde_json::from_str(&run.stdout).ok()?;
        (rows[0]["n"].as_i64()? > before).then_some(())
    });
    assert!(server.is_running());
}

/// The clock is set forward and back by an hour, twice. No stored sample is lost and no timestamp
/// is used twice. Samples are stored again soon after each step, not only once the clock has caught
/// up.
#[test]
fn samples_are_stored_after_a_clock_change() {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    let Some(()) = or_skip(need_file(library, "libfaketime")) else {
        return;
    };
    let takt = Takt::fresh();
    let (_exporter, mut server, address) = serve(&takt);
    server.stop();
    let set_clock = |hours: i64| {
        // Renamed into place, since the server reads the file at each look at the clock.
        takt.file("clock.new", format!("{hours:+}h"));
        fs::rename(
            takt.directory().join("clock.new"),
            takt.directory().join("clock"),
        )
        .unwrap();
    };
    set_clock(0);
    let mut command = takt.command(["serve", "--config", "takt.toml"]);
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", takt.directory().join("clock"));
    command
        // Waits and timeouts use the monotonic clock, which a change of the time leaves alone.
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let mut server = Daemon::start("takt", command, &takt.directory().join("takt.log"));

    let mut expected = samples(&takt);
    for hours in [1, 0, -1, 0] {
        set_clock(hours);
        let shown = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64()
            + hours as f64 * 3600.0;
        let what = format!("storing samples by a clock that is {hours:+} h wrong");
        // Three seconds after the change, so that samples of the previous clock do not count.
        let newest = server.wait_until(&what, SOON, || {
            let sql = format!(
                "SELECT count(*) AS n, epoch_ms(max(ts)) / 1000 AS newest FROM samples \
                 WHERE epoch_ms(ts) / 1000 BETWEEN {shown} + 3 AND {shown} + 600"
            );
            let run = takt.run(["sql", "--format", "json", &sql]);
            let rows: Value = serde_json::from_str(&run.stdout).ok()?;
            (rows[0]["n"].as_i64()? > 500).then(|| rows[0]["newest"].as_f64())?
        });
        let query = "count(up%7Bnode%3D%22g01%22%7D%20%3D%3D%201)";
        let answer = http_get(&format!(
            "http://{address}/api/v1/query?query={query}&time={newest}"
        ))
        .unwrap()
        .body;
        assert!(answer.contains(r#""value""#), "{hours:+} h: {answer}");
        let now = samples(&takt);
        assert!(now > expected, "{now} after {expected}, {hours:+} h");
        expected = now;
    }
    assert_eq!(
        server.log().matches("the clock was set back").count(),
        2,
        "{}",
        server.log()
    );
    json(&takt, &SEAL);
    server.stop();
    assert!(samples(&takt) >= expected);

    // When the clock goes back, an hour of timestamps has been used already.
    let twice = "SELECT count(*) AS n FROM (SELECT 1 FROM samples GROUP BY metric, labels, ts \
         HAVING count(*) > 1)";
    assert_eq!(json(&takt, &["sql", "--format", "json", twice])[0]["n"], 0);
    takt.run(["store", "verify"]).ok();
}

fn limit_files(server: &Daemon, bytes: Option<u64>) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: bytes.or(maximum),
        maximum,
    };
    prlimit(
        Pid::from_raw(server.pid().cast_signed()),
        Resource::Fsize,
        limit,
    )
    .unwrap();
}

/// A backup is killed while its copy lies in the data directory; then the server, too.
#[test]
fn a_killed_backup_leaves_nothing_behind() {
    let takt = Takt::fresh();
    let (_exporter, mut server, _) = serve(&takt);
    let copy = takt.data_directory().join("snapshot");
    let [to, unfinished] = ["backup", "backup.unfinished"].map(|name| takt.directory().join(name));
    let kill_one = || {
        // A backup that was faster than the look is repeated.
        while !copy.exists() {
            let _ = fs::remove_dir_all(&to);
            let mut backup = takt.command(["backup", "--to", "backup"]).spawn().unwrap();
            while !copy.exists() && backup.try_wait().unwrap().is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            backup.kill().unwrap();
            backup.wait().unwrap();
        }
    };

    kill_one();
    takt.run(["backup", "--to", "backup"]).ok();
    assert!(!copy.exists() && !unfinished.exists() && to.exists());

    // Now the server dies, too, and the next one has to clear the copy away.
    fs::remove_dir_all(&to).unwrap();
    kill_one();
    server.kill();
    assert!(copy.exists());
    let _server = start(&takt);
    wait_for("the end of the copy", SOON, || {
        (!copy.exists()).then_some(())
    });
    takt.run(["backup", "--to", "backup"]).ok();
    assert!(!unfinished.exists());
}

/// A restore is killed while it copies: no server finds a part of the data, and the next one succeeds.
#[test]
fn a_killed_restore_is_no_store_and_can_be_repeated() {
    let takt = Takt::fresh();
    let (_exporter, mut server, _) = serve(&takt);
    json(&takt, &SEAL);
    takt.run(["backup", "--to", "backup"]).ok();
    server.stop();
    let from = takt.directory().join("backup");
    let from = from.to_str().unwrap();
    let restored = Takt::fresh();
    let [unfinished, records] =
        ["restore.unfinished", "records.duckdb"].map(|name| restored.data_directory().join(name));
    // Milliseconds of copying before the kill, to meet different files.
    for wait in [0, 1, 2, 5, 10, 20, 40] {
        let mut restore = restored
            .command(["restore", "--from", from])
            .spawn()
            .unwrap();
        while !unfinished.exists() && restore.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_millis(wait));
        restore.kill().unwrap();
        restore.wait().unwrap();

        // The records are moved last.
        if records.exists() {
            break;
        }
    }
    if !records.exists() {
        restored.run(["restore", "--from", from]).ok();
        assert!(!unfinished.exists());
    }
    assert!(samples(&restored) > 1000);
    restored.run(["store", "verify"]).ok();
}
