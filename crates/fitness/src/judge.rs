//! The checks: what the exporter knows against what this node must have. Pure.

use crate::checks::{Action, Checks, LinkCheck, MountCheck};
use crate::facts::{COLLECTORS, Fact, Facts};
use crate::job_gpus::JobGpus;
use std::collections::BTreeSet;

/// Findings of one check that are listed; the rest is counted. A node has few GPUs and mounts.
const MOST: usize = 32;

/// Bits of a byte.
const BITS: f64 = 8.0;

/// A check by its name.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Name in the file and in the lines, there with `check_takt_` in front.
    pub name: &'static str,
    /// What is checked.
    pub about: &'static str,
    /// What it means if it fails, without a line in the file.
    pub by_default: Action,
    find: fn(&Facts, &Checks, f64) -> Vec<Found>,
}

/// All checks, in the order in which they are printed.
pub const CHECKS: &[Check] = &[
    check(
        "readings",
        "the exporter reads what is checked here, and its readings are fresh",
        Action::Fail,
        readings,
    ),
    check(
        "gpu_count",
        "the node has its number of GPUs",
        Action::Fail,
        gpu_count,
    ),
    check(
        "gpu_up",
        "each GPU that the node has or had answers",
        Action::Fail,
        gpu_up,
    ),
    check(
        "gpu_recovery",
        "the driver asks for no reset, reboot or drain",
        Action::Fail,
        gpu_recovery,
    ),
    check(
        "gpu_memory",
        "no GPU waits for a reset to replace memory, and none has run out of spare memory",
        Action::Fail,
        gpu_memory,
    ),
    check(
        "gpu_xid",
        "no XID of the hardware within the last minutes",
        Action::Fail,
        gpu_xid,
    ),
    check(
        "gpu_fabric",
        "each GPU has joined the fabric of its NVSwitches",
        Action::Fail,
        gpu_fabric,
    ),
    check(
        "gpu_nvlink",
        "each GPU has its number of active NVLinks",
        Action::Fail,
        gpu_nvlink,
    ),
    check(
        "gpu_pcie",
        "no PCIe link of a GPU is slower than it can be",
        Action::Warn,
        gpu_pcie,
    ),
    check(
        "gpu_processes",
        "no process without a job is on a GPU",
        Action::Warn,
        gpu_processes,
    ),
    check(
        "mounts",
        "file systems are mounted, answer, are writable and have space",
        Action::Fail,
        mounts,
    ),
    check("nfs", "each NFS server answers", Action::Fail, nfs),
    check(
        "links",
        "links are up, with their speed",
        Action::Fail,
        links,
    ),
    check(
        "link_speed",
        "no link is slower than its two ends could be",
        Action::Warn,
        link_speed,
    ),
    check(
        "clock",
        "the clock is synchronised and right",
        Action::Warn,
        clock,
    ),
];

const fn check(
    name: &'static str,
    about: &'static str,
    by_default: Action,
    find: fn(&Facts, &Checks, f64) -> Vec<Found>,
) -> Check {
    Check {
        name,
        about,
        by_default,
        find,
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    /// UUID of the GPU that it concerns; `None`: the node.
    gpu: Option<String>,
    text: String,
    /// Whether it never makes the node unfit.
    only_warns: bool,
}

impl Found {
    fn of_node(text: String) -> Self {
        Self {
            gpu: None,
            text,
            only_warns: false,
        }
    }
}

/// A failed check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// UUID of the GPU that it concerns; `None`: the node.
    pub gpu: Option<String>,
    /// What is wrong. Contains texts of others; see [`crate::words`] for what may be printed.
    pub text: String,
    /// Whether the node is not fit because of it. Never [`Action::Off`].
    pub action: Action,
}

/// Compares the facts with the checks. `now` is in seconds since 1970. Faults of GPUs that are not the job's are
/// warnings.
pub fn judge(facts: &Facts, checks: &Checks, job_gpus: &JobGpus, now: f64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in CHECKS {
        let action = checks.action(check.name);
        if action == Action::Off {
            continue;
        }

        let mut found = (check.find)(facts, checks, now);
        let left_out = found.len().saturating_sub(MOST);
        if left_out > 0 {
            // What fails the job must not be hidden behind what does not.
            found.sort_by_key(|one| !counts(one, job_gpus));
            found.truncate(MOST);
        }

        for one in found {
            let action = if counts(&one, job_gpus) {
                action
            } else {
                Action::Warn
            };
            findings.push(Finding {
                check: check.name,
                gpu: one.gpu,
                text: one.text,
                action,
            });
        }
        if left_out > 0 {
            findings.push(Finding {
                check: check.name,
                gpu: None,
                text: format!("{left_out} more of this kind"),
                action: Action::Warn,
            });
        }
    }
    findings
}

/// Whether a finding may make the node unfit for the job.
fn counts(found: &Found, job_gpus: &JobGpus) -> bool {
    let concerns_job = found.gpu.as_ref().is_none_or(|uuid| job_gpus.include(uuid));
    concerns_job && !found.only_warns
}

/// Collectors that failed, or whose readings are old: what they do not report may be wrong all the same. Those that no
/// check of the file depends on only warn.
fn readings(facts: &Facts, checks: &Checks, now: f64) -> Vec<Found> {
    let needed = needed_collectors(facts, checks);
    let limit = checks.max_age_seconds;
    let mut found = Vec::new();
    for &collector in COLLECTORS {
        let is_needed = needed.contains(collector);
        let value = |metric| {
            let mut facts = facts.of_with(metric, "collector", collector);
            facts.next().map(|fact: &Fact| fact.value)
        };
        let mut push = |text| {
            found.push(Found {
                only_warns: !is_needed,
                ..Found::of_node(text)
            });
        };

        // A collector without hardware reports no success either, and that is no fault.
        let is_absent = value("takt_exporter_collector_absent") == Some(1.0);
        match value("node_scrape_collector_success") {
            Some(0.0) if !is_absent => push(format!("the exporter's collector {collector} fails")),
            None if is_needed => push(format!("the exporter's collector {collector} does not run")),
            _ => {}
        }

        let age = value("takt_exporter_collector_read_timestamp_seconds").map(|at| now - at);
        // Also a reading from the future: after a jump of the clock, its age proves nothing.
        if let Some(age) = age.filter(|age| !is_absent && age.abs() > limit) {
            push(format!(
                "the exporter's reading of {collector} is {age:.0} s old, more than {limit} s"
            ));
        }
    }
    found
}

/// Collectors without which a check that the file asks for, or a fault of a GPU, would pass unseen.
fn needed_collectors(facts: &Facts, checks: &Checks) -> BTreeSet<&'static str> {
    let is_on = |name| checks.action(name) != Action::Off;
    let is_infiniband = |link: &LinkCheck| link.device.contains('/');
    let mut needed = BTreeSet::new();

    let has_gpus = !facts.of("takt_gpu_up").is_empty();
    let expects_gpus = checks.gpus.count.is_some_and(|count| count > 0);
    if has_gpus || expects_gpus || checks.gpus.nvlinks.is_some() {
        needed.insert("nvml");
    }
    if is_on("mounts") && !checks.mounts.is_empty() {
        needed.insert("filesystem");
    }
    if is_on("links") {
        let kinds = checks.links.iter().map(is_infiniband);
        needed.extend(kinds.map(|infiniband| if infiniband { "infiniband" } else { "links" }));
    }
    needed
}

fn gpu_count(facts: &Facts, checks: &Checks, _: f64) -> Vec<Found> {
    let Some(expected) = checks.gpus.count else {
        return Vec::new();
    };
    let up = facts.of("takt_gpu_up").iter().filter(|up| up.value == 1.0);
    let up = up.count();
    let text = || format!("{up} GPUs answer, expected {expected}");
    if up == expected as usize {
        Vec::new()
    } else {
        vec![Found::of_node(text())]
    }
}

fn gpu_up(facts: &Facts, _: &Checks, _: f64) -> Vec<Found> {
    let down = facts.of("takt_gpu_up").iter().filter(|up| up.value != 1.0);
    down.map(|up| {
        let reason = up.label("reason");
        of_gpu(facts, up, &format!("does not answer: {reason}"))
    })
    .collect()
}

fn gpu_recovery(facts: &Facts, _: &Checks, _: f64) -> Vec<Found> {
    let wanted = |fact: &&Fact| fact.value != 0.0;
    let actions = facts.of("takt_gpu_recovery_action").iter().filter(wanted);
    actions
        .map(|fact| {
            // The numbers are NVML's `nvmlDeviceGpuRecoveryAction_t`.
            let action = match fact.value as i64 {
                1 => "the driver asks for a reset of the GPU",
                2 => "the driver asks for a reboot of the node",
                3 => "the driver asks to drain the node and to restart its peers",
                4 => "the driver asks to drain the GPU and to reset it",
                _ => "the driver asks for an unknown action",
            };
            of_gpu(facts, fact, action)
        })
        .collect()
}

fn gpu_memory(facts: &Facts, _: &Checks, _: f64) -> Vec<Found> {
    let flags = [
        (
            "takt_gpu_row_remap_failed",
            "no spare row is left to replace a faulty one",
        ),
        (
            "takt_gpu_row_remap_pending",
            "rows of the memory wait for a reset to be replaced",
        ),
        (
            "takt_gpu_sram_threshold_exceeded",
            "the SRAM has too many uncorrectable errors",
        ),
        (
            "takt_gpu_retired_pages_pending",
            "pages of the memory wait for a reset to be given up",
        ),
    ];
    let set = flags.into_iter();
    set.flat_map(|(metric, text)| gpus_where(facts, metric, |value| value != 0.0, text))
        .collect()
}

/// A finding for each GPU whose reading is bad.
fn gpus_where(facts: &Facts, metric: &str, is_bad: impl Fn(f64) -> bool, text: &str) -> Vec<Found> {
    let bad = facts.of(metric).iter().filter(|fact| is_bad(fact.value));
    bad.map(|fact| of_gpu(facts, fact, text)).collect()
}

fn gpu_xid(facts: &Facts, checks: &Checks, now: f64) -> Vec<Found> {
    let is_counted = |fact: &&Fact| {
        let xid = fact.label("xid").parse();
        // A clock that was set back makes an XID of the future; it is not older for that.
        let is_recent = now - fact.value <= checks.gpus.xid_seconds;
        is_recent && xid.is_ok_and(|xid| checks.gpus.xids.contains(&xid))
    };
    let xids = facts.of("takt_gpu_xid_last_seen_timestamp_seconds").iter();
    xids.filter(is_counted)
        .map(|fact| {
            let ago = (now - fact.value).max(0.0);
            let xid = fact.label("xid");
            of_gpu(facts, fact, &format!("XID {xid}, {ago:.0} s ago"))
        })
        .collect()
}

fn gpu_fabric(facts: &Facts, _: &Checks, _: f64) -> Vec<Found> {
    let text = "is not in the fabric of its NVSwitches; CUDA does not start";
    gpus_where(facts, "takt_gpu_fabric_ready", |value| value != 1.0, text)
}

fn gpu_nvlink(facts: &Facts, checks: &Checks, _: f64) -> Vec<Found> {
    let Some(expected) = checks.gpus.nvlinks else {
        return Vec::new();
    };
    let mut found = Vec::new();
    // A GPU that does not answer has a finding of its own.
    for gpu in facts.of("takt_gpu_up").iter().filter(|up| up.value == 1.0) {
        let links = facts.of_with("takt_gpu_nvlink_up", "uuid", gpu.label("uuid"));
        let up = links.filter(|link| link.value == 1.0).count();
        if up < expected as usize {
            let text = format!("{up} NVLinks are active, expected {expected}");
            found.push(of_gpu(facts, gpu, &text));
        }
    }
    found
}

fn gpu_pcie(facts: &Facts, _: &Checks, _: f64) -> Vec<Found> {
    let text = "its PCIe link is slower than GPU and slot can be";
    gpus_where(facts, "takt_gpu_pcie_degraded", |value| value == 1.0, text)
}

fn gpu_processes(facts: &Facts, _: &Checks, _: f64) -> Vec<Found> {
    let some = |fact: &&Fact| fact.value > 0.0;
    let users = facts.of("takt_gpu_process_without_job").iter().filter(some);
    users
        .map(|fact| {
            let (count, user) = (fact.value, fact.label("user"));
            of_gpu(
                facts,
                fact,
                &format!("{count} processes of user {user:?} without a job"),
            )
        })
        .collect()
}

fn mounts(facts: &Facts, checks: &Checks, _: f64) -> Vec<Found> {
    let problems = checks.mounts.iter().filter_map(|mount| {
        let problem = problem_of_mount(facts, mount)?;
        Some(Found::of_node(format!("{}: {problem}", mount.path)))
    });
    problems.collect()
}

/// The first problem of a mount point. Of several mounts over each other, the worst counts.
fn problem_of_mount(facts: &Facts, mount: &MountCheck) -> Option<String> {
    let values = |metric| {
        facts
            .of_with(metric, "mountpoint", &mount.path)
            .map(|fact| fact.value)
    };
    let is_set = |metric| values(metric).any(|value| value != 0.0);

    // A mount that hangs has an error and no size.
    if values("node_filesystem_device_error").next().is_none()
        && values("node_filesystem_size_bytes").next().is_none()
    {
        return Some("not mounted".to_owned());
    }
    if is_set("node_filesystem_device_error") {
        return Some("does not answer".to_owned());
    }
    if mount.writable && is_set("node_filesystem_readonly") {
        return Some("is read-only".to_owned());
    }

    // Two mounts on one point: users see the upper one, but which it is the page does not say.
    let lowest = |metric| values(metric).reduce(f64::min);
    let needs_space = mount.min_free_bytes > 0 || mount.min_free_ratio > 0.0;
    let Some(free) = lowest("node_filesystem_avail_bytes") else {
        return needs_space.then(|| "its free space is unknown".to_owned());
    };
    if free < mount.min_free_bytes as f64 {
        let least = mount.min_free_bytes;
        return Some(format!(
            "{free:.0} bytes are free, expected {least} or more"
        ));
    }
    let size = lowest("node_filesystem_size_bytes").unwrap_or_default();
    let ratio = if size > 0.0 { free / size } else { 0.0 };
    if ratio < mount.min_free_ratio {
        let least = mount.min_free_ratio;
        return Some(format!(
            "{ratio:.3} of its space is free, expected {least} or more"
        ));
    }
    None
}

fn nfs(facts: &Facts, checks: &Checks, _: f64) -> Vec<Found> {
    let limit = checks.nfs.max_hung_seconds;
    let hung = |fact: &&Fact| fact.value > limit;
    let mounts = facts.of("takt_nfs_mount_hung_seconds").iter().filter(hung);
    mounts
        .map(|fact| {
            let (mount, server) = (fact.label("mountpoint"), fact.label("server"));
            let seconds = fact.value;
            Found::of_node(format!(
                "{mount}: its server {server} has not answered for {seconds:.0} s"
            ))
        })
        .collect()
}

fn links(facts: &Facts, checks: &Checks, _: f64) -> Vec<Found> {
    let slow = checks.links.iter().filter_map(|link| {
        let speed = speed_of(facts, &link.device);
        let text = match speed {
            None => format!("{}: down, or no such link", link.device),
            Some(speed) if speed < link.min_bits_per_second => format!(
                "{}: {speed:.0} bit/s, expected {:.0} or more",
                link.device, link.min_bits_per_second
            ),
            Some(_) => return None,
        };
        Some(Found::of_node(text))
    });
    slow.collect()
}

/// Speed of a link in bits per second; `None` if it is down or missing.
fn speed_of(facts: &Facts, device: &str) -> Option<f64> {
    /// State of an InfiniBand port that carries traffic.
    const ACTIVE: f64 = 4.0;

    let Some((name, port)) = device.split_once('/') else {
        // The exporter has no speed of a link that is down.
        let mut links = facts.of_with("takt_link_negotiated_bits_per_second", "device", device);
        return links.next().map(|fact| fact.value);
    };
    let of_port = |metric| {
        let mut ports = facts.of_with(metric, "device", name);
        ports
            .find(|fact| fact.label("port") == port)
            .map(|fact| fact.value)
    };
    let is_active = of_port("node_infiniband_state_id") == Some(ACTIVE);
    let bytes = of_port("node_infiniband_rate_bytes_per_second")?;
    is_active.then_some(bytes * BITS)
}

fn link_speed(facts: &Facts, _: &Checks, _: f64) -> Vec<Found> {
    let is_cable = |fact: &&Fact| fact.value == 1.0 && fact.label("cause") == "cable";
    let slow = facts
        .of("takt_link_below_capability")
        .iter()
        .filter(is_cable);
    slow.map(|fact| {
        let device = fact.label("device");
        Found::of_node(format!(
            "{device}: slower than both ends could be; check the cable"
        ))
    })
    .collect()
}

fn clock(facts: &Facts, checks: &Checks, _: f64) -> Vec<Found> {
    let value = |metric| facts.of(metric).first().map(|fact| fact.value);
    // The offset of a clock that is not synchronised means nothing.
    if value("node_timex_sync_status") == Some(0.0) {
        return vec![Found::of_node("not synchronised".to_owned())];
    }

    let limit = checks.clock.max_offset_seconds;
    let offset = value("node_timex_offset_seconds").filter(|offset| offset.abs() > limit);
    let text = |offset| format!("{offset:.3} s off, more than {limit} s");
    offset
        .map(|offset| Found::of_node(text(offset)))
        .into_iter()
        .collect()
}

/// A finding about the GPU of a fact, named as people know it.
fn of_gpu(facts: &Facts, fact: &Fact, text: &str) -> Found {
    let uuid = fact.label("uuid");
    let info = facts.of_with("takt_gpu_info", "uuid", uuid).next();
    let name = match info {
        Some(info) => format!("GPU {} ({uuid})", info.label("index")),
        None => format!("GPU {uuid}"),
    };
    Found {
        gpu: Some(uuid.to_owned()),
        text: format!("{name}: {text}"),
        only_warns: false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
