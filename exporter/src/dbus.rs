//! A small D-Bus client for systemd: calls with strings as arguments over the system bus, and their
//! answers.
//!
//! It follows the D-Bus Specification. The bus is on this machine, so both sides have the same byte
//! order; an answer in the other order is rejected.

mod value;

pub(crate) use self::value::BusValue;
use self::value::{Reader, Writer};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The system bus, unless `DBUS_SYSTEM_BUS_ADDRESS` names another.
const SOCKET: &str = "/run/dbus/system_bus_socket";
/// Time limit of an answer: systemd may be busy.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer. Ten thousand units take two megabytes.
const MAX_BODY_BYTES: usize = 8 << 20;

/// Errors of the bus.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbusError {
    #[error("no answer from the system bus")]
    Io(#[from] io::Error),
    #[error("the system bus refuses the connection: {0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
    #[error("malformed answer from the system bus")]
    Malformed,
}

/// A method of an object's interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DbusMethod<'a> {
    pub destination: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub name: &'a str,
}

pub(crate) struct BusConnection {
    stream: UnixStream,
    serial: u32,
}

impl BusConnection {
    /// Connects to the system bus.
    ///
    /// # Errors
    /// When the bus is absent, refuses the user or does not answer in time.
    pub fn system() -> Result<Self, DbusError> {
        let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
        // Only sockets with a path are supported. More may follow behind a comma.
        let path = match address.strip_prefix("unix:path=") {
            Some(rest) => rest.split(',').next().unwrap_or_default(),
            None => SOCKET,
        };
        Self::open(Path::new(path))
    }

    fn open(path: &Path) -> Result<Self, DbusError> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;

        // The kernel confirms the user id to the bus.
        let user = rustix::process::getuid().as_raw().to_string();
        let user: String = user.bytes().map(|c| format!("{c:02x}")).collect();
        write!(stream, "\0AUTH EXTERNAL {user}\r\n")?;
        let answer = line(&mut stream)?;
        if !answer.starts_with("OK ") {
            return Err(DbusError::Refused(answer));
        }

        stream.write_all(b"BEGIN\r\n")?;

        let mut connection = Self { stream, serial: 0 };

        // The bus takes calls only from those who said hello.
        let bus = "org.freedesktop.DBus";
        let hello = DbusMethod {
            destination: bus,
            path: "/org/freedesktop/DBus",
            interface: bus,
            name: "Hello",
        };
        connection.call(hello, &[])?;
        Ok(connection)
    }

    /// Calls a method with strings and returns the values of its answer.
    ///
    /// # Errors
    /// When the bus does not answer in time, or the method fails.
    pub fn call(
        &mut self,
        method: DbusMethod<'_>,
        arguments: &[&str],
    ) -> Result<Vec<BusValue>, DbusError> {
        self.serial += 1;
        let request = call_message(self.serial, method, arguments);
        self.stream.write_all(&request)?;

        loop {
            let message = self.receive()?;
            // Signals, such as the name that the bus assigned.
            if message.reply_to != Some(self.serial) {
                continue;
            }

            let mut body = Reader::new(&message.body);
            let values = body.values(&message.signature);
            let values = values.ok_or(DbusError::Malformed)?;
            return if message.kind == METHOD_RETURN {
                Ok(values)
            } else {
                Err(DbusError::Failed(message.error.unwrap_or_default()))
            };
        }
    }

    /// A property of an object.
    pub fn property(&mut self, method: DbusMethod<'_>) -> Result<BusValue, DbusError> {
        let get = DbusMethod {
            interface: "org.freedesktop.DBus.Properties",
            name: "Get",
            ..method
        };
        let values = self.call(get, &[method.interface, method.name])?;
        values.into_iter().next().ok_or(DbusError::Malformed)
    }

    fn receive(&mut self) -> Result<Message, DbusError> {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head)?;

        let length =
            |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| head[at + byte])) as usize;
        let body_bytes = length(4);
        let field_bytes = length(12);
        // Checked before memory is taken for them.
        if head[0] != ENDIAN || body_bytes > MAX_BODY_BYTES || field_bytes > MAX_BODY_BYTES {
            return Err(DbusError::Malformed);
        }

        // The body begins at a multiple of eight.
        let mut fields = vec![0; field_bytes.next_multiple_of(8)];
        self.stream.read_exact(&mut fields)?;
        let mut body = vec![0; body_bytes];
        self.stream.read_exact(&mut body)?;

        Message::parse(&head, &fields, body).ok_or(DbusError::Malformed)
    }
}

#[cfg(target_endian = "little")]
const ENDIAN: u8 = b'l';
#[cfg(target_endian = "big")]
const ENDIAN: u8 = b'B';
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const VERSION: u8 = 1;
/// Byte order, kind, flags, version, length of the body, serial number, length of the fields.
const HEAD_BYTES: usize = 16;
/// Numbers of the fields in a message's header.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

fn call_message(serial: u32, method: DbusMethod<'_>, arguments: &[&str]) -> Vec<u8> {
    let mut body = Writer::default();
    for argument in arguments {
        body.text(argument);
    }

    let mut message = Writer::default();
    for byte in [ENDIAN, METHOD_CALL, 0, VERSION] {
        message.byte(byte);
    }
    message.word(body.bytes.len());
    message.word(serial as usize);

    let mut fields = Writer::default();
    let texts = [
        (PATH, 'o', method.path),
        (INTERFACE, 's', method.interface),
        (MEMBER, 's', method.name),
        (DESTINATION, 's', method.destination),
    ];
    for (number, kind, text) in texts {
        fields.field(number, kind);
        fields.text(text);
    }
    if !arguments.is_empty() {
        fields.field(SIGNATURE, 'g');
        fields.signature(&"s".repeat(arguments.len()));
    }

    // The length counts no padding.
    message.word(fields.bytes.len());
    message.bytes.extend(fields.bytes);
    message.pad(8);
    message.bytes.extend(body.bytes);
    message.bytes
}

struct Message {
    kind: u8,
    reply_to: Option<u32>,
    error: Option<String>,
    signature: String,
    body: Vec<u8>,
}

impl Message {
    fn parse(head: &[u8; HEAD_BYTES], fields: &[u8], body: Vec<u8>) -> Option<Self> {
        let mut message = Self {
            kind: head[1],
            reply_to: None,
            error: None,
            signature: String::new(),
            body,
        };

        // The list begins with its length, which is the last field of the fixed header.
        let bytes = [&head[12..], &[0; 4], fields].concat();
        let mut reader = Reader::new(&bytes);
        let BusValue::List(fields) = reader.values("a(yv)")?.pop()? else {
            return None;
        };

        for field in fields {
            let BusValue::List(field) = field else {
                return None;
            };
            match &field[..] {
                [BusValue::Number(number), value] if *number == u64::from(REPLY_SERIAL) => {
                    message.reply_to = u32::try_from(value.number()?).ok();
                }
                [BusValue::Number(number), value] if *number == u64::from(ERROR_NAME) => {
                    message.error = value.text().map(str::to_owned);
                }
                [BusValue::Number(number), value] if *number == u64::from(SIGNATURE) => {
                    message.signature = value.text()?.to_owned();
                }
                _ => {}
            }
        }
        Some(message)
    }
}

/// A line of the authentication, without its line ending.
fn line(stream: &mut UnixStream) -> Result<String, DbusError> {
    const MAX_LINE_BYTES: usize = 4096;
    let mut line = Vec::new();
    let mut byte = [0];
    // Byte by byte, so that nothing of what follows is taken.
    while line.len() < MAX_LINE_BYTES {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        }
        line.push(byte[0]);
    }
    Err(DbusError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIST: DbusMethod<'static> = DbusMethod {
        destination: "d.d",
        path: "/p",
        interface: "i.i",
        name: "List",
    };

    #[test]
    fn a_call_can_be_read_again() {
        let message = call_message(7, LIST, &["one", "two"]);
        assert_eq!(message.len() % 4, 0);
        let (head, rest) = message.split_first_chunk::<HEAD_BYTES>().unwrap();
        let field_bytes = usize::from(head[12]);
        let (fields, body) = rest.split_at(field_bytes.next_multiple_of(8));
        let parsed = Message::parse(head, fields, body.to_vec()).unwrap();
        assert_eq!(
            (parsed.kind, parsed.signature.as_str()),
            (METHOD_CALL, "ss")
        );
        let values = Reader::new(&parsed.body).values(&parsed.signature).unwrap();
        assert_eq!(
            values,
            ["one", "two"].map(|text| BusValue::Text(text.to_owned()))
        );
    }

    #[test]
    fn without_a_bus_there_is_an_error() {
        assert!(matches!(
            BusConnection::open(Path::new("/nonexistent")),
            Err(DbusError::Io(_))
        ));
    }

    proptest! {
        #[test]
        fn no_message_ends_the_reader(head: [u8; 16], fields in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Message::parse(&head, &fields, fields.clone());
        }
    }
}
