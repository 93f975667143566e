//! `alertmanager.yml`: the route tree, receivers, inhibition and time intervals.
//!
//! Receivers that Takt does not deliver to are refused by name: an alert that reaches no channel is
//! lost.

use super::inhibit::InhibitRule;
use super::interval::TimeInterval;
use super::matcher::{MatchOp, Matcher, Matchers, parse_matchers};
use super::routes::{RouteNames, RouteTree, read_routes};
use crate::alert::RESOLVE_TIMEOUT;
use crate::notify::{NOTIFIERS, NotifierKind, wording};
use crate::template::MessageTemplates;
use crate::yaml::{self, Fields, Mistake, Node, unknown_key};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use takt_model::Labels;

/// An Alertmanager configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Its text without the secrets.
    pub shown: String,
    /// When a pushed alert without an end counts as resolved.
    pub resolve_timeout: Duration,
    /// Settings that receivers share, such as `smtp_smarthost`.
    pub global: Option<Node>,
    /// Files with templates for messages.
    pub templates: Vec<String>,
    /// The templates in these files, once [`read_templates`](Self::read_templates) has read them.
    pub shared: Arc<MessageTemplates>,
    /// The routes; the first is the root.
    pub routes: RouteTree,
    /// The receivers.
    pub receivers: Vec<Receiver>,
    /// The inhibition rules.
    pub inhibit_rules: Vec<InhibitRule>,
    /// Time intervals by name.
    pub time_intervals: BTreeMap<String, Vec<TimeInterval>>,
}

/// Where an alert goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedTo {
    /// Name of the receiver.
    pub receiver: String,
    /// Key of the route.
    pub route: String,
    /// Names of the receiver's channels.
    pub channels: Vec<String>,
}

/// A receiver: its name and its channels.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    /// The name that routes use.
    pub name: String,
    /// Labels for filters of the API; `name` is one of them.
    pub labels: Labels,
    /// Its integrations, in the order of the file.
    pub integrations: Vec<Integration>,
}

/// One integration of a receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Integration {
    /// `email`, `slack`, `webhook`, `ntfy` or `owner`.
    pub kind: &'static str,
    /// Its number among the integrations of its kind in this receiver.
    pub index: usize,
    /// Whether it gets messages about resolved alerts.
    pub send_resolved: bool,
    /// All its settings.
    pub settings: Node,
}

impl Receiver {
    /// Returns the channel name of an integration, as used by the notification log and the outbox:
    /// `ops/slack/0`.
    pub fn channel(&self, integration: &Integration) -> String {
        format!("{}/{}/{}", self.name, integration.kind, integration.index)
    }
}

/// The global settings.
const GLOBAL_KEYS: &[&str] = &[
    "resolve_timeout",
    "http_config",
    "smtp_from",
    "smtp_hello",
    "smtp_smarthost",
    "smtp_auth_username",
    "smtp_auth_password",
    "smtp_auth_password_file",
    "smtp_auth_secret",
    "smtp_auth_secret_file",
    "smtp_auth_identity",
    "smtp_require_tls",
    "smtp_tls_config",
    "smtp_force_implicit_tls",
    "slack_api_url",
    "slack_api_url_file",
    "slack_app_token",
    "slack_app_token_file",
    "slack_app_url",
];

/// Prefixes of global settings of integrations that Takt does not deliver to; they are ignored,
/// since no receiver can use them.
const OTHERS: [&str; 12] = [
    "pagerduty_",
    "opsgenie_",
    "wechat_",
    "victorops_",
    "telegram_",
    "webex_",
    "jira_",
    "rocketchat_",
    "mattermost_",
    "msteams_",
    "incidentio_",
    "discord_",
];

/// Keys with secret values.
const SECRETS: &[&str] = &[
    "api_url",
    "app_token",
    "auth_password",
    "auth_secret",
    "bearer_token",
    "client_secret",
    "credentials",
    "key",
    "password",
    "proxy_connect_header",
    "proxy_url",
    "secrets",
    "slack_api_url",
    "slack_app_token",
    "smtp_auth_password",
    "smtp_auth_secret",
    "token",
    "topic",
    "url",
];

const CONFIG_KEYS: &[&str] = &[
    "global",
    "templates",
    "route",
    "receivers",
    "inhibit_rules",
    "mute_time_intervals",
    "time_intervals",
    "tracing",
    "event_recorder",
];

/// Keys without effect, and the reason.
const IGNORED_KEYS: [(&str, &str); 2] = [
    ("tracing", "Takt sends no traces of notifications"),
    (
        "event_recorder",
        "Takt records alerts and notifications itself; `takt alerts history` shows them",
    ),
];

impl Config {
    /// Reads the text of the file called `name`.
    ///
    /// # Errors
    /// At the first mistake.
    pub fn read(name: &str, text: &str) -> Result<Self, Mistake> {
        Self::from_text(text).map_err(|mistake| mistake.in_file(name))
    }

    /// Reads the files of `templates`, relative to `base`. A file with a mistake is left out, logged and
    /// returned with the reason.
    pub fn read_templates(&mut self, base: &Path) -> Vec<String> {
        let (shared, unread) = wording::shared(&self.templates, base);
        self.shared = shared;
        unread
    }

    /// The receivers of an alert with these labels.
    pub fn route_test(&self, labels: &Labels) -> Vec<RoutedTo> {
        let routes = self.routes.matching(labels).into_iter();
        routes
            .map(|at| self.routes.get(at))
            .map(|route| RoutedTo {
                receiver: route.receiver.clone(),
                route: route.key.clone(),
                channels: self.channels_of(&route.receiver),
            })
            .collect()
    }

    fn channels_of(&self, receiver: &str) -> Vec<String> {
        let known = self.receiver(receiver).into_iter();
        known
            .flat_map(|known| known.integrations.iter().map(|one| known.channel(one)))
            .collect()
    }

    /// Whether a receiver has a channel.
    pub fn has_channels(&self) -> bool {
        self.receivers
            .iter()
            .any(|receiver| !receiver.integrations.is_empty())
    }

    /// Receivers with channels to which no route leads.
    pub fn unreached(&self) -> impl Iterator<Item = &Receiver> {
        self.receivers.iter().filter(|receiver| {
            let is_named = self
                .routes
                .iter()
                .any(|route| route.receiver == receiver.name);
            !receiver.integrations.is_empty() && !is_named
        })
    }

    /// The receiver of that name.
    pub fn receiver(&self, name: &str) -> Option<&Receiver> {
        self.receivers.iter().find(|receiver| receiver.name == name)
    }

    fn from_text(text: &str) -> Result<Self, Mistake> {
        let root = Node::read(text)?;
        let fields = root.fields(CONFIG_KEYS)?;
        // They are valid in Alertmanager, so they must not keep Takt from starting.
        for (key, why) in IGNORED_KEYS {
            if let Some(node) = fields.get(key) {
                tracing::warn!(line = node.line(), "ignoring `{key}`: {why}");
            }
        }

        let receivers: Vec<Receiver> = fields.or_default("receivers", |node| {
            node.list()?.iter().map(receiver).collect::<Result<_, _>>()
        })?;
        // Channels are found by the receiver's name, so it has to be unique.
        if let Some(twin) = receivers
            .iter()
            .enumerate()
            .find(|(at, one)| receivers[..*at].iter().any(|r| r.name == one.name))
        {
            return Err(root.mistake(format!("there are two receivers called `{}`", twin.1.name)));
        }

        // Alertmanager's older name of the list and the newer one; both may be given.
        let mut time_intervals = BTreeMap::new();
        for key in ["mute_time_intervals", "time_intervals"] {
            for node in fields.or_default(key, Node::list)? {
                let (name, intervals) = named_intervals(node)?;
                if time_intervals.insert(name.clone(), intervals).is_some() {
                    return Err(
                        node.mistake(format!("there are two time intervals called `{name}`"))
                    );
                }
            }
        }

        // The names first: routes may only refer to what exists.
        let names = RouteNames {
            receivers: receivers
                .iter()
                .map(|receiver| receiver.name.as_str())
                .collect(),
            intervals: time_intervals.keys().map(String::as_str).collect(),
        };
        let routes = read_routes(fields.require("route")?, &names)?;

        let (global, resolve_timeout) = read_global(&fields)?;
        Ok(Self {
            shown: yaml::without(text, SECRETS),
            resolve_timeout,
            global,
            templates: fields.or_default("templates", Node::texts)?,
            shared: Arc::default(),
            routes,
            inhibit_rules: fields.or_default("inhibit_rules", |node| {
                node.list()?
                    .iter()
                    .map(inhibit_rule)
                    .collect::<Result<_, _>>()
            })?,
            receivers,
            time_intervals,
        })
    }
}

fn read_global(fields: &Fields<'_>) -> Result<(Option<Node>, Duration), Mistake> {
    let Some(global) = fields.get("global") else {
        return Ok((None, RESOLVE_TIMEOUT));
    };

    // Settings of services that Takt does not know are taken out before unknown keys are refused.
    let mut ours = global.clone();
    for (key, _) in global
        .pairs()?
        .filter(|(key, _)| OTHERS.iter().any(|prefix| key.starts_with(prefix)))
    {
        tracing::warn!(
            key,
            "global setting of a receiver that takt does not deliver to"
        );
        ours.remove(&[key]);
    }

    let inside = |mistake: Mistake| mistake.within("`global`");
    let resolve_timeout = ours
        .fields(GLOBAL_KEYS)
        .map_err(inside)?
        .optional("resolve_timeout", Node::duration)
        .map_err(inside)?;
    Ok((
        Some(ours.clone()),
        resolve_timeout.unwrap_or(RESOLVE_TIMEOUT),
    ))
}

fn receiver(node: &Node) -> Result<Receiver, Mistake> {
    let mut receiver = Receiver {
        name: String::new(),
        labels: Labels::new(),
        integrations: Vec::new(),
    };
    // A mistake is reported with the receiver's name, which may come after the key.
    let mut others = Vec::new();
    for (key, value) in node.pairs()? {
        match NotifierKind::with_key(key) {
            _ if key == "name" => value.text()?.clone_into(&mut receiver.name),
            _ if key == "labels" => receiver.labels = value.text_pairs()?.into_iter().collect(),
            Some(kind) => receiver.integrations.extend(integrations(kind, value)?),
            None => others.push((key, value)),
        }
    }

    let inside = |mistake: Mistake| mistake.within(format!("receiver `{}`", receiver.name));

    match others.first() {
        // Refused and not ignored: alerts that go to no channel would be lost.
        Some((key, value)) if key.ends_with("_configs") => Err(inside(value.mistake(format!(
            "takt does not deliver to `{key}`; `webhook_configs` reaches any service"
        )))),
        Some((key, value)) => {
            let known: Vec<_> = NOTIFIERS
                .iter()
                .map(|kind| kind.config_key)
                .chain(["name", "labels"])
                .collect();
            Err(inside(value.mistake(unknown_key(key, &known))))
        }
        None if receiver.name.is_empty() => Err(node.mistake("a receiver needs a name")),

        None => {
            // The API filters receivers by this label, so it has to agree with the name.
            let named = receiver.labels.get("name").unwrap_or(&receiver.name);
            if named != receiver.name {
                return Err(inside(node.mistake(format!(
                    "the label `name` is always the receiver's name, not `{named}`"
                ))));
            }
            receiver.labels.set("name", &receiver.name);
            Ok(receiver)
        }
    }
}

/// The channels in the list of one kind of notifier.
fn integrations(kind: &'static NotifierKind, list: &Node) -> Result<Vec<Integration>, Mistake> {
    list.list()?
        .iter()
        // One entry may stand for several channels, such as an e-mail to two addresses.
        .flat_map(|node| (kind.split)(node))
        .enumerate()
        .map(|(index, settings)| {
            let send_resolved = settings
                .pairs()?
                // `send_resolved:` without a value is the kind's default.
                .find(|(key, node)| *key == "send_resolved" && !node.is_null())
                .map_or(Ok(kind.sends_resolved), |(_, node)| node.boolean())?;
            Ok(Integration {
                kind: kind.name,
                index,
                send_resolved,
                settings,
            })
        })
        .collect()
}

fn named_intervals(node: &Node) -> Result<(String, Vec<TimeInterval>), Mistake> {
    let fields = node.fields(&["name", "time_intervals"])?;
    let name = fields.require("name")?.text()?.to_owned();
    if name.is_empty() {
        return Err(node.mistake("a time interval needs a name"));
    }

    let inside = |mistake: Mistake| mistake.within(format!("time interval `{name}`"));
    let list = fields
        .or_default("time_intervals", Node::list)
        .map_err(inside)?;
    let intervals = list
        .iter()
        .map(TimeInterval::read)
        .collect::<Result<_, _>>()
        .map_err(inside)?;
    Ok((name, intervals))
}

fn inhibit_rule(node: &Node) -> Result<InhibitRule, Mistake> {
    let fields = node.fields(&[
        "name",
        "source_match",
        "source_match_re",
        "source_matchers",
        "target_match",
        "target_match_re",
        "target_matchers",
        "equal",
    ])?;
    Ok(InhibitRule {
        source: conditions(
            &fields,
            ["source_match", "source_match_re", "source_matchers"],
        )?,
        target: conditions(
            &fields,
            ["target_match", "target_match_re", "target_matchers"],
        )?,
        equal: fields.or_default("equal", |node| {
            node.list()?.iter().map(label_name).collect()
        })?,
    })
}

/// Conditions in the three forms that Alertmanager has had: equal, regular expressions, and
/// matchers.
pub(super) fn conditions(
    fields: &Fields<'_>,
    [equal, regex, matchers]: [&str; 3],
) -> Result<Matchers, Mistake> {
    let mut all = Vec::new();
    for (key, op) in [(equal, MatchOp::Equal), (regex, MatchOp::Regex)] {
        let Some(node) = fields.get(key) else {
            continue;
        };
        for (name, value) in node.pairs()? {
            // The older forms cannot have quoted names.
            if !is_classic_name(name) {
                return Err(value.mistake(format!(
                    "`{name}` is not a label name here; `{matchers}` can have others"
                )));
            }
            // An empty expression would match only alerts without the label, which is seldom meant.
            if op.is_regex() && value.is_null() {
                return Err(value.mistake(format!("`{name}` needs a regular expression")));
            }
            all.push(
                Matcher::new(name, op, value.text()?)
                    .map_err(|error| value.mistake(error.to_string()))?,
            );
        }
    }

    for node in fields.or_default(matchers, Node::list)? {
        all.extend(parse_matchers(node.text()?).map_err(|error| node.mistake(error.to_string()))?);
    }
    Ok(Matchers(all).sorted())
}

/// A name that Prometheus has always known; newer ones may be any text.
fn is_classic_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// The name of a label, of any text but none.
pub(super) fn label_name(node: &Node) -> Result<String, Mistake> {
    match node.text()? {
        "" => Err(node.mistake("a label needs a name")),
        name => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::routes::GroupBy;
    use crate::testing::parse_series;
    use std::collections::BTreeSet;

    const GOOD: &str = r#"
global: {resolve_timeout: 10m, smtp_smarthost: 'mail:587', smtp_from: takt@lab}
templates: ['*.tmpl']
route:
  receiver: everybody
  group_by: [alertname, cluster]
  group_wait: 10s
  routes:
    - matchers: [severity="critical"]
      receiver: pager
      group_wait: 0s
      continue: true
      routes:
        - match: {team: gpu}
          receiver: gpu
          group_by: []
          labels: {desk: '4'}
    - match_re: {team: gpu|net}
      group_by: ['...']
      repeat_interval: 1d
      mute_time_intervals: [nights]
    - matchers: ['severity =~ "info|warning"', node!=""]
      receiver: mail
receivers:
  - name: everybody
    webhook_configs: [{url: 'http://x'}]
  - name: pager
    slack_configs: [{channel: '#ops', send_resolved: true}, {channel: '#more'}]
    email_configs: [{to: ops@lab}]
  - name: gpu
  - name: mail
inhibit_rules:
  - source_matchers: [alertname=NodeDown]
    target_match: {scope: node}
    target_match_re: {severity: .+}
    equal: [node]
time_intervals:
  - name: nights
    time_intervals: [{times: [{start_time: '00:00', end_time: '06:00'}]}]
"#;

    #[test]
    fn reads_a_whole_file() {
        let config = Config::read("alertmanager.yml", GOOD).unwrap();
        assert_eq!(config.resolve_timeout, Duration::from_secs(600));

        let pager = config.receiver("pager").unwrap();
        let channels: Vec<_> = pager
            .integrations
            .iter()
            .map(|i| (pager.channel(i), i.send_resolved))
            .collect();
        assert_eq!(
            channels,
            [
                ("pager/slack/0".to_owned(), true),
                ("pager/slack/1".to_owned(), false),
                ("pager/email/0".to_owned(), false),
            ]
        );

        let gpu = config.routes.get(2);
        assert_eq!(gpu.key, r#"{}/{severity="critical"}/{team="gpu"}"#);
        assert_eq!(gpu.group_wait, Duration::ZERO);
        assert_eq!(gpu.repeat_interval, Duration::from_secs(4 * 3600));
        assert_eq!(
            &gpu.group_by,
            &GroupBy::Labels(BTreeSet::new()),
            "[] does not inherit"
        );
        assert_eq!(gpu.labels.get("desk"), Some("4"), "[] does not inherit");

        assert_eq!(config.routes.get(3).group_by, GroupBy::All);
        assert_eq!(
            config.inhibit_rules[0].target.to_string(),
            r#"{scope="node",severity=~".+"}"#
        );
    }

    #[test]
    fn the_routes_choose_receivers() {
        let config = Config::read("alertmanager.yml", GOOD).unwrap();
        for (labels, receivers) in [
            ("{severity=critical}", vec!["pager"]),
            ("{severity=critical,team=gpu}", vec!["gpu", "everybody"]),
            ("{team=net}", vec!["everybody"]),
            ("{severity=info,node=g01}", vec!["mail"]),
            ("{severity=info}", vec!["everybody"]),
            ("{severity=warning,team=gpu,node=g01}", vec!["everybody"]),
        ] {
            let found: Vec<_> = config
                .route_test(&parse_series(labels))
                .into_iter()
                .map(|to| to.receiver)
                .collect();
            assert_eq!(found, receivers, "{labels}");
        }
    }

    /// Empty settings are not mistakes. Booleans follow YAML 1.1.
    #[test]
    fn settings_that_say_nothing_are_read() {
        let route = "{receiver: a, routes: [{receiver: ''}], group_by: ['...', '...'], continue: \
             off, matchers: [], match: {}, mute_time_intervals: []}";
        let text = format!(
            "global: {{resolve_timeout: , opsgenie_api_key: x}}\nroute: {route}\nreceivers: \
             [{{name: a, webhook_configs: \
             [{{url: 'http://x', send_resolved: }}, {{url: 'http://x', send_resolved: no}}]}}]\n"
        );
        let config = Config::read("am.yml", &text).unwrap();

        assert_eq!(config.routes.get(0).group_by, GroupBy::All);
        assert_eq!(config.resolve_timeout, RESOLVE_TIMEOUT);
        assert_eq!(
            config.receivers[0]
                .integrations
                .iter()
                .map(|i| i.send_resolved)
                .collect::<Vec<_>>(),
            [true, false]
        );
    }

    /// One mistake each, and its message.
    #[test]
    fn mistakes_are_named() {
        let with = |route: &str| format!("route: {route}\nreceivers: [{{name: a}}]\n");
        // Each text has one mistake and nothing else to complain about.
        for (text, says) in [
            ("receivers: [{name: a}]".to_owned(), "`route` is missing"),
            (with("{}"), "the root route: `receiver` is missing"),
            (
                with("{receiver: b}"),
                "`receiver`: there is no receiver `b`",
            ),
            (
                with("{receiver: a, matchers: [x=y]}"),
                "`matchers` has no place here",
            ),
            (
                with("{receiver: a, mute_time_intervals: [n]}"),
                "`mute_time_intervals` has no place here",
            ),
            (
                with("{receiver: a, routes: [{mute_time_intervals: [n]}]}"),
                "there is no time interval `n`",
            ),
            (
                with("{receiver: a, routes: [{matchers: ['x']}]}"),
                "`x` is not a matcher",
            ),
            (
                with("{receiver: a, routes: [{match_re: {x: '('}}]}"),
                "`(` is not a regular expression",
            ),
            (with("{receiver: a, group_by: [x, '...']}"), "stands alone"),
            (with("{receiver: a, group_by: [x, x]}"), "named twice"),
            (with("{receiver: a, group_by: ['']}"), "needs a name"),
            (with("{receiver: a, group_wait: 293y}"), "not a duration"),
            (
                with("{receiver: a, continue: true}"),
                "`continue` has no place here",
            ),
            (
                with("{receiver: a, routes: [{match: {a-b: c}}]}"),
                "`a-b` is not a label name here",
            ),
            (
                with("{receiver: a, routes: [{match_re: {a: }}]}"),
                "`a` needs a regular expression",
            ),
            (
                with("{receiver: a, routes: [{matchers: [a=~x**]}]}"),
                "not a regular expression",
            ),
            (
                format!(
                    "inhibit_rules: [{{equal: ['']}}]\n{}",
                    with("{receiver: a}")
                ),
                "needs a name",
            ),
            (
                format!("global: {{smtp_fro: x}}\n{}", with("{receiver: a}")),
                "did you mean `smtp_from`?",
            ),
            (
                format!("time_intervals: [{{name: ''}}]\n{}", with("{receiver: a}")),
                "needs a name",
            ),
            (with("{receiver: a, group_interval: 0s}"), "more than zero"),
            (
                with("{receiver: a, goup_by: [x]}"),
                "did you mean `group_by`?",
            ),
            (
                "route: {receiver: a}\nreceivers: [{name: a}, {name: a}]".to_owned(),
                "two receivers called `a`",
            ),
            (
                "route: {receiver: a}\nreceivers: [{name: a, pagerduty_configs: []}]".to_owned(),
                "takt does not deliver to `pagerduty_configs`",
            ),
            (
                "route: {receiver: a}\nreceivers: [{name: a, slack_config: []}]".to_owned(),
                "did you mean `slack_configs`?",
            ),
            (
                "route: {receiver: a}\nreceivers: [{slack_configs: []}]".to_owned(),
                "a receiver needs a name",
            ),
            (
                "route: {receiver: a}\nreceivers: [{name: a}]\ntime_intervals: [{name: n, \
                 time_intervals: [{weekdays: [x]}]}]"
                    .to_owned(),
                "time interval `n`, `weekdays`: `x` is not a range here",
            ),
        ] {
            let message = Config::read("am.yml", &text).unwrap_err().to_string();
            assert!(message.contains(says), "{text}\n  gave {message}");
        }
    }
}
