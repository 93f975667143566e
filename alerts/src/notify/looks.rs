//! Alertmanager's settings of the looks of a message. Takt ignores them, but checks them: a file
//! that Alertmanager refuses is refused here too.

use crate::yaml::{Mistake, Node};
use std::collections::BTreeSet;

/// Checks the settings of Slack's attachments.
///
/// # Errors
/// At the first mistake.
pub(super) fn check_slack(settings: &Node) -> Result<(), Mistake> {
    let inside = |key: &str, node: &Node| match key {
        "fields" => node.list()?.iter().try_for_each(field),
        "actions" => node.list()?.iter().try_for_each(action),
        "short_fields" | "link_names" | "update_message" => node.boolean().map(drop),
        "mrkdwn_in" => node.texts().map(drop),
        "http_config" => Ok(()),
        _ => node.text().map(drop),
    };
    // A null is no setting: `color:` is as good as no line.
    settings
        .pairs()?
        .filter(|(_, node)| !node.is_null())
        .try_for_each(|(key, node)| {
            inside(key, node).map_err(|mistake| mistake.within(format!("`{key}`")))
        })
}

/// Checks a mail's headers: each value is a text, and no name occurs twice in any case.
///
/// # Errors
/// At the first mistake.
pub(super) fn check_headers(headers: &Node) -> Result<(), Mistake> {
    let mut seen = BTreeSet::new();

    for (name, node) in headers.pairs()? {
        node.text()?;
        // Names of mail headers have no case.
        if !seen.insert(name.to_ascii_lowercase()) {
            return Err(node.mistake(format!("there are two headers `{name}`")));
        }
    }
    Ok(())
}

fn field(node: &Node) -> Result<(), Mistake> {
    node.fields(&["title", "value", "short"])?
        .optional("short", Node::boolean)?;
    needs(node, &["title", "value"])
}

fn action(node: &Node) -> Result<(), Mistake> {
    let fields = node.fields(&["type", "text", "url", "style", "name", "value", "confirm"])?;
    needs(node, &["type", "text"])?;
    // A button needs a link or a name.
    if needs(node, &["url"]).is_err() {
        needs(node, &["name"])?;
    }
    fields.optional("confirm", |confirm| {
        confirm.fields(&["text", "title", "ok_text", "dismiss_text"])?;
        needs(confirm, &["text"])
    })?;
    Ok(())
}

fn needs(node: &Node, keys: &[&str]) -> Result<(), Mistake> {
    keys.iter()
        .try_for_each(|key| match node.get(key).map_or(Ok(""), Node::text)? {
            "" => Err(node.mistake(format!("`{key}` is missing"))),
            _ => Ok(()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_settings_are_still_checked() {
        for (text, said) in [
            (
                "{fields: [{title: a, value: b, short: true}], actions: [{type: button, text: x, \
                 url: y}]}",
                "",
            ),
            (
                "{actions: [{type: button, text: x, name: y, confirm: {text: sure?}}], mrkdwn_in: \
                 [text], color: }",
                "",
            ),
            ("{fields: [{title: a}]}", "`fields`: `value` is missing"),
            ("{fields: [{value: a}]}", "`title` is missing"),
            (
                "{fields: [{title: a, value: b, short: x}]}",
                "neither true nor false",
            ),
            ("{fields: {}}", "expected a list"),
            ("{actions: [{type: a, text: b}]}", "`name` is missing"),
            (
                "{actions: [{type: a, text: b, name: c, confirm: {}}]}",
                "`text` is missing",
            ),
            ("{short_fields: x}", "neither true nor false"),
            ("{mrkdwn_in: x}", "expected a list"),
            ("{title: [x]}", "expected text"),
        ] {
            let found =
                check_slack(&Node::read(text).unwrap()).map_err(|mistake| mistake.to_string());
            assert_eq!(found.is_ok(), said.is_empty(), "{text}: {found:?}");
            assert!(found.err().unwrap_or_default().contains(said), "{text}");
        }
        for (text, is_good) in [
            ("{Subject: a, X: 1}", true),
            ("{Subject: a, subject: b}", false),
            ("{X: [1]}", false),
            ("x", false),
        ] {
            assert_eq!(
                check_headers(&Node::read(text).unwrap()).is_ok(),
                is_good,
                "{text}"
            );
        }
    }
}
