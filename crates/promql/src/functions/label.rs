//! Functions that write labels and leave the values alone.

use crate::column::{Column, merge};
use crate::error::Error;
use crate::syntax::TextLiteral;
use takt_model::METRIC_NAME;
use takt_model::go_regex::expand_within;
use takt_model::whole;

/// Longest label that a function writes, in bytes.
const LABEL_BYTES_MAX: usize = 64 << 10;

/// Most that one call writes into all labels together, in bytes: labels are no samples, which the budget of a query counts.
const WRITTEN_BYTES_MAX: usize = 32 << 20;

/// `label_replace(v, dst, replacement, src, regex)`: where the regex fits all of `src`, `dst` becomes the replacement.
pub(crate) fn replace(
    mut columns: Vec<Column>,
    texts: &[&TextLiteral],
) -> Result<Vec<Column>, Error> {
    let [target, replacement, source, pattern] = *texts else {
        return Err(Error::Execution(
            "label_replace() takes four strings".to_owned(),
        ));
    };

    let regex = Some(&pattern.text)
        .filter(|_| pattern.is_utf8())
        .and_then(|pattern| whole(pattern).ok())
        .ok_or_else(|| {
            let pattern = &pattern.text;
            let text = format!("invalid regular expression in label_replace(): {pattern}");
            Error::Execution(text)
        })?;

    let target = name(target, "label_replace", "destination")?;
    let mut written = 0;
    for column in &mut columns {
        // A missing label counts as empty, which a regex such as `.*` fits.
        if let Some(groups) = regex.captures(column.labels.get(&source.text).unwrap_or_default()) {
            let value = expand_within(&groups, &replacement.text, LABEL_BYTES_MAX);
            let value = value.ok_or_else(|| too_long("label_replace"))?;
            count(value.len(), &mut written, "label_replace")?;
            column.write(target, &value);
        }
    }
    merge(columns)
}

/// `label_join(v, dst, separator, src…)`
pub(crate) fn join(mut columns: Vec<Column>, texts: &[&TextLiteral]) -> Result<Vec<Column>, Error> {
    let [target, separator, sources @ ..] = texts else {
        return Err(Error::Execution(
            "label_join() takes at least two strings".to_owned(),
        ));
    };

    let sources = sources
        .iter()
        .map(|source| name(source, "label_join", "source"))
        .collect::<Result<Vec<_>, _>>()?;
    let target = name(target, "label_join", "destination")?;
    let separator = &separator.text;
    let mut written = 0;

    for column in &mut columns {
        let values: Vec<&str> = sources
            .iter()
            .map(|name| column.labels.get(name).unwrap_or_default())
            .collect();

        let separators = separator.len() * values.len().saturating_sub(1);
        // Counted before the text is made.
        let bytes = values.iter().map(|value| value.len()).sum::<usize>() + separators;
        if bytes > LABEL_BYTES_MAX {
            return Err(too_long("label_join"));
        }

        count(bytes, &mut written, "label_join")?;
        column.write(target, &values.join(separator));
    }
    merge(columns)
}

/// Adds to the bytes that a call has written.
fn count(bytes: usize, written: &mut usize, function: &str) -> Result<(), Error> {
    *written += bytes;
    if *written > WRITTEN_BYTES_MAX {
        return Err(Error::Execution(format!(
            "{function}() writes more than {} MiB of labels",
            WRITTEN_BYTES_MAX >> 20
        )));
    }
    Ok(())
}

fn too_long(function: &str) -> Error {
    Error::Execution(format!(
        "{function}() writes a label of more than {} KiB",
        LABEL_BYTES_MAX >> 10
    ))
}

impl Column {
    fn write(&mut self, label: &str, value: &str) {
        self.labels.set(label, value);
        // A name that was written is one that stays.
        self.nameless &= label != METRIC_NAME;
    }
}

/// A text as a label's name; fails where it cannot be one.
fn name<'a>(literal: &'a TextLiteral, function: &str, role: &str) -> Result<&'a str, Error> {
    if !literal.is_label_name() {
        let name = &literal.text;
        let text = format!("invalid {role} label name in {function}(): {name}");
        return Err(Error::Execution(text));
    }
    Ok(&literal.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::Labels;

    fn replace(columns: Vec<Column>, texts: &[&str]) -> Result<Vec<Column>, Error> {
        let texts = Vec::from_iter(texts.iter().map(|text| TextLiteral::from(*text)));
        super::replace(columns, &Vec::from_iter(&texts))
    }

    fn join(columns: Vec<Column>, texts: &[&str]) -> Result<Vec<Column>, Error> {
        let texts = Vec::from_iter(texts.iter().map(|text| TextLiteral::from(*text)));
        super::join(columns, &Vec::from_iter(&texts))
    }

    fn columns(count: usize, value: &str) -> Vec<Column> {
        let column = |number: usize| {
            let labels = Labels::from_iter([("a", value), ("n", &number.to_string())]);
            Column {
                labels,
                ..Column::default()
            }
        };
        (0..count).map(column).collect()
    }

    #[test]
    fn labels_do_not_grow_beyond_memory() {
        let long = "x".repeat(50_000);
        for repeated in ["$0$0", &"$0".repeat(1_000_000)] {
            let error = replace(columns(1, &long), &["b", repeated, "a", ".*"]).unwrap_err();
            assert!(error.to_string().contains("64 KiB"), "{error}");
        }
        let many: Vec<&str> = ["b", ""].into_iter().chain(["a"; 1000]).collect();
        assert!(join(columns(1, &long), &many).is_err());
        assert!(join(columns(1, &long), &["b", "", "a"]).is_ok());

        // Each label of 50,000 bytes is allowed, but a thousand of them are 50 MB.
        let error = replace(columns(1000, &long), &["b", "$0", "a", ".*"]).unwrap_err();
        assert!(error.to_string().contains("32 MiB"), "{error}");
        assert!(replace(columns(100, &long), &["b", "$0", "a", ".*"]).is_ok());
    }
}
