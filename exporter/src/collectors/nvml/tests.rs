use super::metrics::{FAN, UTILIZATION};
use super::*;
use std::collections::VecDeque;
use std::time::Duration;
use takt_model::exposition::{Format, write_page};

/// Answers one reading after the other.
struct Recorded(VecDeque<Result<Vec<Gpu>, NvmlFailure>>);

impl Gpus for Recorded {
    fn read(&mut self) -> Result<Vec<Gpu>, NvmlFailure> {
        self.0.pop_front().expect("one more reading")
    }
}

fn collector(readings: impl IntoIterator<Item = Result<Vec<Gpu>, NvmlFailure>>) -> Nvml {
    Nvml {
        gpus: Box::new(Recorded(readings.into_iter().collect())),
        shared: SharedGpus::default(),
        letting_go: LettingGo::default(),
        slots: PciSlots::new("/nonexistent".as_ref()),
        rest: NvmlRest::default(),
        history: GpuHistory::load(None),
        events: Events::default(),
        dcgm: None,
        lost: BTreeSet::new(),
    }
}

/// The lines of the page that hold `part`, and how the reading ended.
fn read(nvml: &mut Nvml, part: &str) -> (Vec<String>, Result<(), String>) {
    let mut samples = Samples::new();
    let mut page = String::new();
    let result = nvml
        .collect(&mut samples)
        .map_err(|error| error.to_string());
    write_page(Format::Text, [&samples], &mut page);
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(part));
    (lines.map(str::to_owned).collect(), result)
}

fn gpu(uuid: &str, reading: Result<GpuReading, UnavailableReason>) -> Gpu {
    let identity = GpuIdentity {
        uuid: uuid.into(),
        index: 0,
        minor: Some(1),
        // Each GPU has a bus of its own, from the last letter of its UUID.
        pci_bus_id: format!("00000000:{}:00.0", &uuid[uuid.len() - 1..]),
        model: "NVIDIA GeForce RTX 5090".into(),
        driver: "580.95.05".into(),
        serial: "1654620000001".into(),
    };
    Gpu { identity, reading }
}

fn well() -> Result<GpuReading, UnavailableReason> {
    Ok(GpuReading::default())
}

fn trouble(error: NvmlError) -> NvmlFailure {
    NvmlFailure {
        attempt: "begin",
        error,
    }
}

#[test]
fn unsupported_values_are_left_out() {
    let mut values = GpuValues::default();
    values.one(&UTILIZATION, Some(0.0));
    values.labelled(&FAN, ["0"], None);
    values.labelled(&FAN, ["1"], Some(0.31));
    let reading = GpuReading {
        values,
        ..GpuReading::default()
    };
    let (lines, result) = read(&mut collector([Ok(vec![gpu("GPU-a", Ok(reading))])]), "");
    assert_eq!(result, Ok(()));
    assert_eq!(
        lines,
        [
            r#"takt_gpu_up{uuid="GPU-a",reason=""} 1"#,
            r#"takt_gpu_info{uuid="GPU-a",index="0",minor="1",pci_bus_id="0000:0a:00.0",model="NVIDIA GeForce RTX 5090",driver="580.95.05",serial="1654620000001"} 1"#,
            r#"takt_gpu_utilization_ratio{uuid="GPU-a"} 0"#,
            r#"takt_gpu_fan_ratio{uuid="GPU-a",fan="1"} 0.31"#,
        ]
    );
}

#[test]
fn a_silent_gpu_has_a_reason_and_the_other_stays() {
    let both = || vec![gpu("GPU-a", well()), gpu("GPU-b", well())];

    // The readings: two GPUs, one of them lost, then hung, then gone; two failures of the driver; both again.
    let mut nvml = collector([
        Ok(both()),
        Ok(vec![
            gpu("GPU-a", Err(UnavailableReason::Lost)),
            gpu("GPU-b", well()),
        ]),
        Ok(vec![
            gpu("GPU-a", Err(UnavailableReason::Hung)),
            gpu("GPU-b", well()),
        ]),
        Ok(vec![gpu("GPU-b", well())]),
        Err(trouble(NvmlError::LibRmVersionMismatch)),
        Err(trouble(NvmlError::Timeout)),
        Ok(both()),
    ]);
    let mut up = || read(&mut nvml, "_up").0;
    let line = |uuid, reason, value| {
        format!("takt_gpu_up{{uuid=\"GPU-{uuid}\",reason=\"{reason}\"}} {value}")
    };
    assert_eq!(up(), [line("a", "", 1), line("b", "", 1)]);
    assert_eq!(up(), [line("a", "lost", 0), line("b", "", 1)]);
    assert_eq!(up(), [line("a", "hung", 0), line("b", "", 1)]);

    // A GPU that was there once stays on the page.
    assert_eq!(up(), [line("b", "", 1), line("a", "not_enumerated", 0)]);
    assert_eq!(
        up(),
        [
            line("a", "driver_mismatch", 0),
            line("b", "driver_mismatch", 0)
        ]
    );
    assert_eq!(up(), [line("a", "hung", 0), line("b", "hung", 0)]);
    assert_eq!(up(), [line("a", "", 1), line("b", "", 1)]);
}

#[test]
fn absent_hardware_is_not_reported_as_failed() {
    let end = |readings: Vec<Result<Vec<Gpu>, NvmlFailure>>| {
        let count = readings.len();
        let mut nvml = collector(readings);
        (0..count).fold(String::new(), |_, _| {
            read(&mut nvml, "").1.err().unwrap_or_default()
        })
    };
    assert_eq!(
        end(vec![Err(trouble(NvmlError::DriverNotLoaded))]),
        "nothing to collect: no NVIDIA driver"
    );
    assert_eq!(end(vec![Ok(vec![])]), "nothing to collect: no NVIDIA GPU");
    assert_eq!(end(vec![Err(trouble(NvmlError::Unknown))]), "cannot begin");
    assert_eq!(
        end(vec![Ok(vec![gpu("GPU-a", Err(UnavailableReason::Hung))])]),
        "cannot read a GPU",
        "none answers"
    );

    // A driver that was there and is gone has failed.
    let was_there = || Ok(vec![gpu("GPU-a", well())]);
    assert_eq!(
        end(vec![was_there(), Err(trouble(NvmlError::DriverNotLoaded))]),
        "cannot begin"
    );
}

#[test]
fn a_name_may_have_any_character() {
    let mut odd = gpu("GPU-a", well());
    odd.identity.model = "a \"b\" \\ c\nd".into();
    let (lines, _) = read(&mut collector([Ok(vec![odd])]), "model");
    assert!(lines[0].contains(r#"model="a \"b\" \\ c\nd""#), "{lines:?}");
}

#[test]
fn who_uses_the_gpus_is_told_to_the_jobs() {
    let process = GpuProcess {
        pid: 10,
        memory: Some(1 << 30),
        gpu_instance: None,
    };
    let reading = GpuReading {
        processes: Some(vec![process]),
        ..GpuReading::default()
    };
    let mut nvml = collector([
        Ok(vec![gpu("GPU-a", Ok(reading))]),
        Err(trouble(NvmlError::Unknown)),
    ]);
    assert_eq!(
        read(&mut nvml, "process").0,
        [r#"takt_gpu_processes{uuid="GPU-a"} 1"#]
    );
    let table = nvml.shared.table(Duration::ZERO);
    assert_eq!(
        (table.gpus[0].uuid.as_str(), table.gpus[0].minor),
        ("GPU-a", Some(1))
    );
    assert_eq!(table.gpus[0].processes, [process]);

    // After a failed reading the GPU stays in the table, and its processes are unknown.
    read(&mut nvml, "").1.unwrap_err();
    let table = nvml.shared.table(Duration::ZERO);
    assert_eq!(
        (table.gpus.len(), table.gpus[0].processes.len()),
        (1, 0),
        "who is on a GPU that is silent?"
    );
}

#[test]
fn a_sleeping_gpu_is_up_and_not_asked() {
    let sysfs = tempfile::tempdir().unwrap();
    let card = sysfs.path().join("bus/pci/devices/0000:0a:00.0");
    std::fs::create_dir_all(card.join("power")).unwrap();
    for (file, text) in [
        ("vendor", "0x10de"),
        ("class", "0x030000"),
        // `auto` lets the kernel suspend the device.
        ("power/control", "auto"),
        ("power/runtime_status", "active"),
    ] {
        std::fs::write(card.join(file), text).unwrap();
    }
    let mut nvml = collector([Ok(vec![gpu("GPU-a", well())])]);
    nvml.slots = PciSlots::new(sysfs.path());
    assert_eq!(
        read(&mut nvml, "_up").0,
        [r#"takt_gpu_up{uuid="GPU-a",reason=""} 1"#]
    );
    std::fs::write(card.join("power/runtime_status"), "suspended").unwrap();

    // The recording has one reading, so another one would panic.
    let (lines, result) = read(&mut nvml, "_up");
    assert_eq!(lines, [r#"takt_gpu_up{uuid="GPU-a",reason="asleep"} 1"#]);
    assert_eq!(result, Ok(()), "there is no second recording");
}
