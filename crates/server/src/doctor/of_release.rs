//! What an upgrade of Slurm changes at this site.

use super::facts::Facts;
use super::{Diagnosis, Finding, Severity, finding};
use takt_collector::schedulers::API_VERSIONS;
use takt_collector::scrape::ScrapeConfig;
use takt_slurm::releases::{Release, ReleaseChange, SlurmUse, UPGRADES_FROM};

/// Id of the findings.
const UPGRADE: &str = "slurm.upgrade";

/// Port of slurmctld, which has the metrics since 25.11.
const SLURMCTLD_PORT: &str = ":6817";

/// Returns whether slurmctld's own metrics are a target.
pub(super) fn scrapes_slurmctld(config: &ScrapeConfig) -> bool {
    config.targets.iter().any(|target| {
        target.address.ends_with(SLURMCTLD_PORT)
            || target.url.contains(&format!("{SLURMCTLD_PORT}/"))
    })
}

/// Returns what an upgrade to `release` changes at this site: what would stop first.
pub(super) fn diagnose(facts: &Facts, release: Release) -> Diagnosis {
    let mut found = unknown_release(release);
    found.extend(long_way(facts, release));
    found.extend(api_version(facts, release));

    // Without the installed release, all changes since the oldest possible one are listed.
    let changes = release.changes_since(installed_or_oldest(facts, release));
    found.extend(
        changes
            .filter(|change| is_used(facts, change.part))
            .map(changed),
    );

    let mut diagnosis = Diagnosis::default();
    if found.is_empty() {
        diagnosis.in_order.push(UPGRADE.to_owned());
    }

    found.sort_by_key(|finding| finding.severity);
    diagnosis.findings = found
        .into_iter()
        .map(|finding| Finding {
            id: UPGRADE.to_owned(),
            ..finding
        })
        .collect();
    diagnosis
}

/// The release that runs, as slurmctld said.
fn installed(facts: &Facts) -> Option<Release> {
    facts
        .values("takt_slurm_info")
        .iter()
        .find_map(|info| info.label("version").parse().ok())
}

/// The release that runs, or the oldest from which Slurm can be upgraded to `release`.
fn installed_or_oldest(facts: &Facts, release: Release) -> Release {
    installed(facts)
        .or_else(|| release.upgrades_from().last().copied())
        .unwrap_or(release)
}

fn is_used(facts: &Facts, part: SlurmUse) -> bool {
    let config = &facts.config;
    match part {
        SlurmUse::Queue => config.polls_slurm,
        SlurmUse::Accounting => config.polls_slurm && !config.reads_completion_file,
        SlurmUse::Slurmrestd => config.polls_slurm && !config.slurmrestd.url.is_empty(),
        SlurmUse::Cgroups => !facts.values("takt_exporter_build_info").is_empty(),
        SlurmUse::Munge => config.auth.munge,
        SlurmUse::ControllerMetrics => config.scrapes_slurmctld,
    }
}

fn changed(change: &ReleaseChange) -> Finding {
    let fix = change.fix.iter().map(|line| (*line).to_owned());
    finding(
        Severity::Warning,
        "",
        change.change.to_owned(),
        change.cost,
        fix,
    )
}

fn unknown_release(release: Release) -> Vec<Finding> {
    let newest = Release::newest();
    if release <= newest {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "",
        format!("this version of Takt knows the releases of Slurm up to {newest}"),
        "What later releases change is not listed here.",
        ["takt --version        # look for a newer one".to_owned()],
    )]
}

fn long_way(facts: &Facts, release: Release) -> Option<Finding> {
    let from = installed(facts)?;
    let nearest = release.upgrades_from();
    // A downgrade is not judged here, and the next releases can be installed directly.
    if from >= release || nearest.contains(&from) {
        return None;
    }
    let nearest: Vec<String> = nearest.iter().map(Release::to_string).collect();
    Some(finding(
        Severity::Failure,
        "",
        format!(
            "Slurm {release} can be installed over {}, and this is {from}",
            nearest.join(", ")
        ),
        "slurmctld and slurmdbd lose their state if more releases are skipped.",
        [format!(
            "# upgrade in steps of at most {UPGRADES_FROM} releases"
        )],
    ))
}

/// The newest API version that Takt reads from the slurmrestd of this site. `None` if its release is unknown.
pub(super) fn newest_api_version(facts: &Facts) -> Option<&'static str> {
    newest_of(installed(facts)?)
}

/// The newest API version of a release that Takt reads.
fn newest_of(release: Release) -> Option<&'static str> {
    let there = release.api_versions();
    let mut known = API_VERSIONS.iter().copied();
    known.find(|version| there.contains(version))
}

/// The API version of slurmrestd that Takt would use.
fn api_version(facts: &Facts, release: Release) -> Option<Finding> {
    if !is_used(facts, SlurmUse::Slurmrestd) || release > Release::newest() {
        return None;
    }

    let configured = facts.config.slurmrestd.version.as_deref()?;
    if release.api_versions().contains(&configured) {
        return None;
    }
    let best = newest_of(release)?;
    Some(finding(
        Severity::Failure,
        "",
        format!("slurmrestd {release} does not have the API version {configured} of takt.toml"),
        "Takt will read no jobs and nodes.",
        [format!(
            "version = \"{best}\"        # in [jobs.slurmrestd]; without the line, Takt finds a version itself"
        )],
    ))
}

#[cfg(test)]
mod tests {
    use super::super::facts::Reading;
    use super::*;
    use crate::doctor::DoctorConfig;
    use takt_collector::schedulers::SlurmrestdConfig;
    use takt_model::{METRIC_NAME, Timestamp};
    use takt_slurm::releases::RELEASES;

    /// Facts of a site whose slurmctld has this version; empty if it is unknown.
    fn site(version: &str, config: DoctorConfig) -> Facts {
        let mut facts = Facts {
            config,
            ..Facts::default()
        };

        let mut has = |metric: &str, labels: &[(&str, &str)]| {
            let mut all: takt_model::Labels = labels.iter().copied().collect();
            all.set(METRIC_NAME, metric);
            let reading = Reading {
                labels: all,
                at: Timestamp(0),
                value: 1.0,
            };
            facts.readings.insert(metric.to_owned(), vec![reading]);
        };

        has("takt_exporter_build_info", &[("node", "g01")]);
        if !version.is_empty() {
            has("takt_slurm_info", &[("version", version)]);
        }
        facts
    }

    /// The findings: `✗` for what would stop, and the beginning of each.
    fn found(facts: &Facts, release: &str) -> Vec<String> {
        diagnose(facts, release.parse().unwrap())
            .findings
            .iter()
            .map(|finding| {
                let mark = match finding.severity {
                    Severity::Failure => "✗ ",
                    Severity::Warning => "",
                };
                let words: Vec<&str> = finding.evidence.split(' ').take(6).collect();
                format!("{mark}{}", words.join(" "))
            })
            .collect()
    }

    #[test]
    fn an_upgrade_lists_what_changes_at_this_site() {
        let commands = DoctorConfig {
            polls_slurm: true,
            ..DoctorConfig::default()
        };
        let of_2605 = [
            "cgroups of jobs are named by",
            "jobs that wait for a place",
            "the memory of a running job",
            "slurmdbd can be told not to",
        ];
        assert_eq!(found(&site("25.11.7", commands.clone()), "26.05"), of_2605);
        // From an unknown release: from the oldest that can be upgraded at once.
        let from_2411 = [&["AllocTRES of finished jobs can be"], &of_2605[..]].concat();
        assert_eq!(found(&site("", commands.clone()), "26.05"), from_2411);
        // Nothing of Slurm's accounting, munge or slurmrestd.
        let without = DoctorConfig {
            reads_completion_file: true,
            ..commands.clone()
        };
        assert_eq!(found(&site("25.11.7", without), "26.05"), of_2605[..2]);
        let signing_in = DoctorConfig {
            auth: toml::from_str("munge = true").unwrap(),
            scrapes_slurmctld: true,
            ..DoctorConfig::default()
        };
        assert_eq!(
            found(&site("25.11.7", signing_in), "26.05"),
            [
                "cgroups of jobs are named by",
                "packages of Slurm recommend munge since",
                "slurmctld's /metrics requires a token if"
            ]
        );
        // The same release, and an older one.
        for release in ["25.11", "25.05"] {
            assert_eq!(
                diagnose(&site("25.11.7", commands.clone()), release.parse().unwrap()).in_order,
                [UPGRADE]
            );
        }
        // Too far, and unknown.
        assert_eq!(
            found(&site("22.05.8", commands.clone()), "26.05")[0],
            "✗ Slurm 26.05 can be installed over"
        );
        assert_eq!(
            found(&site("26.11.0", commands), "27.05")[0],
            "this version of Takt knows the"
        );
    }

    #[test]
    fn an_api_version_that_goes_is_a_failure() {
        let asks = |version: &str| DoctorConfig {
            polls_slurm: true,
            slurmrestd: SlurmrestdConfig {
                url: "http://head:6820".to_owned(),
                version: Some(version.to_owned()),
                ..SlurmrestdConfig::default()
            },
            ..DoctorConfig::default()
        };

        let facts = site("25.11.7", asks("v0.0.41"));
        assert_eq!(
            found(&facts, "26.05")[0],
            "✗ slurmrestd 26.05 does not have the"
        );
        let fix = &diagnose(&facts, "26.05".parse().unwrap()).findings[0].fix[0];
        assert!(fix.starts_with("version = \"v0.0.45\""), "{fix}");
        for version in ["v0.0.42", "v0.0.44"] {
            let stays = found(&site("25.11.7", asks(version)), "26.05");
            assert!(stays.iter().all(|line| !line.starts_with('✗')), "{stays:?}");
        }
    }

    /// The reader of slurmrestd and the table of releases know the same versions.
    #[test]
    fn every_api_version_of_a_release_is_read() {
        let mut of_releases: Vec<&str> = RELEASES
            .iter()
            .flat_map(|release| release.api_versions())
            .collect();
        of_releases.sort_unstable();
        of_releases.dedup();
        of_releases.reverse();
        assert_eq!(of_releases, API_VERSIONS);
    }
}
