//! Roles and privacy of Slurm: `PrivateData`, administrators, operators and coordinators.

use crate::config::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use takt_access::{Privacy, Role, RoleBook};
use takt_accounting::Accounts;
use takt_collector::schedulers::{JobsConfig, PollError, SlurmAccess, slurm_access};
use takt_identity::{Access, AuthConfig};
use takt_model::{UnixTime, error_chain};
use takt_slurm::access_text::SlurmRoles;
use takt_store::{Records, Store, StoreError};
use tokio::time;

/// Time between two readings. Who loses a role loses it within this time.
const INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time for the first reading, before the server answers.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads Slurm's access settings for a server.
#[derive(Debug, Clone)]
pub struct SlurmFollower {
    access: Access,
    auth: AuthConfig,
    /// `None` if no scheduler is polled.
    jobs: Option<JobsConfig>,
    /// Users by account, of `reports.account_owners`.
    account_owners: Vec<(String, String)>,
    store: Arc<Store>,
    cluster: String,
    /// Slurm's roles when slurmdbd last answered.
    last_roles: Arc<Mutex<SlurmRoles>>,
}

impl SlurmFollower {
    /// Returns the follower for a server.
    pub fn new(access: Access, config: &Config, store: Arc<Store>, cluster: &str) -> Self {
        Self {
            access,
            auth: config.auth.clone(),
            jobs: config.jobs.poll.then(|| config.jobs.clone()),
            account_owners: config.reports.users_who_own_accounts(),
            store,
            cluster: cluster.to_owned(),
            last_roles: Arc::default(),
        }
    }

    /// Reads once. If Slurm does not answer, its last known `PrivateData` counts.
    pub async fn first(&self) {
        // The server must start without Slurm, so the first reading has a limit.
        let read = time::timeout(FIRST_TIMEOUT, self.read()).await;
        let unknown = match read {
            Ok(Ok(slurm)) => return self.apply(slurm).await,
            Ok(Err(error)) => error_chain(&error),
            Err(_) => format!("no answer within {} s", FIRST_TIMEOUT.as_secs()),
        };

        // The last known level is the safe one: without it, a restart would show everything until Slurm answers.
        let last = self
            .in_store(|records, cluster| records.private_data(cluster))
            .await
            .flatten()
            .unwrap_or_default();

        let of_slurm = Privacy::of_private_data(&last);
        let privacy = self.auth.privacy.level().unwrap_or(of_slurm);
        tracing::warn!(
            error = unknown,
            privacy = privacy.name(),
            "cannot read Slurm's PrivateData and roles"
        );
        self.access.follow(privacy, self.auth.roles());
    }

    /// Reads again and again. While Slurm does not answer, the previous settings stay.
    pub async fn keep_following(self) {
        loop {
            time::sleep(INTERVAL).await;
            match self.read().await {
                Ok(slurm) => self.apply(slurm).await,
                Err(error) => {
                    tracing::debug!(error = error_chain(&error), "cannot read Slurm's roles");
                }
            }
        }
    }

    /// Returns Slurm's settings; `None` without a Slurm.
    async fn read(&self) -> Result<Option<SlurmAccess>, PollError> {
        let Some(jobs) = &self.jobs else {
            return Ok(None);
        };
        match slurm_access(jobs).await {
            Ok(slurm) => Ok(Some(slurm)),
            // No Slurm on this machine is an answer, and means that nothing is hidden.
            Err(PollError::NoSlurm(_) | PollError::Unconfigured(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn apply(&self, slurm: Option<SlurmAccess>) {
        let tree: Accounts = self
            .in_store(|records, cluster| records.accounts(cluster))
            .await
            .unwrap_or_default();
        // Stored for the next start, in case Slurm does not answer then.
        if let Some(slurm) = &slurm {
            let value = slurm.private_data.clone();
            let now = UnixTime::from(jiff::Timestamp::now());
            self.in_store(move |records, cluster| records.note_private_data(cluster, &value, now))
                .await;
        }

        // Without a Slurm, the roles are those of the configuration.
        let slurm = slurm.unwrap_or_else(|| SlurmAccess {
            roles: Some(SlurmRoles::default()),
            ..SlurmAccess::default()
        });

        let of_slurm = Privacy::of_private_data(&slurm.private_data);
        let privacy = self.auth.privacy.level().unwrap_or(of_slurm);
        // slurmdbd may be silent while slurmctld answers: the roles stay as they were last read.
        let mut last = self
            .last_roles
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = slurm.roles {
            *last = read;
        }

        let roles = roles(&self.auth, &last, &self.account_owners, &tree);
        self.access.follow(privacy, roles);
    }

    /// Asks the records on a thread for blocking work. An error is logged.
    async fn in_store<T>(
        &self,
        ask: impl FnOnce(Records<'_>, &str) -> Result<T, StoreError> + Send + 'static,
    ) -> Option<T>
    where
        T: Send + 'static,
    {
        let store = Arc::clone(&self.store);
        let cluster = self.cluster.clone();
        let asked = move || ask(Records::of(store.database()), &cluster);
        match takt_store::spawn_blocking(asked).await.ok()? {
            Ok(answer) => Some(answer),
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "cannot read or store what roles depend on");
                None
            }
        }
    }
}

/// Returns all roles: of the configuration, of Slurm, and of the owners of accounts.
fn roles(
    auth: &AuthConfig,
    slurm: &SlurmRoles,
    account_owners: &[(String, String)],
    tree: &Accounts,
) -> RoleBook {
    let mut book = auth.roles();
    for user in &slurm.administrators {
        book.grant(user, Role::Admin);
    }
    for user in &slurm.operators {
        book.grant(user, Role::Support);
    }

    // A coordinator also has the accounts below.
    let mut coordinated: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (user, account) in slurm.coordinators.iter().chain(account_owners) {
        coordinated
            .entry(user)
            .or_default()
            .extend(tree.below(account).map(str::to_owned));
    }

    for (user, accounts) in coordinated {
        book.coordinate(user, accounts);
    }
    book
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::{Owner, Way};

    #[test]
    fn a_coordinator_sees_the_account_and_those_below() {
        // Three levels: laser is below optics, and optics below physics.
        let parents = [("optics", "physics"), ("laser", "optics")];
        let tree = Accounts::new(parents.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
        let slurm = SlurmRoles {
            administrators: vec!["anna".to_owned()],
            operators: vec!["olga".to_owned(), "anna".to_owned()],
            coordinators: vec![("carol".to_owned(), "optics".to_owned())],
        };
        let owners = [("dan".to_owned(), "physics".to_owned())];

        let book = roles(&AuthConfig::default(), &slurm, &owners, &tree);
        let viewer = |user| book.viewer(user, Way::Socket, Privacy::Private);

        assert_eq!(viewer("anna").role(), Role::Admin);
        assert_eq!(viewer("olga").role(), Role::Support);
        let sees = |user, account| viewer(user).sees_details(Owner::new("alice", account));

        assert!(sees("carol", "laser") && sees("carol", "optics"));
        assert!(!sees("carol", "physics"));
        assert!(sees("dan", "laser") && !sees("dan", "biology"));
    }
}
