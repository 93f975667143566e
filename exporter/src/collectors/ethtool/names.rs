//! Metric names of the drivers' counters.

use std::collections::BTreeMap;

/// A counter under its new name, without the prefix.
#[derive(Debug, PartialEq)]
pub(super) struct Renamed {
    pub name: String,
    pub help: String,
    pub value: u64,
}

/// Counters that most drivers have, and their metric names.
const COMMON: &[(&str, &str, &str)] = &[
    (
        "rx_bytes",
        "received_bytes_total",
        "Network interface bytes received",
    ),
    (
        "rx_dropped",
        "received_dropped_total",
        "Number of received frames dropped",
    ),
    (
        "rx_errors",
        "received_errors_total",
        "Number of received frames with errors",
    ),
    (
        "rx_packets",
        "received_packets_total",
        "Network interface packets received",
    ),
    (
        "tx_bytes",
        "transmitted_bytes_total",
        "Network interface bytes sent",
    ),
    (
        "tx_errors",
        "transmitted_errors_total",
        "Number of sent frames with errors",
    ),
    (
        "tx_packets",
        "transmitted_packets_total",
        "Network interface packets sent",
    ),
];

/// Sorted by name. Counters whose metric names would be the same are left out.
pub(super) fn rename(
    counters: &[(String, u64)],
    mut passes: impl FnMut(&str) -> bool,
) -> Vec<Renamed> {
    let mut by_name = BTreeMap::<String, Option<Renamed>>::new();
    for (driver_name, value) in counters {
        let plain = plain(driver_name);
        if !passes(&plain) {
            continue;
        }

        // These have node_exporter's names, others are named after the driver's.
        let common = COMMON.iter().find(|(name, ..)| *name == plain);
        let (name, help) = match common {
            Some((_, name, help)) => ((*name).to_owned(), (*help).to_owned()),
            None => (spelt_out(&plain), format!("Network interface {plain}")),
        };

        let renamed = Renamed {
            name: name.clone(),
            help,
            value: *value,
        };
        by_name
            .entry(name)
            // Two counters of one name cannot be distinguished, so neither is shown.
            .and_modify(|same| *same = None)
            .or_insert(Some(renamed));
    }
    by_name.into_values().flatten().collect()
}

/// Runs of what may not be in a name, with the underscores about them, become one underscore.
fn plain(name: &str) -> String {
    let mut plain = String::new();
    let mut rest = name;

    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(at) = rest.find(|c| !is_word(c)) {
        plain.push_str(rest[..at].trim_end_matches('_'));
        plain.push('_');
        rest = rest[at..].trim_start_matches(|c| !is_word(c));
        rest = rest.trim_start_matches('_');
    }
    plain + rest
}

/// In small letters, `rx` and `tx` as words.
fn spelt_out(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let received = replace_word(lower.trim_start_matches('_'), "rx", "received");
    replace_word(&received, "tx", "transmitted")
}

/// node_exporter replaces the first of two in a row, as the underscore between them is used up by
/// then.
fn replace_word(name: &str, word: &str, by: &str) -> String {
    let mut was_replaced = false;
    let words = name.split('_').map(|found| {
        was_replaced = found == word && !was_replaced;
        if was_replaced { by } else { found }
    });
    words.collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names() {
        let counters = [
            "rx_bytes",
            "queue[0]: rx_packets",
            "TX",
            "port.rx_crc",
            "port_rx_crc",
            "other",
        ];
        let counters: Vec<_> = counters
            .iter()
            .map(|name| (*name).to_owned())
            .zip(1..)
            .collect();
        let renamed = rename(&counters, |name| name != "other");
        let names: Vec<_> = renamed
            .iter()
            .map(|counter| (counter.name.as_str(), counter.value))
            .collect();
        assert_eq!(
            names,
            [
                ("queue_0_received_packets", 2),
                ("received_bytes_total", 1),
                ("transmitted", 3)
            ]
        );
        assert_eq!(plain("a_[x]__b--c"), "a_x_b_c");
        assert_eq!(spelt_out("tx_tx_timeouts"), "transmitted_tx_timeouts");
    }

    proptest! {
        #[test]
        fn any_name_becomes_one_that_a_metric_may_have(names in prop::collection::vec("[ -~é]{0,20}|(rx|tx|_|\\[[0-9]\\]|bytes|packets|_total){0,6}", 0..6)) {
            let counters: Vec<_> = names.into_iter().map(|name| (name, 1)).collect();
            let names: Vec<_> = rename(&counters, |_| true).into_iter().map(|renamed| renamed.name).collect();
            let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            prop_assert!(names.iter().all(is_plain), "{names:?}");
            prop_assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        }
    }
}
