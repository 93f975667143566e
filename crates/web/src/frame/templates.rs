//! The templates and their filters.

use super::assets::{LOGIN, SCRIPT, STYLE};
use super::time;
use crate::pages::PAGES;
use minijinja::{AutoEscape, Environment, Error, State, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::LazyLock;
use takt_access::OTHER_USER;
use takt_model::UnixTime;
use takt_model::shown::shell_word;
use takt_model::words;

/// Characters of a path segment that need no escape.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'+');

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    // Every template is HTML, whatever its name ends with.
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    // The usual escape also rewrites `/`, which makes addresses four times as long.
    templates.set_formatter(|out, state, value| match value.as_str() {
        Some(text) if !value.is_safe() => Ok(out.write_str(&takt_draw::escaped(text))?),
        _ => minijinja::escape_formatter(out, state, value),
    });

    templates.set_trim_blocks(true);
    templates.set_lstrip_blocks(true);

    let shared = [
        ("layout", include_str!("layout.html")),
        ("parts", include_str!("parts.html")),
        ("error", include_str!("error.html")),
        ("work", include_str!("../pages/work/work.html")),
    ];
    let pages = PAGES.iter().map(|page| (page.path, page.template));
    for (name, text) in shared.into_iter().chain(pages) {
        // Templates are compiled into the program, so a broken one is a mistake of the build.
        templates.add_template(name, text).unwrap_or_else(|error| {
            panic!("the template of {name} is part of the program: {error:#}")
        });
    }

    templates.add_global("style", STYLE.path.as_str());
    templates.add_global("login_script", LOGIN.path.as_str());
    templates.add_global("script", SCRIPT.path.as_str());

    templates.add_filter("href", |name: &str, kind: &str| href(kind, name));
    templates.add_filter("person", person);
    templates.add_filter("query", query);
    templates.add_filter("word", |text: &str| shell_word(text));

    templates.add_filter("time", |state: &State<'_, '_>, at: Option<i64>| {
        moment(state, at, "%Y-%m-%d %H:%M")
    });
    templates.add_filter("clock", |state: &State<'_, '_>, at: Option<i64>| {
        moment(state, at, "%H:%M")
    });
    templates.add_filter("day", |state: &State<'_, '_>, at: Option<i64>| {
        moment(state, at, "%Y-%m-%d")
    });

    templates.add_filter("percent", |value: Option<f64>| {
        words::known(value, words::percent)
    });
    templates.add_filter("amount", |value: Option<f64>| {
        words::known(value, words::amount)
    });
    templates.add_filter("duration", |value: Option<f64>| {
        words::known(value, words::duration)
    });

    templates.add_filter("gib", |value: Option<f64>| {
        words::known(value, |bytes| words::amount(bytes / f64::from(1 << 30)))
    });
    templates.add_filter("count", words::count);
    templates.add_filter("whole", words::whole);

    templates.add_filter("plural", |count: u64, one: &str| {
        format!(
            "{} {one}{}",
            words::count(count),
            if count == 1 { "" } else { "s" }
        )
    });
    templates
});

/// Renders the template of this name.
///
/// # Errors
/// If the template needs a value that is missing.
pub(super) fn render(name: &str, values: Value) -> Result<String, Error> {
    TEMPLATES.get_template(name)?.render(values)
}

/// Address of an object's page: `href("nodes", "g01")` is `/nodes/g01`.
pub fn href(kind: &str, name: &str) -> String {
    format!("/{kind}/{}", utf8_percent_encode(name, SEGMENT))
}

/// Address of a person's page; `None` without a name that the viewer may see.
pub fn person(user: &str) -> Option<String> {
    (!user.is_empty() && user != OTHER_USER).then(|| href("people", user))
}

/// Text as the value of a query.
pub(super) fn query(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn moment(state: &State<'_, '_>, at: Option<i64>, format: &str) -> Value {
    // The layout has the zone of the cluster.
    let zone = state.lookup("zone");
    let zone = zone.as_ref().and_then(Value::as_str).unwrap_or("UTC");
    match at {
        Some(at) => {
            Value::from_safe_string(time::element(UnixTime(at), &time::zone_of(zone), format))
        }
        None => words::UNKNOWN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_segment_of_an_address() {
        assert_eq!(href("jobs", "123_4"), "/jobs/123_4");
        assert_eq!(href("jobs", "123+0"), "/jobs/123+0");
        // A name must neither leave its segment nor begin a query or a fragment.
        assert_eq!(href("nodes", "../a b?c#<"), "/nodes/..%2Fa%20b%3Fc%23%3C");
    }

    #[test]
    fn what_a_user_chose_stays_text() {
        // A script, each character that HTML escapes, and an escape sequence of terminals.
        let title = "<script>'/\"&\u{1b}";
        let values =
            minijinja::context! { title, error => minijinja::context! { title, text => title } };
        let page = render("error", values).unwrap();
        assert!(!page.contains("<script>'"), "{page}");
        assert!(
            page.contains("<h1>&lt;script&gt;&#39;/&quot;&amp; </h1>"),
            "{page}"
        );
    }

    #[test]
    fn all_templates_can_be_read() {
        assert!(TEMPLATES.get_template("layout").is_ok());
    }

    /// The page of alerts with one incident, for a reader.
    fn page_of_alerts(may_act: bool, offers_sign_in: bool, draft: serde_json::Value) -> String {
        let alert = |print: &str| {
            serde_json::json!({
                "fingerprint": print, "name": "NodeDown", "severity": "critical", "since": 0, "unsent": "",
                "summary": "", "words": [["action", "Wait."]], "labels": {"node": "l05"},
            })
        };
        let incident = serde_json::json!({
            "anchor": "a1", "sentence": "<l05> does not answer", "severity": "critical", "since": 0, "age": "5 min",
            "node": "l05", "uuid": null, "gpus": 6, "jobs": ["7", "8"], "users": ["dave"], "users_more": 1,
            "steps": [{"text": "Wait.", "command": "scontrol update nodename=l05 state=resume"}],
            "evidence": [{"at": 0, "text": "kernel"}, {"at": 60, "text": "gone"}],

            "alerts": [alert("a1")], "consequences": [alert("b2")], "is_open": true,
        });
        let values = minijinja::context! {
            title => "Alerts",
            zone => "Europe/Oslo",
            incidents => [incident],
            of_owners => Vec::<u8>::new(),
            silences => [minijinja::context! {id => "s1", matchers => "node=x", from => 0, to => 60, by => "eve", comment => "why"}],
            ended => Vec::<u8>::new(),
            critical => 1,
            count => 2,
            acts_as => may_act.then_some("alice"),
            may_act,
            offers_sign_in,
            draft,
        };
        render("/alerts", values).unwrap()
    }

    #[test]
    fn an_incident_says_who_suffers_and_what_to_do() {
        let page = page_of_alerts(
            true,
            false,
            serde_json::json!({"comment": "on my \"way\"", "for": "2h"}),
        );
        for text in [
            "1 incident ",
            "<h3>&lt;l05&gt; does not answer</h3>",
            "Suffers: 6 GPUs, 2 jobs (<a href=\"/jobs/7\">7</a>, <a href=\"/jobs/8\">8</a>) of <a href=\"/people/dave\">dave</a> and 1 more",
            "data-copy=\"scontrol update nodename=l05 state=resume\"",
            "1 consequence",
            "01:00",
            "value=\"on my &quot;way&quot;\"",
            "<option selected>2h</option>",
            "name=\"fingerprint\" value=\"b2\"",
            "value=\"expire\"",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert!(!page.contains("Sign in to act"), "{page}");
    }

    #[test]
    fn who_may_not_act_sees_no_form() {
        // A stranger who could sign in finds the link; a user without the role does not.
        let page = page_of_alerts(false, true, serde_json::json!({}));
        assert!(!page.contains("method=\"post\""), "{page}");
        let link = "/login?next=%2Falerts%3Ffingerprint%3Da1%23a1";
        assert!(page.contains(link), "{page}");

        let page = page_of_alerts(false, false, serde_json::json!({}));
        assert!(
            !page.contains("method=\"post\"") && !page.contains("/login?next"),
            "{page}"
        );
    }
}
