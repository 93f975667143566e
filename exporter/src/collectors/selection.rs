//! The flags that choose collectors.

use super::{COLLECTORS, CollectorEntry};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::collections::BTreeSet;

/// Which collectors run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    disable_defaults: bool,
    on: BTreeSet<&'static str>,
    off: BTreeSet<&'static str>,
}

impl Selection {
    /// Whether the collector runs; `by_default` is the list's setting.
    pub fn runs(&self, name: &str, by_default: bool) -> bool {
        let chosen = self.on.contains(name) || (by_default && !self.disable_defaults);
        chosen && !self.off.contains(name)
    }

    /// Chooses these collectors only.
    pub fn only(names: &[&'static str]) -> Self {
        Self {
            disable_defaults: true,
            on: names.iter().copied().collect(),
            off: BTreeSet::new(),
        }
    }
}

const COLLECTORS_HEADING: &str = "Collectors (--no-collector.NAME turns one off)";
const DISABLE_DEFAULTS: &str = "collector.disable-defaults";

impl Args for Selection {
    fn augment_args(command: Command) -> Command {
        let flag = |name: String| {
            Arg::new(name.clone())
                .long(name)
                .action(ArgAction::SetTrue)
                .help_heading(COLLECTORS_HEADING)
        };

        let disable =
            flag(DISABLE_DEFAULTS.into()).help("Run only the collectors that a flag turns on");
        let mut command = command.arg(disable);
        for entry in COLLECTORS {
            let default = if entry.by_default { "on" } else { "off" };
            let on = format!("collector.{}", entry.name);
            let off = format!("no-collector.{}", entry.name);
            let turn_on = flag(on.clone())
                .help(format!("{} (default: {default})", entry.about))
                .overrides_with(off.clone());
            let turn_off = flag(off).hide(true).overrides_with(on);
            command = command.arg(turn_on).arg(turn_off);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Selection {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |prefix: &str| {
            let is_given =
                |entry: &&CollectorEntry| matches.get_flag(&format!("{prefix}{}", entry.name));
            let entries = COLLECTORS.iter().filter(is_given);
            entries.map(|entry| entry.name).collect()
        };

        Ok(Self {
            disable_defaults: matches.get_flag(DISABLE_DEFAULTS),
            on: given("collector."),
            off: given("no-collector."),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
