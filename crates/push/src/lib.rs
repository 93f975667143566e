//! Wire formats of pushed samples.

pub mod remote_write;
