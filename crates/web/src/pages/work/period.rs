//! The period of a page: a month, or days.

use crate::frame::Visit;
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;
use takt_accounting::Period;
use takt_model::shown::shell_word;
use takt_questions::AboutQuestion;

/// The period of an address: `?month=2026-10`, or `?from=2026-10-01&to=2026-10-15`. Without one,
/// the current month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeriodPick {
    /// Month for the question.
    pub month: Option<String>,
    /// First day for the question.
    pub from: Option<String>,
    /// End of the period (exclusive) for the question.
    pub to: Option<String>,
    /// Addresses of the month before and after.
    before: Option<(String, String)>,
    after: Option<(String, String)>,
    /// Address of exactly this period.
    permanent: String,
    /// What is to be known of a period in which the job records begin.
    note: Option<String>,
}

impl PeriodPick {
    /// Reads the period of a visit. A wrong one is refused by the question.
    pub fn of(visit: &Visit) -> Self {
        let text = |name: &str| visit.get(name).map(str::to_owned);
        // Days in the address come before the current month.
        let days = text("from").is_some() || text("to").is_some();
        let current = visit
            .now
            .to_zoned(visit.zone().clone())
            .strftime("%Y-%m")
            .to_string();

        let month = text("month").or_else(|| (!days).then(|| current.clone()));
        // Only a month has one before and one after.
        let beside = |months: i32| {
            let first: Date = format!("{}-01", month.as_deref()?).parse().ok()?;
            let name = first
                .checked_add(months.months())
                .ok()?
                .strftime("%Y-%m")
                .to_string();
            let address = visit.address(&[("month", &name), ("from", ""), ("to", "")]);
            // A month that has not begun has no link.
            (name <= current).then_some((name, address))
        };

        let before = beside(-1);
        let after = beside(1);
        let permanent = match &month {
            Some(month) => visit.address(&[("month", month)]),
            None => visit.address(&[]),
        };
        let mut pick = Self {
            before,
            after,
            permanent,
            note: None,
            from: text("from").map(|text| day(&text)),
            to: text("to").map(|text| day(&text)),
            month,
        };
        pick.note = pick.unrecorded(visit);
        pick
    }

    /// The command, with this period as its options.
    pub fn command(&self, command: &str) -> String {
        let mut whole = command.to_owned();
        for (option, value) in self.query() {
            if !value.is_empty() {
                whole.push_str(&format!(" --{option} {}", shell_word(value)));
            }
        }
        whole
    }

    /// The period as the query of another page; absent parts are empty.
    pub fn query(&self) -> [(&'static str, &str); 3] {
        [
            ("month", self.month.as_deref().unwrap_or_default()),
            ("from", self.from.as_deref().unwrap_or_default()),
            ("to", self.to.as_deref().unwrap_or_default()),
        ]
    }

    /// The note of a period in which the job records begin. `None` if that is unknown: the question of
    /// the page says what is wrong.
    fn unrecorded(&self, visit: &Visit) -> Option<String> {
        // The question of the page reports an error, so none is reported here.
        let records_from = visit.ask(&AboutQuestion {}).ok()?.records_from?;
        let zone = visit.zone();
        let period = match (&self.month, &self.from, &self.to) {
            (Some(month), ..) => Period::month(month, zone, visit.now),
            (None, Some(from), Some(to)) => Period::span(from, to, zone, visit.now),
            _ => return None,
        };
        period.ok()?.unrecorded_note(records_from)
    }
}

/// The date of a time: the questions of a period take days.
fn day(text: &str) -> String {
    match text.split_once('T') {
        Some((date, _)) => date.to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_period_of_its_page() {
        let pick = |month: Option<&str>, from: Option<&str>, to: Option<&str>| PeriodPick {
            month: month.map(str::to_owned),
            from: from.map(str::to_owned),
            to: to.map(str::to_owned),
            before: None,
            after: None,
            permanent: String::new(),
            note: None,
        };
        let month = pick(Some("2026-10"), None, None);
        assert_eq!(
            month.command("takt capacity"),
            "takt capacity --month 2026-10"
        );

        let days = pick(None, Some("2026-10-01"), Some("2026-10-15"));
        assert_eq!(
            days.command("takt report waste"),
            "takt report waste --from 2026-10-01 --to 2026-10-15"
        );
        // The address is what somebody typed.
        assert_eq!(
            pick(Some("$(id)"), None, None).command("takt capacity"),
            "takt capacity --month '$(id)'"
        );
    }
}
