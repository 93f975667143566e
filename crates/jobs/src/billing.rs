//! Billing: the cost of a run's resources as one number.
//!
//! Slurm multiplies each TRES by its weight and adds the products. With `MAX_TRES` only the largest
//! product of the per-node TRES counts, plus the products of the cluster-wide TRES (licenses). Fair
//! share uses the number with its decimals; the `billing=` of `AllocTRES` is the same number,
//! truncated. `gres/gpu` and `gres/gpu:a100` are two TRES here: weights on both bill the same GPU
//! twice.

use crate::share_settings::PriorityFlags;
use serde::{Deserialize, Serialize};

/// Amounts of trackable resources by Slurm's names in lower case (`cpu`, `mem`, `gres/gpu:a100`).
/// Memory is in MiB, as in Slurm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TresAmounts(Vec<(String, f64)>);

/// Error in a TRES string or in billing weights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TresError {
    /// An entry lacks a name or an amount.
    #[error("'{0}' is not NAME=AMOUNT")]
    Entry(String),
    /// The text after `=` is not a number, or its unit is unknown.
    #[error("'{0}': the amount is not a number, or its unit is unknown")]
    Amount(String),
    /// Slurm does not track this resource.
    #[error("Slurm does not track '{0}' (expected cpu, mem, node, gres/gpu and the like)")]
    Unknown(String),
    /// The resource has a unit, but Slurm accepts none for it.
    #[error("'{0}': only mem and bb have units (K, M, G, T, P)")]
    Unit(String),
}

impl TresAmounts {
    /// Parses `billing=10,cpu=2,gres/gpu:a100=1,gres/gpu=1,mem=2000M,node=1`. An empty text is an
    /// empty list. A resource with an invalid amount, such as a negative one, is left out, because
    /// Slurm bills nothing for it.
    ///
    /// # Errors
    /// An entry is not `NAME=AMOUNT`.
    pub fn parse(text: &str) -> Result<Self, TresError> {
        let mut tres = Self::default();
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let (name, amount) = entry
                .split_once('=')
                .ok_or_else(|| TresError::Entry(entry.to_owned()))?;

            let unit = if has_unit(name) { MIB } else { 1.0 };

            // An amount that Slurm bills nothing for is absent, not 0: `find` then says that it is unknown.
            if let Some(amount) = amount_in(amount, unit) {
                tres.set(name, amount);
            }
        }
        Ok(tres)
    }

    /// Sets the amount of one resource. Memory is in MiB.
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

    /// Returns the amount of a resource, or 0 if the list lacks it.
    pub fn get(&self, name: &str) -> f64 {
        self.find(name).unwrap_or(0.0)
    }

    /// Returns the amount of a resource, or `None` if the list lacks it.
    pub fn find(&self, name: &str) -> Option<f64> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, amount)| *amount)
    }

    /// Iterates over names and amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Returns whether the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether Slurm tracks a resource of this name: a built-in one, or a named one of a known
/// kind (`gres/…`, `license/…`).
pub fn is_tres(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let of_a_kind = ["gres/", "license/", "bb/", "fs/", "ic/", "interconnect/"];
    ["cpu", "mem", "energy", "node", "billing", "vmem", "pages"].contains(&name.as_str())
        || of_a_kind
            .iter()
            .any(|kind| name.strip_prefix(kind).is_some_and(|name| !name.is_empty()))
}

/// `TRESBillingWeights` of a partition: billing units per unit of each TRES, and per MiB of memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BillingWeights(Vec<(String, f64)>);

impl BillingWeights {
    /// Parses `CPU=1.0,Mem=0.25G,GRES/gpu=8.0`. A weight of `0.25G` means 0.25 per GiB. Slurm's
    /// smallest unit of memory is the MiB, so `K` and `M` have the same meaning.
    ///
    /// # Errors
    /// An entry is not `NAME=WEIGHT`, a weight is not a number, or a resource without units has
    /// one.
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
            // Weights are kept per MiB, as the amounts are. `max` gives `K` the meaning of `M`.
            let divisor = match unit {
                None => 1.0,
                Some(_) if !has_unit(name) => return Err(TresError::Unit(entry.to_owned())),
                Some(unit) => {
                    (bytes(unit).ok_or_else(|| TresError::Amount(entry.to_owned()))? / MIB).max(1.0)
                }
            };

            let name = name.trim().to_ascii_lowercase();
            // The last of two weights for one name counts.
            weights.retain(|(known, _)| *known != name);
            weights.push((name, number / divisor));
        }
        Ok(Self(weights))
    }

    /// Returns the first name that Slurm does not track.
    pub fn unknown(&self) -> Option<&str> {
        self.0
            .iter()
            .map(|(name, _)| name.as_str())
            .find(|name| !is_tres(name))
    }

    /// Returns the billing units of these resources.
    pub fn bill(&self, tres: &TresAmounts, flags: PriorityFlags) -> f64 {
        // The maximum starts from 0, so that a negative weight alone bills nothing.
        let mut largest = 0.0_f64;
        let mut sum = 0.0;
        for (name, weight) in &self.0 {
            let cost = tres.get(name) * weight;
            match TresScope::of(name) {
                // `billing` is the result. With a weight on it, each bill would count itself.
                TresScope::Billing => {}
                TresScope::Node if flags.max_tres || flags.max_tres_gres => {
                    largest = largest.max(cost)
                }
                TresScope::Gres if flags.max_tres => largest = largest.max(cost),
                TresScope::Node | TresScope::Gres | TresScope::Global => sum += cost,
            }
        }

        largest + sum
    }
}

/// Scope of a resource. It decides how `MAX_TRES` treats the resource.
enum TresScope {
    /// CPUs, memory and the node itself.
    Node,
    /// GPUs and all other GRES.
    Gres,
    /// The billing TRES itself, which has no weight.
    Billing,
    /// Cluster-wide: licenses, burst buffers, energy.
    Global,
}

impl TresScope {
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

/// Returns whether amounts may have a unit: memory and burst buffers, which Slurm counts in MiB.
fn has_unit(name: &str) -> bool {
    let name = name.trim();
    let kind = name.split('/').next().unwrap_or(name);
    kind.eq_ignore_ascii_case("mem") || kind.eq_ignore_ascii_case("bb")
}

fn split_unit(text: &str) -> (&str, Option<char>) {
    match text.char_indices().next_back() {
        // A letter outside ASCII is no unit, and cutting before it keeps the slice on a character.
        Some((at, unit)) if unit.is_ascii_alphabetic() => (&text[..at], Some(unit)),
        _ => (text, None),
    }
}

fn bytes(unit: char) -> Option<f64> {
    let power = "KMGTP".find(unit.to_ascii_uppercase())? + 1;
    Some(1024_f64.powi(i32::try_from(power).ok()?))
}

/// Parses an amount and converts it to units of `unit_bytes`. Amounts beyond Slurm's maximum are
/// corrupt (`energy=18446744073709551614`) and yield `None`.
fn amount_in(text: &str, unit_bytes: f64) -> Option<f64> {
    const LARGEST: f64 = (1_u64 << 62) as f64;

    let (number, unit) = split_unit(text.trim());
    let number: f64 = number.parse().ok()?;
    let amount = match unit {
        None => number,
        Some(unit) => number * bytes(unit)? / unit_bytes,
    };
    // NaN, which `parse` accepts, is outside the range too.
    (0.0..LARGEST).contains(&amount).then_some(amount)
}

#[cfg(test)]
mod tests;
