//! GPUs that are lost or hung, drivers that go away, and libraries that crash.

use super::devices::by_label;
use super::*;
use std::fs;
use std::io;
use std::process;
use std::thread;

#[test]
fn a_lost_gpu_is_reported_and_the_other_stays() {
    let node = Node::new(&named(""));
    node.wait_for("both up", &(up(A, "", 1)));
    node.becomes(&named("gpu 0 lost\n"));
    node.wait_for("lost", &up(A, "lost", 0));
    assert!(node.exporter.page("").contains(&up(B, "", 1)));
    assert_eq!(
        node.series("utilization_ratio")
            .keys()
            .filter(|name| name.contains(A))
            .count(),
        0
    );
    assert_eq!(
        node.series("takt_gpu_utilization_ratio")
            .keys()
            .filter(|name| name.contains(B))
            .count(),
        1
    );
    node.becomes(&named("gpu 0 gone\n"));
    node.wait_for("gone", &up(A, "not_enumerated", 0));
    assert!(node.exporter.page("").contains(&up(B, "", 1)));
    node.becomes(&named(""));
    node.wait_for("back", &up(A, "", 1));
}

#[test]
fn a_driver_that_is_unloaded_and_loaded_again_is_survived() {
    let node = Node::new(&named(""));
    node.wait_for("up", &up(A, "", 1));
    node.becomes(&named("init 9\nfail nvmlDevice* 1\n"));
    node.wait_for("unloaded", &up(A, "driver_not_loaded", 0));
    node.becomes(&named("init 18\nfail nvmlDevice* 18\n"));
    node.wait_for("of another version", &up(A, "driver_mismatch", 0));
    assert!(
        node.exporter
            .page("")
            .contains(r#"node_scrape_collector_success{collector="nvml"} 0"#)
    );
    assert!(
        node.exporter
            .page("")
            .contains(r#"takt_exporter_collector_absent{collector="nvml"} 0"#)
    );
    node.becomes(&named(""));
    node.wait_for("loaded", &up(A, "", 1));
    assert!(
        node.exporter
            .page("")
            .contains(r#"node_scrape_collector_success{collector="nvml"} 1"#)
    );
}

/// A process that has NVML open keeps the driver from being unloaded.
#[test]
fn nvml_is_closed_on_request_and_opened_again() {
    use rustix::process::{Pid, Signal, kill_process};
    let node = Node::new(&named(""));
    node.wait_for("up", &up(A, "", 1));
    let pid = Pid::from_raw(node.exporter.pid() as i32).unwrap();
    let is_open = || {
        fs::read_to_string(format!("/proc/{}/maps", node.exporter.pid()))
            .unwrap()
            .contains("libnvml_stand_in")
    };
    assert!(is_open());
    kill_process(pid, Signal::USR1).unwrap();
    let page = node.wait_for("let go", &up(A, "let_go", 0));
    assert!(
        page.contains(&up(B, "let_go", 0)) && !page.contains("takt_gpu_utilization_ratio{"),
        "{page}"
    );
    node.exporter.wait_for("closed", |_| !is_open());
    kill_process(pid, Signal::USR2).unwrap();
    node.wait_for("taken up", &up(A, "", 1));
}

#[test]
fn without_a_driver_nothing_fails() {
    for script in ["init 9\n", "init 12\n"] {
        let node = Node::new(script);
        assert!(node.series("").is_empty());
        let page = node.exporter.page("");
        assert!(
            page.contains(r#"takt_exporter_collector_absent{collector="nvml"} 1"#),
            "{script}: {page}"
        );
    }
}

#[test]
fn a_driver_that_hangs_holds_up_no_page() {
    let node = Node::new(&named("sleep nvmlDeviceGetTemperature 30000\n"));
    for scrape in 0..50 {
        let began = Instant::now();
        let page = node.exporter.page("");
        let took = began.elapsed();
        assert!(
            took < Duration::from_millis(100),
            "scrape {scrape}: {took:?}"
        );
        assert!(page.contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
        assert!(page.contains(r#"node_scrape_collector_success{collector="filesystem"} 1"#));
    }
}

#[test]
fn a_hung_gpu_is_reported_and_the_other_keeps_its_values() {
    let node = Node::new(&named("gpu 1 temperature 50\n"));
    node.wait_for("up", &up(A, "", 1));
    node.becomes(&named(
        "gpu 0 sleep nvmlDeviceGetPowerUsage 30000\ngpu 1 temperature 51\n",
    ));
    let page = node.wait_for("hung", &up(A, "hung", 0));
    assert!(page.contains(&up(B, "", 1)));
    // The values of the other GPU are new ones.
    node.becomes(&named(
        "gpu 0 sleep nvmlDeviceGetPowerUsage 30000\ngpu 1 temperature 52\n",
    ));
    let page = node.wait_for(
        "the sibling's new temperature",
        &format!("takt_gpu_temperature_celsius{{uuid=\"{B}\",sensor=\"gpu\"}} 52\n"),
    );
    assert!(page.contains(&up(A, "hung", 0)), "{page}");
    assert!(
        !page.contains(&format!("takt_gpu_power_watts{{uuid=\"{A}\"}}")),
        "{page}"
    );
}

/// Starts an exporter that keeps state, and returns its signal when the library ends it.
fn crashes(state: &str, script: &std::path::Path) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let mut child = process::Command::new(env!("CARGO_BIN_EXE_takt-exporter"))
        .args(["--web.listen-address=127.0.0.1:0", state, &stand_in()])
        .args(["--path.kmsg=/nonexistent"])
        .env("NVML_STAND_IN_SCRIPT", script)
        .stderr(process::Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.signal();
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_library_that_crashes_ends_the_exporter_three_times_and_no_more() {
    const SEGV: i32 = 11;
    const ABRT: i32 = 6;
    let directory = TempDir::new().unwrap();
    let state = format!("--state-directory={}/state", directory.path().display());
    let script = directory.path().join("script");
    for (kind, signal) in [("segv", SEGV), ("abort", ABRT), ("segv", SEGV)] {
        fs::write(&script, named(&format!("crash nvmlDeviceGetName {kind}\n"))).unwrap();
        assert_eq!(crashes(&state, &script), Some(signal));
    }
    // The fourth start does not load the library for a while, and the page is served.
    let exporter = Running::takt(
        &[&state, &stand_in(), "--path.kmsg=/nonexistent"],
        &[("NVML_STAND_IN_SCRIPT", &script)],
    );
    for _ in 0..10 {
        let page = exporter.page("");
        assert!(page.contains("node_load1 ") && !page.contains("takt_gpu_up{"));
        assert!(page.contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
        assert!(page.contains(r#"takt_exporter_collector_absent{collector="nvml"} 0"#));
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_exporter_that_is_ended_was_not_ended_by_the_library() {
    let directory = TempDir::new().unwrap();
    let state = format!("--state-directory={}/state", directory.path().display());
    let script = directory.path().join("script");
    fs::write(&script, named("sleep * 30000\n")).unwrap();
    let start = || {
        Running::takt(
            &[&state, &stand_in(), "--path.kmsg=/nonexistent"],
            &[("NVML_STAND_IN_SCRIPT", &script)],
        )
    };
    for _ in 0..5 {
        assert_eq!(start().end(), Some(0));
    }
    fs::write(&script, named("")).unwrap();
    start().wait_for("up", |page| page.contains(&up(A, "", 1)));
}

#[test]
fn when_nvml_hangs_each_gpu_is_reported() {
    let node = Node::new(&named(""));
    node.wait_for("up", &up(A, "", 1));
    node.becomes(&named("sleep * 30000\n"));
    let page = node.wait_for("hung", &up(A, "hung", 0));
    assert!(page.contains(&up(B, "hung", 0)));
    assert!(page.contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
}

#[test]
fn a_gpu_that_is_missing_after_a_restart_is_reported() {
    let state = TempDir::new().unwrap();
    let flag = format!("--state-directory={}", state.path().display());
    let start = |rest: &str| Node::with(&named(rest), &[&flag, "--path.kmsg=/nonexistent"]);
    start("").wait_for("both up", &up(B, "", 1));
    let node = start("gpu 0 gone\n");
    let page = node.wait_for("missed", &up(A, "not_enumerated", 0));
    assert!(page.contains(&up(B, "", 1)));
    drop(node);
    // A GPU that is lost from the start has no UUID; it is identified by its PCI address.
    let node = start("gpu 1 lost\n");
    let page = node.wait_for("lost", &up(B, "lost", 0));
    assert!(
        page.contains(&up(A, "", 1)) && !page.contains("unknown-"),
        "{page}"
    );
}

#[test]
fn failures_are_counted_by_call() {
    let node = Node::new(&format!(
        "profile rtx5090\ngpu 0 uuid {A}\ngpu 0 fail nvmlDeviceGetPowerUsage 999\ngpu 0 fail \
         nvmlDeviceGetEncoderUtilization 3\n"
    ));
    let errors = by_label(&node, "call_errors_total", A);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors.iter().all(|(labels, count)| labels
            .contains(r#"call="GetPowerUsage",error="Unknown""#)
            && *count >= 1.0),
        "{errors:?}"
    );
}

#[test]
fn an_xid_is_counted_once_by_any_source() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    fs::write(&log, "").unwrap();
    let flag = format!("--path.kmsg={}", log.display());
    let base = format!("profile rtx5090\ngpu 0 uuid {A}\ngpu 0 pci 00000000:06:00.0\n");
    let node = Node::with(&base, &[&flag]);
    let count = |xid: u32, count: u32| {
        format!("takt_gpu_xid_errors_total{{uuid=\"{A}\",xid=\"{xid}\"}} {count}\n")
    };
    // The kernel log counts from the boot: an XID from long before is not the one that NVML reports
    // now.
    let write = |line: &str| {
        let seconds: f64 = fs::read_to_string("/proc/uptime")
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let mut file = fs::OpenOptions::new().append(true).open(&log).unwrap();
        io::Write::write_all(
            &mut file,
            format!("6,1,{:.0},-;{line}\n", seconds * 1e6).as_bytes(),
        )
        .unwrap();
    };
    let page = node.wait_for("there before it happens", &count(79, 0));
    assert!(page.contains(&count(13, 0)));
    // Reported by NVML only, …
    node.becomes(&format!("{base}xid 0 13\n"));
    node.wait_for("told by NVML", &count(13, 1));
    // … by the kernel only, …
    write(
        "NVRM: Xid (PCI:0000:06:00): 31, pid=7, name=python, Ch 0000000a, intr 00000000. MMU Fault",
    );
    node.wait_for("told by the kernel", &count(31, 1));
    // … and by both.
    write("NVRM: Xid (PCI:0000:06:00): 48, pid='<unknown>', name=<unknown>, DBE");
    node.becomes(&format!("{base}xid 0 13\nxid 0 48\n"));
    node.wait_for("told by the kernel", &count(48, 1));
    // NVML reports the next XID later, so all earlier ones are counted once this one is.
    node.becomes(&format!("{base}xid 0 13\nxid 0 48\nxid 0 62\n"));
    let page = node.wait_for("told by both", &count(62, 1));
    assert!(page.contains(&count(48, 1)), "{page}");
    assert!(
        page.contains(&count(13, 1)) && page.contains(&count(31, 1)),
        "{page}"
    );
}
