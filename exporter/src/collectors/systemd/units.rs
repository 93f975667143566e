//! Requests to systemd's manager.

use crate::dbus::{BusConnection, BusValue, DbusError, DbusMethod};

/// A unit, as the list has it.
#[derive(Debug, PartialEq)]
pub(super) struct SystemdUnit {
    pub name: String,
    pub is_loaded: bool,
    pub state: String,
    path: String,
}

impl SystemdUnit {
    /// Name, description, whether it is loaded, state, and more, then the path of its object.
    fn parse(value: &BusValue) -> Option<Self> {
        let [name, _, loaded, state, _, _, path, ..] = value.list() else {
            return None;
        };

        let text = |value: &BusValue| value.text().map(str::to_owned);
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
        let mut kinds = KINDS.iter();
        let kind = kinds.find(|(suffix, _)| self.name.ends_with(suffix));
        kind.map_or("Unit", |(_, kind)| kind)
    }
}

pub(super) struct SystemdManager<'a>(pub &'a mut BusConnection);

const DESTINATION: &str = "org.freedesktop.systemd1";
const MANAGER: DbusMethod<'static> = DbusMethod {
    destination: DESTINATION,
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    name: "ListUnits",
};

impl SystemdManager<'_> {
    pub fn units(&mut self) -> Result<Vec<SystemdUnit>, DbusError> {
        let values = self.0.call(MANAGER, &[])?;
        let units = values.first().map_or(&[][..], BusValue::list);
        Ok(units.iter().filter_map(SystemdUnit::parse).collect())
    }

    /// A property of the manager's own.
    pub fn text(&mut self, name: &str) -> Result<String, DbusError> {
        let value = self.0.property(DbusMethod { name, ..MANAGER })?;
        value.text().map(str::to_owned).ok_or(DbusError::Malformed)
    }

    /// A property of a unit, of one of its object's interfaces.
    pub fn property(
        &mut self,
        unit: &SystemdUnit,
        interface: &str,
        name: &str,
    ) -> Option<BusValue> {
        let interface = format!("{DESTINATION}.{interface}");
        let method = DbusMethod {
            destination: DESTINATION,
            path: &unit.path,
            interface: &interface,
            name,
        };
        self.0.property(method).ok()
    }
}

/// The number in a version such as `252.22-1~deb12u1` or `v256`.
pub(super) fn version(text: &str) -> f64 {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();

    let mut places = text.char_indices().map(|(at, _)| at);
    let Some(first) = places.find(|at| digits(&text[*at..]) >= 3) else {
        return 0.0;
    };
    let text = &text[first..];

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
