//! Reservations, as sacctmgr and scontrol print them.

use crate::tres::TresCounts;
use std::collections::HashMap;
use takt_jobs::{Owner, Reservation};

/// Parses account and user by association id from `sacctmgr --parsable2 show associations
/// format=ID,Account,User`. Coordinators name accounts and users, and a name may contain a line feed:
/// the owner of an id that is listed twice is unknown.
pub fn owners_by_id(text: &str) -> HashMap<String, Owner> {
    let mut owners: HashMap<String, Option<Owner>> = HashMap::new();
    for line in text.lines() {
        let Some((id, rest)) = line.split_once('|') else {
            continue;
        };
        let Some((account, user)) = rest.split_once('|') else {
            continue;
        };

        let owner = Owner {
            account: account.to_owned(),
            user: Some(user)
                .filter(|user| !user.is_empty())
                .map(str::to_owned),
        };
        // `None` stays in the map, so that a third line with the id does not count.
        owners
            .entry(id.to_owned())
            .and_modify(|owner| *owner = None)
            .or_insert(Some(owner));
    }

    owners
        .into_iter()
        .filter_map(|(id, owner)| Some((id, owner?)))
        .collect()
}

/// Parses the rows of `sacctmgr --parsable2 show reservation`. Their owners are association ids.
pub fn of_sacctmgr(text: &str, owners: &HashMap<String, Owner>) -> Vec<Reservation> {
    let reservation = |line: &str| {
        // A name with a delimiter makes more fields than the columns, and the row does not count.
        let [name, from, to, flags, nodes, assocs, tres] = line.split('|').collect::<Vec<_>>()[..]
        else {
            return None;
        };

        let tres = TresCounts::parse(tres).ok().flatten().unwrap_or_default();
        Some(Reservation {
            name: name.to_owned(),
            flags: flags.to_owned(),
            node_list: Some(nodes)
                .filter(|nodes| !nodes.is_empty())
                .map(str::to_owned),
            cpus: tres.cpus.unwrap_or(0),
            // 0 would claim that the reservation keeps no GPU; `Reservation::amounts` asks the nodes then.
            gpus: tres.gpus.filter(|gpus| *gpus > 0),
            owners: assocs
                .split(',')
                // An id that is listed twice has no owner: see `owners_by_id`.
                .filter_map(|id| owners.get(id).cloned())
                .collect(),
            from: from.parse().ok()?,
            to: to.parse().ok()?,
        })
    };
    text.lines().filter_map(reservation).collect()
}

/// Parses one line of `scontrol --oneliner show reservations`. The comment, which operators write,
/// comes last: the first value of a key counts.
pub fn of_scontrol(line: &str) -> Option<Reservation> {
    let mut fields: HashMap<&str, &str> = HashMap::new();
    if !line.starts_with("ReservationName=") {
        return None;
    }

    for (key, value) in line
        .split_ascii_whitespace()
        .filter_map(|word| word.split_once('='))
    {
        fields.entry(key).or_insert(value);
    }

    let text = |key: &str| {
        fields
            .get(key)
            .copied()
            .filter(|text| !matches!(*text, "" | "(null)"))
    };

    let tres = text("TRES")
        .and_then(|tres| TresCounts::parse(tres).ok().flatten())
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

/// Parses slurmctld's lists of accounts and users. A leading minus excludes a name.
pub(crate) fn owners(accounts: Option<&str>, users: Option<&str>) -> Vec<Owner> {
    let names = |list: Option<&'_ str>| {
        list.unwrap_or_default()
            .split(',')
            .filter(|name| !name.is_empty() && !name.starts_with('-'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    names(accounts)
        .into_iter()
        .map(|account| Owner {
            account,
            user: None,
        })
        .chain(names(users).into_iter().map(|user| Owner {
            account: String::new(),
            user: Some(user),
        }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Slurm 22.05.8.
    #[test]
    fn slurmctld_and_slurmdbd_report_the_same() {
        let line = "ReservationName=class StartTime=1795279775 EndTime=1795286975 Duration=02:00:00 Nodes=node0 NodeCnt=1 \
            CoreCnt=8 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=8 Users=(null) Groups=(null) \
            Accounts=lab-a Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)";
        let now = of_scontrol(line).unwrap();
        // The same reservation in the form of sacctmgr, one of a user with an unknown id, and a broken row.
        let known = owners_by_id("1|root|\n3|lab-a|\n5|lab-a|alice\n");
        let kept = of_sacctmgr(
            "class|1795279775|1795286975|SPEC_NODES|node0|3|cpu=8\n\
             mine|1795279775|1795286975||node[0-1]|,5,77,|cpu=16,gres/gpu=4\nbroken\n",
            &known,
        );
        assert_eq!(kept[0], now.clone());
        assert_eq!(now.cpus, 8);
        assert_eq!(now.gpus, None);
        assert_eq!(now.owners[0].account.as_str(), "lab-a");
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[1].gpus, Some(4));
        assert_eq!(
            kept[1].owners,
            [Owner {
                account: "lab-a".into(),
                user: Some("alice".into())
            }]
        );
        // Two owners of id 3: one of them was written by a coordinator as part of a name.
        let forged = owners_by_id("3|lab-a|\n9|x\n3|lab-b|eve|\n5|lab-a|alice\n");
        assert_eq!(forged.keys().collect::<Vec<_>>(), ["5"]);
        assert_eq!(of_scontrol("No reservations in the system"), None);
        // A comment of an operator with keys of Slurm changes nothing.
        let remarked = format!("{line} Comment=see Users=eve Flags=MAINT");
        assert_eq!(of_scontrol(&remarked), Some(now));
        assert_eq!(
            owners(None, Some("-eve,ann"))[0].user.as_deref(),
            Some("ann")
        );
    }
}
