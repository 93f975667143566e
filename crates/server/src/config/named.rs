//! Names in a configuration that cannot be used: files, folders and commands that its machine does not
//! have, and targets that can never be scraped. The server starts without them.

use super::Config;
use anyhow::{Context, Error};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use takt_identity::check_files;
use takt_model::ConfigError;
use takt_store::DataDir;

impl Config {
    /// Returns each key that names something which cannot be used: [`Config::missing`], and static targets
    /// that can never be scraped.
    pub fn unusable(&self, data_dir: &Path) -> Vec<ConfigError> {
        let targets = self.scrape.invalid_targets().into_iter();
        let targets = targets.map(|error| error.in_section("scrape"));
        self.missing(data_dir).into_iter().chain(targets).collect()
    }

    /// Returns each key that names something which this machine does not have, or not as it must be.
    /// `data_dir` is the data directory in use.
    pub fn missing(&self, data_dir: &Path) -> Vec<ConfigError> {
        let secrets = self
            .secret_files()
            .filter_map(|(key, file)| secret_defect(&key, file, data_dir));

        let of_machine = [
            data_dir_defect(data_dir),
            self.slurm_defect(),
            self.socket_defect(),
        ];
        let of_discovery = self.scrape.missing_commands();
        let of_discovery = of_discovery
            .into_iter()
            .map(|error| error.in_section("scrape"));

        of_machine
            .into_iter()
            .flatten()
            .chain(of_discovery)
            .chain(secrets)
            .collect()
    }

    /// Returns everything that the configuration names and that cannot be used, with the line of its key. With some of it the
    /// server does not start.
    pub fn defects(&self, data_dir: &Path) -> Vec<Error> {
        let unusable = self.unusable(data_dir);
        let mut found: Vec<Error> = unusable.iter().map(|error| self.located(error)).collect();

        // A file that is missing is named once.
        if self.missing(data_dir).is_empty() {
            let checked = [
                self.server_tokens().map(drop),
                self.sender_tokens().map(drop),
                self.check_engines(),
                self.sql.check_files().context("sql"),
                check_files(&self.auth).context("auth"),
            ];
            found.extend(checked.into_iter().filter_map(Result::err));
        }
        found
    }

    /// A socket that cannot be made: its folder is absent, or its path is longer than the kernel takes.
    fn socket_defect(&self) -> Option<ConfigError> {
        // Empty is none.
        let path = self.server.socket_file.as_deref()?;
        let folder = path.parent()?;

        let key = "server.socket_file";
        let length = path.as_os_str().len();
        if length > SOCKET_PATH_MAX {
            let expected = format!("a path of at most {SOCKET_PATH_MAX} bytes");
            return Some(ConfigError::new(key, expected, format!("{length} bytes")));
        }
        // systemd makes folders below /run when it starts the server.
        let is_made_later = folder.as_os_str().is_empty() || folder.starts_with("/run");
        (!is_made_later && !folder.is_dir()).then(|| {
            let found = format!("no folder {}", folder.display());
            ConfigError::new(key, "a socket in a folder that exists", found)
        })
    }

    /// Slurm's commands or its job completion file, if they are named, asked for, and absent.
    fn slurm_defect(&self) -> Option<ConfigError> {
        let jobs = &self.jobs;
        // Commands and files are not used where slurmrestd is asked, or nothing is.
        if !jobs.poll || !jobs.slurmrestd.url.is_empty() {
            return None;
        }

        let wrong = |key, expected, found| Some(ConfigError::new(key, expected, found));
        if let Some(folder) = &jobs.slurm_bin
            && !folder.join("scontrol").is_file()
        {
            let found = format!("no scontrol in {}", folder.display());
            let expected = "the folder of sacct, squeue and scontrol";
            return wrong("jobs.slurm_bin", expected, found);
        }
        if let Some(file) = &jobs.jobcomp_file
            && !file.is_file()
        {
            let expected = "the file that JobCompLoc in slurm.conf names";
            let found = format!("no file {}", file.display());
            return wrong("jobs.jobcomp_file", expected, found);
        }
        None
    }
}

/// Longest path of a Unix socket, in bytes (`sun_path` in unix(7), without its end).
const SOCKET_PATH_MAX: usize = 107;

fn data_dir_defect(data_dir: &Path) -> Option<ConfigError> {
    if let Some(filesystem) = DataDir::unsuitable_filesystem(data_dir) {
        let found = format!("{} on {filesystem}", data_dir.display());
        return Some(ConfigError::new(
            "data_dir",
            "a folder on a local disk",
            found,
        ));
    }
    let is_file = fs::metadata(data_dir).is_ok_and(|found| !found.is_dir());
    is_file.then(|| {
        let found = format!("the file {}", data_dir.display());
        ConfigError::new("data_dir", "a folder", found)
    })
}

/// A file with a secret that is absent, or that backups and copies of the data would contain.
fn secret_defect(key: &str, file: &Path, data_dir: &Path) -> Option<ConfigError> {
    match fs::canonicalize(file) {
        Ok(found) => {
            let data_dir = fs::canonicalize(data_dir).ok()?;
            found.starts_with(&data_dir).then(|| {
                let expected =
                    "a file outside of the data directory, whose copies would contain it";
                ConfigError::new(key, expected, file.display())
            })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let expected = "a file with the secret";
            let found = format!("no file {}", file.display());
            Some(ConfigError::new(key, expected, found))
        }
        // What is closed to this user may be open to the server's.
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn a_data_directory_of_the_kernel_is_refused() {
        let unusable = Config::default().unusable(Path::new("/proc/takt"));
        let said: Vec<String> = unusable.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["data_dir: expected a folder on a local disk, found /proc/takt on proc"]
        );
    }

    #[test]
    fn what_the_machine_does_not_have_is_named_with_line_and_key() {
        let folder = tempdir().unwrap();
        let here = |name: &str| folder.path().join(name);
        fs::create_dir_all(here("data")).unwrap();
        fs::create_dir_all(here("bin")).unwrap();
        for file in ["data/token", "token", "bin/scontrol", "completions"] {
            fs::write(here(file), "0123456789abcdef").unwrap();
        }

        let said = |data_dir: &str, text: &str| {
            fs::write(here("takt.toml"), text).unwrap();
            let config = Config {
                file: Some(here("takt.toml")),
                ..Config::parse(text, &here("takt.toml")).unwrap()
            };

            let unusable = config.unusable(&here(data_dir));
            let located = unusable
                .iter()
                .map(|error| config.located(error).to_string());
            let said = located.collect::<Vec<_>>().join("\n");
            said.replace(&format!("{}/", folder.path().display()), "")
        };

        for (data_dir, text, expected) in [
            (
                "token",
                "data_dir = 'token'",
                "takt.toml, line 1: data_dir: expected a folder, found the file token",
            ),
            (
                "data",
                "[server]\ntoken_file = 'data/token'",
                "takt.toml, line 2: server.token_file: expected a file outside of the data directory, \
                 whose copies would contain it, found data/token",
            ),
            (
                "data",
                "[alerts]\nslack_webhook_file = 'nope'",
                "takt.toml, line 2: alerts.slack_webhook_file: expected a file with the secret, found \
                 no file nope",
            ),
            (
                "data",
                "[[push.senders]]\nname = 'a'\ntoken_file = 'nope'",
                "takt.toml, line 3: push.senders[0].token_file: expected a file with the secret, found \
                 no file nope",
            ),
            (
                "data",
                "[jobs]\nslurm_bin = 'data'",
                "takt.toml, line 2: jobs.slurm_bin: expected the folder of sacct, squeue and \
                 scontrol, found no scontrol in data",
            ),
            (
                "data",
                "[jobs]\nslurm_bin = 'bin'\njobcomp_file = 'nope'",
                "takt.toml, line 3: jobs.jobcomp_file: expected the file that JobCompLoc in slurm.conf \
                 names, found no file nope",
            ),
            ("data", "[jobs]\nslurm_bin = 'nope'\npoll = false", ""),
            (
                "data",
                "[server]\nsocket_file = 'nope/t.sock'",
                "takt.toml, line 2: server.socket_file: expected a socket in a folder that exists, found no folder nope",
            ),
            ("data", "[server]\nsocket_file = 't.sock'", ""),
            ("data", "[server]\nsocket_file = '/run/nope/t.sock'", ""),
            (
                "data",
                "[[scrape.configs]]\njob_name = 'node'\nslurm_sd_configs = [{ slurm_bin = 'bin' }, \
                 { slurm_bin = 'nope' }]",
                "takt.toml, line 3: scrape: configs[0].slurm_sd_configs[1].slurm_bin: expected the \
                 folder of scontrol, found no scontrol in nope",
            ),
            (
                "data",
                "[[scrape.configs]]\njob_name = 'node'\n[[scrape.configs.static_configs]]\n\
                 targets = [\n'g01:9855',\n'g02:98555',\n]",
                "takt.toml, line 6: scrape: configs[0].static_configs[0].targets[1]: __address__: \
                 expected host:port with a port from 1 to 65535, or a host alone for port 80 (http) \
                 or 443 (https), found \"g02:98555\"",
            ),
            (
                "new",
                "[server]\ntoken_file = 'token'\n[jobs]\nslurm_bin = 'bin'\njobcomp_file = 'completions'",
                "",
            ),
        ] {
            assert_eq!(said(data_dir, text), expected, "{text}");
        }
    }
}
