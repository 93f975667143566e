//! From the parts of a template to text.

use super::number::print_float;
use super::parse::{Base, Command, Operand, Part, Pipeline};
use super::{Context, TemplateError};
use std::borrow::Cow;
use takt_model::Labels;

/// What an expression in a template stands for.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Labels(&'a Labels),
    /// The alert itself, `.` at the outermost level.
    Alert,
}

impl Value<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Nil => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a number with a fraction",
            Self::Text(_) => "text",
            Self::Labels(_) => "labels",
            Self::Alert => "the alert",
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Labels(labels) => !labels.is_empty(),
            Self::Alert => true,
        }
    }

    /// As Go prints it with `%v`.
    pub(super) fn print(&self) -> Cow<'_, str> {
        match self {
            Self::Nil => Cow::Borrowed("<no value>"),
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Int(value) => Cow::Owned(value.to_string()),
            Self::Float(value) => Cow::Owned(print_float(*value)),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Labels(labels) => {
                let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}:{value}")).collect();
                Cow::Owned(format!("map[{}]", pairs.join(" ")))
            }
            Self::Alert => Cow::Borrowed("<alert>"),
        }
    }
}

pub(super) fn fail<T>(what: impl Into<String>) -> Result<T, TemplateError> {
    Err(TemplateError(what.into()))
}

pub(super) fn run(body: &[Part], context: &Context<'_>) -> Result<String, TemplateError> {
    let variables = vec![
        ("$", Value::Alert),
        ("$labels", Value::Labels(context.labels)),
        ("$externalLabels", Value::Labels(context.external_labels)),
        ("$externalURL", Value::Text(Cow::Borrowed(context.external_url))),
        ("$value", Value::Float(context.value)),
    ];
    let mut machine = Machine { context, variables, out: String::new() };
    machine.run(body, &Value::Alert)?;
    Ok(machine.out)
}

struct Machine<'a> {
    context: &'a Context<'a>,
    variables: Vec<(&'a str, Value<'a>)>,
    out: String,
}

impl<'a> Machine<'a> {
    fn run(&mut self, parts: &'a [Part], dot: &Value<'a>) -> Result<(), TemplateError> {
        for part in parts {
            match part {
                Part::Text(text) => self.out.push_str(text),
                Part::Print(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    if pipeline.target.is_none() {
                        self.out.push_str(&value.print());
                    }
                }
                Part::If { arms, otherwise } => self.scoped(|machine| {
                    for (condition, body) in arms {
                        if machine.pipeline(condition, dot)?.is_true() {
                            return machine.run(body, dot);
                        }
                    }
                    machine.run(otherwise, dot)
                })?,
                Part::With { pipeline, body, otherwise } => self.scoped(|machine| {
                    let value = machine.pipeline(pipeline, dot)?;
                    match value.is_true() {
                        true => machine.run(body, &value),
                        false => machine.run(otherwise, dot),
                    }
                })?,
                Part::Range { key, pipeline, body, otherwise } => {
                    self.scoped(|machine| machine.range(key.as_deref(), pipeline, body, otherwise, dot))?;
                }
            }
        }
        Ok(())
    }

    fn range(
        &mut self,
        key: Option<&'a str>,
        pipeline: &'a Pipeline,
        body: &'a [Part],
        otherwise: &'a [Part],
        dot: &Value<'a>,
    ) -> Result<(), TemplateError> {
        let labels = match self.commands(&pipeline.commands, dot)? {
            Value::Labels(labels) => labels,
            other => return fail(format!("`range` cannot walk over {}", other.name())),
        };
        if labels.is_empty() {
            return self.run(otherwise, dot);
        }
        let outside = self.variables.len();
        for (name, value) in labels.iter() {
            let value = Value::Text(Cow::Borrowed(value));
            if let Some(key) = key {
                self.variables.push((key, Value::Text(Cow::Borrowed(name))));
            }
            if let Some(target) = &pipeline.target {
                self.variables.push((&target.name, value.clone()));
            }
            self.run(body, &value)?;
            self.variables.truncate(outside);
        }
        Ok(())
    }

    /// Forgets what was declared inside.
    fn scoped(&mut self, inside: impl FnOnce(&mut Self) -> Result<(), TemplateError>) -> Result<(), TemplateError> {
        let outside = self.variables.len();
        let result = inside(self);
        self.variables.truncate(outside);
        result
    }

    fn pipeline(&mut self, pipeline: &'a Pipeline, dot: &Value<'a>) -> Result<Value<'a>, TemplateError> {
        let value = self.commands(&pipeline.commands, dot)?;
        match &pipeline.target {
            Some(target) if target.declares => self.variables.push((&target.name, value.clone())),
            Some(target) => {
                let known = self.variables.iter_mut().rev().find(|(name, _)| *name == target.name);
                known.ok_or_else(|| TemplateError(format!("no variable `{}`", target.name)))?.1 = value.clone();
            }
            None => {}
        }
        Ok(value)
    }

    fn commands(&mut self, commands: &'a [Command], dot: &Value<'a>) -> Result<Value<'a>, TemplateError> {
        let mut piped = None;
        for command in commands {
            piped = Some(self.command(command, piped, dot)?);
        }
        Ok(piped.unwrap_or(Value::Nil))
    }

    fn command(
        &mut self,
        command: &'a Command,
        piped: Option<Value<'a>>,
        dot: &Value<'a>,
    ) -> Result<Value<'a>, TemplateError> {
        let (first, rest) = command.operands.split_first().ok_or_else(|| TemplateError("nothing to do".to_owned()))?;
        let Base::Function(function) = &first.base else {
            let value = self.operand(first, dot)?;
            return match rest.is_empty() && piped.is_none() {
                true => Ok(value),
                false => fail(format!("{} cannot be called", value.name())),
            };
        };
        let mut arguments = Vec::with_capacity(rest.len() + 1);
        for operand in rest {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(piped);
        let value = function.call(arguments, self.context)?;
        self.walk(value, &first.fields)
    }

    fn operand(&mut self, operand: &'a Operand, dot: &Value<'a>) -> Result<Value<'a>, TemplateError> {
        let base = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Variable(name) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                known.map(|(_, value)| value.clone()).ok_or_else(|| TemplateError(format!("no variable `{name}`")))?
            }
            Base::Text(text) => Value::Text(Cow::Borrowed(text)),
            Base::Int(int) => Value::Int(*int),
            Base::Float(float) => Value::Float(*float),
            Base::Bool(value) => Value::Bool(*value),
            Base::Nil => Value::Nil,
            Base::Function(function) => function.call(Vec::new(), self.context)?,
            Base::Group(pipeline) => self.pipeline(pipeline, dot)?,
        };
        self.walk(base, &operand.fields)
    }

    fn walk(&self, mut value: Value<'a>, fields: &[String]) -> Result<Value<'a>, TemplateError> {
        for field in fields {
            value = match (&value, field.as_str()) {
                (Value::Alert, "Labels") => Value::Labels(self.context.labels),
                (Value::Alert, "ExternalLabels") => Value::Labels(self.context.external_labels),
                (Value::Alert, "ExternalURL") => Value::Text(Cow::Borrowed(self.context.external_url)),
                (Value::Alert, "Value") => Value::Float(self.context.value),
                (Value::Labels(labels), name) => Value::Text(Cow::Borrowed(labels.get(name).unwrap_or_default())),
                (Value::Int(_) | Value::Float(_), name) => return fail(format!("no field `{name}` in a number")),
                (other, name) => return fail(format!("no field `{name}` in {}", other.name())),
            };
        }
        Ok(value)
    }
}
