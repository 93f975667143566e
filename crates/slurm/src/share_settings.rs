//! What slurm.conf says of fair share: `Priority*`, `FairShareDampeningFactor`, and what a QOS adds.

use crate::Association;
use crate::UsageResetPeriod;
use crate::billing::{BillingWeights, Tres};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The settings of the multifactor priority plugin that fair share depends on. The defaults are Slurm's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrioritySettings {
    /// `PriorityDecayHalfLife`: seconds after which usage counts half; 0 is no decay.
    pub decay_half_life_seconds: u32,
    /// `PriorityCalcPeriod`: seconds between two ticks of slurmctld's decay thread.
    pub calc_period_seconds: u32,
    /// `PriorityUsageResetPeriod`: how often usage starts again at nothing.
    pub usage_reset_period: UsageResetPeriod,
    /// `PriorityFlags`.
    pub flags: PriorityFlags,
    /// `FairShareDampeningFactor`: how gently the classic factor falls with usage, at least 1.
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

/// The flags of `PriorityFlags` that change usage or fair share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriorityFlags {
    /// `NO_FAIR_TREE`: the classic factor instead of Fair Tree's ranks.
    pub no_fair_tree: bool,
    /// `DEPTH_OBLIVIOUS`: the classic factor, less dependent on how deep in the tree a user hangs.
    pub depth_oblivious: bool,
    /// `MAX_TRES`: of what a node has, only the costliest resource is billed.
    pub max_tres: bool,
    /// `MAX_TRES_GRES` (Slurm 25.05): the same, with every GRES billed beside it.
    pub max_tres_gres: bool,
}

impl PriorityFlags {
    /// Reads `NO_FAIR_TREE,MAX_TRES`, in any case; flags that do not concern fair share are passed over.
    pub fn parse(text: &str) -> Self {
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

/// What a quality of service makes of usage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Qos {
    /// `UsageFactor`: what a second under this QOS counts. Slurm takes a negative one for 1.
    pub usage_factor: f64,
    /// `NoDecay`: the QOS' own usage never fades. That of the association does all the same.
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

/// What running costs: `TRESBillingWeights` of each partition, `UsageFactor` of each QOS, and how the TRES add up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates {
    /// By partition; `None` is a partition without weights, whose CPUs are billed.
    pub partitions: BTreeMap<String, Option<BillingWeights>>,
    /// By QOS. One that is not here counts 1.
    pub qos: BTreeMap<String, Qos>,
    /// What a partition costs that is not here; `None` is what Slurm billed at the time.
    pub otherwise: Option<BillingWeights>,
    /// How the weighted TRES become one number.
    pub flags: PriorityFlags,
}

/// What fair share is computed from beside the runs: who shares with whom, how usage fades, what a run costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareSettings {
    /// The tree, in Slurm's order.
    pub associations: Vec<Association>,
    /// How usage fades and becomes a factor.
    pub priority: PrioritySettings,
    /// `TRESBillingWeights` by partition; `None` is a partition without.
    pub partitions: BTreeMap<String, Option<BillingWeights>>,
    /// By QOS.
    pub qos: BTreeMap<String, Qos>,
    /// What a partition costs that is not in `partitions`.
    pub otherwise: Option<BillingWeights>,
}

impl ShareSettings {
    /// What running costs.
    pub fn rates(&self) -> Rates {
        Rates {
            partitions: self.partitions.clone(),
            qos: self.qos.clone(),
            otherwise: self.otherwise.clone(),
            flags: self.priority.flags,
        }
    }
}

impl Rates {
    /// Billing units a second: what Slurm adds to the usage of an association for each second of such a run.
    ///
    /// Weights are those of today, for old runs too. A partition that is gone leaves what Slurm billed at the time
    /// (`billing`, cut to a whole number), and without that the CPUs.
    pub fn per_second(&self, partition: &str, qos: Option<&str>, tres: &Tres) -> f64 {
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
        let rates = Rates {
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
            ..Rates::default()
        };
        let tres = Tres::parse("billing=7,cpu=2,gres/gpu=1,mem=1000M").unwrap();
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
            rates.per_second("removed", None, &Tres::parse("cpu=2").unwrap()),
            2.0
        );
    }
}
