//! Alerts as a whole: from a line in the kernel's log to every channel, over crashes, and beside
//! promtool, amtool, Alertmanager and Prometheus.

mod current_alertmanager;
mod delivery;
mod disk;
mod lab;
mod links;
mod operation;
mod own_faults;
mod peers;
mod samples;
mod slow_rules;
