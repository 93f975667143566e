//! Activity of the parts of a GPU (GPM): means over the time between two samples, ours and the one
//! before.
//!
//! Data-centre GPUs have it from Hopper on. NVML reports percent.

use super::metrics::{ACTIVITY, MIG_ACTIVITY};
use super::values::{GpuValues, NvmlQuery};
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::nvmlGpmSample_t;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PARTS: [(&str, GpmMetricId); 9] = [
    ("graphics", GpmMetricId::GraphicsUtil),
    ("sm", GpmMetricId::SmUtil),
    ("sm_occupancy", GpmMetricId::SmOccupancy),
    ("tensor", GpmMetricId::AnyTensorUtil),
    ("dram", GpmMetricId::DramBwUtil),
    ("fp64", GpmMetricId::Fp64Util),
    ("fp32", GpmMetricId::Fp32Util),
    ("fp16", GpmMetricId::Fp16Util),
    ("integer", GpmMetricId::IntegerUtil),
];

/// Samples nearer than this say too little.
const SHORTEST: Duration = Duration::from_millis(100);

/// The last samples of one GPU: of the whole, and of its parts by GPU instance (MIG).
#[derive(Default)]
pub(super) struct GpuActivity {
    samples: BTreeMap<Option<u32>, KeptSample>,
}

/// A sample that outlives the call that took it.
struct KeptSample {
    nvml: Arc<Nvml>,
    sample: nvmlGpmSample_t,
    at: Instant,
}

// SAFETY: a sample is plain memory of the library's, used by one thread at a time: the owner of the
// `KeptSample`.
unsafe impl Send for KeptSample {}

impl Drop for KeptSample {
    fn drop(&mut self) {
        // SAFETY: the sample was taken through this library and has one owner.
        drop(unsafe { GpmSample::from_handle(&self.nvml, self.sample) });
    }
}

impl GpuActivity {
    /// Adds the activity of the whole GPU since the sample before.
    pub fn read(
        &mut self,
        nvml: &Arc<Nvml>,
        device: &Device<'_>,
        ask: &mut NvmlQuery<'_>,
        values: &mut GpuValues,
    ) -> Result<(), NvmlError> {
        let sample = ask.value("GpmSampleGet", device.gpm_sample())?;
        for (part, share) in self.since(None, nvml, sample, ask)? {
            values.labelled(&ACTIVITY, [part], Some(share));
        }
        Ok(())
    }

    /// Adds the activity of one GPU instance (MIG). The caller gives its parent, its number and the
    /// UUID of one of its parts.
    pub fn read_part(
        &mut self,
        nvml: &Arc<Nvml>,
        (parent, instance, uuid): (&Device<'_>, u32, &str),
        ask: &mut NvmlQuery<'_>,
        values: &mut GpuValues,
    ) -> Result<(), NvmlError> {
        let sample = ask.value("GpmMigSampleGet", parent.gpm_mig_sample(instance))?;
        for (part, share) in self.since(Some(instance), nvml, sample, ask)? {
            let labels = [uuid.to_owned(), part.to_owned()];
            values.labelled(&MIG_ACTIVITY, labels, Some(share));
        }
        Ok(())
    }

    /// Shares of the time since the kept sample, by part of the GPU; empty without such a sample,
    /// or where it is too young. Keeps this sample in its place.
    fn since(
        &mut self,
        instance: Option<u32>,
        nvml: &Arc<Nvml>,
        sample: Option<GpmSample<'_>>,
        ask: &mut NvmlQuery<'_>,
    ) -> Result<Vec<(&'static str, f64)>, NvmlError> {
        let Some(sample) = sample else {
            return Ok(Vec::new());
        };

        // A driver that was loaded again cannot compare samples of the one before.
        let before = self.samples.get(&instance);
        let before = before.filter(|kept| Arc::ptr_eq(&kept.nvml, nvml));
        if before.is_some_and(|kept| kept.at.elapsed() < SHORTEST) {
            return Ok(Vec::new());
        }

        let mut shares = Vec::new();
        if let Some(kept) = before {
            // SAFETY: the sample stays the kept one's: it is taken out again before it would be
            // freed.
            let first = unsafe { GpmSample::from_handle(nvml, kept.sample) };
            let first = std::mem::ManuallyDrop::new(first);
            let ids = PARTS.map(|(_, id)| id);
            let metrics = gpm_metrics_get(nvml, &first, &sample, &ids);
            let metrics = ask.value("GpmMetricsGet", metrics)?;

            for ((part, _), metric) in PARTS.iter().zip(metrics.into_iter().flatten()) {
                let metric = ask.value("GpmMetricsGet", metric)?;
                if let Some(metric) = metric.filter(|metric| metric.value.is_finite()) {
                    shares.push((*part, metric.value / 100.0));
                }
            }
        }

        let kept = KeptSample {
            nvml: Arc::clone(nvml),
            sample: sample.into_handle(),
            at: Instant::now(),
        };
        self.samples.insert(instance, kept);
        Ok(shares)
    }
}
