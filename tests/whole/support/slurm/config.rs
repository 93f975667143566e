//! The lab's files: users, keys, and the configuration of each program.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::{Mode, NODES, SlurmLab};
use crate::support::process::free_port;
use std::array;
use std::io;

pub const CLUSTER: &str = "lab";
/// Name of the host of all nodes, from the lab's hosts file.
pub const HOSTNAME: &str = "slurmlab";
/// Password of a database on loopback that exists for one test.
pub const SQL_PASSWORD: &str = "slurm";

pub const GROUP: (&str, u32) = ("labusers", 61_000);

pub struct User {
    pub name: &'static str,
    pub uid: u32,
}

pub const USERS: [User; 5] = [
    User {
        name: "alice",
        uid: 61_001,
    },
    User {
        name: "bob",
        uid: 61_002,
    },
    User {
        name: "carol",
        uid: 61_003,
    },
    User {
        name: "dave",
        uid: 61_004,
    },
    User {
        name: "monitor",
        uid: 61_005,
    },
];

/// Ports on loopback.
pub struct Ports {
    sql: u16,
    slurmctld: u16,
    slurmdbd: u16,
    pub slurmrestd: u16,
    nodes: [u16; NODES.len()],
}

impl Ports {
    pub fn choose() -> Self {
        Self {
            sql: free_port(),
            slurmctld: free_port(),
            slurmdbd: free_port(),
            slurmrestd: free_port(),
            nodes: array::from_fn(|_| free_port()),
        }
    }
}

impl SlurmLab {
    pub(super) fn write_configuration(&self) {
        // First: files get owners that only the lab's passwd names.
        self.write_users();
        for directory in [
            "run/munge",
            "run/mariadb",
            "run/slurm",
            "munge",
            "mariadb",
            "run/slurmrestd",
            "archive",
            "state",
            "log",
            "dev",
            "spool/node0",
            "spool/node1",
            "spool/node2",
        ] {
            fs::create_dir_all(self.path(directory)).unwrap();
        }
        for path in ["munge", "run/munge"] {
            self.own(path, "munge");
        }
        for path in ["mariadb", "run/mariadb", "run/slurm", "archive", "state"] {
            self.own(path, "slurm");
        }
        self.own("run/slurmrestd", "monitor");
        // Slurm's user cannot create files in the lab's log folder.
        for log in ["slurmctld", "slurmdbd", "jobcomp"] {
            let path = format!("log/{log}.log");
            fs::write(self.path(&path), "").unwrap();
            self.own(&path, "slurm");
        }

        // munged refuses a key or a directory that others could read.
        let mut key = [0; 1024];
        io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut key).unwrap();
        self.write("munge/munge.key", &key, 0o400, "munge");
        fs::set_permissions(self.path("munge"), Permissions::from_mode(0o700)).unwrap();

        // Tokens for slurmrestd are signed with it.
        self.write("etc/jwt.key", &key[..32], 0o600, "slurm");

        // A GPU's file has to be a character device, or jobs get no CUDA_VISIBLE_DEVICES; no cgroup
        // guards it, so /dev/null will do. The number at its end is the GRES index.
        for gpu in ["nvidia0", "nvidia1"] {
            symlink("/dev/null", self.path("dev").join(gpu)).unwrap();
        }
        self.write(
            "etc/slurm.conf",
            self.slurm_conf().as_bytes(),
            0o644,
            "root",
        );
        self.write("etc/gres.conf", self.gres_conf().as_bytes(), 0o644, "root");
        self.write("etc/my.cnf", self.my_cnf().as_bytes(), 0o644, "root");
        self.write(
            "etc/slurmdbd.conf",
            self.slurmdbd_conf().as_bytes(),
            0o600,
            "slurm",
        );
    }

    /// The system's own users and groups with the lab's added, for libnss-wrapper.
    fn write_users(&self) {
        fs::create_dir_all(self.path("etc")).unwrap();
        // A system may have users with the names of the lab's.
        let without = |file: &str, ours: &[&str]| {
            fs::read_to_string(file)
                .unwrap()
                .lines()
                .filter(|line| !ours.contains(&line.split(':').next().unwrap_or_default()))
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        let mut passwd = without("/etc/passwd", &USERS.map(|user| user.name));
        for User { name, uid, .. } in USERS {
            let home = self.path("home").join(name);
            fs::create_dir_all(&home).unwrap();
            chown(&home, Some(uid), Some(GROUP.1)).unwrap();
            passwd += &format!(
                "{name}:x:{uid}:{}:Slurm lab user:{}:/bin/sh\n",
                GROUP.1,
                home.display()
            );
        }
        let group = without("/etc/group", &[GROUP.0]) + &format!("{}:x:{}:\n", GROUP.0, GROUP.1);
        fs::write(self.path("etc/passwd"), passwd).unwrap();
        fs::write(self.path("etc/group"), group).unwrap();
        fs::write(
            self.path("etc/hosts"),
            format!("127.0.0.1 localhost {HOSTNAME} {}\n", NODES.join(" ")),
        )
        .unwrap();
    }

    fn write(&self, path: &str, content: &[u8], mode: u32, owner: &str) {
        fs::write(self.path(path), content).unwrap();
        fs::set_permissions(self.path(path), Permissions::from_mode(mode)).unwrap();
        self.own(path, owner);
    }

    fn slurm_conf(&self) -> String {
        let dir = self.directory().display();
        let Ports {
            slurmctld,
            slurmdbd,
            nodes,
            ..
        } = self.ports;

        // Without slurmdbd, AccountingStorageTRES=gres/gpu is fatal to slurmctld, and so is a
        // billing weight for GPUs.
        let (accounting, gpu_weight) = match self.mode {
            // With slurmdbd and munge the password is munge's socket; AuthInfo is not used here.
            Mode::WithDbd | Mode::WithoutGpuTres => (
                format!(
                    "AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={dir}/run/munge/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
{}
JobCompType=jobcomp/none",
                    match self.mode {
                        Mode::WithDbd =>
                            "AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:l40s",
                        _ => "",
                    }
                ),
                if self.mode == Mode::WithDbd {
                    ",GRES/gpu=8.0"
                } else {
                    ""
                },
            ),
            Mode::WithoutDbd => (
                format!(
                    "AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={dir}/log/jobcomp.log"
                ),
                "",
            ),
        };

        // Exporters see the jobs of all labs that run on this machine at the same time.
        let first_job = u32::from(slurmctld) * 100;

        // Debian builds with --enable-multiple-slurmd: one host, a port for each node, `slurmd -N`.
        // cgroups and CPU binding are off: the lab runs in any container, and its nodes claim more
        // CPUs than the machine has.
        format!(
            "ClusterName={CLUSTER}
SlurmctldHost={HOSTNAME}(127.0.0.1)
SlurmUser=slurm
SlurmctldPort={slurmctld}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge/munge.socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={dir}/etc/jwt.key
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurm/slurmctld.pid
SlurmdPidFile={dir}/run/slurm/slurmd-%n.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
ReturnToService=2
MessageTimeout=10
SlurmdTimeout=60
SlurmctldTimeout=60
InactiveLimit=0
KillWait=2
MinJobAge=600
FirstJobId={first_job}
BatchStartTimeout=30
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
PriorityType=priority/multifactor
PriorityDecayHalfLife=7-0
PriorityCalcPeriod=1
PriorityMaxAge=7-0
PriorityWeightAge=1000
PriorityWeightFairshare=100000
PriorityWeightJobSize=100
PriorityWeightPartition=1000
PriorityWeightQOS=10000
{accounting}
GresTypes=gpu
NodeName=DEFAULT CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=32000
NodeName=node0 NodeHostname={HOSTNAME} NodeAddr=127.0.0.1 Port={port0} Gres=gpu:a100:2 Feature=a100
NodeName=node1 NodeHostname={HOSTNAME} NodeAddr=127.0.0.1 Port={port1} Gres=gpu:a100:2 Feature=a100
NodeName=node2 NodeHostname={HOSTNAME} NodeAddr=127.0.0.1 Port={port2} Gres=gpu:l40s:2 Feature=l40s
PartitionName=DEFAULT State=UP TRESBillingWeights=CPU=1.0,Mem=0.25G{gpu_weight}
PartitionName=gpu Nodes=node[0-2] Default=YES MaxTime=2-0 DefaultTime=60 PriorityJobFactor=1
PartitionName=short Nodes=node[0-1] MaxTime=60 DefaultTime=5 PriorityJobFactor=10
{settings}",
            settings = self.settings,
            port0 = nodes[0],
            port1 = nodes[1],
            port2 = nodes[2],
        )
    }

    fn gres_conf(&self) -> String {
        let dir = self.directory().display();
        format!(
            "AutoDetect=off
NodeName=node[0-1] Name=gpu Type=a100 File={dir}/dev/nvidia[0-1]
NodeName=node2 Name=gpu Type=l40s File={dir}/dev/nvidia[0-1]
"
        )
    }

    fn slurmdbd_conf(&self) -> String {
        let dir = self.directory().display();
        let Ports { sql, slurmdbd, .. } = self.ports;
        format!(
            "DbdHost={HOSTNAME}
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser=slurm
CommunicationParameters=NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge/munge.socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={dir}/etc/jwt.key
PidFile={dir}/run/slurm/slurmdbd.pid
LogFile={dir}/log/slurmdbd.log
DebugLevel=info
ArchiveDir={dir}/archive
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql}
StorageUser=slurm
StoragePass={SQL_PASSWORD}
StorageLoc=slurm_acct_db
"
        )
    }

    fn my_cnf(&self) -> String {
        let dir = self.directory().display();
        let sql = self.ports.sql;
        format!(
            "[mariadbd]
datadir={dir}/mariadb
socket={dir}/run/mariadb/mariadb.sock
pid-file={dir}/run/mariadb/mariadb.pid
tmpdir={dir}/mariadb
bind-address=127.0.0.1
port={sql}
skip-name-resolve
skip-log-bin
character-set-server=utf8mb4
innodb_buffer_pool_size=256M
innodb_lock_wait_timeout=900
innodb_flush_log_at_trx_commit=0
performance_schema=OFF
"
        )
    }
}
