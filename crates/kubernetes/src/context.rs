//! What objects besides pods say about pods: namespaces, nodes, jobs, Kueue's workloads, and who owns whom.

use crate::objects::{
    JobObject, ObjectMetadata, OwnerReference, StatusCondition, TextMap, WorkloadObject,
    true_condition,
};
use crate::pod::{PodOptions, label_value};
use crate::times::instant;
use std::collections::HashMap;
use takt_model::UnixTime;

/// Label of Kueue's LocalQueue.
pub(crate) const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

/// Label of a node with the product name of its GPUs, from NVIDIA's GPU feature discovery.
pub(crate) const PRODUCT_LABEL: &str = "nvidia.com/gpu.product";

/// Label of a node that says how its GPUs are shared: `none`, `time-slicing`, `mps`.
const SHARING_LABEL: &str = "nvidia.com/gpu.sharing-strategy";

/// End of the product name where GPUs are time slices.
const SHARED_PRODUCT: &str = "-SHARED";

/// Part of the product name where all GPUs are MIG devices of one size.
const MIG_PRODUCT: &str = "-MIG-";

/// Labels whose value names the root owner of a pod, the outermost first.
const ROOT_LABELS: &[&str] = &[
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
    "leaderworkerset.sigs.k8s.io/name",
    "jobset.sigs.k8s.io/jobset-name",
    "kueue.x-k8s.io/pod-group-name",
    "batch.kubernetes.io/job-name",
    "job-name",
];

/// Maximum number of owners above each other.
const MAX_OWNERS: usize = 8;

/// Maximum number of objects of each kind that are remembered.
const MAX_OBJECTS: usize = 200_000;

/// The objects that were read, besides pods.
#[derive(Debug, Default)]
pub(crate) struct ClusterContext {
    namespaces: HashMap<String, NamespaceFacts>,
    nodes: HashMap<String, NodeFacts>,
    /// By their uid.
    jobs: HashMap<String, JobFacts>,
    /// By the uid of what they admit.
    workloads: HashMap<String, WorkloadFacts>,
    /// The controller of each object that has one, by the uid of the object.
    controllers: HashMap<String, OwnerReference>,
}

/// Labels and annotations of a namespace that are a source of names.
#[derive(Debug, Default)]
pub(crate) struct NamespaceFacts {
    pub labels: HashMap<String, String>,
    pub annotations: HashMap<String, String>,
}

/// GPUs of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// Product name of the GPUs.
    pub gpu_model: Option<String>,
    /// Whether the node's `nvidia.com/gpu` are parts of GPUs.
    pub shares_gpus: bool,
}

/// A Job.
#[derive(Debug, Default)]
pub(crate) struct JobFacts {
    pub queue: Option<String>,
    /// Limit of its run time in seconds.
    pub deadline_seconds: Option<u64>,
    /// Whether it reached this limit.
    pub timed_out: bool,
}

/// A Workload of Kueue.
#[derive(Debug, Default)]
pub(crate) struct WorkloadFacts {
    pub queue: Option<String>,
    /// Latest time at which it was admitted.
    pub admitted: Option<UnixTime>,
    /// Latest eviction and its reason.
    pub evicted: Option<(UnixTime, String)>,
    pub max_seconds: Option<u64>,
}

/// What the objects around a pod say about it.
#[derive(Debug, Default)]
pub(crate) struct PodSurroundings<'c> {
    pub namespace: Option<&'c NamespaceFacts>,
    pub node: Option<&'c NodeFacts>,
    pub job: Option<&'c JobFacts>,
    pub workload: Option<&'c WorkloadFacts>,
    /// Name of the topmost owner, where objects between it and the pod were read.
    pub root: Option<&'c str>,
}

impl ClusterContext {
    pub fn add_namespace(&mut self, namespace: &ObjectMetadata, options: &PodOptions) {
        let mut facts = NamespaceFacts::default();
        options.users.of_namespace(namespace, &mut facts);
        options.accounts.of_namespace(namespace, &mut facts);
        if let Some(name) = &namespace.name {
            insert(&mut self.namespaces, name, facts);
        }
    }

    pub fn add_node(&mut self, node: &ObjectMetadata) -> Result<(), String> {
        let product = label_value(&node.labels, PRODUCT_LABEL)?;
        let sharing = node.labels.get(SHARING_LABEL).map(String::as_str);
        let shares_gpus = matches!(sharing, Some("time-slicing" | "mps"))
            || product.is_some_and(|product| {
                product.ends_with(SHARED_PRODUCT) || product.contains(MIG_PRODUCT)
            });

        let model = product.map(|product| product.trim_end_matches(SHARED_PRODUCT).to_owned());
        let facts = NodeFacts {
            gpu_model: model.filter(|model| !model.is_empty()),
            shares_gpus,
        };
        if let Some(name) = &node.name {
            insert(&mut self.nodes, name, facts);
        }
        Ok(())
    }

    pub fn add_job(&mut self, job: &JobObject) -> Result<(), String> {
        let failed = true_condition(&job.status.conditions, "Failed");
        let facts = JobFacts {
            queue: label_value(&job.metadata.labels, QUEUE_LABEL)?.map(str::to_owned),
            deadline_seconds: seconds(job.spec.active_deadline_seconds),
            timed_out: failed.and_then(|failed| failed.reason.as_deref())
                == Some("DeadlineExceeded"),
        };
        if let Some(uid) = &job.metadata.uid {
            insert(&mut self.jobs, uid, facts);
        }
        self.add_other(&job.metadata);
        Ok(())
    }

    pub fn add_workload(&mut self, workload: &WorkloadObject, now: UnixTime) -> Result<(), String> {
        let conditions = &workload.status.conditions;
        let at = |condition: &StatusCondition| {
            instant(
                condition.last_transition_time.as_deref(),
                "lastTransitionTime",
                now,
            )
        };
        let admitted = true_condition(conditions, "Admitted")
            .map(at)
            .transpose()?
            .flatten();

        let evicted = match true_condition(conditions, "Evicted") {
            Some(evicted) => {
                let reason = evicted.reason.clone().unwrap_or_default();
                at(evicted)?.map(|at| (at, reason))
            }
            None => None,
        };

        let queue = match workload.spec.queue_name.as_deref() {
            Some(queue) if !is_label_value(queue) => {
                return Err("spec.queueName is not a name".to_owned());
            }
            queue => queue.filter(|queue| !queue.is_empty()),
        };

        // The controller is what the workload admits: a Job, a JobSet, or a single pod.
        let metadata = &workload.metadata;
        let owner = metadata.controller().or(metadata.owner_references.first());
        let label = metadata.labels.get("kueue.x-k8s.io/job-uid");
        if let Some(uid) = label.or(owner.map(|owner| &owner.uid)) {
            let facts = WorkloadFacts {
                queue: queue.map(str::to_owned),
                admitted,
                evicted,
                max_seconds: seconds(workload.spec.maximum_execution_time_seconds),
            };
            insert(&mut self.workloads, uid, facts);
        }
        Ok(())
    }

    /// Remembers what controls an object.
    pub fn add_other(&mut self, object: &ObjectMetadata) {
        if let (Some(uid), Some(controller)) = (&object.uid, object.controller()) {
            insert(&mut self.controllers, uid, controller.clone());
        }
    }

    /// Returns what the objects around a pod say about it.
    pub fn around(
        &self,
        uid: &str,
        namespace: &str,
        node: Option<&str>,
        owner: Option<&OwnerReference>,
    ) -> PodSurroundings<'_> {
        let mut around = PodSurroundings {
            namespace: self.namespaces.get(namespace),
            node: node.and_then(|node| self.nodes.get(node)),
            workload: self.workloads.get(uid),
            ..PodSurroundings::default()
        };

        let mut uid = owner.map(|owner| owner.uid.as_str());
        for _ in 0..MAX_OWNERS {
            let Some(own) = uid else { break };
            around.job = around.job.or_else(|| self.jobs.get(own));
            around.workload = around.workload.or_else(|| self.workloads.get(own));

            let controller = self.controllers.get(own);
            around.root = controller.map(|owner| owner.name.as_str()).or(around.root);
            uid = controller.map(|owner| owner.uid.as_str());
        }
        around
    }
}

/// Returns the name of the root owner that a pod's own labels and its controller tell.
pub(crate) fn root_of_labels(pod: &ObjectMetadata) -> Option<String> {
    let mut labels = ROOT_LABELS.iter();
    if let Some(root) = labels.find_map(|key| pod.labels.get(*key)) {
        return Some(root.clone());
    }

    let owner = pod.controller()?;
    // A Deployment's ReplicaSet has the hash of its template behind the name.
    let hash = pod.labels.get("pod-template-hash");
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
    Some(deployment.unwrap_or(&owner.name).to_owned())
}

/// Returns a number of seconds. `None` if it is not set or negative.
pub(crate) fn seconds(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok())
}

/// Returns whether a text can be the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.len() <= 253 && text.bytes().all(is_part)
}

fn insert<T>(objects: &mut HashMap<String, T>, key: &str, facts: T) {
    // A file with more objects is read without the rest of them: they only complete what pods say.
    if objects.len() < MAX_OBJECTS || objects.contains_key(key) {
        objects.insert(key.to_owned(), facts);
    }
}

/// Returns the product name that a pod selects its node by.
pub(crate) fn selected_model(selector: &TextMap) -> Result<Option<String>, String> {
    let product = label_value(selector, PRODUCT_LABEL)?;
    Ok(product.map(|product| product.trim_end_matches(SHARED_PRODUCT).to_owned()))
}
