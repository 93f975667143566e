//! Templates in a receiver's settings, in Alertmanager's template language.
//!
//! Takt's own text replaces what the settings leave out, and any template that is invalid or fails:
//! a mistake in a template must not keep an alert from being sent.

use crate::glob;
use crate::message::Message;
use crate::outbox::Row;
use crate::routing::config::Config;
use crate::template::{MessageTemplate, MessageTemplates, TemplateError};
use crate::yaml::{Mistake, Node};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use takt_model::Timestamp;

/// Templates by setting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wording {
    shared: Arc<MessageTemplates>,
    parts: BTreeMap<String, MessageTemplate>,
}

/// The mistakes in the templates of all receivers: texts that would be replaced when a message is sent.
pub fn mistakes(config: &Config) -> Vec<Mistake> {
    let mut found = Vec::new();
    for receiver in &config.receivers {
        let before = found.len();
        for integration in &receiver.integrations {
            check(&integration.settings, &config.shared, &mut found);
        }
        let name = format!("receiver `{}`", receiver.name);
        // Only this receiver's mistakes get its name.
        let of_receiver = found.split_off(before).into_iter();
        found.extend(of_receiver.map(|mistake| mistake.within(&name)));
    }
    found
}

/// Tries all templates in a value.
fn check(node: &Node, shared: &MessageTemplates, found: &mut Vec<Mistake>) {
    if let Ok(text) = node.text() {
        // A text without braces is always valid.
        let tried = text
            .contains("{{")
            .then(|| MessageTemplate::read(text).and_then(|template| shared.check(&template)));
        if let Some(Err(error)) = tried {
            found.push(node.mistake(error.to_string()));
        }
    } else if let Ok(items) = node.list() {
        items.iter().for_each(|item| check(item, shared, found));
    } else if let Ok(pairs) = node.pairs() {
        pairs.for_each(|(_, value)| check(value, shared, found));
    }
}

/// Reads the files of `templates`; patterns are relative to `base`. Returns also the files that cannot
/// be read, with the reasons.
pub fn shared(patterns: &[String], base: &Path) -> (Arc<MessageTemplates>, Vec<String>) {
    let mut all = MessageTemplates::default();
    let mut unread = Vec::new();
    for pattern in patterns {
        for path in glob::matching(&base.join(pattern))
            .inspect_err(|error| tracing::warn!(pattern, %error, "cannot read template files"))
            .unwrap_or_default()
        {
            // A file that cannot be read leaves the other files in use.
            let added = match fs::read_to_string(&path) {
                Ok(text) => all.add(&text).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = added {
                tracing::warn!(file = %path.display(), error, "invalid template file; using Takt's \
                     own text");
                unread.push(format!("{}: {error}", path.display()));
            }
        }
    }
    (Arc::new(all), unread)
}

impl Wording {
    /// The templates in the settings of these names.
    pub fn read(shared: &Arc<MessageTemplates>, settings: &Node, names: &[&str]) -> Self {
        let mut wording = Self {
            shared: Arc::clone(shared),
            parts: BTreeMap::new(),
        };
        for (name, node) in settings
            .pairs()
            .into_iter()
            .flatten()
            .filter(|(name, _)| names.contains(name))
        {
            wording.add(name, node);
        }
        wording
    }

    /// Adds a template under this name.
    pub fn add(&mut self, name: &str, node: &Node) {
        let read = node.text().map_err(|error| error.to_string());
        // Invalid templates are left out, and Takt's own text takes their place.
        match read.and_then(|text| MessageTemplate::read(text).map_err(|error| error.to_string())) {
            Ok(template) => drop(self.parts.insert(name.to_owned(), template)),
            Err(error) => {
                tracing::warn!(
                    setting = name,
                    line = node.line(),
                    error,
                    "invalid template; using Takt's own text"
                );
            }
        }
    }

    /// The template's text for a row; `None` if the setting is missing, fails or gives no text.
    pub fn text(&self, name: &str, row: &Row) -> Option<String> {
        self.text_about(name, &row.message, row.created_at)
    }

    /// Like [`text`](Self::text), for a changed message of a row created at `at`.
    pub fn text_about(&self, name: &str, message: &Message, at: Timestamp) -> Option<String> {
        self.rendered(name, |template| self.shared.run(template, message, at))
    }

    /// Like [`text`](Self::text), for a template of HTML: values are escaped.
    pub fn html_text(&self, name: &str, row: &Row) -> Option<String> {
        self.rendered(name, |template| {
            self.shared.run_html(template, &row.message, row.created_at)
        })
    }

    fn rendered(
        &self,
        name: &str,
        run: impl Fn(&MessageTemplate) -> Result<String, TemplateError>,
    ) -> Option<String> {
        let text = run(self.parts.get(name)?);
        let text = text.inspect_err(
            |error| tracing::warn!(setting = name, %error, "template failed; using Takt's own text"),
        );
        // An empty text would be a message without a fault.
        text.ok().filter(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::email::Email;
    use super::super::http::HttpNotifier;
    use super::super::slack::Slack;
    use super::super::suite::row;
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    /// Slack's settings as YAML; the texts of the blocks of a message about two alerts, and the
    /// line above them.
    fn texts_of(settings: &str, files: &[(&str, &str)]) -> (String, Vec<String>) {
        let folder = tempdir().unwrap();
        files
            .iter()
            .for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());

        let (shared, _) = shared(&["*.tmpl".to_owned()], folder.path());
        let settings = Node::read(settings).unwrap();
        let names = [
            "title",
            "title_link",
            "text",
            "pretext",
            "footer",
            "fallback",
            "username",
        ];

        let slack = Slack::webhook("http://x").worded(Wording::read(&shared, &settings, &names));
        let body: serde_json::Value =
            serde_json::from_str(&slack.request(&row(2, "too hot")).body).unwrap();
        let texts = body["blocks"].as_array().unwrap().iter().map(|block| {
            block["text"]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        });
        (
            body["text"].as_str().unwrap().to_owned(),
            texts.filter(|text| !text.is_empty()).collect(),
        )
    }

    #[test]
    fn alertmanagers_templates_are_run() {
        let mine = r#"{{ define "mine" }}{{ range .Alerts.Firing }}{{ .Annotations.summary }} since {{ .StartsAt.Format "15:04" }};{{ end }}{{ end }}"#;
        let settings = r#"{title: '{{ template "slack.default.title" . }}', text: '{{ template "mine" . }}', pretext: '{{ .CommonLabels.severity | toUpper }}'}"#;

        let (summary, texts) = texts_of(settings, &[("a.tmpl", mine)]);
        assert_eq!(summary, "[FIRING:2] GpuHot (critical ada)");
        let expected = [
            "CRITICAL",
            "*[FIRING:2] GpuHot (critical ada)*",
            "too hot on g0 since 00:16;too hot on g1 since 00:16;",
        ];
        assert_eq!(texts, expected);

        for (template, expected) in [
            (
                "{{ len .Alerts }} {{ .Status }} {{ .Receiver }} {{ .NotificationReason }}",
                "2 firing ops first notification",
            ),
            (
                "{{ range .GroupLabels.SortedPairs }}{{ .Name }}={{ .Value }}{{ end }}",
                "alertname=GpuHot",
            ),
            (
                "{{ .CommonAnnotations.action }}{{ .CommonAnnotations.nothing }}",
                "drain",
            ),
            (
                "{{ (index .Alerts 0).Labels.node }} {{ .Alerts.Resolved | len }}",
                "g0 0",
            ),
            (
                "{{ .CommonLabels.Remove (stringSlice \"severity\") }}",
                "alertname=GpuHot, user=ada",
            ),
            (
                "{{ join \",\" .CommonLabels.Names }}",
                "alertname,severity,user",
            ),
            (
                "{{ (index .Alerts 0).StartsAt | tz \"Europe/Berlin\" | date \"15:04 MST\" }}",
                "01:16 CET",
            ),
            ("{{ since (index .Alerts 0).StartsAt }}", "16m40s"),
            ("{{ .GroupLabels | toJson }}", "{\"alertname\":\"GpuHot\"}"),
        ] {
            let (_, texts) = texts_of(&format!("{{text: '{template}'}}"), &[]);
            assert_eq!(
                texts.last().map(String::as_str),
                Some(expected),
                "{template}"
            );
        }
    }

    /// A broken template still gives a message about the fault.
    #[test]
    fn broken_templates_give_takts_own_text() {
        for settings in [
            "{text: '{{ .Broken'}",
            "{text: '{{ nofunction . }}'}",
            "{text: '{{ template \"missing\" . }}'}",
            "{text: '{{ .NoField }}', title: '{{ humanize . }}'}",
            "{text: '   '}",
            "{text: [1]}",
        ] {
            // The file does not end its definition, and all its templates are missing.
            let (summary, texts) = texts_of(settings, &[("broken.tmpl", "{{ define \"x\" }}")]);
            assert_eq!(
                summary, "[FIRING 2] too hot on g0, and 1 more on g1",
                "{settings}"
            );
            assert!(
                texts.iter().any(|text| text.contains("too hot on g1")),
                "{settings}: {texts:?}"
            );
        }
    }

    #[test]
    fn a_mail_in_other_words() {
        let mail = |settings: &str| {
            let mut wording = Wording::read(
                &Arc::default(),
                &Node::read(settings).unwrap(),
                &["html", "text"],
            );
            wording.add(
                "subject",
                &Node::read("'{{ .Status }}\n\n of {{ .GroupLabels.alertname }}'").unwrap(),
            );
            let email = Email {
                to: "ann@lab.example".to_owned(),
                domain: "lab.example".to_owned(),
                wording,
                is_threaded: true,
            };
            email.mail(&row(1, "too hot"), None)
        };
        let plain = mail("{}");
        assert_eq!(plain.subject, "firing of GpuHot");
        assert!(
            plain.text.contains("too hot on g0") && plain.html.unwrap().contains("too hot on g0")
        );

        let own = mail("{html: '<b>{{ .Status }}</b>'}");
        assert_eq!(own.html.as_deref(), Some("<b>firing</b>"));
        assert!(own.text.contains("too hot on g0"));

        let text = mail("{text: '{{ .Status }}!'}");
        assert_eq!(text.text.as_str(), "firing!");
        assert_eq!(text.html, None);
    }

    /// A label and an annotation with markup, as a user who names jobs could write it.
    fn hostile() -> Row {
        let mut row = row(1, "<!channel> <@U1> <b>&</b> <https://wiki|runbook>");
        let alert = &mut row.message.alerts[0];
        // Slack's call of a whole channel, a link and a group, and HTML.
        alert
            .labels
            .set("user", "<!here> <https://evil|log in> & \"'");

        let copied = "held by <!here> <https://evil|log in> & \"', see <https://wiki|runbook>";
        alert
            .annotations
            .insert("copied".to_owned(), copied.to_owned());
        row
    }

    #[test]
    fn labels_in_templates_of_slack_are_text() {
        let said = |template: &str| {
            let settings = format!("text: '{{{{ range .Alerts }}}}{template}{{{{ end }}}}'");
            let settings = Node::read(&settings).unwrap();
            let wording = Wording::read(&Arc::default(), &settings, &["text"]);
            let slack = Slack::webhook("http://x").worded(wording);

            let body: serde_json::Value =
                serde_json::from_str(&slack.request(&hostile()).body).unwrap();
            body["blocks"][1]["text"]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            said("<!channel> {{ .Labels.user }}"),
            "<!channel> &lt;!here&gt; &lt;https://evil|log in&gt; &amp; \"'"
        );

        // Rules may write links.
        assert_eq!(
            said("{{ .Annotations.summary }}"),
            "&lt;!channel> &lt;@U1> <b>&</b> <https://wiki|runbook> on g0"
        );
        // A rule has put a label into an annotation: its link is text, the rule's own is not.
        assert_eq!(
            said("{{ .Annotations.copied }}"),
            "held by &lt;!here&gt; &lt;https://evil|log in&gt; &amp; \"', see <https://wiki|runbook>"
        );
    }

    #[test]
    fn values_in_templates_of_html_are_text() {
        for (template, expected) in [
            (
                "<b>{{ .Labels.user }}</b>",
                "<b>&lt;!here&gt; &lt;https://evil|log in&gt; &amp; &#34;&#39;</b>",
            ),
            (
                "{{ .Labels.user | html }}",
                "&lt;!here&gt; &lt;https://evil|log in&gt; &amp; &#34;&#39;",
            ),
            (
                "{{ .Labels.node | safeHtml }}{{ safeHtml \"<i>\" }}",
                "g0<i>",
            ),
            ("{{ $n := .Labels.user }}{{ len $n }}", "34"),
        ] {
            let html = format!(
                "html: {}",
                serde_json::json!(format!("{{{{ range .Alerts }}}}{template}{{{{ end }}}}"))
            );
            let settings = Node::read(&html).unwrap();
            let email = Email {
                to: "ann@lab.example".to_owned(),
                domain: "lab.example".to_owned(),
                wording: Wording::read(&Arc::default(), &settings, &["html"]),
                is_threaded: true,
            };
            let mail = email.mail(&hostile(), None);
            assert_eq!(mail.html.as_deref(), Some(expected), "{template}");
        }
    }
}
