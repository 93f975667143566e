//! Checks of nodes.

use super::facts::{Facts, Reading};
use super::of_jobs::stray_jobs;
use super::of_names::scraped_nodes;
use super::{Finding, Severity, finding, word};
use crate::setup::ExporterFiles;
use reqwest::Url;
use std::collections::BTreeSet;
use std::path::Path;
use takt_collector::scrape::{FailureReason, TargetStatus};
use takt_model::pci;
use takt_model::shown::shell_word;
use takt_questions::did_you_mean;

/// Largest difference of a node's clock from the server's, in seconds. It includes the duration of
/// a scrape.
const CLOCK_SECONDS: f64 = 2.0;

/// Silence of an NFS server that is not a finding yet, in seconds.
const NFS_SECONDS: f64 = 2.0;

/// The exporter's word for a mount that does not answer; it is node_exporter's.
const NO_ANSWER: &str = "mountpoint timeout";

const UNIT: &str = "takt-exporter";

/// Job label of the server's own series.
const OWN_JOB: &str = "takt-server";

pub(super) fn exporter_answers(facts: &Facts) -> Vec<Finding> {
    let silent = |reading: &&Reading| reading.value == 0.0 && reading.label("job") != OWN_JOB;
    let report = |reading: &Reading| {
        // The running server knows the error. A command on the files alone does not.
        let target = facts.failing_target(reading);
        let error = target.and_then(|target| target.error.as_deref());
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        finding(
            Severity::Failure,
            reading.node(),
            format!("{} does not answer{error}", reading.label("instance")),
            "The node is not monitored; its jobs have no efficiency.",
            repair_exporter(reading.node(), target),
        )
    };

    let is_scraped = |reading: &Reading| reading.label("job") != OWN_JOB;
    // Right after the start, silence is not a defect yet.
    let up = facts.values("up");
    if facts.config.has_targets && !up.iter().any(is_scraped) {
        return vec![finding(
            Severity::Warning,
            "",
            "no exporter was asked yet".to_owned(),
            "Nothing is known about the nodes until the first scrape, seconds after the start.",
            ["takt doctor".to_owned()],
        )];
    }
    up.iter().filter(silent).map(report).collect()
}

/// Returns what repairs an exporter, by the reason of the failed scrape if that is known.
fn repair_exporter(node: &str, target: Option<&TargetStatus>) -> Vec<String> {
    let status = format!("ssh {node} sudo systemctl status {UNIT}", node = word(node));

    let start = vec![
        format!(
            "ssh {node} sudo systemctl enable --now {UNIT}",
            node = word(node)
        ),
        format!(
            "ssh {node} sudo journalctl -u {UNIT} -n 20",
            node = word(node)
        ),
    ];
    let Some((target, url)) =
        target.and_then(|target| Some((target, Url::parse(&target.url).ok()?)))
    else {
        return start;
    };

    // `host` keeps the brackets for a URL, and `ping` needs the address without them.
    let host = url.host_str().unwrap_or_default();
    let bare_host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or_default();
    match target.reason {
        None | Some(FailureReason::Refused) => start,
        Some(FailureReason::UnknownHost) => vec![
            format!("getent hosts {bare_host}        # on this machine: prints nothing while the name is unknown"),
            format!("{bare_host}        # add it to DNS or /etc/hosts, or correct the target in takt.toml"),
        ],
        Some(FailureReason::Timeout | FailureReason::Unreachable) => vec![
            format!("ping -c 3 {bare_host}        # from this machine: does the node run?"),
            format!("nc -vz {bare_host} {port}        # if it does: a firewall may close the port"),
            status,
        ],
        Some(FailureReason::Tls) => vec![
            format!("openssl s_client -connect {host}:{port} </dev/null        # its certificate"),
            "tls_config = { ca_file = \"/etc/takt/ca.pem\" }        # in its [[scrape.configs]]; without TLS: \
             scheme = \"http\""
                .to_owned(),
        ],
        Some(FailureReason::Credentials) => vec![
            "sudo chgrp takt FILE && sudo chmod 640 FILE        # the file that the message names".to_owned(),
        ],
        Some(FailureReason::Status) => vec![
            format!("curl -sS -i {} | head        # from this machine", shell_word(&target.url)),
            "basic_auth, authorization        # in its [[scrape.configs]], for 401 and 403".to_owned(),
            "metrics_path        # in its [[scrape.configs]], for 404".to_owned(),
        ],
        Some(_) => vec![
            format!("curl -sS -i {} | head        # from this machine", shell_word(&target.url)),
            status,
        ],
    }
}

pub(super) fn exporter_version(facts: &Facts) -> Vec<Finding> {
    let differs = |reading: &Reading| reading.label("version") != facts.version;
    facts
        .select("takt_exporter_build_info", differs)
        .map(|reading| {
            let node = reading.node();
            finding(
                Severity::Warning,
                node,
                format!(
                    "takt-exporter {} on a server {}",
                    reading.label("version"),
                    facts.version
                ),
                "New metrics and repairs of the exporter are missing on this node.",
                [ExporterFiles::find(Path::new("/")).loop_over(word(node))],
            )
        })
        .collect()
}

/// PCI address of a GPU, in Linux' spelling; empty if it is unknown.
fn gpu_bus(facts: &Facts, node: &str, uuid: &str) -> String {
    // NVML writes eight digits of the domain, Linux four.
    let bus = gpu_info(facts, node, uuid).map_or("", |info| info.label("pci_bus_id"));
    pci::bus_id(bus).unwrap_or_else(|| bus.to_owned())
}

fn gpu_info<'f>(facts: &'f Facts, node: &str, uuid: &str) -> Option<&'f Reading> {
    facts
        .values("takt_gpu_info")
        .iter()
        .find(|info| info.label("uuid") == uuid && info.node() == node)
}

/// Names a GPU by its index, with PCI address and UUID: `GPU 3 (0000:07:00.0, GPU-2c57…)`.
pub(super) fn gpu_name(facts: &Facts, node: &str, uuid: &str) -> String {
    let index = gpu_info(facts, node, uuid).map_or("", |info| info.label("index"));
    let bus = gpu_bus(facts, node, uuid);
    match (index, bus.as_str()) {
        ("", "") => format!("GPU {uuid}"),
        ("", bus) => format!("GPU {bus} ({uuid})"),
        (index, "") => format!("GPU {index} ({uuid})"),
        (index, bus) => format!("GPU {index} ({bus}, {uuid})"),
    }
}

pub(super) fn gpu_answers(facts: &Facts) -> Vec<Finding> {
    // `let_go`: the exporter was asked to release the driver, so the silence is intended.
    let lost = |reading: &Reading| reading.value == 0.0 && reading.label("reason") != "let_go";
    let report = |reading: &Reading| {
        let node = reading.node();
        let uuid = reading.label("uuid");
        let bus = gpu_bus(facts, node, uuid);
        let reason = reading.label("reason");
        // A new driver beside an old module needs a restart, a missing module does not. A lost GPU must get no
        // further job.
        let fix = match reason {
            "driver_mismatch" => "sudo reboot".to_owned(),
            "driver_not_loaded" => format!("ssh {node} sudo modprobe nvidia", node = word(node)),
            _ => format!(
                "scontrol update node={node} state=drain reason=\"GPU {bus} {reason}\"",
                node = word(node),
                bus = word(&bus),
                reason = word(reason)
            ),
        };
        finding(
            Severity::Failure,
            node,
            format!("{} does not answer: {reason}", gpu_name(facts, node, uuid)),
            "Jobs that get this GPU fail. A lost GPU stays lost until the node is power-cycled.",
            [fix],
        )
    };
    facts.select("takt_gpu_up", lost).map(report).collect()
}

pub(super) fn gpu_count(facts: &Facts) -> Vec<Finding> {
    let readings = |metric: &'static str| facts.values(metric).iter();
    let gpus: BTreeSet<(&str, &str)> = readings("takt_gpu_up")
        .map(|reading| (reading.node(), reading.label("uuid")))
        .collect();
    // Slurm may count the parts of a divided GPU.
    let is_divided = |node: &str| readings("takt_gpu_mig_info").any(|part| part.node() == node);
    let exporters: BTreeSet<&str> = readings("takt_exporter_build_info")
        .map(Reading::node)
        .collect();

    let up = facts.nodes_up();
    let report = |node: &str| {
        let of_slurm = *facts.slurm_nodes.get(node)?;
        let count = gpus.iter().filter(|(of, _)| *of == node).count();
        // A node whose exporter is down has stale series, and `exporter.answers` names it.
        if count as u64 == of_slurm || is_divided(node) || !up.contains(node) {
            return None;
        }
        Some(finding(
            Severity::Warning,
            node,
            format!("the exporter sees {count} GPUs, Slurm has {of_slurm}"),
            "Slurm gives jobs GPUs that do not work, or leaves GPUs unused.",
            [
                format!(
                    "ssh {node} 'nvidia-smi -L; lspci | grep -i nvidia'",
                    node = word(node)
                ),
                format!(
                    "NodeName={node} Gres=gpu:{count}        # in slurm.conf and gres.conf, then: \
                     scontrol reconfigure"
                ),
            ],
        ))
    };
    exporters.into_iter().filter_map(report).collect()
}

pub(super) fn gpu_process(facts: &Facts) -> Vec<Finding> {
    // Without a scheduler, all processes run outside jobs.
    if facts.slurm_nodes.is_empty() {
        return Vec::new();
    }

    let report = |reading: &Reading| {
        let node = reading.node();
        let user = reading.label("user");
        finding(
            Severity::Warning,
            node,
            match (reading.value, gpu_name(facts, node, reading.label("uuid"))) {
                (1.0, gpu) => format!("a process of {user} uses {gpu} outside any job"),
                (count, gpu) => format!("{count} processes of {user} use {gpu} outside any job"),
            },
            "It may disturb the job that Slurm puts on this GPU, and nobody is charged for it.",
            [
                format!(
                    "ssh {node} ps -u {user} -o pid,etime,cmd",
                    node = word(node),
                    user = word(user)
                ),
                match facts.constrains_devices() {
                    // Who logs in outside of jobs is not in a job's cgroup.
                    Some(true) => {
                        "pam_slurm_adopt        # on the node: logins without a job open all GPUs"
                            .to_owned()
                    }
                    _ => "ConstrainDevices=yes        # in cgroup.conf".to_owned(),
                },
            ],
        )
    };

    // The processes of such a job are in a job: `jobs.gpu_order` and `jobs.isolation` report it.
    let stray = stray_jobs(facts);
    let is_stray = |reading: &Reading| {
        stray.iter().any(|job| {
            job.node == reading.node()
                && job.user == reading.label("user")
                && job.used.contains(reading.label("uuid"))
        })
    };

    facts
        .select("takt_gpu_process_without_job", |reading| {
            reading.value > 0.0 && !is_stray(reading)
        })
        .map(report)
        .collect()
}

pub(super) fn gpu_remap(facts: &Facts) -> Vec<Finding> {
    facts
        .select("takt_gpu_row_remap_failed", |reading| reading.value == 1.0)
        .map(|reading| {
            let node = reading.node();
            finding(
                Severity::Failure,
                node,
                format!(
                    "{} could not replace a row of its memory",
                    gpu_name(facts, node, reading.label("uuid"))
                ),
                "The GPU has no spare memory left and will fail again: return it.",
                [format!(
                    "scontrol update node={} state=drain reason=\"GPU row remapping failed\"",
                    word(node)
                )],
            )
        })
        .collect()
}

pub(super) fn gpu_persistence(facts: &Facts) -> Vec<Finding> {
    // One finding for a node, as the remedy is for all of its GPUs.
    let nodes: BTreeSet<&str> = facts
        .select("takt_gpu_persistence_enabled", |reading| {
            reading.value == 0.0
        })
        .map(Reading::node)
        .collect();
    nodes.into_iter().map(|node| {
        finding(
            Severity::Warning,
            node,
            "persistence mode of the GPUs is off".to_owned(),
            "The driver is loaded anew for each job: it starts seconds later, and settings such as \
             power limits are lost.",
            [format!(
                "ssh {} sudo systemctl enable --now nvidia-persistenced        # or, until the next \
                 boot: nvidia-smi -pm 1",
                word(node)
            )],
        )
    }).collect()
}

pub(super) fn kernel_log(facts: &Facts) -> Vec<Finding> {
    facts
        .select("takt_kernel_log_followed", |reading| reading.value == 0.0)
        .map(|reading| {
            let node = reading.node();
            finding(
                Severity::Warning,
                node,
                "the exporter cannot read /dev/kmsg".to_owned(),
                "XIDs, OOM kills and NFS outages are noticed late or not at all.",
                [
                    format!("ssh {node} sudo systemctl edit {UNIT}", node = word(node)),
                    "AmbientCapabilities=CAP_SYSLOG        # below [Service]".to_owned(),
                ],
            )
        })
        .collect()
}

pub(super) fn jobs_seen(facts: &Facts) -> Vec<Finding> {
    let seen: BTreeSet<&str> = facts
        .values("takt_job_info")
        .iter()
        .map(Reading::node)
        .collect();

    let busy: BTreeSet<&str> = facts
        .running
        .iter()
        .flat_map(|job| &job.nodes)
        .map(String::as_str)
        .collect();

    facts
        .nodes_up()
        .into_iter()
        .filter(|node| busy.contains(node) && !seen.contains(node))
        .map(|node| {
            finding(
                Severity::Warning,
                node,
                "Slurm runs jobs here, and the exporter sees none".to_owned(),
                "Jobs on this node have no CPU, memory and GPU usage.",
                ["ProctrackType=proctrack/cgroup        # in slurm.conf".to_owned()],
            )
        })
        .collect()
}

pub(super) fn jobs_environment(facts: &Facts) -> Vec<Finding> {
    facts
        .select("takt_jobs_unreadable", |reading| reading.value > 0.0)
        .map(|reading| {
            finding(
                Severity::Warning,
                reading.node(),
                format!(
                    "the exporter cannot read the environment of {} jobs",
                    reading.value
                ),
                "GPUs that these jobs hold without using them are not seen.",
                [
                    format!(
                        "ssh {} systemctl show -p AmbientCapabilities {UNIT}        # must name cap_sys_ptrace",
                        word(reading.node())
                    ),
                    "AmbientCapabilities=CAP_SYS_PTRACE        # in the exporter's unit, if it does not"
                        .to_owned(),
                ],
            )
        })
        .collect()
}

pub(super) fn node_name(facts: &Facts) -> Vec<Finding> {
    if facts.slurm_nodes.is_empty() {
        return Vec::new();
    }
    let with_gpus: BTreeSet<&str> = facts
        .values("takt_gpu_up")
        .iter()
        .map(Reading::node)
        .collect();
    let scraped: BTreeSet<&str> = scraped_nodes(facts).collect();
    let of_slurm = || facts.slurm_nodes.keys().map(String::as_str);
    let near = |node: &str| {
        // A node that no target names is the likelier one.
        let missing = did_you_mean(node, of_slurm().filter(|known| !scraped.contains(known)));
        match missing.is_empty() {
            true => did_you_mean(node, of_slurm()),
            false => missing,
        }
    };

    with_gpus
        .union(&scraped)
        .filter(|node| !facts.slurm_nodes.contains_key(**node))
        .map(|node| (*node, near(node)))
        // A file server or a login node need not be a node of Slurm.
        .filter(|(node, near)| with_gpus.contains(node) || !near.is_empty())
        .map(|(node, near)| {
            finding(
                Severity::Warning,
                node,
                format!("Slurm has no node {node}{near}"),
                "Jobs and measurements of this node do not meet.",
                [format!(
                    "node = \"NODENAME\"        # in takt.toml, for the target {node}"
                )],
            )
        })
        .collect()
}

pub(super) fn node_clock(facts: &Facts) -> Vec<Finding> {
    let off = facts
        .values("node_time_seconds")
        .iter()
        .filter_map(|reading| {
            // The reading's own time is that of the scrape, so the difference is the node's clock and not the delay.
            let ahead = reading.value - reading.at.0 as f64 / 1e3;
            (ahead.abs() > CLOCK_SECONDS).then(|| {
                (
                    reading.node(),
                    format!("the clock differs by {ahead:.1} s from the server's"),
                )
            })
        });

    let unsynchronised = facts
        .select("node_timex_sync_status", |reading| reading.value == 0.0)
        .map(|reading| (reading.node(), "the clock is not synchronised".to_owned()));
    off.chain(unsynchronised)
        .map(|(node, evidence)| {
            finding(
                Severity::Warning,
                node,
                evidence,
                "Events and job times of this node are wrong; TLS and Munge fail beyond minutes.",
                [format!(
                    "ssh {node} sudo timedatectl set-ntp true",
                    node = word(node)
                )],
            )
        })
        .collect()
}

pub(super) fn nfs_hung(facts: &Facts) -> Vec<Finding> {
    let report = |reading: &Reading| {
        let node = reading.node();
        let mount = reading.label("mountpoint");
        let server = reading.label("server");
        finding(
            Severity::Failure,
            node,
            format!(
                "{mount} from {server} has not answered for {:.0} s",
                reading.value
            ),
            "Jobs that read or write there stand still.",
            [
                format!("ssh {server} systemctl status nfs-server", server = word(server)),
                "# processes on the nodes continue when the server is back; unmount only if it is gone for good"
                    .to_owned(),
            ],
        )
    };
    facts
        .select("takt_nfs_mount_hung_seconds", |reading| {
            reading.value > NFS_SECONDS
        })
        .map(report)
        .collect()
}

/// Mounts whose `statfs` does not return. NFS is left out: `nfs.hung` judges it by its requests.
pub(super) fn mount_hung(facts: &Facts) -> Vec<Finding> {
    let is_hung = |reading: &Reading| {
        // Only this word of the exporter means a hang: others mean that it may not read the mount.
        reading.value == 1.0
            && reading.label("device_error") == NO_ANSWER
            && !reading.label("fstype").starts_with("nfs")
    };
    let report = |reading: &Reading| {
        let node = reading.node();
        let mount = reading.label("mountpoint");
        finding(
            Severity::Failure,
            node,
            format!(
                "{mount} ({} from {}) does not answer",
                reading.label("fstype"),
                reading.label("device")
            ),
            "Jobs that read or write there stand still.",
            [
                format!(
                    "ssh {node} 'findmnt {mount}; ps -eo pid,stat,wchan:30,args | grep \" D\"'",
                    node = word(node),
                    mount = word(mount)
                ),
                format!(
                    "ssh {node} sudo umount -l {mount}        # then mount it again",
                    node = word(node),
                    mount = word(mount)
                ),
            ],
        )
    };
    facts
        .select("node_filesystem_device_error", is_hung)
        .map(report)
        .collect()
}

pub(super) fn link_speed(facts: &Facts) -> Vec<Finding> {
    let of = |metric: &str, link: &Reading| {
        facts
            .select(metric, |other| {
                other.node() == link.node() && other.label("device") == link.label("device")
            })
            .next()
            .map(|other| other.value)
    };
    let slow = |link: &Reading| {
        let capability = of("takt_link_capability_bits_per_second", link)?;
        // Without a word from the partner, the adapter alone says nothing: the switch may be slow.
        let partner = of("takt_link_partner_bits_per_second", link)?;

        // The slower side decides what is possible.
        let possible = capability.min(partner);
        let device = link.label("device");
        let gbit = |bits: f64| bits / 1e9;
        (link.value < possible).then(|| {
            finding(
                Severity::Warning,
                link.node(),
                format!(
                    "{device} runs at {} of {} Gbit/s",
                    gbit(link.value),
                    gbit(possible)
                ),
                "Data sets load slower by the same factor. Mostly it is the cable.",
                [format!(
                    "ssh {} sudo ethtool {}",
                    word(link.node()),
                    word(device)
                )],
            )
        })
    };
    facts
        .values("takt_link_negotiated_bits_per_second")
        .iter()
        .filter_map(slow)
        .collect()
}

pub(super) fn pcie_width(facts: &Facts) -> Vec<Finding> {
    facts
        .select("takt_gpu_pcie_degraded", |reading| reading.value == 1.0)
        .map(|reading| {
            let node = reading.node();
            finding(
                Severity::Warning,
                node,
                format!(
                    "the PCIe link of {} is degraded",
                    gpu_name(facts, node, reading.label("uuid"))
                ),
                "Data reach this GPU slower than the others; jobs on several GPUs wait for it.",
                [format!(
                    "ssh {} nvidia-smi -q -d PCIE        # then reseat the card",
                    word(node)
                )],
            )
        })
        .collect()
}

pub(super) fn hardware_health(facts: &Facts) -> Vec<Finding> {
    let failing = facts.select("takt_disk_healthy", |reading| reading.value == 0.0);
    // Disks and NVMe drives report their state in different ways.
    let warned = facts.select("takt_nvme_critical_warning", |reading| reading.value > 0.0);
    failing
        .chain(warned)
        .map(|reading| {
            let node = reading.node();
            let device = reading.label("device");
            finding(
                Severity::Failure,
                node,
                format!("{device} reports that it is failing"),
                "The data on it can be lost at any time.",
                [format!(
                    "ssh {node} sudo smartctl -x /dev/{device}",
                    node = word(node),
                    device = word(device)
                )],
            )
        })
        .collect()
}
