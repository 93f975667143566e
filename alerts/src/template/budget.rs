//! Limits of the templates of one rule in one evaluation: a rule with a query for each of thousands
//! of alerts must not delay other rules.

use super::{Context, Template};
use crate::ports::{Query, QueryError};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use takt_model::{Labels, Timestamp};

/// Time that the templates of a rule have in one evaluation, queries included. Templates without a
/// query have as much of their own, so that slow queries do not take their texts.
pub const TIME_MAX: Duration = Duration::from_secs(5);

/// Different queries that the templates of a rule may ask in one evaluation.
pub const QUERIES_MAX: usize = 10_000;

/// Bytes of text that the templates of a rule may write in one evaluation.
pub const TEXT_MAX: usize = 64 << 20;

/// Series that are kept to answer the same query again.
const KEPT_SERIES_MAX: usize = 100_000;

/// The text of an annotation beyond the limits.
pub const NOT_WRITTEN: &str = "<not written: the rule's templates reached their limit of time, \
                               queries or text>";

type Answer = Result<Vec<(Labels, f64)>, QueryError>;

/// What the templates of one rule have used in one evaluation.
pub struct TemplateBudget<'q> {
    query: Option<&'q dyn Query>,
    until: Option<Instant>,
    /// Answers in this evaluation, by the query.
    answers: RefCell<BTreeMap<String, Answer>>,
    kept_series: Cell<usize>,
    queries: Cell<usize>,
    text: Cell<usize>,
    /// Time of templates without and with a query.
    spent: [Cell<Duration>; 2],
}

impl<'q> TemplateBudget<'q> {
    /// A budget of which nothing is used. `query` answers the queries of templates.
    /// Beyond `until` no text with a query is written.
    pub fn new(query: Option<&'q dyn Query>, until: Option<Instant>) -> Self {
        Self {
            query,
            until,
            answers: RefCell::default(),
            kept_series: Cell::default(),
            queries: Cell::default(),
            text: Cell::default(),
            spent: Default::default(),
        }
    }

    /// The template's text, or the reason why it fails; `None` beyond the limits.
    pub fn expand<'s>(
        &'s self,
        template: &'s Template,
        context: &Context<'s>,
    ) -> Option<Cow<'s, str>> {
        if self.is_spent(template) {
            return None;
        }

        let begun = Instant::now();
        let context = Context {
            query: self.query.is_some().then_some(self as &dyn Query),
            ..*context
        };
        let text = template.expand(&context);
        // Slow queries use up only the time of templates that ask.
        let spent = &self.spent[usize::from(template.asks())];
        spent.set(spent.get() + begun.elapsed());

        let text = match text {
            // The limit is the reason here, whatever the template says about its failed query.
            Err(_) if self.is_spent(template) => return None,
            text => Template::or_explanation(text),
        };
        self.text.set(self.text.get() + text.len());
        Some(text)
    }

    fn is_spent(&self, template: &Template) -> bool {
        let asks = template.asks();
        self.spent[usize::from(asks)].get() >= TIME_MAX
            || self.text.get() >= TEXT_MAX
            || (asks && self.until.is_some_and(|until| until <= Instant::now()))
            || (asks && self.queries.get() >= QUERIES_MAX)
    }
}

impl Query for TemplateBudget<'_> {
    /// Asks the same query once: all templates of a rule ask at the same instant.
    fn instant(&self, expr: &str, at: Timestamp) -> Answer {
        if let Some(answer) = self.answers.borrow().get(expr) {
            return answer.clone();
        }

        let queries = self.queries.get() + 1;
        self.queries.set(queries);

        let Some(query) = self.query.filter(|_| queries <= QUERIES_MAX) else {
            return Err(QueryError(format!("more than {QUERIES_MAX} queries")));
        };
        let answer = query.instant(expr, at);

        // An empty answer counts as well, or a hundred thousand of them would be kept.
        let series = answer.as_ref().map_or(1, |series| series.len() + 1);
        let kept = self.kept_series.get() + series;
        if kept <= KEPT_SERIES_MAX {
            self.kept_series.set(kept);
            self.answers
                .borrow_mut()
                .insert(expr.to_owned(), answer.clone());
        }
        answer
    }

    fn check(&self, _expr: &str) -> Result<(), QueryError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Answers each query after `pause`, and counts.
    #[derive(Default)]
    struct Slow {
        asked: Cell<usize>,
        pause: Duration,
    }

    impl Query for Slow {
        fn instant(&self, _expr: &str, _at: Timestamp) -> Answer {
            self.asked.set(self.asked.get() + 1);
            thread::sleep(self.pause);
            Ok(vec![(Labels::new(), 7.0)])
        }

        fn check(&self, _expr: &str) -> Result<(), QueryError> {
            Ok(())
        }
    }

    #[test]
    fn no_query_is_asked_when_the_time_of_the_group_is_over() {
        let slow = Slow::default();
        let until = Some(Instant::now());
        let budget = TemplateBudget::new(Some(&slow), until);

        let nothing = Labels::new();
        let context = Context {
            labels: &nothing,
            external_labels: &nothing,
            external_url: "",
            value: 1.0,
            query: None,
            at: Timestamp(0),
        };

        let asking = Template::read("{{ query \"up\" | first | value }}").unwrap();
        assert_eq!(budget.expand(&asking, &context), None);
        assert_eq!(slow.asked.get(), 0);

        // The text without a query is written all the same.
        let plain = Template::read("{{ $value }}").unwrap();
        assert_eq!(budget.expand(&plain, &context).as_deref(), Some("1"));
    }

    fn texts(slow: &Slow, source: &str, alerts: usize) -> (usize, Vec<Option<String>>) {
        let template = Template::read(source).unwrap();

        let budget = TemplateBudget::new(Some(slow), None);
        let nothing = Labels::new();
        let texts = (0..alerts)
            .map(|n| {
                let labels = Labels::from_iter([("n", n.to_string())]);
                let context = Context {
                    labels: &labels,
                    external_labels: &nothing,
                    external_url: "",
                    value: 1.0,
                    query: None,
                    at: Timestamp(0),
                };
                budget.expand(&template, &context).map(Cow::into_owned)
            })
            .collect();
        (slow.asked.get(), texts)
    }

    #[test]
    fn the_same_query_is_asked_once() {
        let source = "{{ $labels.n }}: {{ query \"up\" | first | value }}";
        let (asked, texts) = texts(&Slow::default(), source, 1_000);
        assert_eq!(asked, 1);
        assert_eq!(texts[999].as_deref(), Some("999: 7"));
    }

    #[test]
    fn queries_end_at_the_limit_of_time_and_other_templates_go_on() {
        let slow = Slow {
            // Five seconds are enough for four answers.
            pause: TIME_MAX / 4,
            ..Slow::default()
        };
        let own = "{{ printf \"up{n=%q}\" $labels.n | query | first | value }}";
        let (asked, written) = texts(&slow, own, 50);
        assert_eq!(asked, 4);
        assert_eq!(written.iter().flatten().count(), 4);

        let (_, written) = texts(&slow, "{{ $labels.n }}", 50);
        assert_eq!(written.iter().flatten().count(), 50);
    }

    #[test]
    fn queries_and_text_are_limited() {
        let own = "{{ printf \"up{n=%q}\" $labels.n | query | first | value }}";
        let (asked, written) = texts(&Slow::default(), own, QUERIES_MAX + 5);
        assert_eq!(asked, QUERIES_MAX);
        assert_eq!(written.iter().flatten().count(), QUERIES_MAX);

        let long = format!("{{{{ $labels.n }}}}{}", "x".repeat(TEXT_MAX / 128));
        let (_, written) = texts(&Slow::default(), &long, 200);
        assert_eq!(written.iter().flatten().count(), 128);
    }
}
