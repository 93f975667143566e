//! Values read from a GPU, and their conversion from NVML's answers.

use nvml_wrapper::error::NvmlError;
use std::borrow::Cow;
use std::collections::BTreeMap;
use takt_model::{Metric, Samples};

/// A value of one GPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GpuValue {
    pub metric: &'static Metric,
    /// The labels behind `uuid`.
    pub labels: Vec<Cow<'static, str>>,
    pub value: f64,
}

/// The values of one GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct GpuValues(pub Vec<GpuValue>);

impl GpuValues {
    /// Adds a value with no label but the UUID, if there is one.
    pub fn one(&mut self, metric: &'static Metric, value: Option<f64>) {
        self.labelled::<&'static str, 0>(metric, [], value);
    }

    /// Adds a value, if there is one.
    pub fn labelled<L: Into<Cow<'static, str>>, const N: usize>(
        &mut self,
        metric: &'static Metric,
        labels: [L; N],
        value: Option<f64>,
    ) {
        if let Some(value) = value {
            self.0.push(GpuValue {
                metric,
                labels: labels.map(Into::into).to_vec(),
                value,
            });
        }
    }

    /// The same with labels from a table.
    pub fn tabled(
        &mut self,
        metric: &'static Metric,
        labels: &'static [&'static str],
        value: Option<f64>,
    ) {
        if let Some(value) = value {
            self.0.push(GpuValue {
                metric,
                labels: labels.iter().map(|label| Cow::Borrowed(*label)).collect(),
                value,
            });
        }
    }

    /// The value with no label but the UUID.
    pub fn get(&self, metric: &'static Metric) -> Option<f64> {
        let mut values = self.0.iter();
        let found = values.find(|value| value.metric == metric && value.labels.is_empty())?;
        Some(found.value)
    }

    pub fn push(&self, uuid: &str, out: &mut Samples) {
        for GpuValue {
            metric,
            labels,
            value,
        } in &self.0
        {
            let mut all = Vec::with_capacity(1 + labels.len());
            all.push(uuid);
            all.extend(labels.iter().map(AsRef::as_ref));
            out.push(metric, &all, *value);
        }
    }
}

/// Calls that failed, by call and error.
pub(super) type CallErrors = BTreeMap<(&'static str, String), u64>;

/// Takes NVML's answers: an absent value is absent, and a failure is counted.
pub(super) struct NvmlQuery<'e> {
    pub errors: &'e mut CallErrors,
    /// Whether the driver has the newer numbers of the fields.
    pub is_renumbered: bool,
}

impl NvmlQuery<'_> {
    /// `None` for what the GPU, the driver or our permissions do not allow, and for what fails just
    /// now: no value is ever made up. An error remains only when it is useless to ask this GPU
    /// further.
    pub fn value<T>(
        &mut self,
        call: &'static str,
        result: Result<T, NvmlError>,
    ) -> Result<Option<T>, NvmlError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if ends_session(&error) => Err(error),
            Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(error),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(None),
            Err(error) => {
                // Their debug form is NVML's word for them; what else they carry is cut off.
                let word = format!("{error:?}");
                let word = word.split(['(', ' ', '{']).next().unwrap_or_default();
                *self.errors.entry((call, word.to_owned())).or_insert(0) += 1;
                tracing::debug!(call, %error, "no value");
                Ok(None)
            }
        }
    }
}

/// The driver was unloaded or replaced under us.
pub(super) fn ends_session(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_and_unsupported_values_are_not() {
        let mut errors = CallErrors::new();
        let mut ask = NvmlQuery {
            errors: &mut errors,
            is_renumbered: false,
        };
        assert_eq!(ask.value("GetPowerUsage", Ok(1)).unwrap(), Some(1));
        assert_eq!(
            ask.value::<()>("GetPowerUsage", Err(NvmlError::NotSupported))
                .unwrap(),
            None
        );
        assert_eq!(
            ask.value::<()>("GetPowerUsage", Err(NvmlError::Unknown))
                .unwrap(),
            None
        );
        let odd = NvmlError::UnexpectedVariant(77);
        assert_eq!(ask.value::<()>("GetPowerUsage", Err(odd)).unwrap(), None);
        for lost in [
            NvmlError::GpuLost,
            NvmlError::ResetRequired,
            NvmlError::DriverNotLoaded,
        ] {
            assert!(ask.value::<()>("GetPowerUsage", Err(lost)).is_err());
        }
        let counted: Vec<_> = errors
            .iter()
            .map(|((_, error), count)| (error.as_str(), *count))
            .collect();
        assert_eq!(counted, [("UnexpectedVariant", 1), ("Unknown", 1)]);
    }
}
