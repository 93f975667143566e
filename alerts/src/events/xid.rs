//! The meaning of each XID and the action to take. The table is a file, so that sites can change
//! it.

use crate::yaml::Mistake;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// One XID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xid {
    /// NVIDIA's immediate action: `reset_gpu`, `restart_app`, `ignore`, …
    pub class: String,
    /// Severity: `critical`, `warning`, `info` or `user`.
    pub severity: String,
    /// Its meaning.
    pub meaning: String,
    /// The action to take.
    pub action: String,
}

/// The known XIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XidTable(BTreeMap<u32, Xid>);

const SEVERITIES: [&str; 4] = ["critical", "warning", "info", "user"];

impl XidTable {
    /// The table that Takt ships.
    pub fn shipped() -> &'static Self {
        static SHIPPED: OnceLock<XidTable> = OnceLock::new();
        SHIPPED.get_or_init(|| {
            Self(read(include_str!("xid.csv")).expect("the table we ship is read in a test"))
        })
    }

    /// The shipped table with the lines of a site's own file in place of those of the same XID.
    ///
    /// # Errors
    /// At the first line that cannot be read.
    pub fn with(own: &str) -> Result<Self, Mistake> {
        let mut table = Self::shipped().0.clone();
        table.extend(read(own)?);
        Ok(Self(table))
    }

    /// The entry of an XID. The entry for an unlisted XID recommends the vendor's support.
    pub fn get(&self, xid: u32) -> Xid {
        self.0.get(&xid).cloned().unwrap_or_else(|| Xid {
            class: "contact_support".to_owned(),
            severity: "warning".to_owned(),
            meaning: "no meaning published".to_owned(),
            action: "contact support".to_owned(),
        })
    }

    /// Whether any XID has this class.
    pub fn has_class(&self, class: &str) -> bool {
        class == "contact_support" || self.0.values().any(|xid| xid.class == class)
    }
}

/// `n` or `n-m`.
pub(super) fn numbers(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text
        .trim()
        .split_once('-')
        .unwrap_or((text.trim(), text.trim()));
    let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
    (!range.is_empty()).then_some(range)
}

fn read(text: &str) -> Result<BTreeMap<u32, Xid>, Mistake> {
    let mut table = BTreeMap::new();
    for (at, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
    {
        let wrong = |what: String| Mistake::new(at + 1, what);
        let parts: Vec<&str> = line.split(';').map(str::trim).collect();
        // Five fields, so a text cannot contain a semicolon.
        let [xids, class, severity, meaning, action] = parts[..] else {
            return Err(wrong(
                "expected `xid; class; severity; meaning; action`".to_owned(),
            ));
        };
        if !SEVERITIES.contains(&severity) {
            return Err(wrong(format!(
                "`{severity}` is none of {}",
                SEVERITIES.join(", ")
            )));
        }

        let range =
            numbers(xids).ok_or_else(|| wrong(format!("`{xids}` is neither `n` nor `n-m`")))?;

        for xid in range {
            let owned = str::to_owned;
            let known = Xid {
                class: owned(class),
                severity: owned(severity),
                meaning: owned(meaning),
                action: owned(action),
            };
            if table.insert(xid, known).is_some() {
                return Err(wrong(format!("{xid} is described twice")));
            }
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVIDIA's classes as `reference/alerts.md` lists them.
    #[test]
    fn the_shipped_table_has_nvidias_classes() {
        let classes = [
            (
                "reset_gpu",
                "46 62 64 95 109 110 119 120 136 140 143 155 156 158",
            ),
            ("restart_bm", "79"),
            (
                "restart_app",
                "8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 126-135 139",
            ),
            (
                "ignore",
                "14 37 38 43 44 63 66 67 92 93 106-108 121 137 141 152 153 157 160 161",
            ),
            ("workflow", "45 48 74 144-150"),
            ("check_power", "54"),
            ("update_software", "78"),
            ("restart_vm", "151"),
        ];
        for (class, xids) in classes {
            for xid in xids.split(' ').flat_map(|text| numbers(text).unwrap()) {
                assert_eq!(XidTable::shipped().get(xid).class, class, "XID {xid}");
            }
        }

        // The severity `critical` calls people, so these codes are named one by one.
        let paged = [
            46, 48, 54, 61, 62, 64, 74, 79, 95, 109, 119, 120, 136, 140, 143, 155, 156, 158, 167,
        ];
        for xid in paged {
            assert_eq!(
                XidTable::shipped().get(xid).severity,
                "critical",
                "XID {xid}"
            );
        }
    }

    #[test]
    fn a_site_may_differ_and_unknown_codes_ask_for_support() {
        let table = XidTable::with("63; reset_gpu; critical; row remap; reset now\n").unwrap();
        assert_eq!(table.get(63).class, "reset_gpu");
        assert_eq!(table.get(79).class, "restart_bm");
        assert_eq!(table.get(999).class, "contact_support");
    }

    #[test]
    fn mistakes_name_the_line() {
        for (text, says) in [
            ("# x\n1; a; info; m", "line 2: expected `xid; class"),
            ("x; a; info; m; a", "`x` is neither"),
            ("5-3; a; info; m; a", "`5-3` is neither"),
            ("1; a; urgent; m; a", "`urgent` is none of critical"),
            (
                "1; a; info; m; a\n1; a; info; m; a",
                "line 2: 1 is described twice",
            ),
        ] {
            assert!(
                XidTable::with(text).unwrap_err().to_string().contains(says),
                "{text}"
            );
        }
    }
}
