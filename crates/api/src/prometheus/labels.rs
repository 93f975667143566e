//! Series, label names and label values, for query builders and variables.

use super::answer::{Answer, ApiError};
use super::params::Params;
use super::query::cut;
use super::selection::Selection;
use super::{Api, Reply};
use axum::extract::{Path, State};
use std::collections::{BTreeMap, BTreeSet};
use takt_access::Viewer;
use takt_identity::By;
use takt_questions::query_memory::account_of;
use takt_store::{Listed, MemoryUse, Store, StoreError};

/// Bytes of a series' labels, and of their JSON.
const SERIES_BYTES: u64 = 512;

/// Bytes of the name or value that a series may add to a list. Most add none.
const TEXT_BYTES: u64 = 64;

/// The label sets that `match[]` selects.
pub(super) async fn series(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    let selection = Selection::new(&params, api.app.config().query.timeout())?.naming_parameter();
    if selection.is_empty() {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }

    let limit = params.limit()?;
    let (from, to) = params.times()?;

    let memory = account_of(&api.app.config().memory, &viewer).holder(MemoryUse::Query);
    let (found, _memory) = selection
        .each(
            &api,
            &viewer,
            (memory, SERIES_BYTES),
            BTreeSet::new(),
            move |_, store, matchers, found| {
                // As in Prometheus, an empty range selects nothing, and is no error.
                if from <= to {
                    found.extend(store.series(Listed { matchers, from, to })?);
                }
                Ok(())
            },
        )
        .await?;

    let mut found: Vec<BTreeMap<&str, &str>> =
        found.iter().map(|labels| labels.iter().collect()).collect();
    let truncated = cut(&mut found, limit);
    Ok(Answer::of(&found)?.truncated(truncated))
}

/// Names of the labels of the selected series.
pub(super) async fn names(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    listing(&api, &viewer, &params, |store, listed| {
        store.label_names(listed)
    })
    .await
}

/// Values of a label of the selected series.
pub(super) async fn values(
    State(api): State<Api>,
    By(viewer): By,
    Path(name): Path<String>,
    params: Params,
) -> Reply {
    let name = unescape(&name);
    if name.is_empty() {
        return Err(ApiError::bad_data(format!("invalid label name: {name:?}")));
    }

    listing(&api, &viewer, &params, move |store, listed| {
        store.label_values(&name, listed)
    })
    .await
}

async fn listing(
    api: &Api,
    viewer: &Viewer,
    params: &Params,
    ask: impl Fn(&Store, Listed<'_>) -> Result<Vec<String>, StoreError> + Send + 'static,
) -> Reply {
    let limit = params.limit()?;
    let (from, to) = params.times()?;
    let selection = Selection::new(params, api.app.config().query.timeout())?.or_all();

    let memory = account_of(&api.app.config().memory, viewer).holder(MemoryUse::Query);
    let (found, _memory) = selection
        .each(
            api,
            viewer,
            (memory, TEXT_BYTES),
            BTreeSet::new(),
            move |_, store, matchers, found| {
                if from <= to {
                    found.extend(ask(store, Listed { matchers, from, to })?);
                }
                Ok(())
            },
        )
        .await?;

    let mut found: Vec<String> = found.into_iter().collect();
    let truncated = cut(&mut found, limit);
    Ok(Answer::of(&found)?.truncated(truncated))
}

/// Decodes a label name. A name with characters outside a path comes as `U__`, with `_` written `__` and other characters
/// as `_hex_` (`model.UnescapeName`). Other names are unchanged.
fn unescape(name: &str) -> String {
    name.strip_prefix("U__")
        .and_then(unescaped)
        .unwrap_or_else(|| name.to_owned())
}

fn unescaped(mut rest: &str) -> Option<String> {
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once('_') {
        out.push_str(before);
        rest = match after.strip_prefix('_') {
            Some(after) => {
                out.push('_');
                after
            }
            None => {
                let (hex, after) = after.split_once('_')?;
                out.push(
                    u32::from_str_radix(hex, 16)
                        .ok()
                        // No code point has more digits.
                        .filter(|_| hex.len() <= 6)
                        .and_then(char::from_u32)?,
                );
                after
            }
        };
    }

    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_escaped() {
        for (escaped, name) in [
            ("node", "node"),
            ("__name__", "__name__"),
            ("U__service_2e_name", "service.name"),
            ("U__a__b", "a_b"),
            ("U___1f600_", "😀"),
            // Malformed escapes stay as they are.
            ("U__a_zz_", "U__a_zz_"),
            ("U__a_2e", "U__a_2e"),
            ("U__a_d800_", "U__a_d800_"),
        ] {
            assert_eq!(unescape(escaped), name);
        }
    }
}
