//! Formats an error with its causes in one line.

use std::error::Error;

/// What to change after an error of TLS. It depends on the settings of who connects.
#[derive(Debug, Clone, Copy)]
pub struct TlsRemedies {
    /// If the server does not speak TLS.
    pub plain_server: &'static str,
    /// If no authority that is trusted has signed the certificate.
    pub unknown_authority: &'static str,
    /// If the certificate is for another name.
    pub other_name: &'static str,
}

impl TlsRemedies {
    /// Returns `error` and its causes, and what the words of the libraries mean, whose authors know them and nobody else does.
    pub fn explained(&self, error: &dyn Error) -> String {
        let text = error_chain(error);
        match self.meaning(&text) {
            Some(meaning) => format!("{text}; {meaning}"),
            None => text,
        }
    }

    fn meaning(&self, text: &str) -> Option<String> {
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));

        // rustls names some errors by their variant, and writes sentences about those of which it knows more.
        let meaning = if has(&["InvalidContentType"]) {
            format!("it does not speak TLS: {}", self.plain_server)
        } else if has(&["invalid HTTP version"]) {
            "it speaks TLS or no HTTP: the URL begins with https://".to_owned()
        } else if has(&["UnknownIssuer", "CaUsedAsEndEntity"]) {
            let remedy = self.unknown_authority;
            format!("no known authority has signed its certificate: {remedy}")
        } else if has(&["NotValidForName", "certificate not valid for name"]) {
            format!("its certificate is for another name: {}", self.other_name)
        } else if has(&["certificate: Expired", "certificate expired"]) {
            "its certificate has ended".to_owned()
        } else if has(&["NotValidYet", "certificate not valid yet"]) {
            "its certificate begins later, or the clock of this machine is behind".to_owned()
        } else {
            return None;
        };
        Some(meaning)
    }
}

/// Returns `error` and its causes, joined by colons. Skips causes whose text is already part of the
/// text before.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some libraries repeat the source in their own message.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn errors_of_tls_say_what_to_change() {
        let remedies = TlsRemedies {
            plain_server: "PLAIN",
            unknown_authority: "AUTHORITY",
            other_name: "NAME",
        };
        // As rustls and hyper write them.
        for (text, meaning) in [
            (
                "received corrupt message of type InvalidContentType",
                "it does not speak TLS: PLAIN",
            ),
            (
                "invalid HTTP version parsed",
                "it speaks TLS or no HTTP: the URL begins with https://",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                "no known authority has signed its certificate: AUTHORITY",
            ),
            (
                "invalid peer certificate: certificate not valid for name \"g01\"; certificate is only valid for DnsName(\"x\")",
                "its certificate is for another name: NAME",
            ),
            (
                "invalid peer certificate: certificate expired: verification time 2 (UNIX), but certificate is not valid after 1",
                "its certificate has ended",
            ),
            (
                "invalid peer certificate: Expired",
                "its certificate has ended",
            ),
            (
                "invalid peer certificate: certificate not valid yet: verification time 1 (UNIX)",
                "its certificate begins later, or the clock of this machine is behind",
            ),
        ] {
            let said = remedies.explained(&io::Error::other(text));
            assert_eq!(said, format!("{text}; {meaning}"));
        }

        let other = io::Error::other("connection refused");
        assert_eq!(remedies.explained(&other), "connection refused");
    }
}
