//! The request line of a connection's first request.
//!
//! People type `curl 'http://…/query?query=up{job="node"}'`. The quotes must be escaped in a URL, and hyper refuses them
//! with an empty answer; Go's server and nginx accept them. So they are escaped before hyper reads the line. Programs
//! that send several requests over one connection escape by themselves.

/// Escapes the characters in a request line that hyper refuses and others accept.
#[derive(Debug, Default)]
pub(super) struct RequestLine {
    is_over: bool,
    /// Escaped bytes that did not fit into the reader's buffer.
    rest: Vec<u8>,
}

impl RequestLine {
    /// Whether all bytes of the line were read.
    pub fn is_over(&self) -> bool {
        self.is_over && self.rest.is_empty()
    }

    /// Takes bytes as they arrived.
    pub fn take(&mut self, bytes: &[u8]) {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => self.rest.extend(b"%22"),
                b'<' => self.rest.extend(b"%3C"),
                b'>' => self.rest.extend(b"%3E"),
                b'\n' => {
                    self.is_over = true;
                    // Headers and body stay as they arrived.
                    self.rest.extend(&bytes[at..]);
                    return;
                }
                other => self.rest.push(other),
            }
        }
    }

    /// Returns up to `length` escaped bytes.
    pub fn give(&mut self, length: usize) -> Vec<u8> {
        let after = self.rest.split_off(length.min(self.rest.len()));
        std::mem::replace(&mut self.rest, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_escaped_in_the_first_line_only() {
        let mut line = RequestLine::default();
        let mut read = Vec::new();
        for part in ["GET /?q=up{a=\"", "b\"}>1 HTTP/1.1\r\nX: \"", "y\"\r\n"] {
            if line.is_over() {
                read.extend(part.as_bytes());
                continue;
            }
            line.take(part.as_bytes());
            loop {
                // Less than an escaped part, as a reader with a small buffer would ask.
                let some = line.give(5);
                if some.is_empty() {
                    break;
                }
                read.extend(some);
            }
        }
        let expected = "GET /?q=up{a=%22b%22}%3E1 HTTP/1.1\r\nX: \"y\"\r\n";
        assert_eq!(String::from_utf8(read).unwrap(), expected);
    }
}
