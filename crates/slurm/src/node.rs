//! Nodes and changes of their states, as slurmctld and sacctmgr report them.

use crate::openapi::{self, NodeNow};
use crate::tres::{TresCounts, scaled};
use takt_jobs::{Amounts, Node, NodeEvent};

/// Converts a node of slurmctld's answer.
pub fn node(now: &NodeNow) -> Node {
    let tres = tres(&now.tres);
    let mut has = amounts(&tres);
    let counts_gpus = now.tres.contains("gres/gpu");
    if !counts_gpus {
        // Slurm may not track GPUs as TRES (it does not without slurmdbd). `Gres` lists them in any
        // case.
        has.gpus = gres(&now.gres);
    }
    // TRES have the types only if `AccountingStorageTRES` lists them.
    let gpu_model = tres.gpu_model.or_else(|| openapi::gres_models(&now.gres));
    let NodeNow {
        node,
        state,
        reason,
        reason_by,
        reason_at,
        partitions,
        ..
    } = now.clone();
    Node {
        node,
        state,
        reason,
        reason_by,
        reason_at,
        partitions,
        has,
        gpu_model,
        counts_gpus,
    }
}

/// Returns the number of GPUs in `gpu:a100:2(S:0-1),gpu:l40s:1,shard:8`.
fn gres(text: &str) -> u64 {
    openapi::outside_brackets(text)
        .into_iter()
        .filter_map(|gres| {
            let (kind, rest) = gres.split('(').next()?.split_once(':')?;
            (kind == "gpu").then(|| scaled(rest.rsplit(':').next()?, 1))?
        })
        .sum()
}

/// Parses TRES. An invalid string counts as empty.
fn tres(text: &str) -> TresCounts {
    TresCounts::parse(text).ok().flatten().unwrap_or_default()
}

fn amounts(tres: &TresCounts) -> Amounts {
    let or_none = |amount: Option<u64>| amount.unwrap_or(0);
    Amounts {
        cpus: or_none(tres.cpus),
        gpus: or_none(tres.gpus),
        mem_bytes: or_none(tres.mem_bytes),
    }
}

/// Fields of a row of [`events`].
const EVENT_FIELDS: usize = 7;

/// Parses the rows of `sacctmgr -P show event
/// format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,TRES`. Operators write the reason, which
/// may contain delimiters and line feeds: a row goes on until it has all its fields, and the fields
/// after the reason are counted from the end.
pub fn events(text: &str, cluster: &str) -> Vec<NodeEvent> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut row = line.to_owned();
        while row.matches('|').count() + 1 < EVENT_FIELDS {
            let Some(more) = lines.next() else { break };
            row.push('\n');
            row.push_str(more);
        }
        found.extend(event(&row, cluster));
    }
    found
}

fn event(row: &str, cluster: &str) -> Option<NodeEvent> {
    let fields: Vec<&str> = row.split('|').collect();
    let [of, node, from, to, state, reason @ .., tres] = fields.as_slice() else {
        return None;
    };
    if *of != cluster || reason.is_empty() {
        return None;
    }
    let reason = reason.join("|");
    Some(NodeEvent {
        node: (*node).to_owned(),
        state: (*state).to_owned(),
        reason: Some(reason).filter(|reason| !reason.is_empty()),
        has: amounts(&self::tres(tres)),
        from: from.parse().ok()?,
        to: to.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::UnixTime;

    #[test]
    fn events_of_slurmdbd() {
        let text = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|TRES\n\
            lab||1795270565|Unknown||Cluster Registered TRES|billing=93,cpu=24,gres/gpu:a100=4,gres/gpu=6,mem=96000M,node=3\n\
            lab|node2|1795270568|1795270600|DOWN|fan | broken|cpu=8,gres/gpu=2,mem=32000M\n\
            other|node9|1|2|DOWN||cpu=8\n";
        let found = events(text, "lab");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].has.cpus, 24);
        assert_eq!(found[0].has.gpus, 6);
        assert_eq!(found[0].to, None);
        assert_eq!(found[1].reason.as_deref(), Some("fan | broken"));
        assert_eq!(found[1].from, UnixTime(1_795_270_568));
        assert_eq!(found[1].to, Some(UnixTime(1_795_270_600)));
        assert_eq!(found[1].has.mem_bytes, 32_000 << 20);
    }

    #[test]
    fn a_reason_of_several_lines_is_one_event() {
        let text = "lab|node2|1795270568|1795270600|DOWN|fan\n\nlab|node9|1|2|DOWN|x|cpu=8,gres/gpu=2\n\
            lab|node3|1795270568|Unknown|DOWN|bad|cpu=4\n";
        let found = events(text, "lab");
        let nodes: Vec<_> = found.iter().map(|event| event.node.as_str()).collect();
        assert_eq!(nodes, ["node2", "node3"]);
        assert_eq!(
            found[0].reason.as_deref(),
            Some("fan\n\nlab|node9|1|2|DOWN|x")
        );
        assert_eq!(found[0].has.gpus, 2);
    }

    #[test]
    fn gpus_that_are_no_tres_are_the_nodes_gres() {
        for (text, gpus) in [
            ("gpu:a100:2(S:0-1),gpu:l40s:1,shard:8", 3),
            ("gpu:4", 4),
            ("", 0),
            ("(null)", 0),
            ("gpu:a100:many", 0),
        ] {
            assert_eq!(gres(text), gpus, "{text}");
        }
        let now = NodeNow {
            node: "g1".into(),
            tres: "cpu=8,mem=32000M".into(),
            gres: "gpu:2".into(),
            ..NodeNow::default()
        };
        assert_eq!(
            node(&now).has,
            Amounts {
                cpus: 8,
                gpus: 2,
                mem_bytes: 32_000 << 20
            }
        );
    }

    #[test]
    fn the_gpu_type_is_that_of_tres_or_of_gres() {
        for (tres, gres, model) in [
            ("cpu=8,gres/gpu:a100=4,gres/gpu=4", "", Some("a100")),
            ("cpu=8,gres/gpu=4", "gpu:h100:4(S:0-1)", Some("h100")),
            ("cpu=8", "gpu:l40s:1,gpu:a100:2,shard:8", Some("a100+l40s")),
            ("cpu=8,gres/gpu=4", "gpu:4", None),
            ("cpu=8", "(null)", None),
        ] {
            let now = NodeNow {
                tres: tres.into(),
                gres: gres.into(),
                ..NodeNow::default()
            };
            assert_eq!(node(&now).gpu_model.as_deref(), model, "{tres} {gres}");
        }
    }
}
