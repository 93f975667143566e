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
        .bill(&TresAmounts::parse(tres).unwrap(), flags)
}

#[test]
fn weights_times_amounts() {
    const LAB: &str = "CPU=1.0,Mem=0.25G,GRES/gpu=8.0";
    // The last two are jobs of a real cluster: Slurm printed billing=4 and billing=23 for them.
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
    // Each resource costs a different amount or is of another scope, so that a wrong term shows in the sum.
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
    // The maximum is of the costs and of 0.
    assert_eq!(bill("cpu=-2", "cpu=1", MAX), 0.0);
}

#[test]
fn amounts_are_read_as_slurm_prints_them() {
    // 2⁶⁴ − 2 is NO_VAL64, Slurm's number for a value that is not set.
    let tres = TresAmounts::parse("CPU=2,mem=3.5G,energy=18446744073709551614,node=-1,gres/gpu=1K")
        .unwrap();
    assert_eq!(tres.get("cpu"), 2.0);
    assert_eq!(tres.get("mem"), 3584.0);
    assert_eq!(tres.get("gres/gpu"), 1024.0);
    assert_eq!(tres.find("energy"), None);
    assert_eq!(tres.find("node"), None);
    assert!(TresAmounts::parse("").unwrap().is_empty());

    assert_eq!(
        TresAmounts::parse("cpu"),
        Err(TresError::Entry("cpu".into()))
    );
}

#[test]
fn invalid_weights_are_refused() {
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
