use super::*;
use std::net::Ipv4Addr;
use std::task::{Poll, Waker};

const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 1024,
    per_client: 256,
    head: Duration::from_secs(10),
    idle: Duration::from_secs(150),
    stall: Duration::from_secs(30),
    min_bytes_per_second: 1024,
    upload_grace: Duration::from_secs(15),
    upload: Duration::from_secs(3600),
    answer_in_memory: Duration::from_secs(600),
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
    let limits = ConnectionLimits { total, ..LIMITS };
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

    // Below 2 x 4096 files the reserve would leave too few connections, so half of the files is
    // theirs.
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

    // The fifth connection is one more than the limit.
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
    // One more than its limit, though the table has room for 768 others.
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

    // A piece that was handed over, but that the kernel has not taken.
    let unread = |connection: &Connection| {
        connection.requested();
        connection.sending();
        connection.answered();
    };
    phase(unread, LIMITS.stall, CloseReason::SendTimeout);

    let blocked = |connection: &Connection| {
        connection.requested();
        connection.writes(Poll::Pending);
        connection.answered();
    };
    phase(blocked, LIMITS.stall, CloseReason::SendTimeout);

    let slow = connections.open(ONE).unwrap();
    slow.connection.requested();
    connections.close_overdue(Instant::now() + Duration::from_secs(86_400));
    assert!(!is_closed(&slow), "an answer may take its time");
}

#[test]
fn a_head_that_comes_byte_by_byte_has_one_limit() {
    let connection = Connection::new(ONE, Instant::now());
    let began = connection.since();
    connection.received();
    connection.received();
    assert_eq!(connection.since(), began);
}

/// An upload or an answer of which the client moves `bytes`, before it stops.
fn after_bytes(
    bytes: usize,
    moves: fn(&Connection, Poll<usize>),
) -> impl Fn(u64) -> Option<CloseReason> {
    let connection = Connection::new(ONE, Instant::now());
    connection.requested();

    moves(&connection, Poll::Pending);
    moves(&connection, Poll::Ready(bytes));
    moves(&connection, Poll::Pending);

    let began = Instant::now();
    move |seconds| connection.overdue(&LIMITS, began + Duration::from_secs(seconds))
}

#[test]
fn each_byte_gives_an_upload_and_a_reader_time_but_none_may_stop() {
    let upload: fn(&Connection, Poll<usize>) = |one, bytes| {
        one.uploads(bytes, Waker::noop());
    };
    let late = Some(CloseReason::ReceiveTimeout);

    let few = after_bytes(3, upload);
    assert_eq!((few(14), few(16)), (None, late), "15 s for a small body");
    let more = after_bytes(5 << 10, upload);
    assert_eq!((more(19), more(21)), (None, late), "5 KiB are 5 s more");
    // Bytes that came early do not buy a pause beyond the limit of a stall.
    let much = after_bytes(1 << 20, upload);
    assert_eq!((much(29), much(31)), (None, late), "no byte for 30 s");

    let answer: fn(&Connection, Poll<usize>) = |one, bytes| one.writes(bytes);
    let unread = after_bytes(1 << 20, answer);
    assert_eq!(
        (unread(29), unread(31)),
        (None, Some(CloseReason::SendTimeout))
    );
}

#[test]
fn a_large_upload_has_more_time() {
    let limits = ConnectionLimits {
        upload: Duration::from_secs(20),
        ..LIMITS
    };
    let overdue = |prepare: fn(&Connection)| {
        let connection = Connection::new(ONE, Instant::now());
        connection.requested();
        prepare(&connection);
        // Fast enough for every rate, so only the total time can end it.
        connection.uploads(Poll::Ready(1 << 30), Waker::noop());
        connection.uploads(Poll::Pending, Waker::noop());
        connection.overdue(&limits, Instant::now() + Duration::from_secs(21))
    };
    assert_eq!(overdue(|_| {}), Some(CloseReason::ReceiveTimeout));
    assert_eq!(
        overdue(|connection| connection.upload_within(Duration::from_secs(30))),
        None
    );
}

#[test]
fn an_answer_in_memory_is_read_in_time() {
    let limits = ConnectionLimits {
        answer_in_memory: Duration::from_secs(20),
        ..LIMITS
    };
    let overdue = |prepare: fn(&Connection)| {
        let connection = Connection::new(ONE, Instant::now());
        connection.requested();
        prepare(&connection);
        connection.wrote(&Poll::Ready(Ok(1 << 30)));
        connection.wrote(&Poll::Pending);
        connection.overdue(&limits, Instant::now() + Duration::from_secs(21))
    };
    assert_eq!(overdue(|_| {}), None);
    assert_eq!(
        overdue(Connection::answers_from_memory),
        Some(CloseReason::SendTimeout)
    );
}

#[test]
fn waits_of_a_transfer_add_up() {
    let connection = Connection::new(ONE, Instant::now());
    connection.requested();
    let upload = |bytes| connection.uploads(bytes, Waker::noop());

    assert!(upload(Poll::Pending));
    std::thread::sleep(Duration::from_millis(20));
    assert!(upload(Poll::Ready(1)) && upload(Poll::Pending));

    // 20 ms of waiting before the byte and 11 ms after it are more than the grace; either alone is
    // less.
    let began = connection.since();
    let limits = ConnectionLimits {
        upload_grace: Duration::from_millis(30),
        ..LIMITS
    };
    let at = |millis| connection.overdue(&limits, began + Duration::from_millis(millis));
    assert_eq!(at(0), None);
    assert_eq!(at(11), Some(CloseReason::ReceiveTimeout));

    // The next request of the connection begins anew.
    connection.answered();
    connection.requested();
    assert!(upload(Poll::Pending));
    assert_eq!(at(15), None);
}

#[test]
fn the_handler_of_a_slow_upload_can_answer() {
    let connections = with_total(1024);
    let open = connections.open(ONE).unwrap();
    let connection = &open.connection;
    connection.requested();
    assert!(connection.uploads(Poll::Pending, Waker::noop()));
    connections.close_overdue(Instant::now() + LIMITS.upload_grace * 2);
    assert!(!is_closed(&open) && connection.is_upload_ended());
    assert!(
        !connection.uploads(Poll::Pending, Waker::noop()),
        "it waits no longer"
    );
    connections.close_overdue(Instant::now() + LIMITS.stall * 2);
    assert!(!is_closed(&open), "the answer may take its time");

    // A handler that does not ask ends with the connection.
    let deaf = connections.open(ONE).unwrap();
    deaf.connection.requested();
    assert!(deaf.connection.uploads(Poll::Pending, Waker::noop()));
    for _ in 0..2 {
        connections.close_overdue(Instant::now() + LIMITS.stall * 2);
    }
    assert!(is_closed(&deaf));
}

#[test]
fn a_request_with_a_place_leaves_room_for_new_connections() {
    let places = Arc::new(ClassPlaces::new("test", 4, 4));
    let connections = with_total(2);
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let open = connections.open(ONE).unwrap();
            open.connection.requested();
            let place = places.take(PlaceHolder::Address(ONE)).unwrap();
            open.connection.hold(place);
            open
        })
        .collect();

    // Four requests with places are open, twice the total; two more connections still find room.
    let waiting = [
        connections.open(OTHER).unwrap(),
        connections.open(OTHER).unwrap(),
    ];
    let new = connections.open(OTHER).unwrap();
    assert!(busy.iter().all(|one| !is_closed(one)));
    assert!(is_closed(&waiting[0]) && !is_closed(&waiting[1]) && !is_closed(&new));

    busy[0].connection.answered();
    assert_eq!(places.taken(), 3);
    drop(busy);
    assert_eq!(places.taken(), 0);
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
