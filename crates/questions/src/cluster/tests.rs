use super::*;
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use takt_access::{Privacy, Way};
use takt_jobs::{Amounts, Entry, JobRun, Node};
use takt_model::METRIC_NAME;
use takt_store::{Corrections, DataDir, HeldGpu, Origin, STALE, Shifted, StoreConfig};
use tempfile::{TempDir, tempdir};

/// Labels of a series, and its values in two scrapes.
type TwoScrapes = (Vec<(&'static str, &'static str)>, f64, f64);

/// Series of a node: its exporter's, with these values.
fn of(
    node: &'static str,
    metric: &'static str,
    more: &[(&'static str, &'static str)],
    values: (f64, f64),
) -> TwoScrapes {
    let own = [
        (METRIC_NAME, metric),
        ("node", node),
        ("instance", node),
        ("job", "takt"),
    ];
    ([&own[..], more].concat(), values.0, values.1)
}

/// A GPU whose `takt_gpu_up` and utilization have these values in the second scrape.
fn gpu(
    node: &'static str,
    uuid: &'static str,
    index: &'static str,
    up: f64,
    utilization: f64,
) -> Vec<TwoScrapes> {
    let kept = if up.is_nan() { STALE } else { 1.0 };
    let info = [("uuid", uuid), ("index", index), ("minor", index)];
    vec![
        of(node, "takt_gpu_info", &info, (1.0, kept)),
        of(node, "takt_gpu_up", &[("uuid", uuid)], (1.0, up)),
        of(
            node,
            "takt_gpu_utilization_ratio",
            &[("uuid", uuid)],
            (0.0, utilization),
        ),
    ]
}

fn store() -> (TempDir, Box<Store>) {
    let root = tempdir().unwrap();
    let config = StoreConfig {
        min_free_bytes: 0,
        ..StoreConfig::default()
    };
    let dir = DataDir::claim(root.path()).unwrap();
    let store = Store::open(dir, &config, &mut Registry::default()).unwrap();
    (root, Box::new(store))
}

/// Stores two scrapes.
fn scrape(store: &Store, series: &[TwoScrapes]) {
    let now = UnixTime::from(SystemTime::now());
    scrape_at(store, series, &[(now - 20, false), (now - 10, true)]);
}

/// Stores scrapes of these times, with the second values or the first.
fn scrape_at(store: &Store, series: &[TwoScrapes], times: &[(UnixTime, bool)]) {
    let group = store.group();
    let columns: Vec<_> = series
        .iter()
        .map(|(labels, ..)| {
            let mut labels: Labels = labels.iter().copied().collect();
            labels.set("cluster", "lab");
            group.column(&labels).unwrap()
        })
        .collect();
    for (at, is_second) in times.iter().copied() {
        let mut row = vec![STALE; group.width()];
        for (column, (_, one, two)) in columns.iter().zip(series) {
            row[column.index()] = if is_second { *two } else { *one };
        }
        let ticket = group.ticket(at.into()).unwrap();
        group.commit(ticket, &row, &[]).unwrap();
    }
    store.flush();
}

/// Stores 121 scrapes of the last half hour, with the second values after so many steps, and fills the strips.
fn scrape_half_hour(store: &Store, series: &[TwoScrapes], first_steps: i64) {
    let now = UnixTime::from(SystemTime::now());
    let times: Vec<_> = (0..=120)
        .map(|step| (now - 1810 + 15 * step, step > first_steps))
        .collect();
    scrape_at(store, series, &times);
    store.fill_strips(now.into()).unwrap();
}

/// Notes jobs of ann that have run for 400 seconds, and the GPUs that Slurm has allocated to them.
fn run_jobs(store: &Store, held: &[(&str, &str, u32)]) {
    run_jobs_for(store, held, 400);
}

/// Notes jobs of ann that have run for so many seconds, and the GPUs that Slurm has allocated to them.
fn run_jobs_for(store: &Store, held: &[(&str, &str, u32)], seconds: i64) {
    let records = Records::of(store.database());
    let now = UnixTime::from(SystemTime::now());
    let origin = Origin {
        source: "sacct",
        name: "test",
        timezone: None,
        complete_until: None,
        shifted: Shifted::Refuse,
        corrections: Corrections::Accept,
    };
    let entries: Vec<_> = held
        .iter()
        .map(|(id, ..)| {
            Ok::<_, Infallible>(Entry::Run(JobRun {
                cluster: "lab".into(),
                job_id: (*id).into(),
                raw_job_id: Some((*id).into()),
                submit: now - seconds - 10,
                start: Some(now - seconds),
                state: "RUNNING".into(),
                user: "ann".into(),
                name: Some("train".into()),
                ..JobRun::default()
            }))
        })
        .collect();
    records.import(&origin, entries).unwrap();
    let held: Vec<HeldGpu> = held
        .iter()
        .map(|(job, node, index)| HeldGpu {
            job_id: (*job).into(),
            submit: now - seconds - 10,
            node: (*node).into(),
            index: *index,
        })
        .collect();
    records.note_held_gpus("lab", &held, now, 60).unwrap();
}

fn asked(store: &Store, viewer: &Viewer) -> ClusterAnswer {
    let question = ClusterQuestion::default();
    question
        .answer(viewer, store, &AnswerConfig::default())
        .unwrap()
}

/// A node of Slurm with so many GPUs.
fn slurm_node(name: &str, state: &str, gpus: u64) -> Node {
    Node {
        node: name.into(),
        state: state.into(),
        has: Amounts {
            gpus,
            ..Amounts::default()
        },
        counts_gpus: true,
        reason: None,
        reason_by: None,
        reason_at: None,
        partitions: Vec::new(),
        gpu_model: None,
    }
}

/// UUID, state, users and reason of each GPU.
fn shown(answer: &ClusterAnswer) -> Vec<(&str, GpuState, String, &str)> {
    let gpus = answer.nodes.iter().flat_map(|node| &node.gpus);
    gpus.map(|gpu| {
        let users: Vec<&str> = gpu
            .holders
            .iter()
            .map(|one| one.holder.user.as_str())
            .collect();
        let reason = gpu.reason.as_deref().unwrap_or_default();
        (gpu.uuid.as_str(), gpu.state, users.join(" "), reason)
    })
    .collect()
}

/// A job that started a minute ago has not been idle for five minutes, whatever the GPU did before.
#[test]
fn a_job_that_has_just_started_is_not_idle() {
    let (_root, store) = store();
    scrape(&store, &gpu("g01", "gpu", "0", 1.0, 0.0));
    run_jobs_for(&store, &[("7", "g01", 0)], 60);
    let answer = asked(&store, &Viewer::server());
    assert_eq!(answer.nodes[0].gpus[0].state, GpuState::Busy);
    assert_eq!((answer.gpus.idle, answer.idle.len()), (0, 0));
}

/// What was read before a node fell silent says nothing about now.
#[test]
fn a_silent_node_has_no_readings() {
    let (_root, store) = store();
    let cpu = [("mode", "idle"), ("cpu", "0")];
    let mut series = Vec::new();
    for (node, up) in [("g01", 1.0), ("g02", 0.0)] {
        series.extend([
            of(node, "up", &[], (1.0, up)),
            of(node, "node_cpu_seconds_total", &cpu, (1.0, 3.0)),
            of(node, "node_memory_MemTotal_bytes", &[], (64.0, 64.0)),
            of(node, "node_memory_MemAvailable_bytes", &[], (16.0, 16.0)),
        ]);
    }
    scrape(&store, &series);

    let answer = asked(&store, &Viewer::server());
    let read: Vec<_> = answer
        .nodes
        .iter()
        .map(|node| {
            (
                node.cpu_busy_ratio.is_some(),
                node.memory_used_bytes.is_some(),
            )
        })
        .collect();
    assert_eq!(read, [(true, true), (false, false)]);
}

/// A second target of a node, such as dcgm-exporter, does not answer.
#[test]
fn a_node_answers_if_one_of_its_exporters_does() {
    let (_root, store) = store();
    let dcgm = [("job", "dcgm")];
    let series = [
        of("g01", "up", &[], (1.0, 1.0)),
        of("g01", "up", &dcgm, (1.0, 0.0)),
        of("g02", "up", &[], (1.0, 0.0)),
        of("g02", "up", &dcgm, (1.0, 0.0)),
    ];
    scrape(&store, &series);
    let answer = asked(&store, &Viewer::server());
    let up: Vec<bool> = answer.nodes.iter().map(|node| node.is_up).collect();
    assert_eq!(up, [true, false]);
    assert_eq!(answer.nodes_up, 1);
}

/// A job of ann got a GPU nearly seven minutes ago that another job had left idle for half an hour.
#[test]
fn a_job_is_idle_for_its_own_time_only() {
    let (_root, store) = store();
    let job = |id| [("uuid", "gpu"), ("jobid", id), ("user", "ann")];
    let mut series = gpu("g01", "gpu", "0", 1.0, 0.0);
    series.extend([
        of("g01", "takt_gpu_job_info", &job("6"), (1.0, STALE)),
        of("g01", "takt_gpu_job_info", &job("7"), (STALE, 1.0)),
    ]);
    scrape_half_hour(&store, &series, 94);
    run_jobs(&store, &[("7", "g01", 0)]);

    let answer = asked(&store, &Viewer::server());
    let gpu = &answer.nodes[0].gpus[0];
    assert_eq!(gpu.state, GpuState::Idle);
    let idle = gpu.idle_seconds.unwrap();
    assert!((400..460).contains(&idle), "{idle}");
    assert_eq!(answer.idle[0].idle_seconds, idle);
}

/// A process outside of jobs has been on the GPU for nearly seven minutes, after a job that left it idle.
#[test]
fn a_process_is_idle_for_its_own_time_only() {
    let (_root, store) = store();
    let job = [("uuid", "gpu"), ("jobid", "6"), ("user", "bob")];
    let process = [("uuid", "gpu"), ("user", "ann")];
    let mut series = gpu("g01", "gpu", "0", 1.0, 0.0);
    series.extend([
        of("g01", "takt_gpu_job_info", &job, (1.0, STALE)),
        of(
            "g01",
            "takt_gpu_process_without_job",
            &process,
            (STALE, 1.0),
        ),
    ]);
    scrape_half_hour(&store, &series, 94);

    let answer = asked(&store, &Viewer::server());
    let gpu = &answer.nodes[0].gpus[0];
    assert_eq!(gpu.state, GpuState::Idle);
    let idle = gpu.idle_seconds.unwrap();
    assert!((375..460).contains(&idle), "{idle}");
}

/// One that was there all the time is idle for all of it.
#[test]
fn a_process_that_stays_is_idle_for_the_whole_time() {
    let (_root, store) = store();
    let process = [("uuid", "gpu"), ("user", "ann")];
    let mut series = gpu("g01", "gpu", "0", 1.0, 0.0);
    series.push(of(
        "g01",
        "takt_gpu_process_without_job",
        &process,
        (1.0, 1.0),
    ));
    scrape_half_hour(&store, &series, 120);

    let idle = asked(&store, &Viewer::server()).nodes[0].gpus[0].idle_seconds;
    assert!(
        idle.is_some_and(|idle| idle >= 1500 && idle % 300 == 0),
        "{idle:?}"
    );
}

/// Jobs that had ended were shown, allocated GPUs were free, a hung GPU was busy, and the GPUs of silent exporters were
/// missing.
#[test]
fn each_gpu_that_exists_has_its_state_and_its_holder() {
    let (_root, store) = store();
    let ended = [("uuid", "wild"), ("jobid", "6"), ("user", "bob")];
    let job = [("jobid", "9"), ("user", "ann")];
    let mut series = [
        gpu("g01", "hung", "0", 0.0, STALE),
        gpu("g01", "wild", "1", 1.0, 295.96),
        gpu("g01", "held", "2", 1.0, 0.0),
        gpu("g01", "free", "3", 1.0, 0.0),
        // The exporter of these two no longer answers.
        gpu("g04", "dark", "0", f64::NAN, STALE),
        gpu("g04", "lone", "1", f64::NAN, STALE),
        // This one stopped while the server was down.
        gpu("g02", "dim", "0", 1.0, 0.5),
        // On this one a job has ended, of which Slurm's records do not know yet.
        gpu("g03", "late", "0", 1.0, 0.0),
        // Slurm has these down and drained.
        gpu("g05", "down", "0", 1.0, 0.0),
        gpu("g06", "drained", "0", 1.0, 0.0),
        gpu("g06", "last", "1", 1.0, 0.9),
    ]
    .concat();
    for series in &mut series {
        if series.2.is_nan() {
            series.2 = STALE;
        }
    }
    series.extend([
        of("g01", "up", &[], (1.0, 1.0)),
        of("g01", "takt_gpu_job_info", &ended, (1.0, STALE)),
        of("g02", "up", &[], (1.0, 0.0)),
        of("g03", "up", &[], (1.0, 1.0)),
        of("g03", "takt_job_info", &job, (1.0, STALE)),
        of("g04", "up", &[], (1.0, 0.0)),
        of("g05", "up", &[], (1.0, 1.0)),
        of("g06", "up", &[], (1.0, 1.0)),
    ]);
    scrape(&store, &series);
    run_jobs(
        &store,
        &[
            ("7", "g01", 2),
            ("7", "g04", 0),
            ("9", "g03", 0),
            ("10", "g07", 1),
        ],
    );
    let node = slurm_node;
    let nodes = [
        node("g01", "MIXED", 4),
        node("g05", "DOWN", 1),
        node("g06", "MIXED+DRAIN", 2),
        // No exporter was ever seen here.
        node("g07", "MIXED", 2),
        node("g08", "DOWN+NOT_RESPONDING", 1),
        node("g09", "FUTURE", 8),
    ];
    let records = Records::of(store.database());
    let now = UnixTime::from(SystemTime::now());
    records.note_nodes("lab", &nodes, now, false).unwrap();

    let answer = asked(&store, &Viewer::server());
    // Nobody scrapes g07, g08 and g09.
    assert_eq!((answer.nodes_up, answer.nodes_unscraped), (4, 3));
    let text = |text: &str| text.to_owned();
    use GpuState as G;
    assert_eq!(
        shown(&answer),
        [
            ("hung", G::Lost, text(""), "down"),
            ("wild", G::Unknown, text(""), ""),
            ("held", G::Idle, text("ann"), ""),
            ("free", G::Free, text(""), ""),
            ("dim", G::Unknown, text(""), "exporter does not answer"),
            ("late", G::Free, text(""), ""),
            ("dark", G::Unknown, text("ann"), "exporter does not answer"),
            ("lone", G::Unknown, text(""), "exporter does not answer"),
            ("down", G::Down, text(""), ""),
            ("drained", G::Drained, text(""), ""),
            ("last", G::Busy, text(""), ""),
            ("unknown-0", G::Unknown, text(""), "no exporter"),
            ("unknown-1", G::Unknown, text("ann"), "no exporter"),
            ("unknown-0", G::Down, text(""), "no exporter"),
        ]
    );
    let counts = answer.gpus;
    let by_state = GpuState::ALL.map(|state| counts.of(state));
    assert_eq!((counts.all, by_state), (14, [1, 2, 1, 1, 1, 2, 6]));

    // The name of the job is for its owner; that a GPU is held is for everybody.
    let name = |viewer: &Viewer| {
        let answer = asked(&store, viewer);
        let held = &answer.nodes[0].gpus[2];
        (
            held.state,
            held.holders[0].job_name.clone(),
            held.holders[0].holder.user.clone(),
        )
    };
    let user = |name: &str| Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user(name);
    let [ann, bob] = ["ann", "bob"].map(user);
    assert_eq!(name(&ann), (G::Idle, Some(text("train")), text("ann")));
    assert_eq!(name(&bob), (G::Idle, None, text(OTHER_USER)));
}

/// The exporters answered, without a driver or with one GPU of two, and nobody missed what Slurm has there.
#[test]
fn gpus_that_an_exporter_does_not_see_are_not_measured() {
    let (_root, store) = store();
    let build = [("version", "1")];
    let mut series = gpu("g02", "seen", "1", 1.0, 0.0);
    for node in ["g01", "g02"] {
        series.push(of(node, "up", &[], (1.0, 1.0)));
        series.push(of(node, "takt_exporter_build_info", &build, (1.0, 1.0)));
    }
    scrape(&store, &series);
    // The cluster is known by its records.
    run_jobs_for(&store, &[("7", "g01", 0)], 60);
    let nodes = [slurm_node("g01", "IDLE", 2), slurm_node("g02", "IDLE", 2)];
    let now = UnixTime::from(SystemTime::now());
    let records = Records::of(store.database());
    records.note_nodes("lab", &nodes, now, false).unwrap();

    let answer = asked(&store, &Viewer::server());
    let unseen = |uuid| {
        (
            uuid,
            GpuState::Unknown,
            String::new(),
            "exporter does not see it",
        )
    };
    assert_eq!(
        shown(&answer),
        [
            // The first GPU without a holder is the job's, whose index no exporter has seen.
            (
                "unknown-0",
                GpuState::Unknown,
                "ann".to_owned(),
                "exporter does not see it"
            ),
            unseen("unknown-1"),
            unseen("unknown-0"),
            ("seen", GpuState::Free, String::new(), ""),
        ]
    );
    assert_eq!((answer.gpus.all, answer.gpus.unknown), (4, 3));
    let by_node: Vec<usize> = answer.nodes.iter().map(NodeNow::unseen_gpus).collect();
    assert_eq!(by_node, [2, 1]);
    assert_eq!((answer.nodes_up, answer.nodes_unscraped), (2, 0));
}
