//! Search: jobs, users, accounts, nodes, GPUs and alerts by their names.

use super::visible::{known_users, own_runs, visible_runs};
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Owner, Viewer};
use takt_model::{MatchOp, Matcher};
use takt_store::{Listed, Records, Store};

/// Searches for a job, a user, an account, a node, a GPU or an alert.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchQuestion {
    /// Part of a name, a job id, or a UUID.
    pub q: String,
}

/// The objects that were found, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchAnswer {
    /// The only hit, or the only one whose name equals the searched text.
    pub direct: Option<SearchHit>,
    /// All hits, by kind.
    pub hits: Vec<SearchHit>,
}

/// One hit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchHit {
    /// Kind of the object.
    pub kind: HitKind,
    /// Name that leads to the object's page: job id, user name, UUID.
    pub name: String,
    /// Further words: name and user of a job, node of a GPU.
    pub detail: String,
    /// Owner of the object, if it has one.
    pub user: Option<String>,
}

/// Kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HitKind {
    /// A job.
    Job,
    /// A user.
    User,
    /// An account.
    Account,
    /// A node.
    Node,
    /// A GPU.
    Gpu,
    /// An alert.
    Alert,
}

impl HitKind {
    /// Returns the kind as a word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::User => "user",
            Self::Account => "account",
            Self::Node => "node",
            Self::Gpu => "GPU",
            Self::Alert => "alert",
        }
    }
}

/// Maximum number of hits of one kind.
const MOST: usize = 20;

/// Longest text that is searched, in bytes.
const LONGEST: usize = 200;

impl Question for SearchQuestion {
    const PATH: &'static str = "/api/takt/v1/search";
    const NEED: Need = Need::SignedIn;
    type Answer = SearchAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        _config: &AnswerConfig,
    ) -> Result<SearchAnswer, AnswerError> {
        let text = self.q.trim();
        if text.is_empty() {
            // An empty text would match every name.
            return Ok(SearchAnswer::default());
        }
        // The text becomes a pattern, and a long one is slow.
        if text.len() > LONGEST {
            let error = format!("the searched text is longer than {LONGEST} characters");
            return Err(AnswerError::Usage(error));
        }

        let records = Records::of(store.database());
        let visible = visible_runs(viewer);
        // Names of others' jobs are details.
        let named = (!viewer.sees_all()).then(|| own_runs(viewer));
        let found = records.search(text, MOST, visible.as_ref(), named.as_ref())?;

        let mut hits: Vec<SearchHit> = Vec::new();
        // The records and the samples may name the same node or GPU.
        let mut add = |kind, name: String, detail: String, user: Option<String>| {
            let is_known = |hit: &SearchHit| hit.kind == kind && hit.name == name;
            if !hits.iter().any(is_known) {
                hits.push(SearchHit {
                    kind,
                    name,
                    detail,
                    user,
                });
            }
        };

        for id in found.jobs {
            add(HitKind::Job, id, String::new(), None);
        }
        for (name, id, user) in found.job_names {
            let detail = format!("{name}, the newest of this name, of {user}");
            add(HitKind::Job, id, detail, Some(user));
        }
        for name in known_users(viewer, found.users) {
            add(HitKind::User, name.clone(), String::new(), Some(name));
        }
        let accounts = found.accounts.into_iter();
        // An account without a name has the runs of users without an account.
        let is_seen = |name: &String| !name.is_empty() && viewer.sees_usage(Owner::new("", name));
        for name in accounts.filter(is_seen) {
            add(HitKind::Account, name, String::new(), None);
        }

        for name in found.nodes {
            add(HitKind::Node, name, String::new(), None);
        }
        // A node that has never run a job is known by its target only.
        for name in label_values(store, "up", "node", text)? {
            add(HitKind::Node, name, String::new(), None);
        }
        for (node, uuid) in found.gpus {
            add(HitKind::Gpu, uuid, format!("on {node}"), None);
        }
        for uuid in label_values(store, "takt_gpu_info", "uuid", text)? {
            add(HitKind::Gpu, uuid, String::new(), None);
        }

        for name in found.alerts {
            add(HitKind::Alert, name, String::new(), None);
        }
        Ok(SearchAnswer {
            direct: direct(&hits, text),
            hits,
        })
    }
}

/// The values of a label of a metric that contain the text.
fn label_values(
    store: &Store,
    metric: &str,
    label: &str,
    text: &str,
) -> Result<Vec<String>, AnswerError> {
    // Escaped: the text is a name, and no pattern.
    let pattern = format!("(?i).*{}.*", regex::escape(text));
    let is_like = Matcher::new(label, MatchOp::Regex, &pattern).map_err(AnswerError::failed)?;
    let matchers = [Matcher::metric(metric), is_like];
    // Every series of the store, since a node that is gone is searched as well.
    let mut values = store.label_values(label, Listed::ever(&matchers))?;
    values.truncate(MOST);
    Ok(values)
}

fn direct(hits: &[SearchHit], text: &str) -> Option<SearchHit> {
    if let [only] = hits {
        return Some(only.clone());
    }

    let mut same = hits
        .iter()
        .filter(|hit| hit.name.eq_ignore_ascii_case(text));
    let first = same.next()?;
    // A job id is a number, so another object of this name is unlikely to be meant.
    (first.kind == HitKind::Job || same.next().is_none()).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    fn hit(kind: HitKind, name: &str) -> SearchHit {
        SearchHit {
            kind,
            name: name.into(),
            detail: String::new(),
            user: None,
        }
    }

    #[test]
    fn an_exact_name_is_a_direct_hit_unless_two_objects_have_it() {
        let ann = hit(HitKind::User, "ann");
        let anna = hit(HitKind::User, "anna");
        let account = hit(HitKind::Account, "ann");

        assert_eq!(
            direct(&[ann.clone(), anna.clone()], "ANN"),
            Some(ann.clone())
        );
        assert_eq!(direct(slice::from_ref(&anna), "an"), Some(anna.clone()));
        // A user and an account of the same name: the choice is the searcher's.
        assert_eq!(direct(&[ann, account, anna], "ann"), None);
        assert_eq!(direct(&[], "x"), None);

        let job = hit(HitKind::Job, "7");
        assert_eq!(
            direct(&[job.clone(), hit(HitKind::Node, "7")], "7"),
            Some(job)
        );
    }
}
