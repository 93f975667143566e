//! A mail server that keeps each mail as a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Maximum size of a mail, in bytes.
const MAX_MAIL_BYTES: usize = 16 << 20;

/// Folder with the received mails.
#[derive(Debug, Clone)]
pub struct MailFolder {
    path: PathBuf,
    received: Arc<AtomicU32>,
}

impl MailFolder {
    /// Uses an existing folder.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            received: Arc::default(),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of received mails.
    pub fn received(&self) -> u32 {
        self.received.load(Ordering::Relaxed)
    }

    /// Accepts mail until the future is dropped.
    pub async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            // A sender may hold a connection open, and must not keep the others waiting.
            let folder = self.clone();
            tokio::spawn(async move {
                if let Err(error) = folder.session(stream).await {
                    tracing::debug!(%error, "a mail session broke off");
                }
            });
        }
    }

    /// One session of SMTP (RFC 5321), without extensions.
    async fn session(&self, stream: TcpStream) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader);
        writer.write_all(b"220 demo ESMTP\r\n").await?;

        let mut line = String::new();
        loop {
            line.clear();
            if lines.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let command = line.split_whitespace().next().unwrap_or_default();
            let answer = match command.to_ascii_uppercase().as_str() {
                "EHLO" | "HELO" => "250 demo\r\n",
                "MAIL" | "RCPT" | "RSET" | "NOOP" => "250 OK\r\n",
                "QUIT" => {
                    writer.write_all(b"221 Bye\r\n").await?;
                    return Ok(());
                }
                "DATA" => {
                    // RFC 5321: 354 asks for the mail, and only the reply after it says that the mail was taken.
                    writer.write_all(b"354 End with a dot\r\n").await?;
                    let mail = read_mail(&mut lines).await?;
                    self.keep(&mail).await?;
                    "250 OK\r\n"
                }
                _ => "502 Not implemented\r\n",
            };
            writer.write_all(answer.as_bytes()).await?;
        }
    }

    async fn keep(&self, mail: &[u8]) -> io::Result<()> {
        let number = self.received.fetch_add(1, Ordering::Relaxed) + 1;
        let path = self.path.join(format!("{number:04}.eml"));
        tokio::fs::write(path, mail).await
    }
}

/// Reads a mail up to the line with a single dot.
async fn read_mail(lines: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let mut mail = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line).await?;
        // A sender that closes before the dot, or sends without an end, has delivered no mail.
        if read == 0 || mail.len() > MAX_MAIL_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line == b".\r\n" {
            return Ok(mail);
        }
        // The sender doubles a dot at the begin of a line.
        mail.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    #[tokio::test]
    async fn a_mail_arrives_as_a_file_with_its_dots() {
        let folder = tempdir().unwrap();
        let mails = MailFolder::new(folder.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(mails.clone().serve(listener));

        let mut client = BufReader::new(TcpStream::connect(address).await.unwrap());
        let mut answer = String::new();
        client.read_line(&mut answer).await.unwrap();

        for command in [
            "EHLO me\r\n",
            "MAIL FROM:<a@b>\r\n",
            "RCPT TO:<c@d>\r\n",
            "DATA\r\n",
            // The first dot was doubled by the sender.
            "Subject: x\r\n\r\n..two\r\n.\r\n",
        ] {
            client.write_all(command.as_bytes()).await.unwrap();
            answer.clear();
            client.read_line(&mut answer).await.unwrap();
            assert!(answer.starts_with(['2', '3']), "{command}: {answer}");
        }

        let mail = fs::read_to_string(folder.path().join("0001.eml")).unwrap();
        assert_eq!(mail.as_str(), "Subject: x\r\n\r\n.two\r\n");
        assert_eq!(mails.received(), 1);
        server.abort();
    }
}
