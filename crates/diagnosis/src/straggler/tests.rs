use super::*;
use proptest::prelude::*;

/// Eight GPUs on two nodes that work alike.
fn job() -> Vec<GpuReadings> {
    let mut readings = Readings::default();
    readings[Metric::Utilization] = Some(0.98);
    readings[Metric::Tensor] = Some(0.7);
    readings[Metric::Power] = Some(600.0);
    readings[Metric::Clock] = Some(1.98e9);
    readings[Metric::HeldDown] = Some(0.0);
    (0..8)
        .map(|index| GpuReadings {
            node: format!("g0{}", index / 4),
            uuid: format!("GPU-{index}"),
            model: "H200".to_owned(),
            windows: vec![readings; 20],
        })
        .collect()
}

/// A power brake on the fifth GPU since the twelfth window.
fn with_power_brake() -> Vec<GpuReadings> {
    let mut gpus = job();
    for (index, gpu) in gpus.iter_mut().enumerate() {
        for window in &mut gpu.windows[12..] {
            if index == 5 {
                window[Metric::Clock] = Some(1.2e9);
                window[Metric::HeldDown] = Some(1.0);
            } else {
                window[Metric::Tensor] = Some(0.42);
                window[Metric::Power] = Some(400.0);
            }
        }
    }
    gpus
}

const END: UnixTime = UnixTime(600);

fn slow(gpus: &[GpuReadings]) -> Option<SlowGpu> {
    match pace(gpus, END) {
        Pace::Slow(slow) => Some(slow),
        _ => None,
    }
}

#[test]
fn a_power_brake_is_named_with_its_time_and_what_it_costs() {
    assert_eq!(pace(&job(), END), Pace::Even);

    let found = slow(&with_power_brake()).unwrap();
    assert_eq!(found.uuid.as_deref(), Some("GPU-5"));
    assert_eq!(
        (found.node.as_str(), found.since),
        ("g01", UnixTime(12 * 30))
    );
    assert!(found.was_even_before);
    assert_eq!(found.cause, Cause::HeldDown);
    assert_eq!(found.certainty, Certainty::Certain);
    // 1 - 1.2 / 1.98 of the clock.
    assert!((found.others_wait_ratio.unwrap() - 0.394).abs() < 0.001);

    let words = Pace::Slow(found.clone()).words("GPU 1 of g01", "14:02");
    assert_eq!(
        words,
        "GPU 1 of g01 is slow since 14:02, the others wait 39 % of the time: heat, a power brake or a \
         fault of the board holds its clocks down; certain"
    );
    let clock = found
        .evidence
        .iter()
        .find(|one| one.metric == Metric::Clock)
        .unwrap();
    assert_eq!(clock.words(), "clock 1,200 MHz, of the others 1,980 MHz");
}

/// Nobody knows how a GPU did before it was measured.
#[test]
fn a_gpu_that_differs_since_it_is_measured_may_have_differed_before() {
    let mut gpus = with_power_brake();
    for window in gpus.iter_mut().flat_map(|gpu| &mut gpu.windows[..12]) {
        *window = Readings::default();
    }
    let found = slow(&gpus).unwrap();
    assert_eq!(found.since, UnixTime(12 * 30));
    assert!(!found.was_even_before);
}

#[test]
fn what_cannot_be_said_has_its_reason() {
    let why = |gpus: &[GpuReadings]| match pace(gpus, END) {
        Pace::Unknown { why } => why,
        other => panic!("{other:?}"),
    };
    assert!(why(&[]).contains("three minutes"));
    assert!(why(&job()[..3]).contains("only 3 of its GPUs"));

    let mut short = job();
    // One window less than the decision needs.
    short.iter_mut().for_each(|gpu| gpu.windows.truncate(4));
    assert!(why(&short).contains("three minutes"));

    // GPUs of another model are no peers.
    let mut mixed = job();
    mixed[3..]
        .iter_mut()
        .for_each(|gpu| gpu.model = gpu.uuid.clone());
    assert!(why(&mixed).contains("only 3"));
}

#[test]
fn all_wait_for_files_and_no_gpu_is_slow() {
    let mut gpus = job();
    for window in gpus.iter_mut().flat_map(|gpu| &mut gpu.windows) {
        // All GPUs are idle for more than half of the time, and their threads wait for files.
        window[Metric::Utilization] = Some(0.4);
        window[Metric::FileWait] = Some(0.6);
    }
    assert_eq!(
        pace(&gpus, END),
        Pace::AllWait {
            cause: Cause::Files
        }
    );
}

/// No GPU waits for a card that is held down and does nothing.
#[test]
fn a_gpu_that_does_less_is_not_what_the_others_wait_for() {
    let mut gpus = with_power_brake();
    for window in &mut gpus[5].windows {
        window[Metric::Utilization] = Some(0.3);
    }
    assert_eq!(slow(&gpus), None);
}

proptest! {
    #[test]
    fn the_order_of_gpus_and_the_names_of_nodes_do_not_matter(seed in any::<u64>()) {
        let mut gpus = with_power_brake();
        let len = gpus.len();
        // A shuffle that depends on the seed only.
        for at in (1..len).rev() {
            gpus.swap(at, (seed.rotate_left(at as u32) % (at as u64 + 1)) as usize);
        }
        for gpu in &mut gpus {
            gpu.node = format!("z{seed}-{}", gpu.node);
        }
        let found = slow(&gpus).unwrap();
        prop_assert_eq!(found.uuid.as_deref(), Some("GPU-5"));
        prop_assert_eq!(found.node, format!("z{seed}-g01"));
    }

    /// A cluster at half its clocks has no slow GPU.
    #[test]
    fn what_is_so_for_every_gpu_names_none(
        metric in proptest::sample::select(Metric::ALL.to_vec()), factor in 0.2..2.0
    ) {
        let mut gpus = job();
        for window in gpus.iter_mut().flat_map(|gpu| &mut gpu.windows[10..]) {
            window[metric] = window[metric].map(|value| value * factor);
        }
        prop_assert_eq!(slow(&gpus), None);
    }

    #[test]
    fn gaps_name_nobody(gaps in proptest::collection::vec((0..8_usize, 0..20_usize), 0..120)) {
        let mut gpus = job();
        for (gpu, window) in gaps {
            gpus[gpu].windows[window] = Readings::default();
        }
        prop_assert_eq!(slow(&gpus), None);
    }

    /// Whatever numbers come, there is an answer.
    #[test]
    fn no_number_is_too_odd(values in proptest::collection::vec(any::<f64>(), 8 * 6)) {
        let mut gpus = job();
        gpus.iter_mut().for_each(|gpu| gpu.windows.truncate(6));
        for (at, value) in values.into_iter().enumerate() {
            gpus[at / 6].windows[at % 6][Metric::ALL[at % 9]] = Some(value);
        }
        let _ = pace(&gpus, END);
    }
}
