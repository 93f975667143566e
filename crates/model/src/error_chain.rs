//! An error with its causes, for a status that is one line of text.

use std::error::Error;

/// `error` and everything that caused it, joined by colons. A cause whose text the one before already shows is left out.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
