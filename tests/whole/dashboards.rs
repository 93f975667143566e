//! Every panel of the dashboards returns data: PromQL panels from Debian's Prometheus that scrapes
//! our exporter, SQL panels from our server.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::or_skip;
use crate::support::process::{free_port, http_get};
use crate::support::prometheus::{Prometheus, Target};
use crate::support::takt::Takt;

/// Returns the queries of one kind (`expr` or `rawSql`) with the file and the title of their panel.
fn questions(kind: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards/grafana");
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let board: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap_or(&Vec::new()) {
                if let Some(question) = target[kind].as_str() {
                    let name = format!(
                        "{}: {}",
                        path.file_name().unwrap().display(),
                        panel["title"].as_str().unwrap()
                    );
                    found.push((name, question.to_owned()));
                }
            }
        }
    }
    assert!(found.len() > 5, "{found:?}");
    found
}

fn stand_in() -> PathBuf {
    let library = Path::new(env!("CARGO_BIN_EXE_takt")).with_file_name("libnvml_stand_in.so");
    assert!(
        library.exists(),
        "{} is missing; cargo build -p nvml-stand-in",
        library.display()
    );
    library
}

/// The efficiency of runs is computed from series that an exporter must declare.
#[test]
fn the_exporter_declares_what_efficiency_reads() {
    let options = takt_exporter::Options::default();
    let collectors = takt_exporter::COLLECTORS
        .iter()
        .map(|entry| (entry.new)(&options));
    let declared: Vec<_> = collectors
        .flat_map(|collector| collector.metrics())
        .map(|metric| metric.name)
        .collect();
    for metric in takt_accounting::efficiency::METRICS {
        assert!(declared.contains(metric), "no collector declares {metric}");
    }
}

#[test]
fn every_metric_panel_has_data() {
    let takt = Takt::fresh();
    let script = takt.file("gpus.txt", "profile rtx5090 2\n");
    let takt = takt.with_environment([(
        "NVML_STAND_IN_SCRIPT".to_owned(),
        script.display().to_string(),
    )]);
    let address = format!("127.0.0.1:{}", free_port());
    let library = stand_in().display().to_string();
    let mut exporter = takt.start([
        "exporter",
        "--web.listen-address",
        &address,
        "--nvml.library",
        &library,
    ]);
    let page = format!("http://{address}/metrics");
    exporter.wait_until("showing GPUs", Duration::from_secs(20), || {
        http_get(&page)
            .ok()
            .filter(|page| page.body.contains("takt_gpu_energy_joules_total"))
    });
    let labels = [("cluster", "lab"), ("node", "n1")];
    let target = Target {
        job: "node",
        address: &address,
        labels: &labels,
    };
    let Some(mut prometheus) = or_skip(Prometheus::start(&[target])) else {
        return;
    };
    prometheus.wait_for_scrapes(5);

    let mut empty = Vec::new();
    for (name, question) in questions("expr") {
        let promql = question
            .replace("$cluster", ".*")
            .replace("$node", "n1")
            .replace("$__rate_interval", "10s");
        match prometheus.query(&promql) {
            Ok(samples) if !samples.is_empty() => {}
            answer => empty.push(format!("{name}\n  {promql}\n  {answer:?}")),
        }
    }
    assert!(
        empty.is_empty(),
        "panels without data:\n{}",
        empty.join("\n")
    );
}

#[test]
fn every_usage_panel_has_data() {
    let takt = Takt::fresh();
    takt.file(
        "jobs.txt",
        "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw\n\
         1|alice|a|gpu|2026-10-01T10:00:00|2026-10-01T10:01:00|2026-10-01T12:01:00|COMPLETED|cpu=8,gres/gpu=2,node=1|1|8|n1|7200\n\
         2|bob|b|gpu|2026-10-02T10:00:00|2026-10-02T10:01:00|Unknown|RUNNING|cpu=4,node=1|1|4|n1|0\n",
    );
    takt.run([
        "import",
        "sacct",
        "jobs.txt",
        "--timezone",
        "UTC",
        "--cluster",
        "lab",
    ])
    .ok();
    for (name, question) in questions("rawSql") {
        // The macros as Grafana's PostgreSQL data source expands them.
        let sql = question
            .replace("$__timeFrom()", "'2026-10-01T00:00:00.000000000Z'")
            .replace("$__timeTo()", "'2026-10-31T23:59:59.999Z'");
        let answer = takt.run(["sql", "--format", "json", &sql]).ok();
        let rows: Vec<Value> = serde_json::from_str(&answer).unwrap();
        assert!(
            !rows.is_empty()
                && rows
                    .iter()
                    .any(|row| row.as_object().unwrap().values().any(|v| !v.is_null())),
            "{name}\n{sql}"
        );
    }
    let hours = questions("rawSql")
        .into_iter()
        .find(|(name, _)| name.ends_with("By user"))
        .unwrap()
        .1;
    let sql = hours
        .replace("$__timeFrom()", "'2026-10-01T11:00:00Z'")
        .replace("$__timeTo()", "'2026-10-02T12:01:00Z'");
    let answer: Vec<Value> =
        serde_json::from_str(&takt.run(["sql", "--format", "json", &sql]).ok()).unwrap();
    // Alice: 61 of her 120 minutes on two GPUs; Bob, still running: two hours on four CPUs.
    assert_eq!(answer[0]["gpu_hours"], 122.0 / 60.0);
    assert_eq!(
        (&answer[1]["user"], &answer[1]["cpu_hours"]),
        (&"bob".into(), &8.0.into())
    );
}
