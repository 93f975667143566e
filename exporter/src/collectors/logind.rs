//! Sessions of users, as logind counts them.
//!
//! Source: logind, asked over D-Bus. It may be busy, so this collector has a thread.

use crate::collector::{CollectError, Collector};
use crate::dbus::{BusConnection, BusValue, DbusError, DbusMethod};
use std::collections::HashMap;
use takt_model::{Metric, Samples};

struct Logind;

const SESSIONS: Metric = Metric::gauge(
    "node_logind_sessions",
    "Number of sessions registered in logind.",
    &["seat", "remote", "type", "class"],
);
const REMOTE: [&str; 2] = ["true", "false"];
const TYPES: [&str; 7] = [
    "other",
    "unspecified",
    "tty",
    "x11",
    "wayland",
    "mir",
    "web",
];
const CLASSES: [&str; 5] = ["other", "user", "greeter", "lock-screen", "background"];
const MAX_SEATS: usize = 64;

const MANAGER: DbusMethod<'static> = DbusMethod {
    destination: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
    name: "ListSeats",
};

pub(crate) fn new() -> Box<dyn Collector> {
    Box::new(Logind)
}

impl Collector for Logind {
    fn metrics(&self) -> &'static [Metric] {
        &[SESSIONS]
    }

    fn max_series(&self) -> usize {
        MAX_SEATS * REMOTE.len() * TYPES.len() * CLASSES.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let (seats, sessions) = ask().map_err(|source| CollectError::Dbus {
            source: source.into(),
        })?;

        let mut counts = HashMap::<_, f64>::new();
        for session in sessions {
            *counts.entry(session).or_default() += 1.0;
        }

        for seat in &seats {
            for (remote, kind, class) in combinations() {
                let key = (seat.clone(), remote, kind, class);
                let count = counts.get(&key).copied().unwrap_or_default();
                out.push(&SESSIONS, &[seat.as_str(), remote, kind, class], count);
            }
        }
        Ok(())
    }
}

type Session = (String, &'static str, &'static str, &'static str);

/// The seats (the last is that of remote sessions), and each session's seat, whether it is remote,
/// type and class.
fn ask() -> Result<(Vec<String>, Vec<Session>), DbusError> {
    let mut connection = BusConnection::system()?;
    let mut list = |name| {
        let values = connection.call(DbusMethod { name, ..MANAGER }, &[])?;
        Ok::<_, DbusError>(
            values
                .first()
                .map(BusValue::list)
                .unwrap_or_default()
                .to_vec(),
        )
    };

    let seats = list("ListSeats")?;
    let sessions = list("ListSessions")?;

    let named = seats.iter();
    let named = named.filter_map(|seat| seat.list().first()?.text().map(str::to_owned));
    let mut found = Vec::new();
    for session in &sessions {
        found.extend(read_session(&mut connection, session));
    }
    Ok((named.chain([String::new()]).collect(), found))
}

/// One session of the list; `None` if it has ended since.
fn read_session(connection: &mut BusConnection, session: &BusValue) -> Option<Session> {
    // Number, user's number and name, seat, path.
    let [_, _, _, seat, path] = session.list() else {
        return None;
    };
    let path = path.text()?;
    let mut property = |name| {
        let method = DbusMethod {
            path,
            interface: "org.freedesktop.login1.Session",
            name,
            ..MANAGER
        };
        connection.property(method).ok()
    };

    let remote = if property("Remote")?.number()? == 1 {
        "true"
    } else {
        "false"
    };
    let kind = known(property("Type")?.text()?, &TYPES);
    let seat = seat.text()?.to_owned();
    let class = known(property("Class")?.text()?, &CLASSES);
    Some((seat, remote, kind, class))
}

fn known(text: &str, known: &[&'static str]) -> &'static str {
    known.iter().find(|name| **name == text).unwrap_or(&"other")
}

fn combinations() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let kinds = REMOTE
        .into_iter()
        .flat_map(|remote| TYPES.into_iter().map(move |kind| (remote, kind)));
    kinds.flat_map(|(remote, kind)| CLASSES.into_iter().map(move |class| (remote, kind, class)))
}
