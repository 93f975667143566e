//! The exposition format: the response of `/metrics`, and the input of a scrape.
//!
//! Formats: text 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>) and
//! OpenMetrics 1.0. The crate `prometheus-client` writes OpenMetrics only and requires every series
//! to be registered, while an exporter's series come and go with the hardware.

mod read;
mod write;

pub use read::{Exemplar, Fact, Help, Line, Metadata, MetricType, Page, ReadError, Sample};
pub(crate) use write::{push_escaped_label, push_value};
pub use write::{push_metric_name, push_series, write_page};

/// Text formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Value of the `Content-Type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the format that an `Accept` header prefers; text 0.0.4 if the header is absent or
    /// names neither.
    pub fn negotiate(accept: Option<&str>) -> Self {
        // Weights of zero mean "not acceptable", so a format needs more than zero to be chosen.
        let mut best = (0.0, Self::Text);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let format = match parts.next() {
                Some("application/openmetrics-text") => Self::OpenMetrics,
                Some("text/plain") => Self::Text,
                _ => continue,
            };

            let quality = parts
                .find_map(|part| part.strip_prefix("q="))
                // A format without a weight has weight 1; one whose weight is malformed is not
                // chosen.
                .map_or(1.0, |q| q.trim().parse().unwrap_or(0.0));
            if quality > best.0 {
                best = (quality, format);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_openmetrics_and_a_browser_gets_text() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::negotiate(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(
            Format::negotiate(Some(
                "text/plain;version=0.0.4;q=0.8,application/openmetrics-text;q=0.2"
            )),
            Format::Text
        );
        assert_eq!(Format::negotiate(Some("text/html,*/*;q=0.1")), Format::Text);
        assert_eq!(Format::negotiate(None), Format::Text);
    }
}
