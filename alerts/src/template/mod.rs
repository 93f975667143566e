//! The part of Go's text templates that alert rules use, so that existing rule files mean here what they mean in
//! Prometheus: `{{ $labels.node }}: {{ $value | humanizePercentage }}`.
//!
//! Covered: text, `{{-` and `-}}`, comments, pipelines, parentheses, variables, `if`, `with`, `range` over labels, the
//! built-in functions of Go and those of Prometheus that ask nobody. What asks the database (`query`, `first`, …) or
//! defines templates is refused by name when the rule is loaded: a message that says "no value" at night is worse.

mod eval;
mod functions;
mod number;
mod parse;

use std::borrow::Cow;
use takt_model::Labels;

/// A template that was read and tried once.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    source: String,
    body: Vec<parse::Part>,
}

/// What a template may say something about.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// `$labels`: the labels of the series that breached.
    pub labels: &'a Labels,
    /// `$externalLabels`: the labels of this server.
    pub external_labels: &'a Labels,
    /// `$externalURL`: where people reach this server.
    pub external_url: &'a str,
    /// `$value`: the value of the expression.
    pub value: f64,
}

/// Why a template cannot be used, or gave no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {0}")]
pub struct TemplateError(pub(crate) String);

impl Template {
    /// Reads a template, and tries it on an alert without labels as Prometheus does: so wrong field names and argument
    /// types are found when the rule is loaded.
    ///
    /// # Errors
    /// Where it is not a template, uses what is not covered, or fails on trial.
    pub fn read(source: &str) -> Result<Self, TemplateError> {
        let template = Self { source: source.to_owned(), body: parse::parse(source)? };
        let nothing = Labels::new();
        template.expand(&Context { labels: &nothing, external_labels: &nothing, external_url: "", value: 0.0 })?;
        Ok(template)
    }

    /// The text as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text for one alert. A template without any `{{` is not copied.
    ///
    /// # Errors
    /// Where a function is given what it cannot take.
    pub fn expand(&self, context: &Context<'_>) -> Result<Cow<'_, str>, TemplateError> {
        match self.body.as_slice() {
            [] => Ok(Cow::Borrowed("")),
            [parse::Part::Text(text)] => Ok(Cow::Borrowed(text)),
            body => eval::run(body, context).map(Cow::Owned),
        }
    }

    /// The text for one alert; where the template fails, a text that says so, since an alert whose words are broken
    /// must still reach somebody.
    pub fn expand_or_explain(&self, context: &Context<'_>) -> Cow<'_, str> {
        self.expand(context).unwrap_or_else(|error| Cow::Owned(format!("<error expanding template: {error}>")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(source: &str, value: f64) -> Result<String, TemplateError> {
        let labels = [("node", "g01"), ("uuid", "GPU-1"), ("instance", "g01.lab.example:9855")].into_iter().collect();
        let external = [("cluster", "lab")].into_iter().collect();
        let context = Context { labels: &labels, external_labels: &external, external_url: "http://takt/x", value };
        Ok(Template::read(source)?.expand(&context)?.into_owned())
    }

    #[test]
    fn says_what_prometheus_says() {
        for (source, value, expected) in [
            ("plain", 0.0, "plain"),
            ("{{ $labels.node }} is at {{ $value }}", 91.5, "g01 is at 91.5"),
            ("{{ .Labels.node }}/{{ .Value }}/{{ .ExternalURL }}", 1.0, "g01/1/http://takt/x"),
            ("[{{ $labels.missing }}]", 0.0, "[]"),
            ("{{ $externalLabels.cluster }}", 0.0, "lab"),
            ("a {{- $labels.node -}} b", 0.0, "ag01b"),
            ("{{/* why */}}x", 0.0, "x"),
            ("{{ if gt $value 90.0 }}hot{{ else if gt $value 50.0 }}warm{{ else }}cold{{ end }}", 60.0, "warm"),
            ("{{ if and $labels.node (not $labels.missing) }}yes{{ end }}", 0.0, "yes"),
            ("{{ with $labels.node }}{{ . }}{{ else }}none{{ end }}", 0.0, "g01"),
            (
                "{{ range $name, $v := $labels }}{{ $name }}={{ $v }} {{ end }}",
                0.0,
                "instance=g01.lab.example:9855 node=g01 uuid=GPU-1 ",
            ),
            ("{{ $n := 1 }}{{ if true }}{{ $n = 2 }}{{ end }}{{ $n }}", 0.0, "2"),
            (
                "{{ printf \"%.2f %d %s %q %5.1f|%-4s|%04d %v %t%%\" $value 3 \"s\" \"q\" 2.25 \"ab\" 7 $value true }}",
                1.5,
                "1.50 3 s \"q\"   2.2|ab  |0007 1.5 true%",
            ),
            ("{{ $value | printf \"%.1f\" }}", 2.0, "2.0"),
            ("{{ printf \"%d\" $value }}", 2.0, "%!d(float64=2)"),
            ("{{ printf \"%s %s\" \"a\" }}", 2.0, "a %!s(MISSING)"),
            ("{{ $value }}", 1e6, "1e+06"),
            ("{{ $value }}", 123_456.0, "123456"),
            ("{{ $value }}", 1e21, "1e+21"),
            ("{{ $value }}", 123_456_789.0, "1.23456789e+08"),
            ("{{ printf \"%g|%e|%x|%z\" 1234567.0 12345.678 255 1 }}", 0.0, "1.234567e+06|1.234568e+04|ff|%!z(int=1)"),
            ("{{ printf \"a\" 1 }}", 0.0, "a%!(EXTRA int=1)"),
            ("{{ title \"GPU-lost x_y\" }}", 0.0, "GPU-Lost X_y"),
            (
                "{{ humanize 999.99 }} {{ humanize 0.0 }} {{ humanize1024 1.0 }} {{ humanizeDuration 59.9999 }}",
                0.0,
                "1000 0 1 60s",
            ),
            ("{{ $value }}", 0.00001, "1e-05"),
            ("{{ $value }}", f64::NAN, "NaN"),
            ("{{ $value }}", f64::INFINITY, "+Inf"),
            ("{{ humanize $value }}", 1_234_567.0, "1.235M"),
            ("{{ humanize $value }}", 0.001_2, "1.2m"),
            ("{{ humanize1024 $value }}", 34_190_917_632.0, "31.84Gi"),
            ("{{ humanizeDuration $value }}", 90_061.0, "1d 1h 1m 1s"),
            ("{{ humanizeDuration $value }}", -3_725.0, "-1h 2m 5s"),
            ("{{ humanizeDuration $value }}", 0.25, "250ms"),
            ("{{ humanizePercentage $value }}", 0.913_42, "91.34%"),
            ("{{ humanizeTimestamp $value }}", 1_435_065_584.128, "2015-06-23 13:19:44.128 +0000 UTC"),
            ("{{ \"12.5\" | humanize }}", 0.0, "12.5"),
            ("{{ $labels.node | toUpper }}{{ title \"gpu lost\" }}", 0.0, "G01Gpu Lost"),
            ("{{ reReplaceAll \"(.*):\\\\d+\" \"$1\" $labels.instance }}", 0.0, "g01.lab.example"),
            ("{{ reReplaceAll `(.*):\\d+` `$1` $labels.instance }}", 0.0, "g01.lab.example"),
            ("{{ stripPort $labels.instance }} {{ stripDomain $labels.instance }}", 0.0, "g01.lab.example g01:9855"),
            ("{{ match \"^g\" $labels.node }} {{ parseDuration \"1h\" }}", 0.0, "true 3600"),
            ("{{ len $labels }} {{ index $labels \"node\" }} {{ eq 1 2 1 }} {{ or \"\" \"b\" }}", 0.0, "3 g01 true b"),
            ("{{ print 1 2 \"x\" 3 }} {{ println \"e\" }}", 0.0, "1 2x3 e\n"),
            ("{{ urlquery \"a b&c\" }} {{ html \"<b>\" }}", 0.0, "a+b%26c &lt;b&gt;"),
            ("{{ ($value | printf \"%.0f\") }}", 3.2, "3"),
        ] {
            assert_eq!(expand(source, value).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_do_by_name() {
        for (source, says) in [
            ("{{ query \"up\" }}", "function `query` asks the database"),
            ("{{ range query \"up\" }}{{ end }}", "function `query`"),
            ("{{ define \"x\" }}{{ end }}", "`define` is not covered"),
            ("{{ template \"x\" }}", "`template` is not covered"),
            ("{{ humanise $value }}", "no function `humanise`; did you mean `humanize`?"),
            ("{{ $value", "`{{` is not closed"),
            ("{{ if $value }}", "`if` has no `end`"),
            ("{{ end }}", "`end` without a beginning"),
            ("{{ $nobody }}", "no variable `$nobody`"),
            ("{{ .Lables.x }}", "no field `Lables`"),
            ("{{ $value.x }}", "no field `x` in a number"),
            ("{{ gt $value 80 }}", "cannot compare a number with a fraction and a whole number"),
            ("{{ humanize $labels }}", "labels are no number"),
            ("{{ match \"(\" \"x\" }}", "is not a regular expression"),
            ("{{ 1 2 }}", "cannot be called"),
            ("{{ }}", "an empty `{{ }}`"),
        ] {
            let message = Template::read(source).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(says), "{source} gave {message}");
        }
    }

    #[test]
    fn a_failing_template_still_says_something() {
        let template = Template::read("{{ if $labels.node }}{{ humanize $labels.node }}{{ end }}").unwrap();
        let labels = [("node", "g01")].into_iter().collect();
        let context = Context { labels: &labels, external_labels: &labels, external_url: "", value: 1.0 };
        let text = template.expand_or_explain(&context);
        assert!(text.starts_with("<error expanding template: "), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(source in "(\\{\\{|\\}\\}|-|[ .$|()\"`a-z0-9:=,%]|if |end|range |else ){0,40}") {
            let _ = Template::read(&source);
        }
    }
}
