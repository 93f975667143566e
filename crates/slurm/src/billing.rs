//! Billing: what the resources of a run cost, as one number.
//!
//! Slurm multiplies each TRES by its weight and adds the products up; with `MAX_TRES` only the largest product of those
//! that a node has counts, beside those of the cluster (licenses). Fair share uses the number with its decimals; the
//! `billing=` of `AllocTRES` is the same cut to a whole one. `gres/gpu` and `gres/gpu:a100` are two TRES here: giving
//! both a weight bills the same GPU twice.

use crate::share_settings::PriorityFlags;
use serde::{Deserialize, Serialize};

/// Amounts of trackable resources by Slurm's names in lower case (`cpu`, `mem`, `gres/gpu:a100`). Memory is in MiB, as
/// Slurm keeps it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tres(Vec<(String, f64)>);

/// A TRES string, or one of weights, that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TresError {
    /// An entry without a name or an amount.
    #[error("'{0}' is not NAME=AMOUNT")]
    Entry(String),
    /// What follows the `=` is no number, or has a unit that is none.
    #[error("'{0}': the amount is no number, or one with an unknown unit")]
    Amount(String),
    /// A resource that Slurm does not count.
    #[error("Slurm counts no '{0}' (expected cpu, mem, node, gres/gpu and the like)")]
    Unknown(String),
    /// A unit where Slurm knows none.
    #[error("'{0}': only mem and bb have units (K, M, G, T, P)")]
    Unit(String),
}

impl Tres {
    /// Reads `billing=10,cpu=2,gres/gpu:a100=1,gres/gpu=1,mem=2000M,node=1`; an empty text is no resources. An amount
    /// that is none, such as a negative one, leaves its resource out, as Slurm bills nothing for it.
    ///
    /// # Errors
    /// An entry that is not `NAME=AMOUNT`.
    pub fn parse(text: &str) -> Result<Self, TresError> {
        let mut tres = Self::default();
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let (name, amount) = entry
                .split_once('=')
                .ok_or_else(|| TresError::Entry(entry.to_owned()))?;
            let unit = if has_unit(name) { MIB } else { 1.0 };
            if let Some(amount) = amount_in(amount, unit) {
                tres.set(name, amount);
            }
        }
        Ok(tres)
    }

    /// Sets the amount of one resource; memory in MiB.
    pub fn set(&mut self, name: &str, amount: f64) {
        match self
            .0
            .iter_mut()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
        {
            Some((_, known)) => *known = amount,
            None => self.0.push((name.to_ascii_lowercase(), amount)),
        }
    }

    /// The amount of a resource; 0 where it is not named.
    pub fn get(&self, name: &str) -> f64 {
        self.find(name).unwrap_or(0.0)
    }

    /// The amount of a resource, if it is named.
    pub fn find(&self, name: &str) -> Option<f64> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, amount)| *amount)
    }

    /// Names and amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether Slurm counts a resource of this name: those that it knows by itself, and those of a kind that have a name each.
pub fn is_tres(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let of_a_kind = ["gres/", "license/", "bb/", "fs/", "ic/", "interconnect/"];
    ["cpu", "mem", "energy", "node", "billing", "vmem", "pages"].contains(&name.as_str())
        || of_a_kind
            .iter()
            .any(|kind| name.strip_prefix(kind).is_some_and(|name| !name.is_empty()))
}

/// `TRESBillingWeights` of a partition: billing units for one of each TRES, and for one MiB of memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BillingWeights(Vec<(String, f64)>);

impl BillingWeights {
    /// Reads `CPU=1.0,Mem=0.25G,GRES/gpu=8.0`. A weight of 0.25G is 0.25 for a GiB. Slurm's smallest unit of memory is
    /// the MiB, so `K` and `M` mean the same.
    ///
    /// # Errors
    /// An entry that is not `NAME=WEIGHT`, a weight that is no number, and a unit on what has none.
    pub fn parse(text: &str) -> Result<Self, TresError> {
        let mut weights = Vec::<(String, f64)>::new();
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let (name, weight) = entry
                .split_once('=')
                .ok_or_else(|| TresError::Entry(entry.to_owned()))?;
            let (number, unit) = split_unit(weight.trim());
            let number: f64 = number
                .parse()
                .map_err(|_| TresError::Amount(entry.to_owned()))?;
            let divisor = match unit {
                None => 1.0,
                Some(_) if !has_unit(name) => return Err(TresError::Unit(entry.to_owned())),
                Some(unit) => {
                    (bytes(unit).ok_or_else(|| TresError::Amount(entry.to_owned()))? / MIB).max(1.0)
                }
            };
            let name = name.trim().to_ascii_lowercase();
            weights.retain(|(known, _)| *known != name);
            weights.push((name, number / divisor));
        }
        Ok(Self(weights))
    }

    /// The first name that is no resource of Slurm's.
    pub fn unknown(&self) -> Option<&str> {
        self.0
            .iter()
            .map(|(name, _)| name.as_str())
            .find(|name| !is_tres(name))
    }

    /// Billing units of these resources.
    pub fn bill(&self, tres: &Tres, flags: PriorityFlags) -> f64 {
        let (mut largest, mut sum) = (0.0_f64, 0.0);
        for (name, weight) in &self.0 {
            let cost = tres.get(name) * weight;
            match Kind::of(name) {
                Kind::Billing => {}
                Kind::Node if flags.max_tres || flags.max_tres_gres => largest = largest.max(cost),
                Kind::Gres if flags.max_tres => largest = largest.max(cost),
                Kind::Node | Kind::Gres | Kind::Global => sum += cost,
            }
        }
        largest + sum
    }
}

/// Where a resource belongs, which decides what `MAX_TRES` does with it.
enum Kind {
    /// CPUs, memory and the node itself.
    Node,
    /// GPUs and whatever else is a GRES.
    Gres,
    /// The result, which has no weight of its own.
    Billing,
    /// Licenses, burst buffers, energy: the cluster's.
    Global,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "cpu" | "mem" | "node" => Self::Node,
            "billing" => Self::Billing,
            _ if name.starts_with("gres/") => Self::Gres,
            _ => Self::Global,
        }
    }
}

const MIB: f64 = (1_u64 << 20) as f64;

/// Memory and burst buffers are counted in MiB and may be written in other units.
fn has_unit(name: &str) -> bool {
    let name = name.trim();
    let kind = name.split('/').next().unwrap_or(name);
    kind.eq_ignore_ascii_case("mem") || kind.eq_ignore_ascii_case("bb")
}

fn split_unit(text: &str) -> (&str, Option<char>) {
    match text.char_indices().next_back() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => (&text[..at], Some(unit)),
        _ => (text, None),
    }
}

fn bytes(unit: char) -> Option<f64> {
    let power = "KMGTP".find(unit.to_ascii_uppercase())? + 1;
    Some(1024_f64.powi(i32::try_from(power).ok()?))
}

/// An amount in units of so many bytes. Counts beyond Slurm's own are damage (`energy=18446744073709551614`).
fn amount_in(text: &str, unit_bytes: f64) -> Option<f64> {
    const LARGEST: f64 = (1_u64 << 62) as f64;
    let (number, unit) = split_unit(text.trim());
    let number: f64 = number.parse().ok()?;
    let amount = match unit {
        None => number,
        Some(unit) => number * bytes(unit)? / unit_bytes,
    };
    (0.0..LARGEST).contains(&amount).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: PriorityFlags = PriorityFlags {
        no_fair_tree: false,
        depth_oblivious: false,
        max_tres: false,
        max_tres_gres: false,
    };
    const MAX: PriorityFlags = PriorityFlags {
        max_tres: true,
        ..SUM
    };
    const MAX_GRES: PriorityFlags = PriorityFlags {
        max_tres_gres: true,
        ..SUM
    };

    fn bill(weights: &str, tres: &str, flags: PriorityFlags) -> f64 {
        BillingWeights::parse(weights)
            .unwrap()
            .bill(&Tres::parse(tres).unwrap(), flags)
    }

    #[test]
    fn weights_times_amounts() {
        const LAB: &str = "CPU=1.0,Mem=0.25G,GRES/gpu=8.0";
        // The last two are jobs of the lab: Slurm printed billing=4 and billing=23 for them.
        for (weights, tres, expected) in [
            (
                LAB,
                "billing=10,cpu=2,gres/gpu:a100=1,gres/gpu=1,mem=2000M,node=1",
                2.0 + 2000.0 / 4096.0 + 8.0,
            ),
            (LAB, "cpu=1,mem=32G", 9.0),
            (LAB, "", 0.0),
            (
                "gres/gpu=8,gres/gpu:a100=4",
                "cpu=1,gres/gpu:a100=2,gres/gpu=2",
                24.0,
            ),
            ("billing=5,cpu=1", "billing=100,cpu=3", 3.0),
            ("cpu=1,license/matlab=10", "cpu=1,license/matlab=2", 21.0),
            ("mem=1T", "mem=512G", 0.5),
            ("cpu=9,CPU=2", "cpu=1", 2.0),
            (
                LAB,
                "billing=4,cpu=4,mem=4000M,node=1",
                4.0 + 4000.0 / 4096.0,
            ),
            (
                "cpu=0.5,mem=0.01K,gres/gpu:a100=2.5,node=0.125",
                "billing=23,cpu=2,gres/gpu:a100=1,gres/gpu=1,mem=2000M,node=1",
                23.625,
            ),
        ] {
            assert_eq!(bill(weights, tres, SUM), expected, "{weights} of {tres}");
        }
    }

    #[test]
    fn max_tres_bills_the_costliest_resource_of_a_node() {
        const WEIGHTS: &str = "CPU=1,Mem=0.25G,node=3,GRES/gpu=8,gres/shard=1,license/x=5";
        const TRES: &str = "cpu=4,mem=64G,node=1,gres/gpu=2,gres/shard=3,license/x=1";
        assert_eq!(
            bill(WEIGHTS, TRES, SUM),
            4.0 + 16.0 + 3.0 + 16.0 + 3.0 + 5.0
        );
        assert_eq!(bill(WEIGHTS, TRES, MAX), 16.0 + 5.0);
        assert_eq!(bill(WEIGHTS, TRES, MAX_GRES), 16.0 + 16.0 + 3.0 + 5.0);
        assert_eq!(
            bill(
                WEIGHTS,
                TRES,
                PriorityFlags {
                    max_tres: true,
                    ..MAX_GRES
                }
            ),
            21.0
        );
        assert_eq!(bill("cpu=-2", "cpu=1", MAX), 0.0);
    }

    #[test]
    fn amounts_are_read_as_slurm_prints_them() {
        let tres =
            Tres::parse("CPU=2,mem=3.5G,energy=18446744073709551614,node=-1,gres/gpu=1K").unwrap();
        assert_eq!(
            (tres.get("cpu"), tres.get("mem"), tres.get("gres/gpu")),
            (2.0, 3584.0, 1024.0)
        );
        assert_eq!((tres.find("energy"), tres.find("node")), (None, None));
        assert!(Tres::parse("").unwrap().is_empty());
        assert_eq!(Tres::parse("cpu"), Err(TresError::Entry("cpu".into())));
    }

    #[test]
    fn what_are_no_weights() {
        for (text, expected) in [
            ("cpu", TresError::Entry("cpu".into())),
            ("cpu=", TresError::Amount("cpu=".into())),
            ("mem=1X", TresError::Amount("mem=1X".into())),
            ("cpu=1K", TresError::Unit("cpu=1K".into())),
        ] {
            assert_eq!(BillingWeights::parse(text), Err(expected), "{text}");
        }
        assert_eq!(BillingWeights::parse(""), Ok(BillingWeights::default()));
    }
}
