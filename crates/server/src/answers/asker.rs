//! The person or program that asks.

/// The person or program that asks a question. Answers contain what the asker may see.
///
/// HTTP handlers get it from the access check alone, so a route outside the check cannot answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A command that opened the files, the server itself, or a request that passed the access check: sees everything.
    Local,
}
