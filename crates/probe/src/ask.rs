//! One round of questions to one device.

use crate::config::DeviceConfig;
use crate::parts::{DeviceMemory, DevicePart, ProbeRound};
use crate::profile::profile_of;
use crate::reading::DeviceReading;
use crate::secret::SnmpAccess;
use crate::snmp::{Session, SnmpError, SnmpValue};
use std::time::Duration;
use tokio::time::Instant;

/// `sysDescr`, `sysObjectID`, `sysUpTime`, `sysName`.
const SYSTEM: [&str; 4] = [
    "1.3.6.1.2.1.1.1.0",
    "1.3.6.1.2.1.1.2.0",
    "1.3.6.1.2.1.1.3.0",
    "1.3.6.1.2.1.1.5.0",
];

/// Time after which texts (names, aliases, neighbours) are read again. They seldom change, and are half of what a switch says.
const TEXTS_EVERY: Duration = Duration::from_secs(600);

/// Range of `sysUpTime`, which counts hundredths of a second with 32 bits: 497 days.
const TICKS: f64 = 4_294_967_296.0;

/// A device that is asked again and again.
#[derive(Debug)]
pub struct DeviceProbe {
    config: DeviceConfig,
    memory: DeviceMemory,
    /// When texts were last read.
    texts_at: Option<Instant>,
    /// `sysUpTime` in ticks, and when it was read.
    uptime: Option<(f64, Instant)>,
}

impl DeviceProbe {
    /// A device of which nothing is known yet.
    pub fn new(config: DeviceConfig) -> Self {
        Self {
            config,
            memory: DeviceMemory::default(),
            texts_at: None,
            uptime: None,
        }
    }

    /// The device.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Asks the device for everything that its profile has. Ends within the device's timeout.
    pub async fn ask(&mut self) -> DeviceReading {
        let started = Instant::now();
        let mut reading = DeviceReading {
            device: self.config.name.clone(),
            address: self.config.address.clone(),
            ..DeviceReading::default()
        };

        let deadline = started + self.config.timeout();
        match self.open(deadline, &mut reading).await {
            Some(mut session) => {
                if let Err(error) = self.read(&mut session, &mut reading).await {
                    reading.problem("device", error.reason(), error.to_string());
                }
                reading.requests = session.requests();
                self.memory.size = session.size();
            }
            None => debug_assert!(!reading.problems.is_empty(), "no session has a reason"),
        }
        reading.duration_seconds = started.elapsed().as_secs_f64();
        reading
    }

    /// Reads the secrets and opens a socket. `None` with a problem in the reading.
    async fn open(&mut self, deadline: Instant, reading: &mut DeviceReading) -> Option<Session> {
        // Secrets are read in each round, so that a new one needs no restart. The files have one line.
        let access = match SnmpAccess::read(&self.config) {
            Ok(access) => access,
            Err(error) => {
                reading.problem("device", "secret", error.to_string());
                return None;
            }
        };
        let Some(place) = self.config.host_and_port() else {
            let text = format!("{:?} is no host:port", self.config.address);
            reading.problem("device", "unreachable", text);
            return None;
        };
        let memory = &mut self.memory;
        match Session::open(place, &access, &mut memory.keys, memory.size, deadline).await {
            Ok(session) => Some(session),
            Err(error) => {
                reading.problem("device", error.reason(), error.to_string());
                None
            }
        }
    }

    /// Reads the device.
    ///
    /// # Errors
    /// If the device does not say what it is. A part that cannot be read is a problem in the reading.
    async fn read(
        &mut self,
        session: &mut Session,
        reading: &mut DeviceReading,
    ) -> Result<(), SnmpError> {
        let system = session.values(&SYSTEM).await?;
        let now = Instant::now();
        let text = |at: usize| system[at].as_ref().and_then(SnmpValue::text);
        reading.is_up = true;
        reading.description = text(0).unwrap_or_default();
        reading.name = text(3).unwrap_or_default();
        let ticks = system[2].as_ref().and_then(SnmpValue::amount);
        reading.uptime_seconds = ticks.map(|ticks| ticks / 100.0);
        let object_id = match &system[1] {
            Some(SnmpValue::Object(id)) => id.clone(),
            _ => Default::default(),
        };
        reading.object_id = object_id.to_string();
        let profile = profile_of(&object_id);
        reading.profile = profile.name;

        let reads_texts = self.needs_texts(ticks, now);
        // Until they are read, texts are asked for again: after a start, ifIndex may name other ports.
        if reads_texts && self.texts_at.take().is_some() {
            // What was lost on the way once must not make requests small for ever.
            session.forget_size();
        }
        let is_whole = self
            .read_parts(profile.parts, session, reading, reads_texts)
            .await;
        if reads_texts && is_whole {
            self.texts_at = Some(now);
        }
        self.uptime = ticks.map(|ticks| (ticks, now));
        Ok(())
    }

    /// Reads the parts one after another. Returns whether all of them were read.
    async fn read_parts(
        &mut self,
        parts: &[DevicePart],
        session: &mut Session,
        reading: &mut DeviceReading,
        reads_texts: bool,
    ) -> bool {
        let mut is_whole = true;
        for part in parts {
            let mut round = ProbeRound {
                session: &mut *session,
                memory: &mut self.memory,
                reading: &mut *reading,
                reads_texts,
                part: *part,
            };
            if let Err(error) = part.read(&mut round).await {
                is_whole = false;
                reading.problem(part.name(), error.reason(), error.to_string());
                if error.ends_round() {
                    break;
                }
            }
        }
        is_whole
    }

    /// Whether texts are read in this round: they are old, or the device has started and `ifIndex` may name other ports.
    fn needs_texts(&self, ticks: Option<f64>, now: Instant) -> bool {
        let is_old = self.texts_at.is_none_or(|at| now - at >= TEXTS_EVERY);
        let has_started = match (self.uptime, ticks) {
            (Some((before, at)), Some(ticks)) => has_restarted(before, ticks, now - at),
            _ => false,
        };
        is_old || has_started
    }
}

/// Whether `sysUpTime` went back because the device has started, and not because the counter has reached its end.
fn has_restarted(before: f64, ticks: f64, passed: Duration) -> bool {
    if ticks >= before {
        return false;
    }
    // At its end the counter goes on at 0: the sum is near the time that has passed.
    let as_wrap = ticks + TICKS - before;
    let passed = passed.as_secs_f64() * 100.0;
    as_wrap > passed * 2.0 + 6000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uptime_that_goes_back_is_a_start_unless_it_wraps() {
        let minute = Duration::from_secs(60);
        assert!(!has_restarted(1000.0, 7000.0, minute));
        assert!(has_restarted(8_640_000.0, 3000.0, minute));
        assert!(!has_restarted(TICKS - 2000.0, 4000.0, minute));
        // It was near its end, and has been up for an hour now: that is no wrap within a minute.
        assert!(has_restarted(TICKS - 2000.0, 360_000.0, minute));
    }

    #[tokio::test]
    async fn a_device_without_its_secret_says_so_at_once() {
        let config = DeviceConfig {
            community_file: Some("/nonexistent/community".into()),
            ..DeviceConfig::at("leaf1", "127.0.0.1:1")
        };
        let reading = DeviceProbe::new(config).ask().await;
        assert!(!reading.is_up);
        assert_eq!(reading.problems[0].reason, "secret");
        let text = &reading.problems[0].text;
        assert!(
            text.contains("cannot read /nonexistent/community"),
            "{text}"
        );
    }
}
