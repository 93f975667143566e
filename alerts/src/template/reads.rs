//! Which labels the text of a template may depend on, without running it.

use super::Template;
use super::parse::{Base, Operand, Part, Pipeline};

/// The function that brings samples, and so any label of them, into a text.
const QUERY: &str = "query";

impl Template {
    /// Returns whether the text depends only on labels that `is_shown` accepts, whatever the alert. A template that queries
    /// samples, or that has all labels at once, depends on all.
    pub fn reads_only(&self, is_shown: &dyn Fn(&str) -> bool) -> bool {
        let reads = Reads { is_shown };
        // A definition may be called from anywhere, so each counts, with the value that it gets.
        let mut defined = self.defines.values();
        reads.parts(&self.body, Dot::Alert) && defined.all(|body| reads.parts(body, Dot::Value))
    }
}

/// What `.` stands for.
#[derive(Clone, Copy, PartialEq)]
enum Dot {
    /// The alert with all its labels.
    Alert,
    /// The value of a pipeline, which was checked.
    Value,
}

struct Reads<'a> {
    is_shown: &'a dyn Fn(&str) -> bool,
}

impl Reads<'_> {
    fn parts(&self, parts: &[Part], dot: Dot) -> bool {
        parts.iter().all(|part| self.part(part, dot))
    }

    fn part(&self, part: &Part, dot: Dot) -> bool {
        match part {
            Part::Text(_) | Part::Break | Part::Continue => true,
            Part::Print(pipeline) => self.pipeline(pipeline, dot),
            Part::If { arms, otherwise } => {
                let arm = |(pipeline, body): &(Pipeline, Vec<Part>)| {
                    self.pipeline(pipeline, dot) && self.parts(body, dot)
                };
                arms.iter().all(arm) && self.parts(otherwise, dot)
            }
            Part::With {
                pipeline,
                body,
                otherwise,
            }
            | Part::Range {
                pipeline,
                body,
                otherwise,
                ..
            } => {
                self.pipeline(pipeline, dot)
                    && self.parts(body, Dot::Value)
                    && self.parts(otherwise, dot)
            }
            Part::Call { pipeline, .. } => pipeline
                .as_ref()
                .is_none_or(|pipeline| self.pipeline(pipeline, dot)),
        }
    }

    fn pipeline(&self, pipeline: &Pipeline, dot: Dot) -> bool {
        let mut operands = pipeline.commands.iter().flat_map(|one| &one.operands);
        operands.all(|operand| self.operand(operand, dot))
    }

    fn operand(&self, operand: &Operand, dot: Dot) -> bool {
        let fields: Vec<&str> = operand.fields.iter().map(String::as_str).collect();
        match &operand.base {
            // Other functions see only their arguments, which are operands of their own.
            Base::Function(function) => function.name() != QUERY,
            Base::Group(pipeline) => self.pipeline(pipeline, dot),
            Base::Dot if dot == Dot::Value => fields.is_empty(),
            Base::Dot => self.field(&fields),
            Base::Variable(name) => match name.as_str() {
                "$" => self.field(&fields),
                "$labels" => self.label(&fields),
                // The pipeline that has set the variable was checked there.
                _ => true,
            },
            Base::Text(_) | Base::Int(_) | Base::Float(_) | Base::Bool(_) | Base::Nil => true,
        }
    }

    /// A field of the alert.
    fn field(&self, fields: &[&str]) -> bool {
        match fields {
            ["Labels", rest @ ..] => self.label(rest),
            ["Value" | "ExternalURL" | "ExternalLabels", ..] => true,
            _ => false,
        }
    }

    fn label(&self, fields: &[&str]) -> bool {
        fields.first().is_some_and(|name| (self.is_shown)(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_if_nothing_hidden_can_be_in_it() {
        for (source, expected) in [
            ("plain", true),
            ("{{ $labels.node }}: {{ $value | humanize }}", true),
            ("{{ .Labels.node }} {{ .Value }} {{ $externalURL }}", true),
            ("{{ $labels.user }}", false),
            ("{{ .Labels.user }}", false),
            ("{{ $.Labels.user }}", false),
            ("{{ if $labels.user }}x{{ end }}", false),
            ("{{ if $labels.node }}{{ $labels.user }}{{ end }}", false),
            (
                "{{ if eq 1 2 }}x{{ else }}{{ $labels.user }}{{ end }}",
                false,
            ),
            ("{{ with $labels.node }}{{ . }}{{ end }}", true),
            ("{{ with $labels.user }}{{ . }}{{ end }}", false),
            ("{{ with $labels.node }}{{ $.Labels.user }}{{ end }}", false),
            ("{{ range $labels }}{{ . }}{{ end }}", false),
            ("{{ $labels }}", false),
            ("{{ . }}", false),
            ("{{ $ }}", false),
            ("{{ index $labels \"user\" }}", false),
            ("{{ $x := $labels.user }}{{ $x }}", false),
            ("{{ $x := $labels }}{{ $x.user }}", false),
            ("{{ $x := $labels.node }}{{ $x }}", true),
            ("{{ printf \"%s\" (toUpper $labels.user) }}", false),
            ("{{ printf \"%s\" (toUpper $labels.node) }}", true),
            ("{{ query \"up\" | first | value }}", false),
            ("{{ range query \"up\" }}{{ .Labels.user }}{{ end }}", false),
            ("{{ define \"a\" }}{{ $labels.user }}{{ end }}x", false),
            (
                "{{ define \"a\" }}{{ . }}{{ end }}{{ template \"a\" . }}",
                false,
            ),
            (
                "{{ define \"a\" }}{{ . }}{{ end }}{{ template \"a\" $labels.node }}",
                true,
            ),
        ] {
            let Ok(template) = Template::read(source) else {
                continue;
            };
            let reads_only = template.reads_only(&|name| name == "node");
            assert_eq!(reads_only, expected, "{source}");
        }
    }
}
