//! The templates of reports in HTML. Names of users, accounts and jobs are texts of others.

use minijinja::{AutoEscape, Environment, Value, escape_formatter};
use takt_model::shown::printable_lines;

/// Returns an environment without templates. It escapes texts for HTML, and replaces the characters in them that would
/// command a terminal or make a name look like another.
pub(crate) fn of_pages() -> Environment<'static> {
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);

    templates.set_formatter(|out, state, value| match value.as_str() {
        // Marks of safe strings come from the templates themselves: charts, not names.
        Some(text) if !value.is_safe() => {
            let shown = Value::from(printable_lines(text));
            escape_formatter(out, state, &shown)
        }
        _ => escape_formatter(out, state, value),
    });
    templates
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;

    #[test]
    fn names_command_no_terminal_and_no_browser() {
        // Markup, a colour of a terminal, a sign that turns the direction of text, and a line break.
        let name = "<b>ann\u{1b}[31m\u{202e}\n";
        let page = of_pages().render_str("{{ name }}", context! { name });
        assert_eq!(page.unwrap(), "&lt;b&gt;ann\u{fffd}[31m\u{fffd}\n");

        let safe = Value::from_safe_string("<svg>".to_owned());
        let page = of_pages().render_str("{{ safe }}", context! { safe });
        assert_eq!(page.unwrap(), "<svg>");
    }
}
