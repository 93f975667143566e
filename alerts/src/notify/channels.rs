//! The channels of a configuration: each way of each receiver, ready to be used.
//!
//! A channel's settings are Alertmanager's: each is followed, or read over with a warning, or refused by name.

use super::email::{Email, EmailConfig, Mailer, TlsMode};
use super::http_config::{address, authorization, given, one_of};
use super::looks::{check_headers, check_slack};
use super::ntfy::Ntfy;
use super::owner::{Addresses, Owner};
use super::slack::Slack;
use super::webhook::Webhook;
use super::{HttpNotifier, Wording, wording};
use crate::routing::config::{Config, Integration};
use crate::template::MessageTemplates;
use crate::yaml::{Mistake, Node};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use takt_model::error_chain;

/// Slack's Web API.
pub const SLACK_API: &str = "https://slack.com/api";

/// How a channel is reached.
pub enum Way {
    /// By HTTP.
    Http(Box<dyn HttpNotifier>),
    /// By e-mail.
    Mail(Email, Arc<Mailer>),
    /// By e-mail to the owner of the job.
    Owner(Owner, Arc<Mailer>),
}

/// All channels by name.
#[derive(Default)]
pub struct Channels(BTreeMap<String, Way>);

/// Settings of each kind that mean something to us; then those that are about words.
const SLACK: &[&str] = &[
    "send_resolved",
    "api_url",
    "api_url_file",
    "app_token",
    "app_token_file",
    "app_url",
    "channel",
    "http_config",
    "update_message",
    "timeout",
];
const SLACK_WORDS: &[&str] = &[
    "title",
    "title_link",
    "text",
    "pretext",
    "footer",
    "fallback",
    "username",
    "icon_emoji",
    "icon_url",
];
/// How Alertmanager's attachments look; Takt's messages are made of blocks.
const SLACK_LOOKS: &[&str] = &[
    "color",
    "message_text",
    "fields",
    "short_fields",
    "callback_id",
    "image_url",
    "thumb_url",
    "link_names",
    "mrkdwn_in",
    "actions",
];
const EMAIL: &[&str] = &[
    "send_resolved",
    "to",
    "from",
    "hello",
    "smarthost",
    "auth_username",
    "auth_password",
    "auth_password_file",
    "auth_secret",
    "auth_identity",
    "require_tls",
    "implicit_tls",
    "tls_config",
    "threading",
    "headers",
];
const EMAIL_WORDS: &[&str] = &["html", "text"];
const WEBHOOK: &[&str] = &[
    "send_resolved",
    "url",
    "url_file",
    "http_config",
    "max_alerts",
    "timeout",
];
const OWNER: &[&str] = &["send_resolved"];
const NTFY: &[&str] = &["send_resolved", "url", "topic", "token", "token_file"];
impl Channels {
    /// The channels of a configuration. `email` is used where it names no mail server; `owners` are the addresses of
    /// users; `base` is the folder that the files it names are relative to.
    ///
    /// # Errors
    /// At the first channel that cannot be used.
    pub fn build(
        config: &Config,
        email: &EmailConfig,
        owners: &Addresses,
        base: &Path,
    ) -> Result<Self, Mistake> {
        let empty = Node::empty();
        let templates = wording::shared(&config.templates, base);
        let global = config.global.as_ref().unwrap_or(&empty);
        let build = Build {
            global,
            email,
            owners,
            base,
            templates,
            mailer: None.into(),
        };
        build
            .global_settings()
            .map_err(|mistake| mistake.within("`global`"))?;
        let mut channels = BTreeMap::new();
        for receiver in &config.receivers {
            for integration in &receiver.integrations {
                let inside =
                    |mistake: Mistake| mistake.within(format!("receiver `{}`", receiver.name));
                channels.insert(
                    receiver.channel(integration),
                    build.way(integration).map_err(inside)?,
                );
            }
        }
        Ok(Self(channels))
    }

    /// One channel.
    pub fn get(&self, name: &str) -> Option<&Way> {
        self.0.get(name)
    }

    /// The names of all channels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The channel to ask when `failed` takes no message: one of another kind, of the same receiver if there is one. Owners
    /// are asked for nobody else: they hear of their own jobs.
    pub fn other(&self, failed: &str) -> Option<String> {
        let parts = |name: &str| {
            let mut parts = name.rsplitn(3, '/').skip(1).map(str::to_owned);
            (
                parts.next().unwrap_or_default(),
                parts.next().unwrap_or_default(),
            )
        };
        let (kind, receiver) = parts(failed);
        let rank = |name: &&str| {
            let (its_kind, its_receiver) = parts(name);
            (its_kind == kind, its_receiver != receiver)
        };
        let others = self
            .0
            .iter()
            .filter(|(name, way)| *name != failed && !matches!(way, Way::Owner(..)));
        others
            .map(|(name, _)| name.as_str())
            .min_by_key(rank)
            .map(str::to_owned)
    }
}

/// What channels are made from.
struct Build<'a> {
    global: &'a Node,
    email: &'a EmailConfig,
    owners: &'a Addresses,
    base: &'a Path,
    templates: Arc<MessageTemplates>,
    /// The server of `[email]` is one connection limit for all channels.
    mailer: std::cell::RefCell<Option<Arc<Mailer>>>,
}

impl Build<'_> {
    /// What has to be right in `global` even if no receiver uses it.
    fn global_settings(&self) -> Result<(), Mistake> {
        self.authorization(&Node::empty())?;
        for (key, node) in self.global.pairs()?.filter(|(_, node)| !node.is_null()) {
            match key {
                "slack_api_url" | "slack_app_url" => drop(address(node, node.text()?.to_owned())?),
                "smtp_require_tls" | "smtp_force_implicit_tls" => drop(node.boolean()?),
                "smtp_smarthost" => with_port(node, node.text()?)?,
                "http_config" | "smtp_tls_config" | "resolve_timeout" => {}
                _ => drop(node.text()?),
            }
        }
        let secrets = ["smtp_auth_password", "slack_api_url", "slack_app_token"];
        secrets
            .iter()
            .try_for_each(|key| one_of(self.global, key).map(drop))
    }

    fn way(&self, integration: &Integration) -> Result<Way, Mistake> {
        let settings = &integration.settings;
        let read = |known: &[&str], looks: &[&str]| -> Result<(), Mistake> {
            let all: Vec<&str> = known.iter().chain(looks).copied().collect();
            let fields = settings.fields(&all)?;
            for key in looks.iter().filter(|key| fields.get(key).is_some()) {
                tracing::warn!(
                    key,
                    line = settings.line(),
                    "takt's messages look alike; this setting is read over"
                );
            }
            Ok(())
        };
        match integration.kind {
            "slack" => {
                read(&[SLACK, SLACK_WORDS].concat(), SLACK_LOOKS)?;
                check_slack(settings)?;
                self.slack(settings).map(|slack| Way::Http(Box::new(slack)))
            }
            "email" => {
                read(&[EMAIL, EMAIL_WORDS].concat(), &[])?;
                self.mail(settings)
            }
            "owner" => {
                read(&[OWNER, EMAIL_WORDS].concat(), &[])?;
                let mailer = self.mailer(settings)?;
                let owner = Owner {
                    addresses: self.owners.clone(),
                    domain: mailer.domain().to_owned(),
                    wording: Wording::read(&self.templates, settings, EMAIL_WORDS),
                };
                Ok(Way::Owner(owner, mailer))
            }
            "webhook" => {
                read(WEBHOOK, &[])?;
                let url = self
                    .secret(settings, "url")?
                    .ok_or_else(|| settings.mistake("needs `url` or `url_file`"))?;
                let authorization = self.authorization(settings)?;
                let alerts_max = settings
                    .fields(WEBHOOK)?
                    .or_default("max_alerts", Node::number)?;
                Ok(Way::Http(Box::new(Webhook {
                    url: address(settings, url)?,
                    authorization,
                    alerts_max,
                })))
            }
            _ => {
                read(NTFY, &[])?;
                let fields = settings.fields(NTFY)?;
                let topic = fields.require("topic")?.text()?.to_owned();
                let url = fields.optional("url", |node| node.text().map(str::to_owned))?;
                let url = address(
                    settings,
                    url.unwrap_or_else(|| "https://ntfy.sh".to_owned()),
                )?;
                Ok(Way::Http(Box::new(Ntfy {
                    url,
                    topic,
                    token: self.secret(settings, "token")?,
                })))
            }
        }
    }

    fn slack(&self, settings: &Node) -> Result<Slack, Mistake> {
        let mut wording = Wording::read(&self.templates, settings, SLACK_WORDS);
        let channel = settings
            .pairs()?
            .find(|(key, _)| *key == "channel")
            .map(|(_, node)| node);
        if let Some(channel) =
            channel.filter(|node| node.text().is_ok_and(|text| text.contains("{{")))
        {
            wording.add("channel", channel);
        }
        self.slack_in_its_own_words(settings)
            .map(|slack| slack.worded(wording))
    }

    fn slack_in_its_own_words(&self, settings: &Node) -> Result<Slack, Mistake> {
        self.authorization(settings)?;
        // What the channel says itself goes before what all share.
        let webhook = self.secret(settings, "api_url")?;
        let token = match (self.secret(settings, "app_token")?, &webhook) {
            (None, None) => self.global("slack_app_token")?,
            (own, _) => own,
        };
        if let Some(token) = token {
            let fields = settings.fields(&[SLACK, SLACK_WORDS, SLACK_LOOKS].concat())?;
            let own = fields.optional("app_url", |node| node.text().map(str::to_owned))?;
            let base = own
                .or(self.global("slack_app_url")?)
                .unwrap_or_else(|| SLACK_API.to_owned());
            // Alertmanager's setting names the method as well.
            let base = base
                .trim_end_matches('/')
                .trim_end_matches("/chat.postMessage")
                .to_owned();
            let channel = fields.require("channel")?.text()?;
            return Ok(Slack::bot(&address(settings, base)?, &token, channel));
        }
        let url = match webhook {
            Some(url) => Some(url),
            None => self.global("slack_api_url")?,
        };
        let needs = "needs `app_token` (a bot) or `api_url` (a webhook), here or in `global`";
        let url = url.ok_or_else(|| settings.mistake(needs))?;
        Ok(Slack::webhook(&address(settings, url)?))
    }

    fn mail(&self, settings: &Node) -> Result<Way, Mistake> {
        let to = settings
            .fields(&[EMAIL, EMAIL_WORDS].concat())?
            .require("to")?
            .text()?
            .to_owned();
        let mailer = match self.smarthost(settings)? {
            Some(mailer) => Arc::new(mailer),
            None => self.mailer(settings)?,
        };
        mailer
            .check(&to)
            .map_err(|error| settings.mistake(error_chain(&error)))?;
        let mut wording = Wording::read(&self.templates, settings, EMAIL_WORDS);
        let empty = Node::empty();
        let headers = settings.get("headers").unwrap_or(&empty);
        check_headers(headers)?;
        for (name, node) in headers.pairs()? {
            match name.to_ascii_lowercase().as_str() {
                "subject" => wording.add("subject", node),
                // Who it is from and for is the envelope's business.
                "from" | "to" | "reply-to" => {}
                _ => tracing::warn!(
                    name,
                    line = node.line(),
                    "takt writes its own headers; this one is read over"
                ),
            }
        }
        Ok(Way::Mail(
            Email {
                to,
                domain: mailer.domain().to_owned(),
                wording,
            },
            mailer,
        ))
    }

    /// The server of `[email]`.
    fn mailer(&self, settings: &Node) -> Result<Arc<Mailer>, Mistake> {
        if !self.email.is_set() {
            return Err(settings
                .mistake("no mail server is known: give `smarthost`, or `[email]` in takt.toml"));
        }
        let mut known = self.mailer.borrow_mut();
        if known.is_none() {
            let mailer =
                Mailer::new(self.email).map_err(|error| settings.mistake(error_chain(&error)))?;
            *known = Some(Arc::new(mailer));
        }
        Ok(Arc::clone(known.as_ref().expect("it was set just now")))
    }

    /// A mail server that the Alertmanager configuration names itself.
    fn smarthost(&self, settings: &Node) -> Result<Option<Mailer>, Mistake> {
        let fields = settings.fields(&[EMAIL, EMAIL_WORDS].concat())?;
        let text = |key: &str, global: &str| match fields.or_default(key, Node::text)? {
            "" => Ok(self.global(global)?.filter(|text| !text.is_empty())),
            text => Ok(Some(text.to_owned())),
        };
        let Some(server) = text("smarthost", "smtp_smarthost")? else {
            return Ok(None);
        };
        with_port(
            fields
                .get("smarthost")
                .filter(|node| node.text() != Ok(""))
                .unwrap_or(settings),
            &server,
        )?;
        let requires = [
            fields.get("require_tls"),
            self.global
                .get("smtp_require_tls")
                .filter(|node| !node.is_null()),
        ];
        let requires = requires
            .into_iter()
            .flatten()
            .next()
            .map_or(Ok(true), Node::boolean)?;
        let tls = match (server.ends_with(":465"), requires) {
            (true, _) => TlsMode::Tls,
            (false, true) => TlsMode::StartTls,
            (false, false) => TlsMode::None,
        };
        let ca_file = fields.optional("tls_config", |node| {
            let known = [
                "ca_file",
                "cert_file",
                "key_file",
                "server_name",
                "insecure_skip_verify",
                "min_version",
            ];
            let tls = node.fields(&known)?;
            tls.optional("min_version", |version| match version.text()? {
                "TLS10" | "TLS11" | "TLS12" | "TLS13" => Ok(()),
                other => Err(version.mistake(format!("`{other}` is no version such as `TLS12`"))),
            })?;
            match tls.or_default("insecure_skip_verify", Node::boolean)? {
                true => Err(node
                    .mistake("takt always checks certificates; name the authority in `ca_file`")),
                false => tls.optional("ca_file", |file| {
                    file.text().map(|file| self.base.join(file))
                }),
            }
        })?;
        let config = EmailConfig {
            server,
            tls: Some(tls),
            from: text("from", "smtp_from")?.unwrap_or_default(),
            ca_file: ca_file.flatten(),
            ..EmailConfig::default()
        };
        let password = match self.secret(settings, "auth_password")? {
            Some(password) => Some(password),
            None => self.global("smtp_auth_password")?,
        };
        let login = text("auth_username", "smtp_auth_username")?.zip(password);
        Mailer::with_login(&config, login)
            .map(Some)
            .map_err(|error| settings.mistake(error_chain(&error)))
    }

    /// The value of `key`, or what is in the file that `key_file` names.
    fn secret(&self, settings: &Node, key: &str) -> Result<Option<String>, Mistake> {
        given(settings, key, self.base)
    }

    fn global(&self, key: &str) -> Result<Option<String>, Mistake> {
        given(self.global, key, self.base)
    }

    /// The header that `http_config` asks for, here or in `global`.
    fn authorization(&self, settings: &Node) -> Result<Option<String>, Mistake> {
        let http = [settings, self.global]
            .into_iter()
            .find_map(|node| node.get("http_config").filter(|n| !n.is_null()));
        http.map_or(Ok(None), |http| authorization(http, self.base))
    }
}

/// A mail server as Alertmanager's settings name it, with its port.
fn with_port(node: &Node, server: &str) -> Result<(), Mistake> {
    match server.rsplit_once(':') {
        _ if server.is_empty() => Ok(()),
        Some((_, port)) if !port.ends_with(']') => Ok(()),
        _ => Err(node.mistake("expected HOST:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            channels.other("ops/slack/0").as_deref(),
            Some("ops/email/0")
        );
        assert_eq!(
            channels.other("ops/email/1").as_deref(),
            Some("ops/slack/0")
        );
        assert_eq!(
            channels.other("dev/slack/0").as_deref(),
            Some("ops/email/0")
        );
        let owned =
            build("- name: ops\n  owner_configs: [{}]\n  webhook_configs: [{url: 'http://x'}]\n")
                .unwrap();
        assert_eq!(
            owned.other("ops/webhook/0"),
            None,
            "an owner of jobs does not hear of the site's channels"
        );
        let alone = build("- name: ops\n  webhook_configs: [{url: 'http://x'}]\n").unwrap();
        assert_eq!(alone.other("ops/webhook/0"), None);
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
                "slack_configs: [{api_url: 'hooks.slack.com', app_token_file: gone}]",
                "cannot read /nonexistent/gone",
            ),
            ("email_configs: [{to: nobody}]", "no e-mail address"),
            (
                "email_configs: [{to: a@b.c, smarthost: 'mail:25'}]",
                "from: expected an address",
            ),
            (
                "email_configs: [{to: a@b.c, smarthost: 'm:25', tls_config: {insecure_skip_verify: true}}]",
                "always checks",
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
}
