//! Reads slurmrestd: Slurm over HTTP, with a user's token (JWT) or through a unix socket.
//!
//! Slurm reports many failures with status 200, so `errors` is read first, whatever the status. The
//! database reports a bad, expired or foreign token as error 1007, but slurmctld only as
//! "Unspecified error". slurmrestd never frees the memory of its largest answer, so periods are
//! short.

use super::config::JobsConfig;
use super::scheduler::{Scheduler, SchedulerAnswer, options};
use super::status::PollError;
use async_trait::async_trait;
use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use takt_jobs::{Node, Reservation, ShareSettings};
use takt_model::shown::refuse_user;
use takt_model::{ConfigError, UnixTime};
use takt_slurm::node;
use takt_slurm::openapi::LiveJob;
use takt_slurm::openapi::{self, OpenApiError};

/// A slurmrestd that is asked instead of Slurm's commands on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmrestdConfig {
    /// `http://HOST:PORT`, or `unix:/PATH` for a socket. Empty: use Slurm's commands.
    pub url: String,
    /// User of the token. Only a user with AdminLevel operator sees every job.
    pub user: String,
    /// File with the JWT (one line). It is read before each request, so it can be renewed. Not
    /// needed for a socket.
    pub token_file: Option<PathBuf>,
    /// API version, such as `v0.0.38`. Default: the newest that both sides support.
    pub version: Option<String>,
}

impl SlurmrestdConfig {
    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// The first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let is_socket = self.url.starts_with("unix:/");
        if !self.url.is_empty()
            && !is_socket
            && !self.url.starts_with("http://")
            && !self.url.starts_with("https://")
        {
            return Err(ConfigError::new(
                "slurmrestd.url",
                "http://HOST:PORT or unix:/PATH",
                &self.url,
            ));
        }

        refuse_user("slurmrestd.url", &self.url, "set token_file instead")?;

        if self.token_file.is_some() && self.user.is_empty() {
            return Err(ConfigError::new(
                "slurmrestd.user",
                "the user of the token",
                "nothing",
            ));
        }

        if !self.url.is_empty() && !is_socket && self.token_file.is_none() {
            return Err(ConfigError::new(
                "slurmrestd.token_file",
                "a file with the token",
                "nothing",
            ));
        }

        match &self.version {
            Some(version) if !VERSIONS.contains(&version.as_str()) => Err(ConfigError::new(
                "slurmrestd.version",
                format!("one of {}", VERSIONS.join(", ")),
                version,
            )),
            _ => Ok(()),
        }
    }
}

/// Supported API versions, newest first. Only the last one runs in the tests; the others are
/// implemented from their schemas.
pub const VERSIONS: &[&str] = &[
    "v0.0.46", "v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40", "v0.0.39",
    "v0.0.38",
];

/// Name of the program in messages.
const PROGRAM: &str = "slurmrestd";

/// Slurm's error number for a rejected token.
const ESLURM_AUTHENTICATION: i64 = 1007;

/// Slurm's error number for an unreachable slurmdbd.
const ESLURM_DATABASE_DOWN: i64 = 7000;

/// Slurm's error number for an empty result.
const ESLURM_REST_EMPTY_RESULT: i64 = 9003;

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// A connection to one slurmrestd.
#[derive(Debug)]
struct Slurmrestd {
    config: SlurmrestdConfig,
    http: Client,
    seconds: u64,
    /// API version, detected with the first request.
    version: Option<String>,
    /// Version of Slurm, when slurmctld last answered.
    slurm_version: Option<String>,
}

impl Slurmrestd {
    /// Creates the connection without sending a request.
    fn new(config: SlurmrestdConfig, timeout_seconds: u64) -> Result<Self, PollError> {
        // A request carries the token, which must not follow a redirect to another machine.
        let mut http = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .timeout(Duration::from_secs(timeout_seconds));

        if let Some(path) = config.url.strip_prefix("unix:") {
            http = http.unix_socket(PathBuf::from(path));
        }

        let http = http.build().map_err(failed)?;
        Ok(Self {
            version: config.version.clone(),
            slurm_version: None,
            config,
            http,
            seconds: timeout_seconds,
        })
    }

    /// Requests `GET /slurmdb/vX/…`.
    async fn database(&mut self, path: &str) -> Result<Value, PollError> {
        self.ask("slurmdb", path).await
    }

    /// Requests `GET /slurm/vX/…`.
    async fn controller(&mut self, path: &str) -> Result<Value, PollError> {
        self.ask("slurm", path).await
    }

    async fn ask(&mut self, of: &str, path: &str) -> Result<Value, PollError> {
        if let Some(version) = &self.version {
            let path = format!("/{of}/{version}/{path}");
            match self.get(&path).await? {
                Some(answer) => return Ok(answer),
                None if self.config.version.is_some() => {
                    return Err(other(format!("{path} does not exist")));
                }
                // slurmrestd was upgraded meanwhile. Detect the version again.
                None => self.version = None,
            }
        }

        for version in VERSIONS {
            if let Some(answer) = self.get(&format!("/{of}/{version}/{path}")).await? {
                tracing::info!(version, "detected slurmrestd's API version");
                self.version = Some((*version).to_owned());
                return Ok(answer);
            }
        }

        Err(other(format!(
            "{} has none of the API versions {}; if it is not slurmrestd's, correct jobs.slurmrestd.url",
            self.config.url,
            VERSIONS.join(", ")
        )))
    }

    /// Sends one request. Returns `None` if slurmrestd does not know the path.
    async fn get(&self, path: &str) -> Result<Option<Value>, PollError> {
        let host = if self.config.url.starts_with("unix:") {
            "http://localhost"
        } else {
            &self.config.url
        };

        let mut request = self
            .http
            .get(format!("{}{path}", host.trim_end_matches('/')));
        if let Some(file) = &self.config.token_file {
            let token =
                tokio::fs::read_to_string(file)
                    .await
                    .map_err(|source| PollError::Token {
                        path: file.clone(),
                        source,
                    })?;
            request = request.header("X-SLURM-USER-TOKEN", token.trim());
        }

        if !self.config.user.is_empty() {
            request = request.header("X-SLURM-USER-NAME", &self.config.user);
        }

        let response = request
            .send()
            .await
            .map_err(|error| self.unreachable(error))?;
        let status = response.status();

        if status.is_redirection() {
            let to = response.headers().get(LOCATION);
            let to = to.map_or("another address".into(), |to| {
                String::from_utf8_lossy(to.as_bytes())
            });
            return Err(other(format!(
                "{path}: {status}: it is a standby and names {to}; set jobs.slurmrestd.url to the one that answers"
            )));
        }

        let mut body = Vec::new();
        let mut response = response;
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.unreachable(error))?
        {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ANSWER_BYTES {
                return Err(other(format!(
                    "its answer is larger than {MAX_ANSWER_BYTES} bytes"
                )));
            }
        }

        if status == StatusCode::UNAUTHORIZED {
            return Err(PollError::Refused(
                "it requires a user and a token".to_owned(),
            ));
        }

        match serde_json::from_slice::<Value>(&body) {
            // slurmrestd does not support this version. Some releases report that in JSON.
            Ok(_) if status == StatusCode::NOT_FOUND && self.version.is_none() => Ok(None),
            Ok(answer) => match openapi::error(&answer) {
                // The period has no jobs.
                Some(error) if error.number == ESLURM_REST_EMPTY_RESULT => Ok(Some(Value::Null)),
                Some(error) => Err(meant(path, error)),
                None if status.is_success() && is_of_slurmrestd(&answer) => Ok(Some(answer)),
                None if status.is_success() => Err(self.foreign(path, status, &body)),
                None => Err(other(format!("{path}: {status}"))),
            },
            Err(_) if status == StatusCode::NOT_FOUND => Ok(None),
            Err(_) => {
                let begins = begin_of(&body);
                // Slurm 25.11.0 rejects a token with 500 and a text.
                Err(if is_about_authentication(&begins) {
                    PollError::Refused(begins)
                } else {
                    self.foreign(path, status, &body)
                })
            }
        }
    }

    /// The error of an answer that is not slurmrestd's: probably another web server's.
    fn foreign(&self, path: &str, status: StatusCode, body: &[u8]) -> PollError {
        other(format!(
            "the answer of {}{path} is not slurmrestd's ({status}: {}); correct jobs.slurmrestd.url",
            self.config.url.trim_end_matches('/'),
            begin_of(body)
        ))
    }

    fn unreachable(&self, error: reqwest::Error) -> PollError {
        if error.is_timeout() {
            return PollError::Timeout {
                program: PROGRAM,
                seconds: self.seconds,
            };
        }

        PollError::RestDown {
            url: self.config.url.clone(),
            source: error.without_url(),
        }
    }
}

/// Returns a slurmrestd if `jobs.slurmrestd.url` is set.
pub(super) fn from_config(config: &JobsConfig) -> Option<Result<Box<dyn Scheduler>, PollError>> {
    if config.slurmrestd.url.is_empty() {
        return None;
    }
    let rest = Slurmrestd::new(config.slurmrestd.clone(), config.timeout_seconds);
    Some(rest.map(|rest| Box::new(rest) as Box<dyn Scheduler>))
}

#[async_trait]
impl Scheduler for Slurmrestd {
    fn name(&self) -> &'static str {
        PROGRAM
    }

    fn window_seconds(&self) -> i64 {
        // slurmrestd sends JSON, 3 kB per job, and keeps the whole answer in memory.
        86_400
    }

    fn records_lack_reservations(&self) -> bool {
        // Observed with Slurm 22.05.
        true
    }

    async fn cluster(&mut self) -> Result<String, PollError> {
        let answer = self.database("clusters").await?;
        let clusters: Vec<&str> = answer["clusters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
            .collect();

        match clusters.as_slice() {
            [only] => Ok((*only).to_owned()),
            _ => Err(other(format!(
                "it knows {} clusters; set cluster in takt.toml",
                clusters.len()
            ))),
        }
    }

    async fn time(&mut self) -> Option<UnixTime> {
        let answer = self.controller("diag").await.ok()?;
        self.slurm_version = openapi::version(&answer);
        openapi::time(&answer)
    }

    fn version(&self) -> Option<String> {
        self.slurm_version.clone()
    }

    async fn nodes(&mut self) -> Result<Vec<Node>, PollError> {
        let answer = self.controller("nodes").await?;
        Ok(openapi::nodes(&answer).iter().map(node::node).collect())
    }

    async fn reservations(&mut self) -> Result<Vec<Reservation>, PollError> {
        let answer = self.controller("reservations").await?;
        Ok(openapi::reservations(&answer))
    }

    /// The answers do not contain the usage decay, so Slurm's defaults apply.
    async fn shares(&mut self, cluster: &str) -> Result<ShareSettings, PollError> {
        let associations = self.database("associations").await?;
        let qos = self.database("qos").await?;
        let partitions = self.controller("partitions").await?;

        Ok(ShareSettings {
            associations: openapi::associations(&associations, cluster),
            partitions: openapi::billing_weights(&partitions),
            qos: openapi::qos(&qos),
            ..ShareSettings::default()
        })
    }

    async fn live_jobs(&mut self, cluster: &str) -> Result<Vec<LiveJob>, PollError> {
        let answer = self.controller("jobs").await?;
        Ok(openapi::live_jobs(&answer, &options(cluster)))
    }

    async fn jobs_in(
        &mut self,
        from: UnixTime,
        to: Option<UnixTime>,
    ) -> Result<SchedulerAnswer, PollError> {
        let until = to.map_or_else(String::new, |to| format!("&end_time=uts{to}"));
        let path = format!("jobs?start_time=uts{from}{until}");
        Ok(SchedulerAnswer::Database(vec![self.database(&path).await?]))
    }

    async fn jobs_by_id(&mut self, ids: &[&str]) -> Result<SchedulerAnswer, PollError> {
        let mut answers = Vec::new();
        for id in ids {
            match self.database(&format!("job/{id}")).await {
                Ok(answer) => answers.push(answer),
                // slurmrestd fails for a purged job. Request the other jobs anyway.
                Err(PollError::Failed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SchedulerAnswer::Database(answers))
    }
}

/// Returns whether JSON is an answer of slurmrestd: all of them have these, whatever the version.
fn is_of_slurmrestd(answer: &Value) -> bool {
    answer.get("meta").is_some() || answer.get("errors").is_some()
}

/// Returns the beginning of an answer, for an error.
fn begin_of(body: &[u8]) -> String {
    let begin: String = String::from_utf8_lossy(body).chars().take(80).collect();
    begin.trim().to_owned()
}

/// Converts an error of Slurm.
fn meant(path: &str, error: OpenApiError) -> PollError {
    let controller = path.starts_with("/slurm/");
    match error.number {
        ESLURM_AUTHENTICATION => PollError::Refused(error.to_string()),
        _ if is_about_authentication(&error.description) => PollError::Refused(error.to_string()),
        ESLURM_DATABASE_DOWN => PollError::DatabaseDown(error.to_string()),
        // slurmctld reports a bad token and an outage with the same error.
        -1 if controller => {
            PollError::ControllerDown(format!("{error}; is slurmctld up, and the token valid?"))
        }
        _ if error
            .description
            .contains("Unable to contact slurm controller") =>
        {
            PollError::ControllerDown(error.to_string())
        }
        _ => other(error.to_string()),
    }
}

/// Returns whether an error message says that a token was rejected.
fn is_about_authentication(message: &str) -> bool {
    let message = message.to_lowercase();
    ["authentication", "authenticate", "invalid token"]
        .iter()
        .any(|word| message.contains(word))
}

fn other(stderr: String) -> PollError {
    PollError::Failed {
        program: PROGRAM,
        stderr,
    }
}

fn failed(error: reqwest::Error) -> PollError {
    other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedulers::PollState;
    use rustls::crypto::ring;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    /// Returns the error of a slurmrestd with this answer to its first request.
    async fn answered(status: &str, header: &str, body: &str) -> PollError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 {status}\r\n{header}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let served = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).unwrap();
            socket.write_all(answer.as_bytes()).unwrap();
        });
        let config = SlurmrestdConfig {
            url: format!("http://{address}"),
            version: Some("v0.0.45".to_owned()),
            ..SlurmrestdConfig::default()
        };
        let _ = ring::default_provider().install_default();
        let mut rest = Slurmrestd::new(config, 5).unwrap();
        let error = rest.controller("nodes").await.unwrap_err();
        served.join().unwrap();
        error
    }

    #[tokio::test]
    async fn the_ways_of_each_release_to_refuse_are_understood() {
        let errors = |number: i64, text: &str| {
            json!({"errors": [{"error_number": number, "error": "", "description": text}]})
                .to_string()
        };
        let [authentication, away] = [
            "Protocol authentication error",
            "Unable to contact slurm controller (connect failure)",
        ];
        for (status, header, body, state, detail) in [
            (
                "401 Unauthorized",
                "",
                String::new(),
                PollState::Refused,
                "requires a user and a token",
            ),
            // 25.11.0
            (
                "500 Internal Server Error",
                "",
                "Authentication failure".to_owned(),
                PollState::Refused,
                "Authentication failure",
            ),
            // Since 26.05 422 instead of 500.
            (
                "422 Unprocessable Entity",
                "",
                errors(1007, authentication),
                PollState::Refused,
                authentication,
            ),
            (
                "422 Unprocessable Entity",
                "",
                errors(-1, away),
                PollState::ControllerDown,
                away,
            ),
            (
                "422 Unprocessable Entity",
                "",
                "{}".to_owned(),
                PollState::Failed,
                "422 Unprocessable Entity",
            ),
            // Another web server.
            (
                "200 OK",
                "",
                "ok".to_owned(),
                PollState::Failed,
                "/slurm/v0.0.45/nodes is not slurmrestd's (200 OK: ok); correct jobs.slurmrestd.url",
            ),
            (
                "200 OK",
                "",
                "{\"status\": \"ok\"}".to_owned(),
                PollState::Failed,
                "is not slurmrestd's",
            ),
            // A standby.
            (
                "303 See Other",
                "Location: http://ctl1:6820/\r\n",
                String::new(),
                PollState::Failed,
                "it is a standby and names http://ctl1:6820/",
            ),
        ] {
            let error = answered(status, header, &body).await;
            assert_eq!(error.state(), state, "{status} {body}: {error}");
            assert!(error.to_string().contains(detail), "{error}");
        }
    }

    #[test]
    fn a_configuration_that_makes_no_sense_says_which_key() {
        let of =
            |url: &str, user: &str, token: Option<&str>, version: Option<&str>| SlurmrestdConfig {
                url: url.into(),
                user: user.into(),
                token_file: token.map(PathBuf::from),
                version: version.map(str::to_owned),
            };
        assert_eq!(SlurmrestdConfig::default().validate(), Ok(()));
        assert_eq!(
            of("unix:/run/slurmrestd.sock", "", None, Some("v0.0.38")).validate(),
            Ok(())
        );
        assert_eq!(
            of("http://ctl:6820", "monitor", Some("jwt"), None).validate(),
            Ok(())
        );
        for (config, key) in [
            (
                of("ctl:6820", "monitor", Some("jwt"), None),
                "slurmrestd.url",
            ),
            (
                of("http://ctl:6820", "", Some("jwt"), None),
                "slurmrestd.user",
            ),
            (
                of("http://ctl:6820", "monitor", None, None),
                "slurmrestd.token_file",
            ),
            (
                of("http://ctl:6820", "monitor", Some("jwt"), Some("38")),
                "slurmrestd.version",
            ),
        ] {
            assert!(
                config.validate().unwrap_err().to_string().starts_with(key),
                "{key}"
            );
        }
    }
}
