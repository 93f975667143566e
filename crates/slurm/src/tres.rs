//! Trackable resources (TRES) as Slurm prints them:
//! `billing=19,cpu=1,gres/gpu:a100=1,gres/gpu=1,mem=32G,node=1`.
//!
//! `gres/gpu:a100` and `gres/gpu` mean the same GPU, in either order: Slurm tracks the type in
//! addition to the sum. The types of one run add up, but are not added to the untyped count.

/// Amounts in a TRES string. A missing resource is `None`, except GPUs: Slurm lists allocated
/// resources, so a string without `gres/gpu` means 0 GPUs. A resource with an invalid amount
/// (`mem=-1171M`) is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TresCounts {
    /// CPUs (`cpu`).
    pub cpus: Option<u64>,
    /// Nodes (`node`).
    pub nodes: Option<u64>,
    /// Memory in bytes (`mem`).
    pub mem_bytes: Option<u64>,
    /// GPUs: `gres/gpu`, or the sum of its types.
    pub gpus: Option<u64>,
    /// GPU types, sorted and joined with `+`.
    pub gpu_model: Option<String>,
    /// Billing units (`billing`).
    pub billing: Option<u64>,
}

/// An entry of a TRES string is not `NAME=AMOUNT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("TRES '{0}' is not NAME=AMOUNT")]
pub struct TresEntryError(pub String);

const MIB: u64 = 1 << 20;

impl TresCounts {
    /// Parses a TRES string. Returns `None` for an empty one. Names that accounting does not use
    /// (`energy`, `fs/disk`, licenses) are ignored.
    ///
    /// # Errors
    /// An entry is not `NAME=AMOUNT`.
    pub fn parse(text: &str) -> Result<Option<Self>, TresEntryError> {
        if text.is_empty() {
            return Ok(None);
        }
        let mut tres = Self::default();
        // `None` once an amount is invalid: a sum with an unknown part is unknown.
        let mut untyped = Some(0);
        let mut typed = Some(0_u64);
        let mut models = Vec::new();

        for entry in text.split(',') {
            let (name, amount) = entry
                .split_once('=')
                .ok_or_else(|| TresEntryError(entry.to_owned()))?;
            match name {
                "cpu" => tres.cpus = scaled(amount, 1),
                "node" => tres.nodes = scaled(amount, 1),
                "billing" => tres.billing = scaled(amount, 1),
                "mem" => tres.mem_bytes = scaled(amount, MIB),
                "gres/gpu" => untyped = scaled(amount, 1),
                _ => {
                    if let Some(model) = name.strip_prefix("gres/gpu:") {
                        typed = typed
                            .zip(scaled(amount, 1))
                            .and_then(|(sum, gpus)| sum.checked_add(gpus));
                        models.push(model);
                    }
                }
            }
        }

        models.sort_unstable();
        models.dedup();
        tres.gpu_model = (!models.is_empty()).then(|| models.join("+"));
        // Slurm lists both or one of them: the sum of the types is not added to the untyped count.
        tres.gpus = untyped
            .zip(typed)
            .map(|(untyped, typed)| untyped.max(typed));
        Ok(Some(tres))
    }
}

/// Largest valid amount. Larger ones are corrupt; sums of valid ones cannot overflow.
const MAX_AMOUNT: u128 = 1 << 62;

/// Parses `1000`, `4K` or `93.75G`. Suffixes are powers of 1,024 (`K` = 1,024 counts or KiB); an
/// amount without a suffix counts in `unit`. Decimals of the result are truncated.
pub(crate) fn scaled(text: &str, unit: u64) -> Option<u64> {
    let shift = match text.as_bytes().last()? {
        b'K' | b'k' => 10,
        b'M' | b'm' => 20,
        b'G' | b'g' => 30,
        b'T' | b't' => 40,
        b'P' | b'p' => 50,
        _ => 0,
    };

    let number = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    // The unit counts only without a suffix: `mem=1000` is MiB, `mem=1000K` is KiB.
    let factor = if shift == 0 {
        u128::from(unit)
    } else {
        1 << shift
    };

    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // Bounds keep the products below 128 bits.
    if whole.is_empty()
        || whole.len() > 20
        || decimals.len() > 9
        || !digits(whole)
        || !digits(decimals)
    {
        return None;
    }
    // In whole numbers, since a float loses bytes of large amounts.
    let fraction = match decimals {
        "" => 0,
        _ => {
            decimals.parse::<u128>().ok()? * factor
                / 10_u128.pow(u32::try_from(decimals.len()).ok()?)
        }
    };
    // Amounts such as 2⁶⁴ − 2 are NO_VAL64 and others that Slurm prints for what it does not know.
    let amount = whole.parse::<u128>().ok()?.checked_mul(factor)? + fraction;
    (amount <= MAX_AMOUNT).then(|| u64::try_from(amount).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(text: &str) -> (Option<u64>, Option<String>) {
        let tres = TresCounts::parse(text).unwrap().unwrap();
        (tres.gpus, tres.gpu_model)
    }

    #[test]
    fn a_typed_gpu_and_its_untyped_count_are_one_gpu() {
        // Typed and untyped, in either order, several types, and parts of divided GPUs as types.
        for (text, expected) in [
            (
                "billing=19,cpu=1,gres/gpu:a100=1,gres/gpu=1,mem=32G,node=1",
                (1, Some("a100")),
            ),
            ("gres/gpu=1,gres/gpu:a100=1", (1, Some("a100"))),
            ("gres/gpu:l40s=2", (2, Some("l40s"))),
            ("gres/gpu=4", (4, None)),
            (
                "gres/gpu:l40s=2,gres/gpu:a100=1,gres/gpu=3",
                (3, Some("a100+l40s")),
            ),
            ("gres/gpu:l40s=2,gres/gpu:a100=1", (3, Some("a100+l40s"))),
            ("gres/gpu:1g.10gb=3,gres/gpu=3", (3, Some("1g.10gb"))),
            // Shards, and GPU memory and utilization as TRES, are not GPUs.
            (
                "cpu=1,gres/shard=4,gres/gpumem=7G,gres/gpuutil=50",
                (0, None),
            ),
        ] {
            assert_eq!(
                gpus(text),
                (Some(expected.0), expected.1.map(str::to_owned)),
                "{text}"
            );
        }
    }

    #[test]
    fn amounts() {
        let tres =
            TresCounts::parse("billing=80,cpu=80,mem=93750M,node=10,energy=18446744073709551614")
                .unwrap()
                .unwrap();
        assert_eq!(tres.cpus, Some(80));
        assert_eq!(tres.nodes, Some(10));
        assert_eq!(tres.billing, Some(80));
        assert_eq!(tres.mem_bytes, Some(93_750 << 20));

        for (text, expected) in [
            ("32G", Some(32 << 30)),
            ("93.75G", Some(96_000 << 20)),
            ("1T", Some(1 << 40)),
            ("2P", Some(2 << 50)),
            ("512K", Some(512 << 10)),
            ("1000", Some(1000 << 20)),
            ("", None),
            ("G", None),
            ("1X", None),
            ("-1", None),
            ("1.2.3G", None),
            ("9999999999999P", None),
        ] {
            assert_eq!(scaled(text, MIB), expected, "{text}");
        }
        assert_eq!(scaled("4K", 1), Some(4096));
    }

    #[test]
    fn invalid_tres_are_refused() {
        assert_eq!(TresCounts::parse(""), Ok(None));
        // An entry without an amount, and an empty one between two commas.
        for (text, entry) in [("cpu", "cpu"), ("cpu=1,,mem=1G", ""), ("cpu=1,mem", "mem")] {
            assert_eq!(
                TresCounts::parse(text),
                Err(TresEntryError(entry.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn an_amount_that_is_none_is_unknown() {
        let tres = TresCounts::parse("billing=-1,cpu=4,mem=-1171M,node=1,gres/gpu=many")
            .unwrap()
            .unwrap();
        let known = TresCounts {
            cpus: Some(4),
            nodes: Some(1),
            ..TresCounts::default()
        };
        assert_eq!(tres, known);
    }
}
