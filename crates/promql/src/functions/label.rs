//! Functions that write labels and leave the values alone.

use crate::column::{Column, merge};
use crate::error::Error;
use takt_model::METRIC_NAME;
use takt_model::go_regex::expand;
use takt_model::whole;

/// `label_replace(v, dst, replacement, src, regex)`: where the regex fits all of `src`, `dst` becomes the replacement.
pub(crate) fn replace(mut columns: Vec<Column>, texts: &[&str]) -> Result<Vec<Column>, Error> {
    let [target, replacement, source, pattern] = *texts else {
        return Err(Error::Execution(
            "label_replace() takes four strings".to_owned(),
        ));
    };
    let regex = whole(pattern).map_err(|_| {
        Error::Execution(format!(
            "invalid regular expression in label_replace(): {pattern}"
        ))
    })?;
    writable(target, "label_replace", "destination")?;
    for column in &mut columns {
        if let Some(groups) = regex.captures(column.labels.get(source).unwrap_or_default()) {
            let value = expand(&groups, replacement);
            column.write(target, &value);
        }
    }
    merge(columns)
}

/// `label_join(v, dst, separator, src…)`
pub(crate) fn join(mut columns: Vec<Column>, texts: &[&str]) -> Result<Vec<Column>, Error> {
    let [target, separator, sources @ ..] = texts else {
        return Err(Error::Execution(
            "label_join() takes at least two strings".to_owned(),
        ));
    };
    for source in sources {
        writable(source, "label_join", "source")?;
    }
    writable(target, "label_join", "destination")?;
    for column in &mut columns {
        let values: Vec<&str> = sources
            .iter()
            .map(|name| column.labels.get(name).unwrap_or_default())
            .collect();
        let value = values.join(separator);
        column.write(target, &value);
    }
    merge(columns)
}

impl Column {
    fn write(&mut self, label: &str, value: &str) {
        self.labels.set(label, value);
        // A name that was written is one that stays.
        self.nameless &= label != METRIC_NAME;
    }
}

/// Fails where the name is empty; since Prometheus 3 any other text may name a label.
fn writable(name: &str, function: &str, role: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::Execution(format!(
            "invalid {role} label name in {function}(): {name}"
        )));
    }
    Ok(())
}
