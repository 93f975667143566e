//! Evaluates the parts of a template to text.

use super::functions::{self, Function, escape_html};
use super::parse::{Base, Command, Defines, Operand, Part, Pipeline};
use super::value::{Value, fail, mistake};
use super::{TemplateError, World, members};
use std::borrow::Cow;
use std::mem;
use std::time::{Duration, Instant};

/// Depth of templates that call one another.
const CALLS_MAX: usize = 40;

/// Longest text, in bytes: a template must not fill the memory.
const OUT_MAX: usize = 1 << 20;

/// Longest time of one text: loops in loops over thousands of samples would take hours.
const RUN_MAX: Duration = Duration::from_secs(5);

/// Runs a template over `dot`, with `variables` known at its outermost level.
pub(super) fn run<'a>(
    body: &'a [Part],
    defines: &[&'a Defines],
    world: &World<'a>,
    dot: &Value<'a>,
    variables: Vec<(&'a str, Value<'a>)>,
) -> Result<String, TemplateError> {
    let mut machine = Machine::new(defines, world, variables);
    machine.run(body, dot)?;
    Ok(machine.out)
}

/// Runs a template with all branches, whatever their conditions, and returns the first error that does
/// not depend on the data.
pub(super) fn rehearse<'a>(
    body: &'a [Part],
    defines: &[&'a Defines],
    world: &World<'a>,
    dot: &Value<'a>,
    variables: Vec<(&'a str, Value<'a>)>,
) -> Result<(), TemplateError> {
    let mut machine = Machine {
        rehearsing: Some(Vec::new()),
        ..Machine::new(defines, world, variables)
    };
    machine.run(body, dot).map(drop)
}

/// The result, unless it failed for the data.
fn only_mistakes<T>(result: Result<T, TemplateError>) -> Result<Option<T>, TemplateError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_mistake => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether a pipeline ends with a function whose result is HTML.
fn is_markup(pipeline: &Pipeline) -> bool {
    pipeline
        .commands
        .last()
        .and_then(|command| command.operands.first())
        .is_some_and(|operand| match &operand.base {
            Base::Function(function) => ["html", "safeHtml"].contains(&function.name()),
            _ => false,
        })
}

struct Machine<'w, 'a> {
    world: &'w World<'a>,
    /// Templates that can be called by name; earlier maps take precedence.
    defines: &'w [&'a Defines],
    variables: Vec<(&'a str, Value<'a>)>,
    out: String,
    calls: usize,
    /// The end of [`RUN_MAX`].
    until: Instant,
    /// In a rehearsal: the templates that are being called.
    rehearsing: Option<Vec<String>>,
}

/// The reason for which a list of parts ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

type Run = Result<Flow, TemplateError>;

impl<'w, 'a> Machine<'w, 'a> {
    fn new(
        defines: &'w [&'a Defines],
        world: &'w World<'a>,
        variables: Vec<(&'a str, Value<'a>)>,
    ) -> Self {
        Self {
            world,
            defines,
            variables,
            out: String::new(),
            calls: 0,
            until: Instant::now() + RUN_MAX,
            rehearsing: None,
        }
    }

    fn run(&mut self, parts: &'a [Part], dot: &Value<'a>) -> Run {
        for part in parts {
            // All branches count, not only the ones that the invented data choose.
            if self.rehearsing.is_some() {
                self.try_part(part, dot)?;
                continue;
            }
            let flow = match part {
                Part::Text(text) => self.print(text)?,
                Part::Print(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    match pipeline.target {
                        // As in Go's `html/template`, unless the last function says that the value is HTML.
                        None if self.world.is_html && !is_markup(pipeline) => {
                            self.print(&escape_html(&value.print()))?
                        }
                        None => self.print(&value.print())?,
                        Some(_) => Flow::On,
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
                Part::With {
                    pipeline,
                    body,
                    otherwise,
                } => self.scoped(|machine| {
                    let value = machine.pipeline(pipeline, dot)?;
                    if value.is_true() {
                        machine.run(body, &value)
                    } else {
                        machine.run(otherwise, dot)
                    }
                })?,
                Part::Range {
                    key,
                    pipeline,
                    body,
                    otherwise,
                } => self.scoped(|machine| {
                    machine.range(key.as_deref(), pipeline, body, otherwise, dot)
                })?,
                Part::Call { name, pipeline } => {
                    let dot = pipeline
                        .as_ref()
                        .map_or(Ok(Value::Nil), |pipeline| self.pipeline(pipeline, dot))?;
                    self.call(name, &dot)?
                }
                Part::Break => Flow::Break,
                Part::Continue => Flow::Continue,
            };

            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    /// Runs a part with all its branches. Only mistakes are errors.
    fn try_part(&mut self, part: &'a Part, dot: &Value<'a>) -> Result<(), TemplateError> {
        // Loops in loops could make the rehearsal itself take hours.
        if Instant::now() > self.until {
            return Ok(());
        }
        match part {
            Part::Text(_) | Part::Break | Part::Continue => {}
            Part::Print(pipeline) => drop(self.try_pipeline(pipeline, dot)?),
            Part::If { arms, otherwise } => {
                let outside = self.variables.len();
                for (condition, body) in arms {
                    self.try_pipeline(condition, dot)?;
                    self.try_branch(body, dot)?;
                }
                self.try_branch(otherwise, dot)?;
                self.variables.truncate(outside);
            }
            Part::With {
                pipeline,
                body,
                otherwise,
            } => {
                let outside = self.variables.len();
                if let Some(value) = self.try_pipeline(pipeline, dot)? {
                    self.try_branch(body, &value)?;
                }
                self.try_branch(otherwise, dot)?;
                self.variables.truncate(outside);
            }
            Part::Range {
                key,
                pipeline,
                body,
                otherwise,
            } => {
                // The list may be empty here; two items are enough to show what the body needs.
                let items = only_mistakes(self.commands(&pipeline.commands, dot))?;

                let items = items.and_then(|items| items.items().ok());
                let outside = self.variables.len();

                for (name, value) in items.into_iter().flatten().take(2) {
                    self.variables.extend(key.as_deref().map(|key| (key, name)));
                    if let Some(target) = &pipeline.target {
                        self.variables.push((&target.name, value.clone()));
                    }
                    self.try_branch(body, &value)?;
                    self.variables.truncate(outside);
                }
                self.try_branch(otherwise, dot)?;
            }
            Part::Call { name, pipeline } => {
                let dot = match pipeline {
                    Some(pipeline) => self.try_pipeline(pipeline, dot)?,
                    None => Some(Value::Nil),
                };
                if let Some(dot) = dot {
                    only_mistakes(self.call(name, &dot))?;
                }
            }
        }
        Ok(())
    }

    fn try_pipeline(
        &mut self,
        pipeline: &'a Pipeline,
        dot: &Value<'a>,
    ) -> Result<Option<Value<'a>>, TemplateError> {
        only_mistakes(self.pipeline(pipeline, dot))
    }

    /// Runs a branch that may not be the one: what it sets counts for nothing.
    fn try_branch(&mut self, body: &'a [Part], dot: &Value<'a>) -> Result<(), TemplateError> {
        let before = self.variables.clone();
        let result = self.run(body, dot);
        self.variables = before;
        result.map(drop)
    }

    fn print(&mut self, text: &str) -> Run {
        self.out.push_str(text);
        if self.out.len() > OUT_MAX {
            fail(format!("more than {OUT_MAX} bytes of text"))
        } else {
            Ok(Flow::On)
        }
    }

    /// Runs a template by its name, without the variables of its caller.
    fn call(&mut self, name: &str, dot: &Value<'a>) -> Run {
        let body = self
            .defines
            .iter()
            .find_map(|defines| defines.get(name))
            .map_or_else(|| mistake(format!("no template `{name}`")), Ok)?;

        // A template that calls itself ends only by its data, which a rehearsal does not follow.
        if let Some(calling) = &mut self.rehearsing {
            if calling.iter().any(|outer| outer == name) {
                return Ok(Flow::On);
            }
            calling.push(name.to_owned());
        }

        self.calls += 1;
        if self.calls > CALLS_MAX {
            return fail(format!("more than {CALLS_MAX} templates in each other"));
        }

        // As in Go, a template sees none of its caller's variables.
        let outside = mem::replace(&mut self.variables, vec![("$", dot.clone())]);
        let result = self.run(body, dot);
        self.variables = outside;
        self.calls -= 1;
        self.rehearsing.as_mut().map(Vec::pop);
        result
    }

    fn range(
        &mut self,
        key: Option<&'a str>,
        pipeline: &'a Pipeline,
        body: &'a [Part],
        otherwise: &'a [Part],
        dot: &Value<'a>,
    ) -> Run {
        let items = self.commands(&pipeline.commands, dot)?.items()?;
        if items.is_empty() {
            return self.run(otherwise, dot);
        }

        let outside = self.variables.len();
        for (name, value) in items {
            // Only loops in loops can run for longer than queries take.
            if Instant::now() > self.until {
                return fail(format!("no end within {} s", RUN_MAX.as_secs()));
            }
            if let Some(key) = key {
                self.variables.push((key, name));
            }
            if let Some(target) = &pipeline.target {
                self.variables.push((&target.name, value.clone()));
            }

            let flow = self.run(body, &value)?;
            self.variables.truncate(outside);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::On)
    }

    /// Forgets the variables declared inside.
    fn scoped(&mut self, inside: impl FnOnce(&mut Self) -> Run) -> Run {
        let outside = self.variables.len();
        let result = inside(self);
        self.variables.truncate(outside);
        result
    }

    fn pipeline(
        &mut self,
        pipeline: &'a Pipeline,
        dot: &Value<'a>,
    ) -> Result<Value<'a>, TemplateError> {
        let value = self.commands(&pipeline.commands, dot)?;
        match &pipeline.target {
            Some(target) if target.declares => self.variables.push((&target.name, value.clone())),
            Some(target) => {
                // The innermost variable of that name, as blocks may declare it again.
                let known = self
                    .variables
                    .iter_mut()
                    .rev()
                    .find(|(name, _)| *name == target.name)
                    .ok_or_else(|| TemplateError::new(format!("no variable `{}`", target.name)))?;
                known.1 = value.clone();
            }
            None => {}
        }
        Ok(value)
    }

    fn commands(
        &mut self,
        commands: &'a [Command],
        dot: &Value<'a>,
    ) -> Result<Value<'a>, TemplateError> {
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
        let (first, rest) = command
            .operands
            .split_first()
            .ok_or_else(|| TemplateError::new("nothing to do".to_owned()))?;

        let is_alone = rest.is_empty() && piped.is_none();
        match (&first.base, first.fields.split_last()) {
            (Base::Function(function), None) => self.function(function, rest, piped, dot),
            // The arguments after `.Labels.Remove` and `now.Sub` belong to the last name.
            (_, Some((method, fields))) if !is_alone => {
                let value = members::walk(self.base(first, dot)?, fields)?;
                let arguments = self.arguments(rest, piped, dot)?;
                members::member(&value, method, &arguments)
            }
            _ => {
                let value = self.operand(first, dot)?;
                if is_alone {
                    Ok(value)
                } else {
                    fail(format!("{} cannot be called", value.name()))
                }
            }
        }
    }

    fn arguments(
        &mut self,
        operands: &'a [Operand],
        piped: Option<Value<'a>>,
        dot: &Value<'a>,
    ) -> Result<Vec<Value<'a>>, TemplateError> {
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(piped);
        Ok(arguments)
    }

    fn function(
        &mut self,
        function: &Function,
        operands: &'a [Operand],
        piped: Option<Value<'a>>,
        dot: &Value<'a>,
    ) -> Result<Value<'a>, TemplateError> {
        // `and` and `or` look no further than they have to, as in Go.
        if let Some(wanted) = function.stops_at() {
            let mut last = Err(TemplateError::new(format!(
                "`{function:?}` takes at least one argument"
            )));
            for operand in operands {
                let value = self.operand(operand, dot)?;
                if value.is_true() == wanted {
                    return Ok(value);
                }
                last = Ok(value);
            }
            return piped.map_or(last, Ok);
        }

        let arguments = self.arguments(operands, piped, dot)?;
        if function.is(functions::TMPL) {
            let [Value::Text(name), dot] = &arguments[..] else {
                return fail("`tmpl` takes a name and a value");
            };
            // The text becomes a value, so it must not go into the output here.
            let before = mem::take(&mut self.out);
            let result = self.call(name, dot);
            let said = mem::replace(&mut self.out, before);
            return result.map(|_| Value::Text(Cow::Owned(said)));
        }
        function.call(arguments, self.world)
    }

    fn operand(
        &mut self,
        operand: &'a Operand,
        dot: &Value<'a>,
    ) -> Result<Value<'a>, TemplateError> {
        let base = self.base(operand, dot)?;
        members::walk(base, &operand.fields)
    }

    fn base(&mut self, operand: &'a Operand, dot: &Value<'a>) -> Result<Value<'a>, TemplateError> {
        Ok(match &operand.base {
            Base::Dot => dot.clone(),
            Base::Variable(name) => self
                .variables
                .iter()
                .rev()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
                .ok_or_else(|| TemplateError::new(format!("no variable `{name}`")))?,
            Base::Text(text) => Value::Text(Cow::Borrowed(text)),
            Base::Int(int) => Value::Int(*int),
            Base::Float(float) => Value::Float(*float),
            Base::Bool(value) => Value::Bool(*value),
            Base::Nil => Value::Nil,
            Base::Function(function) => self.function(function, &[], None, dot)?,
            Base::Group(pipeline) => self.pipeline(pipeline, dot)?,
        })
    }
}
