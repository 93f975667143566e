//! Reservations. slurmdbd keeps their history (`sacctmgr show reservation`); without it, and over slurmrestd, there is
//! what slurmctld knows now.

use super::command::ask;
use super::config::JobsConfig;
use super::openapi;
use super::slurmrestd::Slurmrestd;
use super::status::PollError;
use super::tres::Tres;
use crate::accounting::reservation::{Owner, Reservation};
use std::collections::HashMap;

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
        .filter_map(of_scontrol)
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
    let owners = owners_by_id(&String::from_utf8_lossy(
        &ask(config, "sacctmgr", args).await?,
    ));
    Ok(of_sacctmgr(&String::from_utf8_lossy(&listed), &owners))
}

fn owners_by_id(text: &str) -> HashMap<String, Owner> {
    let owner = |line: &str| {
        let (id, rest) = line.split_once('|')?;
        let (account, user) = rest.split_once('|')?;
        let user = Some(user)
            .filter(|user| !user.is_empty())
            .map(str::to_owned);
        Some((
            id.to_owned(),
            Owner {
                account: account.to_owned(),
                user,
            },
        ))
    };
    text.lines().filter_map(owner).collect()
}

fn of_sacctmgr(text: &str, owners: &HashMap<String, Owner>) -> Vec<Reservation> {
    let reservation = |line: &str| {
        let [name, from, to, flags, nodes, assocs, tres] = line.split('|').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let tres = Tres::parse(tres).ok().flatten().unwrap_or_default();
        Some(Reservation {
            name: name.to_owned(),
            flags: flags.to_owned(),
            node_list: Some(nodes)
                .filter(|nodes| !nodes.is_empty())
                .map(str::to_owned),
            cpus: tres.cpus.unwrap_or(0),
            gpus: tres.gpus.filter(|gpus| *gpus > 0),
            owners: assocs
                .split(',')
                .filter_map(|id| owners.get(id).cloned())
                .collect(),
            from: from.parse().ok()?,
            to: to.parse().ok()?,
        })
    };
    text.lines().filter_map(reservation).collect()
}

/// One line of `scontrol --oneliner show reservations`.
fn of_scontrol(line: &str) -> Option<Reservation> {
    let fields: HashMap<&str, &str> = line
        .split_ascii_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect();
    let text = |key: &str| {
        fields
            .get(key)
            .copied()
            .filter(|text| !matches!(*text, "" | "(null)"))
    };
    let tres = text("TRES")
        .and_then(|tres| Tres::parse(tres).ok().flatten())
        .unwrap_or_default();
    Some(Reservation {
        name: text("ReservationName")?.to_owned(),
        flags: text("Flags").unwrap_or_default().to_owned(),
        node_list: text("Nodes").map(str::to_owned),
        cpus: tres.cpus.unwrap_or(0),
        gpus: tres.gpus.filter(|gpus| *gpus > 0),
        owners: owners(text("Accounts"), text("Users")),
        from: text("StartTime")?.parse().ok()?,
        to: text("EndTime")?.parse().ok()?,
    })
}

/// Accounts and users in slurmctld's words. A name with a minus is one that may not.
pub(super) fn owners(accounts: Option<&str>, users: Option<&str>) -> Vec<Owner> {
    let names = |list: Option<&'_ str>| {
        let names = list
            .unwrap_or_default()
            .split(',')
            .filter(|name| !name.is_empty() && !name.starts_with('-'));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let of_account = names(accounts).into_iter().map(|account| Owner {
        account,
        user: None,
    });
    of_account
        .chain(names(users).into_iter().map(|user| Owner {
            account: String::new(),
            user: Some(user),
        }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slurm 22.05.8.
    #[test]
    fn slurmctld_and_slurmdbd_tell_the_same() {
        let line = "ReservationName=class StartTime=1795279775 EndTime=1795286975 Duration=02:00:00 Nodes=node0 NodeCnt=1 \
            CoreCnt=8 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=8 Users=(null) Groups=(null) \
            Accounts=lab-a Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)";
        let now = of_scontrol(line).unwrap();
        let known = owners_by_id("1|root|\n3|lab-a|\n5|lab-a|alice\n");
        let kept = of_sacctmgr(
            "class|1795279775|1795286975|SPEC_NODES|node0|3|cpu=8\n\
             mine|1795279775|1795286975||node[0-1]|,5,77,|cpu=16,gres/gpu=4\nbroken\n",
            &known,
        );
        assert_eq!(kept[0], now);
        assert_eq!(
            (now.cpus, now.gpus, now.owners[0].account.as_str()),
            (8, None, "lab-a")
        );
        assert_eq!((kept.len(), kept[1].gpus), (2, Some(4)));
        assert_eq!(
            kept[1].owners,
            [Owner {
                account: "lab-a".into(),
                user: Some("alice".into())
            }]
        );
        assert_eq!(of_scontrol("No reservations in the system"), None);
        assert_eq!(
            owners(None, Some("-eve,ann"))[0].user.as_deref(),
            Some("ann")
        );
    }
}
