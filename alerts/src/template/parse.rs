//! Parses the text of a template into its parts.

use super::functions::{self, Dialect, Function};
use super::{TemplateError, value::fail};
use crate::unquote::unquote;
use std::collections::BTreeMap;
use std::iter;
use std::mem;
use std::slice;
use std::vec::IntoIter;

/// Depth of nested blocks and parentheses.
const DEPTH_MAX: usize = 40;

/// Templates by name.
pub type Defines = BTreeMap<String, Vec<Part>>;

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Text(String),
    Print(Pipeline),
    If {
        arms: Vec<(Pipeline, Vec<Part>)>,
        otherwise: Vec<Part>,
    },
    With {
        pipeline: Pipeline,
        body: Vec<Part>,
        otherwise: Vec<Part>,
    },
    Range {
        key: Option<String>,
        pipeline: Pipeline,
        body: Vec<Part>,
        otherwise: Vec<Part>,
    },
    /// `{{ template "name" … }}`.
    Call {
        name: String,
        pipeline: Option<Pipeline>,
    },
    Break,
    Continue,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    pub target: Option<Target>,
    pub commands: Vec<Command>,
}

/// The variable that gets a pipeline's value.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub name: String,
    pub declares: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    pub operands: Vec<Operand>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    pub base: Base,
    pub fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Base {
    Dot,
    Variable(String),
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Nil,
    Function(Function),
    Group(Box<Pipeline>),
}

/// The parts of a template, and the templates that it defines.
pub(super) fn parse(source: &str, dialect: Dialect) -> Result<(Vec<Part>, Defines), TemplateError> {
    let variables = dialect
        .variables()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();

    let pieces = split(source)?.into_iter();
    let defines = Defines::new();
    let mut parser = Parser {
        pieces,
        dialect,
        defines,
        variables,
        depth: 0,
        loops: 0,
    };

    let (parts, end) = parser.parts()?;
    match end {
        None => Ok((parts, parser.defines)),
        Some(stray) => fail(format!("`{stray}` without a beginning")),
    }
}

/// Whether a template calls this function.
pub(super) fn calls(source: &str, function: &str) -> bool {
    let word = Token::Word(function.to_owned());
    split(source).is_ok_and(|pieces| {
        pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Action(tokens) if tokens.contains(&word)))
    })
}

enum Piece {
    Text(String),
    Action(Vec<Token>),
}

/// Cuts the source at its delimiters, applying the trim marks.
fn split(source: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();

    let mut rest = source;
    let mut trim_next = false;
    while let Some(at) = rest.find("{{") {
        let mut text = &rest[..at];
        let mut inside = &rest[at + 2..];

        if trim_next {
            text = text.trim_start();
        }
        // As in Go, the mark needs a space behind it: `{{-1}}` prints a number.
        if inside.starts_with('-') && inside[1..].starts_with(char::is_whitespace) {
            (text, inside) = (text.trim_end(), &inside[1..]);
        }

        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }

        let end = end_of_action(inside)?;
        let mut action = &inside[..end];
        rest = &inside[end + 2..];

        trim_next =
            action.ends_with('-') && action[..action.len() - 1].ends_with(char::is_whitespace);
        if trim_next {
            action = &action[..action.len() - 1];
        }

        let is_comment = action.trim().starts_with("/*") && action.trim().ends_with("*/");
        if !is_comment {
            pieces.push(Piece::Action(tokens(action)?));
        }
    }

    let text = if trim_next { rest.trim_start() } else { rest };
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    Ok(pieces)
}

/// Position of the action's `}}`, outside of strings and comments.
fn end_of_action(inside: &str) -> Result<usize, TemplateError> {
    let mut rest = inside.char_indices().peekable();

    if let Some(comment) = inside.trim_start().strip_prefix("/*") {
        let start = inside.len() - comment.len();
        return comment
            .find("*/")
            // Braces inside of a comment end nothing.
            .and_then(|at| {
                inside[start + at..]
                    .find("}}")
                    .map(|more| start + at + more)
            })
            .ok_or_else(|| TemplateError::new("a comment is not closed".to_owned()));
    }

    while let Some((at, c)) = rest.next() {
        match c {
            // Braces inside of a string end nothing either.
            '"' | '`' => loop {
                match rest.next() {
                    Some((_, '\\')) if c == '"' => drop(rest.next()),
                    Some((_, end)) if end == c => break,
                    Some(_) => {}
                    None => return fail("a string is not closed"),
                }
            },
            '}' if inside[at..].starts_with("}}") => return Ok(at),
            _ => {}
        }
    }
    fail("`{{` is not closed")
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Variable(String),
    Text(String),
    Int(i64),
    Float(f64),
    /// `.name`; glued if no space precedes it, so that it belongs to the operand on its left.
    Field {
        name: String,
        glued: bool,
    },
    Dot,
    Sign(&'static str),
}

fn tokens(action: &str) -> Result<Vec<Token>, TemplateError> {
    let mut out = Vec::new();
    let mut rest = action;

    let mut glued = false;
    while let Some(c) = rest.chars().next() {
        let before = rest.len();
        match c {
            c if c.is_whitespace() => {
                rest = rest.trim_start();
                glued = false;
                continue;
            }
            '"' => {
                let end = end_of_string(rest);
                let inside = &rest[1..end];
                let text = unquote(inside).ok_or_else(|| {
                    TemplateError::new(format!("`{inside}` is not a text that quotes can hold"))
                });
                out.push(Token::Text(text?));
                rest = &rest[end + 1..];
            }
            '`' => {
                let end = rest[1..].find('`').map_or(rest.len(), |at| at + 1);
                out.push(Token::Text(rest[1..end].to_owned()));
                rest = rest.get(end + 1..).unwrap_or_default();
            }

            '.' if rest[1..].starts_with(is_name_start) => {
                let (name, behind) = word(&rest[1..]);
                out.push(Token::Field {
                    name: name.to_owned(),
                    glued,
                });
                rest = behind;
            }

            // A dot in front of a digit begins a number.
            '.' if !rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                out.push(Token::Dot);
                rest = &rest[1..];
            }
            '$' => {
                let (name, behind) = word(&rest[1..]);
                out.push(Token::Variable(format!("${name}")));
                rest = behind;
            }
            c if is_name_start(c) => {
                let (name, behind) = word(rest);
                out.push(Token::Word(name.to_owned()));
                rest = behind;
            }
            c if c.is_ascii_digit() || matches!(c, '+' | '-' | '.') => {
                let end = rest
                    .char_indices()
                    .find(|&(at, c)| {
                        let sign =
                            // A sign belongs to a number at its beginning and in its exponent.
                            matches!(c, '+' | '-') && (at == 0 || rest[..at].ends_with(['e', 'E']));
                        !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || sign)
                    })
                    .map_or(rest.len(), |(at, _)| at);
                out.push(number(&rest[..end])?);
                rest = &rest[end..];
            }
            _ => {
                // `:=` before `=`, which it ends with.
                let Some(sign) = [":=", "=", "|", "(", ")", ","]
                    .into_iter()
                    .find(|sign| rest.starts_with(sign))
                else {
                    return fail(format!("`{c}` has no meaning here"));
                };
                out.push(Token::Sign(sign));
                rest = &rest[sign.len()..];
            }
        }

        // A space before a dot makes it an operand of its own: `f .x` has an argument.
        glued = rest.len() < before;
    }
    Ok(out)
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn word(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(text.len()),
    )
}

fn number(text: &str) -> Result<Token, TemplateError> {
    // As in Go, `_` may stand between digits.
    let plain = text.replace('_', "");
    let hex = plain
        .strip_prefix("0x")
        .and_then(|digits| i64::from_str_radix(digits, 16).ok());

    if let Some(int) = hex.or_else(|| plain.parse().ok()) {
        return Ok(Token::Int(int));
    }
    plain
        .parse()
        .map(Token::Float)
        .or_else(|_| fail(format!("`{text}` is not a number")))
}

/// Position of the closing quote of the string at the start of `text`. [`end_of_action`] has checked
/// that it exists.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    let closing = text
        .char_indices()
        .skip(1)
        .find(|&(_, c)| match (escaped, c) {
            (true, _) => {
                escaped = false;
                false
            }
            (false, '\\') => {
                escaped = true;
                false
            }
            (false, c) => c == '"',
        });
    closing.map_or(text.len() - 1, |(at, _)| at)
}

struct Parser {
    pieces: IntoIter<Piece>,
    dialect: Dialect,
    defines: Defines,
    variables: Vec<String>,
    depth: usize,
    /// Number of `range`s around the current position.
    loops: usize,
}

/// The end of a list of parts: `end`, or `else` with the text after it.
type Ending = Option<&'static str>;

impl Parser {
    fn parts(&mut self) -> Result<(Vec<Part>, Ending), TemplateError> {
        let (parts, ending, _) = self.parts_until()?;
        Ok((parts, ending))
    }

    fn parts_until(&mut self) -> Result<(Vec<Part>, Ending, Vec<Token>), TemplateError> {
        let mut parts = Vec::new();

        while let Some(piece) = self.pieces.next() {
            let mut tokens = match piece {
                Piece::Text(text) => {
                    parts.push(Part::Text(text));
                    continue;
                }
                Piece::Action(tokens) => tokens,
            };

            let word = match tokens.first() {
                Some(Token::Word(word)) => word.clone(),
                Some(_) => String::new(),
                None => return fail("an empty `{{ }}`"),
            };
            match word.as_str() {
                "end" => return Ok((parts, Some("end"), Vec::new())),
                "else" => return Ok((parts, Some("else"), tokens.split_off(1))),
                "if" | "with" | "range" => parts.push(self.block(&word, tokens.split_off(1))?),
                "template" => {
                    let (name, rest) = quoted_name(&word, tokens.split_off(1))?;
                    let pipeline = if rest.is_empty() {
                        None
                    } else {
                        Some(self.pipeline(rest)?)
                    };
                    parts.push(Part::Call { name, pipeline });
                }
                "block" => {
                    let (name, rest) = quoted_name(&word, tokens.split_off(1))?;
                    // A `block` defines a template and calls it at its place.
                    let pipeline = Some(self.pipeline(rest)?);
                    self.define(&word, name.clone())?;
                    parts.push(Part::Call { name, pipeline });
                }
                // As in Go, a definition is known everywhere and stands at the outermost level.
                "define" => match quoted_name(&word, tokens.split_off(1))? {
                    _ if self.depth > 0 => return fail("`define` inside of another block"),
                    (name, rest) if rest.is_empty() => self.define(&word, name)?,
                    _ => return fail("nothing may stand behind the name of `define`"),
                },
                "break" | "continue" if self.loops == 0 => {
                    return fail(format!("`{word}` outside of `range`"));
                }
                "break" => parts.push(Part::Break),
                "continue" => parts.push(Part::Continue),
                _ => parts.push(Part::Print(self.pipeline(tokens)?)),
            }
        }
        Ok((parts, None, Vec::new()))
    }

    /// The body of a named template, whose only variable is its own `$`.
    fn define(&mut self, word: &str, name: String) -> Result<(), TemplateError> {
        // As in Go, neither variables nor loops of the outside reach into a named template.
        let outside = mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let loops = mem::take(&mut self.loops);

        self.enter_block()?;
        let (body, ending, _) = self.parts_until()?;
        self.depth -= 1;
        (self.variables, self.loops) = (outside, loops);

        match ending {
            Some("end") => drop(self.defines.insert(name, body)),
            _ => return fail(format!("`{word}` has no `end`")),
        }
        Ok(())
    }

    /// The parser calls itself for each block, and the stack has an end.
    fn enter_block(&mut self) -> Result<(), TemplateError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return fail(format!("more than {DEPTH_MAX} blocks in each other"));
        }
        Ok(())
    }

    /// A block up to its `end`. Its variables are known only inside.
    fn block(&mut self, word: &str, head: Vec<Token>) -> Result<Part, TemplateError> {
        self.enter_block()?;
        let outside = self.variables.len();
        let part = match word {
            "if" => self.conditional(head),
            "with" => {
                let pipeline = self.pipeline(head)?;
                let (body, otherwise) = self.body_and_else(word)?;
                Ok(Part::With {
                    pipeline,
                    body,
                    otherwise,
                })
            }

            _ => {
                let (key, head) = range_key(head)?;
                if let Some(key) = &key {
                    self.variables.push(key.clone());
                }
                let pipeline = self.pipeline(head)?;
                self.loops += 1;
                let (body, otherwise) = self.body_and_else(word)?;
                self.loops -= 1;
                Ok(Part::Range {
                    key,
                    pipeline,
                    body,
                    otherwise,
                })
            }
        };

        self.variables.truncate(outside);
        self.depth -= 1;
        part
    }

    fn conditional(&mut self, head: Vec<Token>) -> Result<Part, TemplateError> {
        let mut arms = Vec::new();
        let mut head = head;
        // A chain of `else if` is a loop here, so that its length needs no depth.
        loop {
            let condition = self.pipeline(head)?;
            let (body, ending, behind) = self.parts_until()?;
            arms.push((condition, body));
            match (ending, behind.first()) {
                (Some("end"), _) => {
                    return Ok(Part::If {
                        arms,
                        otherwise: Vec::new(),
                    });
                }
                (Some("else"), None) => {
                    let (otherwise, ending) = self.parts()?;
                    return match ending {
                        Some("end") => Ok(Part::If { arms, otherwise }),
                        _ => fail("`if` has no `end`"),
                    };
                }
                (Some("else"), Some(Token::Word(word))) if word == "if" => {
                    head = behind[1..].to_vec()
                }
                (Some("else"), _) => return fail("only `if` may stand behind `else`"),
                _ => return fail("`if` has no `end`"),
            }
        }
    }

    fn body_and_else(&mut self, word: &str) -> Result<(Vec<Part>, Vec<Part>), TemplateError> {
        let (body, ending, behind) = self.parts_until()?;
        match (ending, behind.is_empty()) {
            (Some("end"), _) => Ok((body, Vec::new())),
            (Some("else"), true) => match self.parts()? {
                (otherwise, Some("end")) => Ok((body, otherwise)),
                _ => fail(format!("`{word}` has no `end`")),
            },
            (Some("else"), false)
                if word == "with" && behind[0] == Token::Word("with".to_owned()) =>
            {
                Ok((body, vec![self.block("with", behind[1..].to_vec())?]))
            }
            (Some("else"), false) => {
                fail(format!("nothing may stand behind the `else` of `{word}`"))
            }
            _ => fail(format!("`{word}` has no `end`")),
        }
    }

    fn pipeline(&mut self, tokens: Vec<Token>) -> Result<Pipeline, TemplateError> {
        let (target, tokens) = match &tokens[..] {
            [
                Token::Variable(name),
                Token::Sign(sign @ (":=" | "=")),
                rest @ ..,
            ] => (
                Some(Target {
                    name: name.clone(),
                    declares: *sign == ":=",
                }),
                rest,
            ),
            all => (None, all),
        };

        let mut tokens = tokens.iter().peekable();
        let commands = self.commands(&mut tokens)?;
        if tokens.next().is_some() {
            return fail("`)` without `(`");
        }
        // As in Go, a variable is known only behind its own value.
        match &target {
            Some(target) if target.declares => self.variables.push(target.name.clone()),
            Some(target) => self.known(&target.name)?,
            None => {}
        }
        Ok(Pipeline { target, commands })
    }

    fn commands(&mut self, tokens: &mut Tokens<'_>) -> Result<Vec<Command>, TemplateError> {
        let mut commands = Vec::new();
        loop {
            let mut operands: Vec<Operand> = Vec::new();
            while let Some(token) = tokens.next_if(|token| !matches!(token, Token::Sign("|" | ")")))
            {
                match (token, operands.last_mut()) {
                    (Token::Field { name, glued: true }, Some(last)) => {
                        last.fields.push(name.clone())
                    }
                    (token, _) => operands.push(self.operand(token, tokens)?),
                }
            }
            // As in Go, only functions and methods can take what is piped into them.
            let is_constant = |operand: &Operand| {
                matches!(
                    operand.base,
                    Base::Text(_) | Base::Int(_) | Base::Float(_) | Base::Bool(_) | Base::Nil
                )
            };
            match operands.first() {
                None => return fail("a value is missing"),
                Some(first) if !commands.is_empty() && is_constant(first) => {
                    return fail(format!(
                        "what stands first in stage {} of the pipeline cannot be called",
                        commands.len() + 1
                    ));
                }
                Some(_) => {}
            }

            commands.push(Command { operands });
            if tokens
                .next_if(|token| **token == Token::Sign("|"))
                .is_none()
            {
                return Ok(commands);
            }
        }
    }

    fn operand(
        &mut self,
        token: &Token,
        tokens: &mut Tokens<'_>,
    ) -> Result<Operand, TemplateError> {
        let mut fields = Vec::new();
        let base = match token {
            Token::Dot => Base::Dot,
            Token::Field { name, .. } => {
                fields.push(name.clone());
                Base::Dot
            }
            Token::Variable(name) => {
                self.known(name)?;
                Base::Variable(name.clone())
            }
            Token::Text(text) => Base::Text(text.clone()),
            Token::Int(int) => Base::Int(*int),
            Token::Float(float) => Base::Float(*float),
            Token::Word(word) => match word.as_str() {
                "true" => Base::Bool(true),
                "false" => Base::Bool(false),
                "nil" => Base::Nil,
                name => Base::Function(functions::by_name(name, self.dialect)?),
            },
            Token::Sign("(") => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return fail(format!("more than {DEPTH_MAX} parentheses in each other"));
                }
                let commands = self.commands(tokens)?;
                self.depth -= 1;

                if tokens.next() != Some(&Token::Sign(")")) {
                    return fail("`(` is not closed");
                }
                Base::Group(Box::new(Pipeline {
                    target: None,
                    commands,
                }))
            }
            Token::Sign(sign) => return fail(format!("`{sign}` has no meaning here")),
        };
        Ok(Operand { base, fields })
    }

    fn known(&self, name: &str) -> Result<(), TemplateError> {
        if self.variables.iter().any(|known| known == name) {
            Ok(())
        } else {
            fail(format!("no variable `{name}`"))
        }
    }
}

type Tokens<'a> = iter::Peekable<slice::Iter<'a, Token>>;

/// Splits the name off the head of `define "name"` and similar actions.
fn quoted_name(word: &str, mut head: Vec<Token>) -> Result<(String, Vec<Token>), TemplateError> {
    match head.first() {
        Some(Token::Text(name)) => {
            let name = name.clone();
            head.remove(0);
            Ok((name, head))
        }
        _ => fail(format!("`{word}` needs a name in quotes")),
    }
}

/// Splits `$key,` off the head of `range $key, $value := …`.
fn range_key(mut head: Vec<Token>) -> Result<(Option<String>, Vec<Token>), TemplateError> {
    // Two variables need the key, the comma and the value in this order.
    let key = match &head[..] {
        [
            Token::Variable(key),
            Token::Sign(","),
            Token::Variable(_),
            Token::Sign(":="),
            ..,
        ] => key.clone(),
        [_, Token::Sign(","), ..] => {
            return fail("`range $key, $value := …` is the only form with two variables");
        }
        _ => return Ok((None, head)),
    };

    head.drain(..2);
    Ok((Some(key), head))
}
