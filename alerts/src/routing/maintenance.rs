//! Maintenance: no messages about nodes that are out of service as planned.

use std::collections::BTreeSet;
use takt_model::{Labels, Timestamp};

/// Planned work on nodes, from the scheduler's reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    /// The reservation's name.
    pub name: String,
    /// The cluster of the nodes.
    pub cluster: String,
    /// The nodes, by the label `node` of their alerts.
    pub nodes: BTreeSet<String>,
    /// Its beginning.
    pub from: Timestamp,
    /// Its end, at which the nodes should be in service again.
    pub to: Timestamp,
}

impl Maintenance {
    /// Whether an alert is about one of the nodes during the work. An alert without a cluster
    /// belongs to this cluster: a Prometheus that pushes alerts may name none.
    pub fn covers(&self, labels: &Labels, now: Timestamp) -> bool {
        (self.from..self.to).contains(&now)
            && labels
                .get("node")
                .is_some_and(|node| self.nodes.contains(node))
            && labels
                .get("cluster")
                .is_none_or(|cluster| cluster == self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse_series;

    #[test]
    fn its_nodes_of_its_cluster_from_its_beginning_to_its_end() {
        let work = Maintenance {
            name: "firmware".to_owned(),
            cluster: "lab".to_owned(),
            nodes: ["g01".to_owned(), "g02".to_owned()].into(),
            from: Timestamp::from_seconds(100),
            to: Timestamp::from_seconds(200),
        };

        for (labels, second, covered) in [
            ("{node=g01,cluster=lab}", 99, false),
            ("{node=g01,cluster=lab}", 100, true),
            ("{node=g02}", 199, true),
            ("{node=g02}", 200, false),
            ("{node=g03,cluster=lab}", 150, false),
            ("{node=g01,cluster=other}", 150, false),
            // An alert of the whole cluster is not about a node.
            ("{cluster=lab}", 150, false),
        ] {
            assert_eq!(
                work.covers(&parse_series(labels), Timestamp::from_seconds(second)),
                covered,
                "{labels} {second}"
            );
        }
    }
}
