//! States of nodes: Slurm's words, their meaning, and what jobs may expect of the node.
//!
//! Source: `node_state_string*` and `node_state_flags` of Slurm's `slurm_protocol_defs.c`, 22.05 to
//! 26.05. A state is a base state and any number of flags. `scontrol` and slurmrestd write them all
//! (`IDLE+CLOUD+POWERED_DOWN`); `sinfo` and `sacctmgr` write one word and one sign (`idle~`, `DRAIN*`).

/// A base state or a flag of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeWord {
    /// In a maintenance reservation.
    Maintenance,
    /// Configured, but not installed yet.
    Future,
    /// Powered down to save power.
    PoweredDown,
    /// Is being powered down.
    PoweringDown,
    /// To be powered down when its jobs have ended.
    PowerDown,
    /// To be drained and powered down.
    PowerDrain,
    /// Was told to reboot.
    RebootIssued,
    /// To be rebooted when its jobs have ended.
    RebootRequested,
    /// Starts no jobs, by an administrator or a health check.
    Drain,
    /// Expected to fail: starts no jobs.
    Fail,
    /// Registered with fewer resources than configured.
    InvalidRegistration,
    /// Not usable.
    Down,
    /// Not usable because of an error.
    Error,
    /// Is being powered up.
    PoweringUp,
    /// To be powered up.
    PowerUp,
    /// Its slurmd does not answer.
    NotResponding,
    /// Not heard of since slurmctld started.
    Unknown,
    /// All its CPUs are allocated.
    Allocated,
    /// Some of its CPUs are allocated.
    Mixed,
    /// In a reservation.
    Reserved,
    /// Kept from other jobs by a job with an exclusive topology.
    Blocked,
    /// The last processes and epilogs of its jobs are ending.
    Completing,
    /// Kept for a waiting job.
    Planned,
    /// Not allocated.
    Idle,
    /// Anything that says nothing about the use of the node.
    Remark,
}

/// What a state means for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeCondition {
    /// Free: starts a job at once.
    Idle,
    /// Partly allocated.
    Mixed,
    /// Allocated completely.
    Allocated,
    /// The last processes and epilogs of its jobs are ending.
    Completing,
    /// Idle, and kept for a waiting job.
    Planned,
    /// Idle, and reserved.
    Reserved,
    /// Idle, and kept from other jobs by a job with an exclusive topology.
    Blocked,
    /// Reboots, or will when its jobs have ended.
    Rebooting,
    /// Is being powered up or down.
    Powering,
    /// Powered down to save power.
    PoweredDown,
    /// Not installed yet.
    Future,
    /// In maintenance.
    Maintenance,
    /// Drained or draining.
    Drained,
    /// Failing.
    Failing,
    /// Registered with fewer resources than configured.
    Invalid,
    /// Down, or slurmctld does not reach it.
    Down,
    /// No word of the state is known.
    Other,
}

/// Row of the table: a base state or flag, all of Slurm's spellings, the sign that `sinfo` appends for it, and the condition of
/// a node that has it.
type Row = (
    NodeWord,
    &'static [&'static str],
    Option<char>,
    Option<NodeCondition>,
);

/// All base states and flags. The first one of a node that has a condition decides: a drained node is
/// drained, whether it is idle or not.
const TABLE: &[Row] = {
    use NodeCondition as C;
    use NodeWord as W;
    &[
        (
            W::Maintenance,
            &["MAINT", "MAINTENANCE"],
            Some('$'),
            Some(C::Maintenance),
        ),
        (W::Future, &["FUTURE", "FUTR"], None, Some(C::Future)),
        (
            W::PoweredDown,
            &["POWERED_DOWN", "POWERED_DN", "POWER"],
            Some('~'),
            Some(C::PoweredDown),
        ),
        (
            W::PoweringDown,
            &["POWERING_DOWN", "POWRING_DN"],
            Some('%'),
            Some(C::Powering),
        ),
        (
            W::PowerDown,
            &["POWER_DOWN", "POW_DN"],
            Some('!'),
            Some(C::Powering),
        ),
        (W::PowerDrain, &["POWER_DRAIN"], None, Some(C::Powering)),
        (
            W::RebootIssued,
            &["REBOOT_ISSUED"],
            Some('^'),
            Some(C::Rebooting),
        ),
        (
            W::RebootRequested,
            &["REBOOT_REQUESTED", "REBOOT", "BOOT"],
            Some('@'),
            Some(C::Rebooting),
        ),
        (
            W::Drain,
            &["DRAIN", "DRAINED", "DRAINING", "DRNG"],
            None,
            Some(C::Drained),
        ),
        (
            W::Fail,
            &["FAIL", "FAILING", "FAILG"],
            None,
            Some(C::Failing),
        ),
        (
            W::InvalidRegistration,
            &["INVALID_REG", "INVAL"],
            None,
            Some(C::Invalid),
        ),
        (W::Down, &["DOWN"], None, Some(C::Down)),
        (W::Error, &["ERROR"], None, Some(C::Down)),
        // A node that is powering up does not respond yet.
        (
            W::PoweringUp,
            &["POWERING_UP"],
            Some('#'),
            Some(C::Powering),
        ),
        (W::PowerUp, &["POWER_UP", "POW_UP"], None, Some(C::Powering)),
        (
            W::NotResponding,
            &["NOT_RESPONDING", "NO_RESPOND"],
            Some('*'),
            Some(C::Down),
        ),
        (
            W::Unknown,
            &["UNKNOWN", "UNK", "INVALID"],
            None,
            Some(C::Down),
        ),
        (
            W::Allocated,
            &["ALLOCATED", "ALLOC"],
            None,
            Some(C::Allocated),
        ),
        (W::Mixed, &["MIXED", "MIX"], None, Some(C::Mixed)),
        (W::Reserved, &["RESERVED", "RESV"], None, Some(C::Reserved)),
        (W::Blocked, &["BLOCKED", "BLOCK"], None, Some(C::Blocked)),
        (
            W::Completing,
            &["COMPLETING", "COMP"],
            None,
            Some(C::Completing),
        ),
        (
            W::Planned,
            &["PLANNED", "PLND"],
            Some('-'),
            Some(C::Planned),
        ),
        (W::Idle, &["IDLE"], None, Some(C::Idle)),
        (
            W::Remark,
            &[
                "CLOUD",
                "EXTERNAL",
                "EXT",
                "DYNAMIC_NORM",
                "DYNAMIC_FUTURE",
                "RESUME",
                "RESM",
                "UNDRAIN",
                "REBOOT_CANCEL",
                "REBOOT_CANCELED",
                "CANCEL_REBOOT",
                "CANC_R",
                "PERFCTRS",
                "NET",
            ],
            None,
            None,
        ),
    ]
};

/// State of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeState(u32);

impl NodeState {
    /// Reads a state in any of Slurm's spellings, in any case. Unknown words are ignored.
    pub fn parse(text: &str) -> Self {
        let mut state = Self::default();
        for word in text.split(['+', ' ', ',']) {
            // `DOWN*` and `idle~` have the flag as a sign behind the word.
            let name = word.trim_end_matches(|sign: char| !sign.is_ascii_alphanumeric());
            // A word may add two flags: its own and the one of its sign.
            for (known, spellings, sign, _) in TABLE {
                let is_named = spellings.iter().any(|one| one.eq_ignore_ascii_case(name));
                let is_signed = sign.is_some_and(|sign| word[name.len()..].contains(sign));
                if is_named || is_signed {
                    state.0 |= 1 << *known as u32;
                }
            }
        }
        state
    }

    /// Returns all of Slurm's spellings of base states and flags.
    pub fn spellings() -> impl Iterator<Item = &'static str> {
        TABLE
            .iter()
            .flat_map(|(_, spellings, ..)| spellings.iter().copied())
    }

    /// Returns whether the node has this base state or flag.
    pub fn has(self, word: NodeWord) -> bool {
        self.0 & (1 << word as u32) != 0
    }

    /// Returns what the state means for jobs.
    pub fn condition(self) -> NodeCondition {
        TABLE
            .iter()
            .find_map(|(word, _, _, condition)| condition.filter(|_| self.has(*word)))
            .unwrap_or(NodeCondition::Other)
    }

    /// Returns whether jobs can start at once on the part of the node that no job holds.
    pub fn starts_jobs(self) -> bool {
        // Such nodes are idle or mixed by their base state, but their free part waits for certain jobs.
        let is_kept = [NodeWord::Reserved, NodeWord::Blocked, NodeWord::Planned]
            .iter()
            .any(|word| self.has(*word));
        let is_used = matches!(
            // An allocated node may still have free GPUs: Slurm calls it so when its CPUs are allocated.
            self.condition(),
            NodeCondition::Idle | NodeCondition::Mixed | NodeCondition::Allocated
        );
        is_used && !is_kept
    }

    /// Returns whether slurmctld reaches the node's slurmd.
    pub fn is_reached(self) -> bool {
        use NodeWord::{
            Down, Error, Fail, Future, InvalidRegistration, NotResponding, PowerDown, PowerDrain,
            PowerUp, PoweredDown, PoweringDown, PoweringUp, RebootIssued, Unknown,
        };
        let lost = [
            Down,
            Error,
            Fail,
            Future,
            InvalidRegistration,
            NotResponding,
            PowerDown,
            PowerDrain,
            PowerUp,
            PoweredDown,
            PoweringDown,
            PoweringUp,
            RebootIssued,
            Unknown,
        ];
        // A state without any known word says nothing, so the node does not count as reached.
        self.0 != 0 && !lost.iter().any(|word| self.has(*word))
    }
}

impl NodeCondition {
    /// Returns the name, as in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Mixed => "mixed",
            Self::Allocated => "allocated",
            Self::Completing => "completing",
            Self::Planned => "planned",
            Self::Reserved => "reserved",
            Self::Blocked => "blocked",
            Self::Rebooting => "rebooting",
            Self::Powering => "powering",
            Self::PoweredDown => "powered_down",
            Self::Future => "future",
            Self::Maintenance => "maintenance",
            Self::Drained => "drained",
            Self::Failing => "failing",
            Self::Invalid => "invalid",
            Self::Down => "down",
            Self::Other => "other",
        }
    }

    /// Returns whether the node starts no jobs and somebody has to repair or resume it.
    pub fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::Drained | Self::Failing | Self::Invalid | Self::Down
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};

    /// What `scontrol` and slurmrestd write, what `sinfo` and `sacctmgr` write for the same state, the condition, and whether
    /// jobs start at once.
    #[test]
    fn each_state_of_slurm_has_its_condition_in_every_spelling() {
        use NodeCondition as C;
        for (spellings, condition, starts) in [
            ("IDLE idle", C::Idle, true),
            (
                "IDLE+CLOUD IDLE+DYNAMIC_NORM IDLE+EXTERNAL IDLE+REBOOT_CANCELED IDLE+DYNAMIC_FUTURE",
                C::Idle,
                true,
            ),
            ("MIXED mix MIXED+COMPLETING", C::Mixed, true),
            (
                "MIXED+PLANNED mix- MIXED+RESERVED MIXED+BLOCKED",
                C::Mixed,
                false,
            ),
            (
                "ALLOCATED alloc ALLOCATED+COMPLETING ALLOC+",
                C::Allocated,
                true,
            ),
            ("IDLE+COMPLETING COMPLETING comp", C::Completing, false),
            ("IDLE+PLANNED PLANNED plnd", C::Planned, false),
            ("IDLE+RESERVED RESERVED resv", C::Reserved, false),
            ("IDLE+BLOCKED BLOCKED BLOCK", C::Blocked, false),
            (
                "IDLE+REBOOT_REQUESTED REBOOT boot IDLE@ MIXED+REBOOT_REQUESTED mix@",
                C::Rebooting,
                false,
            ),
            (
                "IDLE+REBOOT_ISSUED REBOOT^ BOOT^ DOWN+REBOOT_ISSUED+NOT_RESPONDING BOOT*",
                C::Rebooting,
                false,
            ),
            (
                "IDLE+DRAIN+REBOOT_REQUESTED DRAIN@ DRNG^",
                C::Rebooting,
                false,
            ),
            (
                "IDLE+CLOUD+POWERED_DOWN idle~ POWERED_DN IDLE+POWER DOWN~ IDLE+DRAIN+POWERED_DOWN",
                C::PoweredDown,
                false,
            ),
            ("IDLE+POWERING_DOWN idle% POWRING_DN", C::Powering, false),
            (
                "IDLE+POWER_DOWN idle! POW_DN IDLE+DRAIN+POWER_DRAIN",
                C::Powering,
                false,
            ),
            (
                "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP idle# ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP alloc#",
                C::Powering,
                false,
            ),
            ("IDLE+POWER_UP POW_UP", C::Powering, false),
            (
                "IDLE+MAINT IDLE+MAINTENANCE maint MAINT* MIXED+MAINTENANCE DOWN$ DRAIN$",
                C::Maintenance,
                false,
            ),
            ("FUTURE futr FUTR*", C::Future, false),
            (
                "IDLE+DRAIN drained DRAIN drained* DRAIN* MIXED+DRAIN draining drng DOWN+DRAIN",
                C::Drained,
                false,
            ),
            ("IDLE+DRAIN+INVALID_REG DRAIN#", C::Drained, false),
            (
                "IDLE+FAIL fail FAIL* MIXED+FAIL failing failg FAILG*",
                C::Failing,
                false,
            ),
            ("IDLE+INVALID_REG INVAL", C::Invalid, false),
            (
                "DOWN down DOWN* DOWN+NOT_RESPONDING DOWN# ERROR",
                C::Down,
                false,
            ),
            ("IDLE+NOT_RESPONDING idle* IDLE*+CLOUD", C::Down, false),
            ("UNKNOWN unk UNK* UNKNOWN*", C::Down, false),
            ("? QUANTUM +", C::Other, false),
        ] {
            for spelling in spellings.split(' ') {
                let state = NodeState::parse(spelling);
                assert_eq!(state.condition(), condition, "{spelling}");
                assert_eq!(state.starts_jobs(), starts, "{spelling}");
            }
        }
        assert_eq!(NodeState::parse("").condition(), C::Other);
        // A word of a later release says nothing; the others still do.
        assert_eq!(NodeState::parse("IDLE+QUANTUM").condition(), C::Idle);
        assert_eq!(
            NodeState::parse("MIXED+QUANTUM+DRAIN").condition(),
            C::Drained
        );
    }

    #[test]
    fn slurmctld_reaches_nodes_that_answer() {
        for reached in [
            "IDLE",
            "MIXED+DRAIN",
            "ALLOCATED+COMPLETING",
            "IDLE+MAINT",
            "mix-",
            "IDLE+REBOOT_REQUESTED",
        ] {
            assert!(NodeState::parse(reached).is_reached(), "{reached}");
        }

        for lost in [
            "DOWN",
            "idle*",
            "idle~",
            "alloc#",
            "FUTURE",
            "IDLE+INVALID_REG",
            "UNK",
            "BOOT^",
            "",
        ] {
            assert!(!NodeState::parse(lost).is_reached(), "{lost}");
        }
    }

    #[test]
    fn each_word_of_the_table_stands_once_and_in_its_place() {
        let mut spellings: Vec<&str> = TABLE.iter().flat_map(|row| row.1).copied().collect();
        let all = spellings.len();
        spellings.sort_unstable();
        spellings.dedup();
        assert_eq!(spellings.len(), all);

        let mut signs: Vec<char> = TABLE.iter().filter_map(|row| row.2).collect();
        signs.sort_unstable();
        // The sign stands for one flag only, or `parse` would set two.
        assert_eq!(signs.iter().collect::<String>(), "!#$%*-@^~");

        for (at, row) in TABLE.iter().enumerate() {
            // `has` shifts by the number of the word: the table and the enum have one order.
            assert_eq!(row.0 as usize, at);
        }
    }

    proptest! {
        /// No text of Slurm stops the reader, and a word that Slurm adds later leaves the condition as it is.
        #[test]
        fn unknown_words_break_nothing(text in any::<String>(), at in 0..TABLE.len()) {
            NodeState::parse(&text);
            let known = TABLE[at].1[0];
            let with = format!("{known}+ENTANGLED");
            assert_eq!(NodeState::parse(&with), NodeState::parse(known));
        }
    }
}
