//! The words of one line of a script.

use super::{Pattern, Process};
use std::vec::IntoIter;

/// The words of a line that are still to be read.
pub(super) struct Words<'a>(pub IntoIter<&'a str>);

impl<'a> Words<'a> {
    pub fn at_end(&self) -> bool {
        self.0.len() == 0
    }

    pub fn end(&mut self) -> Result<(), String> {
        self.0
            .next()
            .map_or(Ok(()), |word| Err(format!("`{word}` is one word too many")))
    }

    pub fn text(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    pub fn rest(&mut self, what: &str) -> Result<String, String> {
        let words: Vec<_> = self.0.by_ref().collect();
        if words.is_empty() {
            Err(format!("{what} is missing"))
        } else {
            Ok(words.join(" "))
        }
    }

    pub fn number<T>(&mut self, what: &str) -> Result<T, String>
    where
        T: TryFrom<u64>,
    {
        let word = self.text(what)?;
        let parsed = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => word.parse(),
        };
        parsed
            .ok()
            .and_then(|n| T::try_from(n).ok())
            .ok_or_else(|| format!("`{word}` is not {what}"))
    }

    pub fn decimal(&mut self, what: &str) -> Result<f64, String> {
        let word = self.text(what)?;
        word.parse()
            .ok()
            .filter(|v: &f64| v.is_finite() && *v >= 0.0)
            .ok_or_else(|| format!("`{word}` is not {what}"))
    }

    pub fn percent(&mut self) -> Result<u32, String> {
        match self.number("percent")? {
            percent @ 0..=100 => Ok(percent),
            percent => Err(format!("{percent} is more than 100 percent")),
        }
    }

    pub fn choice(&mut self, words: &[&str]) -> Result<usize, String> {
        let what = words.join(" or ");
        let word = self.text(&what)?;
        words
            .iter()
            .position(|w| *w == word)
            .ok_or_else(|| format!("`{word}` is not {what}"))
    }

    pub fn size(&mut self) -> Result<u64, String> {
        let word = self.text("a size")?;
        parse_size(word).ok_or_else(|| format!("`{word}` is not a size"))
    }

    pub fn pattern(&mut self) -> Result<Pattern, String> {
        let word = self.text("a function")?;
        if word == "*" || word.starts_with("nvml") {
            Ok(Pattern(word.to_owned()))
        } else {
            Err(format!("`{word}` is no NVML function"))
        }
    }

    pub fn fault<T>(&mut self, what: &str) -> Result<(Pattern, T), String>
    where
        T: TryFrom<u64>,
    {
        Ok((self.pattern()?, self.number(what)?))
    }

    pub fn process(&mut self) -> Result<Process, String> {
        let pid = self.number("a process id")?;
        let memory = match self.text("a size")? {
            "unknown" => None,
            word => Some(parse_size(word).ok_or_else(|| format!("`{word}` is not a size"))?),
        };
        let kind = self.choice(&["compute", "graphics", "both"])?;
        let sm_percent = if self.at_end() {
            None
        } else {
            Some(self.percent()?)
        };
        Ok(Process {
            pid,
            memory,
            compute: kind != 1,
            graphics: kind != 0,
            sm_percent,
            gpu_instance: None,
        })
    }
}

fn parse_size(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &word[digits.len()..] {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
