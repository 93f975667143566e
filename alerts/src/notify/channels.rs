//! The channels of a configuration: every entry of every receiver, ready to send.

use super::http::{HttpOptions, HttpSender};
use super::http_config::{address, given, http_options, one_of, time_limit};
use super::owner::Addresses;
use super::slack::SLACK_API;
use super::{Notifier, NotifierKind, email, wording};
use crate::routing::config::{Config, Integration};
use crate::template::MessageTemplates;
use crate::yaml::{Mistake, Node};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use takt_mail::{EmailConfig, Mailer};
use takt_model::error_chain;

/// All channels by name.
#[derive(Default)]
pub struct Channels {
    by_name: BTreeMap<String, Box<dyn Notifier>>,
    template_mistakes: Vec<Mistake>,
}

impl Channels {
    /// The channels of a configuration. Mail goes through `email` where the configuration names no
    /// mail server; `owners` has the addresses of users; files are relative to `base`.
    ///
    /// # Errors
    /// At the first invalid channel.
    pub fn build(
        config: &Config,
        email: &EmailConfig,
        owners: &Addresses,
        base: &Path,
    ) -> Result<Self, Mistake> {
        let empty = Node::empty();
        let global = config.global.as_ref().unwrap_or(&empty);
        let mut context = ChannelContext::new(global, email, owners, base);
        context.templates = Arc::clone(&config.shared);
        context
            .check_global()
            .map_err(|mistake| mistake.within("`global`"))?;

        let mut channels = BTreeMap::new();
        for receiver in &config.receivers {
            for integration in &receiver.integrations {
                let channel = context
                    .channel(integration)
                    .map_err(|mistake| mistake.within(format!("receiver `{}`", receiver.name)))?;
                channels.insert(receiver.channel(integration), channel);
            }
        }

        // A template that fails costs no message, so it is a warning and no error.
        let template_mistakes = wording::mistakes(config);
        for mistake in &template_mistakes {
            tracing::warn!(%mistake, "a template of a receiver fails; using Takt's own text");
        }

        Ok(Self {
            by_name: channels,
            template_mistakes,
        })
    }

    /// The channel of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Notifier> {
        self.by_name.get(name).map(Box::as_ref)
    }

    /// Mistakes in the templates of receivers: their texts would be replaced by Takt's own.
    pub fn template_mistakes(&self) -> &[Mistake] {
        &self.template_mistakes
    }

    /// All channels with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Notifier)> {
        let all = self.by_name.iter();
        all.map(|(name, channel)| (name.as_str(), channel.as_ref()))
    }

    /// The names of all channels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// The channel that gets the messages that `failed` refused for good: one of another kind,
    /// preferably of the same receiver.
    pub fn fallback(&self, failed: &str) -> Option<String> {
        // A service that refuses one channel often refuses its others, so another kind comes first.
        let failed_parts = ChannelParts::of(failed);
        self.by_name
            .iter()
            .filter(|(name, channel)| *name != failed && channel.is_fallback())
            .map(|(name, _)| name.as_str())
            .min_by_key(|name| {
                let parts = ChannelParts::of(name);
                (
                    parts.kind == failed_parts.kind,
                    parts.receiver != failed_parts.receiver,
                )
            })
            .map(str::to_owned)
    }
}

/// The parts of a channel's name, `RECEIVER/KIND/NUMBER`. A receiver's name may contain slashes.
pub(super) struct ChannelParts<'a> {
    pub(super) receiver: &'a str,
    kind: &'a str,
}

impl<'a> ChannelParts<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        // From the end, since only the receiver's name may contain slashes.
        let mut parts = name.rsplitn(3, '/').skip(1);
        Self {
            kind: parts.next().unwrap_or_default(),
            receiver: parts.next().unwrap_or_default(),
        }
    }
}

/// Shared context of all notifiers.
pub struct ChannelContext<'a> {
    global: &'a Node,
    email: &'a EmailConfig,
    /// Addresses of users.
    pub(super) owners: &'a Addresses,
    /// Folder that file names are relative to.
    pub(super) base: &'a Path,
    /// Templates that all settings may call.
    pub(super) templates: Arc<MessageTemplates>,
    /// The mailer of `[email]`: its limit of connections holds for all channels together.
    mailer: OnceCell<Arc<Mailer>>,
    /// HTTP clients by their settings; building one reads the system's certificates.
    senders: RefCell<Vec<(HttpOptions, HttpSender)>>,
}

impl<'a> ChannelContext<'a> {
    /// A context without shared templates.
    pub(super) fn new(
        global: &'a Node,
        email: &'a EmailConfig,
        owners: &'a Addresses,
        base: &'a Path,
    ) -> Self {
        Self {
            global,
            email,
            owners,
            base,
            templates: Arc::default(),
            mailer: OnceCell::new(),
            senders: RefCell::default(),
        }
    }

    /// Checks the global settings, which must be valid even if no receiver uses them.
    fn check_global(&self) -> Result<(), Mistake> {
        for (key, node) in self.global.pairs()?.filter(|(_, node)| !node.is_null()) {
            match key {
                "slack_api_url" | "slack_app_url" => drop(address(node, node.text()?.to_owned())?),
                "smtp_require_tls" | "smtp_force_implicit_tls" => drop(node.boolean()?),
                "smtp_smarthost" => email::check_port(node, node.text()?)?,
                "http_config" => drop(http_options(node, self.base)?),
                "smtp_tls_config" => email::check_tls(node, self)?,
                "resolve_timeout" => {}
                _ => drop(node.text()?),
            }
        }

        ["smtp_auth_password", "slack_api_url", "slack_app_token"]
            .iter()
            .try_for_each(|key| one_of(self.global, key).map(drop))?;
        self.check_slack_defaults()
    }

    /// Refuses a bot beside a webhook of Slack, unless the webhook is the address of the bot.
    fn check_slack_defaults(&self) -> Result<(), Mistake> {
        let given = |key: &str| {
            let file = format!("{key}_file");
            self.global_node(key).or_else(|| self.global_node(&file))
        };
        let (Some(token), Some(_)) = (given("slack_app_token"), given("slack_api_url")) else {
            return Ok(());
        };
        // Alertmanager sets the bot's address with `slack_api_url`, so both may be given.
        let webhook = self.global_text("slack_api_url")?;
        let bot = self
            .global_text("slack_app_url")?
            .unwrap_or_else(|| format!("{SLACK_API}/chat.postMessage"));

        if webhook.is_some_and(|webhook| webhook == bot) {
            return Ok(());
        }
        Err(token.mistake("at most one of `slack_app_token` and `slack_api_url` can be given"))
    }

    fn channel(&self, integration: &Integration) -> Result<Box<dyn Notifier>, Mistake> {
        let settings = &integration.settings;
        let kind = NotifierKind::named(integration.kind)
            .ok_or_else(|| settings.mistake("no notifier has this name"))?;
        (kind.build)(settings, self)
    }

    /// The mailer of `[email]`.
    ///
    /// # Errors
    /// If `[email]` names no server or is invalid.
    pub(super) fn mailer(&self, settings: &Node) -> Result<Arc<Mailer>, Mistake> {
        if let Some(mailer) = self.mailer.get() {
            return Ok(Arc::clone(mailer));
        }
        if !self.email.is_set() {
            return Err(settings
                .mistake("no mail server is known: give `smarthost`, or `[email]` in takt.toml"));
        }
        // One mailer for all channels, as its limit of connections is one of the server.
        let mailer =
            Mailer::new(self.email).map_err(|error| settings.mistake(error_chain(&error)))?;
        Ok(Arc::clone(self.mailer.get_or_init(|| Arc::new(mailer))))
    }

    /// The HTTP settings of a receiver: its `http_config` or the global one, and its `timeout`.
    ///
    /// # Errors
    /// At the first invalid setting.
    pub(super) fn http_options(&self, settings: &Node) -> Result<HttpOptions, Mistake> {
        let mut options = HttpOptions::default();

        let http = setting(settings, "http_config");
        if let Some(http) = http.or(setting(self.global, "http_config")) {
            options = http_options(http, self.base)?;
        }

        if let Some(node) = setting(settings, "timeout") {
            let limit = time_limit(node).map_err(|mistake| mistake.within("`timeout`"))?;
            // In Alertmanager 0 is no limit of its own.
            options.timeout = (limit > Duration::ZERO).then_some(limit);
        } else {
            options.timeout = None;
        }
        Ok(options)
    }

    /// The HTTP client with these settings.
    ///
    /// # Errors
    /// If the client cannot be built.
    pub(super) fn http_sender(
        &self,
        settings: &Node,
        options: HttpOptions,
    ) -> Result<HttpSender, Mistake> {
        let mut senders = self.senders.borrow_mut();
        if let Some((_, sender)) = senders.iter().find(|(known, _)| *known == options) {
            return Ok(sender.clone());
        }
        let sender =
            HttpSender::new(&options).map_err(|error| settings.mistake(error_chain(&error)))?;
        senders.push((options, sender.clone()));
        Ok(sender)
    }

    /// The value of `key`, or the content of the file that `key_file` names.
    ///
    /// # Errors
    /// If both are given or the file cannot be read.
    pub(super) fn secret(&self, settings: &Node, key: &str) -> Result<Option<String>, Mistake> {
        given(settings, key, self.base)
    }

    /// As [`Self::secret`], of the global settings.
    ///
    /// # Errors
    /// As [`Self::secret`].
    pub(super) fn global_secret(&self, key: &str) -> Result<Option<String>, Mistake> {
        given(self.global, key, self.base)
    }

    /// A global setting.
    pub(super) fn global_node(&self, key: &str) -> Option<&'a Node> {
        self.global.get(key).filter(|node| !node.is_null())
    }

    /// The text of a global setting.
    ///
    /// # Errors
    /// If the setting is not a text.
    pub(super) fn global_text(&self, key: &str) -> Result<Option<String>, Mistake> {
        let text = self
            .global_node(key)
            .map(Node::text)
            .transpose()?
            .map(str::to_owned);
        Ok(text)
    }
}

/// The node of a key, unless it is null.
fn setting<'n>(settings: &'n Node, key: &str) -> Option<&'n Node> {
    settings.get(key).filter(|node| !node.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_mail::TlsMode;

    fn build(receivers: &str) -> Result<Channels, String> {
        let text = format!(
            "global: {{slack_app_token: xoxb-1}}\nroute: {{receiver: ops}}\nreceivers:\n{receivers}"
        );
        let config = Config::read("am.yml", &text).map_err(|mistake| mistake.to_string())?;
        let email = EmailConfig {
            server: "localhost".to_owned(),
            tls: Some(TlsMode::None),
            from: "takt@lab.example".to_owned(),
            ..EmailConfig::default()
        };
        Channels::build(
            &config,
            &email,
            &Addresses::none(),
            Path::new("/nonexistent"),
        )
        .map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn each_address_is_a_channel_and_each_channel_has_another() {
        // A broken template of one channel keeps none from being built.
        let channels = build(
            "- name: ops\n  slack_configs: [{channel: '#ops', title: '{{ .Broken'}]\n  \
             email_configs: [{to: 'ann@lab.example, Bob <bob@lab.example>'}]\n\
             - name: dev\n  slack_configs: [{channel: '#dev'}]\n",
        )
        .unwrap();

        let names: Vec<_> = channels.names().collect();
        assert_eq!(
            names,
            ["dev/slack/0", "ops/email/0", "ops/email/1", "ops/slack/0"]
        );
        assert_eq!(
            channels.fallback("ops/slack/0").as_deref(),
            Some("ops/email/0")
        );
        assert_eq!(
            channels.fallback("ops/email/1").as_deref(),
            Some("ops/slack/0")
        );
        assert_eq!(
            channels.fallback("dev/slack/0").as_deref(),
            Some("ops/email/0")
        );

        let owned =
            build("- name: ops\n  owner_configs: [{}]\n  webhook_configs: [{url: 'http://x'}]\n")
                .unwrap();
        assert_eq!(
            owned.fallback("ops/webhook/0"),
            None,
            "an owner of jobs does not hear of the site's channels"
        );

        let alone = build("- name: ops\n  webhook_configs: [{url: 'http://x'}]\n").unwrap();
        assert_eq!(alone.fallback("ops/webhook/0"), None);
    }

    #[test]
    fn each_mistake_is_named() {
        for (receiver, expected) in [
            (
                "slack_configs: [{chanel: '#ops'}]",
                "did you mean `channel`",
            ),
            ("slack_configs: [{}]", "channel"),
            (
                "slack_configs: [{channel: c, app_token_file: gone}]",
                "cannot read /nonexistent/gone",
            ),
            ("email_configs: [{to: nobody}]", "not an e-mail address"),
            (
                "email_configs: [{to: a@b.c, smarthost: 'mail:25'}]",
                "from: expected an address",
            ),
            (
                "email_configs: [{to: a@b.c, smarthost: 'm:25', tls_config: {insecure_skip_verify: \
                 true}}]",
                "always checks",
            ),
            (
                "email_configs: [{to: a@b.c, from: x@b.c, smarthost: 'm:25', auth_secret: s}]",
                "`auth_secret` (CRAM-MD5) is not supported",
            ),
            (
                "email_configs: [{to: a@b.c, hello: x}]",
                "`hello` needs `smarthost`",
            ),
            (
                "email_configs: [{to: a@b.c, implicit_tls: true}]",
                "unknown key `implicit_tls`",
            ),
            (
                "email_configs: [{to: a@b.c, threading: {enabled: true}}]",
                "`thread_by_date` must be `none` or `daily`",
            ),
            (
                "email_configs: [{to: a@b.c, threading: {enabled: true, thread_by_date: daily}}]",
                "`thread_by_date: daily` is not supported",
            ),
            (
                "email_configs: [{to: a@b.c, headers: {references: x}, threading: {enabled: true, \
                 thread_by_date: none}}]",
                "conflicts with the header `References`",
            ),
            (
                "email_configs: [{to: a@b.c, from: x@b.c, smarthost: 'm:25', tls_config: \
                 {cert_file: x}}]",
                "`cert_file` is not supported for mail servers",
            ),
            (
                "slack_configs: [{channel: c, api_url: 'http://x', app_token: t}]",
                "at most one of `api_url` and `app_token`",
            ),
            (
                "slack_configs: [{channel: c, api_url: 'http://x', update_message: true}]",
                "`update_message` needs a bot",
            ),
            (
                "slack_configs: [{channel: c, app_token: t, http_config: {bearer_token: t}}]",
                "a bot authenticates with `app_token`",
            ),
            (
                "slack_configs: [{channel: c, http_config: {bearer_token: t}}]",
                "needs `app_token` (a bot) or `api_url`",
            ),
            (
                "slack_configs: [{channel: c, timeout: soon}]",
                "not a duration",
            ),
            (
                "webhook_configs: [{url: 'http://x', timeout: soon}]",
                "not a duration",
            ),
            (
                "webhook_configs: [{url: 'http://x', http_config: {http_headers: {'a b': {values: \
                 [c]}}}}]",
                "the header `a b` is invalid",
            ),
            ("webhook_configs: [{max_alerts: 3}]", "needs `url`"),
            ("webhook_configs: [{url: 'ftp://x'}]", "begins with http"),
            ("ntfy_configs: [{url: 'http://x'}]", "topic"),
        ] {
            let said = build(&format!("- name: ops\n  {receiver}\n"))
                .err()
                .unwrap_or_default();
            assert!(
                said.contains(expected) && said.contains("receiver `ops`"),
                "{receiver}: {said}"
            );
        }
    }

    #[test]
    fn a_template_that_would_fail_when_it_is_sent_is_named() {
        let mistakes = |settings: &str| {
            let receiver = format!("- name: ops\n  slack_configs: [{{channel: c, {settings}}}]\n");
            let mistakes = build(&receiver).unwrap().template_mistakes;
            mistakes
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        for (settings, expected) in [
            ("title: '{{ .Broken'", "is not closed"),
            (
                "text: '{{ range .Alerts.Resolved }}{{ .EndsAt.Foo }}{{ end }}'",
                "no field `Foo` in a time",
            ),
            (
                "text: '{{ (index .Alerts 0).StartsAt.ISOWeek }}'",
                "several results",
            ),
            ("text: '{{ template \"none\" . }}'", "no template `none`"),
            (
                "fields: [{title: '{{ .Lables }}', value: x}]",
                "no field `Lables` in the message",
            ),
        ] {
            let said = mistakes(settings);
            assert!(
                said.contains(expected) && said.contains("receiver `ops`"),
                "{settings}: {said}"
            );
        }

        // An index beyond the alerts and a missing label may be there in another message.
        for settings in [
            "title: '{{ template \"slack.default.title\" . }}'",
            "text: '{{ (index .Alerts 5).Labels.node }}{{ .CommonLabels.nothing }}'",
            "text: '{{ range .Alerts }}{{ (.StartsAt.Truncate 60000000000).YearDay }}{{ end }}'",
        ] {
            assert_eq!(mistakes(settings), "", "{settings}");
        }
    }
}
