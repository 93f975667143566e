//! Devices that answer wrongly, for ever, or not at all. Each round must end within its bound and say what is missing.

use super::agent::{
    Agent, Answers, BULK, INTEGER, Request, TEXT, Table, arcs, good, integer, response,
};
use super::{ask, device, table};
use std::time::{Duration, Instant};
use takt_probe::{DeviceConfig, DeviceReading};
use tempfile::tempdir;

/// Deadline of a round in these tests.
const DEADLINE: u64 = 2;

/// Asks a switch that answers GETBULK with `bulk` and everything else as it should.
async fn with_bulk(
    mut bulk: impl FnMut(&Request, &Table) -> Answers + Send + 'static,
) -> (DeviceReading, usize) {
    with(move |request, table| match request.kind {
        BULK => bulk(request, table),
        _ => vec![good(request, table)],
    })
    .await
}

async fn with(
    handle: impl FnMut(&Request, &Table) -> Answers + Send + 'static,
) -> (DeviceReading, usize) {
    let folder = tempdir().unwrap();
    let agent = Agent::start(table("switch.snmprec"), handle);
    let config = DeviceConfig {
        timeout_seconds: DEADLINE,
        ..device(agent.port, folder.path())
    };

    let started = Instant::now();
    let reading = ask(config).await;
    let took = started.elapsed();
    assert!(
        took < Duration::from_secs(DEADLINE + 1),
        "the round took {took:?}"
    );
    // Two series with the same labels would spoil the page for all devices.
    let mut labels: Vec<_> = reading
        .samples()
        .into_iter()
        .map(|sample| (sample.metric.name, sample.labels))
        .collect();
    let count = labels.len();
    labels.sort();
    labels.dedup();
    assert_eq!(labels.len(), count);
    (reading, agent.requests())
}

fn reasons(reading: &DeviceReading) -> Vec<(&str, &str)> {
    let problems = reading.problems.iter();
    problems
        .map(|problem| (problem.part, problem.reason))
        .collect()
}

#[tokio::test]
async fn a_silent_device_is_down_after_three_requests() {
    let (reading, requests) = with(|_, _| Vec::new()).await;
    assert!(!reading.is_up);
    assert_eq!(reasons(&reading), [("device", "no_answer")]);
    assert_eq!(requests, 3);
}

#[tokio::test]
async fn a_device_that_falls_silent_keeps_what_it_said() {
    let mut left = 6;
    let (reading, _) = with_bulk(move |request, table| {
        left -= 1;
        if left > 0 {
            vec![good(request, table)]
        } else {
            Vec::new()
        }
    })
    .await;
    assert!(reading.is_up);
    assert_eq!(reading.ports.len(), 5);
    assert_eq!(reasons(&reading), [("neighbors", "no_answer")]);
}

#[tokio::test]
async fn repeated_rows_end_their_table() {
    let (reading, requests) = with_bulk(|request, _| {
        let binds: Vec<_> = request
            .ids
            .iter()
            .map(|id| {
                let mut id = id[..id.len().min(10)].to_vec();
                id.push(7);
                (id, (INTEGER, integer(1)))
            })
            .collect();
        vec![response(request.id, 0, &binds)]
    })
    .await;
    assert!(reading.is_up);
    assert!(
        reasons(&reading).contains(&("ports", "cut")),
        "{:?}",
        reading.problems
    );
    assert!(requests < 60, "{requests}");
}

#[tokio::test]
async fn endless_tables_are_bounded_in_rows() {
    // Each answer has 300 further rows of each column.
    let (reading, requests) = with_bulk(|request, _| {
        let mut binds = Vec::new();
        for row in 1..=300 {
            for id in &request.ids {
                let base = if id.starts_with(&[1, 0]) { 12 } else { 11 };
                let mut next = id.clone();
                if next.len() < base {
                    next.push(0);
                }
                *next.last_mut().unwrap() += row;
                binds.push((next, (INTEGER, integer(6))));
            }
        }
        vec![response(request.id, 0, &binds)]
    })
    .await;
    assert!(reading.is_up);
    assert!(reading.ports.len() <= 4096);
    assert!(
        reasons(&reading).contains(&("ports", "cut")),
        "{:?}",
        reading.problems
    );
    assert!(requests < 400, "{requests}");
}

#[tokio::test]
async fn slow_endless_tables_are_bounded_in_time() {
    let (reading, _) = with_bulk(|request, _| {
        std::thread::sleep(Duration::from_millis(30));
        let mut next = request.ids[0].clone();
        next.truncate(10);
        next.push(request.ids[0].get(10).map_or(1, |last| last + 1));
        vec![response(request.id, 0, &[(next, (INTEGER, integer(1)))])]
    })
    .await;
    assert!(reading.is_up);
    assert_eq!(reasons(&reading), [("ports", "timeout")]);
}

#[tokio::test]
async fn texts_of_sixty_kilobytes_become_short_labels() {
    let (reading, _) = with_bulk(|request, table| {
        let Some(after) = table
            .range(request.ids[0].clone()..)
            .find(|(id, _)| **id != request.ids[0])
        else {
            return vec![good(request, table)];
        };
        let value = match after.1.0 {
            TEXT => (TEXT, vec![b'x'; 60_000]),
            _ => after.1.clone(),
        };
        vec![response(request.id, 0, &[(after.0.clone(), value)])]
    })
    .await;
    assert!(reading.is_up);
    assert_eq!(reading.ports.len(), 5, "{:?}", reading.problems);
    for sample in reading.samples() {
        let longest = sample.labels.iter().map(String::len).max().unwrap();
        // The index of the row tells names apart that are equal now.
        assert!(longest < 200, "{longest}");
    }
}

#[tokio::test]
async fn answers_to_other_requests_are_no_answers() {
    let (reading, _) = with(|request, table| {
        let other = Request {
            id: request.id.wrapping_add(1) & 0x7fff_ffff,
            ..request.clone()
        };
        vec![good(&other, table); 20]
    })
    .await;
    assert!(!reading.is_up);
    assert_eq!(reasons(&reading), [("device", "no_answer")]);
}

#[tokio::test]
async fn garbage_is_no_answer() {
    let (reading, _) = with(|_, _| {
        vec![
            b"\x30\x84\xff\xff\xff\xff".to_vec(),
            vec![0; 1400],
            Vec::new(),
        ]
    })
    .await;
    assert!(!reading.is_up);
    let [(part, reason)] = reasons(&reading)[..] else {
        panic!("{:?}", reading.problems)
    };
    assert_eq!(part, "device");
    assert!(["no_answer", "malformed"].contains(&reason), "{reason}");
}

#[tokio::test]
async fn values_of_wrong_types_cost_only_themselves() {
    let mut wrong = table("switch.snmprec");
    let text = |value: &str| (TEXT, value.as_bytes().to_vec());
    wrong.insert(arcs("1.3.6.1.2.1.31.1.1.1.6.1"), text("many"));
    wrong.insert(arcs("1.3.6.1.2.1.31.1.1.1.1.2"), (INTEGER, integer(5)));
    wrong.insert(
        arcs("1.3.6.1.2.1.31.1.1.1.18.1"),
        text("\u{1b}[2Jto\ngpu01"),
    );
    let folder = tempdir().unwrap();
    let device_agent = Agent::good(wrong);
    let reading = ask(device(device_agent.port, folder.path())).await;
    assert_eq!(reading.problems, []);
    let [first, second, ..] = &reading.ports[..] else {
        panic!("ports")
    };
    assert_eq!(
        (first.receive_bytes, first.transmit_bytes),
        (None, Some(7_000_000_000_000))
    );
    assert_eq!(first.alias, "[2Jto gpu01");
    assert_eq!(
        second.port, "Ethernet2 of the card",
        "ifDescr, as ifName is a number"
    );
}

#[tokio::test]
async fn a_device_that_answers_only_small_requests_is_asked_for_less() {
    // Net-SNMP's tooBig is 1. This one wants at most 5 rows, and one column at a time.
    let (reading, _) = with_bulk(|request, table| {
        if request.repetitions > 1 || request.ids.len() > 1 {
            return vec![response(request.id, 1, &[])];
        }
        vec![good(request, table)]
    })
    .await;
    assert_eq!(reading.problems, []);
    assert_eq!(reading.ports.len(), 5);
    assert_eq!(reading.ports[0].receive_bytes, Some(5_000_000_000_000));
}

#[tokio::test]
async fn a_device_that_is_silent_for_large_requests_is_asked_for_less() {
    let (reading, _) = with_bulk(|request, table| {
        let is_large = request.repetitions > 10;
        if is_large {
            Vec::new()
        } else {
            vec![good(request, table)]
        }
    })
    .await;
    assert_eq!(reading.problems, []);
    assert_eq!(reading.ports.len(), 5);
}

#[tokio::test]
async fn a_device_that_refuses_tables_is_up() {
    let (reading, requests) = with_bulk(|request, _| vec![response(request.id, 5, &[])]).await;
    assert!(reading.is_up);
    let expected = [
        ("ports", "refused"),
        ("neighbors", "refused"),
        ("sensors", "refused"),
    ];
    assert_eq!(reasons(&reading), expected);
    // Each table in each of the five sizes.
    assert_eq!(requests, 1 + 3 * 5 + 1);
}

#[tokio::test]
async fn a_dead_device_delays_no_other() {
    let folder = tempdir().unwrap();
    let dead = Agent::start(table("ups.snmprec"), |_, _| Vec::new());
    let alive = Agent::good(table("ups.snmprec"));
    let named = |name: &str, port| DeviceConfig {
        name: name.to_owned(),
        ..device(port, folder.path())
    };
    let (sender, mut readings) = tokio::sync::mpsc::channel(4);
    let devices = vec![named("dead", dead.port), named("alive", alive.port)];
    let asking = tokio::spawn(takt_probe::keep_asking(devices, sender));

    let started = Instant::now();
    let first = readings.recv().await.unwrap();
    assert_eq!((first.device.as_str(), first.is_up), ("alive", true));
    assert!(started.elapsed() < Duration::from_secs(2));
    asking.abort();
}
