//! Counts of events on the node. The events themselves go out at once through `/events`.
//!
//! Source: [`Events`], which follows the kernel log. What matters most is there before it has
//! happened, at 0: else the first time would be no increase.

use crate::collector::{CollectError, Collector, flag};
use crate::events::{Events, MAX_SERVERS, MAX_XIDS};
use crate::paths::Paths;
use std::io;
use std::path::PathBuf;
use takt_model::{EventKind, Metric, Samples, Timestamp};

struct EventCounts {
    kmsg: PathBuf,
    sysfs: PathBuf,
    events: Events,
}

const TOTAL: Metric = Metric::counter(
    "takt_events_total",
    "Events of the kernel log and of NVML since the exporter started.",
    &["kind"],
);
const UNTOLD: Metric = Metric::counter(
    "takt_events_untold_total",
    "Events that were counted but not sent one by one, because there were too many like them.",
    &["kind"],
);
const LAST_SEEN: Metric = Metric::gauge(
    "takt_events_last_seen_timestamp_seconds",
    "Time of the last event of the kind, also before a restart. No series if none is known.",
    &["kind"],
);
const XIDS: Metric = Metric::counter(
    "takt_gpu_xid_errors_total",
    "XIDs of the GPU since the exporter started, each counted once. uuid is the PCI bus id if the \
     UUID is unknown.",
    &["uuid", "xid"],
);
const XID_LAST_SEEN: Metric = Metric::gauge(
    "takt_gpu_xid_last_seen_timestamp_seconds",
    "Time of the GPU's last XID of this number, also before a restart.",
    &["uuid", "xid"],
);
const RESPONDING: Metric = Metric::gauge(
    "takt_nfs_server_responding",
    "Whether the NFS server responded at the kernel's last message about it. Servers that never \
     failed have no series.",
    &["server"],
);
const FOLLOWED: Metric = Metric::gauge(
    "takt_kernel_log_followed",
    "Whether the kernel log is being followed.",
    &[],
);
const OVERRUNS: Metric = Metric::counter(
    "takt_kernel_log_overruns_total",
    "Times that the kernel overwrote lines before they were read; events may be missing.",
    &[],
);
const TOO_LONG: Metric = Metric::counter(
    "takt_kernel_log_lines_too_long_total",
    "Lines of a file of the kernel log that were left out, because they are longer than 64 KiB.",
    &[],
);
const LISTENERS: Metric = Metric::gauge(
    "takt_events_listeners",
    "Connections that wait for events.",
    &[],
);
const METRICS: &[Metric] = &[
    TOTAL,
    UNTOLD,
    LAST_SEEN,
    XIDS,
    XID_LAST_SEEN,
    RESPONDING,
    FOLLOWED,
    OVERRUNS,
    TOO_LONG,
    LISTENERS,
];

/// XIDs of a failure of the GPU, the link or the driver, or of a frequent fault of programs: each
/// GPU has them at 0 before they happen.
const FOREKNOWN: [u32; 22] = [
    13, 31, 43, 45, 46, 48, 61, 62, 63, 64, 69, 74, 79, 92, 94, 95, 109, 119, 120, 140, 143, 154,
];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(EventCounts {
        kmsg: paths.kmsg.clone(),
        sysfs: paths.sysfs.clone(),
        events: Events::default(),
    })
}

impl Collector for EventCounts {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        3 * EventKind::ALL.len() + 3 * MAX_XIDS + MAX_SERVERS + 4
    }

    fn attach(&mut self, events: &Events) -> io::Result<()> {
        self.events = events.clone();
        self.events.follow(&self.kmsg, &self.sysfs)
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // Asked before `shown` is locked.
        let listeners = self.events.listeners().count();
        let uuids = self.events.uuids();

        let shown = self.events.shown();
        for kind in EventKind::ALL {
            let count = shown.counts.get(kind).copied().unwrap_or_default();
            out.push(&TOTAL, &[kind.name()], count.total as f64);
            out.push(&UNTOLD, &[kind.name()], count.untold as f64);
            push_time(out, &LAST_SEEN, &[kind.name()], count.last);
        }

        // At most as many series as `max_series` allows for.
        for uuid in uuids.iter().take(MAX_XIDS / FOREKNOWN.len()) {
            for xid in FOREKNOWN {
                if !shown.xids.contains_key(&(uuid.to_owned(), xid)) {
                    out.push(&XIDS, &[uuid, &xid.to_string()], 0.0);
                }
            }
        }
        for ((uuid, xid), count) in &shown.xids {
            let labels = [uuid.as_str(), &xid.to_string()];
            out.push(&XIDS, &labels, count.total as f64);
            push_time(out, &XID_LAST_SEEN, &labels, count.last);
        }

        for (server, responds) in &shown.servers {
            out.push(&RESPONDING, &[server], flag(*responds));
        }

        out.push::<&str>(&FOLLOWED, &[], flag(shown.log.is_followed));
        out.push::<&str>(&OVERRUNS, &[], shown.log.overruns as f64);
        out.push::<&str>(&TOO_LONG, &[], shown.log.too_long as f64);
        out.push::<&str>(&LISTENERS, &[], listeners as f64);

        match &shown.log.problem {
            None => Ok(()),
            Some((path, kind, error)) => {
                let source = io::Error::new(*kind, error.clone());
                Err(CollectError::Read {
                    path: path.clone(),
                    source,
                }
                .or_absent("no kernel log"))
            }
        }
    }
}

fn push_time(out: &mut Samples, metric: &Metric, labels: &[&str], at: Option<Timestamp>) {
    if let Some(at) = at {
        out.push(metric, labels, at.as_seconds());
    }
}
