//! Reservations. slurmdbd keeps their history (`sacctmgr show reservation`); without it, and over slurmrestd, there is
//! what slurmctld knows now.

use super::command::ask;
use super::config::JobsConfig;
use super::slurmrestd::Slurmrestd;
use super::status::PollError;
use takt_slurm::{Reservation, openapi, reservation};

/// What slurmctld knows now: those that run and those to come.
pub(super) async fn ask_now(
    config: &JobsConfig,
    rest: Option<&mut Slurmrestd>,
) -> Result<Vec<Reservation>, PollError> {
    if let Some(rest) = rest {
        return Ok(openapi::reservations(
            &rest.controller("reservations").await?,
        ));
    }
    let text = ask(config, "scontrol", ["--oneliner", "show", "reservations"]).await?;
    Ok(String::from_utf8_lossy(&text)
        .lines()
        .filter_map(reservation::of_scontrol)
        .collect())
}

/// What slurmdbd knows of a cluster since an instant.
pub(super) async fn ask_database(
    config: &JobsConfig,
    cluster: &str,
    since: i64,
) -> Result<Vec<Reservation>, PollError> {
    let since = jiff::Timestamp::from_second(since)
        .unwrap_or_default()
        .strftime("start=%Y-%m-%dT%H:%M:%S")
        .to_string();
    let of_cluster = format!("cluster={cluster}");
    let fields = "format=Name,Start,End,Flags,NodeNames,Assoc,TRES";
    let listed = ask(
        config,
        "sacctmgr",
        [
            "--noheader",
            "--parsable2",
            "show",
            "reservation",
            &of_cluster,
            &since,
            fields,
        ],
    )
    .await?;
    if listed.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    // Its owners are numbers of associations.
    let fields = "format=ID,Account,User";
    let args = [
        "--noheader",
        "--parsable2",
        "show",
        "associations",
        &of_cluster,
        fields,
    ];
    let owners = reservation::owners_by_id(&String::from_utf8_lossy(
        &ask(config, "sacctmgr", args).await?,
    ));
    Ok(reservation::of_sacctmgr(
        &String::from_utf8_lossy(&listed),
        &owners,
    ))
}
