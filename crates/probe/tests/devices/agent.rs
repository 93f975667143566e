//! An SNMP v2c agent of a few lines, so that tests can let it misbehave in every way. It reads and writes BER itself.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub const INTEGER: u8 = 0x02;
pub const TEXT: u8 = 0x04;
const NULL: u8 = 0x05;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const RESPONSE: u8 = 0xa2;
const GET: u8 = 0xa0;
pub const BULK: u8 = 0xa5;
const NO_INSTANCE: u8 = 0x81;
const END: u8 = 0x82;

/// Largest message of the agent, in bytes.
const MESSAGE: usize = 1400;

/// A value as its type and content.
pub type Value = (u8, Vec<u8>);

/// What a device has, in order.
pub type Table = BTreeMap<Vec<u32>, Value>;

/// A request for values.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: i64,
    pub kind: u8,
    pub repetitions: i64,
    pub ids: Vec<Vec<u32>>,
}

/// What an agent sends for a request: no, one or more datagrams.
pub type Answers = Vec<Vec<u8>>;

type Handler = Box<dyn FnMut(&Request, &Table) -> Answers + Send>;

/// A running agent. It ends when it is dropped.
pub struct Agent {
    pub port: u16,
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts an agent that answers with `handle`.
    pub fn start(
        table: Table,
        handle: impl FnMut(&Request, &Table) -> Answers + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let port = socket.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let requests = Arc::new(AtomicUsize::new(0));
        let mut handle: Handler = Box::new(handle);

        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&requests));
        let thread = thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                counted.fetch_add(1, Ordering::Relaxed);
                let Some(request) = read_request(&buffer[..length]) else {
                    continue;
                };
                for answer in handle(&request, &table) {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        });
        Self {
            port,
            stop,
            requests,
            thread: Some(thread),
        }
    }

    /// Starts an agent that does what the standard says.
    pub fn good(table: Table) -> Self {
        Self::start(table, |request, table| vec![good(request, table)])
    }

    /// Number of datagrams that arrived.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The answer of the standard. As some switches do, it repeats the end of the view for each repetition.
pub fn good(request: &Request, table: &Table) -> Vec<u8> {
    let mut binds = Vec::new();
    if request.kind == GET {
        for id in &request.ids {
            let value = table.get(id).cloned();
            binds.push((id.clone(), value.unwrap_or((NO_INSTANCE, Vec::new()))));
        }
        return response(request.id, 0, &binds);
    }

    let mut cursors = request.ids.clone();
    let mut size = 0;
    'rows: for _ in 0..request.repetitions {
        for cursor in &mut cursors {
            let after = table.range(next_of(cursor)..).next();
            let (id, value) = match after {
                Some((id, value)) => (id.clone(), value.clone()),
                None => (cursor.clone(), (END, Vec::new())),
            };
            *cursor = id.clone();
            size += id.len() + value.1.len() + 8;
            if size > MESSAGE {
                break 'rows;
            }
            binds.push((id, value));
        }
    }
    response(request.id, 0, &binds)
}

/// The first identifier behind `id`.
fn next_of(id: &[u32]) -> Vec<u32> {
    let mut next = id.to_vec();
    next.push(0);
    next
}

/// A response with values.
pub fn response(id: i64, status: i64, binds: &[(Vec<u32>, Value)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (id, (kind, content)) in binds {
        let mut bind = tlv(OBJECT, &object(id));
        bind.extend(tlv(*kind, content));
        list.extend(tlv(SEQUENCE, &bind));
    }
    let mut pdu = tlv(INTEGER, &integer(id));
    pdu.extend(tlv(INTEGER, &integer(status)));
    pdu.extend(tlv(INTEGER, &integer(0)));
    pdu.extend(tlv(SEQUENCE, &list));

    let mut message = tlv(INTEGER, &integer(1));
    message.extend(tlv(TEXT, b"public"));
    message.extend(tlv(RESPONSE, &pdu));
    tlv(SEQUENCE, &message)
}

/// Reads a walk in the format of snmpsim.
pub fn read_table(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(row).collect()
}

fn row(line: &str) -> (Vec<u32>, Value) {
    let mut parts = line.splitn(3, '|');
    let [id, kind, value] = [(); 3].map(|()| parts.next().unwrap());
    let content = match kind {
        "4" => value.as_bytes().to_vec(),
        "4x" => hex(value),
        "6" => object(&arcs(value)),
        _ => integer(value.parse().unwrap()),
    };
    let kind: u8 = kind.trim_end_matches('x').parse().unwrap();
    (arcs(id), (kind, content))
}

pub fn arcs(text: &str) -> Vec<u32> {
    text.split('.').map(|arc| arc.parse().unwrap()).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

pub fn integer(value: i64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let mut from = 0;
    // The shortest form that keeps the sign.
    while from < 7
        && ((bytes[from] == 0 && bytes[from + 1] < 0x80)
            || (bytes[from] == 0xff && bytes[from + 1] >= 0x80))
    {
        from += 1;
    }
    bytes[from..].to_vec()
}

fn object(id: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    let first = id[0] * 40 + id.get(1).copied().unwrap_or(0);
    for arc in [first].iter().chain(id.iter().skip(2)) {
        let mut bytes = vec![(arc & 0x7f) as u8];
        let mut rest = arc >> 7;
        while rest > 0 {
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        out.extend(bytes.iter().rev());
    }
    out
}

fn tlv(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    match content.len() {
        length @ 0..=127 => out.push(length as u8),
        length => {
            let bytes = (length as u32).to_be_bytes();
            let from = bytes.iter().position(|byte| *byte > 0).unwrap();
            out.push(0x80 | (4 - from) as u8);
            out.extend(&bytes[from..]);
        }
    }
    out.extend(content);
    out
}

/// Splits off one element.
fn element<'m>(message: &mut &'m [u8]) -> Option<(u8, &'m [u8])> {
    let (kind, rest) = message.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let (digits, behind) = rest.split_at_checked(length & 0x7f)?;
        length = digits
            .iter()
            .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        rest = behind;
    }
    let (content, behind) = rest.split_at_checked(length)?;
    *message = behind;
    Some((*kind, content))
}

fn number(content: &[u8]) -> i64 {
    let sign = if content.first().is_some_and(|byte| *byte >= 0x80) {
        -1
    } else {
        0
    };
    content
        .iter()
        .fold(sign, |sum, byte| sum << 8 | i64::from(*byte))
}

fn read_request(datagram: &[u8]) -> Option<Request> {
    let mut rest = datagram;
    let (_, mut message) = element(&mut rest)?;
    let _version = element(&mut message)?;
    let _community = element(&mut message)?;
    let (kind, mut pdu) = element(&mut message)?;
    let id = number(element(&mut pdu)?.1);
    let _non_repeaters = element(&mut pdu)?;
    let repetitions = number(element(&mut pdu)?.1);
    let (_, mut list) = element(&mut pdu)?;

    let mut ids = Vec::new();
    while let Some((_, mut bind)) = element(&mut list) {
        let (_, id) = element(&mut bind)?;
        assert_eq!(element(&mut bind)?.0, NULL);
        ids.push(read_object(id));
    }
    Some(Request {
        id,
        kind,
        repetitions,
        ids,
    })
}

fn read_object(content: &[u8]) -> Vec<u32> {
    let mut arcs = Vec::new();
    let mut arc = 0;
    for byte in content {
        arc = arc << 7 | u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            arcs.push(arc);
            arc = 0;
        }
    }
    let first = arcs[0];
    let top = (first / 40).min(2);
    arcs.splice(0..1, [top, first - top * 40]);
    arcs
}
