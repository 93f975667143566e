//! `process_*` metrics of the server, with the names of Prometheus' client libraries.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use takt_exporter::ProcessUsage;

/// Registers `process_*` of this process.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector));
}

#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Without /proc there is nothing to report.
        let Ok(usage) = ProcessUsage::read() else {
            return Ok(());
        };
        for (metric, value) in usage.metrics() {
            // The encoder adds `_total` to counters and a full stop to texts.
            let help = metric.help.trim_end_matches('.');
            match metric.name.strip_suffix("_total") {
                Some(name) => {
                    let counter = ConstCounter::new(value);
                    let encoder =
                        encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                    counter.encode(encoder)?;
                }
                None => {
                    let gauge = ConstGauge::new(value);
                    let encoder =
                        encoder.encode_descriptor(metric.name, help, None, MetricType::Gauge)?;
                    gauge.encode(encoder)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn metrics_have_the_names_of_client_libraries() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        for name in [
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_start_time_seconds ",
        ] {
            assert!(page.contains(&format!("\n{name}")), "{name}: {page}");
        }
    }
}
