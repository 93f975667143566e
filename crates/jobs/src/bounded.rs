//! The length of texts that users choose.

use std::borrow::Cow;

/// Maximum length of a stored text that users choose (job name, account, partition), in bytes.
/// slurmctld refuses longer job names; files can contain any.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Marks the end of a text that was cut.
const CUT: &str = "…";

/// Returns the text, or its beginning and `…` if it is longer than `most` bytes.
pub fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }

    // The mark takes three bytes, and the cut must not split a character: names are UTF-8 of any script.
    let end = text.floor_char_boundary(most.saturating_sub(CUT.len()));
    Cow::Owned(format!("{}{CUT}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(bounded("abcdef", 6), "abcdef");
        assert_eq!(bounded("abcdefg", 6), "abc…");
        // The limit counts bytes: these are five characters in eight bytes.
        assert_eq!(bounded("aäöüx", 6), "aä…");
        assert_eq!(bounded(&"x".repeat(1 << 20), MAX_TEXT_BYTES).len(), 1024);
    }
}
