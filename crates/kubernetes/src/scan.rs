//! Splits a stream of JSON into objects: one after the other, one a line, or the items of a list.
//!
//! A parser that stops at the first mistake would lose the rest of a file. So this scanner only counts brackets and texts, in memory of
//! one object, and each object is parsed by itself. An object that is cut off, as by a `kubectl` that was killed, ends where the next
//! one begins: at a `{` at the beginning of a line, where JSON allows none.

use std::io::{self, BufRead};
use std::mem;
use takt_model::shown::printable;

/// Maximum length of one object in bytes. etcd stores at most 1.5 MB, which indentation makes longer.
pub(crate) const MAX_OBJECT_BYTES: usize = 16 << 20;

/// Maximum nesting of an object, as in serde_json.
const MAX_NESTING: usize = 128;

/// Length of the quoted beginning of a text, in bytes. Later parts of an object can have secrets of users.
const BEGINNING_BYTES: usize = 80;

/// Maximum length of a key or a kind that decides how a list is read.
const MAX_WORD_BYTES: usize = 64;

/// A part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamPart {
    /// The text of an object.
    Object {
        /// Line on which it begins, from 1.
        line: u64,
        text: Vec<u8>,
        /// Kind of the objects of a typed list: `Pod` in a `PodList`.
        kind: Option<String>,
    },
    /// Something that is no object.
    Broken {
        line: u64,
        reason: String,
        /// Its beginning, without control characters.
        text: String,
        /// Whether it is a text between objects.
        is_text: bool,
    },
}

/// Reads the parts of a stream.
pub(crate) struct ObjectScanner<R> {
    input: R,
    scan: ScanState,
}

impl<R: BufRead> ObjectScanner<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            scan: ScanState::default(),
        }
    }

    /// Returns the number of the current line, from 1.
    pub fn line(&self) -> u64 {
        self.scan.newlines + 1
    }

    /// Returns the next part, or `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<StreamPart>> {
        loop {
            let bytes = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            if bytes.is_empty() {
                return Ok(self.scan.finish());
            }

            let (used, found) = self.scan.feed(bytes);
            self.input.consume(used);
            if found.is_some() {
                return Ok(found);
            }
        }
    }
}

/// State of the scanner between two bytes.
struct ScanState {
    place: ScanPlace,
    newlines: u64,
    begins_line: bool,
    in_text: bool,
    is_escaped: bool,
    /// Last byte that is neither white space nor in a text; `v` behind a value.
    last: u8,
    /// Open brackets, at most [`MAX_NESTING`] of them; `deeper` counts the others.
    open: Vec<u8>,
    deeper: u64,
    part: ListPart,
    /// Last text at the top level of an object, which may be a list: a key, or the value of `kind`.
    word: Vec<u8>,
    key: Vec<u8>,
    kind: Option<String>,
    /// Line on which the outermost object begins.
    outer_line: u64,
    /// Whether bytes are kept in `text`.
    keeps: bool,
    text: Vec<u8>,
    text_line: u64,
    unusable: Option<&'static str>,
}

impl Default for ScanState {
    fn default() -> Self {
        Self {
            place: ScanPlace::Between,
            newlines: 0,
            begins_line: true,
            in_text: false,
            is_escaped: false,
            last: b'{',
            open: Vec::new(),
            deeper: 0,
            part: ListPart::Whole,
            word: Vec::new(),
            key: Vec::new(),
            kind: None,
            outer_line: 1,
            keeps: false,
            text: Vec::new(),
            text_line: 1,
            unusable: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ScanPlace {
    Between,
    Inside,
    /// Behind something broken, up to a line that begins with a bracket.
    Lost {
        line: u64,
        reason: &'static str,
        is_text: bool,
    },
}

/// The part of an outermost value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListPart {
    /// An object, as far as is known.
    Whole,
    /// The items of a list, whose bracket has this depth.
    Items(usize),
    /// What follows the items.
    BehindItems,
}

enum ScanStep {
    Go,
    Found(StreamPart),
    /// As [`Step::Found`]; the byte belongs to what follows.
    FoundBefore(StreamPart),
}

impl ScanState {
    /// Reads bytes up to the end of the next part. Returns how many it has read.
    fn feed(&mut self, bytes: &[u8]) -> (usize, Option<StreamPart>) {
        for (at, byte) in bytes.iter().enumerate() {
            let begins_line = self.begins_line;
            match self.step(*byte, begins_line) {
                ScanStep::FoundBefore(found) => return (at, Some(found)),
                step => {
                    self.begins_line = *byte == b'\n';
                    self.newlines += u64::from(self.begins_line);
                    if let ScanStep::Found(found) = step {
                        return (at + 1, Some(found));
                    }
                }
            }
        }
        (bytes.len(), None)
    }

    /// Returns what the end of the stream leaves.
    fn finish(&mut self) -> Option<StreamPart> {
        match mem::replace(&mut self.place, ScanPlace::Between) {
            ScanPlace::Between => None,
            ScanPlace::Inside => Some(self.cut_off("the file ends within an object or a list")),
            ScanPlace::Lost {
                line,
                reason,
                is_text,
            } => Some(self.broken(line, reason, is_text)),
        }
    }

    fn step(&mut self, byte: u8, begins_line: bool) -> ScanStep {
        match self.place {
            ScanPlace::Between => self.between(byte),
            ScanPlace::Lost {
                line,
                reason,
                is_text,
            } => {
                if begins_line && matches!(byte, b'{' | b'[') {
                    self.place = ScanPlace::Between;
                    return ScanStep::FoundBefore(self.broken(line, reason, is_text));
                }
                if self.text.len() < BEGINNING_BYTES {
                    self.text.push(byte);
                }
                ScanStep::Go
            }
            ScanPlace::Inside => self.inside(byte, begins_line),
        }
    }

    fn between(&mut self, byte: u8) -> ScanStep {
        match byte {
            // White space, the separator of JSON sequences, and a byte order mark.
            b' ' | b'\t' | b'\r' | b'\n' | 0x1e | 0xef | 0xbb | 0xbf => {}
            b'{' | b'[' => {
                let line = self.newlines + 1;
                let newlines = self.newlines;
                // The buffer of the last object is used again.
                let mut text = mem::take(&mut self.text);
                text.clear();
                *self = Self {
                    place: ScanPlace::Inside,
                    newlines,
                    outer_line: line,
                    text_line: line,
                    text,
                    last: byte,
                    ..Self::default()
                };
                self.open.push(byte);
                if byte == b'[' {
                    self.part = ListPart::Items(1);
                } else {
                    self.keeps = true;
                    self.text.push(byte);
                }
            }
            _ => {
                self.text.clear();
                self.text.push(byte);
                self.place = ScanPlace::Lost {
                    line: self.newlines + 1,
                    reason: "it is not JSON",
                    is_text: true,
                };
            }
        }
        ScanStep::Go
    }

    fn inside(&mut self, byte: u8, begins_line: bool) -> ScanStep {
        if self.in_text {
            return self.in_text(byte);
        }

        let is_open = matches!(byte, b'{' | b'[');
        if byte == b'{' && begins_line && !self.may_begin_value() {
            self.place = ScanPlace::Between;
            return ScanStep::FoundBefore(
                self.cut_off("it is cut off: another object begins behind it"),
            );
        }

        // An item of a list begins a text of its own.
        if byte == b'{' && self.part == ListPart::Items(self.depth()) {
            self.keeps = true;
            self.text.clear();
            self.text_line = self.newlines + 1;
            self.unusable = None;
        }
        self.keep(byte);

        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return ScanStep::Go,
            b'"' => {
                self.in_text = true;
                self.word.clear();
                return ScanStep::Go;
            }
            b'}' | b']' => return self.close(),
            b':' => self.key = mem::take(&mut self.word),
            _ => {}
        }

        if is_open {
            // The items of a list are read one by one.
            let is_list = byte == b'['
                && self.part == ListPart::Whole
                && self.depth() == 1
                && self.last == b':'
                && self.key == b"items";
            self.open(byte);
            if is_list {
                self.part = ListPart::Items(2);
                self.keeps = false;
                self.text.clear();
            }
        }
        self.last = if matches!(byte, b'{' | b'[' | b':' | b',') {
            byte
        } else {
            b'v'
        };
        ScanStep::Go
    }

    /// Reads a byte of a text.
    fn in_text(&mut self, byte: u8) -> ScanStep {
        // JSON escapes line feeds, so this text has no end.
        if byte == b'\n' {
            let line = self.line_of_part();
            let reason = "it is cut off: a text has a line break";
            self.place = ScanPlace::Lost {
                line,
                reason,
                is_text: false,
            };
            self.in_text = false;
            return ScanStep::Go;
        }

        self.keep(byte);
        if self.is_escaped {
            self.is_escaped = false;
        } else if byte == b'\\' {
            self.is_escaped = true;
        } else if byte == b'"' {
            self.in_text = false;
            self.end_text();
        }
        if self.in_text && self.word.len() < MAX_WORD_BYTES {
            self.word.push(byte);
        }
        ScanStep::Go
    }

    fn end_text(&mut self) {
        let is_kind = self.part == ListPart::Whole
            && self.depth() == 1
            && self.last == b':'
            && self.key == b"kind";
        if is_kind {
            let list = String::from_utf8_lossy(&self.word);
            let kind = list.strip_suffix("List").filter(|kind| !kind.is_empty());
            self.kind = kind.map(str::to_owned);
        }
        self.last = b'v';
    }

    fn open(&mut self, byte: u8) {
        if self.open.len() < MAX_NESTING {
            self.open.push(byte);
        } else {
            self.deeper += 1;
            self.unusable = Some("it is nested deeper than 128 levels");
        }
    }

    fn close(&mut self) -> ScanStep {
        if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            self.open.pop();
        }
        self.last = b'v';

        let depth = self.depth();
        if let ListPart::Items(list) = self.part {
            if depth < list {
                self.part = ListPart::BehindItems;
            } else if depth == list && self.keeps {
                self.keeps = false;
                return ScanStep::Found(self.object());
            }
        }
        if depth > 0 {
            return ScanStep::Go;
        }

        self.place = ScanPlace::Between;
        if self.part == ListPart::Whole {
            ScanStep::Found(self.object())
        } else {
            ScanStep::Go
        }
    }

    fn depth(&self) -> usize {
        self.open.len()
    }

    /// Returns whether JSON allows a value here.
    fn may_begin_value(&self) -> bool {
        match self.last {
            b':' | b'[' => true,
            b',' => self.open.last() == Some(&b'['),
            _ => false,
        }
    }

    fn keep(&mut self, byte: u8) {
        if !self.keeps || self.unusable.is_some() && self.text.len() >= BEGINNING_BYTES {
            return;
        }
        if self.text.len() == MAX_OBJECT_BYTES {
            self.unusable = Some("it is longer than 16 MiB");
            self.text.truncate(BEGINNING_BYTES);
            self.text.shrink_to_fit();
            return;
        }
        self.text.push(byte);
    }

    fn line_of_part(&self) -> u64 {
        if self.keeps {
            self.text_line
        } else {
            self.outer_line
        }
    }

    fn object(&mut self) -> StreamPart {
        if let Some(reason) = self.unusable.take() {
            return self.broken(self.text_line, reason, false);
        }
        StreamPart::Object {
            line: self.text_line,
            text: mem::take(&mut self.text),
            kind: self.kind.clone(),
        }
    }

    fn cut_off(&mut self, reason: &'static str) -> StreamPart {
        self.broken(self.line_of_part(), reason, false)
    }

    fn broken(&mut self, line: u64, reason: &str, is_text: bool) -> StreamPart {
        // A broken object may begin with a secret: only texts that are no object at all are shown.
        let text = if is_text {
            beginning(&self.text)
        } else {
            String::new()
        };
        self.text.clear();
        StreamPart::Broken {
            line,
            reason: reason.to_owned(),
            text,
            is_text,
        }
    }
}

/// Returns the beginning of a text in one line.
pub(crate) fn beginning(text: &[u8]) -> String {
    let begin = &text[..text.len().min(BEGINNING_BYTES)];
    let text = String::from_utf8_lossy(begin);
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    /// The parts of a text, each in one line: `3 {"a":1}`, `4 it is not JSON: x`.
    fn parts(text: &[u8], buffer: usize) -> Vec<String> {
        let mut scanner = ObjectScanner::new(BufReader::with_capacity(buffer, text));
        let mut parts = Vec::new();
        while let Some(found) = scanner.next().unwrap() {
            parts.push(match found {
                StreamPart::Object { line, text, kind } => {
                    let kind = kind.map_or_else(String::new, |kind| format!("{kind} "));
                    format!("{line} {kind}{}", String::from_utf8(text).unwrap())
                }
                StreamPart::Broken {
                    line, reason, text, ..
                } => format!("{line} {reason}: {text}"),
            });
        }
        parts
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for buffer in [1, 2, 7, 4096] {
            assert_eq!(parts(text.as_bytes(), buffer), expected, "{text}");
        }
    }

    #[test]
    fn objects_come_one_after_the_other() {
        check("", &[]);
        check(
            " \n\u{feff}{}\n{\"a\": [1, {}]}{}",
            &["2 {}", "3 {\"a\": [1, {}]}", "3 {}"],
        );
        check("{\"a\": \"}\\\"{\"}", &["1 {\"a\": \"}\\\"{\"}"]);
        check(
            "{\n\"a\": 1\n}\n{\n\"b\": 2\n}\n",
            &["1 {\n\"a\": 1\n}", "4 {\n\"b\": 2\n}"],
        );
    }

    #[test]
    fn items_of_a_list_are_objects() {
        check(
            "{\"kind\": \"PodList\", \"items\": [{\"a\": 1},\n {\"b\": {}}], \"metadata\": {}}\n{\"c\": 3}",
            &["1 Pod {\"a\": 1}", "2 Pod {\"b\": {}}", "3 {\"c\": 3}"],
        );
        // As kubectl writes it: items first, and each with its kind.
        check(
            "{\"apiVersion\":\"v1\",\"items\":[{\"kind\":\"Pod\"}],\"kind\":\"List\"}",
            &["1 {\"kind\":\"Pod\"}"],
        );
        check("[{\"a\":1}, {\"b\":2}, 7]", &["1 {\"a\":1}", "1 {\"b\":2}"]);
        check("{\"items\": [], \"kind\": \"List\"}", &[]);
        // `items` deeper in an object are its own.
        check(
            "{\"spec\": {\"items\": [{}]}}",
            &["1 {\"spec\": {\"items\": [{}]}}"],
        );
        check("{\"items\": null}", &["1 {\"items\": null}"]);
        // A list whose items begin lines.
        check(
            "{\"items\": [\n{\"a\":1},\n{\"b\":2}\n]}",
            &["2 {\"a\":1}", "3 {\"b\":2}"],
        );
    }

    #[test]
    fn what_is_broken_is_left_and_the_rest_is_read() {
        // A line that is cut off in a text, behind a comma, and behind a value.
        check(
            "{\"a\": 1}\n{\"b\": \"x\n{\"c\": 3}\n{\"d\": 4,\n{\"e\": 5\n{\"f\": 6}",
            &[
                "1 {\"a\": 1}",
                "2 it is cut off: a text has a line break: ",
                "3 {\"c\": 3}",
                "4 it is cut off: another object begins behind it: ",
                "5 it is cut off: another object begins behind it: ",
                "6 {\"f\": 6}",
            ],
        );
        // Balanced, so the parser says what is wrong.
        check(
            "{\"a\":}\n{\"b\": 2]\n{}",
            &["1 {\"a\":}", "2 {\"b\": 2]", "3 {}"],
        );
        // Messages of a program between objects.
        check(
            "Warning: old\n and\u{1b} more\n{\"a\": 1}\n}\n",
            &[
                "1 it is not JSON: Warning: old and\u{fffd} more",
                "3 {\"a\": 1}",
                "4 it is not JSON: }",
            ],
        );
    }

    #[test]
    fn the_end_within_an_object_is_said() {
        let reason = "the file ends within an object or a list";
        check(
            "{\"a\": 1}\n{\"b\": [2",
            &["1 {\"a\": 1}", &format!("2 {reason}: ")],
        );
        check("{\"b\": \"2", &[&format!("1 {reason}: ")]);
        check(
            "{\"items\": [\n{\"a\": 1},\n{\"b\"",
            &["2 {\"a\": 1}", &format!("3 {reason}: ")],
        );
        check(
            "{\"items\": [\n{\"a\": 1},\n",
            &["2 {\"a\": 1}", &format!("1 {reason}: ")],
        );
    }

    #[test]
    fn long_and_deep_objects_are_set_aside_without_memory() {
        let long = format!("{{\"a\": \"{}\"}}\n{{}}", "x".repeat(MAX_OBJECT_BYTES));
        let found = parts(long.as_bytes(), 4096);
        assert!(
            found[0].starts_with("1 it is longer than 16 MiB: "),
            "{:.100}",
            found[0]
        );
        assert!(found[0].len() < 200);
        assert_eq!(found[1..], ["2 {}"]);

        let deep = format!("{}{}\n{{}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        let found = parts(deep.as_bytes(), 4096);
        assert!(
            found[0].starts_with("1 it is nested deeper than 128 levels"),
            "{:.100}",
            found[0]
        );
        assert_eq!(found[1..], ["2 {}"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_alike_whatever_the_buffer(bytes in prop::collection::vec(
            prop_oneof![Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b'"'), Just(b'\\'), Just(b'\n'), Just(b':'), Just(b','), any::<u8>()],
            0..200,
        )) {
            let split = |buffer: usize| {
                let mut scanner = ObjectScanner::new(BufReader::with_capacity(buffer, &bytes[..]));
                let mut parts = Vec::new();
                while let Some(found) = scanner.next().unwrap() {
                    parts.push(found);
                }
                parts
            };
            prop_assert_eq!(split(1), split(4096));
        }
    }
}
