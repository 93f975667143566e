//! A lake in a bucket of S3, or of a server that speaks its protocol (MinIO, Ceph).
//!
//! A put is complete or does not exist. A commit is a conditional put (`If-None-Match: *`): the server
//! refuses it if the number is taken. If its reply is lost, reading the file says whose commit it is.
//! Each request is tried again for up to a minute; after that the round ends, and the next one repeats
//! what is missing.

use crate::LakeError;
use crate::config::S3Config;
use crate::files::{COPY, Files, LocalFile};
use futures_util::TryStreamExt;
use http_body_util::BodyExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    RetryConfig,
};
use std::env;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use takt_store::crash_point;
use tokio::runtime::{Builder, Runtime};

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// Time in which a server must take a part of a file or send some bytes.
const SILENCE: Duration = Duration::from_secs(120);

/// Bytes of a file that are sent at once, at least. A file has 10,000 parts at most.
const PART_BYTES: u64 = 8 << 20;

/// Repetitions of a request, with pauses of 0.2 to 5 seconds.
const RETRIES: usize = 4;

/// Files of a lake in a bucket.
#[derive(Debug)]
pub struct Bucket {
    /// `BUCKET` or `BUCKET/PREFIX`.
    address: String,
    prefix: String,
    store: Arc<AmazonS3>,
    /// Runs the requests; always set, except while this is dropped.
    runtime: Option<Runtime>,
}

impl Bucket {
    /// The lake at `BUCKET/PREFIX`. Sends nothing.
    ///
    /// # Errors
    /// If the keys cannot be read.
    pub fn open(address: &str, config: &S3Config) -> Result<Self, LakeError> {
        let address = address.trim_end_matches('/').to_owned();
        let (bucket, prefix) = address.split_once('/').unwrap_or((&address, ""));
        let prefix = prefix.to_owned();

        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let keys = Keys::of(config)?;
        let region = config
            .region
            .clone()
            .or_else(|| variable("AWS_REGION"))
            .unwrap_or_else(|| "us-east-1".to_owned());

        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(region)
            .with_access_key_id(keys.id)
            .with_secret_access_key(keys.secret)
            .with_virtual_hosted_style_request(!config.path_style)
            .with_allow_http(config.allow_http)
            // Not every server deletes several files at once.
            .with_disable_bulk_delete(true)
            .with_http_connector(Connector {
                allow_http: config.allow_http,
            })
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(200),
                    max_backoff: Duration::from_secs(5),
                    base: 2.0,
                },
                max_retries: RETRIES,
                retry_timeout: Duration::from_secs(60),
            });

        if let Some(token) = keys.token {
            builder = builder.with_token(token);
        }
        // The variables are those of Amazon's tools, so one environment serves both.
        let endpoint = config.endpoint.clone();
        if let Some(endpoint) = endpoint.or_else(|| variable("AWS_ENDPOINT_URL")) {
            builder = builder.with_endpoint(endpoint);
        }

        let path = PathBuf::from(format!("s3://{address}"));
        let store = builder.build().map_err(io::Error::other);
        // A runtime of its own: rounds block, and may run on a thread that belongs to another
        // runtime.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lake-s3")
            .enable_all()
            .build();

        Ok(Self {
            store: Arc::new(store.map_err(LakeError::read(&path))?),
            runtime: Some(runtime.map_err(LakeError::read(&path))?),
            address,
            prefix,
        })
    }

    fn key(&self, name: &str) -> Result<Key, LakeError> {
        // The prefix alone is the lake's folder, and has no slash at its end.
        let whole = match (self.prefix.as_str(), name) {
            (prefix, "") => prefix.to_owned(),
            ("", name) => name.to_owned(),
            (prefix, name) => format!("{prefix}/{name}"),
        };
        Key::parse(&whole)
            .map_err(io::Error::other)
            .map_err(LakeError::read(self.path_of(name)))
    }

    /// Runs a request to its end.
    fn wait<T>(&self, request: impl Future<Output = T> + Send + 'static) -> Result<T, io::Error>
    where
        T: Send + 'static,
    {
        // Not `block_on`, which panics on a thread of another runtime.
        let (send, answer) = mpsc::channel();
        self.runtime
            .as_ref()
            .expect("set until drop")
            .spawn(async move { send.send(request.await) });
        answer.recv().map_err(io::Error::other)
    }

    /// Runs a request that reads.
    fn read_by<T>(
        &self,
        name: &str,
        request: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<Option<T>, LakeError>
    where
        T: Send + 'static,
    {
        match self.wait(request) {
            // A missing file is no error: it may be the first round.
            Ok(Err(Error::NotFound { .. })) => Ok(None),
            Ok(done) => done.map(Some).map_err(io::Error::other),
            Err(error) => Err(error),
        }
        .map_err(LakeError::read(self.path_of(name)))
    }

    /// Puts a small file.
    fn put(&self, name: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        let generic = |source: Box<dyn std::error::Error + Send + Sync>| Error::Generic {
            store: "S3",
            source,
        };
        let key = self.key(name).map_err(|error| generic(error.into()))?;
        let store = Arc::clone(&self.store);
        let bytes = PutPayload::from(bytes.to_vec());
        let put = async move { store.put_opts(&key, bytes, mode.into()).await };
        self.wait(put)
            .map_err(|error| generic(error.into()))?
            .map(drop)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // All requests have ended.
            runtime.shutdown_background();
        }
    }
}

impl Files for Bucket {
    fn path_of(&self, name: &str) -> PathBuf {
        let name = if name.is_empty() {
            String::new()
        } else {
            format!("/{name}")
        };
        PathBuf::from(format!("s3://{}{name}", self.address))
    }

    fn begin(&mut self) -> Result<(), LakeError> {
        Ok(())
    }

    fn is_empty(&self) -> Result<bool, LakeError> {
        let store = Arc::clone(&self.store);
        let key = self.key("")?;
        // One name is enough; a bucket may hold millions.
        let first = async move { store.list(Some(&key)).try_next().await };
        let found = self.read_by("", first)?.flatten().is_none();
        Ok(found)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, LakeError> {
        let store = Arc::clone(&self.store);
        let key = self.key(folder)?;
        let start = format!("{key}/");

        let list = async move {
            store
                .list(Some(&key))
                .try_filter_map(|found| {
                    let name = found
                        .location
                        .as_ref()
                        .strip_prefix(&start)
                        .map(str::to_owned);
                    std::future::ready(Ok(name))
                })
                .try_collect::<Vec<String>>()
                .await
        };

        Ok(self.read_by(folder, list)?.unwrap_or_default())
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, LakeError> {
        let store = Arc::clone(&self.store);
        let key = self.key(name)?;
        let get = async move { store.get(&key).await?.bytes().await };
        Ok(self.read_by(name, get)?.map(|bytes| bytes.to_vec()))
    }

    fn size(&self, name: &str) -> Result<Option<u64>, LakeError> {
        let store = Arc::clone(&self.store);
        let key = self.key(name)?;
        let head = async move { store.head(&key).await };
        Ok(self.read_by(name, head)?.map(|found| found.size))
    }

    fn fetch(&self, name: &str, aside: &Path) -> Result<LocalFile, LakeError> {
        let path = self.path_of(name);
        // DuckDB reads files of this machine. The copy is deleted with the value, or, after a
        // crash, by a round a day later.
        let file = tempfile::Builder::new()
            .prefix(COPY)
            .suffix(".parquet")
            .tempfile_in(aside)
            .map_err(LakeError::write(aside))?;
        let (mut file, copy) = file.into_parts();

        let store = Arc::clone(&self.store);
        let key = self.key(name)?;
        let get = async move {
            let mut stream = store.get(&key).await?.into_stream();
            while let Some(bytes) = stream.try_next().await? {
                file.write_all(&bytes).map_err(|error| Error::Generic {
                    store: "S3",
                    source: error.into(),
                })?;
            }
            Ok(())
        };

        self.read_by(name, get)?
            .ok_or_else(|| LakeError::read(&path)(io::ErrorKind::NotFound.into()))?;
        Ok(LocalFile::Copy(copy))
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, LakeError> {
        crash_point("lake-commit-written");
        let Err(error) = self.put(name, bytes, PutMode::Create) else {
            return Ok(true);
        };

        // The reply may have been lost after the server took the file, also before a repetition.
        let is_ours = self.read(name).map(|found| found.map(|it| it == bytes));
        match is_ours {
            Ok(Some(is_ours)) => Ok(is_ours),
            Ok(None) | Err(_) => {
                let failed = LakeError::write(self.path_of(name));
                Err(failed(io::Error::other(error)))
            }
        }
    }

    fn check_create(&self, name: &str, bytes: &[u8]) -> Result<(), LakeError> {
        match self.put(name, bytes, PutMode::Create) {
            Err(Error::AlreadyExists { .. }) => Ok(()),
            // A server that takes the second put, or does not know the condition, would let two
            // writers lose commits.
            Ok(()) | Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                let path = self.path_of("");
                Err(LakeError::Unconditional { path })
            }
            Err(error) => Err(LakeError::write(self.path_of(name))(io::Error::other(
                error,
            ))),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), LakeError> {
        self.put(name, bytes, PutMode::Overwrite)
            .map_err(|error| LakeError::write(self.path_of(name))(io::Error::other(error)))
    }

    fn place(&self, source: &Path, name: &str) -> Result<u64, LakeError> {
        let mut file = File::open(source).map_err(LakeError::read(source))?;
        let size = file.metadata().map_err(LakeError::read(source))?.len();
        let store = Arc::clone(&self.store);
        let key = self.key(name)?;

        let put = async move {
            let failed = |source: io::Error| Error::Generic {
                store: "S3",
                source: source.into(),
            };
            // A single request is complete or does not exist; parts are joined by a last request.
            if size <= PART_BYTES {
                let part = next_part(&mut file, PART_BYTES).map_err(failed)?;
                return store.put(&key, part.into()).await.map(drop);
            }

            let mut upload = store.put_multipart(&key).await?;
            let send = async {
                loop {
                    let part =
                        next_part(&mut file, PART_BYTES.max(size / 9_000)).map_err(failed)?;
                    if part.is_empty() {
                        crash_point("lake-file-written");
                        return upload.complete().await.map(drop);
                    }
                    upload.put_part(part.into()).await?;
                }
            };

            let sent = send.await;
            if sent.is_err() {
                // Parts that stay cost money until the bucket's own rule removes them.
                let _ = upload.abort().await;
            }
            sent
        };

        self.wait(put)
            .and_then(|done| done.map_err(io::Error::other))
            .map_err(LakeError::write(self.path_of(name)))?;
        Ok(size)
    }

    fn delete(&self, name: &str) -> Result<(), LakeError> {
        let store = Arc::clone(&self.store);
        let key = self.key(name)?;
        let delete = async move {
            match store.delete(&key).await {
                // The reply to an earlier attempt may have been lost.
                Err(Error::NotFound { .. }) => Ok(()),
                done => done,
            }
        };
        self.wait(delete)
            .and_then(|done| done.map_err(io::Error::other))
            .map_err(LakeError::write(self.path_of(name)))
    }
}

/// The next bytes of a file; none at its end.
fn next_part(file: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.take(bytes).read_to_end(&mut part)?;
    Ok(part)
}

/// The keys of a user of S3.
#[derive(Debug, PartialEq, Eq)]
struct Keys {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Keys {
    /// Reads the configured file, or the environment.
    fn of(config: &S3Config) -> Result<Self, LakeError> {
        // Read in each round, so that changed keys need no restart.
        let Some(path) = &config.credentials_file else {
            let variable = |name: &str| env::var(name.to_uppercase()).ok();
            return Self::find(variable)
                .map_err(|key| missing(&format!("{} is not set", key.to_uppercase())));
        };
        let text = fs::read_to_string(path)
            .map_err(|error| missing(&format!("cannot read {}: {error}", path.display())))?;
        Self::parse(&text).map_err(|key| missing(&format!("{} has no {key}", path.display())))
    }

    /// Reads a file as Amazon's tools have it; only the first section counts.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));

        let mut has_keys = false;
        let mut found = Vec::new();
        for line in lines.by_ref() {
            match line.split_once('=') {
                Some((key, value)) => {
                    has_keys = true;
                    found.push((key.trim().to_lowercase(), value.trim().to_owned()));
                }
                // The next section belongs to another user.
                None if has_keys => break,
                None => {}
            }
        }

        Self::find(|name| {
            found
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        })
    }

    /// The keys that a function knows by their names; otherwise the name of the missing one.
    fn find(value: impl Fn(&str) -> Option<String>) -> Result<Self, &'static str> {
        let value = |name: &'static str| value(name).filter(|value| !value.is_empty());
        Ok(Self {
            id: value("aws_access_key_id").ok_or("aws_access_key_id")?,
            secret: value("aws_secret_access_key").ok_or("aws_secret_access_key")?,
            token: value("aws_session_token"),
        })
    }
}

fn missing(reason: &str) -> LakeError {
    LakeError::Keys {
        reason: reason.to_owned(),
    }
}

/// Makes the client of requests: the HTTP client and the TLS that the rest of Takt uses.
#[derive(Debug)]
struct Connector {
    allow_http: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> Result<HttpClient, Error> {
        let client = reqwest::Client::builder()
            .https_only(!self.allow_http)
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            // Files are compressed already, and a changed body would not fit its length.
            .no_gzip()
            .build()
            .map_err(|error| Error::Generic {
                store: "S3",
                source: error.into(),
            })?;
        Ok(HttpClient::new(Client(client)))
    }
}

/// Sends requests.
#[derive(Debug)]
struct Client(reqwest::Client);

#[async_trait::async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = parts
            .uri
            .to_string()
            .parse::<reqwest::Url>()
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        let response = self.0.execute(request).await.map_err(failed)?;
        let response = http::Response::<reqwest::Body>::from(response);
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(failed))))
    }
}

/// The kind of a failure, so that the right requests are repeated.
fn failed(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_decode() {
        HttpErrorKind::Decode
    } else {
        // The connection has ended. A repeated put writes the same bytes, and a commit that was made
        // before recognises itself.
        HttpErrorKind::Request
    };

    // The address has the signature.
    HttpError::new(kind, error.without_url())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_amazons_tools_write_them() {
        let text = "# mine\n[default]\naws_access_key_id = A1\nAWS_SECRET_ACCESS_KEY=s/+=\n\n\
                    [other]\naws_access_key_id = B2\naws_session_token = t\n";
        let keys = Keys::parse(text).unwrap();
        // A secret may contain `=`; the second section must not add its token to the first.
        assert_eq!((keys.id.as_str(), keys.secret.as_str()), ("A1", "s/+="));
        assert_eq!(keys.token, None);
        assert_eq!(
            Keys::parse("aws_access_key_id = A1\n"),
            Err("aws_secret_access_key")
        );
        assert_eq!(Keys::parse(""), Err("aws_access_key_id"));
    }
}
