//! Texts of devices. Whoever configures a device writes them, and some devices fill them with anything.

use takt_model::shown::is_unseen;

/// Longest text of a device, in characters.
const MAX_TEXT: usize = 128;

/// The text as a label: one line, without control characters, at most 128 characters. Bytes that are not UTF-8 are replaced.
pub(crate) fn cleaned(bytes: &[u8]) -> String {
    // Many devices pad texts with NUL.
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);

    let mut out = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || is_unseen(c)) {
        if word.is_empty() {
            continue;
        }
        if length > 0 {
            out.push(' ');
            length += 1;
        }
        for c in word.chars() {
            if length >= MAX_TEXT {
                return out.trim_end().to_owned();
            }
            out.push(c);
            length += 1;
        }
    }
    out
}

/// The text, or the bytes in hexadecimal as a MAC address is written, if they are no visible text.
pub(crate) fn name_or_bytes(bytes: &[u8]) -> String {
    let is_text = str::from_utf8(bytes).is_ok_and(|text| !text.contains(is_unseen));
    if is_text {
        return cleaned(bytes);
    }
    let shown = &bytes[..bytes.len().min(20)];
    let parts: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_bounded_line_without_control_characters() {
        assert_eq!(cleaned(b"to gpu01"), "to gpu01");
        assert_eq!(cleaned(b"  to\r\n gpu01\0\0garbage"), "to gpu01");
        assert_eq!(cleaned(b"\x1b]0;title\x07red\x1b[31m"), "]0;title red [31m");
        assert_eq!(cleaned("a\u{202e}b".as_bytes()), "a b");
        assert_eq!(cleaned(b"\xff\xfe"), "\u{fffd}\u{fffd}");
        assert_eq!(cleaned(&[b'x'; 70_000]).len(), 128);
        assert_eq!(cleaned(b""), "");
    }

    #[test]
    fn a_mac_address_is_shown_as_one() {
        assert_eq!(
            name_or_bytes(&[0, 0x1c, 0x73, 1, 2, 0xff]),
            "00:1c:73:01:02:ff"
        );
        assert_eq!(name_or_bytes(b"Ethernet1/1"), "Ethernet1/1");
        assert!(name_or_bytes(&[7; 60_000]).len() < 64);
    }
}
