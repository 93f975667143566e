//! Warnings about nearly or fully used budgets: one message to the budget's owner for each level
//! and period.

use super::ReportsConfig;
use takt_accounting::{BudgetPeriod, BudgetUse};
use takt_mail::Mail;
use takt_model::UnixTime;
use takt_model::words::{amount, month, percent};
use takt_store::SentReport;

/// Name of the Slack channel in the log of sent reports. The channel gets every warning.
pub const SLACK: &str = "slack";

/// A due warning and its recipient.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning<'b> {
    /// The budget.
    pub budget: &'b BudgetUse,
    /// Recipient: an address, or [`SLACK`].
    pub to: String,
    /// Period of the budget: `2026-10`, or `2026`.
    pub period: String,
    /// Reached level in percent: 50, 80 or 100.
    level: i64,
}

/// Returns the warnings that were not sent yet. `month` is the current one, `2026-10`. Omits levels
/// below one that was sent.
pub fn warnings<'b>(
    budgets: &'b [BudgetUse],
    sent: &[SentReport],
    config: &ReportsConfig,
    month: &str,
) -> Vec<Warning<'b>> {
    let mut due = Vec::new();
    for budget in budgets {
        // Below the first level there is nothing to warn of.
        let Some(level) = budget.warning.map(|share| (share * 100.0).round() as i64) else {
            continue;
        };

        let period = match budget.period {
            BudgetPeriod::Month => month.to_owned(),
            BudgetPeriod::Year => month.chars().take(4).collect(),
        };
        // The levels are a part of the record, so a budget that falls and rises again sends nothing twice.
        for to in recipients(budget, level, config) {
            let warning = Warning {
                budget,
                to,
                period: period.clone(),
                level,
            };
            let was_sent = |sent: &SentReport| {
                sent.month == warning.period
                    && sent.kind == warning.kind()
                    && sent.subject == budget.name
                    && sent.recipient == warning.to
                    && sent.edition >= level
            };
            if !sent.iter().any(was_sent) {
                due.push(warning);
            }
        }
    }
    due
}

/// Returns the recipients: the owner of the budget, also the operators at 100 %, and always the
/// Slack channel, if configured.
fn recipients(budget: &BudgetUse, level: i64, config: &ReportsConfig) -> Vec<String> {
    let mut to: Vec<String> = if budget.is_account {
        config
            .account_owners
            .get(&budget.name)
            .cloned()
            .unwrap_or_default()
    } else {
        config.address_of(&budget.name).into_iter().collect()
    };
    if level >= 100 {
        to.extend(config.operators.iter().cloned());
    }

    to.extend(config.slack_webhook_file.as_ref().map(|_| SLACK.to_owned()));
    // An operator may also own the account.
    to.sort();
    to.dedup();
    to
}

impl Warning<'_> {
    fn kind(&self) -> String {
        let of = if self.budget.is_account {
            "account"
        } else {
            "user"
        };
        format!("budget of {of} in {}", self.budget.unit)
    }

    /// Returns the record of the sent warning.
    pub fn sent(&self, cluster: &str, now: UnixTime) -> SentReport {
        SentReport {
            cluster: cluster.to_owned(),
            month: self.period.clone(),
            kind: self.kind(),
            subject: self.budget.name.clone(),
            recipient: self.to.clone(),
            edition: self.level,
            digest: String::new(),
            sent_at: now,
        }
    }

    /// Returns the sentence: `account physics has used 84 % of its 200 GPU-hours for October 2026`.
    fn sentence(&self) -> String {
        let BudgetUse {
            name,
            is_account,
            unit,
            limit,
            used,
            ..
        } = self.budget;
        let whose = if *is_account { "account" } else { "user" };
        let share = percent(used / limit);
        let limit = amount(*limit);
        let period = month(&self.period);
        format!("{whose} {name} has used {share} of its {limit} {unit} for {period}")
    }

    /// Returns the warning as a mail.
    pub fn mail(&self, cluster: &str) -> Mail {
        let BudgetUse {
            unit, limit, used, ..
        } = self.budget;
        let rest = match limit - used {
            left if left > 0.0 => format!("{} {unit} are left.", amount(left)),
            over => format!("That is {} {unit} above the budget.", amount(-over)),
        };

        let rest = match &self.budget.outlook {
            Some(outlook) => format!("{rest} {outlook}"),
            None => rest,
        };
        let text = format!(
            "On {cluster}, {}: {} {unit}.\n{rest}\n\nTakt sends this warning once at 50, 80 and 100 %. Takt does not stop jobs.\n",
            self.sentence(),
            amount(*used),
        );
        Mail {
            to: self.to.clone(),
            subject: format!(
                "{cluster}: {} % of the budget of {} reached",
                self.level, self.budget.name
            ),
            text,
            html: None,
            message_id: None,
            thread: None,
            headers: Vec::new(),
            attachments: Vec::new(),
        }
    }

    /// Returns the warning as a line for a channel. Escapes `&`, `<` and `>`, which are markup in
    /// Slack.
    pub fn in_short(&self, cluster: &str) -> String {
        format!("*{cluster}*: {}", self.sentence())
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(name: &str, is_account: bool, used: f64) -> BudgetUse {
        BudgetUse {
            name: name.into(),
            is_account,
            period: BudgetPeriod::Month,
            unit: "GPU-hours".into(),
            limit: 200.0,
            used,
            warning: [1.0, 0.8, 0.5]
                .into_iter()
                .find(|share| used >= 200.0 * share),
            run_out: None,
            outlook: None,
        }
    }

    fn config() -> ReportsConfig {
        ReportsConfig {
            domain: Some("lab.example".into()),
            account_owners: [("physics".to_owned(), vec!["pi@lab.example".to_owned()])].into(),
            operators: vec!["root@lab.example".into()],
            opt_out: vec!["cid".into()],
            ..ReportsConfig::default()
        }
    }

    #[test]

    fn each_level_is_sent_once_to_its_recipients() {
        let config = config();
        let mut sent = Vec::new();
        let mut due_to = |budgets: &[BudgetUse], month: &str| {
            let due = warnings(budgets, &sent, &config, month);
            let words: Vec<String> = due
                .iter()
                .map(|due| format!("{} {}", due.level, due.to))
                .collect();
            sent.extend(due.iter().map(|due| due.sent("lab", UnixTime(0))));
            words
        };

        let physics = |used| {
            [
                budget("physics", true, used),
                budget("cid", false, 300.0),
                budget("ann", false, 10.0),
            ]
        };
        // The user is above the own budget, and has opted out.
        assert_eq!(
            due_to(&physics(90.0), "2026-10"),
            ["100 root@lab.example"],
            "cid wants no mail, operators do"
        );

        assert_eq!(due_to(&physics(100.0), "2026-10"), ["50 pi@lab.example"]);
        assert_eq!(due_to(&physics(150.0), "2026-10"), [""; 0]);
        assert_eq!(
            due_to(&physics(201.0), "2026-10"),
            ["100 pi@lab.example", "100 root@lab.example"]
        );
        // A credit lowered the usage. Reaching 80 % again sends no second warning.
        assert_eq!(due_to(&physics(170.0), "2026-10"), [""; 0]);
        // A month later, the levels count again.
        assert_eq!(
            due_to(&physics(170.0), "2026-11"),
            ["80 pi@lab.example", "100 root@lab.example"]
        );
    }

    #[test]
    fn a_warning_has_its_text() {
        let config = ReportsConfig {
            slack_webhook_file: Some("hook".into()),
            ..config()
        };

        let budgets = [budget("<physics> & co", true, 168.0)];
        let due = warnings(&budgets, &[], &config, "2026-10");
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].to.as_str(), SLACK);
        assert_eq!(
            due[0].in_short("lab"),
            "*lab*: account &lt;physics&gt; &amp; co has used 84 % of its 200 GPU-hours for October 2026"
        );

        let mail = due[0].mail("lab");
        assert!(
            mail.text.contains("32.0 GPU-hours are left."),
            "{}",
            mail.text
        );
        assert_eq!(
            mail.subject,
            "lab: 80 % of the budget of <physics> & co reached"
        );
    }
}
