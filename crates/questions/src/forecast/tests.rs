use super::*;
use crate::testing::{database, store_in};
use crate::{AnswerConfig, Question, QueueAnswer, QueueQuestion};
use std::convert::Infallible;
use takt_access::{Privacy, Role, Viewer, Way};
use takt_jobs::{Amounts, Entry, JobRun, Node};
use takt_store::{Corrections, Origin, Shifted, WaitingRun};

fn store() -> (tempfile::TempDir, takt_store::Store) {
    let root = tempfile::tempdir().unwrap();
    let store = store_in(root.path());
    (root, store)
}

/// A node of 8 CPUs that ann's job holds for an hour, and for which the jobs of others wait.
struct Lab<'d> {
    database: &'d Database,
    now: UnixTime,
}

impl<'d> Lab<'d> {
    fn new(database: &'d Database) -> Self {
        let lab = Self {
            database,
            now: UnixTime::from(Timestamp::now()),
        };
        let node = Node {
            node: "g1".into(),
            state: "ALLOCATED".into(),
            partitions: vec!["gpu".into()],
            has: Amounts {
                cpus: 8,
                gpus: 0,
                mem_bytes: 64 << 30,
            },
            ..Node::default()
        };
        let records = Records::of(database);
        records.note_nodes("lab", &[node], lab.now, false).unwrap();
        let holder = JobRun {
            state: "RUNNING".into(),
            start: Some(lab.now - 600),
            node_list: Some("g1".into()),
            cpus: Some(8),
            nodes: Some(1),
            ..lab.run("1", "ann")
        };
        lab.poll([
            holder,
            lab.run("2", "bob"),
            lab.run("3", "bob"),
            lab.run("4", "cy"),
        ]);
        lab.waits("2", "Priority", 10);
        lab.waits("3", "JobHeldUser", 0);
        lab.waits("4", "Resources", 20);
        lab
    }

    fn run(&self, job_id: &str, user: &str) -> JobRun {
        JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: self.now - 3000,
            state: "PENDING".into(),
            user: user.into(),
            account: user.into(),
            partition: "gpu".into(),
            req_tres: Some("cpu=8,mem=8G,node=1".into()),
            timelimit: Some(3600),
            ..JobRun::default()
        }
    }

    fn poll(&self, runs: impl IntoIterator<Item = JobRun>) {
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: Some("UTC"),
            complete_until: Some(("lab", self.now)),
            shifted: Shifted::Refuse,
            corrections: Corrections::Accept,
        };
        let entries = runs
            .into_iter()
            .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
        Records::of(self.database).import(&origin, entries).unwrap();
    }

    fn waits(&self, job_id: &str, reason: &str, priority: u32) {
        self.waits_since(self.now, job_id, reason, priority);
    }

    fn waits_since(&self, at: UnixTime, job_id: &str, reason: &str, priority: u32) {
        let waiting = WaitingRun {
            run: OpenRun {
                job_id: job_id.into(),
                submit: self.now - 3000,
            },
            reason: reason.into(),
            expected_start: Some(self.now + 9000),
            priority: Some(priority),
            demands: vec!["features".into()],
        };
        let records = Records::of(self.database);
        records.note_waiting("lab", &[waiting], at).unwrap();
    }

    fn queue(&self, viewer: &Viewer) -> QueueAnswer {
        QueueQuestion::default()
            .answer(viewer, self.database, &AnswerConfig::default())
            .unwrap()
    }

    fn of(&self, job_id: &str) -> StartForecast {
        let queue = self.queue(&Viewer::server());
        let mut pending = queue.pending.into_iter();
        let one = pending.find(|one| one.listed.run.job_id == job_id);
        one.unwrap().listed.start_forecast.unwrap()
    }
}

#[test]
fn a_waiting_job_has_a_forecast_that_is_graded_when_it_starts() {
    let (_root, database) = database();
    let lab = Lab::new(&database);
    assert!(lab.of("2").words.starts_with("no forecast yet"));

    forecast_starts(&database, "lab").unwrap().unwrap();
    // Ann's limit ends first, then the limit of cy, whose priority is higher.
    let next = lab.of("4");
    let ends = lab.now - 600 + 3600;
    assert!((next.p50.unwrap() - ends).abs() < 300, "{next:?}");
    let second = lab.of("2");
    assert!(
        (second.p50.unwrap() - (ends + 3600)).abs() < 600,
        "{second:?}"
    );
    assert!(
        second.words.contains("no forecast has been graded yet"),
        "{second:?}"
    );
    assert!(
        second.words.contains("not modelled: its features"),
        "{second:?}"
    );
    assert_eq!(lab.of("3").words, "no forecast: it is held");
    assert_eq!(lab.of("3").brief, "unknown");

    // It starts when the forecast said; Slurm had said much later.
    let started = JobRun {
        state: "RUNNING".into(),
        start: next.p50,
        ..lab.run("4", "cy")
    };
    lab.poll([started]);
    forecast_starts(&database, "lab").unwrap().unwrap();
    let state = lab.queue(&Viewer::server()).forecasts;
    assert_eq!(
        (state.grades.graded, state.grades.right_ratio),
        (1, Some(1.0))
    );
    assert_eq!(state.grades.median_error_seconds, Some(0));
    assert!(
        state.grades.slurm_median_error_seconds > Some(3000),
        "{state:?}"
    );
    assert!(
        state.words.contains("the only graded forecast"),
        "{}",
        state.words
    );
    assert_eq!(state.waiting_jobs, 2);
}

#[test]
fn forecasts_that_were_wrong_are_not_shown() {
    let (_root, database) = database();
    let lab = Lab::new(&database);
    let records = Records::of(&database);
    let started: Vec<JobRun> = (100..130)
        .map(|id| JobRun {
            state: "RUNNING".into(),
            start: Some(lab.now - 100),
            ..lab.run(&id.to_string(), "cy")
        })
        .collect();
    lab.poll(started.clone());
    let times = ForecastTimes {
        p10: lab.now + 5000,
        p50: lab.now + 6000,
        p90: lab.now + 7000,
    };
    let noted: Vec<NotedForecast> = started
        .iter()
        .map(|run| NotedForecast {
            run: OpenRun {
                job_id: run.job_id.clone(),
                submit: run.submit,
            },
            times,
            replayed: times,
            slurm_start: None,
        })
        .collect();
    records
        .note_forecasts("lab", &noted, lab.now - 2000)
        .unwrap();
    forecast_starts(&database, "lab").unwrap().unwrap();

    let found = lab.of("2");
    assert_eq!(found.p50, None);
    assert!(found.words.contains("0 % of 30 jobs"), "{}", found.words);
    assert!(!lab.queue(&Viewer::server()).forecasts.are_shown);
}

#[test]
fn under_private_a_forecast_names_nobody_else() {
    let (_root, database) = database();
    let lab = Lab::new(&database);
    forecast_starts(&database, "lab").unwrap().unwrap();
    let bob = Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user("bob");
    let answer = lab.queue(&bob);
    assert_eq!(answer.pending.len(), 2);
    let text = serde_json::to_string(&answer).unwrap();
    assert!(text.contains("starts at about"), "{text}");
    assert!(
        !text.contains("\"ann\"") && !text.contains("\"cy\""),
        "{text}"
    );
}

#[test]
fn nothing_is_forecast_without_a_poll() {
    let (_root, database) = database();
    let lab = Lab::new(&database);
    assert_eq!(forecast_starts(&database, "other").unwrap(), None);
    assert!(forecast_starts(&database, "lab").unwrap().is_some());
    let _ = lab;
}

/// Bob's job waits for ann's and cy's. A free node of another partition, where bob has run jobs, would start it at once.
#[test]
fn a_waiting_job_is_told_what_blocks_it_and_what_starts_it_sooner() {
    let (_root, database) = store();
    let lab = Lab::new(database.database());
    let free = |name: &str, state: &str, partition: &str| Node {
        node: name.into(),
        state: state.into(),
        partitions: vec![partition.into()],
        has: Amounts {
            cpus: 8,
            gpus: 0,
            mem_bytes: 64 << 30,
        },
        ..Node::default()
    };
    let nodes = [
        free("g1", "ALLOCATED", "gpu"),
        free("g2", "IDLE+DRAIN", "gpu"),
        free("s1", "IDLE", "short"),
    ];
    let records = Records::of(database.database());
    records.note_nodes("lab", &nodes, lab.now, false).unwrap();
    let earlier = JobRun {
        state: "COMPLETED".into(),
        start: Some(lab.now - 2900),
        end: Some(lab.now - 2800),
        elapsed: Some(100),
        partition: "short".into(),
        node_list: Some("s1".into()),
        cpus: Some(8),
        nodes: Some(1),
        ..lab.run("90", "bob")
    };
    lab.poll([earlier]);

    let ask = |viewer: &Viewer, job_id: &str| {
        let question = BlockedQuestion {
            job_id: job_id.into(),
            cluster: None,
        };
        question.answer(viewer, &database, &AnswerConfig::default())
    };
    let answer = ask(&Viewer::server(), "2").unwrap();
    let awaited: Vec<(&str, &str)> = answer
        .awaited
        .iter()
        .map(|one| (one.job_id.as_str(), one.user.as_str()))
        .collect();
    assert_eq!(awaited, [("1", "ann")]);
    assert_eq!(answer.ahead, ["4"]);
    assert_eq!(answer.closed_nodes, ["g2 (IDLE+DRAIN)"]);
    assert_eq!((answer.hidden_awaited, answer.hidden_ahead), (0, 0));
    assert!(answer.replays > 0);
    let [change] = answer.changes.as_slice() else {
        panic!("{:?}", answer.changes);
    };
    assert_eq!(change.option, "--partition=short");
    assert!(change.sooner_seconds > 3000, "{change:?}");
    assert!(
        change
            .words
            .starts_with("partition short instead of gpu (--partition=short): ")
    );
    assert!(change.words.contains(" instead of "), "{change:?}");

    // Bob may not see the others: they are counted.
    let bob = Viewer::new(Role::User, Way::Token, Privacy::Private).with_user("bob");
    let seen = ask(&bob, "2").unwrap();
    assert_eq!((seen.hidden_awaited, seen.hidden_ahead), (1, 1));
    let words = serde_json::to_string(&seen).unwrap();
    assert!(
        !words.contains("ann") && !words.contains("\"4\""),
        "{words}"
    );
    assert!(words.contains("1 of other users"), "{words}");
    assert!(
        ask(&bob, "4")
            .unwrap_err()
            .to_string()
            .contains("no job 4 waits")
    );

    let held = ask(&Viewer::server(), "3").unwrap();
    assert_eq!(
        held.words,
        ["when it starts cannot be replayed: it is held"]
    );
    assert_eq!((held.replays, held.changes.len()), (0, 0));
}

#[test]
fn a_limit_names_whose_it_is_and_what_they_hold() {
    let (_root, database) = store();
    let lab = Lab::new(database.database());
    let later = lab.now + 1;
    lab.waits_since(later, "2", "QOSMaxCpuPerUserLimit", 10);
    lab.waits_since(later, "4", "AssocGrpCpuLimit", 10);
    let ask = |viewer: &Viewer, job_id: &str| {
        let question = BlockedQuestion {
            job_id: job_id.into(),
            cluster: None,
        };
        question
            .answer(viewer, &database, &AnswerConfig::default())
            .unwrap()
            .words
    };
    let words = ask(&Viewer::server(), "2");
    assert_eq!(
        words[0],
        "Slurm's reason QOSMaxCpuPerUserLimit is a limit of its QOS for user bob, whose 0 running jobs hold 0 GPUs and 0 \
         CPUs; the limit itself is not recorded"
    );
    let words = ask(&Viewer::server(), "4");
    assert!(words[0].contains("account cy or its user cy"), "{words:?}");
    assert!(words[1].contains("AssocGrpCpuLimit"), "{words:?}");
}
