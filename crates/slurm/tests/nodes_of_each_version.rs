//! Nodes in slurmrestd's answers of each API version, made after the `data_parser` plugins of the
//! releases: each version gives the same nodes, and words that it does not know yet change nothing.

use takt_jobs::{NodeCondition, NodeState};
use takt_model::UnixTime;
use takt_slurm::{node, openapi};

/// API version, the Slurm that answered, and the answer.
macro_rules! answers {
    ($($version:literal $slurm:literal,)*) => {
        [$(($version, $slurm, include_str!(concat!("../fixtures/made-up/nodes/", $version, ".json")))),*]
    };
}

#[test]
fn each_version_gives_the_same_nodes() {
    for (version, slurm, text) in answers! {
        "v0.0.38" "22.05.8",
        "v0.0.39" "23.02.7",
        "v0.0.40" "23.11.10",
        "v0.0.41" "24.05.4",
        "v0.0.42" "24.11.5",
        "v0.0.43" "25.05.8",
        "v0.0.44" "25.11.7",
        "v0.0.45" "26.05.3",
        "v0.0.46" "26.11.0-0rc1",
    } {
        let answer = serde_json::from_str(text).unwrap();
        assert_eq!(openapi::version(&answer).as_deref(), Some(slurm));
        let nodes: Vec<_> = openapi::nodes(&answer).iter().map(node::node).collect();

        let conditions: Vec<_> = nodes
            .iter()
            .map(|node| NodeState::parse(&node.state).condition())
            .collect();
        // Earlier answers have fewer nodes: a state that came later is last.
        let expected = [
            NodeCondition::Drained,
            NodeCondition::Mixed,
            NodeCondition::PoweredDown,
            NodeCondition::Planned,
            NodeCondition::Invalid,
            NodeCondition::Blocked,
            // IDLE with a word of a later release.
            NodeCondition::Idle,
        ];
        assert_eq!(conditions, expected[..nodes.len()], "{version}");

        let drained = &nodes[0];
        assert_eq!(drained.reason.as_deref(), Some("fan"), "{version}");
        assert_eq!(drained.reason_by.as_deref(), Some("root"), "{version}");
        assert_eq!(
            drained.reason_at,
            Some(UnixTime(1_790_000_000)),
            "{version}"
        );
        // Words of a state that are not known must not change the resources of the node.
        for node in &nodes {
            assert_eq!(node.partitions, ["gpu", "all"], "{version}");
            assert_eq!((node.has.cpus, node.has.gpus), (8, 2), "{version}");
        }
        assert_eq!(
            (&nodes[1].reason, nodes[1].reason_at),
            (&None, None),
            "{version}"
        );
    }
}
