//! Finds the configuration of a command and its data.

use crate::cli::Place;
use crate::source::Whereabouts;
use anyhow::Context;
use std::env;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use takt_api::SOCKET_FILE;
use takt_identity::read_token;
use takt_server::config::server_part;
use takt_server::{Config, Failure, OrUsage};
use takt_store::{DataDir, Holder};

/// Configuration of the server that is installed on this machine.
pub const INSTALLED_CONFIG: &str = "/etc/takt/takt.toml";

/// Data directory of the installed server. Its unit names it, so the configuration may leave it
/// out.
const INSTALLED_DATA_DIR: &str = "/var/lib/takt";

/// Data directory without options and without configuration.
const LOCAL_DATA_DIR: &str = "takt-data";

/// Returns the configuration that the command line names, or the defaults. For commands that run
/// the server.
pub fn load_named(place: &Place) -> anyhow::Result<Config> {
    place
        .config
        .as_deref()
        .map_or_else(|| Ok(Config::default()), read)
}

/// Returns the data directory of a server, from the command line or the environment (both in
/// `place`), the configuration, or `./takt-data`.
pub fn data_dir(config: &Config, place: &Place) -> PathBuf {
    place
        .data_dir
        .as_ref()
        .or(config.data_dir.as_ref())
        .cloned()
        .unwrap_or_else(|| LOCAL_DATA_DIR.into())
}

/// Returns the data directory of the server that a command is about.
pub fn server_dir(place: &Place, config: &Config) -> PathBuf {
    if uses_installed(place) && config.data_dir.is_none() {
        INSTALLED_DATA_DIR.into()
    } else {
        data_dir(config, place)
    }
}

/// Returns the absolute path, without a slash at its end.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    Ok(std::path::absolute(path)?.components().collect())
}

/// Returns the configuration that the command line names, else that of the installed server, else
/// the defaults.
pub fn load(place: &Place) -> anyhow::Result<Config> {
    config_file(place)
        .as_deref()
        .map_or_else(|| Ok(Config::default()), read)
}

/// Returns the file that [`load`] reads.
pub fn config_file(place: &Place) -> Option<PathBuf> {
    place
        .config
        .clone()
        .or_else(|| uses_installed(place).then(|| INSTALLED_CONFIG.into()))
}

/// Returns the mistakes in the configuration file, a line for each, and the file; `None` if it is valid
/// or cannot be read.
pub fn mistake(place: &Place) -> Option<(anyhow::Error, PathBuf)> {
    let file = config_file(place)?;
    let mistake = read(&file).err()?;
    // A file that this user may not read may be right.
    let is_unread = mistake.downcast_ref::<io::Error>().is_some();
    (!is_unread).then_some((mistake, file))
}

/// Returns the configuration with what a file with mistakes says of its server.
pub fn despite_mistakes(file: &Path) -> Config {
    let text = fs::read(file).unwrap_or_default();
    server_part(&String::from_utf8_lossy(&text), file)
}

/// Says whether a server runs although the file of `config` has mistakes: it holds the data directory, or
/// `answers`.
pub fn running_despite_mistakes(place: &Place, config: &Config, answers: bool) -> String {
    let dir = server_dir(place, config);
    let shown = dir.display();
    let who = match DataDir::holder(&dir) {
        Some(Holder {
            pid,
            address: Some(address),
            ..
        }) => format!(" ({address}, pid {pid})"),
        Some(Holder { pid, .. }) => {
            return format!(
                "Process {pid} holds {shown}: a command, or a server that is starting."
            );
        }
        None if answers => String::new(),
        None if DataDir::is_private(&dir) => {
            return format!("{shown} belongs to another user, so its server is unknown: use sudo.");
        }
        None => return format!("No server runs on {shown}, and none starts with this file."),
    };
    format!(
        "The server runs{who} with its previous configuration; with this file it does not start again."
    )
}

/// The configuration of a command and the place of its data.
pub fn find(place: &Place) -> Result<(Config, Whereabouts), Failure> {
    let config = match load(place) {
        // A user who may not read the configuration can still ask the server, at its usual address.
        Err(error) if uses_installed(place) && is_denied(&error) => {
            let config = Config::default();
            let url = url_of(&config.server.listen_address);
            let token = token(place.token_file.as_deref()).usage()?;
            let socket = Some(PathBuf::from(SOCKET_FILE));
            return Ok((config, Whereabouts::Server { url, token, socket }));
        }
        Err(error) => return find_despite(place, error),
        Ok(config) => config,
    };
    let at = whereabouts(place, &config)?;
    Ok((config, at))
}

/// Finds the running server of a configuration with a mistake, which it need not have read yet. Says the
/// mistake on standard error.
///
/// # Errors
/// The mistake, if no server runs: without one, the command would answer by a configuration that is
/// not the written one.
fn find_despite(place: &Place, mistake: anyhow::Error) -> Result<(Config, Whereabouts), Failure> {
    let file = config_file(place).filter(|file| place.server.is_none() && file.is_file());
    let Some(file) = file else {
        return Err(Failure::Usage(mistake));
    };

    // Only the parts that say where the server is; everything else is the server's own.
    let config = despite_mistakes(&file);
    let runs = DataDir::holder(&server_dir(place, &config)).is_some();
    if !runs {
        return Err(Failure::Usage(mistake));
    }
    writeln!(
        io::stderr(),
        "warning: {mistake:#}; the running server is asked all the same"
    )?;
    let at = whereabouts(place, &config)?;
    Ok((config, at))
}

/// The place of the data with this configuration.
pub fn whereabouts(place: &Place, config: &Config) -> Result<Whereabouts, Failure> {
    if let Some(url) = &place.server {
        let url = server_url(url).usage()?;
        let token = token(place.token_file.as_deref()).usage()?;
        return Ok(Whereabouts::Server {
            // A named token comes first, for programs that run as a user who has signed in.
            token: token.or_else(|| login_token(&url)),
            url,
            socket: None,
        });
    }

    let is_installed = uses_installed(place);
    let path = server_dir(place, config);
    // The configured server answers for its own directory, not for a restored backup that was named.
    let is_another =
        place.data_dir.is_some() && config.data_dir.is_some() && place.data_dir != config.data_dir;
    let has_config = (is_installed || place.config.is_some()) && !is_another;
    let url = has_config.then(|| url_of(&config.server.listen_address));
    let token_file = place.token_file.clone();

    let socket = if is_installed {
        let file = config
            .server
            .socket_file
            .clone()
            .unwrap_or_else(|| SOCKET_FILE.into());
        Some(file)
    } else {
        config.server.socket_file.clone()
    };

    Ok(Whereabouts::Directory {
        path,
        url,
        token_file,
        socket,
    })
}

/// Reads the token from the file, if one is named.
pub fn token(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    file.map(read_token).transpose()
}

/// Returns the file with the token that `takt login` got from a server; `None` without a home.
pub fn login_token_file(url: &str) -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))?;
    // One file a server: a token must never go to another one.
    let name: String = url
        .trim_end_matches('/')
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || ".-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    Some(config.join("takt/tokens").join(name))
}

/// Returns the token that `takt login` got from a server, if there is one.
fn login_token(url: &str) -> Option<String> {
    read_token(&login_token_file(url)?).ok()
}

/// Returns whether the command asks the installed server: a server is installed, no option names
/// another place, and no `takt up` or `takt serve` runs in the working directory.
fn uses_installed(place: &Place) -> bool {
    // A file that may not even be looked at exists.
    let is_missing =
        |path| fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let is_elsewhere = place.config.is_some() || place.data_dir.is_some() || place.server.is_some();
    !is_elsewhere
        && !is_missing(INSTALLED_CONFIG)
        && DataDir::holder(Path::new(LOCAL_DATA_DIR)).is_none()
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        // Editors of other systems save Latin-1; the line shows where the first such letter is.
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        let path = path.display();
        anyhow::anyhow!("{path}, line {line}: expected UTF-8; save the file in this encoding")
    })?;
    Ok(Config {
        file: Some(path.to_owned()),
        ..Config::parse(&text, path)?
    })
}

fn is_denied(error: &anyhow::Error) -> bool {
    let source = error.downcast_ref::<io::Error>();
    source.is_some_and(|source| source.kind() == ErrorKind::PermissionDenied)
}

/// Returns the URL of a server that listens on `address` of this machine.
fn url_of(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            format!("http://127.0.0.1:{}", address.port())
        }
        _ => format!("http://{address}"),
    }
}

fn server_url(url: &str) -> anyhow::Result<String> {
    let parsed = reqwest::Url::parse(url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"));
    if !parsed.is_some_and(|url| url.has_host()) {
        anyhow::bail!("--server: expected a URL such as http://head:9856, found {url:?}");
    }
    // Paths are appended with a slash of their own.
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_directory_is_not_answered_for_by_the_server_of_another_one() {
        let url = |data_dir: Option<&str>| {
            let place = Place {
                config: Some("takt.toml".into()),
                data_dir: data_dir.map(PathBuf::from),
                ..Place::default()
            };
            let config = Config {
                data_dir: Some("/srv/takt".into()),
                ..Config::default()
            };
            match whereabouts(&place, &config) {
                Ok(Whereabouts::Directory { url, .. }) => url,
                _ => panic!("a directory was named"),
            }
        };
        assert!(url(None).is_some() && url(Some("/srv/takt")).is_some());
        assert_eq!(url(Some("/srv/restored")), None);
    }

    #[test]
    fn a_slash_at_the_end_of_a_path_is_left_out() {
        for path in ["/srv/backup", "/srv/backup/", "/srv//backup//"] {
            // Paths are equal with and without the slash, texts are not.
            let found = absolute(Path::new(path)).unwrap();
            assert_eq!(found.to_str(), Some("/srv/backup"));
        }
    }
}
