//! From tokens to parts (`promql/parser/generated_parser.y`, and what `parse.go` refuses while parsing).

use super::lex::{Kind, Token, tokens};
use super::{Binary, Fault, Matching, Outline, Part};
use crate::syntax::MAX_DEPTH;

/// What a number of seconds is called where one is expected.
const DURATION: &str = "number, duration, step(), or range()";
/// Aggregations with a parameter.
const WITH_PARAMETER: [&str; 6] = [
    "topk",
    "bottomk",
    "count_values",
    "quantile",
    "limitk",
    "limit_ratio",
];

/// Reads a query up to its first fault of grammar.
pub(crate) fn read(query: &str) -> Result<Outline<'_>, Fault> {
    let mut reader = Reader {
        tokens: tokens(query),
        next: 0,
        depth: 0,
    };
    if reader.peek().kind == Kind::End {
        return Err(Fault {
            at: 0,
            text: "no expression found in input".to_owned(),
        });
    }
    let whole = reader.expression(0, "")?;
    match reader.peek().kind {
        Kind::End => Ok(whole),
        _ => Err(reader.unexpected("")),
    }
}

struct Reader<'a> {
    /// Never empty; the last one is not passed.
    tokens: Vec<Token<'a>>,
    next: usize,
    /// Expressions that are being read.
    depth: usize,
}

impl<'a> Reader<'a> {
    /// An expression of operators that bind at least so tightly. What is unexpected in it is so `within` something.
    fn expression(&mut self, tightness: u8, within: &str) -> Result<Outline<'a>, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.too_high());
        }
        let mut lhs = self.operand(within)?;
        while let Some(found) = tightness_of(self.peek()).filter(|found| *found >= tightness) {
            let op = self.take();
            let matching = self.matching()?;
            // Only `^` binds its right side first.
            let rhs = self.expression(if op.is("^") { found } else { found + 1 }, within)?;
            let (at, end) = (lhs.at, rhs.end);
            lhs = self.bounded(Outline::new(
                at,
                end,
                Part::Binary(Box::new(Binary {
                    lhs,
                    op,
                    matching,
                    rhs,
                })),
            ))?;
        }
        self.depth -= 1;
        Ok(lhs)
    }

    /// The tree is walked recursively.
    fn bounded(&self, outline: Outline<'a>) -> Result<Outline<'a>, Fault> {
        if outline.height > MAX_DEPTH {
            Err(self.too_high())
        } else {
            Ok(outline)
        }
    }

    fn too_high(&self) -> Fault {
        Fault {
            at: self.peek().at,
            text: format!("query is nested deeper than {MAX_DEPTH} operators and parentheses"),
        }
    }

    fn operand(&mut self, within: &str) -> Result<Outline<'a>, Fault> {
        let first = self.peek().clone();
        if first.is("+") || first.is("-") {
            self.take();
            let of = self.expression(POWER, within)?;
            let end = of.end;
            let part = if matches!(of.part, Part::Number) {
                Part::Number
            } else {
                Part::Unary(Box::new(of))
            };
            return self.bounded(Outline::new(first.at, end, part));
        }
        let mut operand = self.simple(within)?;
        let mut modified = Modified::default();
        loop {
            operand = match self.peek() {
                token if token.is("[") => self.window(operand, std::mem::take(&mut modified))?,
                token if token.is("offset") => self.offset(operand, &mut modified)?,
                token if token.is("@") => self.at_instant(operand, &mut modified)?,
                _ => return Ok(operand),
            };
        }
    }

    fn simple(&mut self, within: &str) -> Result<Outline<'a>, Fault> {
        let (first, opens) = (
            self.peek().clone(),
            self.tokens
                .get(self.next + 1)
                .is_some_and(|next| next.is("(")),
        );
        let part = match first.kind {
            Kind::Number | Kind::Duration => Part::Number,
            Kind::Text => Part::Text,
            Kind::Identifier if opens => {
                self.take();
                let args = self.arguments(within)?;
                return Ok(Outline::new(
                    first.at,
                    self.end(),
                    Part::Call {
                        name: first.text,
                        args,
                    },
                ));
            }
            Kind::Aggregation => return self.aggregation(first),
            Kind::Other if first.is("(") => {
                self.take();
                let of = self.expression(0, within)?;
                self.expect(")", within)?;
                return Ok(Outline::new(
                    first.at,
                    self.end(),
                    Part::Paren(Box::new(of)),
                ));
            }
            _ if first.is("{") || is_name(&first) => return self.selector(),
            _ => return Err(self.unexpected(within)),
        };
        self.take();
        Ok(Outline::new(first.at, first.end(), part))
    }

    fn arguments(&mut self, within: &str) -> Result<Vec<Outline<'a>>, Fault> {
        self.expect("(", within)?;
        let mut args = Vec::new();
        if !self.peek().is(")") {
            loop {
                args.push(self.expression(0, within)?);
                let Some(comma) = self.take_if(",") else {
                    break;
                };
                if self.peek().is(")") {
                    let text = "trailing commas not allowed in function call args".to_owned();
                    return Err(Fault { at: comma.at, text });
                }
            }
        }
        self.expect(")", within)?;
        Ok(args)
    }

    fn aggregation(&mut self, first: Token<'a>) -> Result<Outline<'a>, Fault> {
        let within = " in aggregation";
        let follows = self.tokens.get(self.next + 1);
        if !follows.is_some_and(|token| ["(", "by", "without"].iter().any(|text| token.is(text))) {
            // A metric of that name.
            return self.selector();
        }
        self.take();
        let modifier_first = self.grouping_modifier()?;
        let args = self.arguments(within)?;
        if !modifier_first {
            self.grouping_modifier()?;
        }
        let (at, end, name) = (first.at, self.end(), first.text.to_ascii_lowercase());
        let expected = if WITH_PARAMETER.contains(&name.as_str()) {
            2
        } else {
            1
        };
        let text = match args.len() {
            0 => "no arguments for aggregate expression provided".to_owned(),
            count if count != expected => {
                format!(
                    "wrong number of arguments for aggregate expression provided, expected {expected}, got {count}"
                )
            }
            _ => return Ok(Outline::new(at, end, Part::Aggregate { name, args })),
        };
        Err(Fault { at, text })
    }

    /// `by (…)` or `without (…)`, if there is one.
    fn grouping_modifier(&mut self) -> Result<bool, Fault> {
        let there = self.peek().is("by") || self.peek().is("without");
        if there {
            self.take();
            self.labels()?;
        }
        Ok(there)
    }

    fn labels(&mut self) -> Result<Vec<&'a str>, Fault> {
        self.expect("(", " in grouping opts, expected \"(\"")?;
        let mut labels = Vec::new();
        loop {
            if self.take_if(")").is_some() {
                return Ok(labels);
            }
            let is_label = match self.peek().kind {
                Kind::Identifier
                | Kind::Metric
                | Kind::Text
                | Kind::Keyword
                | Kind::Aggregation => true,
                Kind::Operator | Kind::Other => self
                    .peek()
                    .text
                    .starts_with(|c: char| c.is_ascii_alphabetic()),
                _ => false,
            };
            if !is_label {
                return Err(self.unexpected(" in grouping opts, expected label"));
            }
            labels.push(self.take().text);
            if self.take_if(",").is_none() && !self.peek().is(")") {
                return Err(self.unexpected(" in grouping opts, expected \",\" or \")\""));
            }
        }
    }

    /// What stands between an operator and its right side.
    fn matching(&mut self) -> Result<Matching<'a>, Fault> {
        let mut matching = Matching {
            is_bool: self.take_if("bool").is_some(),
            ..Matching::default()
        };
        matching.is_on = self.peek().is("on");
        if matching.is_on || self.peek().is("ignoring") {
            self.take();
            matching.labels = self.labels()?;
            if self.peek().is("group_left") || self.peek().is("group_right") {
                self.take();
                matching.group = Some(if self.peek().is("(") {
                    self.labels()?
                } else {
                    Vec::new()
                });
            }
        }
        Ok(matching)
    }

    fn selector(&mut self) -> Result<Outline<'a>, Fault> {
        let (at, mut matchers) = (self.peek().at, Vec::new());
        if is_name(self.peek()) {
            self.take();
        }
        if self.take_if("{").is_some() {
            while self.take_if("}").is_none() {
                matchers.push(self.matcher()?);
                if self.take_if(",").is_none() && !self.peek().is("}") {
                    return Err(self.unexpected(" in label matching, expected \",\" or \"}\""));
                }
            }
        }
        Ok(Outline::new(at, self.end(), Part::Selector(matchers)))
    }

    fn matcher(&mut self) -> Result<(usize, usize), Fault> {
        let label = self.peek().clone();
        if !matches!(label.kind, Kind::Identifier | Kind::Text) {
            return Err(self.unexpected(" in label matching, expected identifier or \"}\""));
        }
        self.take();
        if !["=", "!=", "=~", "!~"].iter().any(|op| self.peek().is(op)) {
            // A quoted metric's name stands alone.
            return match label.kind {
                Kind::Text => Ok((label.at, label.end())),
                _ => Err(self.unexpected(" in label matching, expected label matching operator")),
            };
        }
        self.take();
        match self.peek().kind {
            Kind::Text => Ok((label.at, self.take().end())),
            _ => Err(self.unexpected(" in label matching, expected string")),
        }
    }

    fn window(&mut self, of: Outline<'a>, modified: Modified) -> Result<Outline<'a>, Fault> {
        let bracket = self.take();
        let range_at = self.peek().at;
        self.duration(&format!(
            " in subquery or range selector, expected {DURATION}"
        ))?;
        let is_subquery = self.take_if(":").is_some();
        if is_subquery && !self.peek().is("]") {
            self.duration(
                " in subquery selector, expected number, duration, step(), range(), or \"]\"",
            )?;
            self.expect("]", " in subquery selector, expected \"]\"")?;
        } else {
            self.expect("]", " in subquery or range, expected \":\" or \"]\"")?;
        }
        let problem = match of.part {
            _ if is_subquery => None,
            Part::Selector(_) if modified.offset => {
                Some("no offset modifiers allowed before range")
            }
            Part::Selector(_) if modified.at => Some("no @ modifiers allowed before range"),
            Part::Selector(_) => None,
            _ => Some("ranges only allowed for vector selectors"),
        };
        if let Some(problem) = problem {
            return Err(Fault {
                at: bracket.at,
                text: problem.to_owned(),
            });
        }
        let at = of.at;
        self.bounded(Outline::new(
            at,
            self.end(),
            Part::Window {
                of: Box::new(of),
                range_at,
                is_subquery,
            },
        ))
    }

    fn offset(
        &mut self,
        mut of: Outline<'a>,
        modified: &mut Modified,
    ) -> Result<Outline<'a>, Fault> {
        self.take();
        if self.take_if("-").is_none() {
            self.take_if("+");
        }
        self.duration(&format!(" in offset, expected {DURATION}"))?;
        of.end = self.end();
        modifiable(of, "offset", "offset", &mut modified.offset)
    }

    fn at_instant(
        &mut self,
        mut of: Outline<'a>,
        modified: &mut Modified,
    ) -> Result<Outline<'a>, Fault> {
        self.take();
        let within = " in @, expected timestamp";
        if self.peek().is("start") || self.peek().is("end") {
            self.take();
            self.expect("(", within)?;
            self.expect(")", within)?;
        } else {
            if self.take_if("-").is_none() {
                self.take_if("+");
            }
            self.duration(within)?;
        }
        of.end = self.end();
        modifiable(of, "@", "@ <timestamp>", &mut modified.at)
    }

    fn duration(&mut self, within: &str) -> Result<(), Fault> {
        match self.peek().kind {
            Kind::Number | Kind::Duration => drop(self.take()),
            _ => return Err(self.unexpected(within)),
        }
        Ok(())
    }

    fn peek(&self) -> &Token<'a> {
        &self.tokens[self.next]
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn take_if(&mut self, text: &str) -> Option<Token<'a>> {
        self.peek().is(text).then(|| self.take())
    }

    fn expect(&mut self, text: &str, within: &str) -> Result<(), Fault> {
        self.take_if(text)
            .map(|_| ())
            .ok_or_else(|| self.unexpected(within))
    }

    /// Where the last token ended.
    fn end(&self) -> usize {
        self.tokens[self.next.saturating_sub(1)].end()
    }

    fn unexpected(&self, within: &str) -> Fault {
        let token = self.peek();
        let text = match &token.kind {
            Kind::Bad(message) => message.clone(),
            _ => format!("unexpected {}{within}", token.description()),
        };
        Fault { at: token.at, text }
    }
}

/// Which modifiers a selector or a window has already.
#[derive(Default)]
struct Modified {
    offset: bool,
    at: bool,
}

fn modifiable<'a>(
    of: Outline<'a>,
    modifier: &str,
    shown: &str,
    is_set: &mut bool,
) -> Result<Outline<'a>, Fault> {
    match of.part {
        Part::Selector(_) | Part::Window { .. } if std::mem::replace(is_set, true) => Err(Fault {
            at: of.at,
            text: format!("{shown} may not be set multiple times"),
        }),
        Part::Selector(_) | Part::Window { .. } => Ok(of),
        _ => {
            let before = "must be preceded by an instant vector selector or range vector selector or a subquery";
            Err(Fault {
                at: of.at,
                text: format!("{modifier} modifier {before}"),
            })
        }
    }
}

/// Whether a token may name a metric.
fn is_name(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Identifier | Kind::Metric | Kind::Aggregation => true,
        Kind::Keyword => ["by", "without", "offset", "smoothed", "anchored"]
            .iter()
            .any(|name| token.is(name)),
        Kind::Operator => ["and", "or", "unless"].iter().any(|name| token.is(name)),
        Kind::Other => ["start", "end", "step", "range"]
            .iter()
            .any(|name| token.is(name)),
        _ => false,
    }
}

/// How tightly `^` binds.
const POWER: u8 = 6;

/// How tightly an operator binds; `None` for what is none.
fn tightness_of(token: &Token<'_>) -> Option<u8> {
    if token.kind != Kind::Operator {
        return None;
    }
    match token.text.to_ascii_lowercase().as_str() {
        "or" => Some(1),
        "and" | "unless" => Some(2),
        "==" | "!=" | "<=" | "<" | ">=" | ">" => Some(3),
        "+" | "-" => Some(4),
        "*" | "/" | "%" | "atan2" => Some(5),
        "^" => Some(POWER),
        _ => None,
    }
}
