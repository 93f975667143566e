//! SNMP: values and walks of our own, and the only file that knows the crate which speaks the protocol (`session.rs`).

mod session;
mod value;
mod walk;

pub(crate) use session::{BulkSize, Session, SnmpError, SnmpKeys};
pub(crate) use value::{ObjectId, SnmpValue};
pub(crate) use walk::ColumnRows;
