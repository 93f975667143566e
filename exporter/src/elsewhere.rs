//! Other systems than Linux: basic metrics through `sysinfo`, under node_exporter's names where it
//! exports them on those systems.
//!
//! `make check-windows` checks that it compiles for Windows; it has not been run there. WSL 2 is
//! Linux.

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use sysinfo::{Disks, Networks, System};
use takt_model::exposition::{Format, write_page};
use takt_model::{Metric, Samples};
use tokio::net::TcpListener;

/// All flags.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Address to serve on, HOST:PORT.
    #[arg(
        long = "web.listen-address",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9855"
    )]
    pub listen_address: String,
}

/// Why an exporter cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The exporter cannot listen on the address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address as configured.
        address: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The server ended unexpectedly.
    #[error("cannot go on serving")]
    Serve(#[source] io::Error),
}

const NONE: &[&str] = &[];
const DEVICE: &[&str] = &["device"];
const MOUNT: &[&str] = &["device", "mountpoint", "fstype"];
const TIME: Metric = Metric::gauge(
    "node_time_seconds",
    "System time in seconds since epoch (1970).",
    NONE,
);
const BOOT: Metric = Metric::gauge(
    "node_boot_time_seconds",
    "Unix time of last boot, including microseconds.",
    NONE,
);
const UNAME: Metric = Metric::gauge(
    "node_uname_info",
    "Which system runs on which machine.",
    &["sysname", "release", "machine", "nodename"],
);
const CPU: Metric = Metric::gauge(
    "takt_cpu_utilization_ratio",
    "Share of the time since the last reading in which the CPU worked.",
    &["cpu"],
);
const LOAD: [Metric; 3] = [
    Metric::gauge("node_load1", "1m load average.", NONE),
    Metric::gauge("node_load5", "5m load average.", NONE),
    Metric::gauge("node_load15", "15m load average.", NONE),
];
const MEMORY: [Metric; 5] = [
    Metric::gauge("node_memory_total_bytes", "Memory of the machine.", NONE),
    Metric::gauge("node_memory_free_bytes", "Unused memory.", NONE),
    Metric::gauge(
        "node_memory_available_bytes",
        "Memory that programs can still get.",
        NONE,
    ),
    Metric::gauge(
        "node_memory_swap_total_bytes",
        "Room for memory on disk.",
        NONE,
    ),
    Metric::gauge(
        "node_memory_swap_used_bytes",
        "Memory that is on disk.",
        NONE,
    ),
];
const SIZE: Metric = Metric::gauge(
    "node_filesystem_size_bytes",
    "Filesystem size in bytes.",
    MOUNT,
);
const AVAIL: Metric = Metric::gauge(
    "node_filesystem_avail_bytes",
    "Filesystem space available to non-root users in bytes.",
    MOUNT,
);
const READONLY: Metric = Metric::gauge(
    "node_filesystem_readonly",
    "Filesystem read-only status.",
    MOUNT,
);
const NETWORK: [Metric; 6] = [
    Metric::counter(
        "node_network_receive_bytes_total",
        "Network device statistic receive_bytes.",
        DEVICE,
    ),
    Metric::counter(
        "node_network_transmit_bytes_total",
        "Network device statistic transmit_bytes.",
        DEVICE,
    ),
    Metric::counter(
        "node_network_receive_packets_total",
        "Network device statistic receive_packets.",
        DEVICE,
    ),
    Metric::counter(
        "node_network_transmit_packets_total",
        "Network device statistic transmit_packets.",
        DEVICE,
    ),
    Metric::counter(
        "node_network_receive_errs_total",
        "Network device statistic receive_errs.",
        DEVICE,
    ),
    Metric::counter(
        "node_network_transmit_errs_total",
        "Network device statistic transmit_errs.",
        DEVICE,
    ),
];

/// State from one reading to the next.
struct Node {
    system: System,
    disks: Disks,
    networks: Networks,
    samples: Samples,
}

/// Serves until it is interrupted.
///
/// # Errors
/// When the exporter cannot listen on the address.
pub async fn run(options: Options) -> Result<(), Error> {
    let listener = TcpListener::bind(&options.listen_address)
        .await
        .map_err(|source| Error::Listen {
            address: options.listen_address.clone(),
            source,
        })?;

    tracing::info!(address = options.listen_address, "serving");

    let node = Node {
        system: System::new(),
        disks: Disks::new_with_refreshed_list(),
        networks: Networks::new_with_refreshed_list(),
        samples: Samples::new(),
    };

    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/-/healthy", get(|| async { "Healthy.\n" }))
        .with_state(Arc::new(Mutex::new(node)));

    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, router)
        .with_graceful_shutdown(interrupted)
        .await
        .map_err(Error::Serve)
}

async fn metrics(State(node): State<Arc<Mutex<Node>>>, headers: HeaderMap) -> Response {
    let format = Format::negotiate(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    // A disk of the network may take its time; other requests need not.
    let page = tokio::task::spawn_blocking(move || {
        let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
        node.page(format)
    });

    match page.await {
        Ok(page) => ([(CONTENT_TYPE, format.content_type())], page).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "cannot read the node\n").into_response(),
    }
}

impl Node {
    fn page(&mut self, format: Format) -> String {
        self.samples.clear();
        self.push_system();
        self.push_disks();
        self.push_networks();

        let mut page = String::new();
        write_page(format, [&self.samples], &mut page);
        page
    }

    fn push_system(&mut self) {
        let Self {
            system,
            samples: out,
            ..
        } = self;
        system.refresh_memory();
        system.refresh_cpu_usage();

        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        out.push::<&str>(&TIME, &[], now.as_secs_f64());
        out.push::<&str>(&BOOT, &[], System::boot_time() as f64);

        let text = |text: Option<String>| text.unwrap_or_default();
        let name = text(System::name());
        let release = text(System::kernel_version());
        let labels = [name, release, System::cpu_arch(), text(System::host_name())];
        out.push(&UNAME, &labels, 1.0);

        for (number, cpu) in system.cpus().iter().enumerate() {
            let share = f64::from(cpu.cpu_usage()) / 100.0;
            out.push(&CPU, &[number.to_string()], share);
        }

        // Windows has no such thing.
        if cfg!(unix) {
            let load = System::load_average();
            for (metric, load) in LOAD.iter().zip([load.one, load.five, load.fifteen]) {
                out.push::<&str>(metric, &[], load);
            }
        }

        let memory = [
            system.total_memory(),
            system.free_memory(),
            system.available_memory(),
            system.total_swap(),
            system.used_swap(),
        ];
        for (metric, bytes) in MEMORY.iter().zip(memory) {
            out.push::<&str>(metric, &[], bytes as f64);
        }
    }

    fn push_disks(&mut self) {
        self.disks.refresh(true);
        for disk in &self.disks {
            let labels = [
                disk.name(),
                disk.mount_point().as_os_str(),
                disk.file_system(),
            ];
            let labels = labels.map(|label| label.to_string_lossy());

            let out = &mut self.samples;
            out.push(&SIZE, &labels, disk.total_space() as f64);
            out.push(&AVAIL, &labels, disk.available_space() as f64);
            let is_read_only = f64::from(u8::from(disk.is_read_only()));
            out.push(&READONLY, &labels, is_read_only);
        }
    }

    fn push_networks(&mut self) {
        self.networks.refresh(true);
        for (device, network) in &self.networks {
            let counts = [
                network.total_received(),
                network.total_transmitted(),
                network.total_packets_received(),
                network.total_packets_transmitted(),
                network.total_errors_on_received(),
                network.total_errors_on_transmitted(),
            ];
            for (metric, count) in NETWORK.iter().zip(counts) {
                self.samples.push(metric, &[device], count as f64);
            }
        }
    }
}
