//! What a configuration names on its machine, and the machine does not have: files, folders and
//! commands.

use super::Config;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use takt_model::ConfigError;

impl Config {
    /// Returns each key that names something which this machine does not have, or not as it must be.
    /// `data_dir` is the data directory in use.
    pub fn missing(&self, data_dir: &Path) -> Vec<ConfigError> {
        let secrets = self
            .secret_files()
            .filter_map(|(key, file)| secret_defect(&key, file, data_dir));
        let of_machine = [data_dir_defect(data_dir), self.slurm_defect()];

        of_machine.into_iter().flatten().chain(secrets).collect()
    }

    /// Fails at the first of [`Config::missing`]. The message has the line of the key.
    ///
    /// # Errors
    /// If something is missing.
    pub fn check_missing(&self, data_dir: &Path) -> anyhow::Result<()> {
        match self.missing(data_dir).first() {
            Some(error) => Err(self.located(error)),
            None => Ok(()),
        }
    }

    /// Slurm's commands or its job completion file, if they are named, asked for, and absent.
    fn slurm_defect(&self) -> Option<ConfigError> {
        let jobs = &self.jobs;
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

fn data_dir_defect(data_dir: &Path) -> Option<ConfigError> {
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
            let said = config.check_missing(&here(data_dir)).err();
            let said = said.map_or_else(String::new, |said| said.to_string());
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
                "new",
                "[server]\ntoken_file = 'token'\n[jobs]\nslurm_bin = 'bin'\njobcomp_file = 'completions'",
                "",
            ),
        ] {
            assert_eq!(said(data_dir, text), expected, "{text}");
        }
    }
}
