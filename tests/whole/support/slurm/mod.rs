//! A real Slurm on one machine: munge, MariaDB, slurmdbd, slurmctld and three slurmd nodes with two
//! fake GPUs each. All programs listen on 127.0.0.1 and keep their files in one directory, not in
//! /etc. Dropping the lab ends them.
//!
//! Users: alice and bob of account lab-a, carol and dave of lab-b, monitor (an operator). They
//! exist through libnss-wrapper only, so programs that talk to the lab have to run in
//! [`SlurmLab::environment`].

mod config;
mod history;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::process::{Daemon, wait_for};
use super::{Needed, Skip, find_program, need, need_root};

pub use history::{Job, PastEvent, PastReservation, Usage};
use rustix::process::Pid;
use std::fs;
use std::io;
use std::net::TcpStream;

/// Whether the lab has an accounting database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// slurmdbd on MariaDB: `sacct`, `sacctmgr`, `sreport` and `sshare` work.
    WithDbd,
    /// As `WithDbd`, but `AccountingStorageTRES` lacks GPUs, so slurmdbd does not record them.
    WithoutGpuTres,
    /// No accounting storage; slurmctld appends finished jobs to [`SlurmLab::jobcomp`].
    WithoutDbd,
}

impl Mode {
    fn has_dbd(self) -> bool {
        self != Self::WithoutDbd
    }
}

/// Partitions whose jobs `urgent` preempts: one requeues them, one cancels, one suspends.
pub const PREEMPTION: &str = "PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
PartitionName=requeued Nodes=node0 MaxTime=60 PriorityTier=1 PreemptMode=REQUEUE OverSubscribe=NO
PartitionName=cancelled Nodes=node1 MaxTime=60 PriorityTier=1 PreemptMode=CANCEL OverSubscribe=NO
PartitionName=suspended Nodes=node2 MaxTime=60 PriorityTier=1 PreemptMode=SUSPEND OverSubscribe=FORCE:1
PartitionName=urgent Nodes=node[0-2] MaxTime=60 PriorityTier=10 PreemptMode=OFF OverSubscribe=FORCE:1
";

/// A program of the lab. All except slurmrestd start with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Munged,
    Mariadbd,
    Slurmdbd,
    Slurmctld,
    /// Listens on [`SlurmLab::slurmrestd`] and accepts tokens from [`SlurmLab::token`].
    Slurmrestd,
    /// slurmd of `node0`, `node1` or `node2`.
    Node(usize),
}

/// A running Slurm.
pub struct SlurmLab {
    mode: Mode,
    /// Lines added to slurm.conf.
    settings: &'static str,
    timezone: String,
    ports: config::Ports,
    // In the order of their start.
    running: Vec<(Service, Daemon)>,
    directory: TempDir,
}

pub const NODES: [&str; 3] = ["node0", "node1", "node2"];

const DBD_ORDER: [Service; 7] = [
    Service::Munged,
    Service::Mariadbd,
    Service::Slurmdbd,
    Service::Slurmctld,
    Service::Node(0),
    Service::Node(1),
    Service::Node(2),
];

/// An environment variable of every process of a lab, job steps included; its value is the lab's
/// directory.
const OWNER: &str = "TAKT_TEST_SLURM_LAB";

impl SlurmLab {
    /// Starts a lab in UTC. Takes about eight seconds with a database, one without.
    pub fn start(mode: Mode) -> Result<Self, Skip> {
        Self::start_in(mode, "UTC")
    }

    /// Starts a lab in a time zone, which Slurm uses for days, months and printed times.
    pub fn start_in(mode: Mode, timezone: &str) -> Result<Self, Skip> {
        Self::start_with(mode, timezone, "")
    }

    /// Starts a lab with more lines in its slurm.conf.
    pub fn start_with(mode: Mode, timezone: &str, settings: &'static str) -> Result<Self, Skip> {
        need_root()?;
        need(&[
            Needed {
                program: "munged",
                package: "munge",
            },
            Needed {
                program: "slurmctld",
                package: "slurmctld",
            },
            Needed {
                program: "slurmd",
                package: "slurmd slurm-wlm-basic-plugins",
            },
            Needed {
                program: "scontrol",
                package: "slurm-client",
            },
        ])?;
        if mode.has_dbd() {
            need(&[
                Needed {
                    program: "slurmdbd",
                    package: "slurmdbd slurm-wlm-mysql-plugin",
                },
                Needed {
                    program: "mariadbd",
                    package: "mariadb-server-core",
                },
                Needed {
                    program: "mariadb",
                    package: "mariadb-client-core",
                },
            ])?;
        }

        // The loader only warns of a library that it does not find.
        if Command::new("true")
            .env("LD_PRELOAD", "libnss_wrapper.so")
            .output()
            .unwrap()
            .stderr
            != b""
        {
            return Err(Skip(
                "needs libnss_wrapper.so; apt-get install libnss-wrapper".to_owned(),
            ));
        }
        sweep();

        // Unix sockets allow about a hundred characters, and other users have to reach the directory.
        let prefix = format!("{DIRECTORY_PREFIX}{}-", process::id());
        let directory = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in("/tmp")
            .unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();

        // Ports are chosen before the configuration is written, which names them in several files.
        let ports = config::Ports::choose();
        let mut lab = Self {
            mode,
            settings,
            timezone: timezone.to_owned(),
            ports,
            running: Vec::new(),
            directory,
        };
        lab.write_configuration();
        // Each service needs those before it.
        for service in DBD_ORDER
            .into_iter()
            .filter(|s| mode.has_dbd() || !matches!(s, Service::Mariadbd | Service::Slurmdbd))
        {
            lab.start_service(service);
        }
        wait_for("nodes of the lab", Duration::from_secs(60), || {
            lab.nodes_are_up().then_some(())
        });
        Ok(lab)
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the file to which a lab without slurmdbd appends finished jobs.
    pub fn jobcomp(&self) -> PathBuf {
        self.path("log/jobcomp.log")
    }

    /// Returns the environment variables that a client program of this lab needs.
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &str| self.path(path).display().to_string();
        [
            ("SLURM_CONF", text("etc/slurm.conf")),
            ("NSS_WRAPPER_PASSWD", text("etc/passwd")),
            ("NSS_WRAPPER_GROUP", text("etc/group")),
            ("NSS_WRAPPER_HOSTS", text("etc/hosts")),
            ("NSS_WRAPPER_HOSTNAME", config::HOSTNAME.to_owned()),
            ("LD_PRELOAD", "libnss_wrapper.so".to_owned()),
            ("TZ", self.timezone.clone()),
            (OWNER, self.directory().display().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Runs a Slurm command as root and returns its output; fails if the command fails.
    #[track_caller]
    pub fn run<A>(&self, command: &[A]) -> String
    where
        A: AsRef<OsStr>,
    {
        success(command, self.try_run(command))
    }

    /// Runs a Slurm command as root and returns its output and status.
    pub fn try_run<A>(&self, command: &[A]) -> Output
    where
        A: AsRef<OsStr>,
    {
        self.client(command).output().unwrap()
    }

    /// Runs a command as a user of the lab, in that user's home; fails if the command fails.
    #[track_caller]
    pub fn as_user<A>(&self, user: &str, command: &[A]) -> String
    where
        A: AsRef<OsStr>,
    {
        let (uid, gid) = self.ids(user);
        let home = self.path("home").join(user);
        let mut client = self.client(command);
        client
            .current_dir(&home)
            .env("HOME", &home)
            .env("USER", user)
            .env("LOGNAME", user)
            // The numbers, not the name: the system does not know the lab's users.
            .uid(uid)
            .gid(gid);
        success(command, client.output().unwrap())
    }

    /// Submits `script` as a batch job of a user, with further arguments of sbatch, and returns its
    /// id.
    #[track_caller]
    pub fn submit(&self, user: &str, arguments: &[&str], script: &str) -> u32 {
        let command = [&["sbatch", "--parsable"], arguments, &["--wrap", script]].concat();
        let answer = self.as_user(user, &command);
        answer
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("sbatch answered {answer:?}"))
    }

    /// Waits until slurmctld reports this state (`RUNNING`, …) of a job.
    pub fn wait_for_state(&self, job: u32, state: &str, limit: Duration) {
        let job = job.to_string();
        let what = format!("job {job} in state {state}");
        wait_for(&what, limit, || {
            // With all states: squeue leaves out jobs that have just ended.
            let states = self.run(&["squeue", "-h", "-t", "all", "-j", &job, "-o", "%T"]);
            (states.lines().any(|s| s == state)).then_some(())
        });
    }

    /// Waits until no job is queued or running, and until the database has their ends.
    pub fn wait_until_idle(&self, limit: Duration) {
        wait_for("end of all jobs", limit, || {
            self.run(&["squeue", "-h", "-o", "%A"])
                .is_empty()
                .then_some(())
        });
        if self.mode.has_dbd() {
            // slurmctld sends starts to slurmdbd only every five seconds, and ends after that.
            let known = self.run(&["squeue", "-h", "-r", "-t", "all", "-o", "%A"]);
            wait_for("end of all jobs in sacct", limit, || {
                let sacct = [
                    "sacct",
                    "-a",
                    "-D",
                    "-X",
                    "-n",
                    "-P",
                    "-S",
                    "1970-01-01",
                    "-o",
                    "JobIDRaw,State",
                ];
                let records = self.run(&sacct);
                let rows: BTreeMap<_, _> = records
                    .lines()
                    .filter_map(|row| row.split_once('|'))
                    .collect();
                known
                    .lines()
                    .all(|job| {
                        rows.get(job)
                            .is_some_and(|state| !["PENDING", "RUNNING"].contains(state))
                    })
                    .then_some(())
            });
        }
    }

    /// Stops a program of the lab.
    pub fn stop(&mut self, service: Service) {
        self.running.retain_mut(|(running, daemon)| {
            if *running == service {
                daemon.stop();
            }
            *running != service
        });
    }

    /// Starts a stopped program and waits until it is ready.
    pub fn start_service(&mut self, service: Service) {
        assert!(
            self.running.iter().all(|(running, _)| *running != service),
            "{service:?} is running"
        );
        let daemon = match service {
            Service::Munged => self.start_munged(),
            Service::Mariadbd => self.start_mariadbd(),
            Service::Slurmdbd => self.start_slurmdbd(),
            Service::Slurmctld => self.start_slurmctld(),
            Service::Slurmrestd => self.start_slurmrestd(),
            Service::Node(n) => self.daemon(
                "slurmd",
                NODES[n],
                "root",
                &["slurmd", "-D", "-N", NODES[n]],
            ),
        };
        self.running.push((service, daemon));
    }

    /// Returns the address of slurmrestd.
    pub fn slurmrestd(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.slurmrestd)
    }

    /// Returns the path of slurmrestd's Unix socket.
    pub fn slurmrestd_socket(&self) -> PathBuf {
        self.path("run/slurmrestd/socket")
    }

    /// Returns a user's token for slurmrestd.
    pub fn token(&self, user: &str, seconds: u32) -> String {
        let text = self.run(&[
            "scontrol",
            "token",
            &format!("username={user}"),
            &format!("lifespan={seconds}"),
        ]);
        text.trim()
            .strip_prefix("SLURM_JWT=")
            .unwrap_or_else(|| panic!("scontrol wrote {text}"))
            .to_owned()
    }

    fn start_slurmrestd(&self) -> Daemon {
        let listen = format!("127.0.0.1:{}", self.ports.slurmrestd);

        // slurmrestd exits if it cannot load the plugins that need slurmdbd.
        let plugins: &[&str] = if self.mode.has_dbd() {
            &[]
        } else {
            &["-s", "v0.0.38"]
        };
        let socket = format!("unix:{}", self.slurmrestd_socket().display());
        // A socket that a stopped one has left cannot be bound again.
        let _ = fs::remove_file(self.slurmrestd_socket());
        let command = [
            &["slurmrestd"],
            plugins,
            &["-a", "rest_auth/jwt", &listen, &socket],
        ]
        .concat();

        // slurmrestd refuses to run as root or as Slurm's user, and accepts tokens only if
        // SLURM_JWT is set to any value.
        let mut slurmrestd = self.command_as("monitor", "slurmrestd");
        slurmrestd
            .args(&command[1..])
            .envs(self.environment())
            .env("SLURM_JWT", "daemon");
        let mut daemon = Daemon::start("slurmrestd", slurmrestd, &self.path("log/slurmrestd.out"));
        daemon.wait_until("listening", Duration::from_secs(30), || {
            TcpStream::connect(&listen).ok()
        });
        daemon
    }

    fn start_munged(&self) -> Daemon {
        let socket = self.path("run/munge/munge.socket");
        let mut daemon = self.daemon(
            "munged",
            "munged",
            "munge",
            &[
                "munged",
                "--foreground",
                &format!("--key-file={}", self.path("munge/munge.key").display()),
                &format!("--socket={}", socket.display()),
                &format!("--pid-file={}", self.path("run/munge/munged.pid").display()),
                &format!("--seed-file={}", self.path("munge/seed").display()),
                "--num-threads=2",
                "--origin=127.0.0.1",
            ],
        );
        daemon.wait_until("ready", Duration::from_secs(20), || {
            socket.exists().then_some(())
        });
        daemon
    }

    fn start_mariadbd(&self) -> Daemon {
        let data = self.path("mariadb");
        if !data.join("mysql").exists() {
            let mut install = self.command_as("slurm", "mariadb-install-db");

            // A tmpdir of its own: installations at the same time take each other's files for
            // left-overs.
            install.env("TMPDIR", &data);
            install
                .arg("--no-defaults")
                .arg(format!("--datadir={}", data.display()))
                .args([
                    "--skip-test-db",
                    "--auth-root-authentication-method=socket",
                    "--auth-root-socket-user=root",
                ]);
            success(&["mariadb-install-db"], install.output().unwrap());
        }

        let defaults = format!("--defaults-file={}", self.path("etc/my.cnf").display());
        let mut daemon = self.daemon("mariadbd", "mariadbd", "slurm", &["mariadbd", &defaults]);
        daemon.wait_until("ready", Duration::from_secs(90), || {
            self.try_sql("", "select 1").ok()
        });
        self.sql(
            "",
            &format!(
                "create database if not exists slurm_acct_db;
                 create user if not exists slurm@'127.0.0.1' identified by '{}';
                 grant all on slurm_acct_db.* to slurm@'127.0.0.1';",
                config::SQL_PASSWORD
            ),
        );
        daemon
    }

    fn start_slurmdbd(&self) -> Daemon {
        let mut daemon = self.daemon("slurmdbd", "slurmdbd", "slurm", &["slurmdbd", "-D"]);
        let answers = || self.try_run(&["sacctmgr", "-n", "-i", "list", "cluster"]);
        daemon.wait_until("ready", Duration::from_secs(120), || {
            let answer = answers();

            // A new database has no cluster yet.
            answer
                .status
                .success()
                .then(|| String::from_utf8_lossy(&answer.stdout).contains(config::CLUSTER))
        });

        // A restart keeps its accounts.
        if !String::from_utf8_lossy(&answers().stdout).contains(config::CLUSTER) {
            self.make_accounts();
        }
        daemon
    }

    fn start_slurmctld(&self) -> Daemon {
        let mut daemon = self.daemon("slurmctld", "slurmctld", "slurm", &["slurmctld", "-D"]);
        daemon.wait_until("ready", Duration::from_secs(60), || {
            String::from_utf8_lossy(&self.try_run(&["scontrol", "ping"]).stdout)
                .contains("is UP")
                .then_some(())
        });
        daemon
    }

    fn make_accounts(&self) {
        let add = |what: &str, properties: &str| {
            let command: Vec<_> = "sacctmgr -i -Q add"
                .split(' ')
                .chain(what.split(' '))
                .chain(properties.split(' '))
                .collect();
            self.run(&command);
        };
        add("cluster", config::CLUSTER);
        add(
            "account lab-a",
            "cluster=lab fairshare=60 description=lab-a organization=uni",
        );
        add(
            "account lab-b",
            "cluster=lab fairshare=40 description=lab-b organization=uni",
        );
        add(
            "user alice,bob",
            "cluster=lab account=lab-a defaultaccount=lab-a fairshare=10",
        );
        add(
            "user carol,dave",
            "cluster=lab account=lab-b defaultaccount=lab-b fairshare=10",
        );
        add(
            "user monitor",
            "cluster=lab account=root adminlevel=operator fairshare=1",
        );
    }

    fn nodes_are_up(&self) -> bool {
        let states = self.run(&["sinfo", "-h", "-N", "-p", "gpu", "-o", "%T"]);
        states
            .lines()
            .filter(|state| ["idle", "mixed", "allocated", "completing"].contains(state))
            .count()
            == NODES.len()
    }

    /// Runs SQL on a database of the lab's MariaDB and returns the rows.
    fn sql(&self, database: &str, text: &str) -> Vec<Vec<String>> {
        self.try_sql(database, text)
            .unwrap_or_else(|error| panic!("SQL failed: {error}"))
    }

    fn try_sql(&self, database: &str, text: &str) -> Result<Vec<Vec<String>>, String> {
        // A statement may exceed the limit of an argument, so it is read from a file.
        let mut script = tempfile::tempfile_in(self.directory()).unwrap();
        io::Write::write_all(&mut script, text.as_bytes()).unwrap();
        io::Seek::rewind(&mut script).unwrap();
        let mut client = Command::new("mariadb");
        client.args([
            "--no-defaults",
            "--user=root",
            "--batch",
            "--skip-column-names",
        ]);
        client.arg(format!(
            "--socket={}",
            self.path("run/mariadb/mariadb.sock").display()
        ));
        if !database.is_empty() {
            client.arg(database);
        }
        let output = client.stdin(script).output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let rows = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(rows
            .lines()
            .map(|row| row.split('\t').map(str::to_owned).collect())
            .collect())
    }

    fn daemon(&self, program: &str, name: &str, user: &str, command: &[&str]) -> Daemon {
        let mut daemon = self.command_as(user, command[0]);
        daemon.args(&command[1..]).envs(self.environment());
        if !program.starts_with("slurm") {
            // Only Slurm needs the lab's users and host name.
            daemon.env_remove("LD_PRELOAD");
        }
        Daemon::start(name, daemon, &self.path(&format!("log/{name}.out")))
    }

    fn client<A>(&self, command: &[A]) -> Command
    where
        A: AsRef<OsStr>,
    {
        let mut client = Command::new(command[0].as_ref());
        client
            .args(&command[1..])
            .env_remove("SLURM_JWT")
            .envs(self.environment());
        client
    }

    /// Returns a command that runs as a user of the system.
    fn command_as(&self, user: &str, program: &str) -> Command {
        let mut command = Command::new(find_program(program).unwrap_or_else(|| program.into()));
        if user != "root" {
            let (uid, gid) = self.ids(user);
            command.uid(uid).gid(gid);
        }
        command
    }

    fn ids(&self, user: &str) -> (u32, u32) {
        let passwd = fs::read_to_string(self.path("etc/passwd")).unwrap();
        let fields: Vec<_> = passwd
            .lines()
            .find(|line| line.split(':').next() == Some(user))
            .unwrap_or_else(|| panic!("no user {user}"))
            .split(':')
            .collect();
        (fields[2].parse().unwrap(), fields[3].parse().unwrap())
    }

    fn own(&self, path: &str, user: &str) {
        let (uid, gid) = self.ids(user);
        chown(self.path(path), Some(uid), Some(gid)).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory().join(path)
    }
}

impl Drop for SlurmLab {
    fn drop(&mut self) {
        // Cancels jobs while slurmctld still runs, so that no job step is left.
        if self
            .running
            .iter()
            .any(|(service, _)| *service == Service::Slurmctld)
        {
            let jobs = self.try_run(&["squeue", "-h", "-o", "%A"]).stdout;
            let jobs: Vec<_> = std::str::from_utf8(&jobs)
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            if !jobs.is_empty() {
                self.try_run(&[&["scancel"], jobs.as_slice()].concat());
                // Bounded: a job that cannot end must not hang the test.
                let deadline = Instant::now() + Duration::from_secs(10);
                while !self
                    .try_run(&["squeue", "-h", "-o", "%A"])
                    .stdout
                    .is_empty()
                    && Instant::now() < deadline
                {
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }

        // The nodes end first, and the database after the programs that write to it.
        while let Some((_, mut daemon)) = self.running.pop() {
            daemon.stop();
        }
        end_steps(self.directory());
    }
}

const DIRECTORY_PREFIX: &str = "takt-slurm-";

/// Removes files and processes that killed test programs have left.
fn sweep() {
    for entry in fs::read_dir("/tmp").unwrap().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(DIRECTORY_PREFIX)?.split('-').next());
        // The directory's name has the process that made it; a test that runs now keeps its lab.
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            end_steps(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Kills job steps that have outlived their slurmd, found by the lab's directory in their
/// environment.
fn end_steps(lab: &Path) {
    let mark = format!("{OWNER}={}", lab.display());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark.as_bytes())
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[track_caller]
fn success<A>(command: &[A], output: Output) -> String
where
    A: AsRef<OsStr>,
{
    let command: Vec<_> = command
        .iter()
        .map(|word| word.as_ref().to_string_lossy())
        .collect();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} ended with {}: {stderr}",
        command.join(" "),
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
