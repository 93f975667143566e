//! Reads Slurm's own usage report of a period, for comparisons.

use super::command::{ask, ask_in};
use super::config::JobsConfig;
use super::status::PollError;
use std::collections::BTreeMap;
use takt_slurm::access_text::rollups_are_disabled;
use takt_slurm::sreport::{SreportKey, by_part, by_user};

/// Returns the seconds of each user and the cluster's utilization between two local midnights
/// (`2026-10-01`), in the time zone in which slurmdbd splits days.
///
/// # Errors
/// If this machine has no Slurm, Slurm has no slurmdbd, slurmdbd rolls up no usage, or `sreport` fails.
pub async fn sreport(
    config: &JobsConfig,
    zone: &str,
    from: &str,
    to: &str,
) -> Result<BTreeMap<SreportKey, u64>, PollError> {
    // Without rollups, sreport has no hours: each of ours would be a difference.
    let settings = ask(config, "sacctmgr", ["show", "config"]).await;
    if settings.is_ok_and(|text| rollups_are_disabled(&String::from_utf8_lossy(&text))) {
        return Err(PollError::NoRollups);
    }

    let report_of = async |report: &str, format: &[&str]| {
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

    let users = report_of(
        "UserUtilizationByAccount",
        &["format=Account,Login,TresName,Used"],
    )
    .await?;

    let mut found = by_user(&users);
    found.extend(by_part(&report_of("Utilization", &[]).await?));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::tempdir;

    #[tokio::test]
    async fn a_slurmdbd_without_rollups_is_named_instead_of_every_hour() {
        let folder = tempdir().unwrap();
        let script = |name: &str, body: &str| {
            let path = folder.path().join(name);
            fs::write(path.with_extension("body"), body).unwrap();
            let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stand-in.sh");
            let _ = symlink(stand_in, path);
        };
        script("sreport", "echo 'lab|cpu|9|1|0|0|0|10'");
        let config = JobsConfig {
            slurm_bin: Some(folder.path().to_owned()),
            ..JobsConfig::default()
        };
        let asked = || sreport(&config, "UTC", "2026-10-01", "2026-11-01");
        script(
            "sacctmgr",
            "echo 'Configuration data as of x'; echo 'DisableRollups         = Yes'",
        );
        let error = asked().await.unwrap_err().to_string();
        assert!(error.contains("DisableRollups"), "{error}");
        // Before 26.05 there is no such setting; without sacctmgr, nothing is known about it.
        for before in [
            "echo 'DisableRollups         = No'",
            "echo 'DbdAddr = x'",
            "exit 1",
        ] {
            script("sacctmgr", before);
            asked().await.unwrap();
        }
    }
}
