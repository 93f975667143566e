//! PCI addresses in one form, so that events and series of one device agree.
//!
//! The kernel writes a domain of four digits (`0000:01:00.0`), NVML one of eight
//! (`00000000:01:00.0`), and the NVIDIA driver's log lines leave out the function
//! (`PCI:0000:01:00`). Takt uses the kernel's form everywhere.

/// The label that holds a PCI address.
pub const BUS_ID: &str = "pci_bus_id";

/// The address as `/sys/bus/pci/devices` names it: domain, bus, device and function in lower-case
/// hexadecimal digits. `None` if `text` is not a PCI address.
pub fn bus_id(text: &str) -> Option<String> {
    let text = text
        .trim()
        .trim_start_matches("PCI:")
        .trim_end_matches([':', '.']);

    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    // From the end, because the domain may be missing.
    let mut parts = address
        .rsplit(':')
        .map(|part| u32::from_str_radix(part, 16).ok());

    let device = parts.next()??;
    let bus = parts.next()??;
    let domain = parts.next().unwrap_or(Some(0))?;
    let function = u32::from_str_radix(function, 16).ok()?;

    if parts.next().is_some() {
        return None;
    }

    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
}

/// Whether both texts are the same address, however they are written. Texts that are not addresses
/// are compared as they are.
pub fn is_same(left: &str, right: &str) -> bool {
    left == right || bus_id(left).is_some_and(|left| Some(left) == bus_id(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        for text in [
            "PCI:0000:06:00",
            "0000:06:00",
            "00000000:06:00.0",
            "0000:06:00.0",
            "06:00.0",
            "PCI:0000:06:00.",
        ] {
            assert_eq!(bus_id(text).as_deref(), Some("0000:06:00.0"), "{text}");
        }
        for (text, expected) in [
            ("PCI:0001:C1:1F.7", "0001:c1:1f.7"),
            ("00000000:C1:00.0", "0000:c1:00.0"),
            ("00010000:01:00.0", "10000:01:00.0"),
        ] {
            assert_eq!(bus_id(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", ":", "xyz", "1:2:3:4", "06", "0000:06:00.x"] {
            assert_eq!(bus_id(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_is_the_same_in_every_spelling() {
        assert!(is_same("00000000:01:00.0", "0000:01:00.0"));
        assert!(is_same("PCI:0000:C1:00", "0000:c1:00.0"));
        assert!(!is_same("0000:01:00.0", "0000:21:00.0"));
        assert!(!is_same("0001:01:00.0", "0000:01:00.0"));
        assert!(is_same("unknown", "unknown") && !is_same("", "0000:01:00.0"));
    }
}
