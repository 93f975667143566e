//! Forms that a page receives.

use super::{Content, PageError};

/// Largest form, in bytes.
pub const FORM_MAX: usize = 256 << 10;

/// The fields of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form(pub(super) Vec<(String, String)>);

impl Form {
    /// A form with these fields.
    #[cfg(test)]
    pub(crate) fn of(fields: impl Iterator<Item = (String, String)>) -> Self {
        Self(fields.collect())
    }

    /// The value of a field, trimmed; `None` if it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        // The first field of a name counts; `all` has the others.
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// The value of a field.
    ///
    /// # Errors
    /// If the field is missing or empty.
    pub fn required(&self, name: &str) -> Result<&str, PageError> {
        self.get(name)
            .ok_or_else(|| PageError::wrong(format!("Fill in the field '{name}'.")))
    }

    /// All values of a field that may occur several times.
    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.trim())
    }
}

/// Reply to a form.
pub enum FormReply {
    /// The browser goes to this address.
    Redirect(String),
    /// The page itself, with something that is shown once.
    Page(Box<Content>),
}
