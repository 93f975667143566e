//! How much time has really passed, decided from evidence.
//!
//! The system's clock may jump: NTP corrects a wrong battery clock, or somebody sets it. What cannot
//! be undone (deleting samples, mailing reports) therefore does not follow the clock, but a time
//! that advances with the time since boot, which nobody can set. It takes over a jump only with
//! evidence: NTP-kept clocks of other nodes agree, or the changed clock has stood for a day and none
//! of them disagrees.

use serde::{Deserialize, Serialize};
use takt_model::Timestamp;

/// Difference up to which two clocks agree, in milliseconds.
const TOLERANCE_MS: i64 = 60_000;

/// Milliseconds of the clock since boot in which the trusted time follows the system's clock by one
/// millisecond without evidence. NTP corrects clocks at half that rate (500 ppm).
const MS_PER_SLEWED_MS: i64 = 1000;

const DAY_MS: i64 = 86_400_000;

/// Time for which a changed clock must stand without contradiction until it is trusted without
/// witnesses, in milliseconds.
const STANDING_MS: i64 = DAY_MS;

/// Age of the last jump from which on the readings of witnesses are newer than the jump, in
/// milliseconds. Readings are at most [`WITNESS_AGE_MS`] old.
const HEARING_MS: i64 = 30_000;

/// Number of agreeing witnesses that confirm a lead of more than [`DAY_MS`]. A single one may follow
/// the same wrong NTP server.
const CONFIRMING: usize = 2;

/// Maximum age of a witness' reading, in milliseconds.
pub(crate) const WITNESS_AGE_MS: i64 = 25_000;

/// Longest time between two boots that is trusted without evidence, in milliseconds: the machine was
/// restarted. A clock that stood before a boot, and was off for at most [`DAY_MS`], stands for this
/// time at least until it is trusted again: NTP corrects a wrong battery clock within minutes.
const RESTART_MS: i64 = 3_600_000;

/// Time for which alerting ignores a jump ahead that no witness contradicts, in milliseconds.
const HOLD_MS: i64 = 600_000;

/// Time after a jump until alerting looks for samples of the changed clock, in milliseconds. By then
/// targets have been scraped at the new times.
const SWITCH_MS: i64 = 60_000;

/// The trusted time, and what is known about the system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrustedTime {
    /// Trusted time at the last look.
    trusted: Timestamp,
    /// Reading of the clock since boot at the last look, in milliseconds.
    seen_ms: i64,
    /// Milliseconds by which the system's clock was ahead of the trusted time at the last look.
    ahead_ms: i64,
    /// The same just after the last jump.
    jump_ms: i64,
    /// Reading of the clock since boot at the last jump; `None` without a jump since boot.
    jumped_at_ms: Option<i64>,
    /// [`held_ms`](Self::held_ms) just before the last jump.
    held_before_ms: i64,
    /// Reading of the clock since boot since which the clock stands without contradiction.
    stands_since_ms: i64,
    /// Whether most witnesses contradict the clock.
    is_contradicted: bool,
}

/// A look at the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// Time of the system's clock.
    pub now: Timestamp,
    /// Time that has surely passed. It never goes back, except with evidence.
    pub trusted: Timestamp,
    /// Whether the clock agrees with the trusted time, and witnesses do not contradict it.
    pub is_trusted: bool,
    /// Milliseconds that are subtracted from the clock to get [`alerting_time`](Self::alerting_time).
    held_ms: i64,
    /// Milliseconds to add to a time of alerting to get the time of its samples.
    samples_ahead_ms: i64,
}

impl ClockState {
    /// Time up to which acts that cannot be undone may reach: neither a clock that is ahead nor one
    /// that is behind makes it later than the time that has passed.
    pub fn surely_passed(&self) -> Timestamp {
        self.trusted.min(self.now)
    }

    /// Time that alerting goes by. It ignores a jump back until there is evidence for it, and a jump
    /// ahead for ten minutes and for as long as most witnesses contradict it.
    pub fn alerting_time(&self) -> Timestamp {
        self.now.minus_ms(self.held_ms)
    }

    /// Returns the timestamp that samples have which were scraped at a time of alerting.
    pub fn of_samples(&self, alerting_time: Timestamp) -> Timestamp {
        alerting_time.plus_ms(self.samples_ahead_ms)
    }

    /// Seconds by which the clock is ahead of the trusted time; negative if it is behind.
    pub fn ahead_seconds(&self) -> f64 {
        (self.now - self.trusted) as f64 / 1e3
    }
}

impl TrustedTime {
    /// Trusts `trusted` at a reading of the clock since boot.
    pub fn new(trusted: Timestamp, boot_ms: i64) -> Self {
        Self {
            trusted,
            seen_ms: boot_ms,
            ahead_ms: 0,
            jump_ms: 0,
            jumped_at_ms: None,
            held_before_ms: 0,
            stands_since_ms: boot_ms,
            is_contradicted: false,
        }
    }

    /// Continues after another boot, whose clock since boot began anew at the end of an unknown time. A
    /// clock that is ahead of the trusted time has not jumped, then; up to [`RESTART_MS`] are trusted.
    /// A clock goes on standing if the machine was off for at most [`DAY_MS`]: a workstation that is
    /// switched off every night never runs for [`STANDING_MS`].
    pub fn after_boot(self, now: Timestamp, boot_ms: i64) -> Self {
        let ahead_ms = now - self.trusted;
        let off_ms = ahead_ms.saturating_sub(self.ahead_ms);
        if (0..=RESTART_MS).contains(&ahead_ms) {
            return Self::new(now, boot_ms);
        }

        let stood_ms = match off_ms {
            0..=DAY_MS if self.state().is_trusted => STANDING_MS,
            0..=DAY_MS => self.seen_ms - self.stands_since_ms,
            _ => 0,
        };
        Self {
            ahead_ms,
            jump_ms: ahead_ms,
            stands_since_ms: boot_ms - stood_ms.min(STANDING_MS - RESTART_MS),
            ..Self::new(self.trusted, boot_ms)
        }
    }

    /// Whether `boot_ms` can be a later reading of the same boot.
    pub fn continues_at(&self, boot_ms: i64) -> bool {
        boot_ms >= self.seen_ms
    }

    /// Looks at both clocks. Returns the milliseconds by which the system's clock has jumped since
    /// the last look, if it has.
    pub fn look(&mut self, now: Timestamp, boot_ms: i64) -> Option<i64> {
        let passed = (boot_ms - self.seen_ms).max(0);
        let expected = self.trusted.plus_ms(passed);
        let ahead_ms = now - expected;
        self.seen_ms = self.seen_ms.max(boot_ms);
        // Against the lead after the last jump, so that many small steps are a jump, too.
        let by = ahead_ms.saturating_sub(self.jump_ms);
        let has_jumped = by.saturating_abs() > TOLERANCE_MS;
        if has_jumped {
            self.held_before_ms = self.held_ms();
            self.jump_ms = ahead_ms;
            self.jumped_at_ms = Some(self.seen_ms);
            self.stands_since_ms = self.seen_ms;
            self.is_contradicted = false;
        }

        let slewed = ahead_ms.clamp(-passed / MS_PER_SLEWED_MS, passed / MS_PER_SLEWED_MS);
        self.trusted = expected.plus_ms(slewed);
        self.ahead_ms = ahead_ms - slewed;
        self.jump_ms -= slewed;

        if self.seen_ms - self.stands_since_ms >= STANDING_MS {
            self.accept(now);
        }
        has_jumped.then_some(by)
    }

    /// Hears witnesses: the milliseconds by which their clocks are ahead of the system's, from
    /// readings of the last [`WITNESS_AGE_MS`], one for each node. Most of them decide. A clock that
    /// is more than [`DAY_MS`] ahead needs [`CONFIRMING`] of them.
    pub fn hear(&mut self, ahead_ms: &[i64]) {
        // Readings from before the jump say nothing about the clock after it.
        if ahead_ms.is_empty() || self.seen_ms - self.stands_since_jump() < HEARING_MS {
            return;
        }
        let agreeing = ahead_ms
            .iter()
            .filter(|ahead| ahead.saturating_abs() <= TOLERANCE_MS)
            .count();
        if 2 * agreeing <= ahead_ms.len() {
            self.is_contradicted = true;
            self.stands_since_ms = self.seen_ms;
            return;
        }

        self.is_contradicted = false;
        if self.ahead_ms <= DAY_MS || agreeing >= CONFIRMING {
            self.accept(self.trusted.plus_ms(self.ahead_ms));
        }
    }

    /// State of the clock at the last look.
    pub fn state(&self) -> ClockState {
        let is_fresh = |at: i64| self.seen_ms - at < SWITCH_MS;
        let held_ms = self.held_ms();
        ClockState {
            now: self.trusted.plus_ms(self.ahead_ms),
            trusted: self.trusted,
            is_trusted: self.agrees() && !self.is_contradicted,
            held_ms,
            samples_ahead_ms: if self.jumped_at_ms.is_some_and(is_fresh) {
                self.held_before_ms
            } else {
                held_ms
            },
        }
    }

    /// Takes the system's clock for right.
    fn accept(&mut self, now: Timestamp) {
        self.trusted = now;
        self.ahead_ms = 0;
        self.jump_ms = 0;
        self.stands_since_ms = self.seen_ms;
        self.is_contradicted = false;
    }

    fn agrees(&self) -> bool {
        self.ahead_ms.saturating_abs() <= TOLERANCE_MS
    }

    /// Reading of the clock since boot at the last jump, or at the start.
    fn stands_since_jump(&self) -> i64 {
        self.jumped_at_ms.unwrap_or(i64::MIN / 2)
    }

    /// Milliseconds of the clock's lead that alerting ignores.
    fn held_ms(&self) -> i64 {
        let is_young = |at: i64| self.seen_ms - at < HOLD_MS;
        let is_held = !self.agrees()
            && (self.ahead_ms < 0
                || self.is_contradicted
                || self.jumped_at_ms.is_some_and(is_young));
        if is_held { self.ahead_ms } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;

    const DAY: i64 = 86_400_000;
    const BEGIN: Timestamp = Timestamp(1_800_000_000_000);

    /// A machine whose clocks a test moves.
    struct Machine {
        time: TrustedTime,
        boot_ms: i64,
        /// Milliseconds by which the system's clock is wrong.
        wrong_ms: i64,
    }

    impl Machine {
        fn new() -> Self {
            Self {
                time: TrustedTime::new(BEGIN, 0),
                boot_ms: 0,
                wrong_ms: 0,
            }
        }

        fn truth(&self) -> Timestamp {
            BEGIN.plus_ms(self.boot_ms)
        }

        fn pass(&mut self, ms: i64) -> ClockState {
            self.boot_ms += ms;
            self.time
                .look(self.truth().plus_ms(self.wrong_ms), self.boot_ms);
            self.time.state()
        }
    }

    #[test]
    fn a_jump_that_is_taken_back_changes_nothing() {
        let mut machine = Machine::new();
        machine.pass(1000);
        for wrong in [366 * DAY, -DAY, 2 * 3_600_000] {
            machine.wrong_ms = wrong;
            for _ in 0..90 {
                let state = machine.pass(1000);
                assert!(!state.is_trusted);
                assert!(state.surely_passed() <= machine.truth().plus_ms(100));
                assert!((state.alerting_time() - machine.truth()).abs() < 100);
            }
            // A minute after the jump, the samples of the changed clock are there.
            let samples = machine.time.state().of_samples(machine.truth());
            assert!((samples - machine.truth() - wrong).abs() < 100);
            machine.wrong_ms = 0;
            let state = machine.pass(1000);
            assert!(state.is_trusted, "{state:?}");
            assert!((state.surely_passed() - machine.truth()).abs() < 1000);
            machine.pass(2 * SWITCH_MS);
        }
    }

    #[test]
    fn witnesses_decide_about_a_jump_once_their_readings_are_newer() {
        let mut machine = Machine::new();
        machine.wrong_ms = 30 * DAY;
        machine.pass(1000);
        machine.time.hear(&[0, 0, 0]);
        assert!(!machine.time.state().is_trusted, "read before the jump");
        machine.pass(HEARING_MS);
        machine.time.hear(&[0, 0, -30 * DAY]);
        let state = machine.pass(1000);
        assert!(state.is_trusted);
        assert_eq!(state.surely_passed(), state.now);

        // A clock that most contradict is not trusted, however long it stands.
        machine.wrong_ms += DAY;
        for _ in 0..5 * 24 {
            machine.pass(3_600_000);
            machine.time.hear(&[-DAY, -DAY, 0]);
        }
        let state = machine.time.state();
        assert!(!state.is_trusted);
        assert!(state.now - state.surely_passed() > DAY - DAY / 100);
        assert!(state.now - state.alerting_time() > DAY - DAY / 100);
    }

    #[test]
    fn a_clock_that_stands_for_a_day_is_trusted_without_witnesses() {
        let mut machine = Machine::new();
        machine.wrong_ms = -3_600_000;
        for _ in 0..24 {
            assert!(!machine.pass(3_600_000).is_trusted);
        }
        let state = machine.pass(3_600_000);
        assert!(state.is_trusted);
        assert_eq!(state.surely_passed(), state.now);
    }

    #[test]
    fn alerting_follows_a_jump_ahead_that_nobody_contradicts() {
        let mut machine = Machine::new();
        machine.wrong_ms = 2 * 3_600_000;
        assert!(machine.pass(1000).alerting_time() < machine.truth().plus_ms(100));
        let state = machine.pass(HOLD_MS);
        assert_eq!(state.alerting_time(), state.now);
        assert!(state.surely_passed() < state.now.minus_ms(3_600_000));
    }

    #[test]
    fn after_a_boot_the_time_since_then_needs_evidence() {
        let month = BEGIN.plus_ms(30 * DAY);
        let mut time = TrustedTime::new(BEGIN, 900).after_boot(month, 5);
        assert_eq!(time.look(month, 5), None);
        let state = time.state();
        assert!(!state.is_trusted);
        assert_eq!(state.surely_passed(), BEGIN);
        assert_eq!(state.alerting_time(), month, "alerting goes by the clock");
        time.hear(&[200]);
        assert_eq!(
            time.state().surely_passed(),
            BEGIN,
            "one node alone may err"
        );
        time.hear(&[200, -100]);
        assert_eq!(time.state().surely_passed(), month);

        // Without other nodes, the clock is trusted a day after the boot.
        let mut time = TrustedTime::new(BEGIN, 900).after_boot(month, 5);
        time.look(month.plus_ms(DAY - 1), 5 + DAY - 1);
        assert!(!time.state().is_trusted);
        time.look(month.plus_ms(DAY), 5 + DAY);
        assert_eq!(time.state().surely_passed(), month.plus_ms(DAY));

        // A restart of the machine.
        let soon = BEGIN.plus_ms(1_800_000);
        let mut time = TrustedTime::new(BEGIN, 900).after_boot(soon, 5);
        time.look(soon, 5);
        assert!(time.state().is_trusted);

        // A battery clock that shows 1970: time does not go back.
        let mut time = TrustedTime::new(BEGIN, 900).after_boot(Timestamp(0), 5);
        time.look(Timestamp(10_000), 10_005);
        let state = time.state();
        assert_eq!(state.surely_passed(), Timestamp(10_000));
        assert!((state.alerting_time() - BEGIN.plus_ms(10_000)).abs() < 100);
    }

    #[test]
    fn one_node_confirms_no_jump_of_more_than_a_day() {
        let mut machine = Machine::new();
        for (wrong_ms, agreeing, is_trusted) in [
            (366 * DAY, 1, false),
            (366 * DAY, 2, true),
            (367 * DAY - TOLERANCE_MS, 1, true),
            (-DAY, 1, true),
        ] {
            machine.wrong_ms = wrong_ms;
            machine.pass(1000);
            machine.pass(HEARING_MS);
            machine.time.hear(&vec![0; agreeing]);
            let state = machine.time.state();
            assert_eq!(state.is_trusted, is_trusted, "{wrong_ms} {agreeing}");
        }

        // One node ends a contradiction, but not the wait.
        machine.wrong_ms = 366 * DAY;
        machine.pass(HEARING_MS);
        machine.pass(HEARING_MS);
        machine.time.hear(&[-DAY]);
        assert!(machine.time.is_contradicted);
        machine.time.hear(&[0]);
        assert!(!machine.time.is_contradicted);
        assert!(!machine.pass(STANDING_MS - 1).is_trusted);
        assert!(machine.pass(1).is_trusted);
    }

    #[test]
    fn a_workstation_that_is_off_every_night_is_trusted_an_hour_after_it_starts() {
        const HOUR: i64 = 3_600_000;
        let mut time = TrustedTime::new(BEGIN, 0);
        let mut now = BEGIN;
        let mut morning = |off_hours: i64, up_hours: i64| {
            now = now.plus_ms(off_hours * HOUR);
            time = time.after_boot(now, 0);
            let mut untrusted = 0;
            for minute in 0..up_hours * 60 {
                time.look(now.plus_ms(minute * 60_000), minute * 60_000);
                untrusted += i64::from(!time.state().is_trusted);
            }
            now = now.plus_ms(up_hours * HOUR);
            untrusted
        };
        assert_eq!(morning(15, 9), 60);
        assert_eq!(morning(15, 9), 60);
        // After a month, it needs a day of running in sum.
        assert_eq!(morning(30 * 24, 9), 9 * 60);
        assert_eq!(morning(15, 9), 9 * 60);
        let third = morning(15, 9);
        assert!((6 * 60 - 5..=6 * 60 + 5).contains(&third), "{third}");
        assert_eq!(morning(15, 9), 60);
    }

    #[test]
    fn small_steps_are_a_jump_when_they_add_up() {
        let mut machine = Machine::new();
        for _ in 0..120 {
            machine.wrong_ms += 30_000;
            machine.pass(1000);
        }
        let state = machine.time.state();
        assert!(!state.is_trusted);
        assert!(state.surely_passed() <= machine.truth().plus_ms(1000));
    }

    proptest! {
        /// Whatever the clock does: without evidence, no more time is trusted than the clock since boot
        /// has counted, and a thousandth.
        #[test]
        fn no_more_time_is_trusted_than_has_passed(
            steps in collection::vec((0_i64..3_600_000, -400 * DAY..400 * DAY, 0_u8..4), 1..80),
        ) {
            let mut time = TrustedTime::new(BEGIN, 0);
            let mut boot_ms = 0;
            let mut wrong_ms = 0;
            let mut limit = BEGIN;
            for (passed, jump, what) in steps {
                boot_ms += passed;
                // Half of the steps move the clock; it never stands for a day.
                wrong_ms = if what < 2 { jump } else { wrong_ms + 61_000 };
                limit = limit.plus_ms(passed + passed / MS_PER_SLEWED_MS + 1);
                let now = BEGIN.plus_ms(boot_ms + wrong_ms);
                time.look(now, boot_ms);
                if what == 3 {
                    time.hear(&[-wrong_ms, -wrong_ms, 0]);
                }
                if time.state().trusted > limit {
                    // Only witnesses that agree with the clock, which shows the truth then.
                    prop_assert!(what == 3 && wrong_ms.abs() <= TOLERANCE_MS);
                    limit = now;
                }
                prop_assert!(time.state().surely_passed() <= now);
            }
        }

        /// A clock that is right again is trusted at once, whatever it showed in between.
        #[test]
        fn a_right_clock_is_trusted(
            jumps in collection::vec((1_i64..3_600_000, -400 * DAY..400 * DAY), 0..20),
        ) {
            let mut machine = Machine::new();
            let mut total = 0;
            for (passed, wrong) in jumps {
                machine.wrong_ms = wrong;
                machine.pass(passed);
                total += passed;
            }
            machine.wrong_ms = 0;
            let state = machine.pass(1);
            prop_assert!(state.is_trusted || total / MS_PER_SLEWED_MS > TOLERANCE_MS);
        }
    }
}
