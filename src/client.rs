//! A client of Takt's server.

use anyhow::Context;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use takt_identity::MUNGE_PATH;
use takt_questions::{AnswerError, IMPORT_PATH, ImportQuestion, Question, RequestForm};
use takt_server::{Failure, OrUsage};
use takt_store::ImportSummary;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::runtime::Runtime;

/// Time to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Size of the chunks in which a file is sent, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// A client of one server, over HTTP.
pub struct Server {
    url: String,
    token: Option<String>,
    http: reqwest::Client,
    runtime: Runtime,
}

impl Server {
    /// A client of the server at `url` (`http://head:9856`).
    pub fn new(url: String, token: Option<String>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;

        // No proxy: a proxy of the environment is for the web, not for the cluster's head node.
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .build()?;
        Ok(Self {
            url,
            token,
            http,
            runtime,
        })
    }

    /// A client of the server at a Unix socket. The kernel tells the server who asks.
    pub fn at_socket(path: &Path) -> anyhow::Result<Self> {
        let mut server = Self::new("http://localhost".to_owned(), None)?;
        server.http = reqwest::Client::builder()
            .unix_socket(path)
            .no_proxy()
            .build()?;
        Ok(server)
    }

    /// Sends a POST without a body to a path of the API.
    pub fn post<A>(&self, path: &str) -> Result<A, Failure>
    where
        A: DeserializeOwned,
    {
        self.send(self.request(Method::POST, path))
    }

    /// Sends a GET to a path of the API.
    pub fn get<A>(&self, path: &str) -> Result<A, Failure>
    where
        A: DeserializeOwned,
    {
        self.send(self.request(Method::GET, path))
    }

    /// Sends a form to a path of the API.
    pub fn post_form<A>(&self, path: &str, form: &[(&str, &str)]) -> Result<A, Failure>
    where
        A: DeserializeOwned,
    {
        self.send(self.request(Method::POST, path).form(form))
    }

    fn send<A>(&self, request: RequestBuilder) -> Result<A, Failure>
    where
        A: DeserializeOwned,
    {
        read(&self.fetch(request)?)
    }

    /// Returns the body of the answer to a request. Not generic: it is compiled once.
    fn fetch(&self, request: RequestBuilder) -> Result<Vec<u8>, Failure> {
        self.runtime.block_on(async {
            let response = request
                .send()
                .await
                .map_err(|error| self.unreachable(&error))?;
            self.body(response).await
        })
    }

    /// Returns the text at a path, such as `/metrics`.
    pub fn text(&self, path: &str) -> anyhow::Result<String> {
        let request = self.request(Method::GET, path);
        self.runtime.block_on(async {
            let response = request.send().await?.error_for_status()?;
            Ok(response.text().await?)
        })
    }

    /// Asks a question. Fails with the errors that reading the files gives.
    pub fn ask<Q>(&self, question: &Q) -> Result<Q::Answer, Failure>
    where
        Q: Question,
    {
        let method = match Q::REQUEST {
            RequestForm::Get => Method::GET,
            _ => Method::POST,
        };
        // Evaluated by the compiler, so that only one of the functions is compiled for each question.
        let write = const { writer::<Q>() };
        self.send(write(self.request(method, question.path()), question)?)
    }

    /// Lets the server read its configuration again. Returns what the server says of it.
    ///
    /// # Errors
    /// If the server keeps the previous configuration.
    pub fn reload(&self) -> Result<String, Failure> {
        self.runtime.block_on(async {
            let response = self
                .request(Method::POST, "/-/reload")
                .send()
                .await
                .map_err(|error| self.unreachable(&error))?;
            let is_done = response.status().is_success();
            let body = self.body(response).await?;
            if is_done {
                return Ok(String::from_utf8_lossy(&body).into_owned());
            }
            read(&body)
        })
    }

    /// Returns the address of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks Alertmanager's API; an empty answer is null.
    pub fn alertmanager(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&serde_json::Value>,
    ) -> Result<serde_json::Value, Failure> {
        let path = format!("/api/v2/{path}");
        let mut request = self.request(method, &path).query(query);
        if let Some(body) = body {
            request = request.json(body);
        }

        self.runtime.block_on(async {
            let response = request
                .send()
                .await
                .map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            let body = response
                .bytes()
                .await
                .context("the server's answer broke off")?;
            let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();

            if status.is_success() {
                return Ok(answer);
            }
            // Errors are a string, or, for requests that do not fit the interface or are not
            // permitted, an object.
            let message = answer
                .as_str()
                .or_else(|| answer["message"].as_str())
                .or_else(|| answer["error"].as_str());
            let error = match message {
                Some(message) => anyhow::anyhow!(message.to_owned()),
                None => anyhow::anyhow!("the server answered {status}"),
            };

            Err(match status {
                // The request was wrong, so the exit code is that of wrong usage.
                StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Failure::Usage(error),
                _ => error.into(),
            })
        })
    }

    /// Sends a file for import. Calls `progress` with the number of bytes sent so far.
    pub fn upload(
        &self,
        file: &Path,
        question: &ImportQuestion,
        progress: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<ImportSummary, Failure> {
        self.runtime.block_on(async {
            let input: Box<dyn AsyncRead + Send + Sync + Unpin> = if file == Path::new("-") {
                Box::new(tokio::io::stdin())
            } else {
                let cannot_read = || format!("cannot read {}", file.display());
                let opened = File::open(file).await.with_context(cannot_read)?;
                // Linux opens folders for reading; only the first read would fail, after the
                // connection is made.
                if opened.metadata().await.with_context(cannot_read)?.is_dir() {
                    let name = file.display();
                    return Err(anyhow::anyhow!("cannot read {name}: it is a folder")).usage();
                }
                Box::new(opened)
            };

            let chunks = futures_util::stream::try_unfold((input, 0), move |(mut input, sent)| {
                let progress = progress.clone();
                async move {
                    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
                    let read = input.read_buf(&mut chunk).await? as u64;
                    progress(sent + read);
                    Ok::<_, io::Error>((read > 0).then_some((chunk, (input, sent + read))))
                }
            });

            // In chunks as they are read: a file of records may be larger than the memory.
            let request = self.request(Method::POST, IMPORT_PATH).query(question);
            let request = request.body(reqwest::Body::wrap_stream(chunks));
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) => self
                    .refusal(question)
                    .await
                    .ok_or(error)
                    .with_context(|| format!("cannot send the file to {}", self.url))?,
            };

            read(&self.body(response).await?)
        })
    }

    /// Asks why the server refused an upload. It may close the connection before it has read the
    /// file, and its answer is lost; a request without a file gets one. `None` if it refuses
    /// nothing.
    async fn refusal(&self, question: &ImportQuestion) -> Option<Response> {
        let response = self
            .request(Method::POST, IMPORT_PATH)
            .query(question)
            .send()
            .await
            .ok()?;
        [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::PAYLOAD_TOO_LARGE,
        ]
        .contains(&response.status())
        .then_some(response)
    }

    /// Describes why a request got no answer, without the layers of the HTTP client.
    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        let url = &self.url;
        // The outer errors only repeat the address.
        let mut deepest: &dyn std::error::Error = error;
        while let Some(source) = deepest.source() {
            deepest = source;
        }

        let io = deepest.downcast_ref::<io::Error>();
        match io.map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => {
                anyhow::anyhow!(
                    "cannot ask the server at {url}: connection refused; is it running?"
                )
            }
            _ if error.is_timeout() => anyhow::anyhow!("{url} does not answer"),
            // The first bytes are not of TLS.
            _ if deepest.to_string().contains("InvalidContentType") => anyhow::anyhow!(
                "cannot ask the server at {url}: it does not speak TLS; use {}",
                url.replacen("https://", "http://", 1)
            ),
            _ => anyhow::anyhow!("cannot ask the server at {url}: {deepest}"),
        }
    }

    /// Whether `takt login` works at this server and on this machine.
    async fn signs_in_by_munge(&self) -> bool {
        let asked = self.request(Method::GET, MUNGE_PATH).send().await;
        asked.is_ok_and(|answer| answer.status().is_success())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Returns the body of an answer, or the error that the server describes in it.
    async fn body(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let status = response.status();
        let body = response
            .bytes()
            .await
            .context("the server's answer broke off")?;

        if status.is_success() {
            return Ok(body.into());
        }

        // A proxy, or another program at this port, answers with a page.
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(error) = answer["error"].as_str() else {
            let url = &self.url;
            return Err(anyhow::anyhow!("{url} answered {status}: is it a Takt server?").into());
        };

        Err(match status {
            StatusCode::BAD_REQUEST => AnswerError::Usage(error.to_owned()).into(),
            StatusCode::UNPROCESSABLE_ENTITY => AnswerError::Input(error.to_owned()).into(),
            // A known token whose role is too low gets the role in the server's words.
            StatusCode::UNAUTHORIZED if self.token.is_some() && error.contains("the role") => {
                anyhow::anyhow!(error.to_owned())
                    .context("another token is needed (--token-file, TAKT_TOKEN_FILE)")
                    .into()
            }
            StatusCode::UNAUTHORIZED if self.token.is_some() => anyhow::anyhow!(
                "the server refuses the token (of --token-file, TAKT_TOKEN_FILE or `takt login`): it is \
                 wrong, revoked or expired"
            )
            .into(),
            StatusCode::UNAUTHORIZED if self.signs_in_by_munge().await => {
                let url = &self.url;
                anyhow::anyhow!("sign in once: takt login --server {url}").into()
            }
            StatusCode::UNAUTHORIZED => anyhow::anyhow!(error.to_owned())
                .context("name the file of a token with --token-file or TAKT_TOKEN_FILE")
                .into(),
            _ => AnswerError::failed(error.to_owned()).into(),
        })
    }
}

type Writer<Q> = fn(RequestBuilder, &Q) -> anyhow::Result<RequestBuilder>;

const fn writer<Q>() -> Writer<Q>
where
    Q: Question,
{
    match Q::REQUEST {
        RequestForm::Get | RequestForm::PostQuery => {
            |request, question| Ok(request.query(question))
        }
        RequestForm::PostForm => |request, question| Ok(request.form(question)),
        RequestForm::PostJson => |request, question| Ok(request.json(question)),
        RequestForm::PostText => |request, question| Ok(request.body(text_of(question)?)),
    }
}

fn read<A>(body: &[u8]) -> Result<A, Failure>
where
    A: DeserializeOwned,
{
    let answer = serde_json::from_slice(body);
    Ok(answer.context("the server's answer is not what this takt expects")?)
}

/// The text of a question that is one string.
fn text_of(question: &impl Question) -> anyhow::Result<String> {
    match serde_json::to_value(question)? {
        serde_json::Value::String(text) => Ok(text),
        other => anyhow::bail!("a question sent as text must be one string, not {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn a_server_without_tls_is_named_as_one() {
        // As the program does; another test may have done it.
        let _ = ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The greeting of TLS is read, or closing the socket would reset the connection before
            // the answer.
            let _ = stream.read(&mut [0; 512]).unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        });
        let server = Server::new(format!("https://{address}"), None).unwrap();
        let Err(Failure::Failed(error)) = server.get::<serde_json::Value>("/") else {
            panic!("an answer, or wrong usage");
        };
        answering.join().unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot ask the server at https://{address}: it does not speak TLS; use \
                 http://{address}"
            )
        );
    }
}
