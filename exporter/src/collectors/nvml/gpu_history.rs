//! The GPUs that were ever here: one that does not come back after a restart is missed, not
//! forgotten.
//!
//! Kept in `gpus.tsv` of the state directory. A GPU is forgotten when another is found in its place
//! on the PCI bus; one that was taken out for good is forgotten by deleting its line while the
//! exporter does not run.

use super::{Gpu, GpuIdentity};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub(super) struct GpuHistory {
    file: Option<PathBuf>,
    /// By UUID.
    known: BTreeMap<String, GpuIdentity>,
}

const FILE: &str = "gpus.tsv";
const HEADER: &str = "uuid\tindex\tminor\tpci_bus_id\tmodel\tdriver\tserial";

impl GpuHistory {
    pub fn load(directory: Option<&Path>) -> Self {
        let file = directory.map(|directory| directory.join(FILE));
        let text = file.as_ref().map(std::fs::read_to_string);

        let known = match &text {
            Some(Ok(text)) => parse(text),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = FILE, %error, "cannot read the GPUs that were here");
                BTreeMap::new()
            }
            Some(Err(_)) | None => BTreeMap::new(),
        };
        Self { file, known }
    }

    pub fn identities(&self) -> impl Iterator<Item = &GpuIdentity> {
        self.known.values()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A GPU that cannot say who it is, is the one that was in its place and is nowhere else; or
    /// the only one missing.
    pub fn recognise(&self, gpus: &mut [Gpu]) {
        let here: Vec<_> = gpus.iter().map(|gpu| gpu.identity.uuid.clone()).collect();
        let mut missing: Vec<_> = self.known.values().collect();
        missing.retain(|identity| !here.contains(&identity.uuid));

        let unknown = gpus.iter().filter(|gpu| !gpu.identity.is_known());
        let is_single = missing.len() == 1 && unknown.count() == 1;

        for gpu in gpus.iter_mut().filter(|gpu| !gpu.identity.is_known()) {
            let mut known = missing.iter();
            let in_place = known.find(|identity| identity.index == gpu.identity.index);
            if let Some(identity) = in_place.or(missing.first().filter(|_| is_single)) {
                gpu.identity = (*identity).clone();
            }
        }
    }

    /// Remembers those that are here.
    pub fn update(&mut self, gpus: &[Gpu]) {
        let mut is_changed = false;
        let identities = gpus.iter().map(|gpu| &gpu.identity);
        for identity in identities.filter(|identity| identity.is_known()) {
            let before = self.known.len();
            let is_other = |other: &GpuIdentity| {
                other.uuid != identity.uuid && other.pci_bus_id == identity.pci_bus_id
            };
            self.known
                .retain(|_, other| identity.pci_bus_id.is_empty() || !is_other(other));
            is_changed |= before != self.known.len();

            if self.known.get(&identity.uuid) != Some(identity) {
                self.known.insert(identity.uuid.clone(), identity.clone());
                is_changed = true;
            }
        }

        if is_changed && let Err(error) = self.save() {
            tracing::warn!(file = FILE, %error, "cannot keep the GPUs that are here");
        }
    }

    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };

        let draft = file.with_extension("new");
        std::fs::write(&draft, render(&self.known))?;
        std::fs::rename(draft, file)
    }
}

fn render(known: &BTreeMap<String, GpuIdentity>) -> String {
    let mut text = format!("{HEADER}\n");
    for GpuIdentity {
        uuid,
        index,
        minor,
        pci_bus_id,
        model,
        driver,
        serial,
    } in known.values()
    {
        let minor = minor.map_or_else(String::new, |minor| minor.to_string());
        let index = index.to_string();
        let fields = [uuid, &index, &minor, pci_bus_id, model, driver, serial];
        // No name has a tab in it; if one had, a blank would do.
        let fields = fields.map(|field| field.replace(['\t', '\n'], " "));
        text += &format!("{}\n", fields.join("\t"));
    }
    text
}

/// A line that cannot be read is passed over: at worst a GPU is not missed.
fn parse(text: &str) -> BTreeMap<String, GpuIdentity> {
    let identity = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        // Files of older versions have no serial numbers.

        let (known, serial) = fields.split_at_checked(6)?;
        let [uuid, index, minor, pci_bus_id, model, driver] = *known else {
            return None;
        };

        let identity = GpuIdentity {
            uuid: uuid.to_owned(),
            index: index.parse().ok()?,
            minor: minor.parse().ok(),
            pci_bus_id: pci_bus_id.to_owned(),
            model: model.to_owned(),
            driver: driver.to_owned(),
            serial: serial.first().copied().unwrap_or_default().to_owned(),
        };

        Some((uuid.to_owned(), identity))
    };
    text.lines().filter_map(identity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::nvml::{GpuReading, UnavailableReason};
    use proptest::prelude::*;

    fn gpu(uuid: &str, index: u32, bus: &str) -> Gpu {
        let identity = GpuIdentity {
            uuid: uuid.into(),
            pci_bus_id: bus.into(),
            ..GpuIdentity::unknown(String::new(), index, "580")
        };
        Gpu {
            identity,
            reading: Ok(GpuReading::default()),
        }
    }

    fn uuids(history: &GpuHistory) -> Vec<&str> {
        history
            .identities()
            .map(|identity| identity.uuid.as_str())
            .collect()
    }

    #[test]
    fn a_restart_forgets_no_gpu_and_another_in_its_place_does() {
        let directory = tempfile::tempdir().unwrap();
        let mut history = GpuHistory::load(Some(directory.path()));
        history.update(&[
            gpu("GPU-a", 0, "0:1"),
            gpu("GPU-b", 1, "0:2"),
            gpu("unknown-2", 2, ""),
        ]);
        let mut history = GpuHistory::load(Some(directory.path()));
        assert_eq!(uuids(&history), ["GPU-a", "GPU-b"]);
        // The second cannot say who it is; it is known by its place.
        let mut gpus = [gpu("GPU-a", 0, "0:1"), gpu("unknown-1", 1, "")];
        gpus[1].reading = Err(UnavailableReason::Lost);
        history.recognise(&mut gpus);
        assert_eq!(gpus[1].identity.uuid, "GPU-b");
        // The second moved up, so place 1 is free; but only the first is missing.
        let mut gpus = [gpu("GPU-b", 0, "0:2"), gpu("unknown-1", 1, "")];
        history.recognise(&mut gpus);
        assert_eq!(gpus[1].identity.uuid, "GPU-a");
        let mut gpus = [
            gpu("GPU-b", 0, "0:2"),
            gpu("unknown-1", 1, ""),
            gpu("unknown-2", 2, ""),
        ];
        history.recognise(&mut gpus);
        assert_eq!(gpus[1].identity.uuid, "unknown-1", "one of two");
        history.update(&[gpu("GPU-c", 0, "0:1"), gpu("GPU-b", 1, "0:2")]);
        assert_eq!(
            uuids(&GpuHistory::load(Some(directory.path()))),
            ["GPU-b", "GPU-c"]
        );
    }

    #[test]
    fn without_a_directory_it_works_until_the_end() {
        let mut history = GpuHistory::load(None);
        history.update(&[gpu("GPU-a", 0, "0:1")]);
        assert_eq!(uuids(&history), ["GPU-a"]);
        history.update(&[]);
        assert_eq!(uuids(&history), ["GPU-a"]);
    }

    #[test]
    fn a_file_of_an_older_version_has_no_serial_numbers() {
        let known =
            parse("uuid\tindex\tminor\tpci_bus_id\tmodel\tdriver\nGPU-a\t0\t0\t0:1\tH100\t580\n");
        let [gpu] = &known.into_values().collect::<Vec<_>>()[..] else {
            panic!("one GPU");
        };
        assert_eq!((gpu.model.as_str(), gpu.serial.as_str()), ("H100", ""));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_any_text_is(text in "([a-z0-9]|\t|\n|\\PC){0,80}", index in any::<u32>(), minor in proptest::option::of(any::<u32>())) {
            let _ = parse(&text);
            let mut one = gpu("GPU-a", index, "00000000:41:00.0").identity;
            one.minor = minor;
            one.serial = index.to_string();
            one.model = text.replace(['\t', '\n'], " ").replace('\r', "");
            let known = BTreeMap::from([(one.uuid.clone(), one)]);
            prop_assert_eq!(parse(&render(&known)), known);
        }
    }
}
