//! `slack_configs` and the global `slack_*` settings, as Alertmanager reads them.

use super::{FollowUps, SLACK_API, Slack};
use crate::notify::channels::ChannelContext;
use crate::notify::http::{HttpChannel, HttpOptions};
use crate::notify::http_config::address;
use crate::notify::looks::check_slack;
use crate::notify::{Notifier, NotifierKind, Wording, no_split};
use crate::yaml::{Fields, Mistake, Node};

/// `slack_configs`.
pub(in crate::notify) const KIND: NotifierKind = NotifierKind {
    name: "slack",
    config_key: "slack_configs",
    sends_resolved: false,
    example: "{api_url: 'http://{server}/services/T/B/s'}",
    split: no_split,
    build,
};

const KEYS: &[&str] = &[
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

/// Settings that are templates.
const WORDING_KEYS: &[&str] = &[
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

/// The looks of Alertmanager's attachments. Takt's messages consist of blocks, so these settings
/// are checked and ignored.
const IGNORED_KEYS: &[&str] = &[
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

fn build(settings: &Node, context: &ChannelContext<'_>) -> Result<Box<dyn Notifier>, Mistake> {
    let fields = settings.fields(&[KEYS, WORDING_KEYS, IGNORED_KEYS].concat())?;
    for key in IGNORED_KEYS.iter().filter(|key| fields.get(key).is_some()) {
        tracing::warn!(
            key,
            line = settings.line(),
            "ignoring this setting: it describes Slack's attachments, which Takt does not use"
        );
    }
    check_slack(settings)?;
    let mut wording = Wording::read(&context.templates, settings, WORDING_KEYS);
    let has_template = |node: &&Node| node.text().is_ok_and(|text| text.contains("{{"));
    if let Some(channel) = fields.get("channel").filter(has_template) {
        wording.add("channel", channel);
    }
    let mut options = context.http_options(settings)?;
    let slack = slack(settings, &fields, context, &mut options)?.worded(wording);
    let sender = context.http_sender(settings, options)?;
    Ok(Box::new(HttpChannel::new(slack, sender)))
}

/// Method of the Web API, which Alertmanager's addresses of bots include.
const METHOD: &str = "/chat.postMessage";

/// The bot or the webhook. The receiver's own settings come before the global ones.
fn slack(
    settings: &Node,
    fields: &Fields<'_>,
    context: &ChannelContext<'_>,
    options: &mut HttpOptions,
) -> Result<Slack, Mistake> {
    let webhook = context.secret(settings, "api_url")?;
    let own_token = context.secret(settings, "app_token")?;
    if webhook.is_some() && own_token.is_some() {
        return Err(settings.mistake("at most one of `api_url` and `app_token` can be given"));
    }
    let updates = fields.optional("update_message", Node::boolean)?;
    let own_http = settings.get("http_config").filter(|http| !http.is_null());
    let authorized = own_http.filter(|_| options.authorization.is_some());
    let token = match own_token {
        None if webhook.is_none() && authorized.is_none() => {
            context.global_secret("slack_app_token")?
        }
        own => own,
    };
    if let Some(token) = token {
        if let Some(http) = authorized {
            return Err(http.mistake(
                "a bot authenticates with `app_token`; remove the authorization of `http_config`",
            ));
        }
        let own = fields.optional("app_url", |node| node.text().map(str::to_owned))?;
        let base = match own {
            Some(url) => url,
            None => context
                .global_text("slack_app_url")?
                .unwrap_or_else(|| SLACK_API.to_owned()),
        };
        options.authorization = None;
        return bot(settings, fields, &base, &token, updates);
    }
    let url = match webhook {
        Some(url) => Some(url),
        None => context.global_secret("slack_api_url")?,
    };
    let needs = "needs `app_token` (a bot) or `api_url` (a webhook), here or in `global`";
    let url = url.ok_or_else(|| settings.mistake(needs))?;
    // A bot as it was configured before `app_token`: its token is in `http_config`.
    let token = options
        .authorization
        .as_ref()
        .and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned));
    if let Some(token) = token.filter(|_| url.trim_end_matches('/').ends_with(METHOD)) {
        options.authorization = None;
        return bot(settings, fields, &url, &token, updates);
    }
    if updates == Some(true) {
        return Err(settings.mistake("`update_message` needs a bot (`app_token`)"));
    }
    Ok(Slack::webhook(&address(settings, url)?))
}

/// The bot with that token. `url` may include the method.
fn bot(
    settings: &Node,
    fields: &Fields<'_>,
    url: &str,
    token: &str,
    updates: Option<bool>,
) -> Result<Slack, Mistake> {
    let base = url.trim_end_matches('/').trim_end_matches(METHOD);
    let channel = fields.require("channel")?.text()?;
    let follow_ups = match updates {
        None => FollowUps::Thread,
        Some(true) => FollowUps::Update,
        Some(false) => FollowUps::Separate,
    };
    let bot = Slack::bot(&address(settings, base.to_owned())?, token, channel);
    Ok(bot.with_follow_ups(follow_ups))
}
