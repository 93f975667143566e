//! Jobs in slurmrestd's answers, recorded at each version (`fixtures/slurm-web/CAPTURED.md`).

use jiff::tz::TimeZone;
use serde_json::Value;
use takt_jobs::{Entry, JobRun};
use takt_slurm::openapi;
use takt_slurm::sacct::{Cluster, Options};

/// File name, and the answer.
macro_rules! answers {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("../fixtures/slurm-web/", $name, ".json")))),*]
    };
}

fn options() -> Options {
    Options {
        cluster: Cluster::Named("hpc".into()),
        zone: TimeZone::UTC,
        columns: None,
    }
}

fn run(entry: Entry) -> JobRun {
    match entry {
        Entry::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

/// Everything of a run that a page shows, in one line.
fn words(name: &str, run: &JobRun) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let number = |number: Option<u64>| number.map_or_else(|| "-".into(), |n| n.to_string());
    // Relative to the submission, so that the expected lines can be checked by hand.
    let at = |at: Option<takt_model::UnixTime>| {
        at.map_or_else(|| "-".into(), |at| (at - run.submit).to_string())
    };
    format!(
        "{name}: {} {} {}/{} {} {} start {} end {} limit {} nodes {} {} cpus {} gpus {} {} mem {} exit {} sluid {}",
        run.job_id,
        run.state,
        run.user,
        run.account,
        run.partition,
        text(&run.qos),
        at(run.start),
        at(run.end),
        number(run.timelimit),
        number(run.nodes),
        text(&run.node_list),
        number(run.cpus),
        number(run.gpus),
        text(&run.gpu_model),
        number(run.mem_bytes.map(|bytes| bytes >> 20)),
        text(&run.exit_code),
        text(&run.sluid),
    )
}

#[test]
fn records_of_slurmdbd_are_read_from_each_version() {
    let found = answers! {
        "v0.0.39_slurmdb",
        "v0.0.40_slurmdb",
        "v0.0.41_slurmdb",
        "v0.0.42_slurmdb",
        "v0.0.43_slurmdb",
        "v0.0.44_slurmdb",
        "v0.0.45_slurmdb",
    }
    .map(|(name, text)| {
        let answer: Value = serde_json::from_str(text).unwrap();
        assert_eq!(openapi::error(&answer), None, "{name}");
        let run = run(openapi::database_jobs(&answer, &options()).remove(0));
        // A run that was not resized is its own original.
        assert_eq!(run.lineage(), run.sluid.as_deref(), "{name}");
        words(name, &run)
    });
    let expected = [
        "v0.0.39_slurmdb: 310 RUNNING cgross/biology batch normal start 25949 end - limit 3600 nodes 16 cn[052-067] cpus 32 gpus 0 - mem - exit - sluid -",
        "v0.0.40_slurmdb: 714 COMPLETED cpotter/acoustic ia normal start 0 end 30 limit 60 nodes 1 ia1 cpus 1 gpus 0 - mem 512 exit 0:0 sluid -",
        "v0.0.41_slurmdb: 13363 RUNNING jhayes/optic gpu normal start 2 end - limit 60 nodes 1 gpu2 cpus 1 gpus 4 h100 mem 512 exit - sluid -",
        "v0.0.42_slurmdb: 10665 TIMEOUT rpowers/biology standard normal start 0 end 70 limit 60 nodes 1 cn1 cpus 1 gpus 0 - mem 512 exit 0:0 sluid -",
        "v0.0.43_slurmdb: 14239 COMPLETED jhayes/optic gpu normal start 0 end 30 limit 60 nodes 1 gpu1 cpus 1 gpus 4 h100 mem 512 exit 0:0 sluid -",
        "v0.0.44_slurmdb: 5739 FAILED vhartman/biology normal normal start 1 end 3 limit 60 nodes 1 cn1 cpus 1 gpus 0 - mem 512 exit 1:0 sluid -",
        "v0.0.45_slurmdb: 5112 RUNNING mwilliams/biology gpu normal start 0 end - limit 60 nodes 1 gpu1 cpus 1 gpus 4 h100 mem 512 exit - sluid s88DKSW5HH2P00",
    ];
    assert_eq!(found.join("\n"), expected.join("\n"));
}

#[test]
fn jobs_of_slurmctld_are_read_from_each_version() {
    let found = answers! {
        "v0.0.39_slurm",
        "v0.0.40_slurm",
        "v0.0.42_slurm",
        "v0.0.43_slurm",
        "v0.0.44_slurm",
        "v0.0.45_slurm",
    }
    .map(|(name, text)| {
        let answer: Value = serde_json::from_str(text).unwrap();
        let job = openapi::live_jobs(&answer, &options()).remove(0);

        let held: Vec<String> = job
            .gpus
            .iter()
            .map(|(node, index)| format!("{node}:{index}"))
            .collect();
        format!("{} on {}", words(name, &run(job.entry)), held.join(" "))
    });
    // The job of v0.0.44 has finished, and slurmctld no longer lists its GPUs.
    let expected = [
        "v0.0.39_slurm: 310 RUNNING cgross/biology batch normal start 25949 end - limit 3600 nodes 16 cn[052-067] cpus 32 gpus 0 - mem - exit - sluid - on ",
        "v0.0.40_slurm: 500 RUNNING cpotter/acoustic ia normal start 2 end - limit 60 nodes 2 ia[1-2] cpus 2 gpus 12 h100+h200 mem 1024 exit - sluid - on ia1:0 ia1:1 ia1:2 ia1:3 ia1:4 ia1:5 ia2:0 ia2:1 ia2:2 ia2:3 ia2:4 ia2:5",
        "v0.0.42_slurm: 6374 RUNNING vhartman/biology ia normal start 0 end - limit 60 nodes 1 ia1 cpus 1 gpus 6 h100+h200 mem 512 exit - sluid - on ia1:0 ia1:1 ia1:2 ia1:3 ia1:4 ia1:5",
        "v0.0.43_slurm: 4751 RUNNING jbeck/biology gpu normal start 2 end - limit 60 nodes 1 gpu1 cpus 1 gpus 4 h100 mem 512 exit - sluid - on gpu1:0 gpu1:1 gpu1:2 gpu1:3",
        "v0.0.44_slurm: 5737 TIMEOUT vhartman/biology normal normal start 1 end 83 limit 60 nodes 1 cn1 cpus 1 gpus - - mem 512 exit 0:15 sluid sDXHK9VRZ8KM00 on ",
        "v0.0.45_slurm: 69 RUNNING madams/acoustic gpu normal start 0 end - limit 3600 nodes 1 gpu1 cpus 1 gpus 4 h100 mem 512 exit - sluid s88DKREHK5Y600 on gpu1:0 gpu1:1 gpu1:2 gpu1:3",
    ];
    assert_eq!(found.join("\n"), expected.join("\n"));
}
