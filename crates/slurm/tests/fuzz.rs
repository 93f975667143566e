//! Texts of Slurm with random edits: each parser returns, and none panics or takes long.
//!
//! `make test` tries a few hundred texts for each parser. `make fuzz` tries many more
//! (`PROPTEST_CASES`).

use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::collections::HashMap;
use takt_jobs::billing::TresAmounts;
use takt_jobs::{Amounts, BillingWeights, Owner, UsageResetPeriod, nodelist};
use takt_slurm::{jobcomp, node, reservation, sacct, share_text, sreport, tres};

/// Texts as Slurm writes them, one for each kind of line.
const SEEDS: [&str; 14] = [
    "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|\
     ElapsedRaw\n1_[3-5%2]|alice|a|gpu|2026-10-01T10:00:00|Unknown|2026-10-01T10:01:00|\
     2026-10-01T12:01:00|CANCELLED by 1000|cpu=8,gres/gpu:h100=2,mem=64G,node=1|1|8|n[1-3]|7200\n\
     2+1|bob|b|cpu|1760000000|1760000000|1760000001|1760003600|COMPLETED|cpu=1,node=1|1|1|n1|3599\n",
    "JobId=12 UserId=alice(1000) GroupId=a(1000) Name=x y JobState=COMPLETED Partition=gpu \
     TimeLimit=60 StartTime=2026-10-01T10:00:00 EndTime=2026-10-01T11:00:00 NodeList=n[1-2] \
     NodeCnt=2 ProcCnt=16 WorkDir=/home Tres=cpu=16,gres/gpu=2 SubmitTime=2026-10-01T09:00:00 \
     Cluster=unknown Account=a QOS=normal\n",
    "cpu=8,mem=64G,node=1,billing=8,gres/gpu=2,gres/gpu:h100=2,gres/shard:a=1",
    "CPU=1.0,Mem=0.25G,GRES/gpu=2.0,License/x=1",
    "rack[01-12]-n[1-4,7,09],login,gpu[1-3]",
    "ReservationName=maint StartTime=2026-11-22T08:00:00 EndTime=2026-11-22T12:00:00 \
     Duration=04:00:00 Nodes=n[1-4] NodeCnt=4 CoreCnt=32 Features=(null) PartitionName=(null) \
     Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=32 Users=root Groups=(null) Accounts=a,-b State=ACTIVE",
    "1|maint|2026-11-22T08:00:00|2026-11-22T12:00:00|MAINT|cpu=32,gres/gpu=4|n[1-4]|root\n",
    "lab|n1|2026-11-22T08:00:00|2026-11-22T09:00:00|DOWN*|not responding|cpu=8,mem=1G|root(0)\n",
    "Cluster|Account|Login|Proper Name|TRES Name|Used\nlab|a|alice|Alice|gres/gpu|7200\n",
    "Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare|LevelFS\n\
     root|||1.000000|7200|1.000000||\n a|alice|parent|0.5|7200|1.0|0.25|inf\n",
    "Account|User|Share|ParentName|Partition|DefaultAccount\nroot|||||\na||10|root||\na|alice|1|||a\n",
    "PriorityType = priority/multifactor\nPriorityDecayHalfLife = 14-00:00:00\nPriorityFlags = \
     DEPTH_OBLIVIOUS,NO_FAIR_TREE\nPriorityUsageResetPeriod = MONTHLY\n",
    "PartitionName=gpu\n   AllowGroups=ALL TRESBillingWeights=CPU=1.0,Mem=0.25G State=UP\n",
    "ClusterName=lab Account=a UserName=alice(1000) Partition= Priority=0 ID=5\n    \
     SharesRaw/Norm/Level/Factor=1/0.50/2/0.25\n    UsageRaw/Norm/Efctv=7200.00/1.00/1.00\n    \
     GrpTRES=cpu=N(0),gres/gpu=4(2)\n",
];

/// Replacements for parts of a text: ends of ranges, separators, and letters of other scripts.
const PIECES: [&str; 24] = [
    "",
    "|",
    "||",
    "=",
    ",",
    "[",
    "]",
    "-",
    ":",
    "\n",
    "\r\n",
    "\0",
    "0",
    "-1",
    "18446744073709551616",
    "1e999",
    "NaN",
    "9999-99-99T99:99:99",
    "Unknown",
    "(null)",
    "ä",
    "漢",
    "\u{202e}",
    "'\"\\",
];

/// A seed in which some parts are replaced, repeated or cut off.
fn edited() -> impl Strategy<Value = String> {
    let edit = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0..PIECES.len(),
        0..4_u8,
    );
    (0..SEEDS.len(), prop::collection::vec(edit, 0..8)).prop_map(|(seed, edits)| {
        let mut text: Vec<char> = SEEDS[seed].chars().collect();
        // Parts are chosen in the text as it is after the edits before.
        for (from, to, piece, kind) in edits {
            let ends = [from.index(text.len() + 1), to.index(text.len() + 1)];
            let low = ends[0].min(ends[1]);
            let high = ends[0].max(ends[1]);
            // Insert, replace up to four characters, repeat a part, or cut the end.
            match kind {
                0 => drop(text.splice(low..low, PIECES[piece].chars())),
                1 => drop(text.splice(low..high.min(low + 4), PIECES[piece].chars())),
                2 => {
                    let part = text[low..high].to_vec();
                    drop(text.splice(high..high, part));
                }
                _ => text.truncate(high),
            }
            // Each repetition may double the text.
            text.truncate(4000);
        }
        text.into_iter().collect()
    })
}

fn read_all(text: &str) {
    let cluster = sacct::Cluster::Named("lab".to_owned());
    let options = sacct::Options {
        cluster: cluster.clone(),
        zone: TimeZone::UTC,
        columns: None,
    };

    if let Ok(reader) = sacct::Reader::open(text.as_bytes(), "fuzz", options) {
        reader.for_each(drop);
    }

    let options = jobcomp::Options {
        cluster,
        zone: TimeZone::UTC,
        accounts: HashMap::new(),
        resized: jobcomp::Resized::default(),
    };
    if let Ok(reader) = jobcomp::Reader::open(text.as_bytes(), "fuzz", options) {
        reader.for_each(drop);
    }
    // Each parser reads each text: a file may be given to the wrong one.
    drop(share_text::associations(text, "lab"));
    drop(share_text::qos(text));
    drop(share_text::sacct(text));
    drop(share_text::priority_settings(text));
    drop(share_text::partitions(text));
    drop(share_text::sshare(text));
    drop(share_text::assoc_mgr(text));

    let owners: HashMap<String, Owner> = reservation::owners_by_id(text);
    let mut reservations = reservation::of_sacctmgr(text, &owners);
    reservations.extend(text.lines().filter_map(reservation::of_scontrol));
    for found in reservations {
        let _: Amounts = found.amounts(&HashMap::new());
    }
    drop(sreport::by_user(text));
    drop(sreport::by_part(text));
    drop(node::events(text, "lab"));
    // Pieces of a line, as other parsers hand them on.
    for part in text.split(['|', ' ', '\n']) {
        drop(tres::TresCounts::parse(part));
        drop(BillingWeights::parse(part));
        drop(TresAmounts::parse(part));
        let _ = UsageResetPeriod::parse(part);
        if let Ok(nodes) = nodelist::expand(part) {
            assert!(nodes.len() <= nodelist::MAX_NODES);
        }
    }
}

proptest! {
    #[test]
    fn any_text_of_slurm_is_read_or_refused(text in edited()) {
        read_all(&text);
    }
}
