//! Fair-share settings of slurm.conf (`Priority*`, `FairShareDampeningFactor`), partitions and QOS.

use crate::Association;
use crate::UsageResetPeriod;
use crate::billing::{BillingWeights, TresAmounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of the multifactor priority plugin that affect fair share. The defaults are Slurm's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrioritySettings {
    /// `PriorityDecayHalfLife`: half-life of usage in seconds. 0 disables decay.
    pub decay_half_life_seconds: u32,
    /// `PriorityCalcPeriod`: seconds between two ticks of slurmctld's decay thread.
    pub calc_period_seconds: u32,
    /// `PriorityUsageResetPeriod`: interval at which usage is reset to 0.
    pub usage_reset_period: UsageResetPeriod,
    /// `PriorityFlags`.
    pub flags: PriorityFlags,
    /// `FairShareDampeningFactor`: at least 1. Larger values make the classic factor fall more
    /// slowly with usage.
    pub dampening_factor: u16,
}

impl Default for PrioritySettings {
    fn default() -> Self {
        Self {
            decay_half_life_seconds: 7 * 24 * 3600,
            calc_period_seconds: 300,
            usage_reset_period: UsageResetPeriod::None,
            flags: PriorityFlags::default(),
            dampening_factor: 1,
        }
    }
}

/// The flags of `PriorityFlags` that affect usage or fair share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriorityFlags {
    /// `NO_FAIR_TREE`: classic factor instead of Fair Tree's ranks.
    pub no_fair_tree: bool,
    /// `DEPTH_OBLIVIOUS`: classic factor that depends less on a user's depth in the tree.
    pub depth_oblivious: bool,
    /// `MAX_TRES`: bill only the most expensive of the per-node resources.
    pub max_tres: bool,
    /// `MAX_TRES_GRES` (Slurm 25.05): as `MAX_TRES`, but bill all GRES in addition.
    pub max_tres_gres: bool,
}

impl PriorityFlags {
    /// Parses `NO_FAIR_TREE,MAX_TRES`, ignoring case. Other flags are ignored.
    pub fn parse(text: &str) -> Self {
        // `MAX_TRES` is a prefix of `MAX_TRES_GRES`, so whole words are compared.
        let has = |name: &str| {
            text.split(',')
                .any(|flag| flag.trim().eq_ignore_ascii_case(name))
        };
        Self {
            no_fair_tree: has("NO_FAIR_TREE"),
            depth_oblivious: has("DEPTH_OBLIVIOUS"),
            max_tres: has("MAX_TRES"),
            max_tres_gres: has("MAX_TRES_GRES"),
        }
    }
}

/// Fair-share settings of a quality of service.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Qos {
    /// `UsageFactor`: multiplier of usage under this QOS. Slurm treats a negative value as 1.
    pub usage_factor: f64,
    /// `NoDecay`: the usage of the QOS itself does not decay. The association's usage still does.
    pub no_decay: bool,
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            usage_factor: 1.0,
            no_decay: false,
        }
    }
}

/// Costs of running: `TRESBillingWeights` by partition, `UsageFactor` by QOS, and the flags that
/// combine the TRES.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BillingRates {
    /// Weights by partition. `None` is a partition without weights: Slurm bills its CPUs.
    pub partitions: BTreeMap<String, Option<BillingWeights>>,
    /// Settings by QOS. An unlisted QOS has factor 1.
    pub qos: BTreeMap<String, Qos>,
    /// Weights for unlisted partitions. `None` uses the billing that Slurm recorded.
    pub otherwise: Option<BillingWeights>,
    /// Flags that decide how the weighted TRES combine.
    pub flags: PriorityFlags,
}

/// Input of fair share besides the runs: associations, decay and costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareSettings {
    /// Associations, in Slurm's order.
    pub associations: Vec<Association>,
    /// Decay and formula.
    pub priority: PrioritySettings,
    /// `TRESBillingWeights` by partition. `None` is a partition without weights.
    pub partitions: BTreeMap<String, Option<BillingWeights>>,
    /// Settings by QOS.
    pub qos: BTreeMap<String, Qos>,
    /// Weights for partitions that `partitions` lacks.
    pub otherwise: Option<BillingWeights>,
}

impl ShareSettings {
    /// Returns the costs of running.
    pub fn rates(&self) -> BillingRates {
        BillingRates {
            partitions: self.partitions.clone(),
            qos: self.qos.clone(),
            otherwise: self.otherwise.clone(),
            flags: self.priority.flags,
        }
    }
}

impl BillingRates {
    /// Returns billing units per second: the amount that Slurm adds to an association's usage for
    /// each second of such a run.
    ///
    /// The current weights apply to old runs too. For an unlisted partition the recorded `billing`
    /// (a whole number) applies, and without it the CPUs.
    pub fn per_second(&self, partition: &str, qos: Option<&str>, tres: &TresAmounts) -> f64 {
        let billing = match self.partitions.get(partition) {
            Some(Some(weights)) => weights.bill(tres, self.flags),
            Some(None) => tres.get("cpu"),
            None => match &self.otherwise {
                Some(weights) => weights.bill(tres, self.flags),
                None => tres.find("billing").unwrap_or_else(|| tres.get("cpu")),
            },
        };

        billing
            * qos
                .and_then(|name| self.qos.get(name))
                .map_or(1.0, usage_factor)
    }
}

fn usage_factor(qos: &Qos) -> f64 {
    if qos.usage_factor >= 0.0 {
        qos.usage_factor
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_by_name_and_not_by_prefix() {
        let flags = PriorityFlags::parse("ACCRUE_ALWAYS,max_tres_gres");
        assert_eq!(
            flags,
            PriorityFlags {
                max_tres_gres: true,
                ..PriorityFlags::default()
            }
        );
        assert_eq!(PriorityFlags::parse(""), PriorityFlags::default());

        let flags = PriorityFlags::parse("DEPTH_OBLIVIOUS,NO_FAIR_TREE");
        assert!(flags.no_fair_tree && flags.depth_oblivious && !flags.max_tres);
    }

    #[test]
    fn a_second_costs_what_partition_and_qos_say() {
        let weights = BillingWeights::parse("CPU=1.0,GRES/gpu=8.0").unwrap();
        let rates = BillingRates {
            partitions: [("gpu".into(), Some(weights)), ("plain".into(), None)].into(),
            qos: [("half", 0.5), ("free", 0.0), ("unset", -1.0)]
                .map(|(name, usage_factor)| {
                    (
                        name.to_owned(),
                        Qos {
                            usage_factor,
                            ..Qos::default()
                        },
                    )
                })
                .into(),
            ..BillingRates::default()
        };

        // The billing that Slurm recorded differs from the current weights, to show which of them applies.
        let tres = TresAmounts::parse("billing=7,cpu=2,gres/gpu=1,mem=1000M").unwrap();
        for (partition, qos, expected) in [
            ("gpu", None, 10.0),
            ("gpu", Some("half"), 5.0),
            ("gpu", Some("free"), 0.0),
            ("gpu", Some("unset"), 10.0),
            ("gpu", Some("never-heard-of"), 10.0),
            ("plain", None, 2.0),
            ("removed", None, 7.0),
        ] {
            assert_eq!(
                rates.per_second(partition, qos, &tres),
                expected,
                "{partition} {qos:?}"
            );
        }
        assert_eq!(
            rates.per_second("removed", None, &TresAmounts::parse("cpu=2").unwrap()),
            2.0
        );
    }
}
