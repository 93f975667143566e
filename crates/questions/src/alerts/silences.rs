//! Silences, as a viewer sees them.

use serde::{Deserialize, Serialize};
use takt_access::{ShownLabels, Viewer};
use takt_alerts::routing::matcher::{MatchOp, Matcher};
use takt_alerts::routing::silence::Silence;
use takt_model::UnixTime;

/// A silence. Viewers who do not see all users get no text of it, and its matchers only if all of them are about hardware.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownSilence {
    /// Number of the silence.
    pub id: String,
    /// Matchers; `None` if the viewer may not see them.
    pub matchers: Option<String>,
    /// Person who made it; empty if the viewer may not see it.
    pub by: String,
    /// Reason; empty if the viewer may not see it.
    pub comment: String,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
}

pub(super) fn shown_silence(viewer: &Viewer, silence: &Silence) -> ShownSilence {
    let is_all = viewer.sees_all();
    // Matchers of several sets are alternatives; one hidden matcher hides all.
    let all = || silence.matchers.iter().flat_map(|set| &set.0);
    let is_public = all().all(|matcher| is_shown(viewer, matcher));
    let text = |text: &str| {
        if is_all {
            text.to_owned()
        } else {
            String::new()
        }
    };
    ShownSilence {
        id: silence.id.clone(),
        matchers: (is_all || is_public).then(|| {
            let sets = silence.matchers.iter().map(ToString::to_string);
            sets.collect::<Vec<_>>().join(" or ")
        }),
        by: text(&silence.created_by),
        comment: text(&silence.comment),
        from: silence.starts_at.whole_seconds(),
        to: silence.ends_at.whole_seconds(),
    }
}

/// Whether a matcher is about hardware, or about the viewer.
fn is_shown(viewer: &Viewer, matcher: &Matcher) -> bool {
    // Labels that are shown even where no user is named are those of hardware.
    let of_nobody = ShownLabels::of(viewer, |_| None);
    let is_own = matcher.name() == "user"
        && matcher.op() == MatchOp::Equal
        && viewer.is_user(matcher.value());
    of_nobody.shows(matcher.name()) || is_own
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::{Privacy, Role, Way};
    use takt_alerts::routing::matcher::{Matchers, parse_matchers};
    use takt_model::Timestamp;

    fn shown(viewer: &Viewer, matchers: &str) -> ShownSilence {
        let silence = Silence {
            id: "1".to_owned(),
            matchers: vec![Matchers(parse_matchers(matchers).unwrap())],
            starts_at: Timestamp(0),
            ends_at: Timestamp(1),
            updated_at: Timestamp(0),
            created_by: "bob".to_owned(),
            comment: "secret".to_owned(),
            annotations: Default::default(),
        };
        shown_silence(viewer, &silence)
    }

    #[test]
    fn others_see_that_hardware_is_silenced_and_no_text() {
        let alice = Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user("alice");

        let support = Viewer::new(Role::Support, Way::Socket, Privacy::Private);
        for (matchers, is_seen) in [
            ("node=g01", true),
            ("node=g01, user=alice", true),
            ("node=g01, user=bob", false),
            ("user=~\"alice.*\"", false),
            ("job_name=secret", false),
            ("invented=secret", false),
        ] {
            let of_alice = shown(&alice, matchers);
            assert_eq!(of_alice.matchers.is_some(), is_seen, "{matchers}");
            assert_eq!((of_alice.by.as_str(), of_alice.comment.as_str()), ("", ""));
            let of_support = shown(&support, matchers);
            assert!(of_support.matchers.is_some() && of_support.comment == "secret");
        }
    }
}
