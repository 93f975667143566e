//! Which tables a device has, by its `sysObjectID`: nobody has to know an identifier.

use crate::parts::DevicePart;
use crate::snmp::ObjectId;

/// A kind of device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeviceProfile {
    /// Name in readings and metrics.
    pub name: &'static str,
    /// Beginning of the `sysObjectID`.
    prefix: &'static str,
    /// What is read, in this order.
    pub parts: &'static [DevicePart],
}

/// The first profile whose prefix fits is used.
const PROFILES: &[DeviceProfile] = &[
    DeviceProfile {
        name: "apc-pdu",
        prefix: "1.3.6.1.4.1.318.1.3.4",
        parts: &[DevicePart::ApcPdu],
    },
    DeviceProfile {
        name: "apc-ups",
        prefix: "1.3.6.1.4.1.318",
        parts: &[DevicePart::ApcUps],
    },
    DeviceProfile {
        name: "raritan-pdu2",
        prefix: "1.3.6.1.4.1.13742.6",
        parts: &[DevicePart::RaritanPdu],
    },
    DeviceProfile {
        name: "servertech-sentry4",
        prefix: "1.3.6.1.4.1.1718.4",
        parts: &[DevicePart::SentryPdu],
    },
    // Eaton, MGE, and devices that name the standard itself.
    DeviceProfile {
        name: "ups",
        prefix: "1.3.6.1.4.1.534",
        parts: &[DevicePart::Ups],
    },
    DeviceProfile {
        name: "ups",
        prefix: "1.3.6.1.4.1.705",
        parts: &[DevicePart::Ups],
    },
    DeviceProfile {
        name: "ups",
        prefix: "1.3.6.1.2.1.33",
        parts: &[DevicePart::Ups],
    },
];

/// Any other device: the tables of standards, most of which a switch has. A table that it lacks costs one request.
const STANDARD: DeviceProfile = DeviceProfile {
    name: "standard",
    prefix: "1",
    parts: &[
        DevicePart::Ports,
        DevicePart::Neighbors,
        DevicePart::Sensors,
        DevicePart::Ups,
    ],
};

/// Returns the profile of a device.
pub(crate) fn profile_of(object_id: &ObjectId) -> &'static DeviceProfile {
    let is_below =
        |profile: &&DeviceProfile| object_id.below(&ObjectId::of(profile.prefix)).is_some();
    PROFILES.iter().find(is_below).unwrap_or(&STANDARD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_id_chooses_the_profile() {
        let name = |text: &str| profile_of(&ObjectId::parse(text).unwrap()).name;
        assert_eq!(name("1.3.6.1.4.1.318.1.3.4.6"), "apc-pdu");
        assert_eq!(name("1.3.6.1.4.1.318.1.3.27"), "apc-ups");
        assert_eq!(name("1.3.6.1.4.1.13742.6"), "raritan-pdu2");
        assert_eq!(name("1.3.6.1.4.1.1718.4"), "servertech-sentry4");
        assert_eq!(name("1.3.6.1.4.1.534.1"), "ups");
        // An Arista switch, and a number that only begins like Eaton's.
        assert_eq!(name("1.3.6.1.4.1.30065.1.3011.7050"), "standard");
        assert_eq!(name("1.3.6.1.4.1.5340"), "standard");
        assert_eq!(profile_of(&ObjectId::default()).name, "standard");
    }
}
