//! Reads Slurm's own usage report of a period, for comparisons.

use super::command::ask_in;
use super::config::JobsConfig;
use super::status::PollError;
use std::collections::BTreeMap;
use takt_slurm::sreport::{SreportKey, by_part, by_user};

/// Returns the seconds of each user and the cluster's utilization between two local midnights
/// (`2026-10-01`), in the time zone in which slurmdbd splits days.
///
/// # Errors
/// If this machine has no Slurm, Slurm has no slurmdbd, or `sreport` fails.
pub async fn sreport(
    config: &JobsConfig,
    zone: &str,
    from: &str,
    to: &str,
) -> Result<BTreeMap<SreportKey, u64>, PollError> {
    let ask = async |report: &str, format: &[&str]| {
        let start = format!("start={from}");
        let end = format!("end={to}");
        let args = [
            "-n",
            "-P",
            "-t",
            "seconds",
            "--tres=cpu,gres/gpu",
            "cluster",
            report,
            &start,
            &end,
        ];
        let text = ask_in(config, "sreport", args.iter().chain(format), zone).await?;
        Ok::<_, PollError>(String::from_utf8_lossy(&text).into_owned())
    };
    let users = ask(
        "UserUtilizationByAccount",
        &["format=Account,Login,TresName,Used"],
    )
    .await?;
    let mut found = by_user(&users);
    found.extend(by_part(&ask("Utilization", &[]).await?));
    Ok(found)
}
