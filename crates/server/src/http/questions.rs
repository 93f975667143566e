//! Routes of the questions: one generic handler per form of request.

use super::{App, By, GuardedRouter, blocking};
use crate::answers::{
    AnswerData, AnswerError, Question, QuestionVisitor, RequestForm, ServedQuestion,
    for_each_question,
};
use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{Form, Json, Query, State};
use axum::routing::{MethodRouter, get, post};
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use std::sync::Arc;
use takt_access::{Need, RouteNeeds, Viewer};

/// The routes of all questions.
pub(super) fn router(app: App) -> GuardedRouter {
    let mut routes = Routes(GuardedRouter::new());
    for_each_question(&mut routes);
    routes.0.with_state(app)
}

struct Routes(GuardedRouter<App>);

impl QuestionVisitor for Routes {
    fn question<Q: ServedQuestion>(&mut self) {
        let router = std::mem::take(&mut self.0);
        self.0 = router.route(Q::PATH, needs::<Q>(), handler::<Q>());
    }
}

/// The needs of a question's route.
fn needs<Q: Question>() -> RouteNeeds {
    match Q::NEED {
        Need::Change(role) => RouteNeeds::change(role),
        need => RouteNeeds::read(need),
    }
}

fn handler<Q: ServedQuestion>() -> MethodRouter<App> {
    match Q::REQUEST {
        RequestForm::Get => get(from_query::<Q>),
        RequestForm::PostQuery => post(from_query::<Q>),
        RequestForm::PostForm => post(from_form::<Q>),
        RequestForm::PostJson => post(from_json::<Q>),
        RequestForm::PostText => post(from_text::<Q>),
    }
}

type Reply<Q> = Result<Json<<Q as Question>::Answer>, AnswerError>;

async fn from_query<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    question: Result<Query<Q>, QueryRejection>,
) -> Reply<Q> {
    let Query(question) = question.map_err(|refused| malformed(&refused.body_text()))?;
    answer(app, viewer, question).await
}

async fn from_form<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    question: Result<Form<Q>, FormRejection>,
) -> Reply<Q> {
    let Form(question) = question.map_err(|refused| malformed(&refused.body_text()))?;
    answer(app, viewer, question).await
}

async fn from_json<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    Json(question): Json<Q>,
) -> Reply<Q> {
    answer(app, viewer, question).await
}

async fn from_text<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    text: String,
) -> Reply<Q> {
    let deserializer = IntoDeserializer::<ValueError>::into_deserializer(text);
    let question = Q::deserialize(deserializer).map_err(AnswerError::usage)?;
    answer(app, viewer, question).await
}

/// Describes a mistake in the parameters, in the words of the reader instead of the parser's.
fn malformed(said: &str) -> AnswerError {
    let said = said.strip_prefix("Failed to deserialize ").unwrap_or(said);
    let said = said.split_once(": ").map_or(said, |(_, rest)| rest);
    let (key, said) = said.split_once(": ").unwrap_or(("parameters", said));
    let expected = match said {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number".to_owned()
        }
        "invalid float literal" | "cannot parse float from empty string" => {
            "expected a number".to_owned()
        }
        "provided string was not `true` or `false`" => "expected true or false".to_owned(),
        _ if said.starts_with("unknown field") => {
            let known = said.split_once("expected ").map_or("", |(_, known)| known);
            let known = known.trim_start_matches("one of ").replace('`', "");
            format!("no such parameter; expected one of {known}")
        }
        _ => said.replace('`', ""),
    };
    AnswerError::Usage(format!("{key}: {expected}"))
}

async fn answer<Q: ServedQuestion>(app: App, viewer: Viewer, question: Q) -> Reply<Q> {
    let app = Arc::clone(app.of(&viewer));
    blocking(move || question.answer(&viewer, Q::Data::of(&app.store), &app.config)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_parameters_are_described_plainly() {
        for (said, expected) in [
            (
                "Failed to deserialize query string: limit: invalid digit found in string",
                "limit: expected a whole number",
            ),
            (
                "Failed to deserialize query string: plan_hours: invalid float literal",
                "plan_hours: expected a number",
            ),
            (
                "Failed to deserialize query string: foo: unknown field `foo`, expected one of `a`, `b`",
                "foo: no such parameter; expected one of a, b",
            ),
        ] {
            assert_eq!(malformed(said).to_string(), expected);
        }
    }
}
