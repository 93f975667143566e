//! Requests to systemd's manager.

use crate::dbus::{Connection, DbusError, Method, Value};

/// A unit, as the list has it.
#[derive(Debug, PartialEq)]
pub(super) struct Unit {
    pub name: String,
    pub is_loaded: bool,
    pub state: String,
    path: String,
}

impl Unit {
    /// Name, description, whether it is loaded, state, and more, then the path of its object.
    fn parse(value: &Value) -> Option<Self> {
        let [name, _, loaded, state, _, _, path, ..] = value.list() else {
            return None;
        };
        let text = |value: &Value| value.text().map(str::to_owned);
        Some(Self {
            name: text(name)?,
            is_loaded: loaded.text()? == "loaded",
            state: text(state)?,
            path: text(path)?,
        })
    }

    /// The part of its object's interface that is its kind's own.
    pub fn kind(&self) -> &'static str {
        const KINDS: [(&str, &str); 4] = [
            (".service", "Service"),
            (".mount", "Mount"),
            (".timer", "Timer"),
            (".socket", "Socket"),
        ];
        KINDS
            .iter()
            .find(|(suffix, _)| self.name.ends_with(suffix))
            .map_or("Unit", |(_, kind)| kind)
    }
}

pub(super) struct Manager<'a>(pub &'a mut Connection);

const DESTINATION: &str = "org.freedesktop.systemd1";
const MANAGER: Method<'static> = Method {
    destination: DESTINATION,
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    name: "ListUnits",
};

impl Manager<'_> {
    pub fn units(&mut self) -> Result<Vec<Unit>, DbusError> {
        let values = self.0.call(MANAGER, &[])?;
        Ok(values
            .first()
            .map_or(&[][..], Value::list)
            .iter()
            .filter_map(Unit::parse)
            .collect())
    }

    /// A property of the manager's own.
    pub fn text(&mut self, name: &str) -> Result<String, DbusError> {
        let value = self.0.property(Method { name, ..MANAGER })?;
        value.text().map(str::to_owned).ok_or(DbusError::Malformed)
    }

    /// A property of a unit, of one of its object's interfaces.
    pub fn property(&mut self, unit: &Unit, interface: &str, name: &str) -> Option<Value> {
        let interface = format!("{DESTINATION}.{interface}");
        self.0
            .property(Method {
                destination: DESTINATION,
                path: &unit.path,
                interface: &interface,
                name,
            })
            .ok()
    }
}

/// The number in a version such as `252.22-1~deb12u1` or `v256`.
pub(super) fn version(text: &str) -> f64 {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let Some(text) = text
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| digits(&text[*at..]) >= 3)
        .map(|at| &text[at..])
    else {
        return 0.0;
    };
    let whole = digits(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, digits);
    let length = if fraction == 0 {
        whole
    } else {
        whole + 1 + fraction
    };
    text[..length].parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let versions = ["252.22-1~deb12u1", "v256", "systemd 215.", "12", ""].map(version);
        assert_eq!(versions, [252.22, 256.0, 215.0, 0.0, 0.0]);
    }
}
