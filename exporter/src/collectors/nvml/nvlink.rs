//! NVLinks: whether each is up, what it carried, what went wrong on it; and the fabric that
//! NVSwitches make of them.
//!
//! GPUs are asked in three ways: up to Ampere there is a field for each link, from Hopper on the
//! link is the scope of a field, and NVLink 5 (Blackwell) has other fields of that kind. Which of
//! them a GPU has, it is asked once.

use super::fields::{self, FieldValue, call, found, get, request};
use super::metrics::*;
use super::values::{GpuValue, GpuValues, NvmlQuery};
use crate::collector::flag;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;
use nvml_wrapper_sys::bindings::field_id::*;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A figure of one link.
#[derive(Debug)]
struct LinkField {
    ids: Ids,
    to: LinkValue,
    /// `type`, where the metric has one.
    kind: &'static str,
}

/// Where it goes, which says how it is read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LinkValue {
    Errors,
    Ratio,
    /// In megabytes a second.
    Speed,
    /// Bytes that all links together sent or received.
    Sum,
}

#[derive(Debug)]
enum Ids {
    /// The link is the scope.
    Scoped(u32),
    /// The fields of the links 0 and 6 of the older GPUs, whose last link is number 11.
    Numbered([u32; 2]),
}
use Ids::{Numbered, Scoped};

const OLD_LINKS: u32 = 12;

#[rustfmt::skip]
static LINK_FIELDS: [LinkField; 24] = [
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_GET_SPEED), to: LinkValue::Speed, kind: "" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY),
        to: LinkValue::Errors, kind: "replay" },
    LinkField { ids: Numbered([NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0, NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6]),
        to: LinkValue::Errors, kind: "replay" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY),
        to: LinkValue::Errors, kind: "recovery" },
    LinkField { ids: Numbered([NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L0, NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L6]),
        to: LinkValue::Errors, kind: "recovery" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS),
        to: LinkValue::Errors, kind: "recovery" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS),
        to: LinkValue::Errors, kind: "recovery_failed" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_ERROR_DL_CRC), to: LinkValue::Errors, kind: "crc" },
    LinkField { ids: Numbered([NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0, NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6]),
        to: LinkValue::Errors, kind: "crc_flit" },
    LinkField { ids: Numbered([NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L0, NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6]),
        to: LinkValue::Errors, kind: "crc_data" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS),
        to: LinkValue::Errors, kind: "malformed_packet" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS),
        to: LinkValue::Errors, kind: "buffer_overrun" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS),
        to: LinkValue::Errors, kind: "receive" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS),
        to: LinkValue::Errors, kind: "receive_remote" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS),
        to: LinkValue::Errors, kind: "receive_general" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS),
        to: LinkValue::Errors, kind: "local_integrity" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS),
        to: LinkValue::Errors, kind: "transmit_discard" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS),
        to: LinkValue::Errors, kind: "effective" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS),
        to: LinkValue::Errors, kind: "symbol" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_RAW_BER), to: LinkValue::Ratio, kind: "raw" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER),
        to: LinkValue::Ratio, kind: "effective" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER),
        to: LinkValue::Ratio, kind: "symbol" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES), to: LinkValue::Sum, kind: "tx" },
    LinkField { ids: Scoped(NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES), to: LinkValue::Sum, kind: "rx" },
];

/// The most NVLinks that NVML can speak of.
const MAX_NVLINKS: u32 = sys::NVML_NVLINK_MAX_LINKS;

/// The NVLinks of a GPU, and what it can be asked of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Nvlinks {
    count: u32,
    asked: Vec<Question>,
}

#[derive(Debug, Clone, Copy)]
struct Question {
    link: u32,
    id: u32,
    scope: u32,
    field: &'static LinkField,
}

impl Nvlinks {
    pub fn of(device: &Device<'_>, ask: &mut NvmlQuery<'_>) -> Result<Self, NvmlError> {
        let mut count = [request(NVML_FI_DEV_NVLINK_LINK_COUNT, 0)];
        let count = get(device, &mut count, ask)?;
        let count = count.and_then(|values| values.first().copied().flatten());
        let count = count.map_or(0, |count| (count.value as u32).min(MAX_NVLINKS));

        let mut asked = Vec::new();
        for link in 0..count {
            asked.extend(LINK_FIELDS.iter().filter_map(|field| field.of(link)));
        }

        if !asked.is_empty() {
            let mut requests = requests(&asked);
            get(device, &mut requests, ask)?;

            // A link that is down has no figures now; what a GPU does not have at all it refuses
            // for each.
            let answered: BTreeSet<_> = asked
                .iter()
                .zip(&requests)
                .filter(|(_, request)| !is_refused(request))
                .map(|(question, _)| question.id)
                .collect();
            asked.retain(|question| answered.contains(&question.id));
        }
        Ok(Self { count, asked })
    }
}

impl LinkField {
    /// How it is asked for one link.
    fn of(&'static self, link: u32) -> Option<Question> {
        let (id, scope) = match self.ids {
            Scoped(id) => (id, link),
            Numbered([first, _]) if link < 6 => (first + link, 0),
            Numbered([_, seventh]) if link < OLD_LINKS => (seventh + link - 6, 0),
            Numbered(_) => return None,
        };

        Some(Question {
            link,
            id,
            scope,
            field: self,
        })
    }
}

fn requests(asked: &[Question]) -> Vec<sys::nvmlFieldValue_t> {
    let requests = asked.iter();
    let requests = requests.map(|question| request(question.id, question.scope));
    requests.collect()
}

fn is_refused(field: &sys::nvmlFieldValue_t) -> bool {
    let refusals = [
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    ];

    refusals.contains(&field.nvmlReturn)
        || (found(field).is_none() && field.nvmlReturn == sys::nvmlReturn_enum_NVML_SUCCESS)
}

pub(super) fn read(
    device: &Device<'_>,
    links: &Nvlinks,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    for link in 0..links.count {
        let active = ask.value("GetNvLinkState", device.link_wrapper_for(link).is_active())?;
        values.labelled(&NVLINK_UP, [link.to_string()], active.map(flag));
    }

    if links.asked.is_empty() {
        return Ok(());
    }
    let Some(found) = get(device, &mut requests(&links.asked), ask)? else {
        return Ok(());
    };

    push(&links.asked, &found, values);
    Ok(())
}

fn push(asked: &[Question], found: &[Option<FieldValue>], values: &mut GpuValues) {
    let has_sum = values.0.iter().any(|value| value.metric == &NVLINK_BYTES);

    // If a GPU has several sources, the first one counts.
    let mut last = None;
    for (question, found) in asked.iter().zip(found) {
        let Question { link, field, .. } = question;

        let Some(found) = found else { continue };
        let source = Some((link, field.to, field.kind));
        if last == source {
            continue;
        }
        last = source;

        let (metric, value) = match field.to {
            LinkValue::Errors => (&NVLINK_ERRORS, found.value),
            LinkValue::Ratio => (&NVLINK_BER, bit_error_ratio(found.value as u64)),
            LinkValue::Speed => (&NVLINK_SPEED, found.value * 1e6),
            LinkValue::Sum => continue,
        };
        let kind = (!field.kind.is_empty()).then_some(Cow::Borrowed(field.kind));
        let mut labels = vec![Cow::Owned(link.to_string())];
        labels.extend(kind);
        values.0.push(GpuValue {
            metric,
            labels,
            value,
        });
    }

    // Other fields give these sums on some GPUs.
    if has_sum {
        return;
    }
    for direction in ["tx", "rx"] {
        let of_direction = asked.iter().zip(found);
        let of_direction = of_direction.filter(|(question, _)| is_sum(question, direction));
        let sums = of_direction.map(|(_, found)| found.map(|found| found.value));
        // The sum of some would be a counter that falls.
        let sum = sums.sum::<Option<f64>>();
        let has_any = asked.iter().any(|question| is_sum(question, direction));
        values.labelled(&NVLINK_BYTES, [direction], sum.filter(|_| has_any));
    }
}

fn is_sum(question: &Question, direction: &str) -> bool {
    question.field.to == LinkValue::Sum && question.field.kind == direction
}

/// NVML packs it: four bits of mantissa above eight of a negative exponent of ten.
fn bit_error_ratio(packed: u64) -> f64 {
    let mantissa = (packed >> sys::NVML_NVLINK_BER_MANTISSA_SHIFT)
        & u64::from(sys::NVML_NVLINK_BER_MANTISSA_WIDTH);

    let exponent =
        (packed >> sys::NVML_NVLINK_BER_EXP_SHIFT) & u64::from(sys::NVML_NVLINK_BER_EXP_WIDTH);

    mantissa as f64 / 10_f64.powi(exponent as i32)
}

/// Whether the GPU has been taken into its fabric.
pub(super) fn fabric(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    // SAFETY: a struct of numbers may be all zeros.
    let mut info: sys::nvmlGpuFabricInfo_v2_t = unsafe { std::mem::zeroed() };
    info.version = fields::version::<sys::nvmlGpuFabricInfo_v2_t>(2);

    // SAFETY: the handle is the device's; the library writes the version that the struct says,
    // which is this one.
    let code = call(
        &device.nvml().lib().nvmlDeviceGetGpuFabricInfoV,
        |function| unsafe { function(device.handle(), (&raw mut info).cast()) },
    );

    let info = ask.value("GetGpuFabricInfoV", code)?.map(|()| info);
    let has_fabric = |info: &sys::nvmlGpuFabricInfo_v2_t| {
        u32::from(info.state) != sys::NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
    };
    let Some(info) = info.filter(has_fabric) else {
        return Ok(());
    };

    let is_complete = u32::from(info.state) == sys::NVML_GPU_FABRIC_STATE_COMPLETED;
    let is_ready = is_complete && info.status == sys::nvmlReturn_enum_NVML_SUCCESS;
    values.one(&FABRIC_READY, Some(flag(is_ready)));

    let degraded = match info.healthMask & DEGRADED_BANDWIDTH {
        sys::NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE => Some(1.0),
        sys::NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE => Some(0.0),
        _ => None,
    };
    values.one(&FABRIC_DEGRADED, degraded);
    Ok(())
}

/// The bits of the fabric's health that say whether it has less bandwidth.
const DEGRADED_BANDWIDTH: u32 = 0b11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_unpacked() {
        assert_eq!(bit_error_ratio(0x0f00), 15.0);
        assert!((bit_error_ratio(3 << 8 | 12) - 3e-12).abs() < 1e-24);
        assert_eq!(bit_error_ratio(255), 0.0);
        assert!(bit_error_ratio(u64::MAX).is_finite());
    }

    #[test]
    fn links_of_older_gpus_have_fields_of_their_own() {
        let field = LINK_FIELDS
            .iter()
            .find(|field| matches!(field.ids, Numbered(_)))
            .unwrap();
        let id = |link| field.of(link).map(|question| (question.id, question.scope));
        assert_eq!(id(5), Some((NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L5, 0)));
        assert_eq!(id(6), Some((NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6, 0)));
        assert_eq!(id(11), Some((NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L11, 0)));
        assert_eq!(id(12), None);
    }

    #[test]
    fn a_sum_of_some_links_is_not_published() {
        let field = LINK_FIELDS
            .iter()
            .find(|field| field.to == LinkValue::Sum)
            .unwrap();
        let asked: Vec<_> = (0..2).filter_map(|link| field.of(link)).collect();
        let bytes =
            |values: &GpuValues| values.0.iter().map(|value| value.value).collect::<Vec<_>>();
        let found = |value| {
            Some(FieldValue {
                value,
                is_wide: true,
            })
        };
        let told = |found: [Option<FieldValue>; 2]| {
            let mut values = GpuValues::default();
            push(&asked, &found, &mut values);
            bytes(&values)
        };
        assert_eq!(told([found(3.0), found(4.0)]), [7.0]);
        assert!(told([found(3.0), None]).is_empty());
    }
}
