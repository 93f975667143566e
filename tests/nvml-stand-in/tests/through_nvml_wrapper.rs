//! The library as a program sees it: loaded at run time, through nvml-wrapper.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::Machine;
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, PerformanceState, TemperatureSensor,
    TemperatureThreshold,
};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::structs::device::FieldId;
use std::fmt;

#[test]
fn an_rtx_5090_has_its_values() {
    let machine =
        Machine::new("profile rtx5090 2\ngpu 1 utilization 97 40\ngpu 1 process 77 2GiB compute\n");
    let nvml = machine.nvml().unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.95.05");
    assert_eq!(nvml.sys_nvml_version().unwrap(), "13.580.95.05");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13_000);

    let device = nvml.device_by_index(1).unwrap();
    assert_eq!(device.name().unwrap(), "NVIDIA GeForce RTX 5090");
    assert_eq!(
        device.uuid().unwrap(),
        "GPU-00005090-0000-4000-8000-000000000001"
    );
    assert_eq!(device.index().unwrap(), 1);
    assert_eq!(device.minor_number().unwrap(), 1);
    let pci = device.pci_info().unwrap();
    assert_eq!(pci.bus_id.as_str(), "00000000:21:00.0");
    assert_eq!(pci.bus, 0x21);
    assert_eq!(pci.pci_device_id, 0x2b85_10de);
    for found in [
        nvml.device_by_uuid(device.uuid().unwrap()),
        nvml.device_by_pci_bus_id("0000:21:00.0"),
        nvml.device_by_pci_bus_id(pci.bus_id),
    ] {
        assert_eq!(found.unwrap().index().unwrap(), 1);
    }

    let memory = device.memory_info().unwrap();
    assert_eq!(memory.total, 32_607 << 20);
    assert_eq!(memory.used, 2 << 30);
    assert_eq!(memory.total, memory.used + memory.free + memory.reserved);
    let rates = device.utilization_rates().unwrap();
    assert_eq!(rates.gpu, 97);
    assert_eq!(rates.memory, 40);
    assert_eq!(device.performance_state().unwrap(), PerformanceState::One);
    assert_eq!(
        device
            .temperature_threshold(TemperatureThreshold::GpuMax)
            .unwrap(),
        90
    );
    let power = device.power_usage().unwrap();
    let limit = device.enforced_power_limit().unwrap();
    assert!(
        power > 500_000 && power <= limit && limit == 575_000,
        "{power} of {limit} mW"
    );
    assert_eq!(
        device
            .power_management_limit_constraints()
            .unwrap()
            .max_limit,
        600_000
    );
    let clock = device.clock_info(Clock::SM).unwrap();
    let max = device.max_clock_info(Clock::SM).unwrap();
    assert!(clock > 2500 && clock < max, "{clock} of {max} MHz");
    assert_eq!(device.current_pcie_link_gen().unwrap(), 5);
    assert_eq!(device.max_pcie_link_gen().unwrap(), 5);
    assert_eq!(device.current_pcie_link_width().unwrap(), 16);
    assert_eq!(device.max_pcie_link_width().unwrap(), 16);
    assert!(device.pcie_throughput(PcieUtilCounter::Receive).unwrap() > 1_000_000);
    assert_eq!(device.pcie_replay_counter().unwrap(), 0);
    assert_eq!(device.num_fans().unwrap(), 2);
    assert!(device.fan_speed(1).unwrap() > 0);
    assert_eq!(device.encoder_utilization().unwrap().utilization, 0);
    assert!(!device.gpm_support().unwrap());
}

#[test]
fn a_geforce_does_not_support_what_data_centre_gpus_do() {
    fn refused<T>(what: &str, answer: Result<T, NvmlError>)
    where
        T: fmt::Debug,
    {
        assert!(
            matches!(answer, Err(NvmlError::NotSupported)),
            "{what}: {answer:?}"
        );
    }
    let machine = Machine::new("profile rtx5090\nprofile h100\n");
    let nvml = machine.nvml().unwrap();
    let geforce = nvml.device_by_index(0).unwrap();
    let h100 = nvml.device_by_index(1).unwrap();
    let ecc = |d: &Device<'_>| d.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    refused("serial", geforce.serial());
    refused("ECC mode", geforce.is_ecc_enabled());
    refused("ECC errors", ecc(&geforce));
    refused("MIG mode", geforce.mig_mode());
    refused("NVLink", geforce.link_wrapper_for(0).is_active());
    refused("retired pages", geforce.are_pages_pending_retired());
    refused("remapped rows", field(&geforce, 142));
    refused("memory temperature", field(&geforce, 82));

    assert!(h100.serial().unwrap().starts_with("165462"));
    assert!(h100.is_ecc_enabled().unwrap().currently_enabled);
    assert_eq!(ecc(&h100).unwrap(), 0);
    assert_eq!(h100.mig_mode().unwrap().current, 0);
    assert!(h100.link_wrapper_for(17).is_active().unwrap());
    assert!(matches!(field(&h100, 142), Ok(SampleValue::U32(0))));
    assert!(matches!(field(&h100, 82), Ok(SampleValue::U32(40..100))));
    refused("fans", h100.num_fans());
}

#[test]
fn a_lost_gpu_leaves_its_sibling_readable() {
    let machine = Machine::new("profile rtx5090 2\n");
    let nvml = machine.nvml().unwrap();
    let healthy = nvml.device_by_index(0).unwrap();
    let lost = nvml.device_by_index(1).unwrap();
    assert!(lost.temperature(TemperatureSensor::Gpu).is_ok());

    machine.becomes("profile rtx5090 2\ngpu 1 lost\n");
    assert!(matches!(
        lost.temperature(TemperatureSensor::Gpu),
        Err(NvmlError::GpuLost)
    ));
    assert!(matches!(field(&lost, 83), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    assert!(healthy.temperature(TemperatureSensor::Gpu).is_ok());
    assert_eq!(nvml.device_count().unwrap(), 2);

    // After a restart the GPU is not enumerated, and the next one has its index.
    machine.becomes("profile rtx5090 3\ngpu 1 gone\n");
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert_eq!(nvml.device_by_index(1).unwrap().minor_number().unwrap(), 2);
    let uuid = "GPU-00005090-0000-4000-8000-000000000001";
    assert!(matches!(
        nvml.device_by_uuid(uuid),
        Err(NvmlError::NotFound)
    ));
}

#[test]
fn an_xid_is_delivered_once_and_then_the_wait_times_out() {
    let machine = Machine::new("profile rtx5090 2\n");
    let nvml = machine.nvml().unwrap();
    let device = nvml.device_by_index(1).unwrap();
    assert!(
        device
            .supported_event_types()
            .unwrap()
            .contains(EventTypes::CRITICAL_XID_ERROR)
    );
    let ecc = device.register_events(
        EventTypes::DOUBLE_BIT_ECC_ERROR,
        nvml.create_event_set().unwrap(),
    );
    assert!(matches!(ecc.err().unwrap().error, NvmlError::NotSupported));
    let set = nvml.create_event_set().unwrap();
    let set = device
        .register_events(EventTypes::CRITICAL_XID_ERROR, set)
        .map_err(|e| e.error)
        .unwrap();
    assert!(matches!(set.wait(30), Err(NvmlError::Timeout)));

    machine.becomes("profile rtx5090 2\nxid 0 31\nxid 1 79\n");
    let event = set.wait(1000).unwrap();
    assert!(
        matches!(event.event_data, Some(XidError::Value(79))),
        "not the other GPU's"
    );
    assert_eq!(event.device.minor_number().unwrap(), 1);
    assert!(matches!(set.wait(50), Err(NvmlError::Timeout)));

    // Repeating the line is a new event. If several XIDs came before the wait, NVML reports the
    // last one for each.
    machine.becomes("profile rtx5090 2\nxid 0 31\nxid 1 79\nxid 1 79\nxid 1 154\n");
    for _ in 0..2 {
        assert!(matches!(
            set.wait(1000).unwrap().event_data,
            Some(XidError::Value(154))
        ));
    }
    assert!(matches!(set.wait(50), Err(NvmlError::Timeout)));
}

#[test]
fn an_event_wakes_a_waiting_thread() {
    let machine = Machine::new("");
    let nvml = machine.nvml().unwrap();
    let set = nvml.create_event_set().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    let set = device
        .register_events(EventTypes::CRITICAL_XID_ERROR, set)
        .map_err(|e| e.error)
        .unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || set.wait(20_000).map(|event| event.event_data));
        thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        machine.becomes("xid 0 48\n");
        assert!(matches!(
            waiting.join().unwrap(),
            Ok(Some(XidError::Value(48)))
        ));
        assert!(begin.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn initialisation_fails_as_scripted_and_recovers() {
    let machine = Machine::new("init 9\n");
    assert!(matches!(machine.nvml(), Err(NvmlError::DriverNotLoaded)));
    machine.becomes("init 18\n");
    assert!(matches!(
        machine.nvml(),
        Err(NvmlError::LibRmVersionMismatch)
    ));
    // A driver that was loaded again counts from 0.
    machine.becomes("gpu 0 power 100\ngpu 0 energy 0\n");
    let nvml = machine.nvml().unwrap();
    let energy = nvml
        .device_by_index(0)
        .unwrap()
        .total_energy_consumption()
        .unwrap();
    assert!(energy < 10_000, "{energy} mJ");
}

#[test]
fn a_script_with_a_mistake_fails_every_call() {
    let machine = Machine::new("");
    let nvml = machine.nvml().unwrap();
    machine.becomes("gpu 0 temperature hot\n");
    assert!(matches!(nvml.device_count(), Err(NvmlError::Unknown)));
    machine.becomes("gpu 0 temperature 91\n");
    assert_eq!(
        nvml.device_by_index(0)
            .unwrap()
            .temperature(TemperatureSensor::Gpu)
            .unwrap(),
        91
    );
}

#[test]
fn calls_fail_and_hang_as_scripted() {
    let machine = Machine::new(
        "profile rtx5090 2\nfail nvmlDeviceGetPowerUsage 3\ngpu 0 sleep nvmlDeviceGetTemperature \
         400\n\
         gpu 1 fail nvmlDeviceGetFan* 4\ngpu 1 field 83 4\n",
    );
    let nvml = machine.nvml().unwrap();
    let hung = nvml.device_by_index(0).unwrap();
    let other = nvml.device_by_index(1).unwrap();
    assert!(matches!(hung.power_usage(), Err(NvmlError::NotSupported)));
    assert!(matches!(other.fan_speed(0), Err(NvmlError::NoPermission)));
    assert!(hung.fan_speed(0).is_ok());
    // One field fails; the others of the same call succeed.
    let values: Vec<_> = other
        .field_values_for(&[FieldId(83), FieldId(230)])
        .unwrap()
        .into_iter()
        .map(|field| field.unwrap().value)
        .collect();
    assert!(
        matches!(
            values[..],
            [Err(NvmlError::NoPermission), Ok(SampleValue::U32(0))]
        ),
        "{values:?}"
    );

    thread::scope(|scope| {
        let begin = Instant::now();
        let slow = scope.spawn(|| hung.temperature(TemperatureSensor::Gpu));
        // Waits until the other thread is inside its call.
        thread::sleep(Duration::from_millis(100));
        assert!(other.temperature(TemperatureSensor::Gpu).is_ok());
        assert!(
            begin.elapsed() < Duration::from_millis(300),
            "the other GPU must not wait"
        );
        assert!(slow.join().unwrap().is_ok());
        assert!(begin.elapsed() >= Duration::from_millis(400));
    });
}

#[test]
fn processes_are_listed_with_their_memory_and_use() {
    let machine = Machine::new(
        "gpu 0 utilization 80 30\ngpu 0 process 1234 512MiB compute\ngpu 0 process 99 unknown \
         graphics\n\
         gpu 0 process 4321 1GiB both 15\n",
    );
    let nvml = machine.nvml().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    let compute = device.running_compute_processes().unwrap();
    assert_eq!(
        compute.iter().map(|p| p.pid).collect::<Vec<_>>(),
        [1234, 4321]
    );
    assert_eq!(compute[0].used_gpu_memory, UsedGpuMemory::Used(512 << 20));
    assert_eq!(compute[0].gpu_instance_id, None);
    let graphics = device.running_graphics_processes().unwrap();
    assert_eq!(
        graphics.iter().map(|p| p.pid).collect::<Vec<_>>(),
        [99, 4321]
    );
    assert_eq!(graphics[0].used_gpu_memory, UsedGpuMemory::Unavailable);
    assert_eq!(device.memory_info().unwrap().used, (512 << 20) + (1 << 30));

    let samples = device.process_utilization_stats(None).unwrap();
    assert_eq!(
        samples
            .iter()
            .map(|s| (s.pid, s.sm_util))
            .collect::<Vec<_>>(),
        [(1234, 80), (99, 0), (4321, 15)]
    );
    let later = samples[0].timestamp + 60_000_000;
    assert!(matches!(
        device.process_utilization_stats(later),
        Err(NvmlError::NotFound)
    ));
    machine.becomes("");
    assert!(device.running_compute_processes().unwrap().is_empty());
    assert!(matches!(
        device.process_utilization_stats(None),
        Err(NvmlError::NotFound)
    ));
}

#[test]
fn energy_and_traffic_grow_with_time() {
    let machine = Machine::new(
        "gpu 0 power 250\ngpu 0 energy 1000\ngpu 0 utilization 50 10\ngpu 0 throttle 0x40\n",
    );
    let nvml = machine.nvml().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    let read = || {
        let u64_of = |id| match field(&device, id) {
            Ok(SampleValue::U64(value)) => value,
            other => panic!("field {id}: {other:?}"),
        };
        (
            Instant::now(),
            device.total_energy_consumption().unwrap(),
            u64_of(197),
            u64_of(252),
        )
    };
    let first = read();
    thread::sleep(Duration::from_millis(500));
    let second = read();
    let seconds = (second.0 - first.0).as_secs_f64();
    assert!(
        first.1 >= 1_000_000 && first.1 < 1_500_000,
        "{} mJ",
        first.1
    );
    let near = |what: &str, grown: u64, rate: f64| {
        let expected = rate * seconds;
        assert!(
            (grown as f64 / expected - 1.0).abs() < 0.1,
            "{what} grew by {grown}, not {expected}"
        );
    };
    near("energy in mJ", second.1 - first.1, 250e3);
    near("bytes sent", second.2 - first.2, 1e9);
    near("thermal throttling in ns", second.3 - first.3, 1e9);
}

#[test]
fn field_ids_follow_the_drivers_numbering() {
    // nvml-wrapper translates ids by the driver's version. A value under both versions proves that
    // the stand-in does too.
    for driver in ["570.86", "580.95.05"] {
        let machine = Machine::new(&format!("driver {driver}\ngpu 0 throttle 0x80\n"));
        let nvml = machine.nvml().unwrap();
        assert_eq!(nvml.sys_driver_version().unwrap(), driver);
        let device = nvml.device_by_index(0).unwrap();
        assert!(
            matches!(field(&device, 253), Ok(SampleValue::U64(1..))),
            "{driver}: {:?}",
            field(&device, 253)
        );
        assert!(
            matches!(field(&device, 256), Err(NvmlError::NotSupported)),
            "{driver}"
        );
    }
}

#[test]
fn data_centre_figures_are_scripted() {
    let machine = Machine::new(
        "profile h100\ngpu 0 ecc uncorrected aggregate 3\ngpu 0 remapped 4 1 1 0\ngpu 0 nvlink 5 \
         down\n\
         gpu 0 recovery-action 2\ngpu 0 mig on\n",
    );
    let nvml = machine.nvml().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(
        device
            .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Aggregate)
            .unwrap(),
        3
    );
    assert_eq!(
        device
            .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
            .unwrap(),
        0
    );
    let rows: Vec<_> = (142..=145)
        .map(|id| format!("{:?}", field(&device, id).unwrap()))
        .collect();
    assert_eq!(rows, ["U32(4)", "U32(1)", "U32(1)", "U32(0)"]);
    assert!(!device.link_wrapper_for(5).is_active().unwrap());
    assert!(device.link_wrapper_for(6).is_active().unwrap());
    assert!(matches!(field(&device, 230), Ok(SampleValue::U32(2))));
    assert_eq!(device.mig_mode().unwrap().current, 1);
    assert!(matches!(
        device.utilization_rates(),
        Err(NvmlError::NotSupported)
    ));
    // nvml-wrapper lacks this function, so the test calls it directly.
    let mut corrected = 9;
    let mut uncorrected = 9;
    let mut pending = 9;
    let mut failed = 9;
    // SAFETY: the pointers are valid for the call.
    let code = unsafe {
        nvml.lib().nvmlDeviceGetRemappedRows.as_ref().unwrap()(
            device.handle(),
            &raw mut corrected,
            &raw mut uncorrected,
            &raw mut pending,
            &raw mut failed,
        )
    };
    assert_eq!(code, 0);
    assert_eq!(corrected, 4);
    assert_eq!(uncorrected, 1);
    assert_eq!(pending, 1);
    assert_eq!(failed, 0);
}

#[test]
fn gpm_means_what_happened_between_two_samples() {
    let machine = Machine::new("profile h100\ngpu 0 utilization 60 10\n");
    let nvml = machine.nvml().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert!(device.gpm_support().unwrap());
    let first = device.gpm_sample().unwrap();
    thread::sleep(Duration::from_millis(200));
    let second = device.gpm_sample().unwrap();
    let metrics = [GpmMetricId::GraphicsUtil, GpmMetricId::PcieTxPerSec];
    let values: Vec<f64> = gpm_metrics_get(&nvml, &first, &second, &metrics)
        .unwrap()
        .into_iter()
        .map(|m| m.unwrap().value)
        .collect();
    assert!((values[0] - 60.0).abs() < 0.5, "{values:?}");
    assert!(
        (values[1] - 1.2e9 / f64::from(1 << 20)).abs() < 20.0,
        "{values:?}"
    );
}

fn field(device: &Device<'_>, id: u32) -> Result<SampleValue, NvmlError> {
    device.field_values_for(&[FieldId(id)])?.remove(0)?.value
}
