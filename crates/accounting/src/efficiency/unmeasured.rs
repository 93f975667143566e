//! Why a run's use of CPUs or memory was not measured.

use super::NodeFigures;

/// A resource that the kernel counts for the run's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupResource {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
}

impl CgroupResource {
    fn is_measured(self, node: &NodeFigures) -> bool {
        match self {
            Self::Cpu => node.cpu_seconds.is_some(),
            Self::Memory => node.memory_peak_bytes.is_some(),
        }
    }

    /// Name of the controller in cgroup v1.
    fn controller(self) -> &'static str {
        match self {
            Self::Cpu => "cpuacct",
            Self::Memory => "memory",
        }
    }
}

/// Returns why a resource of a run was not measured on any of its nodes. `None` if it was, and without nodes.
pub fn why_unmeasured(resource: CgroupResource, nodes: &[NodeFigures]) -> Option<String> {
    let first = nodes.first()?;
    // One measured node is enough to know that the resource is counted.
    if nodes.iter().any(|node| resource.is_measured(node)) {
        return None;
    }

    let heard = nodes.iter().find(|node| node.was_heard);
    let showed_run = nodes.iter().find(|node| node.showed_run);
    // The most exact reason first: the exporter showed the job, answered, or was silent.
    Some(match (heard, showed_run) {
        (_, Some(node)) => format!("no {} cgroup on {}", resource.controller(), node.node),
        (Some(node), None) => format!("the exporter of {} did not see the job", node.node),
        (None, None) => format!("no samples of {} while it ran", first.node),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_one_that_an_operator_can_check() {
        // Three nodes: silent, without the job, and with the job but without CPU time.
        let silent = NodeFigures {
            node: "g01".into(),
            ..NodeFigures::default()
        };
        let heard = NodeFigures {
            was_heard: true,
            ..silent.clone()
        };
        let without_cpuacct = NodeFigures {
            showed_run: true,
            memory_peak_bytes: Some(1.0),
            ..heard.clone()
        };
        for (node, cpu, memory) in [
            (
                silent,
                Some("no samples of g01 while it ran"),
                Some("no samples of g01 while it ran"),
            ),
            (
                heard,
                Some("the exporter of g01 did not see the job"),
                Some("the exporter of g01 did not see the job"),
            ),
            (without_cpuacct, Some("no cpuacct cgroup on g01"), None),
        ] {
            let nodes = [node];
            let why = |resource| why_unmeasured(resource, &nodes);
            assert_eq!(why(CgroupResource::Cpu).as_deref(), cpu);
            assert_eq!(why(CgroupResource::Memory).as_deref(), memory);
        }
        assert_eq!(why_unmeasured(CgroupResource::Cpu, &[]), None);
    }
}
