//! `dashboards/rules/dcgm.rules.yml`: recording rules that turn dcgm-exporter's series into
//! `takt_gpu_*`, made from the table of names.

use super::*;
use std::collections::BTreeMap;
use std::fmt::Write;

const PATH: &str = "../dashboards/rules/dcgm.rules.yml";

const HEAD: &str = "\
# For nodes with NVIDIA's dcgm-exporter instead of takt-exporter: the same values as `takt_gpu_*`, with the label source=\"dcgm\", so that
# rules, boards, pages and efficiency read them. They take the names of DCGM 4.7 (dcgm-exporter 4.9 and newer) and those before.
# Where takt-exporter reports GPUs of the node, its series count.
#
# This file is generated from the table in exporter/src/collectors/nvml/dcgm.rs: UPDATE_GOLDEN=1 cargo test -p takt-exporter dcgm
groups:
  - name: takt-dcgm
    interval: 15s
    rules:
";

/// A metric and its labels, apart from `uuid`.
type Target = (&'static str, Vec<(&'static str, &'static str)>);

/// The values of a series of dcgm-exporter in base units. Series with `GPU_I_ID` are of a MIG instance.
fn operand(name: &str, scale: f64) -> String {
    let selector = format!("{name}{{GPU_I_ID=\"\"}}");
    match 1.0 / scale {
        1.0 => selector,
        factor => format!("{selector} * {factor}"),
    }
}

/// The labels of one GPU from those of dcgm-exporter; each source is a label and the new name.
fn with_labels(operands: &str, sources: &[(&str, &str)]) -> String {
    let mut new: Vec<&str> = sources.iter().map(|(_, to)| *to).collect();
    new.dedup();
    // A series that has a new label already would become equal to another one, and fail the rule for all nodes.
    let expression = format!("max without ({}) ({operands})", new.join(", "));
    sources.iter().fold(expression, |expression, (from, to)| {
        format!("label_replace({expression}, \"{to}\", \"$1\", \"{from}\", \"(.+)\")")
    })
}

fn rule(record: &str, labels: &str, by: &str, expression: &str, text: &mut String) {
    writeln!(
        text,
        "      - record: {record}\n        labels: {{{labels}source: dcgm}}\n        expr: |-\n          \
         max by (cluster, node, {by}) ({expression})\n          unless on (cluster, node) \
         takt_gpu_up{{source=\"\"}}"
    )
    .unwrap();
}

fn file() -> String {
    let mut operands: BTreeMap<Target, Vec<String>> = BTreeMap::new();
    for name in NAMES {
        // NVLinks are summed up, so a label that distinguishes them is missing.
        let own = &name.from.labels[name.from.labels.len() - name.labels.len()..];
        let labels = own
            .iter()
            .copied()
            .zip(name.labels.iter().copied())
            .collect();
        let target = operands.entry((name.from.name, labels)).or_default();
        for release in [DcgmRelease::V4_9, DcgmRelease::V4_8] {
            let operand = operand(name.of(release), name.unit.of(release).0);
            if !target.contains(&operand) {
                target.push(operand);
            }
        }
    }

    // The default lists have the parts only, and the reserved one not always.
    let sum_of_parts = |unit: &str| {
        let part = |part: &str| format!("DCGM_FI_DEV_FB_{part}{unit}{{GPU_I_ID=\"\"}}");
        let [free, used, reserved] = ["FREE", "USED", "RESERVED"].map(part);
        format!("({free} + {used} + ({reserved} or {free} * 0))")
    };
    let total = operands.entry((MEMORY_TOTAL.name, Vec::new())).or_default();
    total.push(sum_of_parts("_BYTES"));
    total.push(sum_of_parts("") + " * 1048576");

    let mut text = HEAD.to_owned();
    // Every dcgm-exporter reports the temperature.
    let present =
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS{GPU_I_ID=\"\"} or DCGM_FI_DEV_GPU_TEMP{GPU_I_ID=\"\"}";
    let uuid = [("gpu_uuid", "uuid"), ("UUID", "uuid")];
    let identity = [
        &uuid[..],
        &[
            ("gpu", "index"),
            ("model_name", "model"),
            ("modelName", "model"),
            ("DCGM_FI_DRIVER_VERSION", "driver"),
            ("DCGM_FI_SYSTEM_DRIVER_VERSION", "driver"),
        ],
    ]
    .concat();
    let up = format!("{} * 0 + 1", with_labels(present, &uuid));
    rule("takt_gpu_up", "", "uuid", &up, &mut text);
    let info = format!("{} * 0 + 1", with_labels(present, &identity));
    let by = "uuid, index, pci_bus_id, model, driver";
    rule("takt_gpu_info", "", by, &info, &mut text);
    for ((metric, labels), operands) in operands {
        let labels: String = labels
            .iter()
            .map(|(name, value)| format!("{name}: \"{value}\", "))
            .collect();
        let expression = with_labels(&operands.join(" or "), &uuid);
        rule(metric, &labels, "uuid", &expression, &mut text);
    }
    text
}

#[test]
fn the_rules_for_dcgm_exporter_are_those_of_the_table() {
    let rules = file();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PATH, &rules).unwrap();
    }
    let shipped = std::fs::read_to_string(PATH).unwrap();
    assert_eq!(shipped, rules, "UPDATE_GOLDEN=1 writes {PATH} again");
}

#[test]
fn no_name_comes_twice_in_a_release() {
    for release in [DcgmRelease::V4_8, DcgmRelease::V4_9] {
        let mut names: Vec<_> = NAMES.iter().map(|name| name.of(release)).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{release:?}");
    }
}
