//! Nodes that are out of use as planned: what breaks on them meanwhile wakes nobody.

use std::collections::BTreeSet;
use takt_model::{Labels, Timestamp};

/// A time in which nodes are worked on, as the scheduler's reservations say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    /// The reservation's name.
    pub name: String,
    /// Whose nodes.
    pub cluster: String,
    /// Which nodes, as their alerts name them in the label `node`.
    pub nodes: BTreeSet<String>,
    /// Its beginning.
    pub from: Timestamp,
    /// Its end, at which nodes are expected to be well again.
    pub to: Timestamp,
}

impl Maintenance {
    /// Whether an alert is about one of the nodes, while they are worked on. One that names no cluster is taken for
    /// one of ours, as a Prometheus that pushes alerts may name none.
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
