//! The fields of objects that Takt reads. Unknown fields are ignored; `null` is a field that is not set.

use serde::Deserialize;
use serde::de::{Deserializer, Error as DecodeError, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Texts by key: labels, annotations.
pub(crate) type TextMap = BTreeMap<String, String>;

/// The field, or its default where it is `null`.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// What decides how an object is read: its kind, and whether a watch event is around it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectHead {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    pub metadata: Option<HeadMetadata>,
    pub spec: Option<HeadSpec>,
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR` of a watch event.
    #[serde(rename = "type")]
    pub event: Option<String>,
    pub object: Option<Box<ObjectHead>>,
    /// The message of a `Status`.
    pub message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HeadMetadata {
    pub namespace: Option<String>,
    pub name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HeadSpec {
    /// Only pods have containers here.
    pub containers: Option<serde::de::IgnoredAny>,
}

/// An object with a watch event around it.
#[derive(Debug, Deserialize)]
pub(crate) struct EventOf<T> {
    pub object: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectMetadata {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub uid: Option<String>,
    pub creation_timestamp: Option<String>,
    /// The end of the grace period of an object that is being deleted.
    pub deletion_timestamp: Option<String>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub labels: TextMap,
    #[serde(deserialize_with = "or_default")]
    pub annotations: TextMap,
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMetadata {
    /// Returns the owner that controls the object.
    pub fn controller(&self) -> Option<&OwnerReference> {
        let mut owners = self.owner_references.iter();
        owners.find(|owner| owner.controller == Some(true))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct OwnerReference {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodObject {
    pub metadata: ObjectMetadata,
    pub spec: PodSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<ContainerSpec>,
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<ContainerSpec>,
    /// Resources of the pod as a whole.
    #[serde(deserialize_with = "or_default")]
    pub resources: ContainerResources,
    #[serde(deserialize_with = "or_default")]
    pub overhead: AmountTexts,
    #[serde(deserialize_with = "or_default")]
    pub node_selector: TextMap,
    pub node_name: Option<String>,
    pub service_account_name: Option<String>,
    pub priority_class_name: Option<String>,
    pub active_deadline_seconds: Option<i64>,
}

/// Amounts by the name of the resource.
pub(crate) type AmountTexts = BTreeMap<String, AmountText>;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerSpec {
    #[serde(deserialize_with = "or_default")]
    pub resources: ContainerResources,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerResources {
    #[serde(deserialize_with = "or_default")]
    pub requests: AmountTexts,
    #[serde(deserialize_with = "or_default")]
    pub limits: AmountTexts,
}

/// The text of a quantity. API servers write texts, other programs numbers, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AmountText(pub String);

impl<'de> Deserialize<'de> for AmountText {
    fn deserialize<D>(from: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'de>,
    {
        from.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = AmountText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount such as \"4Gi\"")
    }

    fn visit_str<E: DecodeError>(self, text: &str) -> Result<AmountText, E> {
        Ok(AmountText(text.to_owned()))
    }

    fn visit_u64<E: DecodeError>(self, number: u64) -> Result<AmountText, E> {
        Ok(AmountText(number.to_string()))
    }

    fn visit_i64<E: DecodeError>(self, number: i64) -> Result<AmountText, E> {
        Ok(AmountText(number.to_string()))
    }

    fn visit_f64<E: DecodeError>(self, number: f64) -> Result<AmountText, E> {
        Ok(AmountText(number.to_string()))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub start_time: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<StatusCondition>,
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: Option<String>,
    pub last_transition_time: Option<String>,
}

/// Returns the condition of this kind, if it is true.
pub(crate) fn true_condition<'c>(
    conditions: &'c [StatusCondition],
    kind: &str,
) -> Option<&'c StatusCondition> {
    let mut conditions = conditions.iter();
    conditions.find(|condition| condition.kind == kind && condition.status == "True")
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub restart_count: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
    /// State before the last restart.
    #[serde(deserialize_with = "or_default")]
    pub last_state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub running: Option<RunningState>,
    pub terminated: Option<TerminatedState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RunningState {
    pub started_at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TerminatedState {
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub reason: Option<String>,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
}

/// Any object besides pods: what owns it, and its labels.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OtherObject {
    pub metadata: ObjectMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobObject {
    pub metadata: ObjectMetadata,
    pub spec: JobSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: ConditionStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSpec {
    pub active_deadline_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConditionStatus {
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<StatusCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WorkloadObject {
    pub metadata: ObjectMetadata,
    pub spec: WorkloadSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: ConditionStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WorkloadSpec {
    pub queue_name: Option<String>,
    pub maximum_execution_time_seconds: Option<i64>,
}
