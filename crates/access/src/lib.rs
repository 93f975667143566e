//! Access control as pure functions: roles, what a [`Viewer`] may see of other users, and what a route needs.
//!
//! This crate does no I/O and reads no clock. `takt-identity` finds out who asks (the kernel, a token, a session) and makes the
//! [`Viewer`]; every answer takes it as an argument.

mod labels;
mod link;
mod need;
pub mod password;
mod privacy;
mod role;
mod role_book;
mod secret;
pub mod session;
mod sign_in_ways;
mod throttle;
mod viewer;

pub use labels::ShownLabels;
pub use link::MessageLink;
pub use need::{Need, Refusal, RouteNeeds};
pub use privacy::Privacy;
pub use role::{Role, UnknownRole};
pub use role_book::RoleBook;
pub use secret::{NoRandomNumbers, hash, is_token, keyed_hash, new_secret, new_token};
pub use sign_in_ways::SignInWays;
pub use throttle::{AttemptLimit, Throttle};
pub use viewer::{ActNote, OTHER_ACCOUNT, OTHER_USER, Owner, Viewer, Way};
