//! The simulated cluster: nodes, GPUs, partitions, accounts and users.

/// Size of the simulated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Three workstations with two GPUs each.
    Three,
    /// The thirty nodes of a laboratory: 152 GPUs of three models, two nodes without GPUs.
    Thirty,
    /// The three hundred nodes of a department: 1,920 GPUs.
    ThreeHundred,
}

/// A model of GPU.
#[derive(Debug, PartialEq)]
pub struct GpuModel {
    /// Name as NVML reports it.
    pub name: &'static str,
    /// Type in Slurm's GRES.
    pub gres: &'static str,
    /// Memory, in bytes.
    pub memory_bytes: f64,
    /// Power at rest, in watts.
    pub idle_watts: f64,
    /// Power limit, in watts.
    pub limit_watts: f64,
    /// Whether the memory has ECC.
    pub has_ecc: bool,
}

const GIB: f64 = 1_073_741_824.0;

const RTX_5090: GpuModel = GpuModel {
    name: "NVIDIA GeForce RTX 5090",
    gres: "rtx5090",
    memory_bytes: 32.0 * GIB,
    idle_watts: 22.0,
    limit_watts: 575.0,
    has_ecc: false,
};
const A100: GpuModel = GpuModel {
    name: "NVIDIA A100-SXM4-80GB",
    gres: "a100",
    memory_bytes: 80.0 * GIB,
    idle_watts: 58.0,
    limit_watts: 400.0,
    has_ecc: true,
};
const L40S: GpuModel = GpuModel {
    name: "NVIDIA L40S",
    gres: "l40s",
    memory_bytes: 45.0 * GIB,
    idle_watts: 34.0,
    limit_watts: 350.0,
    has_ecc: true,
};
const H100: GpuModel = GpuModel {
    name: "NVIDIA H100 80GB HBM3",
    gres: "h100",
    memory_bytes: 80.0 * GIB,
    idle_watts: 71.0,
    limit_watts: 700.0,
    has_ecc: true,
};

/// A GPU of a node.
#[derive(Debug)]
pub struct Gpu {
    /// UUID as NVML reports it.
    pub uuid: String,
    /// Address on the PCI bus, in the form of `/sys`.
    pub bus_id: String,
    /// Index and minor number.
    pub index: String,
    /// Serial number of the board.
    pub serial: String,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Slurm's NodeName.
    pub name: String,
    /// Partitions that contain the node.
    pub partitions: &'static [&'static str],
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory, in GiB.
    pub memory_gib: u32,
    /// Model of the GPUs; `None` without GPUs.
    pub model: Option<&'static GpuModel>,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// Speed of the network link, in bits per second.
    pub link_bits: f64,
}

/// A user.
#[derive(Debug)]
pub struct User {
    /// Login name.
    pub name: &'static str,
    /// Unix user id.
    pub uid: u32,
    /// Index of the user's account.
    pub account: usize,
    /// How much the user submits, relative to others.
    pub weight: f64,
}

/// An account.
#[derive(Debug)]
pub struct Account {
    /// Name.
    pub name: &'static str,
    /// Name of the parent account.
    pub parent: &'static str,
    /// Raw shares.
    pub shares: u32,
}

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Size that the cluster was made for.
    pub size: Size,
    /// Slurm's ClusterName.
    pub name: &'static str,
    /// Name of the NFS server.
    pub nas: &'static str,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The accounts that have users.
    pub accounts: Vec<Account>,
    /// Parent accounts: name and raw shares.
    pub parents: Vec<(&'static str, u32)>,
    /// The users. The first one is `alice`.
    pub users: Vec<User>,
}

/// A kind of node: name prefix, digits of the number, count, partitions, CPUs, memory in GiB, model
/// and number of GPUs.
struct Rack {
    prefix: &'static str,
    digits: usize,
    count: usize,
    partitions: &'static [&'static str],
    cpus: u32,
    memory_gib: u32,
    gpus: Option<(&'static GpuModel, usize)>,
    link_bits: f64,
}

impl Size {
    /// Returns the size with this number of nodes.
    pub fn of(nodes: u32) -> Option<Self> {
        match nodes {
            3 => Some(Self::Three),
            30 => Some(Self::Thirty),
            300 => Some(Self::ThreeHundred),
            _ => None,
        }
    }

    fn racks(self) -> Vec<Rack> {
        let gpu = &["gpu"];
        match self {
            Self::Three => vec![Rack {
                prefix: "desk",
                digits: 2,
                count: 3,
                partitions: &["desk"],
                cpus: 24,
                memory_gib: 128,
                gpus: Some((&RTX_5090, 2)),
                link_bits: 2.5e9,
            }],
            Self::Thirty => vec![
                Rack {
                    prefix: "g",
                    digits: 2,
                    count: 12,
                    partitions: gpu,
                    cpus: 48,
                    memory_gib: 512,
                    gpus: Some((&A100, 4)),
                    link_bits: 1e10,
                },
                Rack {
                    prefix: "l",
                    digits: 2,
                    count: 12,
                    partitions: gpu,
                    cpus: 32,
                    memory_gib: 256,
                    gpus: Some((&L40S, 6)),
                    link_bits: 1e10,
                },
                Rack {
                    prefix: "h",
                    digits: 2,
                    count: 4,
                    partitions: &["gpu", "large"],
                    cpus: 64,
                    memory_gib: 1024,
                    gpus: Some((&H100, 8)),
                    link_bits: 1e10,
                },
                Rack {
                    prefix: "c",
                    digits: 2,
                    count: 2,
                    partitions: &["cpu"],
                    cpus: 64,
                    memory_gib: 256,
                    gpus: None,
                    link_bits: 1e10,
                },
            ],
            Self::ThreeHundred => vec![
                Rack {
                    prefix: "h",
                    digits: 3,
                    count: 200,
                    partitions: &["gpu", "large"],
                    cpus: 64,
                    memory_gib: 1024,
                    gpus: Some((&H100, 8)),
                    link_bits: 1e11,
                },
                Rack {
                    prefix: "g",
                    digits: 3,
                    count: 80,
                    partitions: gpu,
                    cpus: 48,
                    memory_gib: 512,
                    gpus: Some((&A100, 4)),
                    link_bits: 1e10,
                },
                Rack {
                    prefix: "c",
                    digits: 3,
                    count: 20,
                    partitions: &["cpu"],
                    cpus: 64,
                    memory_gib: 256,
                    gpus: None,
                    link_bits: 1e10,
                },
            ],
        }
    }
}

const NAMES: [&str; 40] = [
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kenji",
    "laura", "mallory", "nadia", "olav", "peggy", "quentin", "rosa", "sybil", "trent", "ulrika",
    "victor", "wendy", "xiang", "yusuf", "zoe", "anders", "beatriz", "chidi", "dmitri", "elena",
    "farid", "gudrun", "hiroshi", "ingrid", "jamal", "kirsten", "liang", "maria", "noor",
];

/// Leaf accounts: name, parent and raw shares.
const ACCOUNTS: [(&str, &str, u32); 8] = [
    ("vision", "informatics", 30),
    ("language", "informatics", 30),
    ("robotics", "informatics", 20),
    ("physics", "science", 25),
    ("biology", "science", 25),
    ("climate", "science", 15),
    ("chemistry", "science", 15),
    ("courses", "teaching", 10),
];

impl Cluster {
    /// Makes a cluster. The same size always gives the same cluster.
    pub fn new(size: Size) -> Self {
        let nodes = size.racks().iter().flat_map(nodes).collect();
        // Three workstations have few users.
        let (users, accounts) = match size {
            Size::Three => (6, 2),
            Size::Thirty | Size::ThreeHundred => (NAMES.len(), ACCOUNTS.len()),
        };

        let accounts: Vec<Account> = ACCOUNTS[..accounts]
            .iter()
            .map(|&(name, parent, shares)| Account {
                name,
                parent,
                shares,
            })
            .collect();

        let mut parents = vec![("informatics", 60), ("science", 30), ("teaching", 10)];
        // A small cluster has only a part of the accounts, and no parent without one.
        parents.retain(|(name, _)| accounts.iter().any(|account| account.parent == *name));

        let users = (0_u32..)
            .zip(&NAMES[..users])
            .map(|(number, name)| {
                let account = number as usize % accounts.len();
                User {
                    name,
                    uid: 2000 + number,
                    account,
                    weight: weight(accounts[account].name, number),
                }
            })
            .collect();
        Self {
            size,
            name: "demo",
            nas: "nas01",
            nodes,
            accounts,
            parents,
            users,
        }
    }

    /// Number of GPUs.
    pub fn gpus(&self) -> usize {
        self.nodes.iter().map(|node| node.gpus.len()).sum()
    }

    /// Returns the index of the node with this name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Returns the index of the user with this name.
    pub fn user(&self, name: &str) -> Option<usize> {
        self.users.iter().position(|user| user.name == name)
    }
}

/// One account takes more than its share, another one hardly computes. Within an account a few
/// users submit most jobs.
fn weight(account: &str, number: u32) -> f64 {
    let of_account = match account {
        "vision" => 3.0,
        "chemistry" => 0.05,
        "courses" => 0.5,
        _ => 1.0,
    };
    of_account / f64::from(1 + number / 8)
}

fn nodes(rack: &Rack) -> impl Iterator<Item = Node> {
    (1..=rack.count).map(move |number| {
        let name = format!("{}{number:0digits$}", rack.prefix, digits = rack.digits);
        let gpus = rack.gpus.map_or(0, |(_, count)| count);
        let gpus = (0..gpus).map(|index| gpu(&name, index)).collect();
        Node {
            gpus,
            name,
            partitions: rack.partitions,
            cpus: rack.cpus,
            memory_gib: rack.memory_gib,
            model: rack.gpus.map(|(model, _)| model),
            link_bits: rack.link_bits,
        }
    })
}

fn gpu(node: &str, index: usize) -> Gpu {
    // FNV's prime: the same node and index always give the same UUID, so series continue after a restart.
    let seed = node.bytes().fold(index as u64, |sum, byte| {
        sum.wrapping_mul(1_099_511_628_211) ^ u64::from(byte)
    });

    let mut random = fastrand::Rng::with_seed(seed);
    Gpu {
        uuid: format!(
            "GPU-{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            random.u32(..),
            random.u16(..),
            random.u16(..0x1000),
            random.u16(..0x1000),
            random.u64(..1 << 48)
        ),
        // A real node spreads its GPUs over the bus, so the numbers are not consecutive.
        bus_id: format!("0000:{:02x}:00.0", 0x07 + 0x1a * index),
        index: index.to_string(),
        serial: format!("165{:010}", random.u64(..10_000_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_size_has_its_nodes_and_distinct_gpus() {
        for (count, gpus) in [(3, 6), (30, 152), (300, 1920)] {
            let cluster = Cluster::new(Size::of(count).unwrap());
            assert_eq!(cluster.nodes.len(), count as usize);
            assert_eq!(cluster.gpus(), gpus);
            // A UUID that occurs twice would merge the series of two GPUs.
            let uuids: BTreeSet<&str> = cluster
                .nodes
                .iter()
                .flat_map(|node| &node.gpus)
                .map(|gpu| gpu.uuid.as_str())
                .collect();
            assert_eq!(uuids.len(), gpus);
            assert_eq!(cluster.user("alice"), Some(0));
        }
        assert_eq!(Size::of(31), None);
    }
}
