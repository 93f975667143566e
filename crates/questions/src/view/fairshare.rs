//! Fair share of the accounts and users of all servers.

use super::{ViewAnswer, ViewQuestion};
use crate::FairshareQuestion;
use crate::view_servers::{ViewServer, ViewServers};
use serde_json::{Value, json};
use takt_jobs::Shares;

pub(super) fn rows(
    asked: &ViewQuestion,
    view: &ViewServers,
    servers: &[&ViewServer],
) -> ViewAnswer {
    // Servers are asked at once, and waited for one after the other.
    let answers = view.send(servers, |server| FairshareQuestion {
        cluster: server.config.cluster.clone(),
        user: asked.user.clone(),
        account: asked.account.clone(),
        ..FairshareQuestion::default()
    });
    let mut all = ViewAnswer::new(&[
        "server",
        "cluster",
        "account",
        "user",
        "raw_shares",
        "norm_shares",
        "raw_usage",
        "effective_usage",
        "fair_share",
        "level_fs",
    ]);
    for answered in answers.wait() {
        let name = &answered.0.config.name;
        all.add(answered, |all, answer| {
            for row in answer.rows {
                let shares = match row.raw_shares {
                    None => Value::Null,
                    Some(Shares::Raw(shares)) => json!(shares),
                    Some(Shares::Parent) => json!("parent"),
                };
                let cells = [
                    json!(answer.cluster),
                    json!(row.account),
                    json!(row.user),
                    shares,
                    json!(row.norm_shares),
                    // `sshare` prints whole seconds.
                    json!(row.raw_usage.floor()),
                    json!(row.effective_usage),
                    json!(row.fair_share),
                    json!(row.level_fs),
                ];
                all.push(name, cells);
            }
        });
    }
    all
}
