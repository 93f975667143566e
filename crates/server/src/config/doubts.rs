//! Settings that are valid and probably not meant. The server starts with them; `takt check-config`, its log and `takt doctor` say them.

use super::Config;
use crate::alerting::{self, Loaded};
use crate::open_files::{UNIT_FILES, files_needed};
use jiff::Zoned;
use jiff::civil::Date;
use takt_identity::{AnonymousSetting, PrivacySetting};
use takt_model::shown::shown_address;

impl Config {
    /// Returns what is probably not meant, a sentence for each. `loaded` are its rules and routes.
    pub fn doubts(&self, loaded: Option<&Loaded>) -> Vec<String> {
        let of_alerts = loaded.map(|loaded| {
            let Loaded { rules, routing, .. } = loaded;
            let mut doubts = alerting::doubts_of_rules(rules);
            doubts.extend(alerting::doubts_of_routing(routing, rules));
            doubts.extend(alerting::doubt_of_page(&self.alerts.page_severity, rules));
            doubts
        });

        let of_targets = self.doubts_of_targets();
        let others = [
            self.doubt_of_files(),
            self.doubt_of_gap(),
            self.doubt_of_privacy(),
            self.doubt_of_prices(Zoned::now().date()),
        ];
        of_targets
            .into_iter()
            .chain(others.into_iter().flatten())
            .chain(of_alerts.into_iter().flatten())
            .collect()
    }

    fn doubts_of_targets(&self) -> Vec<String> {
        let pages = self.scrape.pages_of_several().into_iter();
        let pages = pages.map(|(page, targets)| {
            let targets: Vec<String> = targets.iter().map(|at| format!("targets[{at}]")).collect();
            let (page, targets) = (shown_address(&page), targets.join(", "));
            format!("scrape: {targets} are the same page, {page}: its GPUs count for each of them")
        });

        let nodes = self.scrape.nodes_of_several().into_iter();
        let nodes = nodes.map(|(node, hosts)| {
            let hosts = hosts.into_iter().collect::<Vec<_>>().join(" and ");
            format!("scrape: targets on {hosts} are all node {node}: their readings are mixed")
        });
        pages.chain(nodes).collect()
    }

    fn doubt_of_files(&self) -> Option<String> {
        let needed = files_needed(self);
        (needed > UNIT_FILES).then(|| {
            format!(
                "the targets need {needed} open files: set LimitNOFILE={needed} in takt.service \
                 (systemctl edit takt)"
            )
        })
    }

    /// Readings that are farther apart than the longest gap measure nothing.
    fn doubt_of_gap(&self) -> Option<String> {
        let (interval, gap) = (
            self.scrape.interval_seconds,
            self.efficiency.max_gap_seconds,
        );
        (gap as f64 <= interval).then(|| {
            format!(
                "efficiency.max_gap_seconds = {gap} is not longer than scrape.interval_seconds = {interval}: no job is \
                 measured; expected at least twice the interval"
            )
        })
    }

    /// Rate cards that are all of the future, as of a mistyped year.
    fn doubt_of_prices(&self, today: Date) -> Option<String> {
        let begins: Vec<Date> = self
            .rates
            .cards
            .iter()
            .filter_map(|card| card.from.parse().ok())
            .collect();
        let first = begins.into_iter().min().filter(|first| *first > today)?;
        Some(format!(
            "rates: the first card is valid from {first}; until then everything costs nothing"
        ))
    }

    fn doubt_of_privacy(&self) -> Option<String> {
        let is_open = self.auth.anonymous == AnonymousSetting::Viewer;
        let hides = matches!(
            self.auth.privacy,
            PrivacySetting::Usage | PrivacySetting::Private
        );
        (is_open && hides).then(|| {
            "auth.anonymous = \"viewer\" shows everything to everybody who is not signed in, although auth.privacy hides it \
             from users"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn settings_that_work_against_each_other_are_named() {
        let doubts = |text: &str| {
            let config = Config::parse(text, Path::new("takt.toml")).unwrap();
            config.doubts(None).join("\n")
        };
        for (text, said) in [
            ("", ""),
            ("[scrape]\ninterval_seconds = 300", "no job is measured"),
            (
                "[auth]\nanonymous = 'viewer'\nprivacy = 'private'",
                "although auth.privacy hides it",
            ),
            ("[auth]\nanonymous = 'status'\nprivacy = 'private'", ""),
            (
                "[rates]\ncurrency = 'EUR'\n[[rates.cards]]\nfrom = '2936-01-01'\ngpu_hour = 1.5",
                "the first card is valid from 2936-01-01",
            ),
            (
                "[rates]\ncurrency = 'EUR'\n[[rates.cards]]\nfrom = '2936-01-01'\n[[rates.cards]]\nfrom = '2020-01-01'",
                "",
            ),
            (
                "[[scrape.targets]]\naddress = 'a:1'\nnode = 'n'\n[[scrape.targets]]\naddress = 'b:1'\nnode = 'n'",
                "targets on a and b are all node n",
            ),
        ] {
            let found = doubts(text);
            assert!(
                found.contains(said) && found.is_empty() == said.is_empty(),
                "{text}: {found}"
            );
        }
    }
}
