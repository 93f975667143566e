//! Sessions of users, as logind counts them.
//!
//! Source: logind, asked over D-Bus. It may be busy, so this collector has a thread.

use crate::collector::{CollectError, Collector};
use crate::dbus::{Connection, DbusError, Method, Value};
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

const MANAGER: Method<'static> = Method {
    destination: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
    name: "ListSeats",
};

pub(crate) fn new() -> Box<dyn Collector> {
    Box::new(Logind)
}

impl Collector for Logind {
    fn name(&self) -> &'static str {
        "logind"
    }

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
        sessions
            .into_iter()
            .for_each(|session| *counts.entry(session).or_default() += 1.0);
        for seat in &seats {
            for (remote, kind, class) in combinations() {
                let count = counts
                    .get(&(seat.clone(), remote, kind, class))
                    .copied()
                    .unwrap_or_default();
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
    let mut connection = Connection::system()?;
    let mut list = |name| {
        let values = connection.call(Method { name, ..MANAGER }, &[])?;
        Ok::<_, DbusError>(values.first().map(Value::list).unwrap_or_default().to_vec())
    };
    let seats = list("ListSeats")?;
    let sessions = list("ListSessions")?;
    let seats = seats
        .iter()
        .filter_map(|seat| seat.list().first()?.text().map(str::to_owned))
        .chain([String::new()]);
    let sessions = sessions
        .iter()
        .filter_map(|session| {
            // Number, user's number and name, seat, path.
            let [_, _, _, seat, path] = session.list() else {
                return None;
            };
            let mut property = |name| {
                let interface = "org.freedesktop.login1.Session";
                connection
                    .property(Method {
                        path: path.text()?,
                        interface,
                        name,
                        ..MANAGER
                    })
                    .ok()
            };
            let remote = if property("Remote")?.number()? == 1 {
                "true"
            } else {
                "false"
            };
            let kind = known(property("Type")?.text()?, &TYPES);
            Some((
                seat.text()?.to_owned(),
                remote,
                kind,
                known(property("Class")?.text()?, &CLASSES),
            ))
        })
        .collect();
    Ok((seats.collect(), sessions))
}

fn known(text: &str, known: &[&'static str]) -> &'static str {
    known.iter().find(|name| **name == text).unwrap_or(&"other")
}

fn combinations() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    REMOTE.into_iter().flat_map(|remote| {
        TYPES
            .into_iter()
            .flat_map(move |kind| CLASSES.into_iter().map(move |class| (remote, kind, class)))
    })
}
