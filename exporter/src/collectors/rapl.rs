//! Energy that the CPU's packages and their parts have drawn.
//!
//! Source: `/sys/class/powercap/*/energy_uj`, which begins again at 0 behind `max_energy_range_uj`:
//! for a busy server every few minutes. So this collector has a thread, which reads often enough to
//! see every such turn, and what it publishes never turns. Only root may read the files, because
//! they reveal what other programs compute; a zone that cannot be read is left out, and harms no
//! other.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

/// Flags of the collector `rapl`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct RaplOptions {
    /// Put the zone into a label of one metric instead of into the metric's name.
    #[arg(long = "collector.rapl.enable-zone-label")]
    pub enable_zone_label: bool,
}

struct Rapl {
    class: PathBuf,
    has_zone_label: bool,
    turns: HashMap<String, WrappingCounter>,
}

const LABELS: &[&str] = &["index", "path"];
/// The zone's name is the kernel's, so its metric's is made at run time; this is how they are
/// declared.
const JOULES: Metric = Metric::counter(
    "node_rapl_joules_total",
    "Current RAPL value in joules",
    &["index", "path", "rapl_zone"],
);

pub(crate) fn new(paths: &Paths, options: &RaplOptions) -> Box<dyn Collector> {
    Box::new(Rapl {
        class: paths.sysfs.join("class/powercap"),
        has_zone_label: options.enable_zone_label,
        turns: HashMap::new(),
    })
}

impl Collector for Rapl {
    fn metrics(&self) -> &'static [Metric] {
        &[JOULES]
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let directories = device_names(&self.class, "", "no powercap")?;

        let mut names = HashMap::new();
        let mut denied = None;
        let mut read = 0;

        for directory in directories {
            let path = self.class.join(&directory);
            let Some(name) = sysfs::text(&path.join("name")) else {
                continue;
            };

            let (zone, index) = zone(&name, &mut names);
            let file = path.join("energy_uj");
            let energy = match sysfs::try_text(&file) {
                Ok(text) => text.parse::<u64>().ok(),
                Err(error) => {
                    denied = denied.or(Some((file, io::Error::from(error))));
                    None
                }
            };
            let Some(energy) = energy else { continue };
            let range = sysfs::number(&path.join("max_energy_range_uj"));

            let turns = self.turns.entry(directory).or_default();
            let joules = turns.total(energy, range) as f64 / 1e6;
            read += 1;

            let index = index.to_string();
            let path = path.to_string_lossy();
            if self.has_zone_label {
                out.push(&JOULES, &[index.as_str(), &path, &zone], joules)
            } else {
                let labels = [(LABELS[0], index.as_str()), (LABELS[1], &*path)];
                let help = format!("Current RAPL {zone} value in joules");
                out.push_foreign(&metric_name(&zone), JOULES.kind, &help, &labels, joules);
            }
        }

        match denied {
            // node_exporter, too, takes this for "nothing to collect".
            Some((_, error)) if read == 0 && error.kind() == io::ErrorKind::PermissionDenied => {
                Err(CollectError::Denied(
                    "reading RAPL energy needs CAP_DAC_READ_SEARCH",
                ))
            }
            Some((file, source)) if read == 0 => Err(CollectError::Read { path: file, source }),
            _ => Ok(()),
        }
    }
}

/// A zone's name and number: `package-0` is number 0 of `package`; names that repeat without a
/// number are counted.
fn zone(name: &str, names: &mut HashMap<String, u64>) -> (String, u64) {
    let numbered = name.split_once('-');
    let numbered = numbered.map(|(zone, number)| (zone, number.parse()));
    let (zone, index) = match numbered {
        Some((zone, Ok(number))) => (zone, number),
        _ => (name, names.get(name).copied().unwrap_or(0)),
    };
    names.insert(zone.to_owned(), index + 1);
    (zone.to_owned(), index)
}

fn metric_name(zone: &str) -> String {
    let plain = zone.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    format!("node_rapl_{plain}_joules_total")
}

/// A counter that begins again at zero behind its range.
#[derive(Debug, Default)]
struct WrappingCounter {
    last: Option<u64>,
    total: u64,
}

impl WrappingCounter {
    fn total(&mut self, now: u64, range: Option<u64>) -> u64 {
        self.total = match self.last {
            None => now,
            Some(last) if now >= last => self.total + (now - last),
            // A smaller reading means the counter went once through its range. Without a known
            // range the amount is unknown.
            Some(last) => match range.filter(|range| *range >= last) {
                Some(range) => self.total + (range - last) + now + 1,
                None => self.total + now,
            },
        };

        self.last = Some(now);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::defaults;
    use proptest::prelude::*;

    #[test]
    fn zones_have_numbers() {
        let mut names = HashMap::new();
        let mut is = |name| zone(name, &mut names);
        assert_eq!(is("package-0"), ("package".into(), 0));
        assert_eq!(is("core"), ("core".into(), 0));
        assert_eq!(is("package-1"), ("package".into(), 1));
        assert_eq!(is("core"), ("core".into(), 1));
        assert_eq!(is("package-0-die-1"), ("package-0-die-1".into(), 0));
        assert_eq!(
            metric_name("package-0-die-1"),
            "node_rapl_package_0_die_1_joules_total"
        );
    }

    #[test]
    fn a_zone_that_may_not_be_read_harms_no_other() {
        let sysfs = tempfile::tempdir().unwrap();
        for (zone, energy) in [("intel-rapl:0", "999999"), ("intel-rapl:1", "")] {
            let directory = sysfs.path().join("class/powercap").join(zone);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("name"), format!("package-{}\n", &zone[11..])).unwrap();
            std::fs::write(directory.join("max_energy_range_uj"), "1000000\n").unwrap();
            // A directory cannot be read, not even by root.
            match energy {
                "" => std::fs::create_dir(directory.join("energy_uj")).unwrap(),
                energy => std::fs::write(directory.join("energy_uj"), energy).unwrap(),
            }
        }
        let paths = Paths {
            sysfs: sysfs.path().to_owned(),
            ..defaults()
        };
        let mut rapl = new(&paths, &defaults());
        let mut read = || {
            let mut samples = Samples::new();
            rapl.collect(&mut samples).unwrap();
            let mut page = String::new();
            takt_model::exposition::write_page(
                takt_model::exposition::Format::Text,
                [&samples],
                &mut page,
            );
            page.lines()
                .last()
                .unwrap()
                .rsplit_once(' ')
                .unwrap()
                .1
                .parse::<f64>()
                .unwrap()
        };
        assert_eq!(read(), 0.999_999);
        std::fs::write(
            sysfs.path().join("class/powercap/intel-rapl:0/energy_uj"),
            "4",
        )
        .unwrap();
        assert_eq!(read(), 1.000_005, "it went through its range");
    }

    proptest! {
            #[test]
            fn what_is_published_rises_by_what_was_drawn(steps in prop::collection::vec(0_u64..=1000, 1..50)) {
                let mut turns = WrappingCounter::default();
    let mut drawn = 0;
                turns.total(0, Some(1000));
                for step in steps {
                    drawn += step;
                    prop_assert_eq!(turns.total(drawn % 1001, Some(1000)), drawn);
                }
            }
        }
}
