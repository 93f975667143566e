//! Processes on GPUs.

use super::*;
use std::process;

#[test]
fn processes_are_shown_by_user() {
    let pid = process::id();
    let node = Node::new(&named(&format!(
        "gpu 1 process {pid} 512MiB both\ngpu 1 process 4194304 1GiB compute\n"
    )));
    let counts = node.series("takt_gpu_processes");
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [0.0, 2.0]);
    node.wait_for("known to the jobs", "takt_gpu_process_without_job");
    let mut without_job = node.exporter.series("");
    without_job.retain(|name, _| name.starts_with("takt_gpu_process_without_job"));
    assert_eq!(without_job.len(), 1, "the other has ended: {without_job:?}");
    assert!(
        without_job
            .iter()
            .all(|(name, count)| name.contains(B) && *count == 1.0)
    );
    let mut memory = node.exporter.series("");
    memory.retain(|name, _| name.starts_with("takt_gpu_process_memory_used_bytes"));
    // The kernel cuts a program's name after 15 bytes.
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let (name, bytes) = memory.iter().next().unwrap();
    assert_eq!((memory.len(), *bytes), (1, f64::from(512 << 20)));
    assert!(
        name.contains(&format!("command=\"{}\"", comm.trim())),
        "{name}"
    );
}
