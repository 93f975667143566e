//! Submissions of jobs: who submits what and when.

use super::{FUTURE_HOURS, Job, Outcome, PAST_DAYS, Placement, Request};
use crate::cluster::{Cluster, Size};
use crate::workload::Kind;
use takt_model::UnixTime;

/// Share of the GPU time that the submitted jobs need.
const LOAD: f64 = 0.92;

/// Number of the first job.
const FIRST_NUMBER: u32 = 7001;

/// Kinds of jobs with GPUs, by frequency.
const KINDS: [(Kind, u32); 9] = [
    (Kind::Steady, 44),
    (Kind::Sawtooth, 12),
    (Kind::Low, 12),
    (Kind::Checkpoints, 12),
    (Kind::Notebook, 6),
    (Kind::Unused, 4),
    (Kind::Hung, 3),
    (Kind::OneOfMany, 4),
    (Kind::Straggler, 3),
];

/// Final states, by frequency.
const OUTCOMES: [(Outcome, u32); 5] = [
    (Outcome::Completed, 78),
    (Outcome::Failed, 9),
    (Outcome::Cancelled, 6),
    (Outcome::Timeout, 4),
    (Outcome::OutOfMemory, 3),
];

/// A job that the tour of the demo shows.
struct Story {
    user: &'static str,
    kind: Kind,
    name: &'static str,
    node: usize,
    /// First GPU and number of GPUs.
    gpus: (usize, usize),
    /// Hours that the job has run when the demo starts.
    hours_ago: f64,
    /// Hours until it hangs.
    hangs_after_hours: f64,
}

const fn story(user: &'static str, kind: Kind, name: &'static str, node: usize) -> Story {
    Story {
        user,
        kind,
        name,
        node,
        gpus: (0, 1),
        hours_ago: 5.0,
        hangs_after_hours: 3.0,
    }
}

/// Returns the submissions around `now`, in order of time.
pub fn of(cluster: &Cluster, now: UnixTime) -> Vec<Job> {
    // One generator in a fixed order: a change of one function changes all jobs behind it.
    let mut random = fastrand::Rng::with_seed(cluster.nodes.len() as u64);
    let mut submitted = Vec::new();
    submit_gpu_jobs(cluster, now, &mut random, &mut submitted);
    submit_cpu_jobs(cluster, now, &mut random, &mut submitted);
    submitted.extend(
        stories(cluster)
            .iter()
            .map(|story| staged(cluster, now, story)),
    );
    submitted.extend(held(cluster, now));
    // Numbers follow the time of submission, as Slurm gives them.
    submitted.sort_by_key(|job| job.submit);
    number(submitted, &mut random)
}

fn submit_gpu_jobs(
    cluster: &Cluster,
    now: UnixTime,
    random: &mut fastrand::Rng,
    submitted: &mut Vec<Job>,
) {
    let seconds = (PAST_DAYS * 24 + FUTURE_HOURS) * 3600;
    // Jobs are drawn until they fill the wanted share of the GPU time.
    let mut wanted = LOAD * cluster.gpus() as f64 * seconds as f64;
    while wanted > 0.0 {
        let submit = submission(now, random);
        let user = pick(random, cluster.users.iter().map(|user| user.weight));
        let job = gpu_job(cluster, submit, user, random);
        // Parameter sweeps are arrays of short jobs with one GPU.
        let tasks = if job.request.gpus == 1 && random.u32(..12) == 0 {
            random.u32(6..20)
        } else {
            0
        };

        let gpus = job.request.nodes * job.request.gpus;
        wanted -= (gpus as i64 * job.duration * i64::from(tasks.max(1))) as f64;
        if tasks == 0 {
            submitted.push(job);
            continue;
        }
        for task in 0..tasks {
            submitted.push(Job {
                array: Some((0, task)),
                name: "sweep",
                duration: 900 + random.i64(0..2700),
                limit_minutes: 120,
                ..job.clone()
            });
        }
    }
}

fn gpu_job(cluster: &Cluster, submit: UnixTime, user: usize, random: &mut fastrand::Rng) -> Job {
    let kind = KINDS[pick(random, KINDS.iter().map(|(_, often)| f64::from(*often)))].0;
    let partition = match cluster.size {
        Size::Three => "desk",
        Size::Thirty | Size::ThreeHundred => {
            if random.u32(..16) == 0 {
                "large"
            } else {
                "gpu"
            }
        }
    };

    let most = cluster
        .nodes
        .iter()
        .filter(|node| node.partitions.contains(&partition))
        .map(|node| node.gpus.len())
        .max()
        .unwrap_or(1);
    let sizes: &[usize] = match cluster.size {
        Size::Three => &[1, 1, 1, 2],
        Size::Thirty => &[
            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 8,
        ],
        Size::ThreeHundred => &[1, 2, 4, 8, 8, 8],
    };
    // These kinds show what several GPUs do together.
    let needs_many = matches!(kind, Kind::OneOfMany | Kind::Straggler);
    let gpus = if needs_many {
        most.min(4)
    } else {
        *random.choice(sizes).unwrap_or(&1)
    };
    let gpus = gpus.min(most);

    // Few jobs need several nodes, and all their GPUs.
    let spans_nodes = match cluster.size {
        Size::Three => false,
        Size::Thirty => gpus == 4 && random.u32(..6) == 0,
        Size::ThreeHundred => gpus == most && random.bool(),
    };
    let nodes = if spans_nodes { 2 } else { 1 };

    let longest = match cluster.size {
        Size::Three | Size::Thirty => 24.0_f64,
        Size::ThreeHundred => 60.0,
    };
    let hours = match kind {
        Kind::Notebook => 2.0 + 6.0 * random.f64(),
        // Logarithmic: most jobs are short, a few are long.
        _ => 0.2 * (longest / 0.2).powf(random.f64()),
    };

    let request = Request {
        nodes,
        gpus,
        cpus: 4 * u32::try_from(gpus).unwrap_or(1),
        memory_gib: 24 * u32::try_from(gpus).unwrap_or(1),
    };
    job(
        Draft {
            submit,
            user,
            kind,
            partition,
            request,
            hours,
        },
        random,
    )
}

fn submit_cpu_jobs(
    cluster: &Cluster,
    now: UnixTime,
    random: &mut fastrand::Rng,
    submitted: &mut Vec<Job>,
) {
    let nodes = cluster
        .nodes
        .iter()
        .filter(|node| node.gpus.is_empty())
        .count();
    for _ in 0..nodes * 120 {
        let submit = submission(now, random);
        let user = pick(random, cluster.users.iter().map(|user| user.weight));
        let request = Request {
            nodes: 1,
            gpus: 0,
            cpus: *random.choice(&[4, 8, 16, 32]).unwrap_or(&4),
            memory_gib: 32,
        };
        let hours = 0.2 * 60.0_f64.powf(random.f64());
        let draft = Draft {
            submit,
            user,
            kind: Kind::Cpu,
            partition: "cpu",
            request,
            hours,
        };
        submitted.push(job(draft, random));
    }
}

/// Properties of a job from which the others follow.
struct Draft {
    submit: UnixTime,
    user: usize,
    kind: Kind,
    partition: &'static str,
    request: Request,
    hours: f64,
}

fn job(draft: Draft, random: &mut fastrand::Rng) -> Job {
    let Draft {
        submit,
        user,
        kind,
        partition,
        request,
        hours,
    } = draft;

    let outcome = OUTCOMES[pick(random, OUTCOMES.iter().map(|(_, often)| f64::from(*often)))].0;
    // A hung job ends at its limit, and a user closes a notebook.
    let outcome = match kind {
        Kind::Hung => Outcome::Timeout,
        Kind::Notebook => Outcome::Cancelled,
        _ => outcome,
    };

    let planned = (hours * 3600.0) as i64;
    // People request more time than they need.
    let limit_minutes = ((planned as f64 / 60.0) * (1.1 + 4.0 * random.f64() * random.f64()) / 30.0)
        .ceil() as i64
        * 30;

    // A job that reaches its limit has run all of it. One that fails often does so early.
    let duration = match outcome {
        Outcome::Timeout => limit_minutes * 60,
        Outcome::Failed | Outcome::OutOfMemory => {
            (planned as f64 * (0.02 + 0.4 * random.f64())) as i64
        }
        Outcome::Cancelled => (planned as f64 * (0.2 + 0.7 * random.f64())) as i64,
        Outcome::Completed | Outcome::NodeFail => planned,
    };
    Job {
        number: 0,
        raw_id: String::new(),
        id: String::new(),
        array: None,
        user,
        partition,
        qos: "normal",
        name: kind.job_name(random.u32(..)),
        kind,
        seed: random.u64(..),
        request,
        limit_minutes,
        submit,
        start: None,
        end: UnixTime(0),
        outcome,
        hangs_after: (duration as f64 * (0.2 + 0.4 * random.f64())) as i64,
        placed: Vec::new(),
        held: "",
        duration: duration.max(40),
        pinned: None,
    }
}

/// Jobs of the tour. On workstations they leave half of the GPUs to others.
fn stories(cluster: &Cluster) -> Vec<Story> {
    if cluster.size == Size::Three {
        return vec![
            story("alice", Kind::Steady, "train-vit", 0),
            Story {
                gpus: (1, 1),
                hours_ago: 8.0,
                ..story("erin", Kind::Hung, "train-gan", 0)
            },
            Story {
                hours_ago: 9.0,
                ..story("bob", Kind::Unused, "debug", 1)
            },
        ];
    }

    let h01 = cluster
        .node(if cluster.size == Size::Thirty {
            "h01"
        } else {
            "h001"
        })
        .unwrap_or(0);
    let g01 = cluster
        .node(if cluster.size == Size::Thirty {
            "g01"
        } else {
            "g001"
        })
        .unwrap_or(0);

    vec![
        Story {
            gpus: (0, 2),
            ..story("alice", Kind::Steady, "train-vit", g01)
        },
        Story {
            gpus: (2, 2),
            hours_ago: 8.0,
            ..story("erin", Kind::Hung, "train-gan", g01)
        },
        Story {
            gpus: (0, 2),
            hours_ago: 9.0,
            ..story("bob", Kind::Unused, "debug", g01 + 1)
        },
        Story {
            gpus: (3, 1),
            hours_ago: 3.0,
            ..story("dave", Kind::Notebook, "jupyter", g01 + 1)
        },
        Story {
            gpus: (0, 4),
            ..story("frank", Kind::Sawtooth, "train-video", g01 + 2)
        },
        Story {
            gpus: (0, 8),
            hours_ago: 11.0,
            ..story("carol", Kind::OneOfMany, "train-resnet", h01)
        },
        Story {
            gpus: (0, 8),
            hours_ago: 7.0,
            ..story("grace", Kind::Straggler, "fsdp-70b", h01 + 1)
        },
    ]
}

fn staged(cluster: &Cluster, now: UnixTime, story: &Story) -> Job {
    let (first, count) = story.gpus;
    let gpus: Vec<usize> = (first..first + count).collect();
    let request = Request {
        nodes: 1,
        gpus: count,
        cpus: 4 * u32::try_from(count).unwrap_or(1),
        memory_gib: 24 * u32::try_from(count).unwrap_or(1),
    };

    let node = &cluster.nodes[story.node];
    let user = cluster.user(story.user).unwrap_or(0);
    // Seeded by the user, so that the story is the same in each demo.
    let mut random = fastrand::Rng::with_seed(user as u64);
    let partition = node.partitions[0];
    let submit = now - (story.hours_ago * 3600.0) as i64;

    let draft = Draft {
        submit,
        user,
        kind: story.kind,
        partition,
        request,
        hours: 30.0,
    };
    // The limit lies after the future that is simulated, so the story lasts.
    Job {
        name: story.name,
        outcome: Outcome::Timeout,
        limit_minutes: 48 * 60,
        duration: 48 * 3600,
        hangs_after: (story.hangs_after_hours * 3600.0) as i64,
        pinned: Some(Placement {
            node: story.node,
            gpus,
        }),
        ..job(draft, &mut random)
    }
}

/// Jobs that wait for something other than a free GPU.
fn held(cluster: &Cluster, now: UnixTime) -> Vec<Job> {
    let reasons = [
        "Dependency",
        "QOSMaxGRESPerUser",
        "AssocGrpGRESMinutes",
        "JobHeldUser",
    ];

    let mut random = fastrand::Rng::with_seed(3);
    reasons
        .into_iter()
        .enumerate()
        .map(|(number, held)| {
            let user = (number + 1) % cluster.users.len();
            let submit = now - 3600 * (number as i64 + 1);
            Job {
                held,
                ..gpu_job(cluster, submit, user, &mut random)
            }
        })
        .collect()
}

/// Numbers the jobs in order of submission. Tasks of an array follow each other.
fn number(mut submitted: Vec<Job>, random: &mut fastrand::Rng) -> Vec<Job> {
    let mut array = 0;
    for (number, job) in (FIRST_NUMBER..).zip(&mut submitted) {
        job.number = number;
        job.raw_id = number.to_string();
        job.id = match job.array {
            None => job.raw_id.clone(),
            // The first task of an array has its number, and the sort has kept the order of the tasks.
            Some((_, task)) => {
                if task == 0 {
                    array = number;
                }
                job.array = Some((array, task));
                format!("{array}_{task}")
            }
        };
        job.seed = random.u64(..);
    }
    submitted
}

/// Returns a submission time: most jobs are submitted in working hours.
fn submission(now: UnixTime, random: &mut fastrand::Rng) -> UnixTime {
    loop {
        let at = now - PAST_DAYS * 86_400 + random.i64(0..PAST_DAYS * 86_400 + FUTURE_HOURS * 3600);

        let hour = at.0.div_euclid(3600).rem_euclid(24);
        let is_weekend = matches!(at.0.div_euclid(86_400).rem_euclid(7), 2 | 3);
        let often = match hour {
            9..=17 => 1.0,
            7..=8 | 18..=22 => 0.5,
            _ => 0.3,
        };
        // The cluster is busy at any hour, also on a Sunday night.
        if random.f64() < if is_weekend { often * 0.7 } else { often } {
            return at;
        }
    }
}

/// Returns an index by weight.
fn pick(random: &mut fastrand::Rng, weights: impl Iterator<Item = f64> + Clone) -> usize {
    let mut left = random.f64() * weights.clone().sum::<f64>();
    weights
        .into_iter()
        .position(|weight| {
            left -= weight;
            left < 0.0
        })
        // Rounding may leave a rest after the last weight.
        .unwrap_or(0)
}
