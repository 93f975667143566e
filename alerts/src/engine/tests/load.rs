//! A measurement of ten thousand firing alerts.

use super::*;
use crate::ports::QueryError;

/// Returns ten thousand series for each expression that begins with `hot`, and no series for
/// others.
struct TenThousand(Vec<(Labels, f64)>);

impl Query for TenThousand {
    fn instant(&self, expr: &str, _: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        Ok(if expr.starts_with("hot") {
            self.0.clone()
        } else {
            Vec::new()
        })
    }

    fn check(&self, _: &str) -> Result<(), QueryError> {
        Ok(())
    }
}

/// `cargo test --release -p takt-alerts -- --ignored --nocapture ten_thousand`
#[test]
#[ignore = "measures, and says how long it took"]
fn ten_thousand_firing_alerts() {
    // 58 further rules that find nothing: their queries are part of the cost.
    let mut rules = RULES.to_owned();
    for n in 0..58 {
        rules += &format!("  - alert: R{n}\n    expr: quiet{n} > 1\n");
    }

    let mut engine = engine();
    let file = RuleFile::read("r.yml", &rules).unwrap();
    let config = Config::read("am.yml", ROUTES).unwrap();
    engine.reload(&[file], &[], XidTable::shipped().clone(), config, at(0));

    let series = (0..10_000).map(|n| {
        let text = format!("hot{{cluster=\"c\",node=\"g{n}\",instance=\"g{n}:9855\",job=\"takt\",uuid=\"GPU-{n}\"}}");
        (parse_series(&text), 95.0)
    });
    let query = TenThousand(series.collect());
    let sink = Memory::default();

    // The first cycle begins ten thousand alerts, the others see them again.
    for cycle in 0..5 {
        let now = at(100 + cycle * 15);
        let begun = std::time::Instant::now();
        let (batch, report) = engine.evaluate(&query, &sink, &none_down, now);
        let evaluated = begun.elapsed();
        let flushed = engine.flush(&query, now);
        eprintln!(
            "cycle {cycle}: {evaluated:?} to evaluate, {:?} in all, {} transitions, {} messages",
            begun.elapsed(),
            batch.transitions.len(),
            flushed.outbox.len()
        );
        assert_eq!(report.groups, 1);
        assert_eq!(report.failures.len(), 0);
    }
}
