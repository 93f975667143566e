//! Reads pods and the objects around them from a stream of JSON.
//!
//! Pods, namespaces, nodes, jobs and workloads may come in any order, in lists, one after the other, or in watch events. All states
//! of a pod become one run, which is returned at the end of the stream, when the objects around the pod are known.

use crate::context::ClusterContext;
use crate::objects::{EventOf, JobObject, ObjectHead, OtherObject, PodObject, WorkloadObject};
use crate::pod::{PodFacts, PodOptions};
use crate::scan::{ObjectScanner, StreamPart};
use serde::de::DeserializeOwned;
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, BufRead};
use std::mem;
use takt_jobs::{Entry, Reject, bounded};
use takt_model::UnixTime;
use takt_model::shown::printable;

/// Error while reading objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectReaderError {
    /// Reading failed.
    #[error("cannot read {name} after line {line}")]
    Read {
        /// File name.
        name: String,
        /// Number of the last line that was read.
        line: u64,
        /// Cause.
        source: io::Error,
    },
    /// The text has no object.
    #[error(
        "{name} is not JSON of Kubernetes: expected what 'kubectl get pods -A -o json' prints, found {found}"
    )]
    Format {
        /// File name.
        name: String,
        /// Beginning of the text.
        found: String,
    },
}

/// Maximum number of pods that are kept until the end of the stream. Beyond, the pods read so far are returned early, without what
/// later objects say about them.
const MAX_PODS: usize = 200_000;

/// Maximum length of a message in a reason, in bytes.
const MAX_MESSAGE_BYTES: usize = 200;

/// Most texts that wait until the first object shows that the file is one of objects.
const MOST_WAITING: usize = 1000;

/// Iterator over the pods of one stream, with the lines on which they begin. An `Err` is the last item.
pub struct ObjectReader<R> {
    scanner: ObjectScanner<R>,
    name: String,
    options: PodOptions,
    context: ClusterContext,
    /// By uid, with the line of the last state.
    pods: HashMap<String, (u64, PodFacts)>,
    ready: VecDeque<(u64, Entry)>,
    /// Latest time in the pods read so far.
    newest: UnixTime,
    /// Number of objects read.
    objects: u64,
    restarts: u64,
    is_done: bool,
}

/// A watch event around an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchEvent {
    /// None, `ADDED` or `MODIFIED`.
    State,
    Deleted,
    Bookmark,
    Error,
}

/// What is around a state of an object.
struct ObjectPlace {
    line: u64,
    event: WatchEvent,
    /// Whether the object is within an event.
    is_wrapped: bool,
}

impl<R: BufRead> ObjectReader<R> {
    /// Reads a stream. `name` is the file's name in errors.
    pub fn new(input: R, name: &str, options: PodOptions) -> Self {
        Self {
            scanner: ObjectScanner::new(input),
            name: name.to_owned(),
            options,
            context: ClusterContext::default(),
            pods: HashMap::new(),
            ready: VecDeque::new(),
            newest: UnixTime::MIN,
            objects: 0,
            restarts: 0,
            is_done: false,
        }
    }

    /// Returns the number of restarts of containers in the pods returned so far. A pod keeps its GPUs over restarts.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Reads one part of the stream.
    fn read(&mut self) -> Result<(), ObjectReaderError> {
        let found = self.scanner.next();
        let found = found.map_err(|source| ObjectReaderError::Read {
            name: self.name.clone(),
            line: self.scanner.line(),
            source,
        })?;

        match found {
            Some(StreamPart::Object { line, text, kind }) => {
                self.objects += 1;
                if let Err((reason, subject)) = self.object(line, &text, kind.as_deref()) {
                    self.reject(line, reason, &subject);
                }
                if self.pods.len() >= MAX_PODS {
                    self.return_pods();
                }
            }
            Some(StreamPart::Broken {
                line,
                reason,
                text,
                is_text,
            }) => {
                self.objects += u64::from(!is_text);
                self.reject(line, reason, &text);
            }
            None => {
                self.is_done = true;
                // A file of another kind is one mistake, not one for each of its lines.
                if self.objects == 0 {
                    return Err(self.not_objects());
                }
                self.return_pods();
            }
        }
        Ok(())
    }

    fn not_objects(&mut self) -> ObjectReaderError {
        let text = match self.ready.pop_front() {
            Some((_, Entry::Rejected(reject))) => format!("'{}'", reject.text),
            _ => "an empty file".to_owned(),
        };
        self.ready.clear();
        ObjectReaderError::Format {
            name: self.name.clone(),
            found: text,
        }
    }

    fn reject(&mut self, line: u64, reason: String, text: &str) {
        // Before the first object they wait in memory.
        if self.objects == 0 && self.ready.len() >= MOST_WAITING {
            return;
        }
        let reject = Reject::new(Some(line), reason, text);
        self.ready.push_back((line, Entry::Rejected(reject)));
    }

    /// Reads one object. An error is the reason why it is set aside, and what it is.
    fn object(
        &mut self,
        line: u64,
        text: &[u8],
        list_kind: Option<&str>,
    ) -> Result<(), (String, String)> {
        let head: ObjectHead = serde_json::from_slice(text)
            .map_err(|error| (reason(&error, line), "an object".to_owned()))?;
        let event = watch_event(&head).map_err(|reason| (reason, "an object".to_owned()))?;
        let is_wrapped = head.object.is_some() && head.event.is_some();
        let object = head.object.as_deref().filter(|_| is_wrapped);
        let object = object.unwrap_or(&head);

        let place = ObjectPlace {
            line,
            event,
            is_wrapped,
        };
        let kind = kind_of(object, list_kind);
        let result = match event {
            WatchEvent::Bookmark => Ok(()),
            WatchEvent::Error => Err(format!(
                "the watch ended: {}; what happened after it is missing",
                message(object)
            )),
            _ => self.add(&place, kind, text),
        };
        result.map_err(|reason| (reason, subject(object, kind)))
    }

    fn add(&mut self, place: &ObjectPlace, kind: &str, text: &[u8]) -> Result<(), String> {
        match kind {
            "Pod" => self.add_pod(place, text),
            "Namespace" => {
                let namespace: OtherObject = decoded(place, text)?;
                self.context
                    .add_namespace(&namespace.metadata, &self.options);
                Ok(())
            }
            "Node" => {
                let node: OtherObject = decoded(place, text)?;
                self.context.add_node(&node.metadata)
            }
            "Job" => {
                let job: JobObject = decoded(place, text)?;
                self.context.add_job(&job)
            }
            "Workload" => {
                let workload: WorkloadObject = decoded(place, text)?;
                self.context.add_workload(&workload, self.options.now)
            }
            "Status" => {
                let status: ObjectHead = decoded(place, text)?;
                Err(format!(
                    "it is an answer without objects: {}",
                    message(&status)
                ))
            }
            // Others may stand between a pod and its root.
            _ => {
                if let Ok(other) = decoded::<OtherObject>(place, text) {
                    self.context.add_other(&other.metadata);
                }
                Ok(())
            }
        }
    }

    fn add_pod(&mut self, place: &ObjectPlace, text: &[u8]) -> Result<(), String> {
        let pod: PodObject = decoded(place, text)?;
        // An event has no time. It came after all others that were read, so their latest time is its earliest.
        let removed = (place.event == WatchEvent::Deleted).then_some(self.newest);
        let facts = PodFacts::of(&pod, &self.options, removed)?;
        self.newest = self.newest.max(facts.outcome.newest);

        match self.pods.entry(facts.uid.clone()) {
            Slot::Vacant(slot) => {
                slot.insert((place.line, facts));
            }
            Slot::Occupied(slot) => {
                let (_, earlier) = slot.remove_entry().1;
                self.pods
                    .insert(facts.uid.clone(), (place.line, facts.after(earlier)));
            }
        }
        Ok(())
    }

    /// Moves all pods that were read to those that are ready.
    fn return_pods(&mut self) {
        let mut pods: Vec<(u64, PodFacts)> = mem::take(&mut self.pods).into_values().collect();
        pods.sort_by(|(_, one), (_, other)| one.uid.cmp(&other.uid));

        // Of pods with one name and one second, the one with the smallest uid has the plain job id, whatever their order.
        let mut taken = HashSet::new();
        let mut ready = Vec::with_capacity(pods.len());
        for (line, pod) in pods {
            if pod.is_nothing() {
                ready.push((line, Entry::Step));
                continue;
            }
            let plain = pod.job_id();
            let is_new = taken.insert((plain.clone(), pod.created()));
            let job_id = if is_new { plain } else { pod.distinct_job_id() };

            self.restarts = self.restarts.saturating_add(pod.outcome.restarts);
            let run = pod.run(job_id, &self.context, &self.options);
            ready.push((line, Entry::Run(run)));
        }
        ready.sort_by_key(|(line, _)| *line);
        self.ready.extend(ready);
    }
}

impl<R: BufRead> Iterator for ObjectReader<R> {
    type Item = Result<(u64, Entry), ObjectReaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Texts before the first object are kept: without an object they are the error.
            if self.objects > 0
                && let Some(entry) = self.ready.pop_front()
            {
                return Some(Ok(entry));
            }
            if self.is_done {
                return None;
            }
            if let Err(error) = self.read() {
                self.is_done = true;
                return Some(Err(error));
            }
        }
    }
}

fn watch_event(head: &ObjectHead) -> Result<WatchEvent, String> {
    // Secrets and other objects have a `type`, too.
    let event = head.event.as_deref().filter(|_| head.object.is_some());
    match event {
        None | Some("ADDED" | "MODIFIED") => Ok(WatchEvent::State),
        Some("DELETED") => Ok(WatchEvent::Deleted),
        Some("BOOKMARK") => Ok(WatchEvent::Bookmark),
        Some("ERROR") => Ok(WatchEvent::Error),
        Some(other) => Err(format!(
            "'{}' is not an event of a watch",
            printable(&bounded(other, 32))
        )),
    }
}

/// API groups of the kinds that other groups have, too.
const GROUPS: &[(&str, &str)] = &[("Job", "batch/"), ("Workload", "kueue.x-k8s.io/")];

/// Returns the kind of an object: its own, or that of its list. Empty for kinds that are not read.
fn kind_of<'h>(object: &'h ObjectHead, list_kind: Option<&'h str>) -> &'h str {
    let has_containers = || {
        let spec = object.spec.as_ref();
        spec.is_some_and(|spec| spec.containers.is_some())
    };
    let kind = match object.kind.as_deref().or(list_kind) {
        Some(kind) => kind,
        None if has_containers() => "Pod",
        None => "",
    };

    let group = GROUPS.iter().find(|(of, _)| *of == kind);
    let version = object.api_version.as_deref();
    match (group, version) {
        (Some((_, group)), Some(version)) if !version.starts_with(group) => "",
        _ => kind,
    }
}

fn decoded<T: DeserializeOwned>(place: &ObjectPlace, text: &[u8]) -> Result<T, String> {
    let object = if place.is_wrapped {
        serde_json::from_slice::<EventOf<T>>(text).map(|event| event.object)
    } else {
        serde_json::from_slice(text)
    };
    object.map_err(|error| reason(&error, place.line))
}

/// Returns why an object cannot be parsed, with the line in the file.
fn reason(error: &serde_json::Error, first_line: u64) -> String {
    let line = first_line + (error.line() as u64).saturating_sub(1);
    let text = error.to_string();
    // serde_json counts from the beginning of the object.
    let text = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(text, _)| text);
    let text = printable(&bounded(text, MAX_MESSAGE_BYTES));
    format!("line {line}: {text}")
}

fn message(status: &ObjectHead) -> String {
    let text = status.message.as_deref().unwrap_or("no reason given");
    printable(&bounded(text, MAX_MESSAGE_BYTES))
}

/// Returns which object this is. Its other fields can have secrets of users, which must not reach logs.
fn subject(object: &ObjectHead, kind: &str) -> String {
    let kind = object.kind.as_deref().unwrap_or(kind);
    let metadata = object.metadata.as_ref();
    let namespace = metadata.and_then(|metadata| metadata.namespace.as_deref());
    let name = metadata.and_then(|metadata| metadata.name.as_deref());
    let text = match (namespace, name) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (_, name) => format!("{kind} {}", name.unwrap_or("without a name")),
    };
    printable(&bounded(&text, MAX_MESSAGE_BYTES))
}

#[cfg(test)]
mod tests;
