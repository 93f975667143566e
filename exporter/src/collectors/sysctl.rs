//! Settings of the kernel that the administrator names.
//!
//! Source: `/proc/sys`. `--collector.sysctl.include` takes the dotted name of a setting with
//! numbers, and, behind a colon, names for them where there are several:
//! `net.ipv4.tcp_rmem:min,default,max`.

use crate::collector::{CollectError, Collector};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Family, Kind, Metric, Samples};

/// Flags of the collector `sysctl`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct SysctlOptions {
    /// A setting with numbers, NAME or NAME:FIELD,FIELD. May be repeated.
    #[arg(long = "collector.sysctl.include", value_name = "NAME")]
    pub include: Vec<String>,
    /// A setting with text, given as labels. May be repeated.
    #[arg(long = "collector.sysctl.include-info", value_name = "NAME")]
    pub include_info: Vec<String>,
}

struct Sysctl {
    directory: PathBuf,
    numbers: Vec<Setting>,
    texts: Vec<Setting>,
}

struct Setting {
    name: String,
    fields: Vec<String>,
}

const INFO: Metric = Metric::gauge(
    "node_sysctl_info",
    "sysctl info",
    &["name", "value", "index"],
);
/// Family of settings. The help text is made per setting, because it has the setting's name with
/// dots.
const VALUES: Family = Family {
    prefix: "node_sysctl_",
    help: "sysctl {}",
    kind: Kind::Unknown,
    labels: &[],
};

pub(crate) fn new(paths: &Paths, options: &SysctlOptions) -> Box<dyn Collector> {
    let settings = |flags: &[String]| flags.iter().map(|flag| Setting::new(flag)).collect();
    Box::new(Sysctl {
        directory: paths.procfs.join("sys"),
        numbers: settings(&options.include),
        texts: settings(&options.include_info),
    })
}

impl Collector for Sysctl {
    fn metrics(&self) -> &'static [Metric] {
        &[INFO]
    }

    fn families(&self) -> &'static [Family] {
        &[VALUES]
    }

    fn max_series(&self) -> usize {
        (self.numbers.len() + self.texts.len()) * 256
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for setting in &self.numbers {
            let words = setting.words(&self.directory)?;
            let pushed = setting.push_numbers(&words, out);
            pushed.map_err(|expected| CollectError::Parse {
                path: setting.path(&self.directory),
                line: 1,
                expected,
            })?;
        }

        for setting in &self.texts {
            // Text has no names for its parts, so they are numbered.
            for (index, word) in setting.words(&self.directory)?.iter().enumerate() {
                let index = index.to_string();
                out.push(&INFO, &[setting.name.as_str(), word, &index], 1.0);
            }
        }
        Ok(())
    }
}

impl Setting {
    fn new(flag: &str) -> Self {
        let (name, fields) = flag.split_once(':').unwrap_or((flag, ""));
        let fields = fields.split(',').filter(|field| !field.is_empty());
        Self {
            name: name.to_owned(),
            fields: fields.map(str::to_owned).collect(),
        }
    }

    fn path(&self, directory: &Path) -> PathBuf {
        // As in node_exporter, each dot separates two directories.
        directory.join(self.name.replace('.', "/"))
    }

    fn words(&self, directory: &Path) -> Result<Vec<String>, CollectError> {
        let path = self.path(directory);
        let text = sysfs::try_text(&path).map_err(|error| CollectError::read(&path, error))?;
        Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
    }

    /// One number has no label, several have an index or the names that were given for them.
    fn push_numbers(&self, words: &[String], out: &mut Samples) -> Result<(), &'static str> {
        // Some settings are negative, none has a fraction.
        let numbers = words.iter().map(|word| word.parse::<i64>());
        let numbers: Result<Vec<_>, _> = numbers.collect();
        let numbers = numbers.map_err(|_| "whole numbers")?;
        if numbers.is_empty() || (!self.fields.is_empty() && numbers.len() != self.fields.len()) {
            return Err("as many numbers as the flag names fields");
        }

        let name = |field: &str| metric_name(&format!("{}{}{field}", VALUES.prefix, self.name));
        for (index, number) in numbers.iter().enumerate() {
            let number = *number as f64;
            let mut help = format!("sysctl {}", self.name);
            match (self.fields.get(index), &numbers[..]) {
                (Some(field), _) => {
                    help += &format!(", field {index}");
                    let name = name(&format!("_{field}"));
                    out.push_foreign(&name, Kind::Unknown, &help, &[], number);
                }
                (None, [_]) => out.push_foreign(&name(""), Kind::Unknown, &help, &[], number),
                (None, _) => {
                    let index = index.to_string();
                    let labels = [("index", index.as_str())];
                    out.push_foreign(&name(""), Kind::Unknown, &help, &labels, number);
                }
            }
        }
        Ok(())
    }
}

fn metric_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.replace(|c: char| !is_plain(c), "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::exposition::{Format, write_page};

    fn lines(flag: &str, words: &str) -> Result<Vec<String>, &'static str> {
        let mut samples = Samples::new();
        let mut page = String::new();
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        Setting::new(flag).push_numbers(&words, &mut samples)?;
        write_page(Format::Text, [&samples], &mut page);
        Ok(page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect())
    }

    #[test]
    fn one_number_or_several_with_and_without_names() {
        assert_eq!(
            lines("kernel.threads-max", "7801").unwrap(),
            ["node_sysctl_kernel_threads_max 7801"]
        );
        let named = lines("net.ipv4.tcp_rmem:min,max", "4096 6291456").unwrap();
        assert_eq!(
            named,
            [
                "node_sysctl_net_ipv4_tcp_rmem_min 4096",
                "node_sysctl_net_ipv4_tcp_rmem_max 6291456"
            ]
        );
        let several = lines("fs.file-nr", "1 0").unwrap();
        assert_eq!(
            several,
            [
                r#"node_sysctl_fs_file_nr{index="0"} 1"#,
                r#"node_sysctl_fs_file_nr{index="1"} 0"#
            ]
        );
        assert!(lines("net.ipv4.tcp_rmem:min", "4096 6291456").is_err());
        assert!(lines("kernel.hostname", "node").is_err());
    }
}
