//! One question about the GPUs of the cluster: the page, the commands, the API, SQL and PromQL give the same counts.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::or_skip;
use crate::support::process::{free_port, http_get, wait_for};
use crate::support::prometheus::instant_query;
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::Takt;
use crate::support::target::{Page, scrape_target};

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(120);

/// The page of an exporter with these GPUs: state of NVML, and utilization if it is measured.
fn exporter(node: &str, gpus: &[(u8, Option<f64>)]) -> Page {
    let mut text = "takt_exporter_build_info{version=\"0.1.0\"} 1\n".to_owned();
    for (index, (up, utilization)) in gpus.iter().enumerate() {
        let uuid = format!("GPU-{node}-{index}");
        text += &format!(
            "takt_gpu_info{{uuid=\"{uuid}\",index=\"{index}\",minor=\"{index}\",model=\"A100\"}} 1\n\
             takt_gpu_up{{uuid=\"{uuid}\"}} {up}\n"
        );
        if let Some(ratio) = utilization {
            text += &format!("takt_gpu_utilization_ratio{{uuid=\"{uuid}\"}} {ratio}\n");
        }
    }
    ("text/plain; version=0.0.4", text)
}

fn node0(_: &str) -> Page {
    exporter("node0", &[(1, Some(0.9)), (1, Some(0.0))])
}

fn node1(_: &str) -> Page {
    exporter("node1", &[(1, Some(0.0)), (0, None)])
}

fn node2(_: &str) -> Page {
    exporter("node2", &[(1, Some(0.0)), (1, Some(0.0))])
}

fn outside(_: &str) -> Page {
    exporter("outside", &[(1, Some(0.0)), (1, None)])
}

/// Whether the exporter of the node `dark` still answers.
static ANSWERS: AtomicBool = AtomicBool::new(true);

fn dark(_: &str) -> Page {
    match ANSWERS.load(Ordering::Relaxed) {
        true => exporter("dark", &[(1, Some(0.5))]),
        false => ("text/plain; version=0.0.4", "{".to_owned()),
    }
}

/// What an exporter answers, by the path asked for.
type Exporter = fn(&str) -> Page;

#[test]
fn page_command_api_and_sql_count_the_gpus_of_each_state_alike() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutDbd)) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());
    let address = format!("127.0.0.1:{}", free_port());
    let targets: [(&str, Exporter); 5] = [
        ("node0", node0),
        ("node1", node1),
        ("node2", node2),
        ("outside", outside),
        ("dark", dark),
    ];
    let targets: String = targets
        .map(|(node, page)| {
            let address = scrape_target(page);
            format!("[[scrape.targets]]\naddress = \"{address}\"\nnode = \"{node}\"\n")
        })
        .concat();
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \"{address}\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\n\
             [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n{targets}"
        ),
    );

    // The job holds both GPUs of node0, and no exporter reports that.
    let job = lab.submit(
        "alice",
        &["-J", "train", "-w", "node0", "--gres=gpu:2", "-t", "9"],
        "sleep 600",
    );
    lab.wait_for_state(job, "RUNNING", SOON);
    for (node, state) in [("node1", "drain"), ("node2", "down")] {
        let node = format!("nodename={node}");
        let state = format!("state={state}");
        lab.run(&["scontrol", "update", &node, &state, "reason=fan"]);
    }
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let ask = |path: &str| http_get(&format!("http://{address}{path}")).ok();
    let api = || -> Option<Value> { serde_json::from_str(&ask("/api/takt/v1/cluster")?.body).ok() };

    // Until exporters answer, Slurm's GPUs of their nodes count, which may be as many.
    server.wait_until("the exporters", SOON, || {
        let answer = api()?;
        let has_dark = answer.to_string().contains("GPU-dark-0");
        (has_dark && answer["gpus"]["all"] == 9).then_some(())
    });
    ANSWERS.store(false, Ordering::Relaxed);

    // A job that began a moment ago has not been idle for five minutes.
    let expected: BTreeMap<String, u64> = [
        ("busy", 2),
        ("free", 1),
        ("lost", 1),
        ("down", 2),
        ("drained", 1),
        ("unknown", 2),
    ]
    .map(|(state, count)| (state.to_owned(), count))
    .into();
    server.wait_until("the states in the API", SOON, || {
        let counts = api()?["gpus"].clone();
        let is_it = |(state, count): (&String, &u64)| counts[state] == *count;
        (counts["all"] == 9 && expected.iter().all(is_it)).then_some(())
    });

    let listed: Vec<Value> =
        serde_json::from_str(&takt.run(["gpus", "--format", "json"]).ok()).unwrap();
    let count = |states: Vec<String>| {
        let mut counts = BTreeMap::new();
        for state in states {
            *counts.entry(state).or_insert(0_u64) += 1;
        }
        counts
    };
    let states = listed
        .iter()
        .map(|gpu| gpu["state"].as_str().unwrap().to_owned());
    assert_eq!(count(states.collect()), expected, "{listed:?}");
    let held = listed.iter().filter(|gpu| gpu["user"] == "alice");
    let held: Vec<_> = held
        .map(|gpu| (&gpu["uuid"], &gpu["job_name"], &gpu["is_allocated_only"]))
        .collect();
    assert_eq!(
        held,
        [
            (&"GPU-node0-0".into(), &"train".into(), &true.into()),
            (&"GPU-node0-1".into(), &"train".into(), &true.into()),
        ]
    );
    let overview = takt.run(["--config", "takt.toml"]).ok();
    let line = "9: 1 lost, 2 down, 1 drained, 2 busy, 1 free, 2 not measured";
    assert!(overview.contains(line), "{overview}");

    let page = ask("/").unwrap().body;
    for (name, count) in [
        ("busy", 1),
        ("at low use", 1),
        ("held and idle", 0),
        ("free", 1),
        ("drained", 1),
        ("down or lost", 3),
        ("not measured", 2),
    ] {
        let shown = format!("<b>{count}</b> {name}");
        assert!(page.contains(&shown), "no {shown} in {page}");
    }
    assert!(page.contains("2 of 9 GPUs work."), "{page}");

    // The series are written every fifteen seconds.
    let in_sql = "SELECT state, count(*) AS n FROM gpus WHERE state IS NOT NULL GROUP BY ALL";
    wait_for("the states in SQL", SOON, || {
        let rows = takt.run(["sql", "--format", "json", in_sql]).ok();
        let rows: Vec<Value> = serde_json::from_str(&rows).ok()?;
        let counts = rows.iter().map(|row| {
            let state = row["state"].as_str().unwrap_or_default().to_owned();
            (state, row["n"].as_u64().unwrap_or_default())
        });
        (counts.collect::<BTreeMap<_, _>>() == expected).then_some(())
    });
    let by_state = instant_query(
        &format!("http://{address}"),
        "count by (state) (takt_cluster_gpu_state)",
    );
    assert_eq!(by_state.unwrap().len(), expected.len());
    server.stop();
}
