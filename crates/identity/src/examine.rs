//! Examines the services of `[auth]` for `takt doctor`: asks each as a sign-in does, without a user.

use super::config::AuthConfig;
use super::directory::Directory;
use super::munge;
use super::oidc::Oidc;
use anyhow::Context;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time;

/// Time limit for one service.
const LIMIT: Duration = Duration::from_secs(3);

/// Time for which a result is kept: pages ask often, and the services belong to others.
const KEPT: Duration = Duration::from_secs(60);

/// The last result, with its configuration and time.
static LAST: Mutex<Option<(AuthConfig, Instant, Vec<SignInDefect>)>> = Mutex::new(None);

/// A service that `[auth]` configures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInService {
    /// The directory of `[auth.ldap]`.
    Ldap,
    /// The provider of `[auth.oidc]`.
    Oidc,
    /// munge on this machine.
    Munge,
    /// The proxies of `[auth.proxy]`.
    Proxy,
}

/// A service that does not work, or a setting that is not safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInDefect {
    /// The service.
    pub service: SignInService,
    /// The error, with its causes.
    pub error: String,
}

/// Returns the defects of the configured services. Asks them at most once a minute. Blocks for some
/// seconds if a service does not answer.
pub fn sign_in_defects(config: &AuthConfig) -> Vec<SignInDefect> {
    let asks_none = config.ldap.is_none() && config.oidc.is_none() && !config.munge;
    if asks_none && config.proxy.is_none() {
        return Vec::new();
    }

    // Held while the services are asked: of two callers, the second gets the result of the first.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, at, defects)) = &*last
        && of == config
        && at.elapsed() < KEPT
    {
        return defects.clone();
    }

    // The connections end with the runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let defects = match runtime {
        Ok(runtime) => runtime.block_on(examine(config)),
        Err(error) => {
            tracing::warn!(%error, "cannot examine the services for signing in");
            Vec::new()
        }
    };
    *last = Some((config.clone(), Instant::now(), defects.clone()));
    defects
}

async fn examine(config: &AuthConfig) -> Vec<SignInDefect> {
    // Each future answers for its service alone: a directory that hangs does not delay the others, as all run at once.
    let ldap = within(async {
        match &config.ldap {
            Some(ldap) => Directory::new(ldap)?.examine().await,
            None => Ok(()),
        }
    });
    let oidc = within(async {
        match &config.oidc {
            Some(oidc) => Oidc::new(oidc, "")?.examine().await,
            None => Ok(()),
        }
    });
    let munge = within(async {
        if config.munge {
            munge::examine().await
        } else {
            Ok(())
        }
    });

    let (ldap, oidc, munge) = tokio::join!(ldap, oidc, munge);
    // The proxy is not asked, since only its settings can be wrong.
    let proxy = config
        .proxy
        .as_ref()
        .map_or(Ok(()), |proxy| proxy.examine());

    let found = [
        (SignInService::Ldap, ldap),
        (SignInService::Oidc, oidc),
        (SignInService::Munge, munge),
        (SignInService::Proxy, proxy),
    ];
    found
        .into_iter()
        .filter_map(|(service, found)| {
            let error = format!("{:#}", found.err()?);
            Some(SignInDefect { service, error })
        })
        .collect()
}

async fn within(examined: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    time::timeout(LIMIT, examined)
        .await
        .with_context(|| format!("no answer within {} s", LIMIT.as_secs()))?
}
