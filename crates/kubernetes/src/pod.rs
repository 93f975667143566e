//! A pod as a run.
//!
//! Identity: the job id is `NAMESPACE/NAME`, which people type, and the time of submission is the pod's creation. Names come round
//! again, at another time. Two pods of one name and one second, which a forced deletion makes possible, are told apart by
//! the beginning of the uid (`NAMESPACE/NAME@1a2b3c4d`). `raw_job_id` is the uid: the name of the pod's cgroups, and what
//! exporters call its job.

use crate::amounts::PodAmounts;
use crate::context::{
    ClusterContext, PodSurroundings, QUEUE_LABEL, is_label_value, root_of_labels, seconds,
    selected_model,
};
use crate::names::NameSources;
use crate::objects::{OwnerReference, PodObject, TextMap, true_condition};
use crate::outcome::{PodOutcome, not_before};
use crate::times::instant;
use takt_jobs::{JobRun, bounded};
use takt_model::UnixTime;
use takt_model::shown::printable;

/// Settings for facts that pods lack.
#[derive(Debug, Clone)]
pub struct PodOptions {
    /// Cluster of the pods. No object names it.
    pub cluster: String,
    /// Sources of the user.
    pub users: NameSources,
    /// Sources of the account.
    pub accounts: NameSources,
    /// The current time. Later times are refused.
    pub now: UnixTime,
}

/// Maximum length of a name in bytes, as in Kubernetes.
const MAX_NAME_BYTES: usize = 253;

/// Maximum length of a uid in bytes.
const MAX_UID_BYTES: usize = 64;

/// Digits of the uid behind a name that two pods have in one second.
const SHOWN_UID_BYTES: usize = 8;

/// Annotation of the object that stands for a kubelet's own pod.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What is kept of a pod while the rest of the file is read.
#[derive(Debug)]
pub(crate) struct PodFacts {
    pub uid: String,
    namespace: String,
    name: String,
    created: UnixTime,
    /// Since when the pod holds its node.
    start: Option<UnixTime>,
    /// Whether gates keep it from being scheduled.
    is_gated: bool,
    node: Option<String>,
    amounts: PodAmounts,
    selected_model: Option<String>,
    queue: Option<String>,
    priority_class: Option<String>,
    owner: Option<OwnerReference>,
    root: Option<String>,
    deadline_seconds: Option<u64>,
    service_account: String,
    of_users: Vec<Option<Box<str>>>,
    of_accounts: Vec<Option<Box<str>>>,
    pub outcome: PodOutcome,
}

impl PodFacts {
    /// Returns the facts of a pod. `removed` is the latest time known when a watch saw its deletion.
    ///
    /// # Errors
    /// A required field is missing, or one has a value that an API server does not write.
    pub fn of(
        pod: &PodObject,
        options: &PodOptions,
        removed: Option<UnixTime>,
    ) -> Result<Self, String> {
        let metadata = &pod.metadata;
        let spec = &pod.spec;
        let uid = required(metadata.uid.as_deref(), "metadata.uid", MAX_UID_BYTES)?;
        let namespace = required(
            metadata.namespace.as_deref(),
            "metadata.namespace",
            MAX_NAME_BYTES,
        )?;
        let name = required(metadata.name.as_deref(), "metadata.name", MAX_NAME_BYTES)?;
        let node = optional(spec.node_name.as_deref(), "spec.nodeName")?;
        let creation = metadata.creation_timestamp.as_deref();
        let created = instant(creation, "creationTimestamp", options.now)?
            .ok_or("metadata.creationTimestamp is missing")?;

        // The API server's mirror of a pod that a kubelet runs by itself may be younger than that pod.
        let is_mirror = metadata.annotations.contains_key(MIRROR_ANNOTATION);
        let start = match held_since(pod, node.is_some(), created, options.now)? {
            Some(start) if is_mirror => Some(start.max(created)),
            Some(start) => Some(not_before(start, created)?),
            None => None,
        };
        let outcome = PodOutcome::of(pod, created, start, removed, options.now)?;

        let mut conditions = pod.status.conditions.iter();
        let is_gated = conditions.any(|condition| {
            condition.kind == "PodScheduled"
                && condition.reason.as_deref() == Some("SchedulingGated")
        });
        Ok(Self {
            uid,
            namespace,
            name,
            created,
            start,
            is_gated,
            node,
            amounts: PodAmounts::of(spec)?,
            selected_model: selected_model(&spec.node_selector)?,
            queue: label_value(&metadata.labels, QUEUE_LABEL)?.map(str::to_owned),
            priority_class: optional(spec.priority_class_name.as_deref(), "priorityClassName")?,
            owner: metadata.controller().map(bounded_owner),
            root: root_of_labels(metadata).map(|root| shown(&root)),
            deadline_seconds: seconds(spec.active_deadline_seconds),
            service_account: optional(spec.service_account_name.as_deref(), "serviceAccountName")?
                .unwrap_or_else(|| "default".to_owned()),
            of_users: options.users.of_pod(metadata),
            of_accounts: options.accounts.of_pod(metadata),
            outcome,
        })
    }

    /// Returns the job id that the pod has if no other pod has its name and second.
    pub fn job_id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the job id of one of several pods with one name and one second.
    pub fn distinct_job_id(&self) -> String {
        let end = self.uid.len().min(SHOWN_UID_BYTES);
        format!("{}@{}", self.job_id(), &self.uid[..end])
    }

    /// Returns the time of creation.
    pub fn created(&self) -> UnixTime {
        self.created
    }

    /// Returns whether the pod reserves nothing, and so is no run.
    pub fn is_nothing(&self) -> bool {
        self.amounts.is_nothing()
    }

    /// Takes what an earlier state of the same pod knows better. Returns the state that counts.
    #[must_use]
    pub fn after(mut self, mut earlier: Self) -> Self {
        let first = [self.outcome.first_start, earlier.outcome.first_start];
        let first = first.into_iter().flatten().min();
        // A file may have an old state behind a newer one: an end stays, and so does a start.
        let stage = |pod: &Self| (pod.outcome.end.is_some(), pod.start.is_some());
        if stage(&earlier) > stage(&self) {
            earlier.outcome.first_start = first;
            return earlier;
        }
        self.outcome.first_start = first;
        self
    }

    /// Returns the run, completed with what the objects around the pod say.
    pub fn run(&self, job_id: String, context: &ClusterContext, options: &PodOptions) -> JobRun {
        let around = context.around(
            &self.uid,
            &self.namespace,
            self.node.as_deref(),
            self.owner.as_ref(),
        );

        let amounts = match around.node {
            Some(node) if node.shares_gpus => self.amounts.with_gpus_as_shares(),
            _ => self.amounts.clone(),
        };
        let model = around.node.and_then(|node| node.gpu_model.as_deref());
        let model = model.or(self.selected_model.as_deref());
        let model = model.filter(|_| amounts.gpus > 0 && self.start.is_some());
        let tres = amounts.tres(model);

        let end = self.outcome.end.as_ref();
        let state = match (end, self.start) {
            (Some(_), _) => self.end_state(&around),
            (None, Some(_)) => "RUNNING",
            (None, None) => "PENDING",
        };
        let name = around.root.map(shown).or_else(|| self.root.clone());
        let run = JobRun {
            cluster: options.cluster.clone(),
            job_id,
            submit: self.created,
            eligible: self.eligible(&around),
            start: self.start,
            end: end.map(|end| end.at),
            state: state.to_owned(),
            user: self.chosen(&options.users, &self.of_users, &around),
            account: self.chosen(&options.accounts, &self.of_accounts, &around),
            partition: self.partition(&around),
            qos: self.priority_class.clone(),
            name: Some(name.unwrap_or_else(|| self.name.clone())),
            req_tres: Some(tres.clone()),
            timelimit: self.timelimit(&around),
            exit_code: end.and_then(|end| end.exit_code.clone()),
            raw_job_id: Some(self.uid.clone()),
            ..JobRun::default()
        };
        if self.start.is_none() {
            return run;
        }

        // A pod without a request reserves none of the resource; it may use any, so the amount is unknown.
        let cpus = amounts.cpus.ceil();
        let mem_bytes = amounts.memory.ceil();
        let ran = |end: UnixTime| self.outcome.first_start.map_or(0, |first| end.since(first));
        JobRun {
            nodes: Some(1),
            cpus: Some(cpus).filter(|cpus| *cpus > 0),
            gpus: Some(amounts.gpus),
            gpu_model: model.map(str::to_owned),
            mem_bytes: Some(mem_bytes).filter(|bytes| *bytes > 0),
            alloc_tres: Some(tres),
            node_list: self.node.clone(),
            elapsed: end.map(|end| ran(end.at)),
            ..run
        }
    }

    fn chosen(
        &self,
        sources: &NameSources,
        of_pod: &[Option<Box<str>>],
        around: &PodSurroundings<'_>,
    ) -> String {
        sources.choose(
            of_pod,
            &self.namespace,
            &self.service_account,
            around.namespace,
        )
    }

    /// Returns the time from which only a lack of resources delayed the pod.
    fn eligible(&self, around: &PodSurroundings<'_>) -> Option<UnixTime> {
        if self.is_gated && self.start.is_none() {
            return None;
        }
        // Kueue admits single pods after they were created, jobs before their pods exist. It records the latest admission only.
        let admitted = around.workload.and_then(|workload| workload.admitted);
        let admitted = admitted.filter(|at| self.start.is_some_and(|start| *at <= start));
        Some(admitted.map_or(self.created, |at| at.max(self.created)))
    }

    fn partition(&self, around: &PodSurroundings<'_>) -> String {
        let of_job = || around.job.and_then(|job| job.queue.clone());
        let of_workload = || around.workload.and_then(|workload| workload.queue.clone());
        let queue = self.queue.clone().or_else(of_job).or_else(of_workload);
        queue.unwrap_or_else(|| self.namespace.clone())
    }

    fn timelimit(&self, around: &PodSurroundings<'_>) -> Option<u64> {
        let of_job = around.job.and_then(|job| job.deadline_seconds);
        let of_workload = around.workload.and_then(|workload| workload.max_seconds);
        let limits = [self.deadline_seconds, of_job, of_workload];
        limits.into_iter().flatten().min()
    }

    /// Returns the state of an ended pod. The objects around it can say why it was deleted.
    fn end_state(&self, around: &PodSurroundings<'_>) -> &'static str {
        let Some(end) = &self.outcome.end else {
            return "RUNNING";
        };
        if !end.was_deleted || end.state != "CANCELLED" {
            return end.state;
        }

        if around.job.is_some_and(|job| job.timed_out) {
            return "TIMEOUT";
        }
        let evicted = around
            .workload
            .and_then(|workload| workload.evicted.as_ref());
        let evicted = evicted.filter(|(at, _)| self.created <= *at && *at <= end.at);
        match evicted.map(|(_, reason)| reason.as_str()) {
            Some("Preempted") => "PREEMPTED",
            Some("MaximumExecutionTimeExceeded") => "TIMEOUT",
            Some("NodeFailures") => "NODE_FAIL",
            _ => end.state,
        }
    }
}

/// Returns since when a pod holds its node: no other pod gets its resources from then on, although its images are still pulled.
fn held_since(
    pod: &PodObject,
    has_node: bool,
    created: UnixTime,
    now: UnixTime,
) -> Result<Option<UnixTime>, String> {
    if let Some(scheduled) = true_condition(&pod.status.conditions, "PodScheduled") {
        let text = scheduled.last_transition_time.as_deref();
        if let Some(at) = instant(text, "lastTransitionTime", now)? {
            return Ok(Some(at));
        }
    }
    if !has_node {
        return Ok(None);
    }
    // Pods of the kubelet itself, and pods that were created with a node, pass by the scheduler.
    let started = instant(pod.status.start_time.as_deref(), "startTime", now)?;
    Ok(Some(started.unwrap_or(created)))
}

/// Returns a name that every object of an API server has.
fn required(text: Option<&str>, field: &str, most: usize) -> Result<String, String> {
    let text = text.filter(|text| !text.is_empty()).ok_or_else(|| {
        format!("{field} is missing; objects of an API server have it, manifests have not")
    })?;
    if text.len() > most || !is_name(text) {
        return Err(not_a_name(field, text));
    }
    Ok(text.to_owned())
}

/// Returns a name that may be missing.
fn optional(text: Option<&str>, field: &str) -> Result<Option<String>, String> {
    match text.filter(|text| !text.is_empty()) {
        Some(text) if text.len() > MAX_NAME_BYTES || !is_name(text) => Err(not_a_name(field, text)),
        text => Ok(text.map(str::to_owned)),
    }
}

/// Returns the value of a label. API servers refuse labels with other characters.
pub(crate) fn label_value<'l>(labels: &'l TextMap, key: &str) -> Result<Option<&'l str>, String> {
    match labels.get(key).map(String::as_str) {
        Some(value) if !is_label_value(value) => Err(not_a_name(key, value)),
        value => Ok(value.filter(|value| !value.is_empty())),
    }
}

fn not_a_name(field: &str, text: &str) -> String {
    let text = printable(&bounded(text, 64));
    format!("{field} '{text}' is not a name of Kubernetes")
}

/// Returns whether a text can be the name of an object.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    text.bytes().all(is_part)
}

fn bounded_owner(owner: &OwnerReference) -> OwnerReference {
    OwnerReference {
        kind: String::new(),
        name: shown(&owner.name),
        uid: bounded(&owner.uid, MAX_UID_BYTES).into_owned(),
        controller: owner.controller,
    }
}

fn shown(name: &str) -> String {
    printable(&bounded(name, MAX_NAME_BYTES))
}
