//! Jobs of the past: rows are inserted into slurmdbd's database as slurmdbd writes them, and rolled
//! up. So `sacct` and `sreport` report months in which the lab did not run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Mode, NODES, SlurmLab, config};
use jiff::tz::TimeZone;

/// A job that has ended. Times are seconds since 1970; counts are for the whole job.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: u32,
    pub user: String,
    pub account: String,
    pub partition: String,
    pub submit: i64,
    /// `None` for a job that was cancelled before it started.
    pub start: Option<i64>,
    pub end: i64,
    /// As `sacct` writes it, such as `COMPLETED`.
    pub state: &'static str,
    pub cpus: u32,
    pub memory_mib: u64,
    pub gpus: u32,
    /// `a100` or `l40s`; typed GPUs are recorded beside the untyped ones, as Slurm does.
    pub gpu_type: Option<&'static str>,
    /// The nodes of the job, or the requested ones.
    pub nodes: Vec<&'static str>,
    pub name: String,
    pub time_limit_minutes: u32,
    /// Id of the job's reservation.
    pub reservation: u32,
}

/// A reservation that has ended.
#[derive(Debug, Clone)]
pub struct PastReservation {
    pub id: u32,
    pub name: &'static str,
    pub node: &'static str,
    pub cpus: u32,
    pub is_maintenance: bool,
    pub ignores_jobs: bool,
    /// Users with access, with their accounts.
    pub owners: Vec<(&'static str, &'static str)>,
    pub from: i64,
    pub to: i64,
}

/// An event of a node that has ended.
#[derive(Debug, Clone, Copy)]
pub struct PastEvent {
    pub node: &'static str,
    /// Base state and flags, as in `slurm.h`.
    pub state: u32,
    pub from: i64,
    pub to: i64,
}

/// Usage of one user through one account, as in `sreport cluster UserUtilizationByAccount`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_seconds: u64,
    pub gpu_seconds: u64,
}

/// Marks the rows that were injected.
const MARK: &str = "injected";
/// Slurm's NO_VAL and INFINITE.
const NO_VAL: u32 = 0xffff_fffe;
const INFINITE: u32 = 0xffff_ffff;

impl Job {
    /// A job of one CPU on node0 that was submitted, started and ended at these times.
    pub fn new(id: u32, user: &str, account: &str, submit: i64, start: i64, end: i64) -> Self {
        Self {
            id,
            user: user.to_owned(),
            account: account.to_owned(),
            partition: "gpu".to_owned(),
            submit,
            start: Some(start),
            end,
            state: "COMPLETED",
            cpus: 1,
            memory_mib: 1000,
            gpus: 0,
            gpu_type: None,
            nodes: vec![NODES[0]],
            name: "job".to_owned(),
            time_limit_minutes: 2880,
            reservation: 0,
        }
    }
}

impl SlurmLab {
    /// Inserts jobs into the database and rolls their months up. Creates missing users and
    /// accounts.
    pub fn inject(&self, jobs: &[Job]) {
        assert_eq!(self.mode, Mode::WithDbd, "only slurmdbd has a history");
        let Some(first) = jobs.iter().map(|job| job.submit).min() else {
            return;
        };
        let last = jobs.iter().map(|job| job.end).max().unwrap_or(first);

        // Usage belongs to associations, not to names, so the users' must exist first.
        let associations = self.associations_of(jobs);
        // The numbers of the TRES differ from lab to lab.
        let tres: BTreeMap<String, u32> = self
            .sql(
                DATABASE,
                "select concat(type, if(name = '', '', concat('/', name))), id from tres_table \
                 where deleted = 0",
            )
            .into_iter()
            .map(|row| (row[0].clone(), row[1].parse().unwrap()))
            .collect();
        let rows: Vec<_> = jobs
            .iter()
            .map(|job| self.row(job, associations[&key(job)], &tres))
            .collect();

        let mut script = String::from("start transaction;\n");
        // A statement with all rows may exceed max_allowed_packet.
        for chunk in rows.chunks(1000) {
            let values: Vec<_> = chunk
                .iter()
                .map(|row| format!("({})", row.values().cloned().collect::<Vec<_>>().join(",")))
                .collect();
            let columns = rows[0]
                .keys()
                .map(|column| format!("`{column}`"))
                .collect::<Vec<_>>()
                .join(",");
            script += &format!(
                "insert into {CLUSTER}_job_table ({columns}) values\n{};\n",
                values.join(",\n")
            );
        }

        // The cluster must have existed then, or sreport has no cluster usage to divide by.
        let hour = first.div_euclid(3600) * 3600;
        script += &format!(
            "update {CLUSTER}_event_table set time_start = {hour} where node_name = '' and time_start > {hour}
             order by time_start limit 1;\ncommit;\n"
        );
        self.sql(DATABASE, &script);
        self.roll_up(first, last);
    }

    /// Inserts reservations into the database. They count with the jobs that are injected
    /// afterwards.
    pub fn inject_reservations(&self, reservations: &[PastReservation]) {
        let associations: BTreeMap<(String, String), String> = self
            .sql(
                DATABASE,
                &format!(
                    "select user, acct, id_assoc from {CLUSTER}_assoc_table where deleted = 0 \
                     and user <> ''"
                ),
            )
            .into_iter()
            .map(|row| ((row[0].clone(), row[1].clone()), row[2].clone()))
            .collect();
        for kept in reservations {
            let owners: Vec<&str> = kept
                .owners
                .iter()
                .map(|(user, account)| ((*user).to_owned(), (*account).to_owned()))
                .map(|owner| associations[&owner].as_str())
                .collect();
            // MAINT is 1, IGNORE_JOBS 0x40.
            let flags = u32::from(kept.is_maintenance) + 0x40 * u32::from(kept.ignores_jobs);
            let inx = NODES.iter().position(|node| *node == kept.node).unwrap();
            self.sql(
                DATABASE,
                &format!(
                    "insert into {CLUSTER}_resv_table (id_resv, deleted, assoclist, flags, nodelist, node_inx, resv_name,
                         time_start, time_end, tres) values ({}, 1, '{}', {flags}, '{}', '{inx}', '{}', {}, {}, '1={}')",
                    kept.id,
                    owners.join(","),
                    kept.node,
                    kept.name,
                    kept.from,
                    kept.to,
                    kept.cpus
                ),
            );
        }
    }

    /// Inserts events of nodes into the database. They count with the jobs that are injected
    /// afterwards.
    pub fn inject_events(&self, events: &[PastEvent]) {
        let gpus = self.sql(
            DATABASE,
            "select id from tres_table where type = 'gres' and name = 'gpu' and deleted = 0",
        );
        let gpus = &gpus[0][0];

        // Each with the node's CPUs and GPUs, which its down time is counted in.
        let rows: Vec<_> = events
            .iter()
            .map(|event| {
                format!(
                    "({}, {}, '{}', 'test', {}, '1=8,{gpus}=2')",
                    event.from, event.to, event.node, event.state
                )
            })
            .collect();
        self.sql(
            DATABASE,
            &format!(
                "insert into {CLUSTER}_event_table (time_start, time_end, node_name, reason, state, tres) values {}",
                rows.join(",")
            ),
        );
    }

    /// Returns sreport's usage of each account and user from `from` to `to`, in sreport's format
    /// such as `2026-09-01`.
    pub fn sreport(&self, from: &str, to: &str) -> BTreeMap<(String, String), Usage> {
        let report = self.run(&[
            "sreport",
            "-n",
            "-P",
            "-t",
            "seconds",
            "--tres=cpu,gres/gpu",
            "cluster",
            "UserUtilizationByAccount",
            &format!("start={from}"),
            &format!("end={to}"),
            "format=Account,Login,TresName,Used",
        ]);
        let mut usage = BTreeMap::<_, Usage>::new();
        for line in report.lines() {
            let [account, user, tres, used] = line.split('|').collect::<Vec<_>>()[..] else {
                panic!("sreport wrote {line:?}")
            };
            // One line a TRES.
            let entry = usage
                .entry((account.to_owned(), user.to_owned()))
                .or_default();
            match tres {
                "cpu" => entry.cpu_seconds = used.parse().unwrap(),
                "gres/gpu" => entry.gpu_seconds = used.parse().unwrap(),
                _ => panic!("sreport wrote {line:?}"),
            }
        }
        usage
    }

    /// `sacctmgr rollup`: undocumented; it waits for its end and does not change the time of the
    /// last regular rollup.
    fn roll_up(&self, first: i64, last: i64) {
        let zone = TimeZone::get(&self.timezone).unwrap();
        let local = |seconds: i64| {
            jiff::Timestamp::from_second(seconds)
                .unwrap()
                .to_zoned(zone.clone())
        };
        let now = i64::try_from(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs(),
        )
        .unwrap();

        // Whole months, as slurmdbd rolls hours up to days and days to months.
        let from = local(first)
            .first_of_month()
            .unwrap()
            .start_of_day()
            .unwrap();
        let month_after = local(last)
            .first_of_month()
            .unwrap()
            .checked_add(jiff::Span::new().months(1))
            .unwrap();
        // The month of today has not ended.
        let to = month_after.start_of_day().unwrap().min(local(now));
        let text = |time: jiff::Zoned| time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        self.run(&["sacctmgr", "-i", "rollup", &text(from), &text(to)]);
    }

    /// Returns the association of each user and account; creates missing ones.
    fn associations_of(&self, jobs: &[Job]) -> BTreeMap<(String, String), u32> {
        let known = || -> BTreeMap<_, _> {
            let query = format!(
                "select user, acct, id_assoc from {CLUSTER}_assoc_table where deleted = 0 and user \
                 <> '' and `partition` = ''"
            );
            self.sql(DATABASE, &query)
                .into_iter()
                .map(|row| ((row[0].clone(), row[1].clone()), row[2].parse().unwrap()))
                .collect()
        };
        let associations = known();
        let wanted: BTreeSet<_> = jobs.iter().map(key).collect();
        let missing: Vec<_> = wanted
            .iter()
            .filter(|key| !associations.contains_key(*key))
            .collect();
        if missing.is_empty() {
            return associations;
        }

        // An account before its users, or sacctmgr refuses them.
        let accounts = self
            .sql(DATABASE, "select name from acct_table where deleted = 0")
            .concat();
        let new: BTreeSet<_> = missing
            .iter()
            .map(|(_, account)| account)
            .filter(|a| !accounts.contains(a))
            .collect();
        for account in new {
            self.run(&[
                "sacctmgr",
                "-i",
                "-Q",
                "add",
                "account",
                account,
                "cluster=lab",
            ]);
        }
        for (user, account) in missing {
            self.run(&[
                "sacctmgr",
                "-i",
                "-Q",
                "add",
                "user",
                user,
                "cluster=lab",
                &format!("account={account}"),
            ]);
        }
        known()
    }

    /// Returns a row of slurmdbd's job table, as column and SQL literal.
    fn row(
        &self,
        job: &Job,
        association: u32,
        tres: &BTreeMap<String, u32>,
    ) -> BTreeMap<&'static str, String> {
        let started = job.start.is_some();
        let uid = config::USERS
            .iter()
            .find(|user| user.name == job.user)
            .map_or(NOBODY, |user| user.uid);
        let nodes = job.nodes.len();

        // By the weights of the partitions in the lab's slurm.conf.
        let billing =
            f64::from(job.cpus) + 0.25 * job.memory_mib as f64 / 1024.0 + 8.0 * f64::from(job.gpus);
        let mut requested = vec![
            (tres["cpu"], u64::from(job.cpus)),
            (tres["mem"], job.memory_mib),
            (tres["node"], nodes as u64),
            (tres["billing"], billing as u64),
        ];
        if job.gpus > 0 {
            requested.push((tres["gres/gpu"], job.gpus.into()));
        }
        // The request names no type, the allocation does.
        let mut allocated = requested.clone();
        if let Some(gpu_type) = job.gpu_type {
            allocated.push((tres[&format!("gres/gpu:{gpu_type}")], job.gpus.into()));
        }
        let list = |tres: &[(u32, u64)]| {
            tres.iter()
                .map(|(id, n)| format!("{id}={n}"))
                .collect::<Vec<_>>()
                .join(",")
        };
        let inx = job
            .nodes
            .iter()
            .filter_map(|node| NODES.iter().position(|n| n == node))
            .map(|i| i.to_string());
        let cancelled = job.state == "CANCELLED";
        let number = |n: i64| n.to_string();
        BTreeMap::from([
            ("mod_time", number(job.end)),
            ("admin_comment", quote(MARK)),
            ("account", quote(&job.account)),
            ("job_name", quote(&job.name)),
            ("id_job", number(job.id.into())),
            ("id_assoc", number(association.into())),
            ("id_user", number(uid.into())),
            ("id_group", number(config::GROUP.1.into())),
            ("id_qos", "1".to_owned()),
            ("id_resv", job.reservation.to_string()),
            ("id_wckey", "0".to_owned()),
            ("het_job_id", "0".to_owned()),
            ("het_job_offset", number(NO_VAL.into())),
            ("state", number(state_number(job.state).into())),
            ("state_reason_prev", "0".to_owned()),
            (
                "exit_code",
                number(if started { exit_code(job.state) } else { 0 }.into()),
            ),
            // The user who cancelled the job; INFINITE means none.
            (
                "kill_requid",
                number(if cancelled { uid } else { INFINITE }.into()),
            ),
            // 16: the start was recorded; 4: started by the main scheduler.
            ("flags", number(if started { 20 } else { 16 })),
            ("priority", "1000".to_owned()),
            ("partition", quote(&job.partition)),
            ("timelimit", number(job.time_limit_minutes.into())),
            ("cpus_req", number(job.cpus.into())),
            ("mem_req", (job.memory_mib / nodes as u64).to_string()),
            (
                "nodelist",
                quote(&if started {
                    job.nodes.join(",")
                } else {
                    "None assigned".to_owned()
                }),
            ),
            ("nodes_alloc", (if started { nodes } else { 0 }).to_string()),
            (
                "node_inx",
                quote(&if started {
                    inx.collect::<Vec<_>>().join(",")
                } else {
                    String::new()
                }),
            ),
            ("time_submit", number(job.submit)),
            ("time_eligible", number(job.submit)),
            // A job that never started has its end as its start, and no allocated resources.
            ("time_start", number(job.start.unwrap_or(job.end))),
            ("time_end", number(job.end)),
            (
                "tres_alloc",
                quote(&if started {
                    list(&allocated)
                } else {
                    String::new()
                }),
            ),
            ("tres_req", quote(&list(&requested))),
        ])
    }
}

const DATABASE: &str = "slurm_acct_db";
const CLUSTER: &str = config::CLUSTER;
/// Ids of users who are not in the lab's passwd.
const NOBODY: u32 = 65_534;

fn key(job: &Job) -> (String, String) {
    (job.user.clone(), job.account.clone())
}

/// Slurm's `enum job_states`.
fn state_number(state: &str) -> u32 {
    match state {
        "COMPLETED" => 3,
        "CANCELLED" => 4,
        "FAILED" => 5,
        "TIMEOUT" => 6,
        "NODE_FAIL" => 7,
        "PREEMPTED" => 8,
        "BOOT_FAIL" => 9,
        "DEADLINE" => 10,
        "OUT_OF_MEMORY" => 11,
        // The final state of a requeued run.
        "REQUEUED" => 1024,
        _ => panic!("no state of an ended job: {state}"),
    }
}

/// A wait status: exit code times 256, or a signal.
fn exit_code(state: &str) -> u32 {
    match state {
        "FAILED" => 1 << 8,
        "TIMEOUT" | "CANCELLED" => 15,
        "OUT_OF_MEMORY" => 125,
        _ => 0,
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
