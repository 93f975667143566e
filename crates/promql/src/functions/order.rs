//! Order within an instant vector. A range query's result is in the order of labels, whatever these say.

use crate::column::Column;
use crate::syntax::TextLiteral;
use std::cmp::Ordering;
use std::iter::Peekable;
use std::str::Chars;

/// `sort`, `sort_desc`: NaN last both ways. Equal elements keep their order.
pub(crate) fn sort_by_value(columns: &mut [Column], descending: bool) {
    let value = |column: &Column| column.values.first().copied().flatten().unwrap_or(f64::NAN);
    columns.sort_by(|a, b| {
        let a = value(a);
        let b = value(b);
        match a.partial_cmp(&b) {
            Some(order) if descending => order.reverse(),
            Some(order) => order,
            None => a.is_nan().cmp(&b.is_nan()),
        }
    });
}

/// `sort_by_label`, `sort_by_label_desc`: numbers within the labels count as numbers; equal ones go by all labels.
pub(crate) fn sort_by_label(columns: &mut [Column], names: &[&TextLiteral], descending: bool) {
    let value =
        |column: &Column, name: &str| column.labels.get(name).unwrap_or_default().to_owned();
    columns.sort_by(|a, b| {
        let order = names
            .iter()
            .map(|name| natural(&value(a, &name.text), &value(b, &name.text)))
            .fold(Ordering::Equal, Ordering::then)
            .then_with(|| a.labels.cmp(&b.labels));
        if descending { order.reverse() } else { order }
    });
}

/// Order in which `node2` comes before `node10` (`facette/natsort`).
fn natural(a: &str, b: &str) -> Ordering {
    let mut a = a.chars().peekable();
    let mut b = b.chars().peekable();
    loop {
        let (Some(x), Some(y)) = (a.peek().copied(), b.peek().copied()) else {
            return a.peek().is_some().cmp(&b.peek().is_some());
        };

        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let x = digits(&mut a);
            let y = digits(&mut b);
            // Without leading zeros, the longer number is the larger one; no parsing can overflow.
            x.len().cmp(&y.len()).then_with(|| x.cmp(&y))
        } else {
            a.next();
            b.next();
            x.cmp(&y)
        };

        if order != Ordering::Equal {
            return order;
        }
    }
}

/// A run of digits without its leading zeros.
fn digits(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut run = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        if digit != '0' || !run.is_empty() {
            run.push(digit);
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["g10", "g9", "g2a", "g02", "g", ""];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["", "g", "g02", "g2a", "g9", "g10"]);
    }
}
