//! What `sreport` says of a period, to compare with.

use super::command::ask_in;
use super::config::JobsConfig;
use super::status::PollError;
use crate::accounting::reconcile::Key;
use std::collections::BTreeMap;

/// The parts of `sreport cluster Utilization`, in its order, from the third column on.
const PARTS: [&str; 6] = [
    "allocated",
    "down",
    "planned_down",
    "idle",
    "planned",
    "reported",
];

/// Seconds of each user and of the cluster's parts, from one local midnight to another (`2026-10-01`), in the zone in which
/// slurmdbd cuts its days.
///
/// # Errors
/// Where there is no Slurm, no slurmdbd, or `sreport` fails.
pub async fn sreport(
    config: &JobsConfig,
    zone: &str,
    from: &str,
    to: &str,
) -> Result<BTreeMap<Key, u64>, PollError> {
    let ask = async |report: &str, format: &[&str]| {
        let (start, end) = (format!("start={from}"), format!("end={to}"));
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

fn by_user(text: &str) -> BTreeMap<Key, u64> {
    let row = |line: &str| {
        let [account, user, resource, used] = line.split('|').collect::<Vec<_>>()[..] else {
            return None;
        };
        let key = Key {
            account: account.to_owned(),
            user: user.to_owned(),
            resource: resource.to_owned(),
            part: "used".to_owned(),
        };
        Some((key, used.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

fn by_part(text: &str) -> BTreeMap<Key, u64> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        for (part, seconds) in PARTS.iter().zip(fields.iter().skip(2)) {
            let key = Key {
                resource: fields[1].to_owned(),
                part: (*part).to_owned(),
                ..Key::default()
            };
            found.extend(seconds.parse().ok().map(|seconds: u64| (key, seconds)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_sreport() {
        let users = by_user("lab-a|alice|cpu|120\nlab-a|alice|gres/gpu|60\nnothing\n");
        let key = |resource: &str| Key {
            account: "lab-a".into(),
            user: "alice".into(),
            resource: resource.into(),
            part: "used".into(),
        };
        assert_eq!(
            (users.len(), users[&key("cpu")], users[&key("gres/gpu")]),
            (2, 120, 60)
        );
        let parts = by_part("lab|gres/gpu|2262|1|2|2055|0|4320\n");
        let part = |part: &str| {
            parts[&Key {
                resource: "gres/gpu".into(),
                part: part.into(),
                ..Key::default()
            }]
        };
        assert_eq!(
            (part("allocated"), part("planned_down"), part("reported")),
            (2262, 2, 4320)
        );
    }
}
