//! Whole-program tests: the real `takt` and `takt-exporter` against a real Slurm, Prometheus,
//! Alertmanager, mail server and a stand-in NVML. One program, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot have its surroundings shall end, and says what it skipped"
)]

mod access;
mod addresses;
mod advisories;
mod alerts;
mod bad_input;
mod cards;
mod clock_changes;
mod clock_jumps;
mod command_line;
mod current_prometheus;
mod dashboards;
mod demo;
mod devices;
mod disk_faults;
mod doctor;
mod elsewhere;
mod exporter_jobs;
mod fairshare;
mod forged_records;
mod gpu_states;
mod hostile_clients;
mod hostile_queries;
mod installed;
mod ipv6;
mod job_pages;
mod kubernetes_import;
mod lake;
mod lake_reader;
#[cfg(feature = "s3")]
mod lake_s3;
mod leaks;
mod letters;
mod markup;
mod memory_budget;
mod packages;
mod page_forms;
mod pages;
mod prometheus_lab;
mod promql_api;
mod push;
mod recipes;
mod release;
mod remote_query;
mod remote_write;
mod reports;
mod route_matrix;
mod scrape_prometheus;
mod serve;
mod sign_in;
mod slurm_lab;
mod source_states;
mod sources;
mod sql_clients;
mod sql_drivers;
mod sql_limits;
mod store;
mod support;
mod upgrade;
mod usage;
mod view;
