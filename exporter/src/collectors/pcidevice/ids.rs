//! Names of PCI devices, from the file `pci.ids`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

const PLACES: [&str; 2] = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"];

/// The names that were looked up. The file is long, and is read only for a device that was not seen
/// before.
pub(super) struct PciNames {
    file: Option<PathBuf>,
    known: HashMap<Vec<String>, [String; 5]>,
}

impl PciNames {
    /// In the given file, or where distributions put it.
    pub fn new(file: Option<&Path>) -> Self {
        let usual = || PLACES.iter().map(PathBuf::from).find(|path| path.exists());
        Self {
            file: file.map(Path::to_owned).or_else(usual),
            known: HashMap::new(),
        }
    }

    /// Names of the vendor, the device, the subsystem's vendor, the subsystem and the class, given
    /// the numbers of the class, vendor, device, subsystem's vendor and subsystem. What has no name
    /// is called by its number.
    pub fn of(&mut self, ids: &[String]) -> &[String; 5] {
        if !self.known.contains_key(ids) {
            let text = self.file.as_ref().and_then(|file| std::fs::read(file).ok());
            let text = text.unwrap_or_default();
            let names = look_up(&String::from_utf8_lossy(&text), ids);
            self.known.insert(ids.to_owned(), names);
        }
        &self.known[ids]
    }
}

fn look_up(text: &str, ids: &[String]) -> [String; 5] {
    // sysfs writes the numbers with `0x`, and the file without it.
    let number = |at: usize| ids.get(at).map_or("", |id| id.trim_start_matches("0x"));
    let [class, vendor, device, other_vendor, subsystem] = [0, 1, 2, 3, 4].map(number);

    let devices = children(text, vendor, 0);
    let subsystems = devices.and_then(|devices| children(devices.1, device, 1));
    let pair = format!("{other_vendor} {subsystem}");

    let name = |found: Option<(&str, &str)>, otherwise: &str| {
        found.map_or(otherwise, |(name, _)| name).to_owned()
    };

    // Two digits each are for the class, the subclass and the interface.
    let class_name = || {
        let base = children(text, &format!("C {}", class.get(..2)?), 0)?;
        let Some(sub) = children(base.1, class.get(2..4)?, 1) else {
            return Some(base.0);
        };
        Some(children(sub.1, class.get(4..6)?, 2).map_or(sub.0, |interface| interface.0))
    };

    let subsystem_entry = subsystems.and_then(|subsystems| children(subsystems.1, &pair, 2));
    [
        name(devices, vendor),
        name(subsystems, device),
        name(children(text, other_vendor, 0), other_vendor),
        name(subsystem_entry, subsystem),
        class_name().map_or_else(|| format!("Unknown class ({class})"), str::to_owned),
    ]
}

/// The name of the entry that is indented by `depth` tabulators and begins with `id`, and the text
/// behind it; the lines of its own there are indented deeper.
fn children<'a>(text: &'a str, id: &str, depth: usize) -> Option<(&'a str, &'a str)> {
    let mut rest = text;
    while let Some((line, behind)) = rest.split_once('\n') {
        let indent = line.bytes().take_while(|byte| *byte == b'\t').count();
        let is_comment = line.is_empty() || line.starts_with('#');
        // A line that is indented less ends the entry.
        if indent < depth && !is_comment {
            return None;
        }

        if indent == depth
            && let Some((found, name)) = line[indent..].split_once("  ")
            && found == id
        {
            return Some((name.trim(), behind));
        }

        rest = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# names\n10de  NVIDIA Corporation\n\t2b85  GB202 [GeForce RTX \
         5090]\n\t\t1043 8a11  ROG Astral\n\t2204  GA102\n1043  ASUSTeK\nC 03  Display \
         controller\n\t00  VGA compatible controller\n\t\t00  VGA controller\n";

    #[test]
    fn names_and_unnamed_entries() {
        let ids = |ids: [&str; 5]| look_up(TEXT, &ids.map(|id| format!("0x{id}")));
        assert_eq!(
            ids(["030000", "10de", "2b85", "1043", "8a11"]),
            [
                "NVIDIA Corporation",
                "GB202 [GeForce RTX 5090]",
                "ASUSTeK",
                "ROG Astral",
                "VGA controller"
            ]
        );
        assert_eq!(
            ids(["030200", "10de", "2204", "10de", "8a11"]),
            [
                "NVIDIA Corporation",
                "GA102",
                "NVIDIA Corporation",
                "8a11",
                "Display controller"
            ]
        );
        assert_eq!(
            ids(["ff0000", "abcd", "2204", "abcd", "1"])[4],
            "Unknown class (ff0000)"
        );
    }
}
