//! Parsers of Slurm's access settings: `scontrol show config` and `sacctmgr show user|account`.

use std::collections::BTreeMap;

/// Administrators, operators and coordinators of a Slurm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmRoles {
    /// Users with the level `Administrator`.
    pub administrators: Vec<String>,
    /// Users with the level `Operator`.
    pub operators: Vec<String>,
    /// User and coordinated account.
    pub coordinators: Vec<(String, String)>,
}

/// Returns the value of `PrivateData` in `scontrol show config`: words separated by commas, or `none`.
pub fn private_data(config: &str) -> Option<&str> {
    setting(config, "PrivateData")
}

/// Returns whether Slurm hides the jobs of others from a user who is neither operator nor administrator: `PrivateData` and
/// `SlurmUser` in `scontrol show config`.
pub fn hides_jobs(config: &str, uid: u32) -> bool {
    let hides = private_data(config).is_some_and(|words| {
        words
            .split(',')
            .any(|word| matches!(word.trim(), "jobs" | "all"))
    });

    // `slurm(64030)`
    let owner = setting(config, "SlurmUser").and_then(|user| {
        let (_, number) = user.trim_end_matches(')').rsplit_once('(')?;
        number.parse::<u32>().ok()
    });

    // root and SlurmUser see the jobs of others whatever PrivateData says.
    hides && uid != 0 && owner != Some(uid)
}

/// Returns whether slurmctld has the user as an operator or administrator, who sees all jobs, from `scontrol show assoc_mgr
/// flags=users`. Names are not asked for: a directory service may have them, and slurmctld decides by the uid.
pub fn is_operator(users: &str, uid: u32) -> bool {
    // `UserName=takt(998) DefAccount=root DefWckey=(null) AdminLevel=Operator`
    let number = format!("({uid})");
    users
        .lines()
        .filter_map(|line| line.strip_prefix("UserName=")?.split_once(" DefAccount="))
        .filter(|(name, _)| name.ends_with(&number))
        .filter_map(|(_, rest)| rest.rsplit_once(" AdminLevel="))
        .any(|(_, level)| matches!(level.trim(), "Operator" | "Administrator"))
}

/// Returns whether jobs can open only their own GPUs, from `scontrol show config`: `TaskPlugin` of
/// slurm.conf and `ConstrainDevices` of slurmctld's cgroup.conf. `None` if Slurm does not print them.
pub fn constrains_devices(config: &str) -> Option<bool> {
    let plugins = setting(config, "TaskPlugin")?;
    if !plugins
        .split(',')
        .any(|plugin| plugin.trim() == "task/cgroup")
    {
        return Some(false);
    }
    // An older slurmctld does not print cgroup.conf, so its setting is unknown, not off.
    let constrains = setting(config, "ConstrainDevices")?;
    Some(
        ["yes", "true"]
            .iter()
            .any(|yes| constrains.eq_ignore_ascii_case(yes)),
    )
}

/// Returns the version of slurmctld in `scontrol show config`: `22.05.8`.
pub fn version(config: &str) -> Option<&str> {
    setting(config, "SLURM_VERSION")
}

/// Returns whether slurmdbd rolls up no usage (`DisableRollups`, since 26.05), from `sacctmgr show config`.
pub fn rollups_are_disabled(config: &str) -> bool {
    setting(config, "DisableRollups").is_some_and(|value| {
        ["yes", "true", "1"]
            .iter()
            .any(|yes| value.eq_ignore_ascii_case(yes))
    })
}

fn setting<'t>(config: &'t str, name: &str) -> Option<&'t str> {
    let (_, value) = config
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

impl SlurmRoles {
    /// Parses lists of users, one per line (`sacctmgr --noheader --parsable2 show user
    /// adminlevel=… format=user`), and `… show account withcoord format=account,coordinators`.
    ///
    /// Coordinators name accounts, and a name may contain a line feed: `x⏎physics|eve` looks like an
    /// account of its own. slurmdbd lists each account once, so the coordinators of an account that
    /// is listed twice are unknown. They name users, too, but give them no level.
    pub fn parse(administrators: &str, operators: &str, accounts: &str) -> Self {
        let names = |text: &str| text.lines().map(str::to_owned).collect();
        // `None` marks an account that is listed twice. It stays in the map, or a third line would count again.
        let mut listed: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for (account, users) in accounts.lines().filter_map(|line| line.split_once('|')) {
            listed
                .entry(account)
                .and_modify(|users| *users = None)
                .or_insert(Some(users));
        }

        let coordinators = listed
            .iter()
            .filter_map(|(account, users)| Some((account, users.as_ref()?)))
            .flat_map(|(account, users)| {
                users
                    .split(',')
                    .filter(|user| !user.is_empty())
                    .map(|user| (user.to_owned(), (*account).to_owned()))
            })
            .collect();

        Self {
            administrators: names(administrators),
            operators: names(operators),
            coordinators,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_hides_jobs_from_users_without_privileges() {
        let config = |private: &str| {
            format!("PrivateData             = {private}\nSlurmUser               = slurm(64030)\n")
        };
        for (private, hides) in [
            ("jobs", true),
            ("usage,jobs", true),
            ("all", true),
            ("none", false),
            ("usage,users", false),
        ] {
            assert_eq!(hides_jobs(&config(private), 998), hides, "{private}");
            assert!(!hides_jobs(&config(private), 0), "root sees all");
            assert!(!hides_jobs(&config(private), 64_030), "SlurmUser sees all");
        }
        // Without an answer of scontrol nothing is known to be hidden.
        assert!(!hides_jobs("", 998));
    }

    #[test]
    fn an_operator_is_known_by_the_uid() {
        let users = "Current Association Manager state\n\nUser Records\n\n\
                     UserName=root(0) DefAccount=root DefWckey=(null) AdminLevel=Administrator\n\
                     UserName=takt(998) DefAccount=root DefWckey= AdminLevel=Operator\n\
                     UserName=ann(1998) DefAccount=lab DefWckey= AdminLevel=None\n";
        for (uid, expected) in [(0, true), (998, true), (1998, false), (99, false)] {
            assert_eq!(is_operator(users, uid), expected, "{uid}");
        }
        assert!(!is_operator(
            "\nNo users currently cached in Slurm.\n\n",
            998
        ));
    }

    #[test]
    fn the_setting_is_found_in_the_configuration() {
        let config = "Configuration data as of 1790000000\nPriorityType            = priority/multifactor\n\
                      PrivateData             = jobs,usage\nProctrackType           = proctrack/linuxproc\n";
        assert_eq!(private_data(config), Some("jobs,usage"));
        assert_eq!(private_data("ClusterName = lab\n"), None);
    }

    #[test]
    fn devices_are_constrained_by_the_plugin_and_cgroup_conf() {
        let config = |plugins: &str, constrains: &str| {
            format!(
                "TaskPlugin              = {plugins}\n\nCgroup Support Configuration:\n\
                 AllowedRAMSpace         = 100.0%\n{constrains}"
            )
        };
        let found = |plugins, constrains| constrains_devices(&config(plugins, constrains));
        let yes = "ConstrainDevices        = yes\n";
        assert_eq!(found("task/affinity,task/cgroup", yes), Some(true));
        assert_eq!(found("task/cgroup", "ConstrainDevices = no\n"), Some(false));
        assert_eq!(found("task/affinity", yes), Some(false));
        assert_eq!(found("task/cgroup", ""), None, "an older Slurm");
        assert_eq!(constrains_devices("ClusterName = lab\n"), None);
    }

    #[test]
    fn the_version_and_disabled_rollups_are_found() {
        assert_eq!(
            version(
                "SLURM_CONF              = /etc/slurm.conf\nSLURM_VERSION           = 22.05.8\n"
            ),
            Some("22.05.8")
        );
        for (config, disabled) in [
            ("DisableRollups         = Yes\n", true),
            ("DisableRollups         = No\n", false),
            ("DisableCoordDBD        = Yes\n", false),
        ] {
            assert_eq!(rollups_are_disabled(config), disabled, "{config}");
        }
    }

    #[test]
    fn roles_come_from_users_and_accounts() {
        let roles = SlurmRoles::parse("root\n", "olga\n", "physics|bob,carol\nroot|\n");
        assert_eq!(roles.administrators, ["root"]);
        assert_eq!(roles.operators, ["olga"]);
        let pair = |user: &str| (user.to_owned(), "physics".to_owned());
        assert_eq!(roles.coordinators, [pair("bob"), pair("carol")]);
    }

    /// A coordinator of chemistry names an account below it.
    #[test]
    fn a_name_of_an_account_makes_nobody_a_coordinator() {
        let roles = SlurmRoles::parse(
            "root\n",
            "",
            "chemistry|eve\nx\nphysics|eve|eve\nphysics|bob\nroot|\n",
        );
        assert_eq!(
            roles.coordinators,
            [("eve".to_owned(), "chemistry".to_owned())]
        );
    }
}
