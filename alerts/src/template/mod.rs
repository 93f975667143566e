//! Go's text templates, as far as alert rules and messages use them. Existing files work as in
//! Prometheus and Alertmanager: `{{ $labels.node }}: {{ $value | humanizePercentage }}`.
//!
//! Covered: text, `{{-` and `-}}`, comments, pipelines, parentheses, variables, `if`, `with`,
//! `range`, `break`, `continue`, `define`, `template`, `block`, methods, Go's built-in functions
//! but `call` and `js`, and those of Prometheus and of Alertmanager. Unknown functions and
//! variables are errors when the template is read; other mistakes are errors when it runs, as in
//! Go.

mod budget;
mod eval;
mod example;
mod functions;
mod members;
mod message;
mod number;
mod parse;
mod reads;
mod time;
mod value;

pub use budget::{NOT_WRITTEN, TemplateBudget};
pub use functions::Dialect;
pub use message::{MessageTemplate, MessageTemplates};
pub use number::print_scientific;

use crate::fingerprint::Fingerprint;
use crate::ports::Query;
use parse::{Defines, Part, parse};
use std::borrow::Cow;
use std::fmt;
use takt_model::{Labels, Timestamp};
use value::Value;

/// A template of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    source: String,
    body: Vec<Part>,
    defines: Defines,
    asks: bool,
}

/// Data for the template of a rule.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// `$labels`: the labels of the series that breached.
    pub labels: &'a Labels,
    /// `$externalLabels`: the labels of this server.
    pub external_labels: &'a Labels,
    /// `$externalURL`: URL of this server.
    pub external_url: &'a str,
    /// `$value`: the value of the expression.
    pub value: f64,
    /// Evaluates `query`; `None` if no store is available.
    pub query: Option<&'a dyn Query>,
    /// The instant of the evaluation.
    pub at: Timestamp,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("labels", self.labels)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

/// Data for functions besides their arguments.
struct World<'a> {
    external_url: &'a str,
    query: Option<&'a dyn Query>,
    at: Timestamp,
    /// Whether printed values are escaped for HTML, as in Go's `html/template`.
    is_html: bool,
    /// Returns the label of the message's route with this name; empty if it has none.
    route_label: Option<&'a RouteLabel<'a>>,
}

/// See [`World::route_label`].
type RouteLabel<'a> = dyn Fn(&str) -> Result<String, TemplateError> + 'a;

/// A template is invalid or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {text}")]
pub struct TemplateError {
    text: String,
    /// Whether it fails for any data: an unknown member, or a wrong number of arguments.
    is_mistake: bool,
}

impl TemplateError {
    /// A failure that may depend on the data.
    fn new(text: String) -> Self {
        let is_mistake = false;
        Self { text, is_mistake }
    }
}

/// Identity of the templates of a rule's annotations: their names and sources.
pub fn templates_hash(templates: &[(String, Template)]) -> Fingerprint {
    let sources = templates
        .iter()
        .map(|(name, template)| (name.as_str(), template.source.as_str()));
    Fingerprint::of(&sources.collect())
}

impl Template {
    /// Returns whether it writes the value as a percentage.
    pub fn shows_percentage(&self) -> bool {
        const FORMS: [&str; 4] = [
            "humanizePercentage $value",
            "humanizePercentage .Value",
            "$value | humanizePercentage",
            ".Value | humanizePercentage",
        ];
        FORMS.iter().any(|form| self.source.contains(form))
    }

    /// Reads a template of a rule. As in Prometheus, wrong types are found when it runs.
    ///
    /// # Errors
    /// If the template is invalid, or uses an unknown function or variable.
    pub fn read(source: &str) -> Result<Self, TemplateError> {
        let (body, defines) = parse(source, Dialect::Rules)?;
        Ok(Self {
            source: source.to_owned(),
            body,
            defines,
            asks: parse::calls(source, functions::QUERY),
        })
    }

    /// Whether the template asks the store: its cost grows with the number of alerts.
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// Runs the template for an alert without labels. Finds unknown fields and wrong types, but
    /// also fails for templates that need labels.
    ///
    /// # Errors
    /// If the template fails.
    pub fn rehearse(&self) -> Result<(), TemplateError> {
        let nothing = Labels::new();
        let at = Timestamp(0);
        let query = None;
        let context = Context {
            labels: &nothing,
            external_labels: &nothing,
            external_url: "",
            value: 0.0,
            query,
            at,
        };
        self.expand(&context).map(drop)
    }

    /// Runs all branches of the template, and queries with an invented sample, and returns an error that
    /// does not depend on the alert.
    ///
    /// # Errors
    /// If the template uses an unknown member, or a function with a wrong number of arguments.
    pub fn check(&self) -> Result<(), TemplateError> {
        let labels = example::labels("1");
        let query = example::OneSample;
        let context = Context {
            labels: &labels,
            external_labels: &labels,
            external_url: "http://takt.example",
            value: 1.0,
            query: Some(&query),
            at: Timestamp(0),
        };
        self.with_world(&context, |world, dot, known| {
            eval::rehearse(&self.body, &[&self.defines], world, dot, known)
        })
    }

    /// The source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text for one alert. A template without any `{{` is not copied.
    ///
    /// # Errors
    /// If a function gets an invalid argument.
    pub fn expand<'s>(&'s self, context: &Context<'s>) -> Result<Cow<'s, str>, TemplateError> {
        match self.body.as_slice() {
            [] => Ok(Cow::Borrowed("")),
            [Part::Text(text)] => Ok(Cow::Borrowed(text)),
            body => self.run(body, context).map(Cow::Owned),
        }
    }

    fn run<'s>(&'s self, body: &'s [Part], context: &Context<'s>) -> Result<String, TemplateError> {
        self.with_world(context, |world, dot, known| {
            eval::run(body, &[&self.defines], world, dot, known)
        })
    }

    fn with_world<'s, T>(
        &'s self,
        context: &Context<'s>,
        run: impl FnOnce(&World<'s>, &Value<'s>, Vec<(&'s str, Value<'s>)>) -> T,
    ) -> T {
        let labels = Cow::Borrowed(context.labels);
        let external = Cow::Borrowed(context.external_labels);
        let labels = Value::Labels(labels);
        let external = Value::Labels(external);
        let url = Value::text(context.external_url);
        let value = Value::Float(context.value);
        let dot = Value::fields(
            "the alert",
            vec![
                ("Labels", labels.clone()),
                ("ExternalLabels", external.clone()),
                ("ExternalURL", url.clone()),
                ("Value", value.clone()),
            ],
        );
        let known = vec![
            ("$", dot.clone()),
            ("$labels", labels),
            ("$externalLabels", external),
            ("$externalURL", url),
            ("$value", value),
        ];
        let world = World {
            external_url: context.external_url,
            query: context.query,
            at: context.at,
            is_html: false,
            route_label: None,
        };
        run(&world, &dot, known)
    }

    /// The text for one alert, or the error if the template fails: an alert with a broken template
    /// must still be sent.
    pub fn expand_or_explain<'s>(&'s self, context: &Context<'s>) -> Cow<'s, str> {
        Self::or_explanation(self.expand(context))
    }

    fn or_explanation(text: Result<Cow<'_, str>, TemplateError>) -> Cow<'_, str> {
        text.unwrap_or_else(|error| Cow::Owned(format!("<error expanding template: {error}>")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Memory;
    use std::time::Duration;

    fn expand(source: &str, value: f64) -> Result<String, TemplateError> {
        let labels = [
            ("node", "g01"),
            ("uuid", "GPU-1"),
            ("instance", "g01.lab.example:9855"),
        ]
        .into_iter()
        .collect();
        let external = [("cluster", "lab")].into_iter().collect();

        let store = Memory::default();
        store.load(Duration::from_secs(60), "up{node=\"g02\"}", "1");
        store.load(Duration::from_secs(60), "up{node=\"g01\"}", "0");
        let context = Context {
            labels: &labels,
            external_labels: &external,
            external_url: "http://takt/x",
            value,
            query: Some(&store),
            at: Timestamp::from_seconds(60),
        };
        Template::read(source)?
            .expand(&context)
            .map(Cow::into_owned)
    }

    #[test]
    fn gives_prometheus_results() {
        for (source, value, expected) in [
            ("plain", 0.0, "plain"),
            (
                "{{ $labels.node }} is at {{ $value }}",
                91.5,
                "g01 is at 91.5",
            ),
            (
                "{{ .Labels.node }}/{{ .Value }}/{{ .ExternalURL }}",
                1.0,
                "g01/1/http://takt/x",
            ),
            ("[{{ $labels.missing }}]", 0.0, "[]"),
            ("{{ $externalLabels.cluster }}", 0.0, "lab"),
            ("a {{- $labels.node -}} b", 0.0, "ag01b"),
            ("{{/* why */}}x", 0.0, "x"),
            (
                "{{ if gt $value 90.0 }}hot{{ else if gt $value 50.0 }}warm{{ else }}cold{{ end }}",
                60.0,
                "warm",
            ),
            (
                "{{ if and $labels.node (not $labels.missing) }}yes{{ end }}",
                0.0,
                "yes",
            ),
            (
                "{{ with $labels.node }}{{ . }}{{ else }}none{{ end }}",
                0.0,
                "g01",
            ),
            (
                "{{ range $name, $v := $labels }}{{ $name }}={{ $v }} {{ end }}",
                0.0,
                "instance=g01.lab.example:9855 node=g01 uuid=GPU-1 ",
            ),
            (
                "{{ $n := 1 }}{{ if true }}{{ $n = 2 }}{{ end }}{{ $n }}",
                0.0,
                "2",
            ),
            (
                "{{ printf \"%.2f %d %s %q %5.1f|%-4s|%04d %v %t%%\" $value 3 \"s\" \"q\" 2.25 \
                 \"ab\" 7 $value true }}",
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
            (
                "{{ printf \"%g|%e|%x|%z\" 1234567.0 12345.678 255 1 }}",
                0.0,
                "1.234567e+06|1.234568e+04|ff|%!z(int=1)",
            ),
            ("{{ printf \"a\" 1 }}", 0.0, "a%!(EXTRA int=1)"),
            ("{{ title \"GPU-lost x_y\" }}", 0.0, "GPU-Lost X_y"),
            (
                "{{ humanize 999.99 }} {{ humanize 0.0 }} {{ humanize1024 1.0 }} {{ \
                 humanizeDuration 59.9999 }}",
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
            (
                "{{ humanizeTimestamp $value }}",
                1_435_065_584.128,
                "2015-06-23 13:19:44.128 +0000 UTC",
            ),
            ("{{ \"12.5\" | humanize }}", 0.0, "12.5"),
            (
                "{{ $labels.node | toUpper }}{{ title \"gpu lost\" }}",
                0.0,
                "G01Gpu Lost",
            ),
            (
                "{{ reReplaceAll \"(.*):\\\\d+\" \"$1\" $labels.instance }}",
                0.0,
                "g01.lab.example",
            ),
            (
                "{{ reReplaceAll `(.*):\\d+` `$1` $labels.instance }}",
                0.0,
                "g01.lab.example",
            ),
            (
                "{{ stripPort $labels.instance }} {{ stripDomain $labels.instance }}",
                0.0,
                "g01.lab.example g01:9855",
            ),
            (
                "{{ match \"^g\" $labels.node }} {{ parseDuration \"1h\" }}",
                0.0,
                "true 3600",
            ),
            (
                "{{ len $labels }} {{ index $labels \"node\" }} {{ eq 1 2 1 }} {{ or \"\" \"b\" }}",
                0.0,
                "3 g01 true b",
            ),
            (
                "{{ print 1 2 \"x\" 3 }} {{ println \"e\" }}",
                0.0,
                "1 2x3 e\n",
            ),
            (
                "{{ urlquery \"a b&c\" }} {{ html \"<b>\" }}",
                0.0,
                "a+b%26c &lt;b&gt;",
            ),
            ("{{ ($value | printf \"%.0f\") }}", 3.2, "3"),
            ("{{ query \"up\" | first | value }}", 0.0, "0"),
            (
                "{{ range query \"up\" | sortByLabel \"node\" }}{{ .Labels.node }}={{ .Value }} {{ \
                 end }}",
                0.0,
                "g01=0 g02=1 ",
            ),
            (
                "{{ with query \"up == 1\" }}{{ . | first | label \"node\" }}{{ end }}",
                0.0,
                "g02",
            ),
            (
                "{{ with query \"up == 7\" }}x{{ else }}none{{ end }}",
                0.0,
                "none",
            ),
            (
                "{{ query \"up\" | len }}{{ (index (query \"up == 1\") 0).Value }}",
                0.0,
                "21",
            ),
            (
                "{{ define \"n\" }}<{{ .arg0 }}{{ .arg1 }}>{{ end }}{{ template \"n\" (args 1 \
                 \"b\") }}",
                0.0,
                "<1b>",
            ),
            (
                "{{ define \"n\" }}{{ . }}!{{ end }}{{ tmpl \"n\" $labels.node | toUpper }}",
                0.0,
                "G01!",
            ),
            ("{{ block \"n\" $value }}[{{ . }}]{{ end }}", 2.0, "[2]"),
            (
                "{{ range $i, $s := query \"up\" }}{{ if eq $i 1 }}{{ break }}{{ end }}{{ $i }}{{ \
                 end }}",
                0.0,
                "0",
            ),
            (
                "{{ range query \"up\" }}{{ if eq .Value 0.0 }}{{ continue }}{{ end }}{{ \
                 .Labels.node }}{{ end }}",
                0.0,
                "g02",
            ),
            (
                "{{ with $labels.missing }}a{{ else with $labels.node }}{{ . }}{{ end }}",
                0.0,
                "g01",
            ),
            (
                "{{ toTime $value }} {{ (toTime $value).Format \"Jan 2 15:04\" }}",
                90.0,
                "1970-01-01 00:01:30 +0000 UTC Jan 1 00:01",
            ),
            (
                "{{ (toTime now).Year }} {{ now }} {{ toDuration $value }} {{ (toDuration \
                 $value).Minutes }}",
                90.0,
                "1970 60 1m30s 1.5",
            ),
            (
                "{{ slice $labels.node 1 }} {{ pathPrefix }} {{ externalURL }}",
                0.0,
                "01 /x http://takt/x",
            ),
            (
                "{{ or $labels.missing (humanize 1500.0) }}{{ and \"\" (humanize $labels.node) }}",
                0.0,
                "1.5k",
            ),
            (
                "{{ graphLink \"up == 0\" }} {{ tableLink \"up\" }}",
                0.0,
                "/graph?g0.expr=up+%3D%3D+0&g0.tab=0 /graph?g0.expr=up&g0.tab=1",
            ),
        ] {
            assert_eq!(expand(source, value).as_deref(), Ok(expected), "{source}");
        }
    }

    /// Each line is what Go 1.25 prints.
    #[test]
    fn times_and_durations_have_the_methods_of_go() {
        let at = "(toTime 1774746123.5)"; // 2026-03-29 01:02:03.5 UTC
        let hour = "(toDuration 3600)";
        for (source, expected) in [
            ("AT.Add HOUR", "2026-03-29 02:02:03.5 +0000 UTC"),
            ("AT.Add 1000000000", "2026-03-29 01:02:04.5 +0000 UTC"),
            ("AT.AddDate 0 -1 0", "2026-03-01 01:02:03.5 +0000 UTC"),
            ("AT.AddDate 1 11 3", "2028-03-03 01:02:03.5 +0000 UTC"),
            ("AT.Equal (AT.Add 0)", "true"),
            ("AT.Compare (AT.Add 1)", "-1"),
            ("AT.Round HOUR", "2026-03-29 01:00:00 +0000 UTC"),
            ("AT.Round (toDuration 1)", "2026-03-29 01:02:04 +0000 UTC"),
            (
                "AT.Truncate (toDuration 60)",
                "2026-03-29 01:02:00 +0000 UTC",
            ),
            (
                "AT.Truncate (toDuration 604800)",
                "2026-03-23 00:00:00 +0000 UTC",
            ),
            ("AT.YearDay", "88"),
            ("AT.IsDST", "false"),
            ("AT.Location", "UTC"),
            ("AT.Location.String", "UTC"),
            ("AT.In AT.Location", "2026-03-29 01:02:03.5 +0000 UTC"),
            (
                "AT.GoString",
                "time.Date(2026, time.March, 29, 1, 2, 3, 500000000, time.UTC)",
            ),
            ("AT.Nanosecond", "500000000"),
            ("AT.UnixNano", "1774746123500000000"),
            ("AT.Month", "March"),
            ("AT.Month.String", "March"),
            ("printf \"%d %s\" AT.Month AT.Weekday", "3 Sunday"),
            ("eq AT.Month 3", "true"),
            ("(toDuration 5400).Truncate HOUR", "1h0m0s"),
            ("(toDuration -5400).Round HOUR", "-2h0m0s"),
            ("(toDuration -5400).Abs", "1h30m0s"),
            ("(toDuration 1).Microseconds", "1000000"),
            ("(toDuration 1).Nanoseconds", "1000000000"),
            ("gt HOUR 1", "true"),
        ] {
            let source = source.replace("AT", at).replace("HOUR", hour);
            let source = format!("{{{{ {source} }}}}");
            assert_eq!(expand(&source, 0.0).as_deref(), Ok(expected), "{source}");
            assert_eq!(Template::read(&source).unwrap().check(), Ok(()), "{source}");
        }
    }

    #[test]
    fn mistakes_are_found_in_all_branches_and_failures_of_the_data_are_none() {
        for (source, says) in [
            ("{{ .Lables.x }}", "no field `Lables` in the alert"),
            (
                "{{ if eq $labels.x \"y\" }}{{ $value.x }}{{ end }}",
                "no field `x` in a number",
            ),
            (
                "{{ if true }}{{ else }}{{ (toTime 1.0).Foo }}{{ end }}",
                "`Foo` in a time",
            ),
            (
                "{{ with $labels.nothing }}{{ .Foo }}{{ end }}",
                "`Foo` in text",
            ),
            (
                "{{ range query \"up\" }}{{ .Valu }}{{ end }}",
                "no field `Valu` in a sample",
            ),
            (
                "{{ (toTime 1.0).Zone }}",
                "`Zone` of a time has several results",
            ),
            ("{{ (toTime 1.0).Format }}", "no field `Format`"),
            ("{{ humanize }}", "`humanize` takes 1 argument(s), not 0"),
            ("{{ gt $value 80 }}", "cannot compare"),
            ("{{ template \"none\" . }}", "no template `none`"),
            (
                "{{ define \"a\" }}{{ .x.y }}{{ end }}{{ if false }}{{ template \"a\" 1 }}{{ end }}",
                "no field `x`",
            ),
        ] {
            let error = Template::read(source).unwrap().check().unwrap_err();
            assert!(error.to_string().contains(says), "{source}: {error}");
        }

        // These fail only for some alerts: their data decides.
        for source in [
            "{{ humanize $labels.node }}",
            "{{ $labels.missing | parseDuration }}",
            "{{ query \"nothing\" | first | value }}",
            "{{ (index (query \"up\") 7).Value }}",
            "{{ define \"a\" }}{{ if . }}{{ template \"a\" 0 }}{{ end }}{{ end }}{{ template \"a\" 1 }}",
            "{{ $n := 1 }}{{ if false }}{{ $n = \"x\" }}{{ end }}{{ if gt $n 0 }}y{{ end }}",
        ] {
            assert_eq!(Template::read(source).unwrap().check(), Ok(()), "{source}");
        }
    }

    /// As in Go: what there is not is found when the template is read.
    #[test]
    fn refuses_unknown_names() {
        for (source, says) in [
            (
                "{{ humanise $value }}",
                "no function `humanise`; did you mean `humanize`?",
            ),
            ("{{ join \",\" $value }}", "no function `join`"),
            ("{{ $value", "`{{` is not closed"),
            ("{{ if $value }}", "`if` has no `end`"),
            ("{{ end }}", "`end` without a beginning"),
            ("{{ $nobody }}", "no variable `$nobody`"),
            (
                "{{ define \"x\" }}{{ $value }}{{ end }}",
                "no variable `$value`",
            ),
            (
                "{{ if true }}{{ define \"x\" }}{{ end }}{{ end }}",
                "`define` inside",
            ),
            ("{{ define x }}{{ end }}", "`define` needs a name in quotes"),
            ("{{ break }}", "`break` outside of `range`"),
            ("{{ }}", "an empty `{{ }}`"),
        ] {
            let message = Template::read(source).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(says), "{source} gave {message}");
        }
    }

    /// Blocks with names were not counted, and a hundred thousand of them overflowed the stack.
    #[test]
    fn blocks_in_each_other_have_a_bound() {
        for head in [
            "{{ block \"x\" . }}",
            "{{ if true }}",
            "{{ with 1 }}",
            "{{ range . }}",
        ] {
            let nested = |depth: usize| head.repeat(depth) + &"{{ end }}".repeat(depth);
            assert!(Template::read(&nested(40)).is_ok(), "{head}");

            let message = Template::read(&nested(100_000)).unwrap_err().to_string();
            assert_eq!(message, "template: more than 40 blocks in each other");
        }
    }

    #[test]
    fn failures_of_delivery_are_reported() {
        for (source, says) in [
            ("{{ .Lables.x }}", "no field `Lables` in the alert"),
            ("{{ $value.x }}", "no field `x` in a number"),
            (
                "{{ gt $value 80 }}",
                "cannot compare a number with a fraction and a whole number",
            ),
            ("{{ humanize $labels }}", "labels are not a number"),
            ("{{ humanize $labels.node }}", "`g01` is not a number"),
            ("{{ match \"(\" \"x\" }}", "is not a regular expression"),
            ("{{ 1 2 }}", "cannot be called"),
            ("{{ query \"up{x\" }}", "query \"up{x\": cannot read"),
            (
                "{{ query \"up == 7\" | first }}",
                "first() called on vector with no elements",
            ),
            ("{{ template \"x\" }}", "no template `x`"),
            (
                "{{ define \"x\" }}{{ template \"x\" }}{{ end }}{{ template \"x\" }}",
                "templates in each other",
            ),
        ] {
            let message = expand(source, 1.0).unwrap_err().to_string();
            assert!(message.contains(says), "{source} gave {message}");
        }
    }

    #[test]
    fn a_failing_template_still_says_something() {
        let template =
            Template::read("{{ if $labels.node }}{{ humanize $labels.node }}{{ end }}").unwrap();
        let labels = [("node", "g01")].into_iter().collect();
        let query = None;
        let at = Timestamp(0);
        let context = Context {
            labels: &labels,
            external_labels: &labels,
            external_url: "",
            value: 1.0,
            query,
            at,
        };
        let text = template.expand_or_explain(&context);
        assert!(text.starts_with("<error expanding template: "), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(source in "(\\{\\{|\\}\\}|-|[ .$|()\"`a-z0-9:=,%]|if |end|range |else |define |template |break|query |first ){0,40}") {
            let _ = Template::read(&source).map(|template| template.rehearse());
        }
    }
}
