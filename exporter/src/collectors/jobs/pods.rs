//! Names of Kubernetes pods. A pod's cgroup has only its UID.
//!
//! Source: the directories in which the kubelet keeps the pods' logs,
//! `/var/log/pods/NAMESPACE_NAME_UID`. No API is asked.

use crate::sysfs;
use std::path::Path;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodName {
    pub namespace: String,
    pub name: String,
}

pub(super) fn find(logs: &Path, uid: &str) -> Option<PodName> {
    let directories = sysfs::names(logs, "").unwrap_or_default();
    directories
        .iter()
        .find_map(|directory| parse(directory, uid))
}

/// Neither namespaces nor names have underscores.
fn parse(directory: &str, uid: &str) -> Option<PodName> {
    let pod = directory.strip_suffix(uid)?.strip_suffix('_')?;
    let (namespace, name) = pod.split_once('_')?;
    Some(PodName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_its_uid() {
        let pod = parse(
            "research_train-0_0a1b2c3d-0000-4000-8000-0123456789ab",
            "0a1b2c3d-0000-4000-8000-0123456789ab",
        );
        assert_eq!(
            pod,
            Some(PodName {
                namespace: "research".into(),
                name: "train-0".into()
            })
        );
        assert_eq!(parse("research_train-0_0a1b", "a1b"), None);
        assert_eq!(parse("0a1b", "0a1b"), None);
    }
}
