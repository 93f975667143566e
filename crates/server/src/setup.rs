//! The first configuration of a server: a file proposed from what was found on this machine.
//!
//! Pure: what was found is an argument. `takt init` looks for it, writes the file and prints the
//! next steps.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Port of Takt's exporter.
pub const EXPORTER_PORT: u16 = 9855;

/// Ports of exporters that Takt can scrape, with their names.
pub const EXPORTER_PORTS: [(u16, &str); 4] = [
    (EXPORTER_PORT, "takt-exporter"),
    (9100, "node_exporter"),
    (9400, "dcgm-exporter"),
    (9835, "nvidia_gpu_exporter"),
];

/// Number of nodes that a command names one by one; with more it asks Slurm for them.
const MOST_NAMES: usize = 12;

/// A tool that runs commands on many nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteTool {
    /// Ansible.
    Ansible,
    /// ClusterShell.
    Clush,
    /// pdsh with pdcp.
    Pdsh,
}

/// Services and files found on this machine and its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Name of this machine.
    pub host: String,
    /// Slurm's ClusterName; `None` without Slurm.
    pub cluster: Option<String>,
    /// Nodes of Slurm, and their number of GPUs.
    pub nodes: BTreeMap<String, u64>,
    /// slurm.conf as slurmctld sees it: `AccountingStorageTRES`, `PrivateData`, …
    pub slurm: BTreeMap<String, String>,
    /// Number of NVIDIA GPUs of this machine.
    pub gpus_here: usize,
    /// Time zone of this machine, if it has a name.
    pub timezone: Option<String>,
    /// An existing configuration of Prometheus.
    pub prometheus: Option<PathBuf>,
    /// An existing configuration of Alertmanager.
    pub alertmanager: Option<PathBuf>,
    /// Nodes by the port at which something answers.
    pub answering: BTreeMap<u16, Vec<String>>,
    /// A tool for many nodes, if one is installed.
    pub tool: Option<RemoteTool>,
}

impl Found {
    /// Returns one line for each thing that was found.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.cluster {
            Some(cluster) => {
                let gpus: u64 = self.nodes.values().sum();
                let nodes = self.nodes.len();
                lines.push(format!(
                    "Slurm cluster {cluster}: {nodes} nodes, {gpus} GPUs"
                ));
            }
            None => lines.push("no Slurm on this machine".to_owned()),
        }
        if self.gpus_here > 0 {
            lines.push(format!("{} NVIDIA GPUs in this machine", self.gpus_here));
        }

        for (port, name) in EXPORTER_PORTS {
            let nodes = self.answering.get(&port).map_or(0, Vec::len);
            if nodes > 0 {
                lines.push(format!(
                    "{name} answers on {} (port {port})",
                    counted(nodes)
                ));
            }
        }

        let files = [&self.prometheus, &self.alertmanager];
        for file in files.into_iter().flatten() {
            lines.push(file.display().to_string());
        }
        lines
    }

    /// Returns what keeps Takt from seeing everything in this Slurm, each with its repair.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.cluster.is_none() {
            return warnings;
        }
        let setting = |key: &str| self.slurm.get(key).map_or("", String::as_str);
        let has_gpus = self.nodes.values().any(|gpus| *gpus > 0);
        let has_database = setting("AccountingStorageType").contains("slurmdbd");
        // Without slurmdbd, slurmctld refuses to start with this setting.
        if has_gpus && has_database && !setting("AccountingStorageTRES").contains("gres/gpu") {
            warnings.push(
                "Slurm does not record the GPUs of jobs. Add to slurm.conf: \
                 AccountingStorageTRES=gres/gpu, then: scontrol reconfigure"
                    .to_owned(),
            );
        }
        // The queue and the records of others are hidden, while the server starts as usual.
        if setting("PrivateData").contains("jobs") {
            warnings.push(
                "Slurm hides the jobs of others (PrivateData). Let the user takt see them: \
                 sacctmgr add user takt account=root adminlevel=operator"
                    .to_owned(),
            );
        }
        // Without slurmdbd, Slurm's completion file is the only record of jobs.
        if !has_database && setting("JobCompType") != "jobcomp/filetxt" {
            warnings.push(
                "Slurm keeps no job records. Add to slurm.conf: JobCompType=jobcomp/filetxt and \
                 JobCompLoc=/var/log/slurm/job_completions, then restart slurmctld"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Returns the nodes of Slurm where no exporter of Takt answers.
    fn without_exporter(&self) -> Vec<&str> {
        let answering = self.answering.get(&EXPORTER_PORT);
        let has = |node: &str| answering.is_some_and(|nodes| nodes.iter().any(|one| one == node));
        self.nodes
            .keys()
            .map(String::as_str)
            .filter(|node| !has(node))
            .collect()
    }
}

/// Returns a configuration with a comment for each setting: of the installed service, or of a
/// server that a user starts.
pub fn proposal(found: &Found, is_installed: bool) -> String {
    let mut out = String::from(
        "# Configuration of the Takt server, proposed by `takt init`. Every key is optional.\n\
         # Check it with: takt check-config --config FILE\n\n",
    );
    match &found.cluster {
        Some(cluster) => {
            let _ = writeln!(out, "# ClusterName in slurm.conf\ncluster = \"{cluster}\"");
        }
        None => out.push_str("# The label `cluster` of every series and job\n#cluster = \"lab\"\n"),
    }
    match &found.timezone {
        Some(zone) => {
            let _ = writeln!(
                out,
                "\n# Time zone of this machine: of days and months in reports\n\
                 timezone = \"{zone}\""
            );
        }
        None => out.push_str("\n#timezone = \"Europe/Oslo\"\n"),
    }
    out.push_str("\n# A local disk. NFS is refused.");
    out.push_str(if is_installed {
        "\ndata_dir = \"/var/lib/takt\"\n"
    } else {
        " Without it: ./takt-data\n#data_dir = \"/var/lib/takt\"\n"
    });

    scraping(found, &mut out);
    out.push_str(
        "\n# Messages. Until a channel is set, alerts are on the page only.\n\
         #[alerts]\n#slack_webhook_file = \"/etc/takt/slack-webhook\"\n\
         #email_to = [\"ops@lab.example\"]\n",
    );
    // Offered and not set: its routes may lead to receivers that Takt does not know.
    if let Some(file) = &found.alertmanager {
        let file = file.display();
        let _ = writeln!(
            out,
            "# This machine has an Alertmanager. To use its routes and receivers instead:\n\
             #alertmanager_file = \"{file}\""
        );
    }
    out.push_str(
        "\n#[email]\n#server = \"mail.lab.example\"\n#from = \"Takt <takt@lab.example>\"\n\
         \n# Monthly reports by mail to users and account owners\n\
         #[reports]\n#send = true\n#domain = \"lab.example\"\n",
    );
    out
}

fn counted(nodes: usize) -> String {
    match nodes {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    }
}

fn scraping(found: &Found, out: &mut String) {
    if found.cluster.is_some() {
        out.push_str(
            "\n# All nodes of Slurm (scontrol show nodes), updated as Slurm changes\n\
             [[scrape.configs]]\n",
        );
        // Prometheus often has a job of the name `node`.
        let job = if found.prometheus.is_some() {
            "takt"
        } else {
            "node"
        };
        let _ = writeln!(out, "job_name = \"{job}\"");
        let _ = writeln!(out, "slurm_sd_configs = [{{ port = {EXPORTER_PORT} }}]");
    } else {
        let host = &found.host;
        let _ = writeln!(
            out,
            "\n# This machine; add one block for each node\n[[scrape.targets]]\n\
             address = \"127.0.0.1:{EXPORTER_PORT}\"\nnode = \"{host}\""
        );
    }

    // Other exporters are commented out, as takt-exporter has their metrics.
    for (port, name) in &EXPORTER_PORTS[1..] {
        let Some(nodes) = found.answering.get(port).filter(|nodes| !nodes.is_empty()) else {
            continue;
        };
        let targets: Vec<String> = nodes
            .iter()
            .map(|node| format!("\"{node}:{port}\""))
            .collect();
        let targets = targets.join(", ");
        let _ = writeln!(
            out,
            "\n# {name} answers on {}. takt-exporter has its metrics, so that you need only one of \
             them.\n#[[scrape.configs]]\n#job_name = \"{name}\"\n\
             #static_configs = [{{ targets = [{targets}] }}]",
            counted(nodes.len())
        );
    }

    if let Some(file) = &found.prometheus {
        let file = file.display();
        let _ = writeln!(
            out,
            "\n# This machine has a Prometheus. To scrape its targets, too:\n#[scrape]\n\
             #prometheus_config = \"{file}\""
        );
    }
}

/// The exporter's files on this machine, as `make install` or the packages install them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExporterFiles {
    program: &'static str,
    unit: &'static str,
}

impl ExporterFiles {
    const ALL: [Self; 2] = [
        Self {
            program: "/usr/local/bin/takt-exporter",
            unit: "/usr/local/lib/systemd/system/takt-exporter.service",
        },
        Self {
            program: "/usr/bin/takt-exporter",
            unit: "/usr/lib/systemd/system/takt-exporter.service",
        },
    ];

    /// Returns the installed files below `root`, or those of `make install` if none are installed.
    pub fn find(root: &Path) -> Self {
        let is_installed = |files: &&Self| {
            // Both files: a program without a unit is not a service.
            let file = |path: &str| root.join(path.trim_start_matches('/')).exists();
            file(files.program) && file(files.unit)
        };
        let found = Self::ALL.iter().find(is_installed);
        *found.unwrap_or(&Self::ALL[0])
    }

    /// Returns a shell loop that installs or upgrades the exporter on the nodes.
    pub fn loop_over(self, nodes: &str) -> String {
        let Self { program, unit } = self;
        // A program that runs cannot be overwritten, but replaced.
        format!(
            "for n in {nodes}; do scp {program} root@$n:{program}.new && \
             scp {unit} root@$n:/etc/systemd/system/ && \
             ssh root@$n 'mv {program}.new {program} && systemctl daemon-reload && \
             systemctl enable takt-exporter && systemctl restart takt-exporter'; done"
        )
    }
}

/// Returns the commands that install the exporter where it does not answer yet. Empty if it
/// answers everywhere.
pub fn installation(found: &Found) -> Vec<String> {
    let files = ExporterFiles::find(Path::new("/"));
    let ExporterFiles { program, unit } = files;
    let new = "/etc/systemd/system/takt-exporter.service";
    let start = "systemctl daemon-reload && systemctl enable --now takt-exporter";
    // A single machine has no other nodes to copy to.
    if found.cluster.is_none() {
        return vec![start_here(Path::new(unit).exists()).to_owned()];
    }
    let missing = found.without_exporter();
    if missing.is_empty() {
        return Vec::new();
    }

    let list = missing.join(",");
    match found.tool {
        Some(RemoteTool::Ansible) => vec![
            format!("ansible '{list}' -b -m copy -a 'src={program} dest={program} mode=0755'"),
            format!("ansible '{list}' -b -m copy -a 'src={unit} dest={new} mode=0644'"),
            format!("ansible '{list}' -b -m shell -a '{start}'"),
        ],
        Some(RemoteTool::Clush) => vec![
            format!("sudo clush -w {list} -c {program}"),
            format!("sudo clush -w {list} -c {unit} --dest {new}"),
            format!("sudo clush -w {list} '{start}'"),
        ],
        Some(RemoteTool::Pdsh) => vec![
            format!("sudo pdcp -w {list} {program} {program}"),
            format!("sudo pdcp -w {list} {unit} {new}"),
            format!("sudo pdsh -w {list} '{start}'"),
        ],
        None => {
            // The list of a large cluster would be longer than a terminal.
            let nodes = if missing.len() > MOST_NAMES && missing.len() == found.nodes.len() {
                "$(sinfo -hN -o %n | sort -u)".to_owned()
            } else {
                missing.join(" ")
            };
            vec![files.loop_over(&nodes)]
        }
    }
}

/// Returns the command that starts the exporter of this machine.
fn start_here(has_unit: bool) -> &'static str {
    if has_unit {
        "sudo systemctl enable --now takt-exporter"
    } else {
        "takt exporter        # in another terminal; a package or `sudo make install` makes it a \
         service"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::fs;
    use std::path::Path;
    use tempfile::tempdir;

    fn cluster() -> Found {
        Found {
            host: "head".to_owned(),
            cluster: Some("lab".to_owned()),
            nodes: [("g01".to_owned(), 8), ("g02".to_owned(), 8)].into(),
            slurm: [
                ("AccountingStorageTRES", "cpu,mem,gres/gpu"),
                ("AccountingStorageType", "accounting_storage/slurmdbd"),
                ("PrivateData", "none"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            timezone: Some("Europe/Oslo".to_owned()),
            ..Found::default()
        }
    }

    fn parsed(found: &Found) -> Config {
        let path = Path::new("/etc/takt/takt.toml");
        let of_user = Config::parse(&proposal(found, false), path).unwrap();
        assert_eq!(of_user.data_dir, None);
        let text = proposal(found, true);
        // With its disabled lines switched on, the file must be valid as well.
        let switched_on: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(key) if !key.starts_with(' ') => format!("{key}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        if found.alertmanager.is_none() {
            Config::parse(&switched_on, path).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
        }
        Config::parse(&text, path).unwrap_or_else(|error| panic!("{error:#}\n{text}"))
    }

    #[test]
    fn a_cluster_s_nodes_come_from_slurm() {
        let mut found = cluster();
        let config = parsed(&found);
        assert_eq!(config.cluster.as_deref(), Some("lab"));
        assert_eq!(config.scrape.configs.len(), 1);
        assert_eq!(found.warnings(), [""; 0]);

        let folder = tempdir().unwrap();
        let prometheus = folder.path().join("prometheus.yml");
        let jobs = "scrape_configs: [{job_name: node, static_configs: [{targets: ['a:1']}]}]";
        fs::write(&prometheus, jobs).unwrap();
        found.prometheus = Some(prometheus);

        found.answering = [(9100, vec!["g01".to_owned()])].into();
        parsed(&found);
        assert!(proposal(&found, true).contains("\"g01:9100\""));

        assert!(
            found
                .lines()
                .contains(&"node_exporter answers on 1 node (port 9100)".to_owned())
        );

        found.alertmanager = Some("/etc/prometheus/alertmanager.yml".into());
        parsed(&found);
    }

    #[test]
    fn a_workstation_scrapes_itself() {
        let found = Found {
            host: "desk".to_owned(),
            gpus_here: 2,
            ..Found::default()
        };
        let config = parsed(&found);
        assert_eq!(config.scrape.targets[0].node, "desk");
        assert_eq!(found.warnings(), [""; 0]);
        assert_eq!(
            found.lines(),
            ["no Slurm on this machine", "2 NVIDIA GPUs in this machine"]
        );
        assert_eq!(installation(&found).len(), 1);
        assert_eq!(
            start_here(true),
            "sudo systemctl enable --now takt-exporter"
        );
        assert!(start_here(false).starts_with("takt exporter "));
    }

    /// The commands named a unit where `make install` puts none.
    #[test]
    fn commands_copy_files_that_exist() {
        let root = tempdir().unwrap();
        let put = |path: &str| {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let [made, packaged] = ExporterFiles::ALL;

        assert_eq!(ExporterFiles::find(root.path()), made);
        put(packaged.program);
        put(packaged.unit);

        assert_eq!(ExporterFiles::find(root.path()), packaged);
        // The program alone is not an installation.
        put(made.program);
        assert_eq!(ExporterFiles::find(root.path()), packaged);
        put(made.unit);
        assert_eq!(ExporterFiles::find(root.path()), made);

        let text = made.loop_over("g01 g02");
        for path in [made.program, made.unit] {
            assert!(text.contains(&format!("scp {path} root@$n:")), "{text}");
        }
    }

    #[test]
    fn the_exporter_is_installed_where_it_is_missing_with_the_tool_of_this_cluster() {
        // One of two nodes has an exporter.
        let mut found = cluster();
        found.answering = [(EXPORTER_PORT, vec!["g01".to_owned()])].into();
        let commands = installation(&found);
        assert!(
            commands[0].starts_with("for n in g02; do scp "),
            "{commands:?}"
        );

        for (tool, begin) in [
            (RemoteTool::Ansible, "ansible 'g02' -b -m copy"),
            (RemoteTool::Clush, "sudo clush -w g02 -c"),
            (RemoteTool::Pdsh, "sudo pdcp -w g02"),
        ] {
            found.tool = Some(tool);
            let commands = installation(&found);
            assert!(commands[0].starts_with(begin), "{commands:?}");
            assert!(
                commands
                    .last()
                    .unwrap()
                    .contains("enable --now takt-exporter")
            );
        }

        let both = vec!["g01".to_owned(), "g02".to_owned()];
        found.answering = [(EXPORTER_PORT, both)].into();
        assert_eq!(installation(&found), [""; 0]);
    }

    #[test]
    fn a_slurm_that_hides_something_is_named_with_its_repair() {
        let mut found = cluster();

        found
            .slurm
            .insert("AccountingStorageTRES".to_owned(), "cpu,mem".to_owned());
        found
            .slurm
            .insert("PrivateData".to_owned(), "jobs,usage".to_owned());

        let says = |found: &Found, words: [&str; 2]| {
            let warnings = found.warnings();
            assert_eq!(warnings.len(), 2, "{warnings:?}");
            for (warning, word) in warnings.iter().zip(words) {
                assert!(warning.contains(word), "{warning}");
            }
        };
        says(&found, ["gres/gpu", "operator"]);
        // Without slurmdbd, AccountingStorageTRES=gres/gpu keeps slurmctld from starting.
        found.slurm.remove("AccountingStorageType");
        says(&found, ["operator", "jobcomp/filetxt"]);
    }
}
