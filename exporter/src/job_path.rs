//! The job that a cgroup belongs to, by its path.
//!
//! | | |
//! |---|---|
//! | Slurm, version 1 | `/slurm[_NODE]/uid_1000/job_7/step_0/task_0` |
//! | Slurm, version 2 | `/system.slice/[NODE_]slurmstepd.scope/job_7/step_0/user/task_0`, in any slice |
//! | Slurm ≥ 26.05 | the same with the job's SLUID, `sEKNKTV3WPV500`, in place of `job_7` |
//! | Kubernetes | `/kubepods.slice/…/kubepods-burstable-podUID.slice/…`, `/kubepods/burstable/podUID/…` |
//!
//! Users may make directories of any name below their own `user.slice`; those are no jobs. The
//! collector `jobs` walks these paths, and events of the kernel log name them.

/// A job as its cgroup names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum JobKey {
    /// Slurm's job number.
    Slurm(u32),
    /// Slurm's unique job id.
    Sluid(String),
    /// The UID of a Kubernetes pod.
    Pod(String),
}

impl JobKey {
    /// Returns the job's name without better knowledge.
    pub fn name(&self) -> String {
        match self {
            Self::Slurm(number) => number.to_string(),
            Self::Sluid(text) | Self::Pod(text) => text.clone(),
        }
    }

    pub fn scheduler(&self) -> &'static str {
        match self {
            Self::Slurm(_) | Self::Sluid(_) => "slurm",
            Self::Pod(_) => "kubernetes",
        }
    }
}

/// The job of a cgroup, from its path below the root of its hierarchy.
pub(crate) fn job_of(path: &str) -> Option<JobKey> {
    let names = path.split('/');
    let names = names.filter(|name| !name.is_empty() && *name != "..");
    let mut names = names.peekable();
    let mut in_pods = false;
    let mut is_first = true;

    while let Some(name) = names.next() {
        if is_slurm_v1(name) && is_first {
            return names.find_map(job_number).map(JobKey::Slurm);
        }
        if is_slurm_v2(name) {
            return names.peek().and_then(|name| job_v2(name));
        }

        in_pods |= is_kubepods(name);
        if in_pods && let Some(pod) = pod(name) {
            return Some(pod);
        }

        // systemd's slices lead to the schedulers'; other directories between them belong to other
        // programs.
        if !in_pods && !is_slice(name) && !is_kubelet(name) {
            return None;
        }
        is_first = false;
    }
    None
}

/// The job in `/proc/PID/cgroup`, from the first hierarchy that has one.
pub(crate) fn job_of_process(cgroup: &str) -> Option<JobKey> {
    let mut paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.find_map(job_of)
}

/// Slurm's own directory in a hierarchy of version 1; builds for several slurmds on a host add the
/// node.
pub(crate) fn is_slurm_v1(name: &str) -> bool {
    let node = name.strip_prefix("slurm_");
    name == "slurm" || node.is_some_and(|node| !node.is_empty())
}

/// Slurm's own directory in the hierarchy of version 2.
pub(crate) fn is_slurm_v2(name: &str) -> bool {
    name == "slurmstepd.scope" || name.ends_with("_slurmstepd.scope")
}

/// A slice below which jobs may be.
pub(crate) fn is_slice(name: &str) -> bool {
    name.ends_with(".slice") && name != "user.slice"
}

pub(crate) fn is_kubepods(name: &str) -> bool {
    name == "kubepods" || (name.contains("kubepods") && name.ends_with(".slice"))
}

/// kind and its like run a kubelet in a cgroup of its own: `/kubelet/kubepods/…`,
/// `/kubelet.slice/kubelet-kubepods.slice/…`.
pub(crate) fn is_kubelet(name: &str) -> bool {
    name == "kubelet"
}

/// `job_7`.
pub(crate) fn job_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("job_")?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok())?
}

/// A job's directory in version 2.
pub(crate) fn job_v2(name: &str) -> Option<JobKey> {
    match job_number(name) {
        Some(number) => Some(JobKey::Slurm(number)),
        None => is_sluid(name).then(|| JobKey::Sluid(name.to_owned())),
    }
}

/// `podUID`, or `kubepods-burstable-podUID.slice` in which systemd wants `_` for `-`.
pub(crate) fn pod(name: &str) -> Option<JobKey> {
    let uid = match name.strip_suffix(".slice") {
        Some(name) => name.rsplit_once("-pod")?.1,
        None => name.strip_prefix("pod")?,
    };

    let is_digit = |byte: u8| byte.is_ascii_hexdigit() || b"-_".contains(&byte);
    let is_uid = uid.len() >= 8 && uid.bytes().all(is_digit);
    is_uid.then(|| JobKey::Pod(uid.replace('_', "-")))
}

/// `s` and 13 characters of Crockford's base 32, which knows no I, L, O and U.
pub(crate) fn is_sluid(name: &str) -> bool {
    let is_digit =
        |byte: u8| byte.is_ascii_alphanumeric() && !b"ILOU".contains(&byte.to_ascii_uppercase());
    name.len() == 14 && name.starts_with('s') && name.bytes().skip(1).all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn jobs_are_found_in_every_layout() {
        let sluid = |text: &str| Some(JobKey::Sluid(text.into()));
        let pod = |text: &str| Some(JobKey::Pod(text.into()));
        for (path, job) in [
            (
                "/system.slice/slurmstepd.scope/job_123/step_batch/user/task_0",
                Some(JobKey::Slurm(123)),
            ),
            (
                "/system.slice/g01_slurmstepd.scope/job_5/step_0/slurm",
                Some(JobKey::Slurm(5)),
            ),
            (
                "/hpc.slice/hpc-jobs.slice/slurmstepd.scope/job_5",
                Some(JobKey::Slurm(5)),
            ),
            (
                "/../../system.slice/slurmstepd.scope/job_5",
                Some(JobKey::Slurm(5)),
            ),
            (
                "/slurm/uid_1000/job_42/step_0/task_0",
                Some(JobKey::Slurm(42)),
            ),
            (
                "/slurm_g01/uid_1000/job_43/step_batch",
                Some(JobKey::Slurm(43)),
            ),
            (
                "/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0",
                sluid("sEKNKTV3WPV500"),
            ),
            (
                "/system.slice/n1_slurmstepd.scope/sEKNKTV3WPV500",
                sluid("sEKNKTV3WPV500"),
            ),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_0123456789ab.slice/cri-containerd-1f.scope",
                pod("0a1b2c3d-0000-4000-8000-0123456789ab"),
            ),
            (
                "/kubepods/besteffort/pod0a1b2c3d-0000-4000-8000-0123456789ab/1f",
                pod("0a1b2c3d-0000-4000-8000-0123456789ab"),
            ),
            (
                "/kubepods/pod0a1b2c3d-0000-4000-8000-0123456789ab",
                pod("0a1b2c3d-0000-4000-8000-0123456789ab"),
            ),
            (
                "/kubelet/kubepods/burstable/pod0123456789abcdef0123456789abcdef/1f",
                pod("0123456789abcdef0123456789abcdef"),
            ),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod0a1b2c3d_0000_4000_8000_0123456789ab.slice/a",
                pod("0a1b2c3d-0000-4000-8000-0123456789ab"),
            ),
            ("/user.slice/user-1000.slice/session-1.scope", None),
            ("/user.slice/job_7/slurm", None),
            // Directories that users may create themselves.
            (
                "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7",
                None,
            ),
            ("/user.slice/slurm/uid_0/job_7", None),
            ("/system.slice/mine.service/slurm/uid_0/job_7", None),
            ("/system.slice/slurmstepd.scope/system", None),
            ("/system.slice/slurmstepd.scope/job_x", None),
            ("/system.slice/slurmstepd.scope/job_", None),
            ("/system.slice/slurmstepd.scope/job_99999999999", None),
            ("/system.slice/slurmstepd.scope/sILOUILOUILOUI", None),
            ("/system.slice/slurmstepd.scope", None),
            ("/kubepods.slice/kubepods-podx.slice", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(job_of(path), job, "{path}");
        }
    }

    #[test]
    fn any_hierarchy_may_name_the_job_of_a_process() {
        assert_eq!(
            job_of_process("9:cpuset:/\n8:devices:/slurm/uid_1/job_3/step_0\n0::/\n"),
            Some(JobKey::Slurm(3))
        );
        assert_eq!(
            job_of_process("0::/system.slice/slurmstepd.scope/job_4/step_0/user/task_0\n"),
            Some(JobKey::Slurm(4))
        );
        assert_eq!(job_of_process("0::/init.scope\n"), None);
        assert_eq!(job_of_process("nonsense"), None);
    }

    proptest! {
        #[test]
        fn any_path_is_read(path in "(/(slurm|job_|s|pod|kubepods|[a-z0-9_.-]{0,20}|\\PC{0,4})){0,6}") {
            let _ = job_of_process(&path);
            let _ = job_of(&path);
        }
    }
}
