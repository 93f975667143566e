use super::*;
use std::net::Ipv4Addr;

const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

const LIMITS: Limits = Limits {
    total: 1024,
    per_client: 256,
    head: Duration::from_secs(10),
    idle: Duration::from_secs(150),
    stall: Duration::from_secs(30),
    stall_patience: Duration::from_secs(5),
};

#[derive(Debug, Default)]
struct Counts {
    open: Mutex<usize>,
    closed: Mutex<HashMap<CloseReason, usize>>,
}

impl Meter for Counts {
    fn opened(&self, count: usize) {
        *self.open.lock().unwrap() = count;
    }

    fn closed(&self, reason: CloseReason) {
        *self.closed.lock().unwrap().entry(reason).or_insert(0) += 1;
    }
}

fn with_total(total: usize) -> Arc<Connections<Counts>> {
    let limits = Limits { total, ..LIMITS };
    Arc::new(Connections::new(limits, Counts::default()))
}

fn is_closed(open: &OpenConnection<Counts>) -> bool {
    !open.connections.lock().open.contains_key(&open.number)
}

#[test]
fn connections_leave_files_for_other_work() {
    let total = |files| LIMITS.within_files(files, 4096).total;
    assert_eq!(total(usize::MAX), 1024);
    assert_eq!(total(4096), 1024);
    assert_eq!(total(1024), 512);
    assert_eq!(total(256), 128);
    assert_eq!(LIMITS.within_files(8, 256).total, 4);
}

#[test]
fn the_longest_waiting_connection_of_the_busiest_client_closes() {
    let connections = with_total(4);
    let other = connections.open(OTHER).unwrap();
    let crowd: Vec<_> = (0..3).map(|_| connections.open(ONE).unwrap()).collect();
    crowd[0].connection.requested();
    let late = connections.open(ONE).unwrap();
    assert!(!is_closed(&other), "its client has only one");
    assert!(!is_closed(&crowd[0]), "it is being answered");
    assert!(is_closed(&crowd[1]) && !is_closed(&crowd[2]) && !is_closed(&late));
    for busy in [&crowd[2], &late] {
        busy.connection.requested();
    }
    assert!(connections.open(ONE).is_none(), "all are in use");
    drop(crowd);
    assert!(connections.open(ONE).is_some());
}

#[test]
fn one_client_cannot_have_all() {
    let connections = with_total(1024);
    let crowd: Vec<_> = (0..=LIMITS.per_client)
        .map(|_| connections.open(ONE).unwrap())
        .collect();
    assert!(is_closed(&crowd[0]) && !is_closed(&crowd[1]));
    assert_eq!(connections.count(), LIMITS.per_client);
    assert_eq!(*connections.meter().open.lock().unwrap(), LIMITS.per_client);
}

#[test]
fn each_phase_has_its_time() {
    let connections = with_total(1024);
    let phase = |prepare: fn(&Connection), limit: Duration, reason: CloseReason| {
        let closed = || {
            let closed = connections.meter().closed.lock().unwrap();
            closed.get(&reason).copied().unwrap_or(0)
        };
        let before = closed();
        let open = connections.open(ONE).unwrap();
        prepare(&open.connection);
        let now = Instant::now();
        assert_eq!(open.connection.overdue(&LIMITS, now + limit / 2), None);
        connections.close_overdue(now + limit * 2);
        assert!(is_closed(&open));
        assert_eq!(closed(), before + 1);
    };
    phase(|_| {}, LIMITS.head, CloseReason::HeaderTimeout);
    let idle = |connection: &Connection| {
        connection.requested();
        connection.sending();
        connection.answered();
        connection.sent();
    };
    phase(idle, LIMITS.idle, CloseReason::IdleTimeout);
    let unread = |connection: &Connection| {
        connection.requested();
        connection.sending();
        connection.answered();
    };
    phase(unread, LIMITS.stall, CloseReason::SendTimeout);
    let blocked = |connection: &Connection| {
        connection.requested();
        connection.is_blocked(true);
        connection.answered();
    };
    phase(blocked, LIMITS.stall, CloseReason::SendTimeout);
    let stalled = |connection: &Connection| {
        connection.requested();
        connection.awaits_body(true);
    };
    phase(stalled, LIMITS.stall, CloseReason::ReceiveTimeout);
    let slow = connections.open(ONE).unwrap();
    slow.connection.requested();
    connections.close_overdue(Instant::now() + Duration::from_secs(86_400));
    assert!(!is_closed(&slow), "an answer may take its time");
}

#[test]
fn a_head_that_comes_byte_by_byte_has_one_limit_and_an_upload_one_for_each_piece() {
    let connection = Connection::new(ONE, Instant::now());
    let began = connection.since();
    connection.received();
    connection.received();
    assert_eq!(connection.since(), began);
    connection.requested();
    connection.awaits_body(true);
    let first = connection.since();
    connection.awaits_body(false);
    connection.awaits_body(true);
    assert!(connection.since() > first);
}

#[test]
fn a_reader_gives_way_only_after_patience() {
    let connections = with_total(1);
    let reader = connections.open(ONE).unwrap();
    reader.connection.requested();
    reader.connection.sending();
    assert!(connections.open(OTHER).is_none(), "it may read on");
    connections.close_slowest_reader(Duration::from_secs(5));
    assert!(!is_closed(&reader));
    let late = Instant::now() + LIMITS.stall_patience;
    assert!(reader.connection.gives_way(&LIMITS, late));
    connections.close_slowest_reader(Duration::ZERO);
    assert!(is_closed(&reader));
}
