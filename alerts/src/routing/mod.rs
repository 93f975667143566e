//! From alerts to messages, as Alertmanager does it.

pub mod matcher;
