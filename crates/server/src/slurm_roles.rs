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
    unknown: UnknownPrivacy,
}

/// Why Slurm's `PrivateData` is not known; empty while it is, or without a Slurm.
#[derive(Debug, Clone, Default)]
pub struct UnknownPrivacy(Arc<Mutex<Option<String>>>);

impl UnknownPrivacy {
    /// Returns the reason.
    pub fn reason(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
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
            unknown: UnknownPrivacy::default(),
        }
    }

    /// Returns why the privacy of Slurm is not known, as it is from now on.
    pub fn unknown_privacy(&self) -> UnknownPrivacy {
        self.unknown.clone()
    }

    /// Reads once. If Slurm does not answer, its last known `PrivateData` counts. If it never answered, users see nothing
    /// of each other.
    pub async fn first(&self) {
        // The server must start without Slurm, so the first reading has a limit.
        let read = time::timeout(FIRST_TIMEOUT, self.read()).await;
        let unknown = match read {
            Ok(Ok(slurm)) => return self.apply(slurm).await,
            Ok(Err(error)) => error_chain(&error),
            Err(_) => format!("no answer within {} s", FIRST_TIMEOUT.as_secs()),
        };
        let privacy = self.last_privacy(Some(&unknown)).await;
        tracing::warn!(
            error = unknown,
            privacy = privacy.name(),
            "cannot read Slurm's PrivateData and roles"
        );
        self.follow(privacy, None).await;
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
            // No Slurm on this machine is an answer, and means that nothing is hidden. An unreadable slurm.conf and a
            // stopped slurmctld are none.
            Err(error) if error.is_without_slurm() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the privacy while Slurm does not say its `PrivateData`. `silence` is the reason, if Slurm is there.
    async fn last_privacy(&self, silence: Option<&str>) -> Privacy {
        let last = self
            .in_store(|records, cluster| records.private_data(cluster))
            .await
            .flatten();
        let reason = silence.filter(|_| last.is_none()).map(str::to_owned);
        self.unknown.set(reason);
        let of_slurm = of_slurm(last.as_deref(), silence.is_some());
        self.auth.privacy.level().unwrap_or(of_slurm)
    }

    /// Returns the privacy by what was read.
    async fn privacy(&self, slurm: Option<&SlurmAccess>) -> Privacy {
        match (slurm, &self.jobs) {
            (Some(slurm), _) => {
                let value = slurm.private_data.clone();
                let now = UnixTime::from(jiff::Timestamp::now());
                self.in_store(move |records, cluster| {
                    records.note_private_data(cluster, &value, now)
                })
                .await;
                self.unknown.set(None);
                let of_slurm = of_slurm(Some(&slurm.private_data), true);
                self.auth.privacy.level().unwrap_or(of_slurm)
            }
            // Its commands may be missing for a moment only, while they are upgraded.
            (None, Some(jobs)) => {
                let rest = !jobs.slurmrestd.url.is_empty();
                let silence = "slurmrestd does not report it, and this machine has no scontrol";
                self.last_privacy(rest.then_some(silence)).await
            }
            (None, None) => self.auth.privacy.level().unwrap_or_default(),
        }
    }

    async fn apply(&self, slurm: Option<SlurmAccess>) {
        let privacy = self.privacy(slurm.as_ref()).await;
        let read = slurm.map_or_else(|| Some(SlurmRoles::default()), |slurm| slurm.roles);
        self.follow(privacy, read).await;
    }

    /// Uses this privacy and these roles from now on. Without roles, the last ones stay.
    async fn follow(&self, privacy: Privacy, read: Option<SlurmRoles>) {
        let tree: Accounts = self
            .in_store(|records, cluster| records.accounts(cluster))
            .await
            .unwrap_or_default();
        let mut last = self
            .last_roles
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read {
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

/// Returns the privacy of Slurm: by its last known `PrivateData`; if that was never known, everything is hidden where
/// Slurm is there.
fn of_slurm(private_data: Option<&str>, is_there: bool) -> Privacy {
    match private_data {
        Some(text) => Privacy::of_private_data(text),
        None if is_there => Privacy::Private,
        None => Privacy::Open,
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
    use crate::testing::store_in;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use takt_access::{Owner, Way};
    use tempfile::tempdir;

    /// The privacy after the start of a server with this scontrol, and whether it is a guess.
    async fn at_start(root: &Path, store: &Arc<Store>, scontrol: Option<&str>) -> (Privacy, bool) {
        let bin = root.join("bin");
        let _ = fs::remove_dir_all(&bin);
        fs::create_dir(&bin).unwrap();
        if let Some(body) = scontrol {
            let file = bin.join("scontrol");
            fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let mut config = Config::default();
        config.jobs.slurm_bin = Some(bin);
        let access = Access::new(&config.auth, "token", None).unwrap();
        let follower = SlurmFollower::new(access, &config, Arc::clone(store), "lab");
        let privacy = match follower.read().await {
            Ok(slurm) => follower.privacy(slurm.as_ref()).await,
            Err(error) => follower.last_privacy(Some(&error_chain(&error))).await,
        };
        (privacy, follower.unknown_privacy().reason().is_some())
    }

    #[tokio::test]
    async fn a_slurm_that_never_said_its_privacy_hides_everything() {
        let folder = tempdir().unwrap();
        let root = folder.path();
        let store = Arc::new(store_in(&root.join("data")));
        let down = Some("echo 'Unable to contact slurm controller' >&2; exit 1");
        let unconfigured =
            Some("echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1");
        let packaged = Some(
            "echo 'scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host' >&2
             echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1",
        );
        let unreadable =
            Some("echo 'scontrol: fatal: Unable to process configuration file' >&2; exit 1");
        let open = Some("echo 'PrivateData = none'");
        let private = Some("echo 'PrivateData = jobs'");
        for (scontrol, expected, what) in [
            (None, (Privacy::Open, false), "no Slurm"),
            (packaged, (Privacy::Open, false), "commands alone"),
            (down, (Privacy::Private, true), "never known"),
            (unconfigured, (Privacy::Private, true), "slurmctld is down"),
            (unreadable, (Privacy::Private, true), "of slurm.conf"),
            (open, (Privacy::Open, false), "known"),
            (down, (Privacy::Open, false), "recorded as open"),
            (private, (Privacy::Private, false), "known"),
            (down, (Privacy::Private, false), "recorded as private"),
            (
                None,
                (Privacy::Private, false),
                "its commands are being upgraded",
            ),
        ] {
            let found = at_start(root, &store, scontrol).await;
            assert_eq!(found, expected, "{what}");
        }
    }

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
