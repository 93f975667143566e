//! Requests to one device, one at a time. The crate `async-snmp` speaks the protocol; no other file knows it.

use super::value::{ObjectId, SnmpValue};
use super::walk::{ColumnRows, ColumnWalk};
use crate::config::{SnmpDigest, SnmpPrivacy};
use crate::secret::SnmpAccess;
use async_snmp::{
    Auth, AuthProtocol, Client, Error, ErrorStatus, MasterKeys, Oid, PrivProtocol, Retry,
    UdpHandle, UsmConfig, Value, VarBind,
};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{self, Instant};

/// Rows that one request asks for, most first. Some devices answer 10 and never 25.
const REPETITIONS: [u32; 4] = [25, 10, 5, 1];

/// Columns that one request asks for. With 25 rows they are about 2.5 kB.
const COLUMNS: usize = 4;

/// Requests in a row without an answer after which the device counts as dead.
const MAX_SILENCE: u32 = 3;

/// Most requests of one round. 2,000 ports need about 320.
const MAX_REQUESTS: u32 = 4000;

/// A request that failed, or a device that cannot be asked further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnmpError {
    /// The name has no address, or the network no way.
    #[error("cannot reach the device: {0}")]
    Unreachable(String),
    /// The device is silent, as agents are towards a wrong community. What they say about a wrong user or password of v3 is
    /// not signed, so it is not believed.
    #[error(
        "no answer: check the address, that the device has SNMP on and allows this host, and the community, or the user and its passwords"
    )]
    Silent,
    /// The time of the round is over.
    #[error("the device did not answer everything in time")]
    Deadline,
    /// More requests than a table of the largest size needs.
    #[error("the device wanted more than {MAX_REQUESTS} requests")]
    TooManyRequests,
    /// `genErr`: Net-SNMP says it instead of `tooBig` where an answer does not fit into the messages that v3 has agreed on.
    #[error("the device refuses: general error")]
    General,
    /// The device reports another error.
    #[error("the device refuses: {0}")]
    Refused(String),
    /// Not even one value fits into an answer.
    #[error("the device says that no answer fits into its messages")]
    TooBig,
    /// No SNMP, or no answer to the question.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

impl SnmpError {
    /// Value of the label `problem`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Silent => "no_answer",
            Self::Deadline => "timeout",
            Self::TooManyRequests => "too_many_requests",
            Self::General | Self::Refused(_) => "refused",
            Self::TooBig => "too_big",
            Self::Malformed(_) => "malformed",
        }
    }

    /// Whether other questions of the round have no chance either.
    pub(crate) fn ends_round(&self) -> bool {
        !matches!(
            self,
            Self::General | Self::Refused(_) | Self::TooBig | Self::Malformed(_)
        )
    }
}

/// How many rows and columns a request may ask for. It falls while a device does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BulkSize {
    step: usize,
    columns: usize,
}

impl Default for BulkSize {
    fn default() -> Self {
        Self {
            step: 0,
            columns: COLUMNS,
        }
    }
}

impl BulkSize {
    fn repetitions(self) -> u32 {
        REPETITIONS[self.step]
    }

    /// Asks for less. Returns whether there was less to ask for.
    fn reduce(&mut self) -> bool {
        if self.step + 1 < REPETITIONS.len() {
            self.step += 1;
        } else if self.columns > 1 {
            self.columns = 1;
        } else {
            return false;
        }
        true
    }
}

/// What is sent to show who asks, made from the secrets of a device. To make keys from a password, a megabyte is hashed, so they
/// are kept while the secrets stay the same.
#[derive(Debug, Default)]
pub(crate) struct SnmpKeys(Option<(SnmpAccess, Auth)>);

impl SnmpKeys {
    fn of(&mut self, access: &SnmpAccess) -> Result<Auth, SnmpError> {
        if let Some((known, auth)) = &self.0
            && known == access
        {
            return Ok(auth.clone());
        }
        let auth = match access {
            SnmpAccess::Community(secret) => Auth::v2c(secret.text()),
            SnmpAccess::User {
                name,
                digest,
                auth,
                cipher,
                privacy,
            } => {
                let [auth, privacy] = [auth, privacy].map(|secret| secret.text().as_bytes());
                MasterKeys::new(digest_protocol(*digest), auth)
                    .and_then(|keys| keys.with_privacy(cipher_protocol(*cipher), privacy))
                    .and_then(|keys| UsmConfig::new(name.clone()).with_master_keys(keys))
                    .map(Auth::from)
                    .map_err(|error| SnmpError::Refused(error.to_string()))?
            }
        };
        self.0 = Some((access.clone(), auth.clone()));
        Ok(auth)
    }
}

/// Requests to one device within the deadline of a round.
pub(crate) struct Session {
    client: Client<UdpHandle>,
    deadline: Instant,
    /// What the device can answer at all: less after silence, and remembered.
    size: BulkSize,
    /// What fits into an answer about the present table. Texts that stand behind its end may need more room than another table.
    fitting: BulkSize,
    silent: u32,
    requests: u32,
}

impl Session {
    /// Opens a socket for a device. Sends nothing but the question for the address of a host name.
    pub(crate) async fn open(
        (host, port): (&str, u16),
        access: &SnmpAccess,
        keys: &mut SnmpKeys,
        size: BulkSize,
        deadline: Instant,
    ) -> Result<Self, SnmpError> {
        let left = deadline.saturating_duration_since(Instant::now());
        // A quarter of the round: a device gets three requests before it counts as dead.
        let patience = (left / 4).clamp(Duration::from_millis(50), Duration::from_secs(5));
        let client = Client::builder((host, port), keys.of(access)?)
            .request_timeout(patience)
            .construction_timeout(left.max(Duration::from_millis(50)))
            // A request is repeated here, with fewer rows.
            .retry(Retry::none());
        let client = boxed(client.connect())
            .await
            .map_err(|error| failure(&error))?;

        Ok(Self {
            client,
            deadline,
            size,
            fitting: size,
            silent: 0,
            requests: 0,
        })
    }

    /// Number of requests until now.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// What a request may ask for, as learnt from the device.
    pub(crate) fn size(&self) -> BulkSize {
        self.size
    }

    /// Asks for as much at once as at the first time.
    pub(crate) fn forget_size(&mut self) {
        self.size = BulkSize::default();
    }

    /// Returns single values, in the order of the identifiers. `None` for what the device does not have.
    pub(crate) async fn values(
        &mut self,
        ids: &[&'static str],
    ) -> Result<Vec<Option<SnmpValue>>, SnmpError> {
        let wanted: Vec<ObjectId> = ids.iter().map(|text| ObjectId::of(text)).collect();
        let oids: Vec<Oid> = wanted.iter().map(oid).collect();

        loop {
            self.count()?;
            let request = boxed(self.client.get_many(&oids));
            let answer = match time::timeout_at(self.deadline, request).await {
                Ok(Ok(answer)) => answer.varbinds,
                Ok(Err(error)) => {
                    self.after(failure(&error), false)?;
                    continue;
                }
                Err(_) => return Err(SnmpError::Deadline),
            };
            self.silent = 0;

            let mut found = vec![None; wanted.len()];
            for (id, value) in answer.into_iter().map(own) {
                // Some devices send the values in another order.
                if let Some(at) = wanted.iter().position(|wanted| *wanted == id) {
                    let is_there = !matches!(value, SnmpValue::Absent | SnmpValue::End);
                    found[at] = is_there.then_some(value);
                }
            }
            return Ok(found);
        }
    }

    /// Returns the rows of a table with these columns.
    pub(crate) async fn columns(&mut self, ids: &[&'static str]) -> Result<ColumnRows, SnmpError> {
        let columns: Vec<ObjectId> = ids.iter().map(|text| ObjectId::of(text)).collect();
        self.fitting = self.size;

        let mut all = ColumnRows::default();
        let mut from = 0;
        while from < columns.len() {
            let group = &columns[from..columns.len().min(from + self.fitting.columns)];
            let Some(part) = self.walk(group).await? else {
                // The group was too large, and is smaller now.
                continue;
            };
            merge(&mut all, part, from, columns.len());
            from += group.len();
        }
        Ok(all)
    }

    /// Walks over some columns. `None` if the device wants fewer of them at once.
    async fn walk(&mut self, columns: &[ObjectId]) -> Result<Option<ColumnRows>, SnmpError> {
        let mut walk = ColumnWalk::new(columns);
        loop {
            let next: Vec<Oid> = walk.next().iter().map(oid).collect();
            if next.is_empty() {
                return Ok(Some(walk.finish()));
            }

            self.count()?;
            let request = boxed(self.client.get_bulk(&next, 0, self.fitting.repetitions()));
            match time::timeout_at(self.deadline, request).await {
                Ok(Ok(answer)) => {
                    self.silent = 0;
                    walk.take(answer.into_iter().map(own).collect());
                }
                Ok(Err(error)) => {
                    self.after(failure(&error), true)?;
                    if self.fitting.columns < columns.len() {
                        return Ok(None);
                    }
                }
                Err(_) => return Err(SnmpError::Deadline),
            }
        }
    }

    fn count(&mut self) -> Result<(), SnmpError> {
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            return Err(SnmpError::TooManyRequests);
        }
        Ok(())
    }

    /// Decides whether a failed request is tried once more, with less to answer.
    fn after(&mut self, error: SnmpError, is_bulk: bool) -> Result<(), SnmpError> {
        match error {
            SnmpError::Silent => {
                self.silent += 1;
                // A small question that was lost says nothing of the size of answers.
                if is_bulk {
                    self.size.reduce();
                    self.fitting.reduce();
                }
                if self.silent >= MAX_SILENCE {
                    Err(error)
                } else {
                    Ok(())
                }
            }
            SnmpError::TooBig | SnmpError::General if is_bulk && self.fitting.reduce() => Ok(()),
            error => Err(error),
        }
    }
}

/// Hides the type of a future of the crate: with all that it contains, the compiler's limit of nested types is exceeded.
fn boxed<'f, T>(
    future: impl Future<Output = T> + Send + 'f,
) -> Pin<Box<dyn Future<Output = T> + Send + 'f>> {
    Box::pin(future)
}

/// Adds the rows of some columns, the first of which has the number `from` of `count`.
fn merge(all: &mut ColumnRows, part: ColumnRows, from: usize, count: usize) {
    all.defect = all.defect.or(part.defect);
    for (index, values) in part.rows {
        let row = all.rows.entry(index).or_insert_with(|| vec![None; count]);
        for (at, value) in values.into_iter().enumerate() {
            row[from + at] = value;
        }
    }
}

fn digest_protocol(digest: SnmpDigest) -> AuthProtocol {
    match digest {
        SnmpDigest::Md5 => AuthProtocol::Md5,
        SnmpDigest::Sha1 => AuthProtocol::Sha1,
        SnmpDigest::Sha224 => AuthProtocol::Sha224,
        SnmpDigest::Sha256 => AuthProtocol::Sha256,
        SnmpDigest::Sha384 => AuthProtocol::Sha384,
        SnmpDigest::Sha512 => AuthProtocol::Sha512,
    }
}

fn cipher_protocol(cipher: SnmpPrivacy) -> PrivProtocol {
    match cipher {
        SnmpPrivacy::Aes128 => PrivProtocol::Aes128,
        SnmpPrivacy::Aes192 => PrivProtocol::Aes192Blumenthal,
        SnmpPrivacy::Aes256 => PrivProtocol::Aes256Blumenthal,
        SnmpPrivacy::Aes192Cisco => PrivProtocol::Aes192Reeder,
        SnmpPrivacy::Aes256Cisco => PrivProtocol::Aes256Reeder,
    }
}

fn oid(id: &ObjectId) -> Oid {
    Oid::from_slice(&id.0)
}

fn own(bind: VarBind) -> (ObjectId, SnmpValue) {
    let value = match bind.value {
        Value::Integer(value) => SnmpValue::Integer(value.into()),
        Value::Counter32(value)
        | Value::Gauge32(value)
        | Value::UInteger32(value)
        | Value::TimeTicks(value) => SnmpValue::Unsigned(value.into()),
        Value::Counter64(value) => SnmpValue::Unsigned(value),
        Value::OctetString(bytes) => SnmpValue::bytes(&bytes),
        Value::ObjectIdentifier(id) => SnmpValue::Object(ObjectId(id.arcs().to_vec())),
        Value::NoSuchObject | Value::NoSuchInstance => SnmpValue::Absent,
        Value::EndOfMibView => SnmpValue::End,
        _ => SnmpValue::Other,
    };
    (ObjectId(bind.oid.arcs().to_vec()), value)
}

fn failure(error: &Error) -> SnmpError {
    match error.exchange_source() {
        Error::Timeout { .. } => SnmpError::Silent,
        Error::ConstructionTimeout { .. } => {
            SnmpError::Unreachable("its name could not be resolved in time".to_owned())
        }
        Error::Network { source, .. } => SnmpError::Unreachable(source.to_string()),
        Error::Closed { .. } => SnmpError::Unreachable("the socket was closed".to_owned()),
        // The address of a host name, or a configuration that checks have let through.
        Error::Config(problem) => SnmpError::Unreachable(problem.to_string()),
        Error::Snmp { status, .. } if *status == ErrorStatus::TooBig => SnmpError::TooBig,
        Error::Snmp { status, .. } if *status == ErrorStatus::GenErr => SnmpError::General,
        Error::Snmp { status, .. } => SnmpError::Refused(status.to_string()),
        Error::Auth { .. } => {
            SnmpError::Refused("wrong user, password, or protocol of SNMP v3".to_owned())
        }
        Error::Report { status, .. } => {
            SnmpError::Refused(format!("{status}; check user, passwords and protocols"))
        }
        other => SnmpError::Malformed(other.kind().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_smaller_until_it_is_one_value() {
        let mut size = BulkSize::default();
        let mut seen = Vec::new();
        while size.reduce() {
            seen.push((size.repetitions(), size.columns));
        }
        assert_eq!(seen, [(10, 4), (5, 4), (1, 4), (1, 1)]);
    }

    #[test]
    fn columns_of_several_walks_become_one_table() {
        let row = |value| vec![Some(SnmpValue::Integer(value))];
        let part = |index: u32, value| ColumnRows {
            rows: [(vec![index], row(value))].into(),
            defect: None,
        };
        let mut all = ColumnRows::default();
        merge(&mut all, part(1, 10), 0, 2);
        merge(&mut all, part(2, 20), 1, 2);
        assert_eq!(all.get(&[1], 0), Some(&SnmpValue::Integer(10)));
        assert_eq!(all.get(&[1], 1), None);
        assert_eq!(all.get(&[2], 1), Some(&SnmpValue::Integer(20)));
    }
}
