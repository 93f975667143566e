//! What waits in the queue, and for what.

use super::command::ask;
use super::config::JobsConfig;
use super::status::PollError;
use std::collections::BTreeMap;

/// How many jobs wait, by partition and by Slurm's reason; each task of an array is a job. Nothing where slurmrestd is
/// asked and no commands are there.
///
/// # Errors
/// Where squeue does not answer.
pub async fn pending(config: &JobsConfig) -> Result<BTreeMap<(String, String), u64>, PollError> {
    if !config.slurmrestd.url.is_empty() {
        return Ok(BTreeMap::new());
    }
    let args = ["--all", "--noheader", "--array", "--states=PENDING", "--format=%P|%r"];
    let text = ask(config, "squeue", args).await?;
    Ok(counted(&String::from_utf8_lossy(&text)))
}

/// A job that waits in several partitions waits in the first of them.
fn counted(text: &str) -> BTreeMap<(String, String), u64> {
    let mut all = BTreeMap::new();
    for (partitions, reason) in text.lines().filter_map(|line| line.trim().split_once('|')) {
        let partition = partitions.split(',').next().unwrap_or_default();
        *all.entry((partition.to_owned(), reason.to_owned())).or_default() += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_what_they_wait_for() {
        let text = "gpu|Resources\ngpu,long|Priority\ngpu|Resources\nlong|(QOSMaxJobsPerUserLimit)\n\nnonsense\n";
        let found = counted(text);
        let key = |partition: &str, reason: &str| (partition.to_owned(), reason.to_owned());
        let expected =
            [(key("gpu", "Priority"), 1), (key("gpu", "Resources"), 2), (key("long", "(QOSMaxJobsPerUserLimit)"), 1)];
        assert_eq!(found, BTreeMap::from(expected));
    }
}
