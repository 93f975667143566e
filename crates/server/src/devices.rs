//! Devices around the nodes (`[[devices]]`): what they say as series of the store, and as a page that another server scrapes.

use crate::alerting::Writer;
use anyhow::{Context, bail};
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use takt_model::exposition::{Format, write_page};
use takt_model::{Labels, METRIC_NAME, Samples, Timestamp};
use takt_probe::{DeviceConfig, DeviceReading, keep_asking};
use takt_store::Store;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Readings that wait to be stored. A device whose reading does not fit is asked later.
const WAITING_READINGS: usize = 16;

/// Connections to the page of devices. It has few readers.
const PAGE_FILES: usize = 64;

/// Asks the devices of the configuration and stores what they say.
#[derive(Clone)]
pub(crate) struct DeviceSeries {
    pub store: Arc<Store>,
    /// Name of the cluster.
    pub cluster: String,
    pub devices: Vec<DeviceConfig>,
}

impl DeviceSeries {
    /// Asks and stores until the future is dropped. Ends early if a device's task has panicked.
    pub(crate) async fn keep_storing(self) {
        let (sender, readings) = mpsc::channel(WAITING_READINGS);
        tokio::select! {
            () = keep_asking(self.devices.clone(), sender) => {}
            () = self.keep_writing(readings) => {}
        }
    }

    async fn keep_writing(&self, mut readings: mpsc::Receiver<DeviceReading>) {
        // Each device has its own rows: series that a row lacks end with it.
        let mut writers: HashMap<String, Writer> = HashMap::new();
        while let Some(reading) = readings.recv().await {
            let writer = writers.remove(&reading.device);
            let mut writer = writer.unwrap_or_else(|| Writer::new(&self.store));
            let row = row(&reading, &self.cluster);

            let written = takt_store::spawn_blocking(move || {
                let now = Timestamp::from(SystemTime::now());
                if let Err(error) = writer.write_row(row, now) {
                    tracing::warn!(%error, "cannot write the series of a device");
                }
                writer
            });
            // A writer that panicked is replaced at the device's next reading.
            if let Ok(writer) = written.await {
                writers.insert(reading.device, writer);
            }
        }
    }
}

/// Returns the series of a reading. Their labels `job` and `instance` are those that a scraped device would have.
fn row(reading: &DeviceReading, cluster: &str) -> Vec<(Labels, f64)> {
    let common = [
        ("job", "takt-probe"),
        ("instance", reading.address.as_str()),
        ("cluster", cluster),
    ];
    let mut row = Vec::new();
    for sample in reading.samples() {
        let own = sample.metric.labels.iter().copied();
        let own = own.zip(sample.labels.iter().map(String::as_str));
        let name = [(METRIC_NAME, sample.metric.name)];
        // An empty label is the same as none, and is not stored.
        let labels = own
            .chain(common)
            .chain(name)
            .filter(|(_, value)| !value.is_empty());
        row.push((labels.collect(), sample.value));
    }
    row
}

/// The last reading of each device, by its name.
type LastReadings = Arc<Mutex<BTreeMap<String, DeviceReading>>>;

/// Asks the devices and serves their metrics at `/metrics`, until `shutdown` becomes true.
///
/// # Errors
/// If the address cannot be used.
pub async fn serve_devices(
    devices: Vec<DeviceConfig>,
    address: SocketAddr,
    mut shutdown: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen at {address}"))?;
    let shown = listener.local_addr().unwrap_or(address);
    tracing::info!(address = %shown, devices = devices.len(), "serving the metrics of devices at /metrics");

    let last = LastReadings::default();
    let routes = Router::new()
        .route("/metrics", get(metrics_page))
        .with_state(Arc::clone(&last));
    let (connections, _) = takt_api::connections(PAGE_FILES, &mut Registry::default());
    let stop = CancellationToken::new();
    let serving = takt_api::serve(listener, routes, Arc::new(connections), stop.clone());

    let (sender, readings) = mpsc::channel(WAITING_READINGS);
    tokio::select! {
        () = keep_asking(devices, sender) => bail!("a device's task ended; the log says why"),
        () = keep_last(readings, &last) => {}
        () = serving => {}
        _ = shutdown.wait_for(|requested| *requested) => stop.cancel(),
    }
    Ok(())
}

async fn keep_last(mut readings: mpsc::Receiver<DeviceReading>, last: &LastReadings) {
    while let Some(reading) = readings.recv().await {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(reading.device.clone(), reading);
    }
}

async fn metrics_page(State(last): State<LastReadings>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::negotiate(accept);
    let last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let page = page(last.values(), format);
    ([(CONTENT_TYPE, format.content_type())], page)
}

fn page<'r>(readings: impl Iterator<Item = &'r DeviceReading>, format: Format) -> String {
    let mut samples = Samples::new();
    for reading in readings {
        for sample in reading.samples() {
            samples.push(sample.metric, &sample.labels, sample.value);
        }
    }
    let mut out = String::new();
    write_page(format, [&samples], &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::store_in;
    use std::time::Duration;
    use takt_model::Matcher;
    use takt_probe::SwitchPort;
    use tempfile::tempdir;
    use tokio::time;

    fn switch(ports: &[&str]) -> DeviceReading {
        let port = |name: &&str| SwitchPort {
            port: (*name).to_owned(),
            is_up: Some(true),
            ..SwitchPort::default()
        };
        DeviceReading {
            device: "leaf\"1".to_owned(),
            address: "10.0.0.7".to_owned(),
            is_up: true,
            ports: ports.iter().map(port).collect(),
            ..DeviceReading::default()
        }
    }

    #[test]
    fn the_page_has_each_metric_once_and_escapes_texts() {
        let readings = [switch(&["a"]), switch(&["b"])];
        let page = page(readings.iter(), Format::Text);
        let heads = page.matches("# TYPE takt_switch_port_up gauge").count();
        assert_eq!(heads, 1, "{page}");
        let line = "takt_switch_port_up{device=\"leaf\\\"1\",port=\"b\",alias=\"\"} 1";
        assert!(page.contains(line), "{page}");
    }

    #[tokio::test]
    async fn readings_are_stored_and_series_end_with_their_port() {
        let folder = tempdir().unwrap();
        let series = DeviceSeries {
            store: Arc::new(store_in(&folder.path().join("data"))),
            cluster: "lab".to_owned(),
            devices: Vec::new(),
        };
        let (sender, readings) = mpsc::channel(4);
        let sending = async move {
            sender.send(switch(&["a", "b"])).await.unwrap();
            // A series has one sample a millisecond.
            time::sleep(Duration::from_millis(50)).await;
            sender.send(switch(&["b"])).await.unwrap();
        };
        tokio::join!(series.keep_writing(readings), sending);

        series.store.flush();
        let now = Timestamp::from(SystemTime::now());
        let wanted = [Matcher::metric("takt_switch_port_up")];
        let later = Timestamp(now.0 + 60_000);
        let found = series
            .store
            .own_range(&wanted, Timestamp(now.0 - 60_000), later)
            .unwrap();
        let ended = |port: &str| {
            let is_port = |labels: &Labels| labels.get("port") == Some(port);
            let one = found.iter().find(|series| is_port(&series.labels)).unwrap();
            assert_eq!(one.labels.get("cluster"), Some("lab"));
            assert_eq!(one.labels.get("instance"), Some("10.0.0.7"));
            one.samples.last().unwrap().value.is_nan()
        };
        assert_eq!((ended("a"), ended("b")), (true, false));
    }
}
